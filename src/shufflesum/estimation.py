"""Table of counts -> estimate with error bars (Algorithm 3 of the paper, and docs/accuracy.md).

Symbols: k levels, gamma noise probability, c reports of a coordinate, m1 and m2 the mean and mean square of their
values divided by k. The debiased mean is (m1 - gamma/2) / (1 - gamma).
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number
from shufflesum.contract import Plan
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.honesty import why_broken
from shufflesum.protocol.counts import Counts
from shufflesum.protocol.reports import Reports

__all__ = ["Analyzer", "BrokenGuaranteeWarning", "Estimate", "Target", "UnreportedCoordinateWarning"]

Target = Literal["users", "population"]
_Floats = NDArray[np.float64]
_QUANTILE_99 = 2.576
_RELEASED = "released already, so it takes no more reports"


class UnreportedCoordinateWarning(UserWarning):
    """Nobody reported some coordinate: it has no estimate, and NaN stands in its place."""


class BrokenGuaranteeWarning(UserWarning):
    """The reports cannot have come from as many honest users as the plan's guarantee counts on."""


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """What a table of counts, with pseudo-reports at both ends, says about one debiased report of each coordinate."""

    mean: _Floats
    variance: _Floats  # T: between reports, so between users as well
    own_variance: _Floats  # T less the safe part of the spread between users: rounding and noise alone

    @staticmethod
    def of(table: _Floats, noise_probability: float) -> _Moments:
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Estimate:
    """The users' mean and sum, in their own units and shape, with error bars.

    Error bars are for the mean of these users; `target="population"` asks for those of the population the users were
    drawn from. Coordinates that nobody reported are NaN.
    """

    plan: Plan
    users: int
    rejected: int
    table: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"Estimate({self.users} users, shape={self.plan.shape}, plan {self.plan.id[:12]})"

    @property
    def mean(self) -> _Floats:
        """The unbiased estimate of the users' mean; it can leave the bounds, because cutting it off would bias it."""
        return self.plan.domain.to_user_mean(_Moments.of(self.table.astype(np.float64), self._gamma).mean)

    @property
    def sum(self) -> _Floats:
        """Users times mean."""
        return self.users * self.mean

    @property
    def standard_error(self) -> _Floats:
        """The standard error of the mean, for the mean of these users."""
        return self.standard_error_of("users")

    @property
    def report_counts(self) -> NDArray[np.int64]:
        """Accepted reports of each entry; of each coefficient for `Span`."""
        counts = self.table.sum(axis=1)
        structure = self.plan.domain.structure
        return counts if structure.mixes else structure.restore(counts.astype(np.float64)).astype(np.int64)

    def standard_error_of(self, target: Target) -> _Floats:
        """The standard error of the mean for either target, a little on the wide side for few reports."""
        # Half a pseudo-report at each end: five equal reports are no proof of zero variance.
        moments = _Moments.of(self._with_pseudo_reports(np.ones(len(self.table))), self._gamma)
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = np.where(self._counts > 0, self._variance(moments, target) / self._counts, np.nan)
        return np.sqrt(self.plan.domain.to_user_variance(variance))

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False, target: Target = "users"
    ) -> tuple[_Floats, _Floats]:
        """Lower and upper ends that hold each true mean with at least this probability, from 10 reports on.

        `simultaneous` widens them so that all entries hold together with that probability. The ends are not cut at
        the bounds. Built as Agresti and Coull do, with pseudo-reports at both ends, and made safe for few reports by
        a Student quantile and a continuity correction.
        """
        check_number("confidence level", level)
        if not 0 < level < 1:
            raise ParameterError(f"confidence level is {level}; it must lie strictly between 0 and 1")
        tail = (1 - level) / 2
        if simultaneous:
            tail /= math.prod(self.plan.shape)
        counts, keep = self._counts, 1 - self._gamma
        quantile = _student_quantile(tail, np.maximum(counts - 1, 1))
        # Half a report for continuity; beyond 99% also for the skewness of a few noisy reports (docs/accuracy.md).
        reports_more = 0.5 + np.maximum(quantile**2 - _QUANTILE_99**2, 0) / 8
        moments = _Moments.of(self._with_pseudo_reports(quantile**2), self._gamma)
        variance = self._variance(moments, target)
        # Shrinking towards the middle makes up for sampling users; where all users reported there is nothing to make
        # up but the skewness of rounding and noise, in proportion to their share of the variance, and from one side.
        # Both intervals, shrunk for the one and for the other, are covered.
        lower, upper = [], []
        for share in (1 - self._reporting_fraction(target), variance / moments.variance):
            pseudo = quantile**2 * share
            with np.errstate(divide="ignore", invalid="ignore"):
                centre = _Moments.of(self._with_pseudo_reports(pseudo), self._gamma).mean
                half = quantile * np.sqrt(variance / (counts + pseudo)) + reports_more / (counts + pseudo) / keep
            lower.append(centre - half)
            upper.append(centre + half)
        low, high = np.minimum(*lower), np.maximum(*upper)
        centre, half = (low + high) / 2, (high - low) / 2
        domain = self.plan.domain
        middle = domain.to_user_mean(np.where(counts > 0, centre, np.nan))
        if not domain.structure.mixes:
            width = domain.structure.restore(half * domain.width)
            return middle - width, middle + width
        # Errors of many coefficients add up like their squares, but what they were shrunk by adds up as it is: the sum
        # is nearly normal around the unbiased mean, while a few coefficients alone need the shrunk centre.
        width = np.sqrt(domain.to_user_variance(half**2))
        mean = self.mean
        return np.minimum(middle, mean) - width, np.maximum(middle, mean) + width

    @property
    def _gamma(self) -> float:
        return self.plan.noise_probability

    @property
    def _counts(self) -> _Floats:
        counts: _Floats = self.table.sum(axis=1).astype(np.float64)
        return counts

    def _with_pseudo_reports(self, pseudo: _Floats) -> _Floats:
        """The table with so many more reports for each coordinate, half at either end."""
        table = self.table.astype(np.float64)
        table[:, 0] += pseudo / 2
        table[:, -1] += pseudo / 2
        return table

    def _reporting_fraction(self, target: Target) -> _Floats:
        """The fraction of the target's users whose value of a coordinate was seen, as far as it narrows the error."""
        check_choice("target", target, ("users", "population"))
        if target == "population":
            if self.plan.domain.structure.mixes and self.plan.reports > 1:
                raise ParameterError(
                    "target='population' is not possible for a Span with several reports per user: its coefficients "
                    "vary together from user to user, which the table of counts does not show; "
                    "use target='users', or plan with reports=1"
                )
            return np.zeros(len(self.table))
        fraction = np.minimum(self._counts / self.users, 1.0)
        if self.plan.domain.structure.mixes:
            # Errors of different coordinates of one block go together in a way the table does not show; without the
            # correction for a finite crowd their variances may be added, and are on the safe side.
            fraction = np.where(self.plan.sampling_probabilities == 1, fraction, 0.0)
        return fraction

    def _variance(self, moments: _Moments, target: Target) -> _Floats:
        """c times the squared standard error: T - (c/users) S^2, with only the safe part of S^2."""
        fraction = self._reporting_fraction(target)
        return (1 - fraction) * moments.variance + fraction * moments.own_variance


class Analyzer:
    """Collects the reports of one batch and releases an estimate once there are enough.

    `analyze` takes a whole batch. For pieces, `add` each and call `estimate`; shards `merge`. Nothing is released below
    the plan's smallest batch.
    """

    def __init__(self, plan: Plan) -> None:
        if not isinstance(plan, Plan):
            raise ParameterError(f"a plan is expected, from shufflesum.plan or Plan.load, not {type(plan).__name__}")
        self.plan = plan
        self.counts = Counts(plan)
        self._closed = ""  # why it takes no more reports

    def add(self, reports: Reports) -> None:
        """Count one piece of the batch; reports of another plan are refused, those outside the domain rejected."""
        self._refuse_if_closed()
        self.counts.add(reports)

    def merge(self, other: Analyzer) -> None:
        """Take over the counts of another shard of the same batch.

        Shards share the work of counting. The batch must have been shuffled as a whole before it was cut into them:
        parts shuffled each on their own hide a user among fewer, and the plan's guarantee does not hold.
        """
        if not isinstance(other, Analyzer):
            raise ParameterError(f"another analyzer is expected, not {type(other).__name__}")
        self._refuse_if_closed()
        other._refuse_if_closed()
        self.counts.merge(other.counts)
        other._closed = "merged into another analyzer, where it counts"

    def analyze(self, reports: Reports) -> Estimate:
        """The estimate from a whole batch of reports."""
        if self.counts.accepted or self.counts.rejected:
            raise ReportsError("this analyzer holds reports already; add(...) the rest and call estimate()")
        self.add(reports)
        return self.estimate()

    def estimate(self) -> Estimate:
        """The estimate from everything added; refused below `reports` x `users` accepted reports.

        It closes the batch: a second estimate with a few reports more would show those few by the difference. A
        `BrokenGuaranteeWarning` says where the reports contradict the plan's honest users.
        """
        if self._closed != _RELEASED:
            self._refuse_if_closed()
        released = estimate(self.counts)
        self._closed = _RELEASED
        sent = self.counts.accepted + self.counts.rejected
        if (why := why_broken(self.counts, sent // self.plan.reports)) is not None:
            warnings.warn(f"{why}; plan with a smaller honest fraction", BrokenGuaranteeWarning, stacklevel=2)
        return released

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ReportsError(f"this batch was {self._closed}; start a new Analyzer for other reports")


def estimate(counts: Counts, *, users: int | None = None) -> Estimate:
    """The estimate from a table of counts, if the batch is large enough to release anything.

    That is judged by the accepted reports, unless a shuffler has counted the `users`, once each: rejected reports
    then do not make the batch smaller, and it is for the caller to see that not too many were.
    """
    plan, accepted = counts.plan, counts.accepted
    if (accepted if users is None else users * plan.reports) < plan.least_reports:
        raise ReportsError(
            f"{accepted} reports were accepted ({counts.rejected} rejected), but this plan releases nothing below "
            f"{plan.least_reports} ({plan.reports} from each of {plan.users} users); collect more, or plan for fewer "
            "users"
        )
    if plan.noise_probability == 1:
        raise ParameterError(
            "noise_probability is 1: every report is noise and says nothing about the users; "
            "plan with more users or a larger epsilon"
        )
    missing = np.flatnonzero(counts.table.sum(axis=1) == 0)
    if len(missing):
        warnings.warn(
            f"nobody reported {plan.domain.structure.describe(int(missing[0]))}"
            + (f" nor {len(missing) - 1} others" if len(missing) > 1 else "")
            + ": no estimate there (NaN); more users or more reports per user would help",
            UnreportedCoordinateWarning,
            stacklevel=3,
        )
    table = counts.table.copy()
    table.setflags(write=False)
    return Estimate(plan, accepted // plan.reports, counts.rejected, table)


def _student_quantile(tail: float, freedom: _Floats) -> _Floats:
    """The upper-tail quantile of Student's t, by its expansion around the normal one (Fisher and Cornish)."""
    z = -NormalDist().inv_cdf(max(tail, 1e-300))
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    quantile: _Floats = z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
    return quantile
