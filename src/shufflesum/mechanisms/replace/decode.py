"""A table of counts to means with error bars (Algorithm 3 of the paper, and docs/accuracy.md).

Symbols: k levels, gamma noise probability, c reports of a coordinate, m1 and m2 the mean and mean square of their
values divided by k. The debiased mean is (m1 - gamma/2) / (1 - gamma).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shufflesum._checks import check_choice
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.linear import Combined, quantile
from shufflesum.mechanisms.mechanism import Floats, Table, Target

__all__ = ["ReplaceMeans"]

_QUANTILE_99 = 2.576


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """What a table of counts, with pseudo-reports at both ends, says about one debiased report of each coordinate."""

    mean: Floats
    variance: Floats  # T: between reports, so between users as well
    own_variance: Floats  # T less the safe part of the spread between users: rounding and noise alone

    @staticmethod
    def of(table: Floats, noise_probability: float) -> _Moments:
        levels = table.shape[1] - 1
        values = np.arange(levels + 1) / levels
        gamma, keep = noise_probability, 1 - noise_probability
        with np.errstate(invalid="ignore", divide="ignore"):
            count = table.sum(axis=1)
            m1 = table @ values / count
            m2 = table @ values**2 / count
            variance = np.maximum(m2 - m1**2, 0) / keep**2
            # The rounded values vary by S^2 plus at most 1/(4 k^2) from rounding. Subtracting that safe part of S^2
            # from the variance leaves this, in which the noisy squares cancel:
            uniform_square = (2 * levels + 1) / (6 * levels)
            own = (gamma * (m2 - m1) + gamma**2 / 4) / keep**2 + gamma * uniform_square / keep + 1 / (4 * levels**2)
        return _Moments((m1 - gamma / 2) / keep, variance, np.minimum(variance, own))


@dataclass(frozen=True, slots=True, eq=False)
class ReplaceMeans:
    """The mean of each coordinate, in the unit interval, from the (d, K) table of a batch.

    `mixes` says that entries of the user's array are sums over several coordinates, whose errors must then add up.
    """

    table: Table
    users: int
    coordinates: int
    noise_probability: float
    sampling_probabilities: Floats
    mixes: bool

    @property
    def mean(self) -> Floats:
        """The debiased mean of the reports; NaN where there are none."""
        return _Moments.of(self.table.astype(np.float64), self.noise_probability).mean

    @property
    def report_counts(self) -> Table:
        """Accepted reports of each coordinate."""
        counts: Table = self.table.sum(axis=1)
        return counts

    def variance(self, target: Target) -> Floats:
        """The squared standard error, a little on the wide side for few reports."""
        # Half a pseudo-report at each end: five equal reports are no proof of zero variance.
        moments = _Moments.of(self._with_pseudo_reports(np.ones(len(self.table))), self.noise_probability)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self._counts > 0, self._variance(moments, target) / self._counts, np.nan)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Built as Agresti and Coull do, with pseudo-reports at both ends.

        Made safe for few reports by a Student quantile and a continuity correction; NaN where there are none.
        """
        counts, keep = self._counts, 1 - self.noise_probability
        quantile = _student_quantile(tail, np.maximum(counts - 1, 1))
        # Half a report for continuity; beyond 99% also for the skewness of a few noisy reports (docs/accuracy.md).
        reports_more = 0.5 + np.maximum(quantile**2 - _QUANTILE_99**2, 0) / 8
        moments = _Moments.of(self._with_pseudo_reports(quantile**2), self.noise_probability)
        variance = self._variance(moments, target)
        # Shrinking towards the middle makes up for sampling users; where all users reported there is nothing to make
        # up but the skewness of rounding and noise, in proportion to their share of the variance, and from one side.
        # Both intervals, shrunk for the one and for the other, are covered.
        lower, upper = [], []
        for share in (1 - self._reporting_fraction(target), variance / moments.variance):
            pseudo = quantile**2 * share
            with np.errstate(divide="ignore", invalid="ignore"):
                centre = _Moments.of(self._with_pseudo_reports(pseudo), self.noise_probability).mean
                half = quantile * np.sqrt(variance / (counts + pseudo)) + reports_more / (counts + pseudo) / keep
            lower.append(centre - half)
            upper.append(centre + half)
        reported = counts > 0
        return np.where(reported, np.minimum(*lower), np.nan), np.where(reported, np.maximum(*upper), np.nan)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """Of several coordinates variances are added, without the correction for a finite crowd where users sample.

        They do not report two coordinates of a block, which makes errors go together by minus their covariance over
        users: for any weights that takes away from the sum, and no more than the correction would have. A population's
        coordinates that one user reports may vary together fully: then standard errors are added instead.
        """
        kept = np.flatnonzero(weights)
        together = replace(self, mixes=len(kept) > 1 and target == "users")
        mean, weights = self.mean[kept], weights[kept]
        low, high = (end[kept] for end in together.interval(tail, target))
        variance, half = together.variance(target)[kept], (high - low) / 2
        value = float(weights @ mean)
        if target == "population" and self.coordinates > 1:
            size = np.abs(weights)
            return _around(value, 0.0, float(size @ np.sqrt(variance)) ** 2, float(size @ half))
        # Intervals are moved towards the middle by the skewness of errors, which in a sum is their weighted mean.
        squares = (weights * half) ** 2
        with np.errstate(invalid="ignore"):
            moved = float(squares @ (weights * ((low + high) / 2 - mean)) / squares.sum()) if len(kept) else 0.0
        return _around(value, moved, float(weights**2 @ variance), float(np.sqrt(squares.sum())))

    @property
    def _counts(self) -> Floats:
        return self.report_counts.astype(np.float64)

    def _with_pseudo_reports(self, pseudo: Floats) -> Floats:
        """The table with so many more reports for each coordinate, half at either end."""
        table = self.table.astype(np.float64)
        table[:, 0] += pseudo / 2
        table[:, -1] += pseudo / 2
        return table

    def _reporting_fraction(self, target: Target) -> Floats:
        """The fraction of the target's users whose value of a coordinate was seen, as far as it narrows the error."""
        check_choice("target", target, ("users", "population"))
        if target == "population":
            if self.mixes and self.coordinates > 1:
                raise ParameterError(
                    "impossible-combination",
                    "target='population' is not possible for a Span with several coordinates a user: its coefficients "
                    "vary together from user to user, which the table of counts does not show; "
                    "use target='users', or plan with coordinates=1",
                )
            return np.zeros(len(self.table))
        fraction = np.minimum(self._counts / self.users, 1.0)
        if self.mixes:
            # Errors of different coordinates of one block go together in a way the table does not show; without the
            # correction for a finite crowd their variances may be added, and are on the safe side.
            fraction = np.where(self.sampling_probabilities == 1, fraction, 0.0)
        return fraction

    def _variance(self, moments: _Moments, target: Target) -> Floats:
        """c times the squared standard error: T - (c/users) S^2, with only the safe part of S^2."""
        fraction = self._reporting_fraction(target)
        return (1 - fraction) * moments.variance + fraction * moments.own_variance


def _around(value: float, moved: float, variance: float, half: float) -> Combined:
    return Combined(value, variance, value + min(moved, 0.0) - half, value + max(moved, 0.0) + half)


def _student_quantile(tail: float, freedom: Floats) -> Floats:
    """The upper-tail quantile of Student's t, by its expansion around the normal one (Fisher and Cornish)."""
    z = quantile(tail)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    found: Floats = z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
    return found
