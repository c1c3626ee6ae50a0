"""Trials out of uniform bits: which of many succeed, and a uniform cell for each that does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.randomness.draws import PROBABILITY_BITS, bounded
from shufflesum.randomness.source import RandomSource, Words, words

__all__ = ["add_uniform", "successes", "uniform_or_blank"]

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
def _choose(drawn: Words, numerator: np.uint64, out: Words) -> int:
    """Decide, 64 trials at a time, which succeed (0) and which are blank; returns how many are decided.

    It stops where the words left might not suffice for the next 64.
    """
    used, decided = 0, 0
    while decided < out.size and drawn.size - used >= PROBABILITY_BITS:
        here = min(64, out.size - decided)
        hits, used = successes(drawn, used, numerator, np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - here))
        for i in range(here):
            out[decided + i] = np.uint32(0 if (hits >> np.uint64(i)) & np.uint64(1) else BLANK)
        decided += here
    return decided


@kernel
def _fill(drawn: Words, cells: np.uint64, out: Words, start: int) -> int:
    """Put uniform cells where trials succeeded, from `start` on; returns where it stopped for want of words."""
    used = 0
    for i in range(start, out.size):
        if out[i] != np.uint32(BLANK):
            cell = np.int64(-1)
            while cell < 0:
                if used == drawn.size:
                    return i
                cell = bounded(drawn[used], cells)
                used += 1
            out[i] = np.uint32(cell)
    return int(out.size)


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


def uniform_or_blank(source: RandomSource, size: int, chance: float, cells: int) -> NDArray[np.uint32]:
    """So many independent draws: a uniform cell with this chance, a multiple of 2**-53, and else a blank."""
    out = np.zeros(size, dtype=np.uint32)
    numerator = np.uint64(chance * 2.0**PROBABILITY_BITS)
    decided, filled = size if chance == 1 else 0, 0
    while decided < size:
        drawn = words(source, min(size - decided + PROBABILITY_BITS, _MOST_WORDS), np.uint64)
        decided += _choose(drawn, numerator, out[decided:])
    while filled < size:
        filled = _fill(words(source, min(size - filled, _MOST_WORDS), np.uint32), np.uint64(cells), out, filled)
    return out
