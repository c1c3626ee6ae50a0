"""Counts that change in pairs, one up and one down, as factors of a composition from above.

Where neighbours move as many counts up as down, with equal noise in both, one factor is the product of N + 1 against N
with N against N + 1: a pair of laws, not the larger of two profiles. All its outcomes are listed, and split between
the nodes of a grid (docs/privacy.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shufflesum.privacy.add import cell
from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import ULP, GridLosses

__all__ = ["Paired"]

_OUTSIDE = 1e-24  # probability that a window may leave out


@dataclass(frozen=True, slots=True)
class Paired:
    """So many pairs of counts with Binomial(trials, probability) noise each, in place of a `Factor`."""

    trials: int
    probability: float
    copies: int

    @property
    def deviation(self) -> float:
        """Roughly the deviation of the loss of one count, or less: it sets the grid."""
        # few outcomes are not smooth: a finer grid then keeps more of them apart
        return cell.deviation(self.trials, self.probability) / min(8.0, max(1.0, 64.0 / self.copies))

    @property
    def highest(self) -> float:
        """No finite loss of a pair is larger."""
        return 2.0 * cell.highest_loss(self.trials, self.probability)

    @property
    def reach(self) -> float:
        """How far out losses are listed."""
        losses = self._window()[0]
        return float(losses[-1] - losses[0]) if losses.size else self.deviation

    def losses(self, step: float, reach: float) -> GridLosses:
        """A pair on the grid that dominates one factor, and is its own mirror image."""
        losses, balanced, rising, falling = self._window()
        masses = _split(losses, balanced, step)
        joint = np.convolve(masses, masses[::-1])  # the losses of the other count are the same, with the other sign
        infinite = min(1.0, rising + falling * (1.0 - rising))
        error = ULP * (masses.size + 64)
        return GridLosses(step, 1 - masses.size, np.maximum(joint, joint[::-1]), infinite, error)

    def _window(self) -> tuple[Floats, Floats, float, float]:
        """Losses of N + 1 against N with their balanced masses, and what P, and Q, have besides."""
        trials, probability = self.trials, self.probability
        lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
        counts = lowest + np.arange(1, terms.size, dtype=np.float64)
        losses = np.log(counts * (1.0 - probability) / ((trials - counts + 1.0) * probability))
        more = 1.0 + slack(2 * terms.size)
        balanced = np.sqrt(terms[:-1] * terms[1:]) / total * more
        rising, falling = (float(end + tail) / total * more for end in (terms[-1], terms[0]))
        return losses, balanced, rising, falling


def _split(losses: Floats, balanced: Floats, step: float) -> Floats:
    """Split each outcome between the grid's nodes below and above it, keeping P and Q: that dominates. From the lowest.

    A loss x between nodes x0 and x1 gives them sinh((x1 - x)/2) and sinh((x - x0)/2) of its balanced mass, over
    sinh(step/2). A loss that is known up to `doubt` gives both of them as much as it might; one that may lie above a
    node, though it seems to lie below, counts as lying there, which raises P.
    """
    doubt = 16.0 * ROUNDING * (1.0 + np.abs(losses))
    nodes = np.floor((losses + doubt) / step)
    beyond = np.clip(losses - nodes * step, 0.0, step)
    unit = np.sinh(step / 2)
    above = balanced * (np.sinh(beyond / 2) + 2.0 * doubt) / unit
    below = balanced * (np.sinh((step - beyond) / 2) + 2.0 * doubt) / unit
    lowest = int(nodes.min()) if nodes.size else 0
    places = (nodes - lowest).astype(np.int64)
    size = int(places.max()) + 2 if nodes.size else 1
    masses = np.bincount(places, weights=below, minlength=size) + np.bincount(places + 1, weights=above, minlength=size)
    return masses.astype(np.float64)
