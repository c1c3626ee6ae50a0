"""Counts that change in pairs, one up and one down, as factors of a composition from above.

Where neighbours move as many counts up as down, with equal noise in both, one factor is the product of N + 1 against N
with N against N + 1: a pair of laws, not the larger of two profiles (docs/privacy.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shufflesum.privacy.add import cell
from shufflesum.privacy.add.oneway import listed
from shufflesum.privacy.engine.losses import GridLosses

__all__ = ["Paired"]


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
        losses = listed(self.trials, self.probability).losses
        return float(losses[-1] - losses[0]) if losses.size else self.deviation

    def losses(self, step: float, reach: float) -> GridLosses:
        """A pair on the grid that dominates one factor, and is its own mirror image."""
        rising = listed(self.trials, self.probability).on_grid(step)
        both = rising.times(rising.mirrored)
        balanced = np.maximum(both.balanced, both.balanced[::-1])  # equal, but for rounding
        return GridLosses(step, both.lowest, balanced, max(both.rising, both.falling), both.error)
