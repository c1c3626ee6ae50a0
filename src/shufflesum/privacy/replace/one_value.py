"""The pair of worlds where all other users hold the value x of one of the two: a lower bound, exact for K = 2.

Relative to world x, world x' weighs 1 + ((R - 1) b - (1 - r) h)/users with b ~ Bin(users, gamma/K) reports of x',
h of x, r = (gamma/K)/(1 - gamma + gamma/K) and R = 1/r. The divergence is taken in both directions.
"""

from __future__ import annotations

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack

__all__ = ["one_value_lower"]

_OUTSIDE = 1e-21
_ALLOWANCE = 32.0 * ROUNDING
# up to here the third count is summed over, too; it costs about the product of both windows
_MOST_HITS = 300.0
_MOST_NOISE = 20_000.0
_LARGEST_EPSILON = 600.0  # beyond, e^epsilon leaves double precision; the bound there is 0


def one_value_lower(users: int, cells: int, gamma: float, epsilons: Floats) -> Floats:
    """Bound delta at these epsilons from below by the larger of both directions."""
    growths = np.exp(np.minimum(epsilons, _LARGEST_EPSILON))
    if cells > 2 and users * gamma / cells < _MOST_HITS and users * gamma < _MOST_NOISE:
        down, up, steps = _sum_over_both(users, cells, gamma, growths)
    else:
        down, up, steps = _sum_over_hits(users, cells, gamma, growths)
    bounded = np.maximum(np.maximum(down, up) * (1.0 - slack(4 * steps)), 0.0)
    return np.where(epsilons > _LARGEST_EPSILON, 0.0, bounded)


@kernel
def _means(lowest: int, probabilities: Floats) -> tuple[Floats, Floats]:
    """Return E(j - b)+ and E(b - j)+ at j = lowest, lowest + 1, ..., one past the last index of the window."""
    size = probabilities.size
    falling = np.zeros(size + 1)
    rising = np.zeros(size + 1)
    mass = 0.0
    for i in range(size):
        mass += probabilities[i]
        falling[i + 1] = falling[i] + mass
    mass = 0.0
    for i in range(size - 1, -1, -1):
        rising[i] = rising[i + 1] + mass
        mass += probabilities[i]
    return falling, rising


@kernel
def _below(position: float, falling: Floats, mass: float) -> float:
    """Read E(position - b)+, which is linear between integers and from the last one on."""
    last = falling.size - 1
    if position <= 0.0:
        return 0.0
    if position >= last:
        return float(falling[last] + (position - last) * mass)
    i = int(position)
    return float((1.0 - (position - i)) * falling[i] + (position - i) * falling[i + 1])


@kernel
def _above(position: float, rising: Floats, mass: float) -> float:
    """Read E(b - position)+, which is linear between integers and up to the first one."""
    if position <= 0.0:
        return float(rising[0] - position * mass)
    if position >= rising.size - 1:
        return 0.0
    i = int(position)
    return float((1.0 - (position - i)) * rising[i] + (position - i) * rising[i + 1])


@kernel
def _sum_over_hits(users: int, cells: int, gamma: float, growths: Floats) -> tuple[Floats, Floats, int]:
    """Sum over b with h at its mean given b (Jensen; for K = 2 there is nothing to replace).

    World x' then weighs u0 + u1 b, with u0 = gamma(1 - 1/K)/(1 - gamma/K) and
    u1 users = (R - 1) + (1 - gamma)/(1 - gamma/K), so both directions are a mean of (j - b)+ or (b - j)+.
    """
    lowest, terms, total, tail = binomial_window(users, gamma / cells, gamma / (cells - gamma), _OUTSIDE)
    probabilities = terms / (total + tail)
    mass = np.sum(probabilities)
    falling, rising = _means(lowest, probabilities)
    u0 = gamma * (cells - 1) / (cells - gamma)
    u1 = ((1.0 - gamma) * cells / gamma + (1.0 - gamma) * cells / (cells - gamma)) / users
    down = np.zeros(growths.size)
    up = np.zeros(growths.size)
    for e in range(growths.size):
        w = growths[e]
        # rounding moves the thresholds so that the sums only shrink
        j = (1.0 - w * u0 - _ALLOWANCE * (1.0 + w * u0)) / (w * u1)
        down[e] = w * u1 * _below(j - lowest - _ALLOWANCE * (abs(j) + lowest), falling, mass)
        j = (w - u0 + _ALLOWANCE * w) / u1
        up[e] = u1 * _above(j - lowest + _ALLOWANCE * (abs(j) + lowest), rising, mass)
    return down, up, terms.size


@kernel
def _sum_over_both(users: int, cells: int, gamma: float, growths: Floats) -> tuple[Floats, Floats, int]:
    """Sum over b and over o, the reports that are neither x nor x': o given b is binomial.

    World x' weighs v + s o with v = (r(users - b) + R b)/users and s = (1 - r)/users.
    """
    lowest, terms, total, tail = binomial_window(users, gamma / cells, gamma / (cells - gamma), _OUTSIDE)
    stay = 1.0 - gamma + gamma / cells
    r = gamma / cells / stay
    slope = (1.0 - gamma) / stay / users
    probability = gamma * (cells - 2) / (cells - gamma)
    odds = gamma * (cells - 2) / cells / stay
    down = np.zeros(growths.size)
    up = np.zeros(growths.size)
    longest = 0
    for i in range(terms.size):
        b = lowest + i
        weight = terms[i] / (total + tail)
        first, inner, inner_total, inner_tail = binomial_window(users - b, probability, odds, _OUTSIDE)
        longest = max(longest, inner.size)
        probabilities = inner / (inner_total + inner_tail)
        mass = np.sum(probabilities)
        falling, rising = _means(first, probabilities)
        v = (r * (users - b) + b / r) / users
        for e in range(growths.size):
            w = growths[e]
            j = (1.0 - w * v - _ALLOWANCE * (1.0 + w * v)) / (w * slope)
            if j > 0.0:
                down[e] += weight * w * slope * _below(j - first - _ALLOWANCE * (j + first), falling, mass)
            j = (w - v + _ALLOWANCE * (w + v)) / slope
            up[e] += weight * slope * _above(j - first + _ALLOWANCE * (abs(j) + first), rising, mass)
    return down, up, terms.size + longest
