"""The two counts in which neighbours differ, when noise falls into cells from slots.

Of T slots S ~ Binomial(T, 2 chance/K) hit one of the two cells, evenly split; the victim adds one. With s = S + 1
reports in both cells, a of them in its own and b in the other, the worlds weigh (2/s) a and (2/s) b relative to a fair
split of s, so that with w = e^eps
    delta(eps) = sum over s >= 1 of P[S = s - 1] (2/s) E(a - w b)+,   a ~ Binomial(s, 1/2).
Nothing else tells the worlds apart (docs/privacy.md), so this is exact, for every data set. It falls in T and in the
chance. For K = 1 there is nothing to tell apart.
"""

from __future__ import annotations

import math

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import Floats, Integers, binomial_window, slack
from shufflesum.privacy.engine.losses import BINS, GridLosses, grid_of_bins
from shufflesum.privacy.engine.mixture import Mixture, cell_edges

__all__ = ["deviation", "highest_loss", "infinite_loss", "losses_below", "mixture"]

_OUTSIDE = 1e-24  # probability that a window may leave out
_CELL = 5e-5  # width of a cell of s relative to s; about that much is lost in noise
_COARSE_CELL = 5e-4  # the same in compositions from below; half of it is lost in noise
_MOST_BINS = 1 << 18  # on either side; atoms beyond share the last one


def deviation(trials: int, chance: float, cells: int) -> float:
    """Return roughly the standard deviation of the loss: it sets grids, never bounds."""
    return min(1.0, math.sqrt(2.0 * cells / (trials * chance)))


def highest_loss(trials: int) -> float:
    """Return a loss above every finite one: log(a/b) with a <= T and b >= 1."""
    return math.log(trials) + 1e-9


def infinite_loss(trials: int, chance: float, cells: int) -> float:
    """Return an upper bound of the chance that a cell has no noise, (1 - chance/K)^T: the loss is infinite then."""
    return math.exp(trials * math.log1p(-chance / cells)) * (1.0 + 1e-12) + 1e-300


def _hits(trials: int, chance: float, cells: int, *, upper: bool) -> tuple[int, Floats, float, float]:
    """The law of S as a window; the odds of a hit are rounded to the safe side: down for an upper bound."""
    hit = 2.0 * chance
    if hit == cells:
        return trials, np.ones(1), 1.0, 0.0
    # K - 2 chance and the quotient are rounded once each
    odds = hit / (cells - hit) * (1.0 - 2.0**-50 if upper else 1.0 + 2.0**-50)
    return binomial_window(trials, hit / cells, odds, _OUTSIDE)


def mixture(trials: int, chance: float, cells: int, *, upper: bool) -> Mixture:
    """Lay out the sum for K >= 2 cells, above or below; a world outside the window counts 1 at most."""
    lowest, terms, total, tail = _hits(trials, chance, cells, upper=upper)
    edges = cell_edges(lowest + 1, terms.size, _CELL)
    sizes = lowest + 1 + np.arange(terms.size, dtype=np.int64)
    weights = 2.0 * terms / (total if upper else total + tail) / sizes
    least, greatest = sizes[edges[:-1]], sizes[edges[1:] - 1]
    return Mixture(
        factor=1.0,
        sizes=greatest if upper else least,
        drifts=least if upper else greatest,
        first_nodes=np.arange(edges.size, dtype=np.int64),
        shifts=np.zeros(edges.size - 1),
        weights=np.add.reduceat(weights, edges[:-1]),
        outside=tail / total,
        steps=terms.size,
    )


def losses_below(trials: int, chance: float, cells: int, step: float) -> GridLosses:
    """Return a pair on the grid below that of the two worlds.

    Where s is large the adversary keeps a random s0 of the s reports, s0 being the least of a cell of s, and forgets
    the rest and s: then a' ~ Binomial(s0, 1/2), and a becomes its mean a' + (s - s0)/2. That is post-processing.
    """
    lowest, terms, total, tail = _hits(trials, chance, cells, upper=False)
    edges = cell_edges(lowest + 1, terms.size, _COARSE_CELL)
    fine = step / BINS
    reach = min(math.ceil(highest_loss(trials) / fine) + 2, _MOST_BINS)
    upper, lower, infinite, longest = _bins(lowest + 1, terms / (total + tail), edges, fine, reach)
    error = slack(terms.size + longest)
    pair = grid_of_bins(upper, lower, step, error)
    return GridLosses(pair.step, pair.lowest, pair.balanced, infinite * (1.0 - 2.0 * error), pair.error)


@kernel
def _bins(first: int, masses: Floats, edges: Integers, fine: float, reach: int) -> tuple[Floats, Floats, float, int]:
    upper = np.zeros(2 * reach + 1)
    lower = np.zeros(2 * reach + 1)
    infinite = 0.0
    longest = 0
    for cell in range(edges.size - 1):
        kept = first + edges[cell]
        slope = 0.0
        base = 0.0
        mass = 0.0
        for i in range(edges[cell], edges[cell + 1]):
            mass += masses[i]
            slope += 2.0 * masses[i] / (first + i)
            base += masses[i] * (first + i - kept) / (first + i)
        if mass < 1e-290:
            continue
        lowest, terms, total, tail = binomial_window(kept, 0.5, 1.0, min(1e-3, _OUTSIDE / mass))
        longest = max(longest, terms.size)
        for j in range(terms.size):
            a = lowest + j
            share = terms[j] / (total + tail)
            p = share * (slope * a + base)
            q = share * (slope * (kept - a) + base)
            if q <= 0.0:
                infinite += p
            elif p > 0.0:
                index = min(max(int(np.floor(np.log(p / q) / fine)) + reach, 0), 2 * reach)
                upper[index] += p
                lower[index] += q
    return upper, lower, infinite, longest
