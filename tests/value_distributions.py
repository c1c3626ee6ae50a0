"""Six laws that users' numbers may follow, and how often an interval may miss."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

Law = Callable[[np.random.Generator, int], NDArray[np.float64]]


def _mixed(rng: np.random.Generator, users: int) -> NDArray[np.float64]:
    return np.where(rng.random(users) < 0.5, rng.normal(-3, 0.2, users), rng.normal(40, 2, users))


def _with_outliers(rng: np.random.Generator, users: int) -> NDArray[np.float64]:
    return np.where(rng.random(users) < 0.01, 1e9, rng.normal(170, 10, users))


SIX_LAWS: dict[str, Law] = {
    "skewed": lambda rng, users: rng.lognormal(3, 1, users),
    "heavy-tailed": lambda rng, users: rng.standard_cauchy(users),
    "discrete": lambda rng, users: rng.integers(0, 6, users).astype(np.float64),
    "bimodal": _mixed,
    "constant": lambda rng, users: np.full(users, 42.0),
    "with outliers": _with_outliers,
}


def true_quantile(values: NDArray[np.float64], q: float) -> float:
    """The least value that a part q of all does not exceed."""
    return float(np.quantile(values, q, method="inverted_cdf"))


def too_many_misses(trials: int, level: float, false_alarm: float = 1e-6) -> int:
    """A number of misses that intervals of this level reach with at most this chance."""
    return int(binom.isf(false_alarm, trials, 1 - level)) + 1
