"""How far what is left in a hashed table moves the estimate of a candidate: the law over random hash functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum.estimate.base import Floats
from shufflesum.mechanisms.coins import binomial_ends

__all__ = ["ResidualLaw"]

_FINEST, _MOST_POINTS = 0.01, 1 << 20  # the grid: this part of a standard error, unless that were too many points


@dataclass(frozen=True, slots=True, eq=False)
class ResidualLaw:
    """The law of sum_s (R[s, b_s] - mean of row s), each b_s uniform and independent, on a grid.

    A candidate's buckets are uniform over the keys of the hash, so this is what others put into its cells: noise, light
    labels, and heavy ones that nobody named, whose rare collisions are no normal law at all.
    """

    values: Floats
    below: Floats  # P(sum <= value)
    above: Floats  # P(sum >= value)
    functions: int
    buckets: int
    even: float  # mean of all S cells of a word
    scale: float

    @staticmethod
    def of(residual: Floats, usual: NDArray[np.bool_], scale: float = 1.0) -> ResidualLaw:
        """Convolve the laws of all rows, of their usual cells only, times `scale`; some in each row must be.

        A value between two grid points is divided among them: the mean stays, the variance grows a little.
        """
        means = residual.mean(axis=1, keepdims=True)
        centred = np.where(usual, scale * (residual - means), 0.0)
        deviation = float(np.sqrt(centred.var(axis=1).sum()))
        low, high = (float(ends.sum()) for ends in (centred.min(axis=1), centred.max(axis=1)))
        # Sums far beyond are impossible, or need more collisions at once than any level asks about.
        width = min(high - low, 40 * deviation + 8 * float(centred.max() - centred.min()))
        step = max(_FINEST * deviation, width / (_MOST_POINTS // 2)) or 1.0
        points = 1 << int(np.ceil(np.log2(max(2 * width / step, 16))))
        transform = np.ones(points // 2 + 1, dtype=np.complex128)
        for row, cells in zip(centred / step, usual, strict=True):
            values = row[cells]
            floor = np.floor(values)
            place, part = floor.astype(np.int64), values - floor
            counts = np.bincount(place % points, 1 - part, points) + np.bincount((place + 1) % points, part, points)
            transform *= np.fft.rfft(counts / len(values))
        law = np.maximum(np.fft.fftshift(np.fft.irfft(transform, points)), 0)
        law /= law.sum()
        grid: Floats = (np.arange(points, dtype=np.float64) - points // 2) * step
        below, above = np.cumsum(law), np.cumsum(law[::-1])[::-1]
        functions, buckets = residual.shape
        return ResidualLaw(grid, below, above, functions, buckets, float(means.sum()), scale)

    def filled(self, tail: float) -> tuple[float, float]:
        """What the lower and the upper end of a count must be multiplied with, because the table holds the word itself.

        The law ought to be that of a table without the word's own c reports. A random choice of cells meets own cells
        of the word k times, with Binomial(S, 1/B), and then finds k c/S reports fewer; more than k times it does with
        at most this probability. So c - k c/S is at most what the law allows for, which for k = S says nothing; and c
        itself is at least that.
        """
        _, hits = binomial_ends(self.functions, 1 / self.buckets, tail)
        return 1 / self.scale, np.inf if hits == self.functions else 1 / (self.scale * (1 - hits / self.functions))

    def ends(self, tail: float) -> tuple[float, float]:
        """How far below and above its mean the sum lies with probability at most `tail`, each: both positive."""
        low = self.values[max(int(np.searchsorted(self.below, tail, side="right")) - 1, 0)]
        above = self.above[::-1]
        high = self.values[len(above) - 1 - max(int(np.searchsorted(above, tail, side="right")) - 1, 0)]
        return -float(low), float(high)
