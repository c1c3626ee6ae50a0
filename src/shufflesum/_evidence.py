"""What counts of outcomes prove about the chances behind them, and about the noise of a randomizer."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._search import bisect

__all__ = ["chances", "deviation", "honest_law", "noise_simulated"]

_Floats = NDArray[np.float64]
_MARGIN = 1e-14  # for rounding in determinants of numbers below 1


def deviation(successes: ArrayLike, trials: ArrayLike, chance: ArrayLike) -> _Floats:
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


def noise_simulated(cells: int, lower: _Floats, upper: _Floats) -> float:
    """The least noise probability that a channel can turn every law between `lower` and `upper` into, or 1.

    Laws are square: rows what a user holds, columns what comes out; the diagonal is the rest of its row. The channel is
    law^-1 honest: its rows sum to 1, because those of both laws do. By Cramer's rule its entry (i, j) is a ratio of
    determinants, of the law with column i replaced by column j of honest, and of the law. Both are affine in each row
    of the law, and rows vary independently, so the corners of the enclosure decide whether they are positive.
    """
    size = len(lower)
    rows = []
    for row in range(size):
        ends = [(lower[row, column], upper[row, column]) if column != row else (0.0,) for column in range(size)]
        corners = np.array(list(itertools.product(*ends)))
        corners[:, row] = 1 - corners.sum(axis=1)
        rows.append(corners)
    laws = np.array(list(itertools.product(*rows)))

    def is_channel(noise_probability: float) -> bool:
        replaced = np.tile(laws[:, None, None], (1, size, size, 1, 1))
        for i in range(size):
            replaced[:, i, :, :, i] = honest_law(cells, size, noise_probability).T
        return bool(np.all(np.linalg.det(replaced) > _MARGIN))

    if np.any(np.linalg.det(laws) <= _MARGIN):
        return 1.0
    return min(1.0, bisect(is_channel, 0.0, 1.0, steps=60)[1])


def honest_law(cells: int, size: int, noise_probability: float) -> _Floats:
    """The law of the plan's randomizer, with all values but the first size - 1 taken together."""
    law = np.full((size, size), noise_probability / cells)
    law[:, -1] *= cells - (size - 1)
    law[np.diag_indices(size)] += 1 - noise_probability
    return law
