"""A plan tried on public or made-up data before anything is collected, several times over.

Observed errors stand beside those to expect, and intervals beside the truth. Made-up users are nobody's data: they come
from a distribution of their domain and a seed that has nothing to do with privacy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_size
from shufflesum._format import counted, downwards, percent, plain, upwards
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains import Domain, Missing
from shufflesum.encodings import Block
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, tail_of
from shufflesum.plans import Plan

_Floats = NDArray[np.float64]
_Batches = Callable[[], Iterable[Any]]
_VALUES_AT_ONCE = 1 << 22


@dataclass(frozen=True, slots=True)
class Simulation:
    """What came out; errors are root mean squares of one entry, in users for counts, else in the users' units.

    Where numbers have different bounds, and so perhaps different units, they are in per cent of the bounds' widths.
    """

    plan: Plan
    data: str
    """What was simulated on, in words."""
    users: int
    repeats: int
    level: float
    truth: _Floats
    estimate: BaseEstimate
    """That of the first repeat."""
    worst: float | None
    """The error that the plan expects on the worst data; None where it is in other units."""
    predicted: float
    """The error that the estimates' own standard errors say."""
    observed: float
    observed_error: float
    """How sure that is: a standard error, over the repeats."""
    held: int
    """How many intervals held the truth, out of `intervals`."""
    intervals: int
    coverage_error: float
    """How sure their part is: a standard error, over the repeats."""
    predicted_each: _Floats
    """The same for each entry; NaN where there was never an estimate."""
    observed_each: _Floats
    held_each: _Floats
    """The part of each entry's intervals that held."""

    def __str__(self) -> str:
        """What came out, a line for each figure."""
        return "\n".join(f"{name}: {said}" for name, said in found(self).items())

    @property
    def coverage(self) -> float:
        """The part of the intervals that held the truth; it should be at least the level."""
        return self.held / self.intervals if self.intervals else math.nan

    @property
    def unit(self) -> str:
        """What errors are measured in."""
        if self.estimate.to_table(self.level).of_users:
            return "users"
        return "" if _widths(self.plan.domain) is None else "% of the bounds' width"


def simulate(
    plan: Plan,
    data: Any = None,
    *,
    distribution: str | None = None,
    repeats: int = 50,
    seed: int = 0,
    level: float = 0.95,
    words: list[str] | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Put public `data`, or as many made-up users as the plan has, through the plan `repeats` times.

    Made-up users have a `distribution`: numbers normal, uniform, skewed or constant, labels zipf or uniform. Of open
    vocabularies `words` are counted. `progress` is called with the rows done. Never give private data: the result
    shows its truth.
    """
    if data is None:
        chosen = plan.domain.distributions[0] if distribution is None else distribution
        check_choice("distribution", chosen, plan.domain.distributions)
        what = f"made up: {plan.domain.describe_distribution(chosen)}"
        words, missing = words or list(plan.domain.made_up_words), "refuse"
        clip = not plan.domain.counts_users  # rounding at the bounds
    elif distribution is not None:
        raise ParameterError("conflicting-arguments", "distribution is for made-up data; leave it out, or the data")
    else:
        what, rows = "public data", [plan.domain.rows(data)]
    return simulate_batches(
        plan,
        lambda: made_up(plan.domain, plan.users, chosen, seed) if data is None else rows,
        what,
        repeats=repeats,
        level=level,
        words=words,
        clip=clip,
        missing=missing,
        progress=progress,
    )


def simulate_batches(
    plan: Plan,
    batches: _Batches,
    data: str,
    *,
    repeats: int = 50,
    level: float = 0.95,
    words: list[str] | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """The same for public data that comes in batches, the same ones at each call.

    An open vocabulary is hashed with a new key each time, over which its intervals are meant to hold.
    """
    check_size("repeats", repeats, 1, 1 << 20)
    tail_of(level)
    if plan.domain.needs_candidates and not words:
        raise ParameterError("missing-argument", "words are missing: which ones to count (--candidates words.txt)")
    told: Callable[[int], None] = progress or (lambda _: None)
    first: BaseEstimate | None = None
    truth, users, done = np.empty(0), 0, 0
    errors, claims, holds = [], [], []
    for _ in range(repeats):
        tried = plan if first is None else replace(plan, domain=plan.domain.with_new_key())
        whole = aggregate_batches(batches(), tried, clip=clip, missing=missing, progress=partial(_further, told, done))
        found = whole.counts_of(words or []) if plan.domain.needs_candidates else whole
        if first is None:  # bad rows were refused by now
            first = found
            truth, users = true_values(plan.domain, batches(), words, clip=clip, missing=missing)
        done += users
        table = found.to_table(level)
        flat = truth.reshape(-1)
        seen = np.isfinite(table.value) & np.isfinite(flat)
        slack = 1e-9 * np.abs(flat)  # an exact interval ends where the truth is
        errors.append(np.where(seen, (table.value - flat) ** 2, np.nan))
        claims.append(np.where(seen, table.std_error**2, np.nan))
        holds.append(np.where(seen, (table.lower <= flat + slack) & (flat <= table.upper + slack), np.nan))
    assert first is not None
    squares, claimed, held = np.array(errors), np.array(claims), np.array(holds)
    widths = _widths(plan.domain)
    alike = 1.0 if widths is None else (100 / np.resize(widths, truth.size)) ** 2
    observed = math.sqrt(_mean(squares * alike))
    return Simulation(
        plan,
        data,
        users,
        repeats,
        level,
        truth,
        first,
        _worst(plan, users),
        math.sqrt(_mean(claimed * alike)),
        observed,
        _standard_error(squares * alike) / (2 * observed) if observed else 0.0,
        int(np.nansum(held)),
        int(np.isfinite(held).sum()),
        _standard_error(held),
        np.sqrt(_means(claimed)),
        np.sqrt(_means(squares)),
        _means(held),
    )


def made_up(domain: Domain, users: int, distribution: str, seed: int) -> Iterator[Any]:
    """Batches of so many users' rows, as the domain takes them; the same arguments give the same rows."""
    sample = domain.sampler(distribution, np.random.default_rng(seed))
    size = max(1, _VALUES_AT_ONCE // domain.entries)
    for start in range(0, users, size):
        yield domain.rows(sample(min(size, users - start)))


def true_values(
    domain: Domain, batches: Iterable[Any], words: list[str] | None, *, clip: bool, missing: Missing
) -> tuple[_Floats, int]:
    """What an estimate should say, from the data itself, which is public here, and how many users there are."""
    users = 0

    def blocks() -> Iterator[Block]:
        nonlocal users
        for rows in batches:
            yield domain.block(rows, users, clip=clip, missing=missing)
            users += len(rows)

    return domain.true_values(blocks(), words or ()), users


def _further(progress: Callable[[int], None], before: int, rows: int) -> None:
    progress(before + rows)


def _mean(values: _Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def _standard_error(tries: _Floats) -> float:
    """Of the mean over all entries, from the scatter of the tries: entries of one try may go together."""
    each = np.array([_mean(one) for one in tries])
    return float(np.std(each, ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.nan


def _means(tries: _Floats) -> _Floats:
    """Of each entry, over the tries in which it was seen."""
    seen = np.isfinite(tries)
    with np.errstate(invalid="ignore"):
        means: _Floats = np.where(seen, tries, 0).sum(axis=0) / seen.sum(axis=0)
    return means


def _worst(plan: Plan, users: int) -> float | None:
    """Root mean square error of an entry, as the plan expects it; of a Span it is that of coefficients."""
    domain = plan.domain
    if domain.numbers is not None and domain.numbers.structure.mixes:
        return None
    if _widths(domain) is not None:
        domain = domain.with_numbers((0.0, 100.0), None)
    each = math.sqrt(plan.mechanism.expected_error(plan.encoding_of(domain), users).total / domain.dimension)
    return users * each if domain.counts_users else each


def _widths(domain: Domain) -> _Floats | None:
    """The widths of the bounds of a user's entries, where they are not all the same."""
    numbers = domain.numbers
    if numbers is None or numbers.bounds.uniform or numbers.dimension != math.prod(numbers.shape):
        return None
    widths: _Floats = numbers.width
    return widths


def found(simulation: Simulation) -> dict[str, str]:
    """Figures under what they are called; errors are root mean squares of one entry."""
    plan, unit = simulation.plan, f" {simulation.unit}" if simulation.unit else ""
    sure = "" if math.isnan(simulation.observed_error) else f" ± {plain(simulation.observed_error, 2)}"
    worst = "of coefficients, not of entries: see the plan" if simulation.worst is None else _error(simulation.worst)
    equal = ", groups equally large" if plan.domain.column_layout.grouped else ""
    return {
        "data": f"{counted(simulation.users, 'user')}, {simulation.data}",
        f"error to expect, worst data{equal}": worst + (unit if simulation.worst is not None else ""),
        "error that the error bars say": _error(simulation.predicted) + unit,
        "error observed": f"{_error(simulation.observed)}{sure}{unit}, {_times(simulation.repeats)}",
        f"{percent(simulation.level)} % intervals that held": _held(simulation),
        "a user would send": _sent(simulation),
    }


def _error(value: float) -> str:
    return plain(value, 4)


def _times(repeats: int) -> str:
    return "tried once" if repeats == 1 else f"tried {repeats:,} times"


def _held(simulation: Simulation) -> str:
    if not simulation.intervals:
        return "there were none: too few users everywhere"
    sure = "" if math.isnan(simulation.coverage_error) else f" ± {plain(100 * simulation.coverage_error, 2)}"
    return f"{downwards(100 * simulation.coverage, 4)}{sure} % of {simulation.intervals:,}"


def _sent(simulation: Simulation) -> str:
    plan = simulation.plan
    if plan.noise_by == "curator":
        return "nothing: the plan is for one process that holds all data"
    size = plan.bytes_per_user
    blanks = f", about {upwards(plan.blanks)} of them blank" if plan.blanks else ""
    return f"{counted(plan.reports, 'report')}{blanks}: {size['raw']:,} bytes, {size['sealed']:,} sealed"
