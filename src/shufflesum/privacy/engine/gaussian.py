"""The profile of N(mu, 1) against N(0, 1), bounded from above and below in double precision.

With t = epsilon/mu, b = mu/2 and Q(x) = P[N > x]: G_mu(e^epsilon) = Q(t - b) - e^epsilon Q(t + b).
"""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import Floats

__all__ = ["FAR", "ROOT_HALF", "dominates", "doubt", "profile_upper"]

FAR = 36.0
"""Deviations, beyond which erfc nears the end of the doubles."""

ROOT_HALF = math.sqrt(0.5)
_ULP = 2.0**-52
_LARGEST_LOSS = 700.0  # whose exponential is a double


@kernel
def doubt(x: float) -> float:
    """Bound the relative error of erfc(x sqrt(1/2)): its argument is rounded, and 16 units are the library's."""
    return (4.0 * x * x + 32.0) * _ULP


@kernel
def profile_upper(mu: float, epsilons: Floats) -> Floats:
    """Bound G_mu(e^epsilon) from above at each epsilon >= 0."""
    out = np.empty(epsilons.size)
    b = 0.5 * mu
    for i in range(epsilons.size):
        epsilon = epsilons[i]
        t = epsilon / mu
        near, far = t - b, t + b
        value = 0.5 * math.erfc(near * ROOT_HALF) * (1.0 + doubt(abs(t) + b)) + 1e-300
        if far < FAR and epsilon < _LARGEST_LOSS:
            value -= 0.5 * math.erfc(far * ROOT_HALF) * math.exp(epsilon) * (1.0 - doubt(far) - 2.0 * epsilon * _ULP)
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
        upper = 0.5 * math.erfc((t - b) * ROOT_HALF) * (1.0 - doubt(t + b))
        lower = 0.5 * math.erfc((t + b) * ROOT_HALF) * (1.0 + doubt(t + b))
        for end in (i, i + 1):
            weight = math.exp(losses[end]) * (1.0 + 4.0 * (losses[end] + 2.0) * _ULP)
            if not heights[end] <= (upper - weight * lower + apart) * (1.0 - 4.0 * _ULP):
                return False
    return bool(heights[last] <= apart)
