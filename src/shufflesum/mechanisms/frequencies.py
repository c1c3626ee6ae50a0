"""Counts with public noise as frequencies, and the errors of their sums, whatever the mechanism.

A count Y is the number of users who hold a label and the noise N of its cell: that many users are Y less the mean of N
without bias, and with exact tails between Y and the ends of N's distribution (docs/accuracy.md).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, TypeAlias

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


def reach(variance: float, report: float, tail: float, excess: float = 0.0) -> float:
    """How far such a sum is off with probability `tail` at most, on either side; half a report is for continuity.

    What is in it beside reports may have an `excess`: its fourth cumulant over its squared variance.
    """
    if variance <= 0:
        return report / 2
    z, deviation = quantile(tail), math.sqrt(variance)
    further = deviation * max(z**3 - 3 * z, 0.0) * excess / 24
    return deviation * z + further + max(deviation * float(outwards(z, report / deviation)), report / 2)


_Floats = NDArray[np.float64]
_NEARLY_NORMAL = 30.0  # a count of a smaller variance gets Chernoff's bounds, which hold for any
_STEPS = 60  # of a bisection over frequencies

Coins: TypeAlias = tuple[int, float]
"""How many are tossed, and with which chance each shows heads."""


class Window(NamedTuple):
    """Chances of the counts from `lowest` on, none too small, and a bound on the chance of all others together."""

    lowest: int
    chances: NDArray[np.float64]
    outside: float


class CountLaw(Protocol):
    """The distribution of a whole number that is no number of coins."""

    @property
    def variance(self) -> float:
        """Its variance."""

    def window(self, tail: float) -> Window:
        """Where all of it lies, but for a small part of this chance."""


Law: TypeAlias = Coins | CountLaw


def ends_of(law: Law, tail: float) -> tuple[int, int]:
    """Counts (low, high) below and above which it lies with at most this chance, each."""
    lowest, chances, outside = _window(law, tail)
    # what the window leaves out counts on both sides
    low = int(np.searchsorted(np.cumsum(chances) + outside, tail, side="right"))
    high = int(np.searchsorted(np.cumsum(chances[::-1]) + outside, tail, side="right"))
    return lowest + low, lowest + len(chances) - 1 - high


def unlikely(one: Law, other: Law, heads: int, tail: float) -> tuple[bool, bool]:
    """Whether so few heads of both together, or fewer, have no more than this chance; whether so many, or more.

    The chance of A + B <= heads is the sum of P[A = a] P[B <= heads - a] over a.
    """
    first, second = (_window(law, tail) for law in sorted((one, other), key=_variance))
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
    cumulants: Callable[[_Floats], tuple[_Floats, _Floats, _Floats]],
    chance: Callable[[_Floats, _Floats, float], _Floats],
    tail: float,
    sign: float,
    excess: float = 0.0,
) -> _Floats:
    """By bisection, away from each estimate: the frequency from which on the count seen has less than this chance.

    `cumulants` has the mean, variance and third cumulant of a count at each frequency, `excess` bounds the fourth. The
    count is nearly normal up to skewness and excess where its variance allows; else `chance` bounds it, at frequencies
    and the means there, as a logarithm.
    """
    z = quantile(tail)
    inside, outside = np.clip(means, 0.0, 1.0), np.full(len(counts), 0.0 if sign < 0 else 1.0)
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        expected, variance, third = cumulants(middle)
        distance = sign * (expected - counts) - 0.5  # a count stands for half a report to either side
        # skewed towards the count seen, far ones are likelier
        least = np.maximum(variance, 1e-300)
        skewed = z * np.sqrt(variance) + np.maximum(-sign * third / least, 0) * (z**2 - 1) / 6
        skewed += max(z**3 - 3 * z, 0.0) * excess / 24 / least / np.sqrt(least)
        bound = chance(middle, expected, sign)
        rare = np.where(variance >= _NEARLY_NORMAL, distance > skewed, bound < math.log(tail))
        inside, outside = np.where(rare, inside, middle), np.where(rare, middle, outside)
    return np.where(sign * (outside - means) > 0, outside, means)


def chance_of_coins(counts: NDArray[np.int64], coins: int, mean: _Floats, sign: float) -> _Floats:
    """The logarithm of a bound on the chance of counts as far from their means (Chernoff): coins x relative entropy."""
    seen, mean = counts / coins, np.clip(mean / coins, 1e-300, 1 - 1e-16)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.where(seen > 0, seen * np.log(seen / mean), 0.0)
        entropy += np.where(seen < 1, (1 - seen) * np.log((1 - seen) / (1 - mean)), 0.0)
    return np.where(sign * (mean - seen) > 0, -coins * np.maximum(entropy, 0), 0.0)


def _variance(law: Law) -> float:
    return law[0] * law[1] * (1 - law[1]) if isinstance(law, tuple) else law.variance


def _window(law: Law, tail: float) -> Window:
    if not isinstance(law, tuple):
        return law.window(tail)
    trials, probability = law
    if _variance(law) == 0:
        return Window(round(trials * probability), np.ones(1), 0.0)
    odds = probability / (1 - probability)
    lowest, terms, total, outside = binomial_window(trials, probability, odds, 1e-3 * max(tail, 1e-290))
    raised = (1.0 + slack(len(terms))) / total  # by what rounding, here and in sums, may take away
    return Window(lowest, raised * terms, raised * outside)


class CountNoise(Protocol):
    """The public noise of the cells of a table."""

    @property
    def mean(self) -> float:
        """Of one cell."""

    @property
    def variance(self) -> float:
        """Of one cell."""

    @property
    def third(self) -> float:
        """The third cumulant of one cell."""

    @property
    def fourth(self) -> float:
        """The fourth cumulant of one cell, or 0 where it is small beside the squared variance."""

    def law(self, cells: int) -> Law:
        """Of several cells together."""

    def variance_of(self, weights: Floats) -> float:
        """Of the weighted sum over all cells."""

    def ends_of_sum(self, weights: Floats, counts: CountTable, tail: float) -> tuple[float, float] | None:
        """Exact ends of what is left of a weighted sum of counts, where they are known; else None."""

    def reach(self, weights: Floats, users_variance: float, report: float, tail: float) -> float:
        """How far a weighted sum is off with probability `tail` at most, on either side.

        `users_variance` is what users bring, each of whom moves the sum by at most `report`.
        """

    def chance(self, counts: CountTable, users: int, frequency: Floats, mean: Floats, sign: float) -> Floats:
        """The logarithm of a bound on the chance of counts as far from their means, at these frequencies of labels."""


@dataclass(frozen=True, slots=True)
class BinomialNoise:
    """Binomial(trials, probability) dummy reports in each cell.

    `in_all` says that `trials` were made in all, each in one of the cells, and not so many for each cell.
    """

    trials: int
    probability: float
    in_all: bool = False

    @property
    def mean(self) -> float:
        """Of one cell."""
        return self.trials * self.probability

    @property
    def variance(self) -> float:
        """Of one cell."""
        return self.trials * self.probability * (1 - self.probability)

    @property
    def third(self) -> float:
        """The third cumulant of one cell."""
        return self.variance * (1 - 2 * self.probability)

    @property
    def fourth(self) -> float:
        """Small beside the squared variance, which `rare_beyond` takes for nearly normal only where it is large."""
        return 0.0

    def law(self, cells: int) -> Coins:
        """Of several cells together."""
        return (self.trials, cells * self.probability) if self.in_all else (cells * self.trials, self.probability)

    def variance_of(self, weights: Floats) -> float:
        """What is said of all cells together is exact where so many reports were made in all."""
        apart = self._apart(weights)
        return float(apart @ apart) * (self.mean if self.in_all else self.variance)

    def ends_of_sum(self, weights: Floats, counts: CountTable, tail: float) -> tuple[float, float] | None:
        """Of a count over several cells."""
        counted = np.flatnonzero(weights)
        weight = float(weights[counted[0]]) if len(counted) else 0.0
        if not 0 < len(counted) < len(weights) or not (weights[counted] == weight).all():
            return None
        reports = int(counts[counted].sum())
        low, high = sorted(weight * (reports - end) for end in ends_of(self.law(len(counted)), tail))
        return low, high

    def reach(self, weights: Floats, users_variance: float, report: float, tail: float) -> float:
        """Nearly normal."""
        report = max(report, float(np.abs(self._apart(weights)).max()))
        return reach(self.variance_of(weights) + users_variance, report, tail)

    def chance(self, counts: CountTable, users: int, frequency: Floats, mean: Floats, sign: float) -> Floats:
        """Users and dummy reports are coins."""
        return chance_of_coins(counts, users + self.trials, mean, sign)

    def _apart(self, weights: Floats) -> Floats:
        apart: Floats = weights - weights.mean() if self.in_all else weights
        return apart


@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """How many of the users hold each label, as a part of them."""

    table: CountTable
    users: int
    noise: CountNoise
    one_each: bool = False
    """Whether each user holds exactly one."""

    @property
    def mean(self) -> Floats:
        """Unbiased frequencies; single ones may be negative, or above 1."""
        mean: Floats = (self.table - self.noise.mean) / self.users
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
        low, high = ends_of(self.noise.law(1), tail)
        lower, upper = (self.table - high) / self.users, (self.table - low) / self.users
        if target == "users":
            return lower, upper
        noise, users = self.noise, self.users

        def cumulants(frequency: Floats) -> tuple[Floats, Floats, Floats]:
            drawn = users * frequency * (1 - frequency)
            third = drawn * (1 - 2 * frequency) + noise.third
            return users * frequency + noise.mean, drawn + noise.variance, third

        def chance(frequency: Floats, mean: Floats, sign: float) -> Floats:
            return noise.chance(self.table, users, frequency, mean, sign)

        far_below, far_above = (
            rare_beyond(self.table, self.mean, cumulants, chance, tail, sign, noise.fourth) for sign in (-1.0, 1.0)
        )
        return np.minimum(lower, far_below), np.maximum(upper, far_above)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """The ends of a count over several labels are exact; otherwise, and for populations, nearly normal."""
        check_choice("target", target, ("users", "population"))
        value, users = float(weights @ self.mean), self.users
        variance = self.noise.variance_of(weights) / users**2
        if target == "users":
            ends = self.noise.ends_of_sum(weights, self.table, tail)
            if ends is not None:
                return Combined(value, variance, ends[0] / users, ends[1] / users)
            off = self.noise.reach(weights, 0.0, 0.0, tail) / users
            return Combined(value, variance, value - off, value + off)
        sampled = self._sampling_variance_of(weights, value)
        report = float(np.ptp(weights)) if self.one_each else float(np.abs(weights).sum())
        off = self.noise.reach(weights, sampled * users**2, report, tail) / users
        return Combined(value, variance + sampled, value - off, value + off)

    def laws(self, cells: int, held: float, target: Target) -> tuple[Law, Law]:
        """What makes the count of several cells, where this part of the users, or of a population, hold their labels.

        One label of each user; of a population, users are drawn independently.
        """
        own = (round(held * self.users), 1.0) if target == "users" else (self.users, held)
        return own, self.noise.law(cells)

    def _sampling_variance_of(self, weights: Floats, value: float) -> float:
        """What drawing users from a population adds.

        With one label of each user users' weights vary by the mean of (w - value)^2 at most, which is estimated as any
        mean, and taken two deviations above. Several labels may be held together in any way.
        """
        if not self.one_each:
            return float(np.abs(weights) @ np.sqrt(self._sampling_variance("population"))) ** 2
        squares, most = (weights - value) ** 2, float(np.ptp(weights)) ** 2
        mean = max(float(squares @ self.mean), 0.0)
        noisy = math.sqrt(self.noise.variance_of(squares)) / self.users
        sampled = math.sqrt(most * mean / self.users) + most / self.users
        return min(mean + 2 * (noisy + sampled), most / 4) / self.users

    @property
    def _noise(self) -> float:
        return self.noise.variance / self.users**2

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
