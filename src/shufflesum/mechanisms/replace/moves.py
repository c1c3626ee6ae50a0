"""What the planner may try under `replace`: coordinates and levels, each pair at its smallest certified noise.

To find where to look it uses a quick approximation (the sum of all privacy losses as a normal variable); every
mechanism it hands out is certified.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Box
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.replace.error import coordinate_error
from shufflesum.mechanisms.replace.mechanism import MAX_LEVELS, Replace, Sampling
from shufflesum.privacy import Guarantee
from shufflesum.privacy.replace import MOST_COMPOSITIONS, MOST_LEVELS, guess_noise_probability, published

__all__ = ["ReplaceMoves", "halvings", "most_levels", "published_choice"]


@dataclass
class ReplaceMoves:
    """The neighbourhood over (coordinates, levels); each point is certified once, when it is first visited."""

    domain: Box
    guarantee: Guarantee
    coordinates: Sequence[int]
    levels: Sequence[int] | None = None
    sampling: Sampling = "stratified"
    spread: float | None = None
    _certified: dict[tuple[int, int], Replace] = field(default_factory=dict)

    def starts(self) -> Iterator[Replace]:
        """Where the guess would begin, and single-coordinate blocks with one level.

        The latter have a tighter bound of their own, which the guess does not know.
        """
        start = min(product(self.coordinates, self._grid), key=lambda point: self._guessed_error(*point))
        yield self.certified(*start)
        if 1 in self._grid:
            yield self.certified(self.coordinates[0], 1)

    @property
    def least_guess(self) -> float:
        """The least error that the guess promises, in the user's units, for all coordinates."""
        least = min(self._guessed_error(*point) for point in product(self.coordinates, self._grid))
        return least * float(np.sum(self.domain.width**2))

    def neighbours(self, mechanism: Replace) -> Iterator[Replace]:
        """One step in coordinates, or a small or a large one in levels."""
        place = self.coordinates.index(mechanism.coordinates)
        for other in self.coordinates[max(0, place - 1) : place + 2]:
            if other != mechanism.coordinates:
                yield self.certified(other, mechanism.levels)
        if self.levels is None:
            step, most = max(1, mechanism.levels // 16), most_levels(self.domain, certified=True)
            near = {mechanism.levels + move for move in (-step, -1, 1, step)}
            yield from (self.certified(mechanism.coordinates, k) for k in sorted(near) if 1 <= k <= most)

    def best_with(self, coordinates: int) -> Replace:
        """The certified mechanism with so many coordinates, at the levels that the guess prefers."""
        return self.certified(coordinates, min(self._grid, key=lambda levels: self._guessed_error(coordinates, levels)))

    def certified(self, coordinates: int, levels: int) -> Replace:
        """So many coordinates and levels, at the smallest noise probability that is certified for the guarantee."""
        if (coordinates, levels) not in self._certified:
            noiseless = Replace(coordinates, levels, 0.0, self.sampling)
            setting = noiseless.accounting(self.domain.neighbours, self.guarantee).setting
            gamma = setting.smallest_noise_probability(self.guarantee.epsilon, self.guarantee.delta)
            self._certified[coordinates, levels] = Replace(coordinates, levels, gamma, self.sampling)
        return self._certified[coordinates, levels]

    @property
    def _grid(self) -> Sequence[int]:
        if self.levels is not None:
            return self.levels
        most = most_levels(self.domain, certified=True)
        return sorted({k for k in (round(1.25**i) for i in range(31)) if k <= most} | set(range(1, min(8, most) + 1)))

    def _guessed_error(self, coordinates: int, levels: int) -> float:
        guarantee = self.guarantee
        users_per_loss = guarantee.honest_users / ((levels + 1) * coordinates * guarantee.rounds)
        gamma = guess_noise_probability(users_per_loss, guarantee.epsilon, guarantee.delta)
        probability = min(1.0, coordinates / self.domain.dimension)
        width = math.sqrt(float(np.mean(self.domain.width**2)))
        apart = None if self.spread is None else min(self.spread / width, 0.5)
        return coordinate_error(guarantee.users, probability, levels, gamma, apart).total


def most_levels(domain: Box, *, certified: bool) -> int:
    """The most levels that reports can carry and, if asked, that the accountant certifies."""
    return min(MOST_LEVELS if certified else MAX_LEVELS, MOST_CELLS // domain.dimension - 1)


def published_choice(
    domain: Box, guarantee: Guarantee, coordinates: int, levels: int | None, sampling: Sampling | None
) -> Replace:
    """The paper's own choice: levels by its formula, uniform sampling for several coordinates."""
    sampling = sampling or ("uniform" if coordinates > 1 else "stratified")
    levels = levels or published.published_levels(
        users=guarantee.honest_users,
        dimension=domain.dimension,
        coordinates=coordinates,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
    )
    noiseless = Replace(coordinates, levels, 0.0, sampling)
    setting = noiseless.accounting(domain.neighbours, guarantee).setting
    gamma = setting.published_noise_probability(guarantee.epsilon, guarantee.delta)
    if gamma == 1:
        raise PrivacyError(
            "privacy-out-of-reach",
            "the published noise probability is 1: reports would carry nothing; raise users or epsilon",
        )
    return Replace(coordinates, levels, gamma, sampling)


def halvings(domain: Box, guarantee: Guarantee, most: int | None = None) -> list[int]:
    """cap, cap/2, cap/4, ..., 1 coordinates: the error is flat enough in their number."""
    composable = max(1, MOST_COMPOSITIONS // guarantee.rounds)
    counts = [min(most or domain.dimension, domain.dimension, composable)]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts
