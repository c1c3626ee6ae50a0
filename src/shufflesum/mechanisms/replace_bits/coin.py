"""The coin that is the privacy: a one with probability exactly (2^46 + A Y)/2^47, A of 2^-31 the amplitude.

A coin compares 16 secure bits with the first 16 of the probability, and 31 further ones on a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.mechanisms.rounding import scratch
from shufflesum.randomness import RandomSource, Words, words

__all__ = ["AMPLITUDE_BITS", "chances_of", "toss"]

AMPLITUDE_BITS = 31
_REST = (1 << AMPLITUDE_BITS) - 1


@kernel
def _draft(levels: NDArray[np.int32], coins: Words, high: np.int32, low: np.int32, out: Words) -> np.int32:
    """Settle all bits that 16 bits each can settle; returns how many others there are.

    floor(A Y/2^31) with A = high 2^16 + low, in 32 bits, so that it is vectorised.
    """
    ties = np.int32(0)
    for j in range(levels.size):
        level = levels[j]
        carried = np.int32(np.int32(low * level) >> np.int32(16))
        digit = np.int32(np.int32(np.int32(high * level) + carried) >> np.int32(15)) + np.int32(32768)
        coin = np.int32(coins[j])
        out[j] = np.uint8(coin < digit)
        ties += np.int32(coin == digit)
    return ties


@kernel
def _draft_rows(
    levels: NDArray[np.int32], coins: Words, high: np.int32, low: np.int32, out: Words, ties: NDArray[np.int32]
) -> int:
    total = 0
    for i in range(levels.shape[0]):
        ties[i] = _draft(levels[i], coins[i], high, low, out[i])
        total += ties[i]
    return total


@kernel
def _settle(
    levels: NDArray[np.int32], coins: Words, amplitude: int, ties: NDArray[np.int32], spare: Words, out: Words
) -> None:
    """Decide what was left open by the other 31 bits of the probability."""
    used = 0
    for i in range(levels.shape[0]):
        if ties[i] == 0:
            continue
        for j in range(levels.shape[1]):
            product = amplitude * np.int64(levels[i, j])
            if (product >> AMPLITUDE_BITS) + 32768 == np.int64(coins[i, j]):
                out[i, j] = np.uint8(np.int64(spare[used] >> np.uint64(64 - AMPLITUDE_BITS)) < (product & _REST))
                used += 1


def toss(source: RandomSource, levels: NDArray[np.int32], amplitude: int) -> NDArray[np.uint8]:
    """One bit for each of (m, D) levels, all independent; valid until this thread tosses again."""
    coins = scratch("bit coins", levels.size, np.uint16).reshape(levels.shape)
    bits = scratch("bits", levels.size, np.uint8).reshape(levels.shape)
    source.fill(coins)
    ties = np.empty(len(levels), dtype=np.int32)
    high, low = np.int32(amplitude >> 16), np.int32(amplitude & 0xFFFF)
    left = _draft_rows(levels, coins, high, low, bits, ties)
    if left:
        _settle(levels, coins, amplitude, ties, words(source, left, np.uint64), bits)
    return bits


def chances_of(levels: NDArray[Any], amplitude: int) -> NDArray[np.float64]:
    """The probability of a one at each level: 47 bits, exact in double precision."""
    chances: NDArray[np.float64] = (2.0**46 + amplitude * levels.astype(np.float64)) * 2.0**-47
    return chances
