"""The one bisection and the one bracketing search: both ends of an answer are evaluated, the caller takes the safe one.

`bisect` is for what is cheap or has no useful height, `bracket` for what costs: it takes a fraction of the evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable

GRID = 2**53  # noise probabilities are whole multiples of 1/GRID, and so is all that `bracket` looks at
_FLOOR = 1e-40  # lower heights count as this one


def bisect(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    tolerance: float = 0.0,
    steps: int = 1100,
    middle: Callable[[float, float], float] = lambda low, high: 0.5 * (low + high),
) -> tuple[float, float]:
    """Return near ends (low, high), not holds(low) and holds(high), of a condition that once met stays met.

    (low, low) where it holds at `low`, (high, infinity) where it does not even hold at `high`. The ends, at least 0,
    are apart by `tolerance` x high at most (0: no number lies between them), unless `steps` run out before.
    """
    if holds(low):
        return low, low
    if not holds(high):
        return high, math.inf
    for _ in range(steps):
        point = middle(low, high)
        if high - low <= tolerance * high or not low < point < high:
            break
        low, high = (low, point) if holds(point) else (point, high)
    return low, high


def geometric_mean(low: float, high: float) -> float:
    """The middle for what may lie many orders of magnitude apart."""
    return math.sqrt(low * high)


def bracket(
    falling: Callable[[float], float],
    target: float,
    *,
    guess: float,
    highest: float,
    tolerance: float,
    first_factor: float = 1.5,
    times: Callable[[float, float], float] = lambda point, factor: point * factor,
) -> tuple[float, float]:
    """Return near ends (low, high) with falling(low) > target >= falling(high), positive multiples of 1/GRID.

    (0, high) where nothing above the target was found, (highest, infinity) where falling(highest) is above it. Steps
    grow from `guess` by factors, at first `first_factor`, until the target is enclosed; then Illinois steps on the
    logarithm, which is nearly linear for our bounds. The ends differ by a factor of 1 + tolerance at most.
    """

    def excess(point: int) -> float:
        return math.log(max(falling(point / GRID), _FLOOR) / target)

    def scaled(point: int, factor: float) -> int:
        return round(times(point / GRID, factor) * GRID)

    last = math.ceil(highest * GRID)
    low, high, above, below = 0, last, math.inf, -math.inf  # the excess at both ends; infinite: not evaluated
    point, factor = min(max(1, round(guess * GRID)), last), first_factor
    while math.isinf(above) or math.isinf(below):
        value = excess(point)
        if value <= 0.0:
            high, below = point, value
            step = min(point - 1, scaled(point, 1.0 / factor))
        elif point < last:
            low, above = point, value
            step = max(point + 1, scaled(point, factor))
        else:
            return last / GRID, math.inf
        if high - low <= 1 and math.isfinite(below):
            return low / GRID, high / GRID
        point = min(max(step, low + 1), high if math.isinf(below) else high - 1)
        factor = min(factor**6, 1e6)
    side = 0
    while high - low > max(1, tolerance * high):
        margin = max(1, int(0.5 * tolerance * high))
        root = high + (high - low) * (below / (above - below))
        point = min(max(round(root), low + margin), high - margin)
        value = excess(point)
        if value <= 0.0:
            high, below = point, value
            above = 0.5 * above if side == -1 else above
            side = -1
        else:
            low, above = point, value
            below = 0.5 * below if side == 1 else below
            side = 1
    return low / GRID, high / GRID


def times_odds(probability: float, factor: float) -> float:
    """The step of `bracket` for probabilities: `factor` times the odds."""
    return probability * factor / (1.0 + probability * (factor - 1.0))
