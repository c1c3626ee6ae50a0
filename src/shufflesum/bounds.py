"""Bounds found privately: a first plan that counts values in public, very wide bins, and what is left for the main one.

The main plan's noise is fixed before anything is seen; only its bounds come from the first result. So both together
are dominated by the product of their pairs, and cost less than the sum of their epsilons (docs/privacy.md, 20).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size
from shufflesum._format import Cells, Shown, downwards, percent, plain, upwards
from shufflesum.aggregation import aggregate_rows, complete_rows, round_of, users_numbers
from shufflesum.budget import Budget, compose
from shufflesum.cautions import ShufflesumWarning, UncertainBoundsWarning, warn
from shufflesum.domains import Categories, MultiChoice, real_array
from shufflesum.domains.counts import WIDE_BINS, BinBounds, Binned
from shufflesum.domains.frames import batches_of
from shufflesum.errors import DataError, ParameterError, ShufflesumError
from shufflesum.estimate import BaseEstimate, tail_of
from shufflesum.planning import PlanOptions, plan_in_process, warn_if_uninformative
from shufflesum.plans import Plan
from shufflesum.randomness import RandomSource

_MOST_COLUMNS = 1000
_STEPS = 6  # of the search for the main plan's epsilon


@dataclass(frozen=True, slots=True)
class TwoPlans:
    """A plan that finds bounds, and the main one, yet without them; together they are (epsilon, delta)-private."""

    first: Plan
    main: Plan | None
    """None where all is spent on bounds."""
    epsilon: float
    delta: float
    edges: tuple[float, ...]
    shape: tuple[int, ...]
    names: Sequence[str] | None
    """What the columns are called, if they have names."""

    def rows(self, values: Any, first_row: int = 0) -> NDArray[np.int64] | NDArray[np.float64]:
        """Users' values as the first plan takes them: numbers, or the cell of each column's bin."""
        array = real_array(values, DataError, "values").astype(np.float64, copy=False)
        if (missing := np.isnan(array.reshape(len(array), -1)).any(axis=1)).any():
            row = first_row + int(np.flatnonzero(missing)[0])
            raise DataError(
                "missing-value",
                f"row {row}: a value is NaN (missing), and is in no bin; leave the row out (missing='drop'), or fill "
                "it in",
                row=row,
            )
        if math.prod(self.shape) == 1:
            return array.reshape(len(array))
        bins = Categories(bins=self.edges)
        flat = array.reshape(len(array), -1)
        codes = [bins.block(flat[:, column], first_row).cells.astype(np.int64) for column in range(flat.shape[1])]
        return np.column_stack(codes) + len(bins.labels) * np.arange(len(codes))

    def found(self, estimate: BaseEstimate, *, cover: float = 0.99, level: float = 0.95) -> SuggestedBounds:
        """The bounds that an estimate of the first plan suggests, all columns together at this level."""
        if estimate.plan.id != self.first.id:
            raise ParameterError("plan-mismatch", f"this estimate is of plan {estimate.plan.id[:12]}, not of the first")
        columns, bins = math.prod(self.shape), len(self.edges) - 1
        suggested = tuple(
            Binned(self.first, estimate.table, estimate.users, self.edges, column * bins).suggest(cover, level, columns)
            for column in range(columns)
        )
        least = min(column.within_lower for column in suggested)
        if least < 0.5:
            warn(
                f"only {downwards(100 * least)} % of the users lie certainly within the suggested bounds: the others "
                "are lost in the noise; more users, a larger share of the budget (share, --share) or fewer, wider bins "
                "would help",
                UncertainBoundsWarning,
            )
        main = self.main
        if main is not None:
            main = replace(main, domain=main.domain.with_numbers(_bounds(suggested, self.shape), None))
            warn_if_uninformative(main)
        return SuggestedBounds(suggested, estimate, main, self.epsilon, self.delta, self.shape, self.names)


@dataclass(frozen=True, slots=True, eq=False)
class SuggestedBounds:
    """Suggested bounds, what they cost, and the plan for what is left.

    `main` has these bounds; run it on the same users with `clip=True`. Together with the first plan, which is
    `estimate.plan`, it is (`epsilon`, `delta`)-private. It is None where everything was spent on bounds.
    """

    columns: tuple[BinBounds, ...]
    estimate: BaseEstimate
    main: Plan | None
    epsilon: float
    delta: float
    shape: tuple[int, ...]
    names: Sequence[str] | None = None

    @property
    def bounds(self) -> tuple[Any, Any]:
        """(lower, upper) as a plan takes them: two numbers for one number of each user, else two arrays."""
        return _bounds(self.columns, self.shape)

    def cells(self) -> Cells:
        """A row for each column: its bounds, and the part of the users within them."""
        rows = [
            (
                self.names[place] if self.names else str(place),
                plain(column.lower, 15),
                plain(column.upper, 15),
                f"{100 * column.within:.1f} %",
                f"{downwards(100 * column.within_lower)} % to {upwards(100 * column.within_upper)} %",
            )
            for place, column in enumerate(self.columns)
        ]
        return ("column", "lower", "upper", "users within", f"{percent(self.columns[0].level)} % interval"), rows

    def __str__(self) -> str:
        """The bounds, and what they cost: the same as a notebook shows."""
        return Shown("SuggestedBounds", [self.statement], self.cells()).text()

    def _repr_html_(self) -> str:
        return Shown("SuggestedBounds", [self.statement], self.cells()).html()

    @property
    def statement(self) -> str:
        """What was found and what it cost, in words."""
        first = self.estimate.plan
        least = min(column.within_lower for column in self.columns)
        which = "the bounds" if len(self.columns) == 1 else "the bounds of each column"
        said = (
            f"With {percent(self.columns[0].level)} % confidence at least {downwards(100 * least)} % of the users lie "
            f"within {which}. They cost epsilon {upwards(first.epsilon)}, delta {upwards(first.delta)}"
        )
        if self.main is None:
            return f"{said}, which is all there was."
        return (
            f"{said}; the main plan has epsilon {upwards(self.main.epsilon)}, delta {upwards(self.main.delta)}, and "
            f"both together have epsilon {upwards(self.epsilon)}, delta {upwards(self.delta)}."
        )


def suggest_bounds(
    values: Any,
    *,
    epsilon: float,
    delta: float,
    share: float = 0.2,
    cover: float = 0.99,
    level: float = 0.95,
    bins: Sequence[float] | None = None,
    missing: Literal["refuse", "drop"] = "refuse",
    workers: int | None = None,
    source: RandomSource | None = None,
    budget: Budget | None = None,
    **choices: Unpack[PlanOptions],
) -> SuggestedBounds:
    """Bounds for `values`, of shape (users,) or (users, *shape), found privately, and a plan with what is left.

    Values are counted in `bins` (`WIDE_BINS`, which hold any number, unless others are given, as public). Bounds are
    edges of bins: of the users in bins that are certainly occupied they hold the part `cover`, in each column. Of all
    of (`epsilon`, `delta`) the part `share` is spent on that, and the main plan gets what is left by a certified
    composition; `choices` are arguments of `shufflesum.plan` for it. `share=1` spends all on bounds. In a `budget` the
    first plan is begun before anything is drawn; the main one is when it is run (`aggregate` with the same budget).
    """
    check_number("cover", cover, above=0, most=1)
    tail_of(level)
    rows, names = users_numbers(values)
    if names is not None:
        choices.setdefault("columns", names)
    rows, _ = complete_rows(rows, missing)
    plans = plan_bounds(
        users=len(rows), shape=rows.shape[1:], epsilon=epsilon, delta=delta, share=share, bins=bins, **choices
    )
    estimate = aggregate_rows(
        lambda: (plans.rows(batch, start) for start, batch in batches_of(rows, math.prod(plans.shape))),
        plans.first,
        begin=round_of(budget, plans.first),
        workers=workers,
        source=source,
    )
    return plans.found(estimate, cover=cover, level=level)


def plan_bounds(
    *,
    users: int,
    shape: Iterable[int],
    epsilon: float,
    delta: float,
    share: float = 0.2,
    bins: Sequence[float] | None = None,
    **choices: Unpack[PlanOptions],
) -> TwoPlans:
    """The two plans of `suggest_bounds`, before anything is asked: neither depends on any data."""
    check_number("share", share, above=0, most=1)
    if choices.get("bounds") is not None:
        raise ParameterError("conflicting-arguments", "bounds are what is looked for; leave them out, or give bins")
    edges = Categories(bins=WIDE_BINS if bins is None else bins).bins
    assert edges is not None
    shape = tuple(shape)
    columns = math.prod(shape)
    check_size("columns", columns, 1, _MOST_COLUMNS)
    held = Categories(bins=edges) if columns == 1 else MultiChoice(columns * (len(edges) - 1), max_choices=columns)
    honest = choices.get("honest_fraction", 1.0)
    noise_by = choices.get("noise_by")
    parts = (1.0, 1.0) if share == 1 else (share, 1.0 - share)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ShufflesumWarning
        )  # a guess of frequencies may be better; they are not asked for
        first = plan_in_process(
            users=users,
            domain=held,
            epsilon=parts[0] * epsilon,
            delta=parts[0] * delta,
            honest_fraction=honest,
            noise_by=noise_by,
        )
    main = None if share == 1 else _main(first, shape, epsilon, delta, choices)
    return TwoPlans(first, main, epsilon, delta, edges, shape, choices.get("columns"))


def _main(first: Plan, shape: tuple[int, ...], epsilon: float, delta: float, choices: PlanOptions) -> Plan:
    """The plan with the largest epsilon, nearly, that together with the first is certified for all of the budget."""

    def main(own: float) -> Plan:
        left = math.nextafter(delta - first.delta, 0.0)
        return plan_in_process(users=first.users, shape=shape, epsilon=own, delta=left, **choices)

    left_over = math.nextafter(epsilon - first.epsilon, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShufflesumWarning)  # bounds are not known yet
        if choices.get("accountant", "exact") == "exact":
            # variances of losses add up, so that the first plan costs about the square of its share
            for cost in (0.25 * 2.0**step * (first.epsilon / epsilon) ** 2 for step in range(_STEPS)):
                own = (1.0 - cost) * epsilon
                if own <= left_over:
                    break
                try:
                    candidate = main(own)
                    if compose([first, candidate]).delta(epsilon) <= delta:
                        return candidate
                except ShufflesumError:
                    break
        return main(left_over)  # epsilons and deltas add up, always


def _bounds(columns: Sequence[BinBounds], shape: tuple[int, ...]) -> tuple[Any, Any]:
    lower = np.array([column.lower for column in columns]).reshape(shape)
    upper = np.array([column.upper for column in columns]).reshape(shape)
    return (lower, upper) if shape else (float(lower), float(upper))
