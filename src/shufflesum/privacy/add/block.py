"""Counts that each go up or down as the data have it, several of them as one factor of a composition from above.

Of b equal counts some number u goes up and b - u down. All these products are laid on a grid, and the largest of their
profiles dominates them all (docs/privacy.md). The larger the block, the less is given away: no neighbours have both
directions at once, and a product leans less to one side than a count does. But u must be fixed before any outcome of
the block is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat

import numpy as np

from shufflesum.privacy.add.oneway import OneWay, listed
from shufflesum.privacy.engine.composition import Factor
from shufflesum.privacy.engine.losses import GridLosses, dominating

__all__ = ["Block", "blocks_of", "divided", "every_way"]

_MOST_COUNTS = 16  # of a block: its cost grows with them, and what is left to gain falls
_CHARGE = 1e-16  # of delta, for all truncation before blocks are multiplied


@dataclass(frozen=True, slots=True)
class Block:
    """So many blocks of `size` counts with Binomial(trials, probability) noise each, in place of a `Factor`."""

    trials: int
    probability: float
    size: int
    copies: int
    single: Factor

    @property
    def deviation(self) -> float:
        """That of one count: a block has the grid of its counts, so that nothing is lost against theirs."""
        return self.single.deviation

    @property
    def highest(self) -> float:
        """No finite loss of a block is larger."""
        return self.size * self.single.highest

    @property
    def reach(self) -> float:
        """How far out losses of one count matter."""
        return self.single.reach

    def losses(self, step: float, reach: float) -> GridLosses:
        """A pair on the grid that dominates one block, and is its own mirror image."""
        charge = _CHARGE / (self.size * self.copies)
        count = listed(self.trials, self.probability).on_grid(step).trimmed(charge)
        powers = list(accumulate(repeat(count, self.size), lambda power, one: power.times(one).trimmed(charge)))
        profiles = [pair.heights() for pair in every_way(powers)]
        top = max(heights.size for heights in profiles)
        largest = np.max([np.pad(heights, (0, top - heights.size), mode="edge") for heights in profiles], axis=0)
        last = int(np.count_nonzero(largest > largest[-1] + charge))  # from there on as if the loss were infinite
        return dominating(step, largest[: last + 1], 0.0)


def every_way(powers: Sequence[OneWay]) -> list[OneWay]:
    """The products of u counts up and b - u down, u = 0..b, given the pairs of 1..b counts up."""
    *fewer, all_up = powers
    mixed = [up.times(down.mirrored) for up, down in zip(fewer, reversed(fewer), strict=True)]
    return [all_up.mirrored, *mixed, all_up]


def blocks_of(trials: int, probability: float, at_once: int, single: Factor) -> list[Block]:
    """Divide the copies of a count into blocks, each within one round: in later ones data may depend on outcomes."""
    rounds = single.copies // at_once
    return [Block(trials, probability, size, number * rounds, single) for size, number in divided(at_once)]


def divided(counts: int) -> list[tuple[int, int]]:
    """Sizes of blocks, and how many of each: equal ones if possible, else of two sizes."""
    most = next((size for size in range(_MOST_COUNTS, _MOST_COUNTS // 2, -1) if counts % size == 0), _MOST_COUNTS)
    size, larger = divmod(counts, blocks := -(-counts // most))
    return [(counts, copies) for counts, copies in ((size + 1, larger), (size, blocks - larger)) if copies]
