"""The privacy of one noisy count: N + 1 against N, and N against N + 1, for N ~ Binomial(trials, probability).

Mirroring N to trials - N turns one direction into the other, with 1 - probability: one computation serves both. The
likelihood ratio at y, w_y = y (1 - p)/((M - y + 1) p), rises with y, so the profile H(w) of N + 1 against N is a
polygon with its vertices at the w_y and slope -P[N >= y + 1] between w_y and w_(y+1). Its heights are summed up from
the top, where all terms are positive:
    H(w_y) = H(w_(y+1)) + (w_(y+1) - w_y) P[N >= y + 1],     w_(y+1) - w_y = (1 - p)/p (M + 1)/((M - y)(M - y + 1)).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import GridLosses, grid_of_atoms

__all__ = ["deviation", "highest_loss", "infinite_loss", "losses_below", "profile_upper"]

_OUTSIDE = 1e-24  # probability that a window may leave out
_LARGEST_LOSS = 300.0  # beyond, the profile counts as it is there


def deviation(trials: int, probability: float) -> float:
    """Return roughly the standard deviation of the loss: it sets grids, never bounds."""
    return 1.0 / math.sqrt(max(1.0, trials * probability * (1.0 - probability)))


def highest_loss(trials: int, probability: float) -> float:
    """Return a loss above every finite one of both directions: log w_M, at p or at 1 - p."""
    odds = probability / (1.0 - probability)
    return math.log(trials) + abs(math.log(odds)) + 1e-9


def infinite_loss(trials: int, probability: float) -> float:
    """Return an upper bound of the chance that a count gives itself away: all trials missed, or all hit."""
    missed, hit = trials * math.log1p(-probability), trials * math.log(probability)
    return math.exp(max(missed, hit)) * (1.0 + 1e-12) + 1e-300


def profile_upper(trials: int, probability: float, epsilons: Floats) -> Floats:
    """Bound, at ascending epsilons, the larger of the profiles of N + 1 against N and of N against N + 1."""
    up, down = (_profile(trials, chance, epsilons) for chance in (probability, 1.0 - probability))
    return np.minimum(np.maximum(up, down), 1.0)


def _profile(trials: int, probability: float, epsilons: Floats) -> Floats:
    """Bound the profile of N + 1 against N from above: every tail and rounding is added."""
    odds = probability / (1.0 - probability)
    lowest, terms, total, tail = binomial_window(trials, probability, odds, _OUTSIDE)
    weights = np.exp(np.minimum(epsilons, _LARGEST_LOSS))
    heights = _heights(trials, odds, lowest, terms, tail, weights)
    bounds: Floats = heights / total * (1.0 + slack(2 * terms.size)) + 1e-300
    return bounds


@kernel
def _heights(trials: int, odds: float, lowest: int, terms: Floats, tail: float, weights: Floats) -> Floats:
    """H at ascending weights, times the terms' total; `tail` bounds what lies outside the window.

    A polygon is the largest of the lines it is made of: where rounding picks a neighbouring one, the largest of
    three is still right.
    """
    size = terms.size
    last = size - 1
    above = np.empty(size)  # P[N >= y]
    height = np.empty(size)  # H(w_y)
    # Beyond the last vertex H falls no further than to P's mass there, all of which is counted.
    above[last] = terms[last] + tail
    height[last] = terms[last] + tail
    for i in range(last - 1, -1, -1):
        y = lowest + i
        rise = (trials + 1.0) / (float(trials - y) * float(trials - y + 1)) / odds
        height[i] = height[i + 1] + rise * above[i + 1]
        above[i] = above[i + 1] + terms[i]
    out = np.empty(weights.size)
    for e in range(weights.size):
        w = weights[e]
        place = w * odds * ((trials + 1.0) / (1.0 + w * odds)) - lowest
        near = int(min(max(place, 0.0), float(last)))
        best = height[last]
        for i in range(max(near - 1, 0), min(near + 3, size)):
            y = lowest + i
            vertex = float(y) / (float(trials - y + 1) * odds)
            best = max(best, height[i] + (vertex - w + 16.0 * ROUNDING * w) * above[i])
        out[e] = best
    return out


def losses_below(trials: int, probability: float, step: float) -> GridLosses:
    """Return a pair on the grid below that of N + 1 against N."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    law = terms / (total + tail)
    error = slack(terms.size)
    pair = grid_of_atoms(law[:-1], law[1:], step, error)
    reaches_the_end = lowest + terms.size - 1 == trials
    return replace(pair, infinite=float(law[-1]) * (1.0 - 2.0 * error)) if reaches_the_end else pair
