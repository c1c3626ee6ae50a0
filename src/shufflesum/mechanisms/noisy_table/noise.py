"""The distribution of noise in one cell, in several cells, and in weighted sums of cells: exact tails for intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from shufflesum.mechanisms.frequencies import Window, quantile, reach
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy.noise_distribution import NoiseDistribution, half_law

_ROUNDING = 1e-12  # of all chances together that a Fourier transform gave
_WINDOW = 1e-3  # of a tail, that may lie outside what is listed
_POINTS = 1 << 16  # of the grid for weighted sums
_EXACT = 64  # different weights that are convolved; of more, the smallest count as nearly normal
_TILTS = np.geomspace(1e-3, 30.0, 48)  # in units of one over the deviation


@dataclass(frozen=True)
class TableNoise:
    """So many independent draws of a distribution in each cell, independent from cell to cell: 2 if servers draw."""

    distribution: NoiseDistribution
    draws: int

    @property
    def mean(self) -> float:
        """Of one cell: a whole number."""
        return float(self.draws * self.distribution.half_length)

    @cached_property
    def variance(self) -> float:
        """Of one cell."""
        return self.draws * self.distribution.variance

    @property
    def third(self) -> float:
        """It is symmetric."""
        return 0.0

    @cached_property
    def fourth(self) -> float:
        """The fourth cumulant of one cell."""
        half, squares = half_law(self.distribution), np.arange(self.distribution.half_length + 1.0) ** 2
        return self.draws * (2 * float(half @ squares**2) - 3 * self.distribution.variance**2)

    def law(self, cells: int) -> SummedDraws:
        """Of several cells together."""
        return SummedDraws(self.distribution, cells * self.draws)

    def variance_of(self, weights: Floats) -> float:
        """Cells are independent."""
        return float(weights @ weights) * self.variance

    def ends_of_sum(self, weights: Floats, counts: CountTable, tail: float) -> tuple[float, float] | None:
        """Of any sum in which cells count alike, or not at all, whichever way they count."""
        counted = np.flatnonzero(weights)
        sizes = np.abs(weights[counted])
        if not len(counted) or not (sizes == sizes[0]).all():
            return None
        law = self.law(len(counted))
        off = float(sizes[0]) * law.reach(tail)
        found = float(weights @ counts) - self.mean * float(weights.sum())
        return found - off, found + off

    def reach(self, weights: Floats, users_variance: float, report: float, tail: float) -> float:
        """Draws by their distribution, users as if they were normal, up to skewness."""
        z = quantile(tail)
        if users_variance > 0 and z > 0:
            users_variance = max(users_variance, (reach(users_variance, report, tail) / z) ** 2)
        return weighted_reach([Draws(self.distribution, self.draws, weights)], users_variance, tail)

    def chance(self, counts: CountTable, users: int, frequency: Floats, mean: Floats, sign: float) -> Floats:
        """Chernoff's bound: users are coins, and the cumulants of a draw are known."""
        tilts = _TILTS / math.sqrt(self.variance + 1.0)
        noise = self.draws * cumulant_generator(self.distribution, tilts)
        far = np.abs(counts - mean)[:, None]
        with np.errstate(over="ignore"):
            drawn = users * (np.log1p(frequency[:, None] * np.expm1(-sign * tilts)) + sign * tilts * frequency[:, None])
            bound = (drawn + noise - tilts * far).min(axis=1)
        return np.where(sign * (mean - counts) > 0, np.minimum(bound, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class SummedDraws:
    """The sum of so many independent draws."""

    distribution: NoiseDistribution
    draws: int

    @property
    def variance(self) -> float:
        """Of the sum."""
        return self.draws * self.distribution.variance

    def window(self, tail: float) -> Window:
        """Around the middle, as far as all but a small part of the tail reaches."""
        listed, outside = _summed(self.distribution, self.draws, math.floor(math.log10(max(_WINDOW * tail, 1e-290))))
        return Window(self.draws * self.distribution.half_length - len(listed) // 2, listed, outside)

    def reach(self, tail: float) -> int:
        """How far above its mean it lies with at most this chance, and as far below."""
        listed, outside = _summed(self.distribution, self.draws, math.floor(math.log10(max(_WINDOW * tail, 1e-290))))
        beyond = np.cumsum(listed[::-1]) + outside  # of the last, of the last two, ...
        return len(listed) // 2 - int(np.searchsorted(beyond, tail, side="right"))


class Draws(NamedTuple):
    """So many draws of a distribution for each weight that they are multiplied with."""

    distribution: NoiseDistribution
    draws: int
    weights: Floats


def weighted_reach(parts: Iterable[Draws], normal_variance: float, tail: float) -> float:
    """How far a weighted sum of draws lies from its mean, and above it, with at most this chance.

    A normal part of this variance is added. Distributions are put on a grid: a value between two points is divided
    among them, so the mean stays and the variance grows a little.
    """
    sizes = [(part.distribution, part.draws, *found) for part in parts for found in _sizes(part.weights)]
    sizes = sorted(sizes, key=lambda one: -one[2] * math.sqrt(one[0].variance))
    variance = normal_variance + sum(draws * many * size**2 * noise.variance for noise, draws, size, many in sizes)
    if variance == 0:
        return 0.0
    normal_variance += sum(draws * many * size**2 * noise.variance for noise, draws, size, many in sizes[_EXACT:])
    sizes = sizes[:_EXACT]
    farthest = max((size * noise.half_length for noise, _, size, _ in sizes), default=0.0)
    step = 2 * (12 * math.sqrt(variance) + farthest) / _POINTS
    transform = np.exp(-normal_variance * (2 * math.pi * np.arange(_POINTS // 2 + 1) / (_POINTS * step)) ** 2 / 2)
    for noise, draws, size, many in sizes:
        transform = transform * _on_grid(noise, size / step) ** (draws * many)
    law = np.fft.fftshift(np.fft.irfft(transform, _POINTS))
    beyond = np.cumsum(np.maximum(law, 0.0)[::-1]) + _ROUNDING
    found = _POINTS // 2 - int(np.searchsorted(beyond, tail, side="right"))
    return max(found + 1, 0) * step


def cumulant_generator(distribution: NoiseDistribution, tilts: Floats) -> Floats:
    """log E exp(t (N - L)) of one draw, for each t."""
    half = half_law(distribution)
    with np.errstate(divide="ignore"):
        powers = np.outer(tilts, np.arange(half.size)) + np.log(np.append(half[0] / 2, half[1:]))
    top = powers.max(axis=1)
    found: Floats = top + np.log(
        np.exp(powers - top[:, None]).sum(axis=1)
        + np.exp(powers - 2 * np.outer(tilts, np.arange(half.size)) - top[:, None]).sum(axis=1)
    )
    return found


def _sizes(weights: Floats) -> list[tuple[float, int]]:
    """The different sizes of weights, and how many have each."""
    sizes, many = np.unique(np.abs(weights), return_counts=True)
    return [(float(size), int(number)) for size, number in zip(sizes, many, strict=True) if size > 0]


def _on_grid(distribution: NoiseDistribution, size: float) -> Floats:
    """The transform of one draw times `size`, around its mean, in steps of the grid: it is real, being symmetric."""
    half = half_law(distribution)
    values = np.arange(half.size) * size
    floors = np.floor(values)
    at, part = floors.astype(np.int64) % _POINTS, values - floors
    law = np.bincount(at, half * (1 - part), _POINTS) + np.bincount((at + 1) % _POINTS, half * part, _POINTS)
    law[0] -= half[0] / 2
    transform: Floats = 2 * np.fft.rfft(law).real
    return transform


@lru_cache(maxsize=256)
def _summed(distribution: NoiseDistribution, draws: int, power: int) -> tuple[Floats, float]:
    """Chances of the sum around its middle, none too small, and a bound on all outside, about 10**power."""
    outside = 10.0**power
    tilts = _TILTS / math.sqrt(draws * distribution.variance)
    far = np.min((draws * cumulant_generator(distribution, tilts) - math.log(outside / 2)) / tilts)
    width = min(math.ceil(far), draws * distribution.half_length)
    half = half_law(distribution)
    points = 1 << (2 * max(width, half.size) + 2).bit_length()
    law = np.zeros(points)
    law[: half.size] = half
    law[points - half.size + 1 :] = half[:0:-1]
    whole = np.fft.irfft(np.fft.rfft(law) ** draws, points)  # what lies outside comes in again, and only adds
    listed = np.maximum(np.concatenate([whole[points - width :], whole[: width + 1]]), 0.0)
    listed.setflags(write=False)
    return listed, outside + _ROUNDING
