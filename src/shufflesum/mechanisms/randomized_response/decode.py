"""How far the mean estimated under `randomized-response` will be from the users' true mean (docs/accuracy.md).

All values are in the unit interval here; a plan scales them by its bounds. Symbols: k levels, gamma noise probability,
p the chance that a user reports a given coordinate, c ~ Binomial(users, p) the reports it gets, f = frac(k x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_choice
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.frequencies import Coins, chance_of_coins, held_ends, quantile, rare_beyond, reach
from shufflesum.mechanisms.mechanism import Combined, CountTable, ExpectedError, Floats, Target


def rounding_variance(x: ArrayLike, levels: int) -> NDArray[np.float64]:
    """f (1 - f) / k^2: what random rounding alone adds to one report of x in [0, 1]."""
    scaled = np.asarray(x, dtype=np.float64) * levels
    fraction = scaled - np.floor(scaled)
    return fraction * (1 - fraction) / levels**2


def report_variance(x: ArrayLike, levels: int, noise_probability: float) -> NDArray[np.float64]:
    """The variance of one debiased report of x in [0, 1], rounding and noise together.

    Var = [(1-gamma)(x^2 + f(1-f)/k^2) + gamma(2k+1)/(6k) - ((1-gamma)x + gamma/2)^2] / (1-gamma)^2, written so that
    gamma = 0 leaves the rounding alone without rounding error; infinite for gamma = 1.
    """
    x = np.asarray(x, dtype=np.float64)
    gamma, keep = noise_probability, 1 - noise_probability
    if keep == 0:
        return np.full(x.shape, math.inf)
    uniform_square = (2 * levels + 1) / (6 * levels)
    noise = gamma * (keep * (x * x - x) + uniform_square - gamma / 4) / keep**2
    return np.asarray(rounding_variance(x, levels) / keep + noise)


def expected_inverse_count(users: int, probability: float) -> float:
    """E[1/c] for c ~ Binomial(users, p), given that anybody reports the coordinate at all.

    Summed term by term where few reports are expected, by its expansion (relative error below 1e-5) otherwise.
    """
    expected = users * probability
    if probability >= 1:
        return 1 / users
    if expected >= 1000:
        ratio = (1 - probability) / expected
        return (1 + ratio * (1 + 2 * ratio)) / expected
    log_term = users * math.log1p(-probability)  # log P[c = 0], then each next term by its ratio
    log_odds = math.log(probability) - math.log1p(-probability)
    some = inverse = 0.0
    for count in range(1, min(users, int(expected + 40 * math.sqrt(expected) + 100)) + 1):
        log_term += math.log((users - count + 1) / count) + log_odds
        term = math.exp(log_term)
        some += term
        inverse += term / count
    return inverse / some


def coordinate_error(
    users: int, probability: float, levels: int, noise_probability: float, assumed_std: float | None = None
) -> ExpectedError:
    """Expected squared error of one coordinate's estimated mean, at the worst data.

    The error is (mean Var + S^2) E[1/c] - S^2/users with S^2 the users' variance. Without an assumed_std, the law of
    the data that makes the total largest is used, and the parts are reported at it: by symmetry and convexity it puts
    half the users at some x and half at 1 - x, so one number x is to be found, and on each rounding interval the total
    is a concave parabola in x. With an assumed_std (the users' standard deviation), S is that assumed_std and each
    other part is at its own worst, unless the worst of all data does better. A coordinate that nobody reports has no
    estimate; it is charged to sampling as an error of the whole width, so that plans too small to cover their
    coordinates do not look good.
    """
    unreported = math.exp(users * math.log1p(-probability)) if probability < 1 else 0.0
    inverse_count = expected_inverse_count(users, probability)
    sampled = max(0.0, inverse_count - 1 / users)
    gamma, keep = noise_probability, 1 - noise_probability
    if keep == 0:
        return ExpectedError(0.0, 0.0, math.inf)
    if assumed_std is not None:
        worst_rounding = 1 / (4 * levels**2)
        worst_noise = float(report_variance(0.0, levels, gamma)) + worst_rounding / keep - worst_rounding
        reported = ExpectedError(sampled * assumed_std**2, inverse_count * worst_rounding, inverse_count * worst_noise)
        bound = reported * (1 - unreported) + ExpectedError(unreported, 0.0, 0.0)
        worst_of_all = coordinate_error(users, probability, levels, noise_probability)
        return min(bound, worst_of_all, key=lambda error: error.total)
    # The vertex of: inverse_count Var(x) + sampled (x - 1/2)^2 on [j/k, (j+1)/k], whose quadratic coefficient is
    # -1/users.
    steps = np.arange((levels + 1) // 2)
    slope = inverse_count * ((2 * steps + 1) / levels - gamma) / keep - sampled
    vertex = np.clip(slope * users / 2, steps / levels, (steps + 1) / levels)
    x = np.concatenate([vertex, steps / levels])
    total = inverse_count * report_variance(x, levels, gamma) + sampled * (x - 0.5) ** 2
    worst = float(x[np.argmax(total)])
    rounding = float(rounding_variance(worst, levels))
    noise = float(report_variance(worst, levels, gamma)) - rounding
    apart = abs(worst - 0.5) if abs(worst - 0.5) > 1e-9 else 0.0
    reported = ExpectedError(sampled * apart**2, inverse_count * rounding, inverse_count * noise)
    return reported * (1 - unreported) + ExpectedError(unreported, 0.0, 0.0)


def labels_error(cells: int, noise_probability: float, users: int) -> ExpectedError:
    """Squared error of the frequencies, summed over labels, whatever the data: p (1 - p) for each label of a report."""
    keep, other = 1 - noise_probability, noise_probability / cells
    if keep == 0:
        return ExpectedError(0.0, 0.0, math.inf)
    variance = (keep + other) * (1 - keep - other) + (cells - 1) * other * (1 - other)
    return ExpectedError(sampling=0.0, rounding=0.0, noise=variance / (users * keep**2))


def most_frequent_error(cells: int, noise_probability: float, users: int) -> float:
    """Squared error of one frequency at the worst: of a label that everybody holds."""
    keep, other = 1 - noise_probability, noise_probability / cells
    return max((keep + other) * (1 - keep - other), other * (1 - other)) / (users * keep**2)


@dataclass(frozen=True, slots=True, eq=False)
class RandomizedResponseFrequencies:
    """How often each label is held, as a part of the users."""

    table: CountTable
    users: int
    noise_probability: float

    @property
    def mean(self) -> Floats:
        """Unbiased frequencies; they add up to 1, and single ones may be negative."""
        mean: Floats = (self.table / self.table.sum() - self._other) / (1 - self.noise_probability)
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Accepted reports of each label."""
        return self.table

    def variance(self, target: Target) -> Floats:
        """The squared standard error at the frequencies estimated, within their range."""
        return self._cumulants(np.clip(self.mean, 0.0, 1.0), target)[0] / self._scale**2

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """All frequencies at which a count as far off as this one has at least this chance.

        A sum of independent coins, of which some show heads with one chance and the others with another: nearly normal,
        up to its skewness, where its variance allows, and else bounded as any such sum is (Chernoff).
        """
        return self._end(tail, target, -1.0), self._end(tail, target, 1.0)

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """A user's report has the weight of the own label, or with probability gamma of a uniform one.

        It varies by gamma V + (1 - gamma) gamma (w - m)^2, with m and V mean and variance of all weights, w the own:
        over users, the mean of (w - m)^2 is estimated as any other. For ends it is taken as far above as `tail` says.
        The ends of how many of these users hold one of several labels are exact.
        """
        check_choice("target", target, ("users", "population"))
        gamma, keep = self.noise_probability, 1 - self.noise_probability
        value, apart = float(weights @ self.mean), weights - weights.mean()
        squares, uniform = apart**2, float(np.var(weights))
        least, most = float(squares.min()), float(squares.max())
        mean = float(np.clip(squares @ self.mean, least, most))
        report = float(np.ptp(weights)) / self._scale

        def variance(square: float) -> float:
            own = (gamma * uniform + keep * gamma * square) / (self.users * keep**2)
            if target == "users":
                return own
            all_users = keep * square + gamma * uniform - (keep * (value - float(weights.mean()))) ** 2
            return max(own, all_users / (self.users * keep**2))

        # of the estimated mean: squares of users differ by no more than their own mean square, most x mean, and theirs
        apart_square = (keep * gamma if target == "users" else keep) * (most * mean + float(squares.mean()) ** 2)
        unsure = (
            math.sqrt((gamma * float(np.var(squares)) + apart_square) / (self.users * keep**2)) + most / self._scale
        )
        counted = np.flatnonzero(weights)
        if target == "users" and 0 < len(counted) < len(weights) and (weights[counted] == weights[counted[0]]).all():
            ends = held_ends(
                lambda held: self.laws(len(counted), held / self.users, target),
                self.users,
                int(self.table[counted].sum()),
                tail,
            )
            lower, upper = sorted(float(weights[counted[0]]) * end / self.users for end in ends)
            return Combined(value, variance(mean), min(lower, value), max(upper, value))
        off = reach(variance(min(mean + quantile(tail) * unsure, most)), report, tail)
        return Combined(value, variance(mean), value - off, value + off)

    def laws(self, cells: int, held: float, target: Target) -> tuple[Coins, Coins]:
        """Reports in several cells: of those who hold their labels, this part of the users, and of the others.

        Of a population each user is one of them with the same chance, so that all coins are alike.
        """
        other = cells * self._other
        kept = 1 - self.noise_probability + other
        if target == "population":
            return (self.users, other + (kept - other) * held), (0, 0.0)
        holders = round(held * self.users)
        return (holders, kept), (self.users - holders, other)

    @property
    def _other(self) -> float:
        return self.noise_probability / len(self.table)

    @property
    def _scale(self) -> float:
        """Reports for each unit of frequency."""
        return self.users * (1 - self.noise_probability)

    def _cumulants(self, frequency: Floats, target: Target) -> tuple[Floats, Floats]:
        """Variance and third cumulant of a count, where so many of the users hold its label."""
        check_choice("target", target, ("users", "population"))
        held, other = 1 - self.noise_probability + self._other, self._other
        if target == "population":
            chance = other + (held - other) * frequency
            return self.users * chance * (1 - chance), self.users * chance * (1 - chance) * (1 - 2 * chance)
        parts = [(frequency, held), (1 - frequency, other)]
        variance = sum((self.users * part * p * (1 - p) for part, p in parts), np.zeros(1))
        third = sum((self.users * part * p * (1 - p) * (1 - 2 * p) for part, p in parts), np.zeros(1))
        return variance, third

    def _end(self, tail: float, target: Target, sign: float) -> Floats:
        """Where the count seen becomes too rare."""

        def cumulants(frequency: Floats) -> tuple[Floats, Floats, Floats]:
            return self.users * self._other + self._scale * frequency, *self._cumulants(frequency, target)

        def chance(_: Floats, mean: Floats, sign: float) -> Floats:
            return chance_of_coins(self.table, self.users, mean, sign)

        return rare_beyond(self.table, self.mean, cumulants, chance, tail, sign)


_QUANTILE_99 = 2.576


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """What a table of counts, with pseudo-reports at both ends, says about one debiased report of each coordinate."""

    mean: Floats
    variance: Floats  # T: between reports, so between users as well
    own_variance: Floats  # T less the safe part of the variance between users: rounding and noise alone

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
class RandomizedResponseMeans:
    """The mean of each coordinate, in the unit interval, from the (d, K) table of a batch.

    `mixes` says that entries of the user's array are sums over several coordinates, whose errors must then add up.
    """

    table: CountTable
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
    def report_counts(self) -> CountTable:
        """Accepted reports of each coordinate."""
        counts: CountTable = self.table.sum(axis=1)
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
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    found: Floats = z + terms[0] / freedom + terms[1] / freedom**2 + terms[2] / freedom**3
    return found
