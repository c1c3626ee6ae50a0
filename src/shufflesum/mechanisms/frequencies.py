"""Counts with public binomial noise as frequencies, and the errors of their sums, whatever the mechanism.

A count Y is the number of users who hold a label and N ~ Binomial(trials, probability) dummy reports: that many users
are Y - trials x probability without bias, and with exact tails between Y and the ends of N's distribution
(docs/accuracy.md).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum.mechanisms.mechanism import Combined, CountTable, Floats, Target
from shufflesum.privacy.engine.laws import binomial_window, slack


def quantile(tail: float) -> float:
    """The normal quantile that is exceeded with this probability."""
    return -NormalDist().inv_cdf(max(tail, 1e-300))


def outwards(z: float, skewness: Any) -> Any:
    """By how much quantiles of a nearly normal distribution move outwards at most (Cornish and Fisher).

    For sums of independent reports each of which moves the sum by at most s, of standard deviation d: the third
    cumulant is within s d^2 and the fourth below s^2 d^2, so `skewness` s/d bounds skewness, and its square the excess.
    """
    further = (z**2 - 1) * skewness / 6 + (max(z**3 - 3 * z, 0.0) / 24 + z / 36) * skewness**2
    return np.maximum(further, 0)


def reach(variance: float, report: float, tail: float) -> float:
    """How far such a sum is off with probability `tail` at most, on either side; half a report is for continuity."""
    if variance <= 0:
        return report / 2
    z, deviation = quantile(tail), math.sqrt(variance)
    return deviation * z + max(deviation * float(outwards(z, report / deviation)), report / 2)


_Floats = NDArray[np.float64]
_NEARLY_NORMAL = 30.0  # a count of a smaller variance gets Chernoff's bounds, which hold for any
_STEPS = 60  # of a bisection over frequencies

Coins: TypeAlias = tuple[int, float]
"""How many are tossed, and with which chance each shows heads."""


class _Distribution(NamedTuple):
    """Chances of the counts from `lowest` on, none too small, and a bound on the chance of all others together."""

    lowest: int
    chances: NDArray[np.float64]
    outside: float


def binomial_ends(trials: int, probability: float, tail: float) -> tuple[int, int]:
    """Counts (low, high) below and above which Binomial(trials, probability) lies with at most this chance, each."""
    lowest, chances, outside = _distribution((trials, probability), tail)
    # what the window leaves out counts on both sides
    low = int(np.searchsorted(np.cumsum(chances) + outside, tail, side="right"))
    high = int(np.searchsorted(np.cumsum(chances[::-1]) + outside, tail, side="right"))
    return lowest + low, lowest + len(chances) - 1 - high


def unlikely(one: Coins, other: Coins, heads: int, tail: float) -> tuple[bool, bool]:
    """Whether so few heads of all these coins, or fewer, have no more than this chance; whether so many, or more.

    The chance of A + B <= heads is the sum of P[A = a] P[B <= heads - a] over a.
    """
    first, second = (_distribution(coins, tail) for coins in sorted((one, other), key=_variance))
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
    cumulants: Callable[[_Floats], tuple[_Floats, _Floats, _Floats]],
    tail: float,
    sign: float,
) -> _Floats:
    """By bisection, away from each estimate: the frequency from which on the count seen has less than this chance.

    `cumulants` has the mean, variance and third cumulant of a count at each frequency. The count is the sum of so many
    independent coins, nearly normal up to its skewness where its variance allows, and else bounded as any such sum is
    (Chernoff).
    """
    z = quantile(tail)
    inside, outside = np.clip(means, 0.0, 1.0), np.full(len(counts), 0.0 if sign < 0 else 1.0)
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        expected, variance, third = cumulants(middle)
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


def _distribution(coins: Coins, tail: float) -> _Distribution:
    trials, probability = coins
    if _variance(coins) == 0:
        return _Distribution(round(trials * probability), np.ones(1), 0.0)
    odds = probability / (1 - probability)
    lowest, terms, total, outside = binomial_window(trials, probability, odds, 1e-3 * max(tail, 1e-290))
    raised = (1.0 + slack(len(terms))) / total  # by what rounding, here and in sums, may take away
    return _Distribution(lowest, raised * terms, raised * outside)


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """How many of the users hold each label, as a part of them; `trials` and `probability` are of a cell's noise."""

    table: CountTable
    users: int
    trials: int
    probability: float
    in_all: bool = False
    """Whether `trials` dummy reports were made in all, each in one of the cells, and not so many for each cell."""

    @property
    def mean(self) -> Floats:
        """Unbiased frequencies; single ones may be negative, or above 1."""
        mean: Floats = (self.table - self.trials * self.probability) / self.users
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Accepted reports of each label, noise among them."""
        return self.table

    def variance(self, target: Target) -> Floats:
        """The squared standard error: public, but for sampling from a population."""
        return np.full(len(self.table), self._noise) + self._sampling_variance(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """What is left of a count where noise is as large, or as small, as it is with this chance at most: exact.

        Of a population, also all frequencies at which users drawn from it and noise bring such a count often enough.
        """
        check_choice("target", target, ("users", "population"))
        low, high = binomial_ends(self.trials, self.probability, tail)
        lower, upper = (self.table - high) / self.users, (self.table - low) / self.users
        if target == "users":
            return lower, upper
        noise, p = self._noise * self.users**2, self.probability

        def cumulants(frequency: Floats) -> tuple[Floats, Floats, Floats]:
            drawn = self.users * frequency * (1 - frequency)
            third = drawn * (1 - 2 * frequency) + noise * (1 - 2 * p)
            return self.users * frequency + self.trials * p, drawn + noise, third

        coins = self.users + self.trials
        far_below, far_above = (
            rare_beyond(self.table, self.mean, coins, cumulants, tail, sign) for sign in (-1.0, 1.0)
        )
        return np.minimum(lower, far_below), np.maximum(upper, far_above)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from cell to cell, or else a known number of reports, each in a uniform cell.

        Then what is said of all cells together is exact, and only how weights differ from their mean matters.
        The ends of a count over several labels are exact; otherwise, and for populations, nearly normal.
        """
        check_choice("target", target, ("users", "population"))
        value, users = float(weights @ self.mean), self.users
        apart = weights - weights.mean() if self.in_all else weights
        each = self.trials * self.probability * (1.0 if self.in_all else 1 - self.probability)
        variance = float(apart @ apart) * each / users**2
        counted = np.flatnonzero(weights)
        weight = float(weights[counted[0]]) if len(counted) else 0.0
        if target == "users" and len(counted) < len(weights) and len(counted) and (weights[counted] == weight).all():
            reports = int(self.table[counted].sum())
            noise = binomial_ends(*self._noise_in(len(counted)), tail)
            return Combined(value, variance, *sorted(weight * (reports - end) / users for end in noise))
        report = float(np.abs(apart).max())
        if target == "population":
            variance += self._sampling_variance_of(weights, value, variance)
            report = max(report, float(np.ptp(weights)) if self.in_all else float(np.abs(weights).sum()))
        off = reach(variance, report / users, tail)
        return Combined(value, variance, value - off, value + off)

    def coins(self, cells: int, held: float, target: Target) -> tuple[Coins, Coins]:
        """What makes the count of several cells, where this part of the users, or of a population, hold their labels.

        One label of each user; of a population, users are drawn independently.
        """
        own = (round(held * self.users), 1.0) if target == "users" else (self.users, held)
        return own, self._noise_in(cells)

    def _noise_in(self, cells: int) -> Coins:
        """The noise of several cells together."""
        return (self.trials, cells * self.probability) if self.in_all else (cells * self.trials, self.probability)

    def _sampling_variance_of(self, weights: Floats, value: float, noise: float) -> float:
        """What drawing users from a population adds.

        With one label of each user (`in_all`) users' weights vary by the mean of (w - value)^2 at most, which is
        estimated as any mean, and taken two deviations above. Several labels may be held together in any way.
        """
        if not self.in_all:
            return float(np.abs(weights) @ np.sqrt(self._sampling_variance("population"))) ** 2
        squares, most = (weights - value) ** 2, float(np.ptp(weights)) ** 2
        mean = max(float(squares @ self.mean), 0.0)
        noisy = math.sqrt(float(np.var(squares)) * self.trials) / self.users
        sampled = math.sqrt(most * mean / self.users) + most / self.users
        return min(mean + 2 * (noisy + sampled), most / 4) / self.users

    @property
    def _noise(self) -> float:
        return self.trials * self.probability * (1 - self.probability) / self.users**2

    def _sampling_variance(self, target: Target) -> Floats:
        """f (1 - f)/users among so many users of a population, for the f within two deviations that makes it most."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.zeros(len(self.table))
        mean = self.mean
        sampled = np.sqrt(np.clip(mean * (1 - mean), 0.0, 0.25) / self.users) + 1 / self.users
        reach = 2 * (math.sqrt(self._noise) + sampled)
        nearest = np.clip(0.5, mean - reach, mean + reach)
        sampled_variance: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return sampled_variance
