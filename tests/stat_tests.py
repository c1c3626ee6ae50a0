"""Checks of observed against predicted chances. Each returns a p-value, to be compared with `FALSE_ALARM`."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2, norm

__all__ = ["FALSE_ALARM", "chi_square", "mean_is", "report_law"]

FALSE_ALARM = 1e-6
"""How often a statistical test may fail though all is well; with a seeded source it then fails always or never."""


def chi_square(observed: ArrayLike, probabilities: ArrayLike) -> float:
    """Pearson's test that counts come from cells of these probabilities; an impossible observation has p-value 0."""
    counts, chances = (np.asarray(a, dtype=np.float64).reshape(-1) for a in (observed, probabilities))
    assert math.isclose(chances.sum(), 1, rel_tol=1e-9)
    possible = chances > 0
    if counts[~possible].any():
        return 0.0
    expected = chances[possible] * counts.sum()
    assert expected.min() >= 5, "too few draws for the chi-square approximation"
    return float(chi2.sf(((counts[possible] - expected) ** 2 / expected).sum(), possible.sum() - 1))


def mean_is(samples: ArrayLike, expected: ArrayLike) -> float:
    """Normal test that many independent rows of samples have these means, column by column, all together."""
    rows = np.asarray(samples, dtype=np.float64)
    rows = rows.reshape(len(rows), -1)
    scores = (rows.mean(axis=0) - np.reshape(expected, -1)) / (rows.std(axis=0, ddof=1) / math.sqrt(len(rows)))
    if scores.size == 1:
        return float(2 * norm.sf(abs(scores.item())))
    return float(chi2.sf((scores**2).sum(), scores.size))


def report_law(x: float, levels: int, noise_probability: float) -> NDArray[np.float64]:
    """The probabilities of the values 0..levels in one report of x in [0, 1]: rounding, then randomized response."""
    law = np.zeros(levels + 1)
    below = min(math.floor(x * levels), levels - 1)
    law[below + 1] = x * levels - below
    law[below] = 1 - law[below + 1]
    law = (1 - noise_probability) * law + noise_probability / (levels + 1)
    return np.asarray(law / law.sum())
