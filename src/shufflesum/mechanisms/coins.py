"""Exact chances of counts: of one binomial, and of two independent ones together."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum.mechanisms.linear import quantile
from shufflesum.privacy.engine.laws import binomial_window, slack

__all__ = ["Coins", "binomial_ends", "held_ends", "rare_beyond", "unlikely"]

_Floats = NDArray[np.float64]
_NEARLY_NORMAL = 30.0  # a count of a smaller variance gets Chernoff's bounds, which hold for any
_STEPS = 60  # of a bisection over frequencies

Coins: TypeAlias = tuple[int, float]
"""How many are tossed, and with which chance each shows heads."""


class _Law(NamedTuple):
    """Chances of the counts from `lowest` on, none too small, and a bound on the chance of all others together."""

    lowest: int
    chances: NDArray[np.float64]
    outside: float


def binomial_ends(trials: int, probability: float, tail: float) -> tuple[int, int]:
    """Counts (low, high) below and above which Binomial(trials, probability) lies with at most this chance, each."""
    lowest, chances, outside = _law((trials, probability), tail)
    # what the window leaves out counts on both sides
    low = int(np.searchsorted(np.cumsum(chances) + outside, tail, side="right"))
    high = int(np.searchsorted(np.cumsum(chances[::-1]) + outside, tail, side="right"))
    return lowest + low, lowest + len(chances) - 1 - high


def unlikely(one: Coins, other: Coins, heads: int, tail: float) -> tuple[bool, bool]:
    """Whether so few heads of all these coins, or fewer, have no more than this chance; whether so many, or more.

    The chance of A + B <= heads is the sum of P[A = a] P[B <= heads - a] over a.
    """
    first, second = (_law(coins, tail) for coins in sorted((one, other), key=_variance))
    last = len(second.chances) - 1
    fewest, most = (np.cumsum(chances) + second.outside for chances in (second.chances, second.chances[::-1]))
    at = heads - first.lowest - second.lowest - np.arange(len(first.chances))
    few = np.where(at < 0, second.outside, fewest[np.clip(at, 0, last)])
    many = np.where(at > last, second.outside, most[np.clip(last - at, 0, last)])
    return bool(first.chances @ few + first.outside <= tail), bool(first.chances @ many + first.outside <= tail)


def held_ends(coins: Callable[[int], tuple[Coins, Coins]], users: int, heads: int, tail: float) -> tuple[int, int]:
    """The least and the most users who may hold what so many heads came of: all numbers at which that is not unlikely.

    `coins` are those of so many who hold it; the more there are, the more heads must come.
    """
    everybody = range(users + 1)
    least = bisect_left(everybody, True, key=lambda held: not unlikely(*coins(held), heads, tail)[1])
    without = bisect_left(everybody, True, key=lambda rest: not unlikely(*coins(users - rest), heads, tail)[0])
    return min(least, users), max(users - without, 0)


def rare_beyond(
    counts: NDArray[np.int64],
    means: _Floats,
    coins: int,
    law: Callable[[_Floats], tuple[_Floats, _Floats, _Floats]],
    tail: float,
    sign: float,
) -> _Floats:
    """By bisection, away from each estimate: the frequency from which on the count seen has less than this chance.

    `law` has the mean, variance and third cumulant of a count at each frequency: the sum of so many independent coins,
    nearly normal up to its skewness where its variance allows, and else bounded as any such sum is (Chernoff).
    """
    z = quantile(tail)
    inside, outside = np.clip(means, 0.0, 1.0), np.full(len(counts), 0.0 if sign < 0 else 1.0)
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        expected, variance, third = law(middle)
        distance = sign * (expected - counts) - 0.5  # a count stands for half a report to either side
        # skewed towards the count seen, far ones are likelier
        skewed = z * np.sqrt(variance) + np.maximum(-sign * third / np.maximum(variance, 1e-300), 0) * (z**2 - 1) / 6
        bound = _chernoff(counts / coins, expected / coins, sign)
        rare = np.where(variance >= _NEARLY_NORMAL, distance > skewed, coins * bound < math.log(tail))
        inside, outside = np.where(rare, inside, middle), np.where(rare, middle, outside)
    return np.where(sign * (outside - means) > 0, outside, means)


def _chernoff(seen: _Floats, mean: _Floats, sign: float) -> _Floats:
    """The logarithm of a bound on the chance of a count as far from its mean, for each coin: a relative entropy."""
    mean = np.clip(mean, 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(seen > 0, seen * np.log(seen / mean), 0.0)
        entropy += np.where(seen < 1, (1 - seen) * np.log((1 - seen) / (1 - mean)), 0.0)
    return np.where(sign * (mean - seen) > 0, -np.maximum(entropy, 0), 0.0)


def _variance(coins: Coins) -> float:
    return coins[0] * coins[1] * (1 - coins[1])


def _law(coins: Coins, tail: float) -> _Law:
    trials, probability = coins
    if _variance(coins) == 0:
        return _Law(round(trials * probability), np.ones(1), 0.0)
    odds = probability / (1 - probability)
    lowest, terms, total, outside = binomial_window(trials, probability, odds, 1e-3 * max(tail, 1e-290))
    raised = (1.0 + slack(len(terms))) / total  # by what rounding, here and in sums, may take away
    return _Law(lowest, raised * terms, raised * outside)
