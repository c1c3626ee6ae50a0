"""Tables of digits to means, and to sums and counts of groups, with error bars (docs/accuracy.md).

A coordinate's mean, in [0, 1] and counted from the origin, is the weighted sum of its cells over the users. Noise is
independent from cell to cell, symmetric, and of public distributions; so its quantiles in a weighted sum are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from shufflesum._checks import check_choice
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.frequencies import ends_of, quantile, reach
from shufflesum.mechanisms.mechanism import Combined, CountTable, Floats, Target
from shufflesum.mechanisms.noisy_table.digits import Digits
from shufflesum.mechanisms.noisy_table.noise import Draws, TableNoise, weighted_reach

_STEPS = 8  # different variances of a population's coordinates that intervals are worked out for


@dataclass(frozen=True)
class DigitNoise:
    """What noise brings to a sum of values in [0, 1]."""

    digits: Digits
    noise: tuple[TableNoise, ...]
    """Of each digit's cells."""

    @cached_property
    def variance(self) -> float:
        """Of one sum."""
        return sum(float(each.variance_of(self.digits.weights(j))) for j, each in enumerate(self.noise))

    @cached_property
    def excess(self) -> float:
        """The fourth cumulant over the squared variance."""
        fourth = sum(each.fourth * float(np.sum(self.digits.weights(j) ** 4)) for j, each in enumerate(self.noise))
        return fourth / self.variance**2

    def sums(self, tables: list[CountTable]) -> Floats:
        """Sums counted from the origin: of each digit's cells, (..., cells), those weighted, less the mean of noise."""
        found = np.zeros(tables[0].shape[:-1])
        for j, (table, noise) in enumerate(zip(tables, self.noise, strict=True)):
            found += (table - noise.mean) @ self.digits.weights(j)
        return found

    def reach(self, weights: Floats, users_variance: float, report: float, tail: float) -> float:
        """How far a weighted sum of sums is off with this chance at most, with users of this variance.

        Users are as if they were normal, up to skewness: each moves it by at most `report`.
        """
        z = quantile(tail)
        if users_variance > 0 and z > 0:
            users_variance = max(users_variance, (reach(users_variance, report, tail) / z) ** 2)
        parts = [
            Draws(each.distribution, each.draws, np.outer(weights, self.digits.weights(j)).reshape(-1))
            for j, each in enumerate(self.noise)
        ]
        return weighted_reach(parts, users_variance, tail)


@dataclass(frozen=True)
class NoisyTableMeans:
    """The mean of each coordinate, in the unit interval.

    `mixes` says that entries of the user's array are sums over several coordinates, whose errors must then add up.
    """

    noise: DigitNoise
    table: CountTable
    """(d, cells): those of one coordinate, digit after digit, in each row."""
    users: int
    mixes: bool

    @cached_property
    def mean(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        return self.noise.sums(by_digit(self.table, self.noise.digits)) / self.users + self.noise.digits.origin

    @property
    def report_counts(self) -> CountTable:
        """Accepted reports of each coordinate, digits and noise together."""
        counts: CountTable = self.table.sum(axis=1)
        return counts

    def variance(self, target: Target) -> Floats:
        """The squared standard error: noise as it is, rounding and the variance of a population at their worst."""
        return self.noise.variance / self.users**2 + self._further_variance(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Quantiles of noise and of users together."""
        further = self._further_variance(target)
        top = float(further.max())
        steps = np.ceil(_STEPS * further / top) / _STEPS if top > 0 else further
        off = np.empty_like(steps)
        report = 1 / self.noise.digits.levels if target == "users" else 1.0
        for step in np.unique(steps):
            users_variance = step * top * self.users**2
            off[steps == step] = self.noise.reach(np.ones(1), users_variance, report, tail) / self.users
        return self.mean - off, self.mean + off

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from coordinate to coordinate, and so are the coins that round.

        How a population's coordinates vary together no table shows: as if they did so fully, at the worst.
        """
        further, size = replace(self, mixes=False)._further_variance(target), np.abs(weights)
        by_users = float(weights**2 @ further) if target == "users" else float(size @ np.sqrt(further)) ** 2
        report = float(size.max(initial=0.0)) / self.noise.digits.levels if target == "users" else float(size.sum())
        off = self.noise.reach(weights, by_users * self.users**2, report, tail) / self.users
        value, noise = float(weights @ self.mean), float(weights @ weights) * self.noise.variance / self.users**2
        return Combined(value, noise + by_users, value - off, value + off)

    def _further_variance(self, target: Target) -> Floats:
        """Rounding for these users; for a population, rounding and its own variance, m (1 - m) at most for a mean m."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.full(len(self.table), 1 / (4 * self.noise.digits.levels**2 * self.users))
        if self.mixes:
            raise ParameterError(
                "impossible-combination",
                "target='population' is not possible for a Span under 'noisy-counts': its coefficients vary together "
                "from user to user, which the table of counts does not show; use target='users', or plan with "
                "coordinates=1",
            )
        # The mean is not known exactly: the largest variance that any within two deviations has.
        off = 2 * np.sqrt(self.noise.variance / self.users**2 + 1 / (4 * self.users))
        nearest = np.clip(0.5, self.mean - off, self.mean + off)
        further: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return further


@dataclass(frozen=True)
class NoisyTableGroupSums:
    """Users and sums of each group, values as fractions of the width of their bounds, counted from the origin."""

    noise: DigitNoise
    count_noise: TableNoise
    digit_table: CountTable
    """(d, groups x cells): digit after digit, and in each digit group after group."""
    count_table: CountTable
    """(groups,)."""

    @property
    def origin(self) -> float:
        """The middle, where digits are counted from theirs."""
        return self.noise.digits.origin

    @cached_property
    def counts(self) -> Floats:
        """Unbiased numbers of users."""
        counts: Floats = self.count_table.astype(np.float64) - self.count_noise.mean
        return counts

    @cached_property
    def sums(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        groups = len(self.count_table)
        tables = [
            table.reshape(len(table), groups, -1) for table in by_digit(self.digit_table, self.noise.digits, groups)
        ]
        sums: Floats = np.ascontiguousarray(self.noise.sums(tables).T, dtype=np.float64)
        return sums

    @property
    def count_variance(self) -> float:
        """Public and exact."""
        return self.count_noise.variance

    @property
    def sum_variance(self) -> float:
        """Public and exact."""
        return self.noise.variance

    @property
    def excess(self) -> float:
        """Of counts or sums, whichever have more."""
        return max(self.noise.excess, self.count_noise.fourth / self.count_noise.variance**2, 0.0)

    @property
    def rounding(self) -> float:
        """A coin between two neighbours on the scale of whole numbers."""
        return 1 / (4 * self.noise.digits.levels**2)

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """What is left of a count when the noise is as small or as large as it is with this chance: exact."""
        low, high = ends_of(self.count_noise.law(1), tail)
        return (self.count_table - high).astype(np.float64), (self.count_table - low).astype(np.float64)


def by_digit(table: CountTable, digits: Digits, groups: int = 1) -> list[CountTable]:
    """The cells of each digit of a (d, cells) table."""
    ends = np.cumsum(digits.sizes)[:-1] * groups
    return np.split(table, ends, axis=1)
