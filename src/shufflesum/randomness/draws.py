"""Uniform bits -> bounded integers, coordinates, permutations: integers only, exact, no modulo bias.

Every function here is deterministic in the words it is given. A bounded integer is Lemire's multiply-and-reject. Where
words run out because some were rejected, a function stops and says how far it came, and the caller goes on with fresh
words. No decision that was already made is ever drawn again because of that: which words are rejected does not depend
on what the accepted ones decide.
"""

from __future__ import annotations

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.randomness.source import Words

__all__ = [
    "PROBABILITY_BITS",
    "SPARE_WORDS",
    "bounded",
    "shuffle_in_place",
    "stratified_coordinates",
    "uniform_coordinates",
]

PROBABILITY_BITS = 53  # a probability is a whole number of 2**-53: exact as a JSON number
SPARE_WORDS = 64  # no value ever needs this many (that would be 62 rejections in a row, each rarer than 2**-16)


@kernel
def bounded(word: np.uint32, bound: np.uint64) -> np.int64:
    """A uniform integer below `bound` from one 32-bit word, or -1 where the word must be rejected."""
    product = np.uint64(word) * np.uint64(bound)
    low = product & np.uint64(0xFFFFFFFF)
    if low < bound and low < (np.uint64(0x100000000) - bound) % bound:
        return np.int64(-1)
    return np.int64(product >> np.uint64(32))


@kernel
def stratified_coordinates(words: Words, dimension: int, blocks: int, out: Words) -> int:
    """Fill rows of `out` (users x blocks) with one coordinate from each public block; returns the rows filled.

    Block b holds the coordinates from b*d//t up to (b+1)*d//t.
    """
    used = 0
    for row in range(out.shape[0]):
        for block in range(blocks):
            start = block * dimension // blocks
            size = (block + 1) * dimension // blocks - start
            drawn = np.int64(-1)
            while drawn < 0:
                if used == words.size:
                    return row
                drawn = bounded(words[used], np.uint64(size))
                used += 1
            out[row, block] = np.uint32(start + drawn)
    return int(out.shape[0])


@kernel
def uniform_coordinates(words: Words, dimension: int, urn: Words, out: Words) -> int:
    """Fill rows of `out` with distinct coordinates, all subsets equally likely; returns the rows filled.

    `urn` holds each coordinate once, in any order: the first steps of a Fisher-Yates shuffle draw a uniform subset from
    whatever order the rows before left behind.
    """
    used = 0
    for row in range(out.shape[0]):
        for place in range(out.shape[1]):
            drawn = np.int64(-1)
            while drawn < 0:
                if used == words.size:
                    return row
                drawn = bounded(words[used], np.uint64(dimension - place))
                used += 1
            other = place + drawn
            urn[place], urn[other] = urn[other], urn[place]
            out[row, place] = urn[place]
    return int(out.shape[0])


@kernel
def shuffle_in_place(items: Words, words: Words, unplaced: int) -> int:
    """Fisher-Yates from the back: places items[unplaced - 1], and so on down; returns how many are not placed yet."""
    used = 0
    while unplaced > 1 and used < words.size:
        drawn = bounded(words[used], np.uint64(unplaced))
        used += 1
        if drawn >= 0:
            unplaced -= 1
            items[unplaced], items[drawn] = items[drawn], items[unplaced]
    return unplaced
