"""Counts that all go the same way, as a pair of laws on a grid of losses: N + 1 against N, and powers of it.

The pair of laws is kept, not only its profile: pairs of both directions can then be multiplied. Mirrored, it is N
against N + 1. Every step dominates in both readings (docs/privacy.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shufflesum.privacy.engine.laws import ROUNDING, Floats, binomial_window, slack
from shufflesum.privacy.engine.losses import MOST_ERROR, ULP, heights_of

__all__ = ["OneWay", "Outcomes", "listed"]

_OUTSIDE = 1e-24  # probability that a window may leave out
_LARGEST_LOSS = 300.0  # above, P counts as infinite loss before exponentials overflow


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Losses of N + 1 against N, rising, with their balanced masses, and what P, and Q, have besides."""

    losses: Floats
    balanced: Floats
    rising: float
    falling: float

    def on_grid(self, step: float) -> OneWay:
        """Split each outcome between the grid's nodes below and above it, keeping P and Q: that dominates.

        A loss x between nodes x0 and x1 gives them sinh((x1 - x)/2) and sinh((x - x0)/2) of its balanced mass, over
        sinh(step/2). A loss that is known up to `doubt` gives both of them as much as it might; one that may lie above
        a node, though it seems to lie below, counts as lying there, which raises P.
        """
        losses, balanced = self.losses, self.balanced
        doubt = 16.0 * ROUNDING * (1.0 + np.abs(losses))
        nodes = np.floor((losses + doubt) / step)
        beyond = np.clip(losses - nodes * step, 0.0, step)
        unit = np.sinh(step / 2)
        above = balanced * (np.sinh(beyond / 2) + 2.0 * doubt) / unit
        below = balanced * (np.sinh((step - beyond) / 2) + 2.0 * doubt) / unit
        lowest = int(nodes.min()) if nodes.size else 0
        places = (nodes - lowest).astype(np.int64)
        size = int(places.max()) + 2 if nodes.size else 1
        masses = np.bincount(places, weights=below, minlength=size)
        masses += np.bincount(places + 1, weights=above, minlength=size)
        return OneWay(step, lowest, masses.astype(np.float64), self.rising, self.falling, ULP * 64)


def listed(trials: int, probability: float) -> Outcomes:
    """List the outcomes of one count with Binomial(trials, probability) noise."""
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    counts = lowest + np.arange(1, terms.size, dtype=np.float64)
    losses = np.log(counts * (1.0 - probability) / ((trials - counts + 1.0) * probability))
    more = 1.0 + slack(2 * terms.size)
    balanced = np.sqrt(terms[:-1] * terms[1:]) / total * more
    rising, falling = (min(1.0, float(end + tail) / total * more) for end in (terms[-1], terms[0]))
    return Outcomes(losses, balanced, rising, falling)


@dataclass(frozen=True, slots=True)
class OneWay:
    """Balanced masses at the losses step*(lowest + position); `rising` is what P has besides, `falling` what Q has.

    Masses may be too small by the relative `error`.
    """

    step: float
    lowest: int
    balanced: Floats
    rising: float
    falling: float
    error: float

    @property
    def mirrored(self) -> OneWay:
        """The same counts going the other way: P and Q change places."""
        lowest = 1 - self.lowest - self.balanced.size
        return OneWay(self.step, lowest, self.balanced[::-1], self.falling, self.rising, self.error)

    def times(self, other: OneWay) -> OneWay:
        """Multiply with a pair on the same grid."""
        terms = min(self.balanced.size, other.balanced.size)
        return OneWay(
            self.step,
            self.lowest + other.lowest,
            np.convolve(self.balanced, other.balanced),
            self.rising + other.rising * (1.0 - self.rising),  # totals are 1, or more by rounding
            self.falling + other.falling * (1.0 - self.falling),
            (self.error + other.error) * (1.0 + MOST_ERROR) + ULP * (terms + 8),
        )

    def trimmed(self, charge: float) -> OneWay:
        """Fold both ends inwards, at a cost of at most `charge` of delta for either: the excess counts as infinite.

        What lies above a node keeps its Q there, what lies below one keeps its P.
        """
        top = self._last(charge)
        bottom = self.balanced.size - 1 - self.mirrored._last(charge)
        if bottom >= top:
            return self
        losses = self._losses()
        above, below = self.balanced[top + 1 :], self.balanced[:bottom]
        up, down = losses[top + 1 :] - losses[top], losses[bottom] - losses[:bottom]
        balanced = self.balanced[bottom : top + 1].copy()
        balanced[-1] += float(np.sum(above * np.exp(-up / 2)))
        balanced[0] += float(np.sum(below * np.exp(-down / 2)))
        rest = float(np.sum(above * np.exp(losses[top + 1 :] / 2) * -np.expm1(-up)))
        left = float(np.sum(below * np.exp(-losses[:bottom] / 2) * -np.expm1(-down)))
        rising, falling = min(1.0, self.rising + rest), min(1.0, self.falling + left)
        return OneWay(self.step, self.lowest + bottom, balanced, rising, falling, self.error + self._rounding())

    def heights(self) -> Floats:
        """Bound H(e^epsilon) from above at the losses 0, step, 2 step, ... of the grid; after the last one it stays."""
        top = max(0, self.lowest + self.balanced.size - 1)
        losses = self.step * np.arange(top + 1, dtype=np.float64)
        masses = np.zeros(top + 1)
        kept = self.balanced[max(0, -self.lowest) :][: top + 1]
        masses[top + 1 - kept.size :] = kept
        heights = heights_of(self.step, losses, masses) + self.rising
        bounds: Floats = heights * (1.0 + self.error + 4.0 * self._rounding()) + 1e-300
        return bounds

    def _last(self, charge: float) -> int:
        """The lowest position above which P has no more than `charge`."""
        beyond = np.cumsum((self.balanced * np.exp(self._losses() / 2))[::-1])
        last = int(np.count_nonzero(beyond > charge)) - 1
        return min(last, int(_LARGEST_LOSS / self.step) - self.lowest)

    def _losses(self) -> Floats:
        return self.step * np.arange(self.lowest, self.lowest + self.balanced.size, dtype=np.float64)

    def _rounding(self) -> float:
        """Relative: of sums over all nodes, and of exponentials of losses, which are rounded themselves."""
        size = self.balanced.size
        return ULP * (size + 4.0 * self.step * max(abs(self.lowest), abs(self.lowest + size)) + 64.0)
