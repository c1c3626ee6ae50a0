"""Exact binomial draws by counting bits: no logarithms, no normal approximation.

A trial succeeds if a uniform number, bit after bit from the top, is below its probability. Each bit decides half of the
trials that are left, on average: how many is a fair binomial, the ones among as many uniform bits. So all of
Binomial(trials, probability) costs about two bits a trial.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.randomness.draws import PROBABILITY_BITS
from shufflesum.randomness.source import RandomSource, Words, words

__all__ = ["binomials", "ones_of"]

_MOST_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


@kernel
def ones_of(word: np.uint64) -> np.uint64:
    """How many bits of the word are 1."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.uint64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _draw(drawn: Words, trials: int, numerator: int, state: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Go on drawing with these words, from where `state` says it stopped: the draw, bit and counts it was at."""
    done, place, undecided, successes, left, ones = state
    used = 0
    while done < out.size:
        whole = min(left // 64, drawn.size - used)
        counted = np.uint64(0)
        for i in range(used, used + whole):
            counted += ones_of(drawn[i])
        ones += np.int64(counted)
        used += whole
        left -= 64 * whole
        if left > 0:
            if used == drawn.size:
                break
            if left < 64:
                ones += np.int64(ones_of(drawn[used] & np.uint64((np.uint64(1) << np.uint64(left)) - np.uint64(1))))
                used += 1
                left = 0
            continue
        # All undecided trials have this bit: a 0 where the probability has a 1 succeeds, a 1 where it has a 0 fails.
        if (numerator >> place) & 1:
            successes += undecided - ones
            undecided = ones
        else:
            undecided -= ones
        place -= 1
        if undecided == 0 or place < 0 or numerator & ((1 << (place + 1)) - 1) == 0:
            out[done] = successes
            done, place, undecided, successes = done + 1, PROBABILITY_BITS - 1, trials, 0
        left, ones = undecided, 0
    state[:] = done, place, undecided, successes, left, ones


def binomials(source: RandomSource, trials: int, probability: float, size: int) -> NDArray[np.int64]:
    """So many independent draws of Binomial(trials, probability); the probability is a multiple of 2**-53."""
    numerator = int(probability * 2.0**PROBABILITY_BITS)
    out = np.zeros(size, dtype=np.int64)
    state = np.array([0, PROBABILITY_BITS - 1, trials, 0, trials, 0], dtype=np.int64)
    while numerator and state[0] < size:
        needed = (size - int(state[0])) * (trials // 32 + PROBABILITY_BITS)
        _draw(words(source, min(needed, _MOST_WORDS), np.uint64), trials, numerator, state, out)
    return out
