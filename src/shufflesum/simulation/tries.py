"""A plan tried on public data, several times over: observed errors beside those to expect, and intervals that held."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum.aggregation import aggregate_batches
from shufflesum.domain import Ball, Box, Domain, Groups, Hashed, Missing, numbers_of
from shufflesum.domain.hashed import KEY_BYTES
from shufflesum.errors import ParameterError
from shufflesum.estimate import CountEstimate, Estimate, HashedEstimate, Released, WordCounts
from shufflesum.estimate.base import tail_of
from shufflesum.plans import Plan
from shufflesum.simulation.laws import described, made_up, vocabulary
from shufflesum.simulation.truth import true_values

__all__ = ["Simulation", "simulate", "simulate_batches"]

_Floats = NDArray[np.float64]
_Batches = Callable[[], Iterable[Any]]


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
    estimate: Released
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
        from shufflesum.simulation.words import found  # which knows simulations

        return "\n".join(f"{name}: {said}" for name, said in found(self).items())

    @property
    def coverage(self) -> float:
        """The part of the intervals that held the truth; it should be at least the level."""
        return self.held / self.intervals if self.intervals else math.nan

    @property
    def unit(self) -> str:
        """What errors are measured in."""
        if isinstance(self.estimate, CountEstimate | WordCounts):
            return "users"
        return "" if _widths(self.plan.domain) is None else "% of the bounds' width"


def simulate(
    plan: Plan,
    data: Any = None,
    *,
    law: str | None = None,
    label_law: str | None = None,
    repeats: int = 50,
    seed: int = 0,
    level: float = 0.95,
    words: list[str] | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    """Put public `data`, or as many made-up users as the plan has, through the plan `repeats` times.

    Made-up numbers follow a `law` (normal, uniform, skewed, constant), labels a `label_law` (zipf, uniform). Of open
    vocabularies `words` are counted. `progress` is called with the rows done. Never give private data: the result
    shows its truth.
    """
    if data is None:
        told = described(plan.domain, law, label_law)
        return simulate_batches(
            plan,
            lambda: made_up(plan.domain, plan.users, law, label_law, seed),
            told,
            repeats=repeats,
            level=level,
            words=words or vocabulary(),
            clip=isinstance(plan.domain, Box | Groups | Ball),  # rounding at the bounds
            progress=progress,
        )
    if law is not None or label_law is not None:
        raise ParameterError("conflicting-arguments", "a law is for made-up data; leave it out, or the data")
    rows: Any = plan.domain.rows(data)
    return simulate_batches(
        plan,
        lambda: [rows],
        "public data",
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
    if isinstance(plan.domain, Hashed) and not words:
        raise ParameterError("missing-argument", "words are missing: which ones to count (--candidates words.txt)")
    told: Callable[[int], None] = progress or (lambda _: None)
    first: Released | None = None
    truth, users, done = np.empty(0), 0, 0
    errors, claims, holds = [], [], []
    for _ in range(repeats):
        tried = plan if first is None else _with_new_key(plan)
        whole = aggregate_batches(batches(), tried, clip=clip, missing=missing, progress=partial(_further, told, done))
        found = whole.counts_of(words or []) if isinstance(whole, HashedEstimate) else whole
        if first is None:  # bad rows were refused by now
            first = found
            truth, users = true_values(plan.domain, batches(), words, clip=clip, missing=missing)
        done += users
        value, error, lower, upper = _figures(found, level)
        flat = truth.reshape(-1)
        seen = np.isfinite(value) & np.isfinite(flat)
        slack = 1e-9 * np.abs(flat)  # an exact interval ends where the truth is
        errors.append(np.where(seen, (value - flat) ** 2, np.nan))
        claims.append(np.where(seen, error**2, np.nan))
        holds.append(np.where(seen, (lower <= flat + slack) & (flat <= upper + slack), np.nan))
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


def _with_new_key(plan: Plan) -> Plan:
    if not isinstance(plan.domain, Hashed):
        return plan
    return replace(plan, domain=replace(plan.domain, key=secrets.token_bytes(KEY_BYTES)))


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


def _figures(estimate: Released, level: float) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Values, standard errors and ends of intervals, flat."""
    if isinstance(estimate, CountEstimate | WordCounts):
        return estimate.counts, estimate.count_standard_error, *estimate.count_interval(level)
    means = cast("Estimate", estimate)
    parts = (means.mean, means.standard_error, *means.confidence_interval(level))
    value, error, lower, upper = (np.asarray(part, dtype=np.float64).reshape(-1) for part in parts)
    return value, error, lower, upper


def _worst(plan: Plan, users: int) -> float | None:
    """Root mean square error of an entry, as the plan expects it; of a Span it is that of coefficients."""
    domain = plan.domain
    box = numbers_of(domain)
    if isinstance(box, Box) and box.structure.mixes:
        return None
    if isinstance(domain, Box | Groups) and _widths(domain) is not None:
        domain = domain.with_bounds((0.0, 100.0))
    each = math.sqrt(plan.mechanism.expected_error(domain, users).total / domain.dimension)
    return each if isinstance(domain, Ball | Box | Groups) else users * each


def _widths(domain: Domain) -> _Floats | None:
    """The widths of the bounds of a user's entries, where they are not all the same."""
    box = numbers_of(domain)
    if not isinstance(box, Box) or box.bounds.uniform or box.dimension != math.prod(box.shape):
        return None
    return box.width
