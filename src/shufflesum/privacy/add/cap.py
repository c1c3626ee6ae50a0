"""How rarely a user draws more noise reports than there is room for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shufflesum._search import bisect

__all__ = ["Trials", "overflow_upper", "smallest_cap"]

Trials = tuple[int, float]  # so many, each with this chance

_ROUNDING = 1e-9  # relative, of an exponent below a few thousand


def overflow_upper(noise: Sequence[Trials], cap: int) -> float:
    """Bound P[K > cap] for K a sum of binomials, from above (Chernoff).

    P[K >= m] <= exp(sum trials log(1 + p (e^t - 1)) - t m) for every t >= 0; the best t is looked for, any is right.
    """
    beyond = cap + 1
    if beyond > sum(trials for trials, _ in noise):
        return 0.0
    if beyond <= sum(trials * chance for trials, chance in noise):
        return 1.0

    def tilted_mean(tilt: float) -> float:
        return sum(n * p * math.exp(tilt) / (1.0 + p * math.expm1(tilt)) for n, p in noise)

    tilt = bisect(lambda t: tilted_mean(t) >= beyond, 0.0, 60.0, tolerance=1e-6)[0]
    exponent = sum(n * math.log1p(p * math.expm1(tilt)) for n, p in noise)
    return min(1.0, math.exp(exponent - tilt * beyond + _ROUNDING * (exponent + tilt * beyond)))


def smallest_cap(noise: Sequence[Trials], most_overflow: float) -> int:
    """The least cap that is exceeded with at most this chance, by the bound of `overflow_upper`."""
    low, high = -1, sum(trials for trials, _ in noise)  # exceeded too often, and never
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if overflow_upper(noise, middle) <= most_overflow else (middle, high)
    return high
