"""Laws of counts under the plan: how likely they are odd, equal, above their usual number, or far from their mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum.privacy.engine.laws import binomial_window

__all__ = [
    "Band",
    "Floats",
    "Law",
    "band_of_each",
    "band_of_sum",
    "chance_above",
    "chance_equal",
    "chance_odd",
    "law_of_sum",
    "usual",
]

Floats = NDArray[np.float64]
_CUT = 1e-15  # what is left out of a law on either side, relative to its largest term
_MOST_LAWS = 64  # of different chances, that a sum is worked out for


class Band(NamedTuple):
    """Counts from `low` to `high` are within so many deviations; all others have a chance of `outside` or less."""

    low: Floats
    high: Floats
    outside: Floats


class Law(NamedTuple):
    """The chances of `lowest` and the counts that follow it; all others have `beyond` or less together."""

    lowest: int
    terms: Floats
    beyond: float


def usual(trials: NDArray[np.int64], chances: Floats) -> NDArray[np.int64]:
    """What a count hardly exceeds in half of all cases: its mean, rounded down."""
    return np.minimum(np.floor(trials * chances).astype(np.int64), trials - 1)


def chance_above(trials: NDArray[np.int64], chances: Floats) -> Floats:
    """How likely a count exceeds its usual number."""

    def above(trial: int, chance: float) -> float:
        law = _law(trial, chance)
        limit = int(usual(np.array([trial]), np.array([chance]))[0])
        return float(law.terms[max(0, limit + 1 - law.lowest) :].sum())

    return _each(trials, chances, above)


def chance_equal(trials: NDArray[np.int64], chances: Floats) -> Floats:
    """How likely two independent counts are the same number: the collision probability of their law, or a bit more."""

    def equal(trial: int, chance: float) -> float:
        law = _law(trial, chance)
        return min(1.0, float(law.terms @ law.terms) + law.beyond)

    return _each(trials, chances, equal)


def chance_odd(trials: NDArray[np.int64], chances: Floats) -> Floats:
    """How likely a count is odd: (1 - (1 - 2 p)^n)/2."""
    return np.asarray((1 - (1 - 2 * chances) ** trials) / 2)


def band_of_each(trials: NDArray[np.int64], chances: Floats, deviations: float) -> Band:
    """The band of each count."""
    return Band(*_each(trials, chances, lambda trial, chance: _band(_law(trial, chance), deviations)).T)


def band_of_sum(trials: NDArray[np.int64], chances: Floats, deviations: float) -> Band | None:
    """The band of all counts together; None where they have too many different chances."""
    law = law_of_sum(trials, chances)
    return None if law is None else Band(*(np.array([part]) for part in _band(law, deviations)))


def law_of_sum(trials: NDArray[np.int64], chances: Floats) -> Law | None:
    """The law of all counts together; None where they have too many different chances."""
    distinct, inverse = np.unique(chances, return_inverse=True)
    if len(distinct) > _MOST_LAWS:
        return None
    totals = np.bincount(inverse, weights=trials).astype(np.int64)
    law = Law(0, np.ones(1), 0.0)
    for total, chance in zip(totals, distinct, strict=True):
        other = _law(int(total), float(chance))
        law = Law(law.lowest + other.lowest, np.convolve(law.terms, other.terms), law.beyond + other.beyond)
    return law


def _each(
    trials: NDArray[np.int64], chances: Floats, answer: Callable[[int, float], float | tuple[float, ...]]
) -> Floats:
    pairs, inverse = np.unique(np.stack([trials, chances]), axis=1, return_inverse=True)
    answers = np.array([answer(int(trial), float(chance)) for trial, chance in pairs.T])
    return answers[np.reshape(inverse, -1)]


@lru_cache(maxsize=1 << 13)
def _law(trials: int, chance: float) -> Law:
    if trials == 0 or chance in (0.0, 1.0):
        return Law(int(trials * chance), np.ones(1), 0.0)
    lowest, terms, total, beyond = binomial_window(trials, chance, chance / (1 - chance), _CUT)
    return Law(lowest, terms / total, beyond / total)


def _band(law: Law, deviations: float) -> tuple[float, float, float]:
    values = law.lowest + np.arange(len(law.terms))
    mean = float(values @ law.terms)
    reach = deviations * float(np.sqrt(np.maximum((values - mean) ** 2 @ law.terms, 0.0)))
    low, high = mean - reach, mean + reach
    outside = float(law.terms[(values < low) | (values > high)].sum()) + law.beyond
    return low, high, min(1.0, outside)
