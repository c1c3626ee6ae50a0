"""How far a mean is off: noise, the bias of clipping, and what a trusted curator would add. Predictions, not bounds.

n users, D coordinates, radius 1: a mean of vectors in a ball of radius C has C^2 times these squared errors.
"""

from __future__ import annotations

import math

from shufflesum._search import bisect
from shufflesum.privacy.engine.gaussian import gaussian_noise

_BITS_PER_CROWDING = 10.0  # then one bit's share of the error is about a tenth of the curator's


def noise_variance(
    *, users: int, coordinates: int, amplitude: float, tau: float, bits: int = 1, mean_square: float = 0.0
) -> float:
    """Variance of one coordinate of the mean, on average over coordinates: (tau^2/a^2 - q)/(D n r).

    A user's estimate is B/a times the mean of r signs, B = tau/sqrt(D), and the sign at y = x/B has variance
    1 - (a y)^2. So q is the users' mean squared norm, at most 1; 0 bounds the variance for all data.
    """
    return ((tau / amplitude) ** 2 - mean_square) / (coordinates * users * bits)


def clipping_bias(tau: float) -> float:
    """Squared bias, summed over coordinates, if all users hold the same vector of norm 1: E ((|g| - tau)+)^2.

    g is standard normal: a coordinate of a randomly rotated vector, times sqrt(D), is nearly that.
    """
    return max(0.0, 2.0 * ((1.0 + tau**2) * _beyond(tau) - tau * _density(tau)))


def best_tau(users: int, bits: int = 1) -> float:
    """The tau with the least error: the part tau^2/(n r) of the noise, which privacy does not ask for, plus the bias.

    The derivative of the bias is -4 E (g - tau)+, so this tau is 2 n r E (g - tau)+.
    """
    weight = 2.0 * users * bits
    return bisect(lambda tau: tau >= weight * (_density(tau) - tau * _beyond(tau)), 1.0, 12.0, tolerance=1e-9)[1]


def crowding(*, users: int, coordinates: int, tau: float, epsilon: float, delta: float, rounds: int = 1) -> float:
    """v = n tau^2/(4 sigma^2 D), sigma the curator's noise multiplier: r bits have about 1 + v/r times his error.

    Where it is large (many users, few coordinates) one bit is not fine enough, and several are worth their reports.
    """
    return users * tau**2 / (4.0 * rounds * gaussian_noise(epsilon, delta) ** 2 * coordinates)


def best_bits(crowded: float, most: int) -> int:
    """A good number of bits per coordinate, about 10 v, at most so many."""
    return max(1, min(most, math.ceil(_BITS_PER_CROWDING * crowded)))


def error_ratio(
    *,
    users: int,
    dimension: int,
    coordinates: int,
    amplitude: float,
    tau: float,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    bits: int = 1,
) -> float:
    """Squared error of a mean over that of a trusted curator's Gaussian noise, if all users hold one vector of norm 1.

    The bias of clipping, worst for such users, is included. The curator's noise has the sensitivity 2 and the same
    guarantee in all rounds; `dimension` coordinates are kept of the `coordinates` they were padded to.
    """
    noise = noise_variance(
        users=users, coordinates=coordinates, amplitude=amplitude, tau=tau, bits=bits, mean_square=1.0
    )
    curator = 4.0 * rounds * gaussian_noise(epsilon, delta) ** 2 / users**2
    return (dimension * noise + clipping_bias(tau)) / (dimension * curator)


def _density(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _beyond(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2.0))
