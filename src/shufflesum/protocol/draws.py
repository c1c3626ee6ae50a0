"""Uniform bits -> coordinates, rounded and randomized values, permutations: integers only, exact, no modulo bias.

Every function here is deterministic in the words it is given. A bounded integer is Lemire's multiply-and-reject; a
coin of rational probability compares 16 bits and looks at further bits only on a tie. Where words run out because
some were rejected, a function stops and says how far it came, and the caller goes on with fresh words. No decision
that was already made is ever drawn again because of that: which words are rejected does not depend on what the
accepted ones decide.
"""

from __future__ import annotations

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.protocol.randomness import Words

__all__ = [
    "NOISE_BITS",
    "SPARE_WORDS",
    "privatize",
    "shuffle_in_place",
    "stratified_coordinates",
    "uniform_coordinates",
]

NOISE_BITS = 53  # the noise probability is a whole number of 2**-53: exact as a JSON number
SPARE_WORDS = 64  # no value ever needs this many (that would be 62 rejections in a row, each rarer than 2**-16)

_SCAN = 1024


@kernel
def _bounded(word: np.uint32, bound: np.uint64) -> np.int64:
    """A uniform integer below `bound` from one 32-bit word, or -1 where the word must be rejected."""
    product = np.uint64(word) * np.uint64(bound)
    low = product & np.uint64(0xFFFFFFFF)
    if low < bound and low < (np.uint64(0x100000000) - bound) % bound:
        return np.int64(-1)
    return np.int64(product >> np.uint64(32))


@kernel
def stratified_coordinates(words: Words, dimension: int, reports: int, out: Words) -> int:
    """Fill rows of `out` (users x reports) with one coordinate from each public block; returns the rows filled.

    Block b holds the coordinates from b*d//t up to (b+1)*d//t.
    """
    used = 0
    for row in range(out.shape[0]):
        for block in range(reports):
            start = block * dimension // reports
            size = (block + 1) * dimension // reports - start
            drawn = np.int64(-1)
            while drawn < 0:
                if used == words.size:
                    return row
                drawn = _bounded(words[used], np.uint64(size))
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
                drawn = _bounded(words[used], np.uint64(dimension - place))
                used += 1
            other = place + drawn
            urn[place], urn[other] = urn[other], urn[place]
            out[row, place] = urn[place]
    return int(out.shape[0])


@kernel
def _draft(
    positions: Words, coins: Words, noise: Words, fresh: Words, levels: int, digit: np.int32, out: Words
) -> np.int32:
    """Settle all values that 16 bits each can settle; returns how many others there are.

    Branch-free, so that the compiler vectorises it (which is also why every product is kept to 32 bits).
    """
    top, cells, unfair = np.int32(levels), np.int32(levels + 1), np.int32(65536 % (levels + 1))
    unsettled = np.int32(0)
    for i in range(positions.size):
        floor = np.int32(positions[i])
        fraction = np.int32((positions[i] - floor) * 65536.0)
        coin, decided = np.int32(coins[i]), np.int32(noise[i])
        rounded = min(np.int32(floor + np.int32(coin < fraction)), top)
        product = np.int32(np.int32(fresh[i]) * cells)
        out[i] = np.uint16(product >> np.int32(16)) if decided < digit else np.uint16(rounded)
        rejected = np.int32((product & np.int32(65535)) < unfair) & np.int32(decided < digit)
        unsettled += np.int32(coin == fraction) | np.int32(decided == digit) | rejected
    return unsettled


@kernel
def privatize(
    positions: Words,
    coins: Words,
    noise: Words,
    fresh: Words,
    spare: Words,
    levels: int,
    noise_numerator: np.uint64,
    out: Words,
) -> int:
    """Algorithm 1 of the paper on rounded values: out[i] in 0..levels for positions[i] in [0, levels].

    Three 16-bit words a value: `coins` round at random, `noise` decides keep or replace, `fresh` is the uniform
    replacement, drawn apart from the word that decided. Ties and rejections take 64-bit words from `spare`. Returns
    how many leading values are settled: fewer than all where `spare` ran low.
    """
    cells, unfair = levels + 1, 65536 % (levels + 1)
    digit = np.int32(noise_numerator >> np.uint64(NOISE_BITS - 16))
    rest = noise_numerator & np.uint64((1 << (NOISE_BITS - 16)) - 1)
    used = 0
    for start in range(0, positions.size, _SCAN):
        stretch = slice(start, start + _SCAN)
        drafted = out[stretch]
        if _draft(positions[stretch], coins[stretch], noise[stretch], fresh[stretch], levels, digit, drafted) == 0:
            continue
        for i in range(start, start + drafted.size):
            floor = int(positions[i])
            scaled = (positions[i] - floor) * 65536.0
            fraction, product = int(scaled), int(fresh[i]) * cells
            rejected = (product & 65535) < unfair
            if coins[i] != fraction and noise[i] != digit and not (rejected and noise[i] < digit):
                continue
            if spare.size - used < SPARE_WORDS:
                return i
            up = coins[i] < fraction
            if coins[i] == fraction:
                up = np.float64(spare[used] >> np.uint64(11)) * 2.0**-53 < scaled - fraction
                used += 1
            replace = noise[i] < digit
            if noise[i] == digit:
                replace = (spare[used] >> np.uint64(64 - NOISE_BITS + 16)) < rest
                used += 1
            value = min(floor + int(up), levels)
            if replace:
                value = -1 if rejected else product >> 16
                while value < 0 and used < spare.size:
                    value = int(_bounded(np.uint32(spare[used] >> np.uint64(32)), np.uint64(cells)))
                    used += 1
                if value < 0:
                    return i
            out[i] = np.uint16(value)
    return int(positions.size)


@kernel
def shuffle_in_place(items: Words, words: Words, unplaced: int) -> int:
    """Fisher-Yates from the back: places items[unplaced - 1], and so on down; returns how many are not placed yet."""
    used = 0
    while unplaced > 1 and used < words.size:
        drawn = _bounded(words[used], np.uint64(unplaced))
        used += 1
        if drawn >= 0:
            unplaced -= 1
            items[unplaced], items[drawn] = items[drawn], items[unplaced]
    return unplaced
