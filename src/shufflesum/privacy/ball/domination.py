"""Gaussian domination: a number m such that every coordinate's pair is below a Gaussian pair.

For all w >= 1, h, and |s|, |s'| <= a, with v^2 = 2 (s^2 + s'^2), G_mu the profile of N(mu, 1) against N(0, 1),
    E_u (1 + s z - w (1 + s' z))+  <=  G_(m v)(w) + delta0                                            (domination)
follows (docs/privacy-ball.md, 4) from a condition on one variable x in (0, 1),
    C(x)  <=  x G_(2 a m)(e^(2 a E))/(e^(2 a E) - 1) + delta0 (1 - x a)/(2 a),                         (condition)
    E^2 = ((A/a)^2 + B^2)/2,   A = log((1 + x a)/(1 - x a)) - x a/(1 + x a),   B = x/(1 + x a).
Both sides fall in x: the left one at the lower end of a cell against the right one at its upper end is enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._search import bisect, geometric_mean
from shufflesum.privacy.ball.gaussian import side_lower
from shufflesum.privacy.ball.others import worst_calls
from shufflesum.privacy.engine.laws import Floats

__all__ = ["Thresholds", "strength", "thresholds"]

_STEP = 1e-3  # of the grid in deviations of z, for x below 4 of them
_GROWTH = 2.5e-4  # of the grid's points beyond
_FINE = 4.0
_FLOOR = 1e-28  # times 1 - a, of C: smaller than any delta0 would pay for
_TOLERANCE = 1e-6  # of m
_LARGEST_SHIFT = 32.0  # of mu = 2 a m for one coordinate: nothing is private there
_REMEMBERED = 64
_ULP = 2.0**-52


@dataclass(frozen=True, slots=True)
class Thresholds:
    """C at the points of a grid, for the worst h and sign of z, and what the condition compares it with."""

    amplitude: float
    grid: Floats
    calls: Floats
    steepest: Floats  # x a, rounded up
    exponents: Floats  # E

    def holds(self, m: float, delta0: float) -> bool:
        """Tell whether the condition certainly holds for all x: up to the last point by cells, beyond by delta0."""
        spared = delta0 * (1.0 - self.steepest) / (2.0 * self.amplitude) * (1.0 - 8.0 * _ULP)
        # C is convex with C(1) = 0: where delta0 alone pays for it, it does from there on
        paid = np.flatnonzero(self.calls <= spared)
        if not paid.size:
            return False
        end = int(paid[0]) + 1
        right = side_lower(m, self.amplitude, self.grid[:end], self.exponents[:end]) + spared[:end]
        return bool(np.all(self.calls[: end - 1] <= right[1:]))


@lru_cache(maxsize=_REMEMBERED)
def thresholds(honest_users: int, amplitude: float) -> Thresholds:
    """Lay out the condition for these users and this amplitude."""
    deviation = min(0.25, 1.0 / math.sqrt(honest_users * (1.0 - amplitude**2)))  # about that of z; only sets the grid
    fine = np.arange(0.0, min(_FINE, 1.0 / deviation), _STEP) * deviation
    beyond = max(0, math.ceil(math.log(1.0 / (_FINE * deviation)) / _GROWTH)) if _FINE * deviation < 1.0 else 0
    coarse = _FINE * deviation * np.exp(_GROWTH * np.arange(beyond))
    grid = np.append(np.concatenate([fine, coarse[coarse < 1.0]]), 1.0)
    calls = worst_calls(honest_users, amplitude, grid)
    if np.isfinite(calls[0]):
        calls[-1] = 0.0  # z never exceeds 1
    low = np.flatnonzero(calls <= _FLOOR * (1.0 - amplitude))
    kept = int(low[0]) + 1 if low.size else grid.size
    grid, calls = grid[:kept], calls[:kept]
    y = np.minimum(grid * amplitude * (1.0 + 4.0 * _ULP), amplitude)  # E rises with it; at x = 1 it is exact
    first = np.log1p(2.0 * y / (1.0 - y)) - y / (1.0 + y)
    exponents = np.sqrt(0.5 * ((first / amplitude) ** 2 + (y / amplitude / (1.0 + y)) ** 2)) * (1.0 + 32.0 * _ULP)
    return Thresholds(amplitude, grid, calls, y, exponents)


@lru_cache(maxsize=16 * _REMEMBERED)
def strength(honest_users: int, amplitude: float, delta0: float) -> float:
    """Return an m, nearly the least, for which (domination) holds; infinite if none was found."""
    laid = thresholds(honest_users, amplitude)
    guess = 1.0 / math.sqrt(honest_users * (1.0 - amplitude**2))
    most = _LARGEST_SHIFT / (2.0 * amplitude)
    low = 0.5 * min(guess, most)
    return bisect(lambda m: laid.holds(m, delta0), low, most, tolerance=_TOLERANCE, middle=geometric_mean)[1]
