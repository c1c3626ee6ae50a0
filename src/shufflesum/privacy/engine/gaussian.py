"""Gaussian noise: the privacy profile of N(mu, 1) against N(0, 1), bounded from above and below in double precision.

With t = epsilon/mu, b = mu/2 and Q(x) = P[N > x]: G_mu(e^epsilon) = Q(t - b) - e^epsilon Q(t + b).
"""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum._search import bisect, geometric_mean
from shufflesum.privacy.engine.laws import Floats

FAR = 36.0
"""Deviations, beyond which erfc nears the end of the doubles."""

ROOT_HALF = math.sqrt(0.5)
_ULP = 2.0**-52
_LARGEST_LOSS = 700.0  # whose exponential is a double


@kernel
def relative_error_bound(x: float) -> float:
    """Bound the relative error of erfc(x sqrt(1/2)): its argument is rounded, and 16 units are the library's."""
    return (4.0 * x * x + 32.0) * _ULP


@kernel
def gaussian_profile_upper(mu: float, epsilons: Floats) -> Floats:
    """Bound G_mu(e^epsilon) from above at each epsilon >= 0."""
    out = np.empty(epsilons.size)
    b = 0.5 * mu
    for i in range(epsilons.size):
        epsilon = epsilons[i]
        t = epsilon / mu
        near, far = t - b, t + b
        value = 0.5 * math.erfc(near * ROOT_HALF) * (1.0 + relative_error_bound(abs(t) + b)) + 1e-300
        if far < FAR and epsilon < _LARGEST_LOSS:
            value -= (
                0.5
                * math.erfc(far * ROOT_HALF)
                * math.exp(epsilon)
                * (1.0 - relative_error_bound(far) - 2.0 * epsilon * _ULP)
            )
        out[i] = min(1.0, max(value, 0.0))
    return out


@kernel
def dominates(mu: float, losses: Floats, heights: Floats, apart: float) -> bool:
    """Tell whether G_mu + apart is certainly above a falling convex polygon, given by its heights from loss 0 on.

    Whatever the event A, G_mu(w) >= P(A) - w Q(A): a line. Where both ends of an edge are below the line of the event
    that the loss is above the edge's first one, all of the edge is; and `apart` is above whatever is lower than it.
    After its last node the polygon is level.
    """
    b = 0.5 * mu
    last = losses.size - 1
    for i in range(last):
        t = losses[i] / mu
        if heights[i] <= apart:
            return True
        if t + b > FAR or losses[i + 1] > _LARGEST_LOSS:
            return False
        upper = 0.5 * math.erfc((t - b) * ROOT_HALF) * (1.0 - relative_error_bound(t + b))
        lower = 0.5 * math.erfc((t + b) * ROOT_HALF) * (1.0 + relative_error_bound(t + b))
        for end in (i, i + 1):
            weight = math.exp(losses[end]) * (1.0 + 4.0 * (losses[end] + 2.0) * _ULP)
            if not heights[end] <= (upper - weight * lower + apart) * (1.0 - 4.0 * _ULP):
                return False
    return bool(heights[last] <= apart)


# ---------------------------------------------------------------------------------------------------------------------
# What a curator would need whom all users trust with their data: the least error any of this is measured against.


_TOLERANCE = 1e-12


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise for (epsilon, delta) at sensitivity 1 (Balle and Wang, 2018).

    It solves Phi(1/(2 s) - epsilon s) - e^epsilon Phi(-1/(2 s) - epsilon s) = delta.
    """
    growth = math.exp(min(epsilon, 700.0))

    def enough(deviation: float) -> bool:
        half, shift = 1 / (2 * deviation), epsilon * deviation
        return _normal(half - shift) - growth * _normal(-half - shift) <= delta

    return bisect(enough, 1e-3, 1e6, tolerance=_TOLERANCE, middle=geometric_mean)[1]


def curator_error(users: int, weights: tuple[float, float], epsilon: float, delta: float, rounds: int = 1) -> float:
    """Squared error of the means from a trusted curator who adds Gaussian or Laplace noise once a round.

    Whichever is better. `weights` say what one unit of either noise costs at the sensitivity of the data, summed over
    all that is estimated (`central_sensitivity` of the domain).
    """
    gaussian = rounds * gaussian_noise(epsilon, delta) ** 2 * weights[0]
    laplace = 2 * (rounds / epsilon) ** 2 * weights[1]
    return min(gaussian, laplace) / users**2


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
