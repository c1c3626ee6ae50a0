"""Crossing points of falling functions: few evaluations, and both ends of the answer really evaluated."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["GRID", "crossing_epsilon", "crossing_probability"]

Floats = npt.NDArray[np.float64]

GRID = 2**53  # noise probabilities are multiples of 1/GRID
_FLOOR = 1e-40


def crossing_probability(
    function: Callable[[float], float],
    target: float,
    guess: float,
    highest: int,
    tolerance: float,
    *,
    spread: float = 1.5,
) -> tuple[int, int]:
    """Return close grid points (low, high) with function(low) > target >= function(high), `high` <= highest.

    The caller knows function(highest/GRID) <= target; low = 0 stands for "never above the target". Steps grow from
    `spread` (a factor on the odds) until the target is enclosed, then Illinois steps on the logarithm, which is
    nearly linear in the noise probability; the ends differ by a factor of 1 + tolerance at most.
    """

    def excess(point: int) -> float:
        return math.log(max(function(point / GRID), _FLOOR) / target)

    low, high = 0, highest
    low_value, high_value = math.inf, -math.inf
    point, factor = min(max(1, round(guess * GRID)), highest), spread
    while math.isinf(low_value) or math.isinf(high_value):
        value = excess(point)
        if value > 0.0:
            low, low_value = point, value
            step = max(point + 1, _times_odds(point, factor))
        else:
            high, high_value = point, value
            step = min(point - 1, _times_odds(point, 1.0 / factor))
        if high - low <= 1:
            return low, high
        point = min(max(step, low + 1), high if math.isinf(high_value) else high - 1)
        factor = min(factor**6, 1e6)
    side = 0
    weight_low, weight_high = low_value, high_value
    while high - low > max(1, tolerance * high):
        margin = max(1, int(0.5 * tolerance * high))
        root = high + (high - low) * (weight_high / (weight_low - weight_high))
        point = min(max(round(root), low + margin), high - margin)
        value = excess(point)
        if value > 0.0:
            low, weight_low = point, value
            weight_high = 0.5 * weight_high if side == 1 else weight_high
            side = 1
        else:
            high, weight_high = point, value
            weight_low = 0.5 * weight_low if side == -1 else weight_low
            side = -1
    return low, high


def _times_odds(point: int, factor: float) -> int:
    probability = point / GRID
    return round(probability * factor / (1.0 + probability * (factor - 1.0)) * GRID)


def crossing_epsilon(profile: Callable[[Floats], Floats], target: float, highest: float) -> tuple[float, float]:
    """Return epsilons (low, high) with profile(low) > target >= profile(high), or (0, 0) if never above.

    The caller knows profile(highest) <= target. Each pass reads 64 epsilons at once.
    """
    if float(profile(np.zeros(1))[0]) <= target:
        return 0.0, 0.0
    low, high = 0.0, highest
    for _ in range(12):
        points = np.linspace(low, high, 66)[1:-1]
        above = profile(points) > target
        index = int(np.argmin(above)) if not above.all() else points.size
        new_low = float(points[index - 1]) if index else low
        new_high = float(points[index]) if index < points.size else high
        if high - low <= 1e-11 * high or (new_low, new_high) == (low, high):
            break
        low, high = new_low, new_high
    return low, high
