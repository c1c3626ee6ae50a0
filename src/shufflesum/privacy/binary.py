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
import numpy.typing as npt

from shufflesum.privacy._binomial import ROUNDING, binomial_window, slack
from shufflesum.privacy._concrete import grid_of_atoms
from shufflesum.privacy._convolution import GridLosses

__all__ = ["one_value_losses", "profile_upper"]

Floats = npt.NDArray[np.float64]

_OUTSIDE = 1e-22  # probability that a window may leave out; charged to delta
_CELLS = 100  # cells of n0 in 0..(n - 1)/2: each forgets about 1/200 of the users, which costs as much in gamma
_FEWEST_CELLS = 32
_WORK = 4e8  # multiplications that the cells may cost together


def profile_upper(honest_users: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta(epsilon), epsilon >= 0 in any order, over all data sets and both directions, for gamma < 1.

    More users at either value only add independent noise to y, so delta falls in n0 and in n1: all n0 in a cell
    [c, e] are charged at n0 = c, n1 = n - 1 - e. Swapping the values swaps n0 with n1 and P with Q, so cells in the
    lower half with both directions cover everything. The maximum over cells of convex falling profiles is itself
    one, and the only thing composition needs is that it is above that of every pair of neighbours.
    """
    others = honest_users - 1
    half = others // 2
    spread = np.sqrt(others * noise_probability * 0.5)
    work = (20.0 * spread + 60.0) ** 2 / 2
    count = int(min(half + 1, max(_FEWEST_CELLS, min(_CELLS, _WORK / work))))
    starts = np.arange(half + 2)
    if count <= half:
        # with few noisy reports delta is larger where almost all others agree, so cells are narrower there
        crowding = 1.0 + 0.4 * min(1.0, 100.0 / (spread + 1.0))
        starts = np.unique(((half + 1) * np.linspace(0.0, 1.0, count + 1) ** crowding).astype(np.int64))
    result = np.zeros(epsilons.size)
    for start, stop in itertools.pairwise(starts):
        z, error = _others(int(start), others - int(stop) + 1, noise_probability)
        np.maximum(result, _profile(z, error, noise_probability, epsilons), out=result)
        np.maximum(result, _profile(z[::-1], error, noise_probability, epsilons), out=result)
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


def _others(zeros: int, ones: int, noise_probability: float) -> tuple[Floats, float]:
    """Return the law of the others' ones on a window, and its relative error; outside is below 2 _OUTSIDE."""
    rho = noise_probability / 2
    odds = noise_probability / (2.0 - noise_probability)
    _, up, up_total, up_tail = binomial_window(zeros, rho, odds, _OUTSIDE)
    _, down, down_total, down_tail = binomial_window(ones, rho, odds, _OUTSIDE)
    error = slack(2 * (up.size + down.size)) + up_tail / up_total + down_tail / down_total
    return np.convolve(up / up_total, (down / down_total)[::-1]), error


def _profile(z: Floats, error: float, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta for the event {ones <= y}, y at its best.

    The gain of one more y, alpha z(y) - beta z(y - 1) with alpha = beta - (w - 1), changes sign once. Where rounding
    picks a neighbour of the best y, the gain there is below the error of its two terms, which is added.
    """
    rho = noise_probability / 2
    growth = np.expm1(epsilons)
    beta = 1.0 - noise_probability + growth * (1.0 - rho)
    alpha = 1.0 - noise_probability - growth * rho
    with np.errstate(divide="ignore", over="ignore"):
        falling = -(z[1:] / z[:-1])
        limits = np.where(alpha > 0, -beta / alpha, -np.inf)
    best = np.searchsorted(falling, limits, side="right")
    sums = np.cumsum(z)
    error += slack(z.size)
    value = beta * z[best] * (1.0 + 8.0 * error) - growth * sums[best] * (1.0 - error)
    floor = 4.0 * _OUTSIDE * beta
    # Without alpha > 0 no outcome is more likely by more than w; alpha is known up to rounding.
    slim = 8.0 * ROUNDING * (1.0 + growth * rho)
    return np.where(alpha > slim, np.maximum(value, 0.0) + floor, np.where(alpha > -slim, 2.0 * slim, 0.0))
