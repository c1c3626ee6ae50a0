"""What an audit looks at in noisy sums: what one process adds to sums that are known.

Batches of users who hold a bound, or the middle, have exact sums. What is left in each coordinate must follow the
distribution of the plan's noise: of whole steps, and below a step. So missing, halved or other noise shows, and a draw
that is used again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.encodings import Residues
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import ExpectedCounts
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy.noise_distribution import half_law

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_sums.mechanism import NoisySums

_BINS = 24  # of about the same chance each
_FAR_OUT = 32.0  # what is found is rarer than e to the minus this, shared out among all that is counted
_LOW_BINS = 16  # of what lies below a step


@dataclass(frozen=True)
class NoisySumsDraws(auditing.DrawnNoise):
    """Rows whose sums are known, and what must be left of them."""

    mechanism: NoisySums
    encoding: Residues
    held: auditing.Held

    @cached_property
    def rows(self) -> tuple[tuple[Any, CountTable], ...]:
        """Rows, and what one user who holds them adds to each sum."""
        size, levels = self.encoding.dimension, self.mechanism.levels
        scale = self.encoding.scale
        if scale is not None:
            ends = ((scale.lower, 0), (scale.lower + scale.width, levels))
            return tuple((self.held.example(values=row), np.full(size, whole)) for row, whole in ends)
        norm, middle = self.encoding.clipping_norm, self.mechanism.largest(self.encoding)
        assert norm is not None  # what has no bounds has a norm
        axis = np.zeros(size)
        axis[0] = norm
        sums = (np.full(size, middle), middle + np.rint(axis / norm * levels).astype(np.int64))
        return tuple((self.held.example(values=row), whole) for row, whole in zip((0 * axis, axis), sums, strict=True))

    def counts(self, name: str, noise: CountTable) -> list[ExpectedCounts]:
        """How often noise, (draws, coordinates), is in each of the bins, and how often two draws are alike."""
        whole, below = np.divmod(noise, self.mechanism.step)
        edges, chances = self._bins
        seen = np.bincount(np.searchsorted(edges, whole.reshape(-1), side="right"), minlength=len(chances))
        found = [ExpectedCounts(f"{name}: noise in part {{}} of its distribution", seen, noise.size, chances)]
        if self.mechanism.step >= _LOW_BINS:
            seen = np.bincount((below // (self.mechanism.step // _LOW_BINS)).reshape(-1), minlength=_LOW_BINS)
            low = np.full(_LOW_BINS, 1 / _LOW_BINS)
            found.append(ExpectedCounts(f"{name}: noise below a step, in part {{}}", seen, noise.size, low))
        pairs = [(noise[:-1:2], noise[1::2], "in two batches"), (noise[:, :-1:2], noise[:, 1::2], "of neighbours")]
        for one, other, which in pairs:
            if one.size:
                alike = np.array([np.count_nonzero(one[: len(other)] == other[: len(one)])])
                what = f"{name}: the same noise {which}"
                found.append(ExpectedCounts(what, alike, min(one.size, other.size), np.array([self._alike])))
        return found

    def less_noise(self, draws: int) -> float | None:
        """By the lowest bin, whose count falls: as far as its threshold and five deviations more."""
        edges, chances = self._bins
        law = self._law
        middle, chance = (len(law) - 1) / 2, float(chances[0])
        needed = (math.sqrt(2.0 * _FAR_OUT) + 5.0) * math.sqrt(chance / draws)
        for part in np.arange(1, 100) / 100:
            left = float(law[: max(0, math.ceil(middle - (middle - edges[0] + 1) / (1 - part)))].sum())
            if chance - left >= needed:
                return float(part)
        return None

    @cached_property
    def _law(self) -> Floats:
        """Of whole steps: the table's, or that of two, to the precision of floating point."""
        laws = [np.concatenate([half[:0:-1], half]) for half in map(half_law, self.mechanism.noise)]
        if len(laws) == 1:
            return laws[0]
        stride = self.mechanism.stride
        law = np.zeros(len(laws[0]) + stride * (len(laws[1]) - 1))
        for place, chance in enumerate(laws[1]):
            law[stride * place : stride * place + len(laws[0])] += chance * laws[0]
        return law

    @cached_property
    def _bins(self) -> tuple[NDArray[np.int64], Floats]:
        """The first whole step of each bin but the lowest, and the chances of all."""
        law = self._law
        below = np.cumsum(law)
        wanted = np.arange(1, _BINS) / _BINS
        edges = np.unique(np.searchsorted(below, wanted) + 1)
        chances = np.diff(np.concatenate([[0.0], below[edges - 1], [1.0]]))
        return edges.astype(np.int64), np.clip(chances, 0.0, 1.0)

    @cached_property
    def _alike(self) -> float:
        """How likely two independent draws are the same."""
        return float(self._law @ self._law) / self.mechanism.step

    def score(self, table: CountTable) -> float:
        """The sums along the way from the first row to the second, none of which counts for too much."""
        (_, first), (_, second) = self.rows
        levels = self.mechanism.levels
        left = np.clip((table - first - self.mechanism.noise_mean) / levels, -64.0, 64.0)
        return float((second - first) @ left) / levels
