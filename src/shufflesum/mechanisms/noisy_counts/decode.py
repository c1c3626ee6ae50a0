"""Counts to means, or to sums and counts of groups, with error bars, under `noisy-counts` (docs/accuracy.md).

Y_j counts the digit j of a coordinate: users whose digit is 1, and Binomial(users q_j, p_j) noise. The mean of the
coordinate, in [0, 1], is sum_j 2^j (Y_j - users q_j p_j) / (k users); the distribution of its noise is public,
and noise is independent from cell to cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from shufflesum._checks import check_choice
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.frequencies import binomial_ends, quantile, reach
from shufflesum.mechanisms.mechanism import Combined, CountTable, Floats, Target

if TYPE_CHECKING:
    from shufflesum.encodings import MultiHot
    from shufflesum.mechanisms.noisy_counts.mechanism import NoisyCounts


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCountsMeans:
    """The mean of each coordinate, in the unit interval, from the (d, J) table of a batch.

    `mixes` says that entries of the user's array are sums over several coordinates, whose errors must then add up.
    """

    mechanism: NoisyCounts
    table: CountTable
    users: int
    mixes: bool

    @property
    def mean(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        excess = self.table - self.users * self.mechanism.noise_means
        mean: Floats = excess @ self.mechanism.weights / self.users
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Accepted reports of each coordinate, digits and noise together."""
        counts: CountTable = self.table.sum(axis=1)
        return counts

    def variance(self, target: Target) -> Floats:
        """The squared standard error: noise as it is, rounding and the variance of a population at their worst."""
        return np.full(len(self.table), self._noise(2)) + self._further_variance(target)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Quantiles of a sum that is nearly normal, corrected for the noise's third and fourth cumulants."""
        deviation = np.sqrt(self.variance(target))
        z = quantile(tail)
        skewness, excess = self._noise(3) / deviation**3, np.maximum(self._noise(4), 0) / deviation**4
        # Cornish and Fisher's expansion. Noise that is skewed to the right puts the truth farther to the left.
        even = (z**2 - 1) * skewness / 6
        odd = z + np.maximum((z**3 - 3 * z) * excess / 24, 0) + z * skewness**2 / 36
        mean, half_step = self.mean, self.mechanism.weights[0] / (2 * self.users)  # a sum of whole numbers: continuity
        return mean - deviation * (odd + even) - half_step, mean + deviation * np.maximum(odd - even, 0) + half_step

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Noise is independent from coordinate to coordinate, and so are the coins that round.

        How a population's coordinates vary together no table shows: as if they did so fully, at the worst.
        """
        further, size = replace(self, mixes=False)._further_variance(target), np.abs(weights)
        by_users = float(weights**2 @ further) if target == "users" else float(size @ np.sqrt(further)) ** 2
        variance = float(weights @ weights) * self._noise(2) + by_users
        top = float(size.max(initial=0.0) * self.mechanism.weights[-1] if target == "users" else size.sum())
        value, off = float(weights @ self.mean), reach(variance, top / self.users, tail)
        return Combined(value, variance, value - off, value + off)

    def _noise(self, order: int) -> float:
        """The cumulant of this order of a mean's noise: weighted binomials of all users."""
        q, p = np.array(self.mechanism.trials, dtype=np.float64), np.array(self.mechanism.probabilities)
        variance = q * p * (1 - p)
        each = {2: variance, 3: variance * (1 - 2 * p), 4: variance * (1 - 6 * p * (1 - p))}[order]
        return float(np.sum(self.mechanism.weights**order * each) / float(self.users) ** (order - 1))

    def _further_variance(self, target: Target) -> Floats:
        """Rounding for these users; for a population, rounding and its own variance, m (1 - m) at most for a mean m."""
        check_choice("target", target, ("users", "population"))
        if target == "users":
            return np.full(len(self.table), 1 / (4 * self.mechanism.levels**2 * self.users))
        if self.mixes:
            raise ParameterError(
                "impossible-combination",
                "target='population' is not possible for a Span under 'noisy-counts': its coefficients vary together "
                "from user to user, which the table of counts does not show; use target='users', or plan with "
                "coordinates=1",
            )
        # The mean is not known exactly: the largest variance that any within two deviations has.
        reach = 2 * np.sqrt(self._noise(2) + 1 / (4 * self.users))
        nearest = np.clip(0.5, self.mean - reach, self.mean + reach)
        further: Floats = np.maximum(nearest * (1 - nearest), 0) / self.users
        return further


@dataclass(frozen=True, slots=True, eq=False)
class NoisyCountsGroupSums:
    """Users and sums of each group, values as fractions of the width of their bounds."""

    mechanism: NoisyCounts
    layout: MultiHot
    table: CountTable
    users: int

    @property
    def counts(self) -> Floats:
        """Unbiased numbers of users."""
        return self._grouped[:, -1].astype(np.float64) - self.users * float(self.mechanism.noise_means[-1])

    @property
    def sums(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        digits = self._grouped[:, :-1].reshape(self.layout.groups, self.layout.coordinates, self.layout.digits)
        sums: Floats = (digits - self.users * self.mechanism.noise_means[:-1]) @ self.mechanism.weights
        return sums

    @property
    def count_variance(self) -> float:
        """Public and exact."""
        return self.users * float(self.mechanism.noise_variances[-1])

    @property
    def sum_variance(self) -> float:
        """Public and exact."""
        return self.users * self.mechanism.noise_of_sum

    @property
    def rounding(self) -> float:
        """A coin between two neighbours on the scale of whole numbers."""
        return 1 / (4 * self.mechanism.levels**2)

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """What is left of a count when the noise is as small or as large as it is with this chance: exact."""
        low, high = binomial_ends(self.users * self.mechanism.trials[-1], self.mechanism.probabilities[-1], tail)
        counted = self._grouped[:, -1]
        return (counted - high).astype(np.float64), (counted - low).astype(np.float64)

    @property
    def _grouped(self) -> CountTable:
        return self.table.reshape(self.layout.groups, self.layout.group_cells)
