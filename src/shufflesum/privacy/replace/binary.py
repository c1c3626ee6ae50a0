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

import numpy as np

from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import GridLosses, grid_of_atoms

__all__ = ["one_value_losses", "profile_upper"]

_OUTSIDE = 1e-22  # probability that a window may leave out; charged to delta
_CELLS = 100  # cells of n0 in 0..(n - 1)/2: each forgets about 1/200 of the users, which costs as much in gamma
_FEWEST_CELLS = 32
_WORK = 1.5e4  # cells x standard deviation of z
_DENSE = 1e7  # shorter laws are convolved in full
_SAMPLES = 16  # per standard deviation of a longer law: the chords add 1/(6 * 16**2) to the variance of a loss
_LARGEST_SPREAD = 3e3  # of z; noise beyond is not counted


def profile_upper(honest_users: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta(epsilon), epsilon >= 0 in any order, over all data sets and both directions, for gamma < 1.

    More users at either value only add independent noise to y, so delta falls in n0 and in n1: all n0 in a cell
    [c, e] are charged at n0 = c, n1 = n - 1 - e. Swapping the values swaps n0 with n1 and P with Q, so cells in the
    lower half with both directions cover everything. The maximum over cells of convex falling profiles is itself
    one, and the only thing composition needs is that it is above that of every pair of neighbours.
    """
    # delta falls in the users too, so those who would only make the laws too long may be left out
    others = min(honest_users - 1, int(2.0 * _LARGEST_SPREAD**2 / noise_probability))
    half = others // 2
    spread = float(np.sqrt(others * noise_probability * 0.5))
    count = int(min(half + 1, max(_FEWEST_CELLS, min(_CELLS, _WORK / (spread + 1.0)))))
    # with few noisy reports delta is larger where almost all others agree, so cells are narrower there
    crowding = 1.0 + 0.4 * min(1.0, 100.0 / (spread + 1.0)) if count <= half else 1.0
    fractions = np.linspace(0.0, 1.0, count + 1) ** crowding
    starts = np.unique(np.rint((half + 1) * fractions).astype(np.int64))
    result = np.zeros(epsilons.size)
    for start, stop in itertools.pairwise(starts):
        up, down, error = _others(int(start), others - int(stop) + 1, noise_probability)
        read = _profile if up.size * down.size < _DENSE else _sampled_profile
        for a, b in ((up, down), (up[::-1], down[::-1])):  # both directions
            np.maximum(result, read(a, b, error, noise_probability, epsilons), out=result)
    return result


def one_value_losses(honest_users: int, noise_probability: float, step: float) -> tuple[GridLosses, GridLosses]:
    """Return pairs below those of 0 against 1, and of 1 against 0, among n - 1 users at 0, for gamma < 1."""
    rho = noise_probability / 2
    others = honest_users - 1
    lowest, terms, total, tail = binomial_window(others, rho, rho / (1.0 - rho), _OUTSIDE)
    # an outcome counts only if both of the terms that make it are known; the ends of the whole law are
    ends = (int(lowest == 0), int(lowest + terms.size - 1 == others))
    padded = np.pad(terms / (total + tail), ends)
    error = slack(terms.size)
    zero = (1.0 - rho) * padded[1:] + rho * padded[:-1]
    one = rho * padded[1:] + (1.0 - rho) * padded[:-1]
    return grid_of_atoms(zero, one, step, error), grid_of_atoms(one, zero, step, error)


def _others(zeros: int, ones: int, noise_probability: float) -> tuple[Floats, Floats, float]:
    """Return two laws whose convolution is z on a window, and its relative error; outside is below 2 _OUTSIDE."""
    rho = noise_probability / 2
    odds = noise_probability / (2.0 - noise_probability)
    _, up, up_total, up_tail = binomial_window(zeros, rho, odds, _OUTSIDE)
    _, down, down_total, down_tail = binomial_window(ones, rho, odds, _OUTSIDE)
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
    alpha = alpha + _doubt(growth, noise_probability)  # a larger alpha has larger gains: its best y serves as well
    with np.errstate(divide="ignore", over="ignore"):
        limits = np.where(alpha > 0, -beta / alpha, -np.inf)
    best = np.searchsorted(-(z[1:] / z[:-1]), limits, side="right")
    return _directed(z[best], np.cumsum(z)[best], growth, error, noise_probability)


def _sampled_profile(a: Floats, b: Floats, error: float, noise_probability: float, epsilons: Floats) -> Floats:
    """The same for long laws: exact at those w where a sampled y is best, and chords of the convex profile between.

    y and y - 1 are equally good where beta/alpha = z(y)/z(y - 1), which gives w.
    """
    mean = float(np.dot(np.arange(a.size), a) + np.dot(np.arange(b.size), b))
    spread = np.hypot(a.size, b.size) / 20.0  # a window is about 20 standard deviations wide; only sets samples
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
    for y in range(center, 0, -max(1, int(spread / _SAMPLES))):
        z, total = read(backwards, y), read_sum(y)
        ratio = z / read(backwards, y - 1)
        growth = (1.0 - noise_probability) * (ratio - 1.0) / (1.0 - rho + ratio * rho)
        if growth > growths[-1]:
            growths.append(growth)
            heights.append(float(_directed(np.array(z), np.array(total), np.array(growth), error, noise_probability)))
        if heights[-1] < 16.0 * _OUTSIDE:
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
    doubt = _doubt(growth, noise_probability)
    value = beta * z * (1.0 + 8.0 * error) - growth * total * (1.0 - error) + 2.0 * doubt * total
    bound = np.maximum(value, 0.0) + 4.0 * _OUTSIDE * beta
    return np.where(alpha > doubt, bound, np.where(alpha > -doubt, 2.0 * doubt, 0.0))


def _doubt(growth: Floats, noise_probability: float) -> Floats:
    """Bound the rounding error of alpha."""
    result: Floats = 8.0 * ROUNDING * (1.0 + growth * noise_probability)
    return result
