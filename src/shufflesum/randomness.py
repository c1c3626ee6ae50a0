"""Secure bits, and exact draws from them.

What needs entropy is a source: it only fills arrays with uniform bits. All that turns bits into bounded integers,
coordinates, permutations and trials is deterministic code over integers, exact and without modulo bias, and can be
tested as such.

A bounded integer is Lemire's multiply-and-reject. Where words run out because some were rejected, a function stops and
says how far it came, and the caller goes on with fresh words. No decision that was already made is ever drawn again
because of that: which words are rejected does not depend on what the accepted ones decide.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.errors import CopyError

UInts = NDArray[Any]

_REKEY_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)

# A forked child inherits a copy of every keystream. The process id tells each source that it is such a copy, even after
# a fork that Python does not see (the C library's own). Counting forks helps where an ancestor's id is used again.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class RandomSource(Protocol):
    """Fills arrays of unsigned integers with independent uniform bits."""

    def fill(self, out: UInts) -> None:
        """Overwrite `out`, a C-contiguous array of unsigned integers, with fresh uniform bits."""


class SecureSource:
    """The AES-256 counter-mode keystream under a key from the operating system.

    Safe to share between threads, and after a fork parent and child draw from different keys. It cannot be seeded:
    a seeded source for tests and experiments is `shufflesum.testing.SeededSource`, another class in another module.
    """

    __slots__ = ("_forks", "_keystream", "_left", "_lock", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rekey()

    def _rekey(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._keystream = cipher.encryptor()
        self._left = _REKEY_BYTES
        self._forks, self._process = _forks, os.getpid()

    def fill(self, out: UInts) -> None:
        """Overwrite `out` with keystream; a new key is drawn after a fork and after every gibibyte."""
        if self._forks != _forks or self._process != os.getpid():
            # A lock held by another thread at the moment of the fork would never be released in the child.
            self._lock = threading.Lock()
            self._rekey()
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        with self._lock:
            for start in range(0, len(view), _CHUNK_BYTES):
                chunk = view[start : start + _CHUNK_BYTES]
                if self._left < len(chunk):
                    self._rekey()
                self._keystream.update_into(memoryview(_ZEROS)[: len(chunk)], chunk)
                self._left -= len(chunk)

    def __reduce__(self) -> tuple[type[SecureSource], tuple[()]]:
        """A pickled source arrives as a new one: a keystream is never copied to another process."""
        return SecureSource, ()


class KeyedSource:
    """The AES-256 counter-mode keystream under a key that is given: the same bits again for the same key.

    For what must be drawn once and may have to be made again. Bits are as good as random to whoever lacks the key, as
    long as it is secret and its keystream is read for one purpose only.
    """

    __slots__ = ("_keystream",)

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._keystream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()

    def fill(self, out: UInts) -> None:
        """Overwrite `out` with the keystream's next bytes; numbers are little-endian on every machine."""
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        for start in range(0, len(view), _CHUNK_BYTES):
            chunk = view[start : start + _CHUNK_BYTES]
            self._keystream.update_into(memoryview(_ZEROS)[: len(chunk)], chunk)
        if sys.byteorder == "big":
            out.byteswap(inplace=True)

    def __reduce__(self) -> NoReturn:
        """A copy would draw the same bits for something else."""
        raise CopyError("only-once", "a keyed source is neither copied nor pickled; make another from its key")


def random_uints(source: RandomSource, count: int, dtype: type[np.unsignedinteger[Any]]) -> UInts:
    """`count` fresh uniform words of the given unsigned type."""
    out: UInts = np.empty(count, dtype=dtype)
    if count:
        source.fill(out)
    return out


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
def stratified_coordinates(words: UInts, dimension: int, blocks: int, out: UInts) -> int:
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
def uniform_coordinates(words: UInts, dimension: int, urn: UInts, out: UInts) -> int:
    """Fill rows of `out` with distinct coordinates, all subsets equally likely; returns the rows filled.

    `urn` holds each coordinate once, in any order: the first steps of a Fisher-Yates shuffle draw a uniform subset from
    whatever order the rows before left behind.
    """
    used = 0
    for row in range(out.shape[0]):
        for position in range(out.shape[1]):
            drawn = np.int64(-1)
            while drawn < 0:
                if used == words.size:
                    return row
                drawn = bounded(words[used], np.uint64(dimension - position))
                used += 1
            other = position + drawn
            urn[position], urn[other] = urn[other], urn[position]
            out[row, position] = urn[position]
    return int(out.shape[0])


@kernel
def shuffle_in_place(items: UInts, words: UInts, unplaced: int) -> int:
    """Fisher-Yates from the back: places items[unplaced - 1], and so on down; returns how many are not placed yet."""
    used = 0
    while unplaced > 1 and used < words.size:
        drawn = bounded(words[used], np.uint64(unplaced))
        used += 1
        if drawn >= 0:
            unplaced -= 1
            items[unplaced], items[drawn] = items[drawn], items[unplaced]
    return unplaced


_MOST_BINOMIAL_WORDS = 1 << 15  # drawn at a time: 256 KiB, within a core's cache


@kernel
def ones_of(word: np.uint64) -> np.uint64:
    """How many bits of the word are 1."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.uint64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _draw(drawn: UInts, trials: int, numerator: int, state: NDArray[np.int64], out: NDArray[np.int64]) -> None:
    """Go on drawing with these words, from where `state` says it stopped: the draw, bit and counts it was at."""
    done, position, undecided, successes, left, ones = state
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
        if (numerator >> position) & 1:
            successes += undecided - ones
            undecided = ones
        else:
            undecided -= ones
        position -= 1
        if undecided == 0 or position < 0 or numerator & ((1 << (position + 1)) - 1) == 0:
            out[done] = successes
            done, position, undecided, successes = done + 1, PROBABILITY_BITS - 1, trials, 0
        left, ones = undecided, 0
    state[:] = done, position, undecided, successes, left, ones


def binomials(source: RandomSource, trials: int, probability: float, size: int) -> NDArray[np.int64]:
    """So many independent draws of Binomial(trials, probability); the probability is a multiple of 2**-53.

    No logarithms, no normal approximation: bits are counted. A trial succeeds if a uniform number, bit after bit from
    the top, is below its probability. Each bit decides half of the trials that are left, on average: how many is a fair
    binomial, the ones among as many uniform bits. So all of a draw costs about two bits a trial.
    """
    numerator = int(probability * 2.0**PROBABILITY_BITS)
    out = np.zeros(size, dtype=np.int64)
    state = np.array([0, PROBABILITY_BITS - 1, trials, 0, trials, 0], dtype=np.int64)
    while numerator and state[0] < size:
        needed = (size - int(state[0])) * (trials // 32 + PROBABILITY_BITS)
        _draw(random_uints(source, min(needed, _MOST_BINOMIAL_WORDS), np.uint64), trials, numerator, state, out)
    return out


_MOST_TRIAL_WORDS = 1 << 16  # drawn at a time: 256 KiB, within a core's cache


@kernel
def successes(drawn: UInts, used: int, numerator: np.uint64, wanted: np.uint64) -> tuple[np.uint64, int]:
    """Which of up to 64 trials, the bits of `wanted`, succeed; and how many words have been used.

    A trial succeeds if a uniform number, bit after bit from the top, is below numerator/2^53. A word gives the next bit
    of 64 trials at once, until all of them are decided.
    """
    undecided, succeeded = wanted, np.uint64(0)
    position = np.uint64(1) << np.uint64(PROBABILITY_BITS - 1)
    while undecided and position:
        word = drawn[used]
        used += 1
        if numerator & position:
            succeeded |= undecided & ~word
            undecided &= word
        else:
            undecided &= ~word
        position >>= np.uint64(1)
    return succeeded, used


@kernel
def _choose(drawn: UInts, numerator: np.uint64, out: UInts) -> int:
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
def _fill(drawn: UInts, cells: np.uint64, out: UInts, start: int) -> int:
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
def _count_uniform(drawn: UInts, wanted: int, table: UInts) -> int:
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


def add_uniform(source: RandomSource, draws: int, table: UInts) -> None:
    """Add so many independent uniform cells to the table of all cells, drawn one by one."""
    while draws > 0:
        drawn = random_uints(source, min(draws + draws // 64 + 16, _MOST_TRIAL_WORDS), np.uint32)
        draws -= _count_uniform(drawn, draws, table)


def uniform_or_blank(source: RandomSource, size: int, chance: float, cells: int) -> NDArray[np.uint32]:
    """So many independent draws: a uniform cell with this chance, a multiple of 2**-53, and else a blank."""
    out = np.zeros(size, dtype=np.uint32)
    numerator = np.uint64(chance * 2.0**PROBABILITY_BITS)
    decided, filled = size if chance == 1 else 0, 0
    while decided < size:
        drawn = random_uints(source, min(size - decided + PROBABILITY_BITS, _MOST_TRIAL_WORDS), np.uint64)
        decided += _choose(drawn, numerator, out[decided:])
    while filled < size:
        filled = _fill(
            random_uints(source, min(size - filled, _MOST_TRIAL_WORDS), np.uint32), np.uint64(cells), out, filled
        )
    return out


def table_draws(source: RandomSource, thresholds: tuple[UInts, UInts], size: int) -> NDArray[np.int64]:
    """So many independent draws of a table: each says how many thresholds a uniform number of 128 bits reaches.

    Thresholds rise strictly; their upper and lower 64 bits are given apart, and so are those of the uniform numbers.
    """
    upper, lower = thresholds
    out = np.empty(size, dtype=np.int64)
    for start in range(0, size, _MOST_TRIAL_WORDS):
        here = out[start : start + _MOST_TRIAL_WORDS]
        high, low = random_uints(source, 2 * here.size, np.uint64).reshape(2, here.size)
        here[:] = np.searchsorted(upper, high, side="left")
        # where upper halves are equal the lower ones decide, as good as never
        for i in np.flatnonzero(upper[np.minimum(here, upper.size - 1)] == high):
            while here[i] < upper.size and upper[here[i]] == high[i] and lower[here[i]] <= low[i]:
                here[i] += 1
    return out
