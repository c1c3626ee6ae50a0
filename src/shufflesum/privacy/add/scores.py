"""What several counts that all go up show at least: the sum of their scores, which are losses rounded to a grid.

Whoever looks at that sum alone sees less than the counts, so its profile is a lower bound; its laws in both worlds
are convolved apart. Single outcomes of a count with little noise lie far apart, and merging them costs much; sums lie
close to each other.
"""

from __future__ import annotations

import numpy as np

from shufflesum.privacy.engine.laws import Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import GridLosses, grid_of_bins

__all__ = ["losses_below"]

_OUTSIDE = 1e-24  # probability that a window may leave out
_DROPPED = 1e-20  # scores at the ends with no more of P than this are not looked at


def losses_below(trials: int, probability: float, counts: int, step: float) -> GridLosses:
    """Return a pair on the grid below that of N + 1 against N in so many counts."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    law = terms / (total + tail)
    error = slack(terms.size)
    scores = np.floor(np.log(law[:-1] / law[1:]) / step).astype(np.int64)
    scores -= scores.min()
    single = [np.bincount(scores, weights=masses).astype(np.float64) for masses in (law[:-1], law[1:])]
    full = float(law[-1]) if lowest + terms.size - 1 == trials else 0.0  # a count that gives itself away
    upper, lower, infinite = single[0], single[1], full
    for _ in range(counts - 1):
        upper, lower = _without_ends(np.convolve(upper, single[0]), np.convolve(lower, single[1]))
        infinite += full * (1.0 - infinite)
    error = counts * (error + slack(single[0].size))
    pair = grid_of_bins(upper, lower, step, error)
    return GridLosses(step, pair.lowest, pair.balanced, infinite * (1.0 - 2.0 * error), pair.error)


def _without_ends(upper: Floats, lower: Floats) -> tuple[Floats, Floats]:
    """Forget outcomes: that lowers any profile, by no more than P's mass there."""
    kept = np.flatnonzero(upper > _DROPPED)
    ends = slice(kept[0], kept[-1] + 1) if kept.size else slice(None)
    return upper[ends], lower[ends]
