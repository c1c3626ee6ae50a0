"""Exact chances of counts: of one binomial, and of two independent ones together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum.privacy.engine.laws import binomial_window, slack

__all__ = ["Coins", "binomial_ends", "held_ends", "unlikely"]

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
