"""The Gaussian side of the condition of `domination`, bounded from below in double precision."""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.gaussian import FAR, ROOT_HALF, doubt
from shufflesum.privacy.engine.laws import Floats

__all__ = ["side_lower"]


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
        if t + b > FAR:
            break
        error = 2.0 * doubt(t + b)
        difference = _mills(t - b) * (1.0 - error) - _mills(t + b) * (1.0 + error)
        factor = grid[i] * math.exp(-0.5 * (t * t + b * b)) / (2.0 * math.sinh(amplitude * exponents[i]))
        value = factor / math.sqrt(2.0 * math.pi) * difference * (1.0 - 4.0 * error)
        out[i] = max(value, 0.0)
    return out


@kernel
def _mills(x: float) -> float:
    return math.sqrt(0.5 * math.pi) * math.erfc(x * ROOT_HALF) * math.exp(0.5 * x * x)
