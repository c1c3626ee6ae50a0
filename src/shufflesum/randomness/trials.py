"""Rare events out of uniform bits: which of 64 trials succeed, and uniform cells for those that do."""

from __future__ import annotations

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.randomness.draws import PROBABILITY_BITS, bounded
from shufflesum.randomness.source import RandomSource, Words, words

__all__ = ["add_uniform", "successes"]

_MOST_WORDS = 1 << 16  # drawn at a time: 256 KiB, within a core's cache


@kernel
def successes(drawn: Words, used: int, numerator: np.uint64, wanted: np.uint64) -> tuple[np.uint64, int]:
    """Which of up to 64 trials, the bits of `wanted`, succeed; and how many words have been used.

    A trial succeeds if a uniform number, bit after bit from the top, is below numerator/2^53. A word gives the next bit
    of 64 trials at once, until all of them are decided.
    """
    undecided, succeeded = wanted, np.uint64(0)
    place = np.uint64(1) << np.uint64(PROBABILITY_BITS - 1)
    while undecided and place:
        word = drawn[used]
        used += 1
        if numerator & place:
            succeeded |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
        place >>= np.uint64(1)
    return succeeded, used


@kernel
def _count_uniform(drawn: Words, wanted: int, table: Words) -> int:
    """Add up to `wanted` uniform cells to the table; returns how many the words gave."""
    found = 0
    for word in drawn:
        if found == wanted:
            break
        cell = bounded(word, np.uint64(table.size))
        if cell >= 0:
            table[cell] += 1
            found += 1
    return found


def add_uniform(source: RandomSource, draws: int, table: Words) -> None:
    """Add so many independent uniform cells to the table of all cells, drawn one by one."""
    while draws > 0:
        drawn = words(source, min(draws + draws // 64 + 16, _MOST_WORDS), np.uint32)
        draws -= _count_uniform(drawn, draws, table)
