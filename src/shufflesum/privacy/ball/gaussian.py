"""The profile of N(mu, 1) against N(0, 1), bounded from above and below in double precision.

With t = epsilon/mu, b = mu/2 and Q(x) = P[N > x]: G_mu(e^epsilon) = Q(t - b) - e^epsilon Q(t + b).
"""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import Floats

__all__ = ["profile_upper", "side_lower"]

_ULP = 2.0**-52
_ROOT_HALF = math.sqrt(0.5)
_FAR = 36.0  # deviations, beyond which erfc nears the end of the doubles


@kernel
def _doubt(x: float) -> float:
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
        value = 0.5 * math.erfc(near * _ROOT_HALF) * (1.0 + _doubt(abs(t) + b)) + 1e-300
        if far < _FAR and epsilon < 700.0:
            value -= 0.5 * math.erfc(far * _ROOT_HALF) * math.exp(epsilon) * (1.0 - _doubt(far) - 2.0 * epsilon * _ULP)
        out[i] = min(1.0, max(value, 0.0))
    return out


@kernel
def side_lower(m: float, amplitude: float, grid: Floats, exponents: Floats) -> Floats:
    """Bound x G_(2am)(w)/(w - 1), w = e^(2aE), from below for x of the grid, but for its first point.

    With b = a m, t = E/m and Mills' ratio M(x) = Q(x)/density(x) it is, without cancelling exponentials,
        x exp(-(t^2 + b^2)/2) (M(t - b) - M(t + b)) / (2 sqrt(2 pi) sinh(a E)).
    """
    b = amplitude * m
    out = np.zeros(grid.size)
    for i in range(1, grid.size):
        t = exponents[i] / m
        if t + b > _FAR:
            break
        doubt = 2.0 * _doubt(t + b)
        difference = _mills(t - b) * (1.0 - doubt) - _mills(t + b) * (1.0 + doubt)
        factor = grid[i] * math.exp(-0.5 * (t * t + b * b)) / (2.0 * math.sinh(amplitude * exponents[i]))
        value = factor / math.sqrt(2.0 * math.pi) * difference * (1.0 - 4.0 * doubt)
        out[i] = max(value, 0.0)
    return out


@kernel
def _mills(x: float) -> float:
    return math.sqrt(0.5 * math.pi) * math.erfc(x * _ROOT_HALF) * math.exp(0.5 * x * x)
