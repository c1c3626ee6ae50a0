"""Concrete pairs of neighbouring data sets as pairs of measures on a grid of losses: what composition cannot beat."""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import BINS, GridLosses, grid_of_bins

__all__ = ["third_value_losses"]

_OUTSIDE = 1e-24  # probability that a window may leave out; dropping outcomes lowers the profile
_CELL = 5e-4  # width of a cell of s relative to s; half of that is lost in noise probability
_MOST_BINS = 1 << 18  # on either side, 100 deviations or more; atoms beyond share the last one


def third_value_losses(honest_users: int, cells: int, noise_probability: float, step: float) -> GridLosses:
    """Return a pair below that of x against x' when all others hold a third value v (K >= 3, gamma < 1).

    Relative to n reports of v, the worlds weigh (beta a + N + r(n - N))/n, and the same with b, where a and b
    reports are x and x', N are not v, beta = (1 - gamma)K/gamma and r = (gamma/K)/(1 - gamma + gamma/K). The
    adversary looks at s = a + b ~ Bin(n, 2 gamma/K) and a only, which replaces N by its mean given s; and where s
    is large, keeps a random s0 of the s reports, s0 being the least of a cell of s, and forgets the rest: then
    a' ~ Bin(s0, 1/2) and a becomes its mean a' + (s - s0)/2. All of that is post-processing.
    """
    gamma = noise_probability
    lowest, terms, total, tail = binomial_window(
        honest_users, 2.0 * gamma / cells, 2.0 * gamma / (cells - 2.0 * gamma), _OUTSIDE
    )
    fine = step / BINS
    reach = min(math.ceil(math.log1p((1.0 - gamma) * cells / gamma) / fine) + 2, _MOST_BINS)
    upper, lower, longest = _third_value_bins(honest_users, cells, gamma, lowest, terms / (total + tail), fine, reach)
    return grid_of_bins(upper, lower, step, slack(terms.size + longest))


@kernel
def _third_value_bins(
    users: int, cells: int, gamma: float, first: int, masses: Floats, fine: float, reach: int
) -> tuple[Floats, Floats, int]:
    beta = (1.0 - gamma) * cells / gamma
    r = gamma / (cells * (1.0 - gamma) + gamma)
    others = gamma * (cells - 3) / (cells - 2.0 * gamma)  # chance that a report outside x, x' is not v
    upper = np.zeros(2 * reach + 1)
    lower = np.zeros(2 * reach + 1)
    longest = 0
    i = 0
    while i < masses.size:
        kept = first + i
        stop = min(masses.size, i + max(1, int(_CELL * kept)))
        mass = 0.0
        mean = 0.0
        for j in range(i, stop):
            mass += masses[j]
            mean += masses[j] * (first + j)
        i = stop
        if mass < 1e-290:
            continue
        mean /= mass
        outside = mean + (users - mean) * others
        base = beta * 0.5 * (mean - kept) + outside * (1.0 - r) + r * users
        lowest, terms, total, tail = binomial_window(kept, 0.5, 1.0, min(1e-3, _OUTSIDE / mass))
        longest = max(longest, terms.size)
        scale = mass / (total + tail) / users
        for j in range(terms.size):
            a = lowest + j
            p = beta * a + base
            q = beta * (kept - a) + base
            index = min(max(int(np.floor(np.log(p / q) / fine)) + reach, 0), 2 * reach)
            upper[index] += scale * terms[j] * p
            lower[index] += scale * terms[j] * q
    return upper, lower, longest
