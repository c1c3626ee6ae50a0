"""Two values (K = 2) and blocks of one coordinate: bounds that look at the counts themselves, not at a blanket.

The block's reports are summed up by the number y of ones. Let n0 other users hold 0 and n1 hold 1, rho = gamma/2,
and z the law of the others' ones: Bin(n0, rho) + n1 - Bin(n1, rho). Holding 0 or 1, the victim makes of it
    P(y) = (1 - rho) z(y) + rho z(y - 1),   Q(y) = rho z(y) + (1 - rho) z(y - 1).
z is log-concave, so the best event against (P, Q) is {ones <= y}, and with w = e^epsilon >= 1
    delta(w) = max over y of  beta z(y) - (w - 1) Z(y),   beta = w(1 - rho) - rho,   Z(y) = sum of z up to y.
For (Q, P) the sum runs from y upwards.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from shufflesum._compiled import kernel
from shufflesum._search import bracket
from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.pld import BINS, PrivacyLossDistribution, grid_of_atoms, grid_of_bins

_BINARY_OUTSIDE = 1e-22  # probability that a window may leave out; charged to delta
_CELLS = 100  # cells of n0 in 0..(n - 1)/2: each forgets about 1/200 of the users, which costs as much in gamma
_FEWEST_CELLS = 32
_WORK = 1.5e4  # cells x standard deviation of z
_DENSE = 1e7  # shorter laws are convolved in full
_SAMPLES = 16  # per standard deviation of a longer law: the chords add 1/(6 * 16**2) to the variance of a loss
_LARGEST_DEVIATION = 3e3  # of z; noise beyond is not counted


def binary_profile_upper(honest_users: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta(epsilon), epsilon >= 0 in any order, over all data sets and both directions, for gamma < 1.

    More users at either value only add independent noise to y, so delta falls in n0 and in n1: all n0 in a cell
    [c, e] are charged at n0 = c, n1 = n - 1 - e. Swapping the values swaps n0 with n1 and P with Q, so cells in the
    lower half with both directions cover everything. The maximum over cells of convex falling profiles is itself
    one, and the only thing composition needs is that it is above that of every pair of neighbours.
    """
    # delta falls in the users too, so those who would only make the laws too long may be left out
    others = min(honest_users - 1, int(2.0 * _LARGEST_DEVIATION**2 / noise_probability))
    half = others // 2
    deviation = float(np.sqrt(others * noise_probability * 0.5))
    count = int(min(half + 1, max(_FEWEST_CELLS, min(_CELLS, _WORK / (deviation + 1.0)))))
    # with few noisy reports delta is larger where almost all others agree, so cells are narrower there
    crowding = 1.0 + 0.4 * min(1.0, 100.0 / (deviation + 1.0)) if count <= half else 1.0
    fractions = np.linspace(0.0, 1.0, count + 1) ** crowding
    starts = np.unique(np.rint((half + 1) * fractions).astype(np.int64))
    result = np.zeros(epsilons.size)
    for start, stop in itertools.pairwise(starts):
        up, down, error = _others(int(start), others - int(stop) + 1, noise_probability)
        read = _profile if up.size * down.size < _DENSE else _sampled_profile
        for a, b in ((up, down), (up[::-1], down[::-1])):  # both directions
            np.maximum(result, read(a, b, error, noise_probability, epsilons), out=result)
    return result


def one_value_plds(
    honest_users: int, noise_probability: float, step: float
) -> tuple[PrivacyLossDistribution, PrivacyLossDistribution]:
    """Return pairs below those of 0 against 1, and of 1 against 0, among n - 1 users at 0, for gamma < 1."""
    rho = noise_probability / 2
    others = honest_users - 1
    lowest, terms, total, tail = binomial_window(others, rho, rho / (1.0 - rho), _BINARY_OUTSIDE)
    # an outcome counts only if both of the terms that make it are known; the ends of the whole law are
    ends = (int(lowest == 0), int(lowest + terms.size - 1 == others))
    padded = np.pad(terms / (total + tail), ends)
    error = slack(terms.size)
    zero = (1.0 - rho) * padded[1:] + rho * padded[:-1]
    one = rho * padded[1:] + (1.0 - rho) * padded[:-1]
    return grid_of_atoms(zero, one, step, error), grid_of_atoms(one, zero, step, error)


def _others(zeros: int, ones: int, noise_probability: float) -> tuple[Floats, Floats, float]:
    """Return two laws whose convolution is z on a window, and its relative error; 2 _BINARY_OUTSIDE may be outside."""
    rho = noise_probability / 2
    odds = noise_probability / (2.0 - noise_probability)
    _, up, up_total, up_tail = binomial_window(zeros, rho, odds, _BINARY_OUTSIDE)
    _, down, down_total, down_tail = binomial_window(ones, rho, odds, _BINARY_OUTSIDE)
    error = slack(4 * (up.size + down.size)) + up_tail / up_total + down_tail / down_total
    return up / up_total, (down / down_total)[::-1], error


def _profile(a: Floats, b: Floats, error: float, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta for z = a * b and the event {ones <= y}, y at its best.

    The gain of one more y, alpha z(y) - beta z(y - 1) with alpha = beta - (w - 1), changes sign once. Where rounding
    picks a neighbour of the best y, the gain there is below the error of its two terms, which is added.
    """
    z = np.convolve(a, b)
    growth = np.expm1(epsilons)
    alpha, beta = _factors(growth, noise_probability)
    alpha = alpha + _relative_error_bound(
        growth, noise_probability
    )  # a larger alpha has larger gains: its best y serves as well
    with np.errstate(divide="ignore", over="ignore"):
        limits = np.where(alpha > 0, -beta / alpha, -np.inf)
    best = np.searchsorted(-(z[1:] / z[:-1]), limits, side="right")
    return _directed(z[best], np.cumsum(z)[best], growth, error, noise_probability)


def _sampled_profile(a: Floats, b: Floats, error: float, noise_probability: float, epsilons: Floats) -> Floats:
    """The same for long laws: exact at those w where a sampled y is best, and chords of the convex profile between.

    y and y - 1 are equally good where beta/alpha = z(y)/z(y - 1), which gives w.
    """
    mean = float(np.dot(np.arange(a.size), a) + np.dot(np.arange(b.size), b))
    deviation = np.hypot(a.size, b.size) / 20.0  # a window is about 20 standard deviations wide; only sets samples
    backwards, sums = a[::-1].copy(), np.cumsum(a)[::-1].copy()
    sums_b = np.cumsum(b)

    def read(law: Floats, y: int) -> float:
        """Return sum over j of law(y - j) b(j), an inner product of positive terms; `law` is stored backwards."""
        first, last = max(0, y - a.size + 1), min(b.size - 1, y)
        shift = a.size - 1 - y
        return float(np.dot(law[first + shift : last + 1 + shift], b[first : last + 1]))

    def read_sum(y: int) -> float:
        first = y - a.size + 1  # for smaller j the whole of a lies below y - j
        return read(sums, y) + (float(sums_b[first - 1]) if first > 0 else 0.0)

    center = int(mean)
    mode = max(read(backwards, y) for y in range(max(0, center - 2), min(center + 4, a.size + b.size - 1)))
    growths, heights = [0.0], [(1.0 - noise_probability) * mode * (1.0 + 8.0 * error)]
    rho = noise_probability / 2
    for y in range(center, 0, -max(1, int(deviation / _SAMPLES))):
        z, total = read(backwards, y), read_sum(y)
        ratio = z / read(backwards, y - 1)
        growth = (1.0 - noise_probability) * (ratio - 1.0) / (1.0 - rho + ratio * rho)
        if growth > growths[-1]:
            growths.append(growth)
            heights.append(float(_directed(np.array(z), np.array(total), np.array(growth), error, noise_probability)))
        if heights[-1] < 16.0 * _BINARY_OUTSIDE:
            break
    # a chord is above the convex profile; reading it at a rounded w moves it by far less than 1e-12 of itself
    grown = np.expm1(epsilons)
    chords = np.interp(grown, growths, np.minimum.accumulate(heights))
    return np.where(_factors(grown, noise_probability)[0] > -1e-9, chords * (1.0 + 1e-12), 0.0)


def _factors(growth: Floats, noise_probability: float) -> tuple[Floats, Floats]:
    """Return alpha = 1 - rho - w rho and beta = w(1 - rho) - rho, with growth = w - 1."""
    rho = noise_probability / 2
    return 1.0 - noise_probability - growth * rho, 1.0 - noise_probability + growth * (1.0 - rho)


def _directed(z: Floats, total: Floats, growth: Floats, error: float, noise_probability: float) -> Floats:
    """Bound beta z - (w - 1) Z from above, given that it is the best choice up to rounding."""
    alpha, beta = _factors(growth, noise_probability)
    # Without alpha > 0 no outcome is more likely by more than w; alpha is known up to rounding.
    relative_error_bound = _relative_error_bound(growth, noise_probability)
    value = beta * z * (1.0 + 8.0 * error) - growth * total * (1.0 - error) + 2.0 * relative_error_bound * total
    bound = np.maximum(value, 0.0) + 4.0 * _BINARY_OUTSIDE * beta
    return np.where(
        alpha > relative_error_bound, bound, np.where(alpha > -relative_error_bound, 2.0 * relative_error_bound, 0.0)
    )


def _relative_error_bound(growth: Floats, noise_probability: float) -> Floats:
    """Bound the rounding error of alpha."""
    result: Floats = 8.0 * ROUNDING * (1.0 + growth * noise_probability)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Concrete pairs of neighbouring data sets as pairs of measures on a grid of losses: what composition cannot beat.


_OUTSIDE = 1e-24  # probability that a window may leave out; dropping outcomes lowers the profile
_CELL = 5e-4  # width of a cell of s relative to s; half of that is lost in noise probability
_MOST_BINS = 1 << 18  # on either side, 100 deviations or more; atoms beyond share the last one


def third_value_pld(honest_users: int, cells: int, noise_probability: float, step: float) -> PrivacyLossDistribution:
    """Return a pair below that of x against x' when all others hold a third value v (K >= 3, gamma < 1).

    Relative to n reports of v, the worlds weigh (beta a + N + r(n - N))/n, and the same with b, where a and b
    reports are x and x', N are not v, beta = (1 - gamma)K/gamma and r = (gamma/K)/(1 - gamma + gamma/K). The
    adversary looks at s = a + b ~ Bin(n, 2 gamma/K) and a only, which replaces N by its mean given s; and where s
    is large, keeps a random s0 of the s reports, s0 being the least of a cell of s, and forgets the rest: then
    a' ~ Bin(s0, 1/2) and a becomes its mean a' + (s - s0)/2. All of that is post-processing.
    """
    gamma = noise_probability
    lowest, terms, total, tail = binomial_window(
        honest_users, 2.0 * gamma / cells, 2.0 * gamma / (cells - 2.0 * gamma), _OUTSIDE
    )
    fine = step / BINS
    reach = min(math.ceil(math.log1p((1.0 - gamma) * cells / gamma) / fine) + 2, _MOST_BINS)
    upper, lower, longest = _third_value_bins(honest_users, cells, gamma, lowest, terms / (total + tail), fine, reach)
    return grid_of_bins(upper, lower, step, slack(terms.size + longest))


@kernel
def _third_value_bins(
    users: int, cells: int, gamma: float, first: int, masses: Floats, fine: float, reach: int
) -> tuple[Floats, Floats, int]:
    beta = (1.0 - gamma) * cells / gamma
    r = gamma / (cells * (1.0 - gamma) + gamma)
    others = gamma * (cells - 3) / (cells - 2.0 * gamma)  # chance that a report outside x, x' is not v
    upper = np.zeros(2 * reach + 1)
    lower = np.zeros(2 * reach + 1)
    longest = 0
    i = 0
    while i < masses.size:
        kept = first + i
        stop = min(masses.size, i + max(1, int(_CELL * kept)))
        mass = 0.0
        mean = 0.0
        for j in range(i, stop):
            mass += masses[j]
            mean += masses[j] * (first + j)
        i = stop
        if mass < 1e-290:
            continue
        mean /= mass
        outside = mean + (users - mean) * others
        base = beta * 0.5 * (mean - kept) + outside * (1.0 - r) + r * users
        lowest, terms, total, tail = binomial_window(kept, 0.5, 1.0, min(1e-3, _OUTSIDE / mass))
        longest = max(longest, terms.size)
        scale = mass / (total + tail) / users
        for j in range(terms.size):
            a = lowest + j
            p = beta * a + base
            q = beta * (kept - a) + base
            index = min(max(int(np.floor(np.log(p / q) / fine)) + reach, 0), 2 * reach)
            upper[index] += scale * terms[j] * p
            lower[index] += scale * terms[j] * q
    return upper, lower, longest


# ---------------------------------------------------------------------------------------------------------------------
# A lower bound for any way of choosing coordinates: all reports of all rounds in one pool.
#
# Let every other user hold one value in all coordinates, and the victim x, or x', in all of theirs. Forgetting
# coordinates and rounds leaves m = t T independent reports of the victim among (n - 1) m of the others, whoever
# reported
# which coordinate. Two statistics of that pool, each at its best threshold (docs/privacy.md, section 8):
#
# *Difference* (K >= 3, others at a third value): reports of x less those of x'. One report of the others is +1 or -1
# with
# p = gamma/K each, as is A - B for A, B ~ Bernoulli(q) with q (1 - q) = p; all of them together are the difference of
# two
# binomials. This needs p <= 1/4.
# *Count* (others at x): reports of x', in both directions.
#
# Where laws would get too long the adversary keeps a random part of the reports, which is post-processing.


_MOST_HITS = 1.6e7  # reports of the others in one cell, beyond which only a part is kept
_TRIED = 33  # thresholds in each of two passes
_LARGEST_EPSILON = 600.0  # beyond, e^epsilon leaves double precision; the bound there is 0


@dataclass(frozen=True, slots=True)
class _Law:
    """Masses at lowest, lowest + 1, ..., each right up to the factor 1 +- error, and `outside` at most beyond."""

    lowest: int
    masses: Floats
    outside: float = 0.0
    error: float = 0.0

    def negated(self) -> _Law:
        return _Law(1 - self.lowest - self.masses.size, self.masses[::-1], self.outside, self.error)

    def plus(self, other: _Law) -> _Law:
        error = self.error + other.error + slack(min(self.masses.size, other.masses.size))
        outside = self.outside + other.outside
        return _Law(self.lowest + other.lowest, np.convolve(self.masses, other.masses), outside, error)._trimmed()

    def times(self, count: int) -> _Law:
        """The law of the sum of so many."""
        if count == 1:
            return self
        half = self.times(count // 2)
        return half.plus(half) if count % 2 == 0 else half.plus(half).plus(self)

    def _trimmed(self) -> _Law:
        kept = np.flatnonzero(self.masses > _OUTSIDE / self.masses.size)
        first, stop = int(kept[0]), int(kept[-1]) + 1
        beyond = float(self.masses[:first].sum() + self.masses[stop:].sum()) * 2.0
        return _Law(self.lowest + first, self.masses[first:stop], self.outside + beyond, self.error)

    def moments(self) -> tuple[float, float]:
        """Mean and variance, roughly: they choose thresholds, never bounds."""
        values = self.lowest + np.arange(self.masses.size)
        mean = float(np.dot(values, self.masses))
        return mean, float(np.dot((values - mean) ** 2, self.masses))


def pooled_delta_lower(honest_users: int, values: int, reports: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta below which (epsilon, delta)-privacy certainly fails for these neighbours.

    `reports` are those of one user in all rounds, in coordinates that are drawn without regard to the data.
    """
    if epsilon > _LARGEST_EPSILON or noise_probability == 1.0:
        return 0.0
    gamma, others = noise_probability, (honest_users - 1) * reports
    kept = min(1.0, _MOST_HITS * values / (max(others, 1) * gamma))
    hit, stay = kept * gamma / values, kept * (1.0 - gamma + gamma / values)
    truthful, other = _binomial(reports, stay), _binomial(reports, hit)
    alone = _Law(0, np.ones(1))
    noise = _binomial(others, hit)
    bounds = [
        _best_threshold(noise, alone, truthful, other, epsilon),
        _best_threshold(noise.negated(), alone, other.negated(), truthful.negated(), epsilon),
    ]
    if values > 2 and hit < 0.25:
        half = _binomial(others, 2.0 * hit / (1.0 + math.sqrt(1.0 - 4.0 * hit)))
        rest = kept * gamma * (values - 2) / values + (1.0 - kept)
        victim = _Law(-1, np.array([hit, rest, stay]), error=slack(1)).times(reports)
        bounds.append(_best_threshold(half, half, victim, victim.negated(), epsilon))
    return max(0.0, *bounds)


def pooled_epsilon_lower(honest_users: int, values: int, reports: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""

    def height(epsilon: float) -> float:
        return pooled_delta_lower(honest_users, values, reports, noise_probability, epsilon)

    if height(0.0) <= delta:
        return 0.0
    return bracket(height, delta, guess=1.0, highest=_LARGEST_EPSILON, tolerance=1e-4)[0]


def _binomial(trials: int, probability: float) -> _Law:
    if probability >= 1.0:
        return _Law(trials, np.ones(1))
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    # the chance is known up to some roundings, which every step away from the mode repeats
    return _Law(int(lowest), terms / total, tail / total * 2.0, slack(8 * terms.size) + tail / total)


def _best_threshold(up: _Law, down: _Law, here: _Law, there: _Law, epsilon: float) -> float:
    """Bound the largest P(up - down + here >= c) - e^epsilon P(up - down + there >= c) from below."""
    laws = up.plus(here), up.plus(there)
    (mean, variance), (other_mean, _), (shift, further) = laws[0].moments(), laws[1].moments(), down.moments()
    deviation = math.sqrt(variance + further) + 1.0
    center = (mean + other_mean) / 2 - shift + epsilon * deviation**2 / max(mean - other_mean, 1e-9)
    center = min(center, mean - shift + 12.0 * deviation)
    best, best_point, width = 0.0, center, 6.0 * deviation
    for _ in range(2):
        for c in np.unique(np.rint(best_point + width * np.linspace(-1.0, 1.0, _TRIED)).astype(np.int64)):
            found = _beyond(laws[0], down, int(c), -1) - math.exp(epsilon) * _beyond(laws[1], down, int(c), 1)
            if found > best:
                best, center = found, float(c)
        best_point, width = center, width * 2.0 / (_TRIED - 1)
    return best


def _beyond(law: _Law, down: _Law, c: int, side: int) -> float:
    """P(law - down >= c), from below (side -1) or from above (side 1)."""
    survival = np.append(np.cumsum(law.masses[::-1])[::-1], 0.0)
    values = np.clip(c + down.lowest + np.arange(down.masses.size) - law.lowest, 0, law.masses.size)
    error = law.error + down.error + slack(law.masses.size + down.masses.size)
    known = float(np.dot(survival[values], down.masses))
    return known * (1.0 - error) if side < 0 else known * (1.0 + error) + law.outside + down.outside
