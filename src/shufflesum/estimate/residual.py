"""How far what is left in a hashed table moves the estimate of a candidate: the law over random hash functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum.estimate.base import Floats

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

    @staticmethod
    def of(residual: Floats, usual: NDArray[np.bool_]) -> ResidualLaw:
        """Convolve the laws of all rows, of their usual cells only; some in each row must be.

        A value between two grid points is divided among them: the mean stays, the variance grows a little.
        """
        centred = np.where(usual, residual - residual.mean(axis=1, keepdims=True), 0.0)
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
        return ResidualLaw(grid, np.cumsum(law), np.cumsum(law[::-1])[::-1])

    def ends(self, tail: float) -> tuple[float, float]:
        """How far below and above its mean the sum lies with probability at most `tail`, each: both positive."""
        low = self.values[max(int(np.searchsorted(self.below, tail, side="right")) - 1, 0)]
        above = self.above[::-1]
        high = self.values[len(above) - 1 - max(int(np.searchsorted(above, tail, side="right")) - 1, 0)]
        return -float(low), float(high)
