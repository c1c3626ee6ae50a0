"""The three roles in one process, for an organisation that already holds the data and wants to publish a private mean.

Here reports go straight into the table of counts: a permutation cannot change that table, so counting shuffles
perfectly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack, get_args

import numpy as np

from shufflesum._checks import check_size
from shufflesum._machine import Workers, cores
from shufflesum.budget import Budget
from shufflesum.domains import Domain, GroupBy, Missing, MissingOrDrop, Prepared, users_rows
from shufflesum.domains.bounds import explicit_bounds
from shufflesum.domains.frames import BATCH_VALUES, FrameRows, columns_of, library_of, select_columns, split_column
from shufflesum.domains.labels import present, taken, without_case
from shufflesum.errors import DataError, ParameterError
from shufflesum.estimate import AnyEstimate, adjusted_by
from shufflesum.planning import DomainLike, PlanOptions, Shape, domain_of, plan_in_process
from shufflesum.plans import Plan, check_plan
from shufflesum.protocol import Tally, check_rows
from shufflesum.randomness import RandomSource
from shufflesum.release import release

_SPARE_CELLS = 1 << 25


def aggregate(
    arrays: Any,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    plan: Plan | None = None,
    domain: DomainLike | None = None,
    shape: Shape | None = None,
    group_by: Any = None,
    clip: bool = False,
    missing: MissingOrDrop = "refuse",
    ignore_case: bool = False,
    workers: int | None = None,
    source: RandomSource | None = None,
    round_number: int | None = None,
    budget: Budget | None = None,
    **choices: Unpack[PlanOptions],
) -> AnyEstimate:
    """The private mean and sum of `arrays`, of shape (users, *shape): plan, randomize, shuffle and analyze.

    `arrays` may also be a table of pandas, Polars, PyArrow or DuckDB, one row for each user: columns of numbers, or one
    column of equally long lists; `columns` names those to take. Nulls are missing values. With `shape` (3, 4), a row of
    12 numbers is taken row after row of the matrix; otherwise `shape` is needed for a structure (`Symmetric`, `Span`)
    only. With `Categories` or `OpenVocabulary` the `arrays` are one label for each user, with `MultiChoice` a list of
    labels, and with `GroupBy` the labels are given as `group_by`, or are the column of that name in a table; a Series
    of pandas is aligned by its index, or refused. A list of labels as `domain` stands for `Categories`, and beside
    `group_by` for `GroupBy`. With a `L2Ball` of layers they may be a list of updates, each a list or dictionary of
    arrays. `missing="drop"` leaves out rows with a missing value, and `ignore_case` reads labels without regard to
    capitals. The other arguments are those of `shufflesum.plan`. The plan is in the estimate: `estimate.plan`.

    A `plan` made before takes the place of epsilon, delta, shape and all of its own arguments. Its guarantee covers its
    rounds: a second look at the same users is `round_number` 2, which the plan must have (`shufflesum.RoundCounter`
    counts them). With a `budget` the plan is begun there before anything is drawn, and refused if it does not fit; the
    round is then the budget's next, unless it is given. What else is refused, is refused before and costs nothing.
    """
    library = library_of(arrays)
    if plan is None:
        arrays = _chosen(arrays, group_by, choices.get("columns"))
        if group_by is not None and isinstance(domain, list | tuple):
            held, _ = users_numbers(_grouped(arrays, group_by, GroupBy(domain))[1])
            domain = GroupBy(domain, () if held.shape[1:] == (1,) else held.shape[1:])
    numbers = domain.numbers if isinstance(domain, Domain) else None
    default = domain is None or (numbers is not None and numbers.default_bounds)
    unbounded = plan is None and choices.get("bounds") is None and default
    if plan is None:
        values = _grouped(arrays, group_by, domain)
        plan, rows, left_out = _planned(values, domain, shape, epsilon, delta, missing, choices)
    else:
        _check_fixed(plan, {"epsilon": epsilon, "delta": delta, "domain": domain, "shape": shape} | choices)
        rows, left_out = complete_rows(plan.domain.rows(_grouped(arrays, group_by, plan.domain)), missing)
        if len(rows) < plan.smallest_batch:
            raise DataError(
                "too-few-users",
                f"arrays has {len(rows)} rows, but the plan needs at least {plan.smallest_batch} users; add rows, or "
                "plan for fewer users",
            )
    if ignore_case:
        rows = without_case(getattr(plan.domain, "labels", None))(rows)
    filled: Missing = "refuse" if missing == "drop" else missing
    prepared = Prepared(plan.domain, rows, clip, filled, 0)
    with explicit_bounds(unbounded, clip=clip):
        estimate = aggregate_rows(
            lambda: prepared.parts(max(1, BATCH_VALUES // plan.domain.entries)),
            plan,
            begin=round_of(budget, plan),
            clip=clip,
            missing=filled,
            workers=workers,
            source=source,
            round_number=round_number,
        )
    return without_rows(replace(estimate, library=library if library != "pyarrow" else None), missing, left_out)


def complete_rows(rows: Any, missing: MissingOrDrop) -> tuple[Any, int]:
    """The rows that lack nothing, and how many were left out, if that is what is to be done; else all."""
    if missing not in get_args(MissingOrDrop):
        raise ParameterError(
            "unknown-choice",
            f"missing={missing!r} is not allowed: give {', '.join(map(repr, get_args(MissingOrDrop)))}",
        )
    if missing != "drop":
        return rows, 0
    kept = present(rows)
    if not kept.any():
        raise DataError("no-rows", "every row has a missing value, and nobody is left; fill some in")
    return (rows, 0) if kept.all() else (taken(rows, kept), int(np.count_nonzero(~kept)))


def without_rows(estimate: AnyEstimate, missing: str, left_out: int) -> AnyEstimate:
    """The estimate, which says how many rows were left out, if such were to be."""
    if missing != "drop":
        return estimate
    return replace(estimate, adjusted=(*estimate.adjusted, "dropped"), left_out=left_out)


def _planned(
    values: Any,
    domain: DomainLike | None,
    shape: Shape | None,
    epsilon: float | None,
    delta: float | None,
    missing: MissingOrDrop,
    choices: PlanOptions,
) -> tuple[Plan, Any, int]:
    """A plan for just these users, their rows, and how many were left out."""
    if epsilon is None or delta is None:
        lacking = "epsilon" if epsilon is None else "delta"
        raise ParameterError("missing-argument", f"{lacking} is missing; give epsilon and delta, or a plan")
    if domain is None:
        values, _ = users_numbers(values)
        shape = values.shape[1:] if shape is None else shape
    asked = domain_of(domain, shape, None, choices.get("columns"))
    rows = asked.rows(values)
    asked = asked.with_numbers(choices.get("bounds"), asked.names_in(rows))
    rows, left_out = complete_rows(rows, missing)
    rest: dict[str, Any] = {name: value for name, value in choices.items() if name not in ("bounds", "columns")}
    return plan_in_process(users=len(rows), domain=asked, epsilon=epsilon, delta=delta, **rest), rows, left_out


def users_numbers(values: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Arrays of at least one user, and what a table of them calls the entries of vectors."""
    rows = users_rows(values)
    if rows.ndim == 0 or len(rows) == 0:
        raise DataError(
            "no-rows", f"values have shape {rows.shape}; one array for each of at least one user is expected"
        )
    names = rows.names if isinstance(rows, FrameRows) else None
    return rows, names if names and rows.shape[1:] == (len(names),) else None


def _chosen(arrays: Any, group_by: Any, columns: Sequence[str] | None) -> Any:
    """A table with the columns that are named, where it has them and others; anything else as it is."""
    found = None if columns is None else columns_of(arrays)
    if columns is None or found is None or not found.is_table or not set(columns) < set(found.names or ()):
        return arrays
    return select_columns(arrays, [*columns, *([group_by] if isinstance(group_by, str) else [])])


def _check_fixed(plan: Plan, given: Mapping[str, object]) -> None:
    """Refuse what a plan fixes already."""
    check_plan(plan)
    for name in (name for name, value in given.items() if value is not None):
        raise ParameterError(
            "conflicting-arguments",
            f"{name} cannot be given with a plan, which fixes it already; leave one of them out",
        )


def _grouped(arrays: Any, group_by: Any, domain: DomainLike | None) -> Any:
    """Arrays as they are, or with the label of each; a name is that of a table's column."""
    if group_by is None:
        return arrays
    if not isinstance(domain, Domain) or not domain.column_layout.grouped:
        raise ParameterError(
            "missing-argument",
            "group_by needs the list of groups, which is public and never read off the data: give "
            "domain=shufflesum.GroupBy(labels)",
        )
    return split_column(arrays, group_by) if isinstance(group_by, str) else (group_by, arrays)


def aggregate_batches(
    batches: Iterable[Any],
    plan: Plan,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    workers: int | None = None,
    source: RandomSource | None = None,
    progress: Callable[[int], None] | None = None,
    round_number: int = 1,
) -> AnyEstimate:
    """The same for data that comes in batches of rows and need not fit in memory, under a plan made before.

    `workers` threads share the work (all cores by default; one where a source is given, so that it stays repeatable).
    `progress` is called with the number of rows done so far. `round_number` is the plan's round that it is; programs
    that run several count them with `shufflesum.RoundCounter`.
    """
    if workers is None:
        # Each worker has a table of counts of its own; large tables are not worth the memory.
        workers = 1 if source else min(cores(), 1 + _SPARE_CELLS // plan.cells)
    _check_workers(workers)
    tallies = [
        Tally(plan, clip=clip, missing=missing, source=source, round_number=round_number) for _ in range(workers)
    ]
    done = 0
    with Workers(tallies) as pool:
        for rows in pool.map(_take, _numbered(batches)):
            done += rows
            if progress:
                progress(done)
    whole, *others = tallies
    for other in others:
        whole.merge(other)
    return release(whole.counts(), adjusted=adjusted_by(clip=clip, missing=missing))


def aggregate_rows(
    batches: Callable[[], Iterable[Any]],
    plan: Plan,
    *,
    begin: Callable[[], int] | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    workers: int | None = None,
    source: RandomSource | None = None,
    progress: Callable[[int], None] | None = None,
    round_number: int | None = None,
) -> AnyEstimate:
    """`aggregate_batches` for rows that can be gone through twice, where something is spent on them.

    `begin` spends it, and says which round it is, unless that is given. It comes before anything is drawn, and after
    everything that can be refused: rows are gone through once before, only to see whether they are valid.
    """
    number = 1 if round_number is None else round_number
    if begin is not None:
        check_plan(plan)
        plan.check_round(number)
        plan.domain.check_options(clip=clip, missing=missing)
        _check_workers(workers)
        for rows, first_row in _numbered(batches()):
            check_rows(plan, rows, first_row=first_row, clip=clip, missing=missing)
        begun = begin()
        number = begun if round_number is None else number
    return aggregate_batches(
        batches(),
        plan,
        clip=clip,
        missing=missing,
        workers=workers,
        source=source,
        progress=progress,
        round_number=number,
    )


def round_of(budget: Budget | None, plan: Plan) -> Callable[[], int] | None:
    """What begins a round of a plan in a budget, if there is one, and says which it is."""
    return None if budget is None else lambda: budget.begin(plan).begun


def _check_workers(workers: int | None) -> None:
    if workers is not None:
        check_size("workers", workers, 1, 1 << 10)


def _take(tally: Tally, job: tuple[Any, int]) -> int:
    rows, first_row = job
    tally.add(rows, first_row=first_row)
    return len(rows)


def _numbered(batches: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Batches of rows, each with the number of its first."""
    first_row = 0
    for rows in batches:
        yield rows, first_row
        first_row += len(rows)
