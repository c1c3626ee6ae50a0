"""For tests and experiments only: a seeded source, and plans without a guarantee.

Nothing here is private. It lives apart so that no deployed program comes upon it by accident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from shufflesum.domains import Arrays, Structure
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.mechanism import on_grid
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.privacy.randomized_response.accountant import Sampling
from shufflesum.randomness import UInts
from shufflesum.wire import Task


class SeededSource:
    """Repeatable bits from a seed; anybody who knows the seed can undo the randomizer."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def fill(self, out: UInts) -> None:
        """Overwrite `out` with the generator's next bytes: what its `bytes` gives, at two thirds of the cost."""
        drawn = self._generator.integers(1 << 32, size=-(-out.nbytes // 4), dtype=np.uint32).astype("<u4", copy=False)
        out.reshape(-1).view(np.uint8)[:] = drawn.view(np.uint8)[: out.nbytes]


class UnprotectedTask(Task):
    """A task whose plan may claim nothing; only this class reads its files back."""

    def _verify_plan(self) -> None:
        """Claim nothing, so check nothing."""


def unprotected_plan(
    *,
    users: int,
    shape: int | Sequence[int] | Structure,
    bounds: tuple[ArrayLike, ArrayLike] = (0.0, 1.0),
    coordinates: int = 1,
    levels: int = 1,
    noise_probability: float = 0.0,
    sampling: Sampling = "stratified",
    honest_fraction: float = 1.0,
    rounds: int = 1,
) -> Plan:
    """A plan at any noise probability (rounded up to 2**-53), none by default, that claims no privacy.

    Its accountant is `none`; such a plan cannot be loaded from a file.
    """
    return Plan(
        Arrays(shape, bounds),
        RandomizedResponse(coordinates, levels, on_grid(noise_probability), sampling),
        no_guarantee(users, honest_fraction, rounds),
    )


def no_guarantee(users: int, honest_fraction: float = 1.0, rounds: int = 1) -> Guarantee:
    """What such a plan guarantees to so many users: nothing."""
    return Guarantee(math.inf, 1.0, users, honest_fraction, rounds, "none")
