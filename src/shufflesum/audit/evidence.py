"""What observed counts prove about the chances behind them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._search import bisect

__all__ = ["chances", "deviation"]


def deviation(successes: ArrayLike, trials: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """n KL(successes/n, chance): so far out, on one side, a binomial count lies with chance e^-that or less."""
    s, n, p = (np.asarray(part, dtype=np.float64) for part in (successes, trials, chance))
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(s > 0, s * np.log(s / (n * p)), 0.0)
        misses = np.where(s < n, (n - s) * np.log((n - s) / (n * (1 - p))), 0.0)
    return np.where(s > n, np.inf, np.maximum(hits + misses, 0.0))


def chances(successes: int, trials: int, chance_of_error: float) -> tuple[float, float]:
    """Bounds that the chance of success keeps, each but for `chance_of_error`: Chernoff's bound turned round."""
    above, below = (_upper_chance(count, trials, chance_of_error) for count in (successes, trials - successes))
    return 1 - below, above


def _upper_chance(successes: int, trials: int, chance_of_error: float) -> float:
    def excluded(chance: float) -> bool:
        return float(deviation(successes, trials, chance)) > -math.log(chance_of_error)

    return min(1.0, bisect(excluded, successes / trials if trials else 1.0, 1.0)[1])
