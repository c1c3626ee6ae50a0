"""Rows under `one-bit`: rotate, then toss for each coordinate so many bits, each a report 2 x coordinate + bit.

The coin is the privacy: a one with probability exactly (2^46 + A Y)/2^47, A of 2^-31 the amplitude. It compares 16
secure bits with the first 16 of the probability, and 31 further ones on a tie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.encodings import SignBits, Values
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.mechanisms.rounding import scratch
from shufflesum.randomness import RandomSource, UInts, random_uints

if TYPE_CHECKING:
    from shufflesum.mechanisms.one_bit.mechanism import OneBit


LEVEL_BITS = 15
_ONE = 1 << LEVEL_BITS
_IN_CACHE = 1 << 11  # numbers that a core's first cache holds well: these are transformed before others
_SHRINKS = 10


def squares_allowed(coordinates: int, tau: float) -> int:
    """The largest whole sum of squares that is not above 2^30 D/tau^2."""
    return math.floor(Fraction(coordinates << (2 * LEVEL_BITS)) / Fraction(tau) ** 2)


@kernel
def _eights(x: NDArray[Any]) -> None:
    """The three smallest strides at once, eight numbers at a time."""
    for i in range(0, x.size, 8):
        a, b, c, d = x[i] + x[i + 1], x[i] - x[i + 1], x[i + 2] + x[i + 3], x[i + 2] - x[i + 3]
        e, f, g, h = x[i + 4] + x[i + 5], x[i + 4] - x[i + 5], x[i + 6] + x[i + 7], x[i + 6] - x[i + 7]
        a, b, c, d = a + c, b + d, a - c, b - d
        e, f, g, h = e + g, f + h, e - g, f - h
        x[i], x[i + 1], x[i + 2], x[i + 3] = a + e, b + f, c + g, d + h
        x[i + 4], x[i + 5], x[i + 6], x[i + 7] = a - e, b - f, c - g, d - h


@kernel
def _sixty_fours(x: NDArray[Any]) -> None:
    """The next three, 64 numbers at a time: eight side by side, so that the inner loop is one vector wide."""
    for i in range(0, x.size, 64):
        y = x[i : i + 64]
        for j in range(8):
            a, b, c, d = y[j] + y[j + 8], y[j] - y[j + 8], y[j + 16] + y[j + 24], y[j + 16] - y[j + 24]
            e, f, g, h = y[j + 32] + y[j + 40], y[j + 32] - y[j + 40], y[j + 48] + y[j + 56], y[j + 48] - y[j + 56]
            a, b, c, d = a + c, b + d, a - c, b - d
            e, f, g, h = e + g, f + h, e - g, f - h
            y[j], y[j + 8], y[j + 16], y[j + 24] = a + e, b + f, c + g, d + h
            y[j + 32], y[j + 40], y[j + 48], y[j + 56] = a - e, b - f, c - g, d - h


@kernel
def _two(p: NDArray[Any], q: NDArray[Any]) -> None:
    for j in range(p.size):
        a, b = p[j], q[j]
        p[j], q[j] = a + b, a - b


@kernel
def _four(p: NDArray[Any], q: NDArray[Any], r: NDArray[Any], s: NDArray[Any]) -> None:
    for j in range(p.size):
        a, b, c, d = p[j] + q[j], p[j] - q[j], r[j] + s[j], r[j] - s[j]
        p[j], q[j], r[j], s[j] = a + c, b + d, a - c, b - d


@kernel
def _strides(x: NDArray[Any], stride: int) -> None:
    """All strides from this one on, two at a time, so that numbers are read and written half as often."""
    while 4 * stride <= x.size:
        for i in range(0, x.size, 4 * stride):
            j, k, m = i + stride, i + 2 * stride, i + 3 * stride
            _four(x[i:j], x[j:k], x[k:m], x[m : m + stride])
        stride *= 4
    if 2 * stride <= x.size:
        for i in range(0, x.size, 2 * stride):
            _two(x[i : i + stride], x[i + stride : i + 2 * stride])


@kernel
def hadamard(x: NDArray[Any]) -> None:
    """Multiply by Hadamard's matrix of entries (-1)^(ones of i & j), in place; the size is a power of two."""
    if x.size < 64:
        _strides(x, 1)
        return
    part = min(x.size, _IN_CACHE)
    for i in range(0, x.size, part):
        _eights(x[i : i + part])
        _sixty_fours(x[i : i + part])
        _strides(x[i : i + part], 64)
    _strides(x, part)


@kernel
def _levels(x: NDArray[Any], factor: float, out: NDArray[np.int32]) -> np.int64:
    """factor x, clipped to [-1, 1], in whole numbers of 2^-15; returns the sum of their squares.

    What is no number becomes -1: nothing but the caller's checks keeps it away, and the norm must hold all the same.
    """
    one, half = x.dtype.type(_ONE), x.dtype.type(_ONE + 0.5)
    scale = x.dtype.type(factor * _ONE)
    total = np.int64(0)
    for j in range(x.size):
        value = x[j] * scale
        value = value if value > -one else -one
        value = value if value < one else one
        level = np.int32(np.int32(value + half) - np.int32(_ONE))
        out[j] = level
        total += np.int64(np.int64(level) * np.int64(level))
    return total


@kernel
def rotated(
    rows: NDArray[Any], signed: NDArray[np.float64], most_squares: int, scratch: NDArray[Any], out: NDArray[np.int32]
) -> None:
    """Every row's coordinates after the rotation, in whole numbers of 2^-15 whose squares add up to the most or less.

    `signed` is each entry's sign over (clipping norm x tau), `scratch` has room for one padded row in their precision.
    """
    for i in range(rows.shape[0]):
        row, levels = rows[i], out[i]
        for j in range(row.size):
            scratch[j] = np.float64(row[j]) * signed[j]
        scratch[row.size :] = 0.0
        hadamard(scratch)
        total = _levels(scratch, 1.0, levels)
        factor, less = 1.0, 2.0**-20
        for _ in range(_SHRINKS):
            if total <= most_squares:
                break
            factor *= math.sqrt(most_squares / total) * (1.0 - less)
            less *= 4.0 if less < 0.1 else 1.0
            total = _levels(scratch, factor, levels)
        while total > most_squares:  # never seen; but it ends
            total = np.int64(0)
            for j in range(levels.size):
                levels[j] = np.int32(levels[j] / 2)
                total += np.int64(levels[j]) * np.int64(levels[j])


AMPLITUDE_BITS = 31
_REST = (1 << AMPLITUDE_BITS) - 1


@kernel
def _draft(levels: NDArray[np.int32], coins: UInts, high: np.int32, low: np.int32, out: UInts) -> np.int32:
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
    levels: NDArray[np.int32], coins: UInts, high: np.int32, low: np.int32, out: UInts, ties: NDArray[np.int32]
) -> int:
    total = 0
    for i in range(levels.shape[0]):
        ties[i] = _draft(levels[i], coins[i], high, low, out[i])
        total += ties[i]
    return total


@kernel
def _settle(
    levels: NDArray[np.int32], coins: UInts, amplitude: int, ties: NDArray[np.int32], spare: UInts, out: UInts
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
        _settle(levels, coins, amplitude, ties, random_uints(source, left, np.uint64), bits)
    return bits


def chances_of(levels: NDArray[Any], amplitude: int) -> NDArray[np.float64]:
    """The probability of a one at each level: 47 bits, exact in double precision."""
    chances: NDArray[np.float64] = (2.0**46 + amplitude * levels.astype(np.float64)) * 2.0**-47
    return chances


class Rotation:
    """Prepared rows of a ball to the whole numbers that coins are made from."""

    def __init__(self, encoding: SignBits, tau: float) -> None:
        self._padded = encoding.coordinates
        self._signed = encoding.signs.astype(np.float64) / (encoding.clipping_norm * tau)
        self._most_squares = squares_allowed(encoding.coordinates, tau)

    def of(self, prepared: NDArray[Any]) -> NDArray[np.int32]:
        """(m, D) levels of 2^-15; valid until this thread rotates again."""
        levels = scratch("levels", len(prepared) * self._padded, np.int32).reshape(-1, self._padded)
        single = prepared.dtype == np.float32
        row = scratch("row", self._padded, np.float32) if single else scratch("wide row", self._padded, np.float64)
        rotated(prepared, self._signed, self._most_squares, row, levels)
        return levels


class _Bits:
    def __init__(self, mechanism: OneBit, encoding: SignBits, source: RandomSource) -> None:
        self._rotation = Rotation(encoding, mechanism.tau)
        self._amplitude, self._repeats, self._source = mechanism.numerator, mechanism.bits, source

    def of(self, prepared: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
        """(m, D) bits, as often as the plan says."""
        levels = self._rotation.of(prepared)
        for _ in range(self._repeats):
            yield toss(self._source, levels, self._amplitude)


class OneBitEncoder:
    """Rotates and tosses coins, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: OneBit, encoding: SignBits, source: RandomSource) -> None:
        self._bits, self._repeats, self._padded = (
            _Bits(mechanism, encoding, source),
            mechanism.bits,
            encoding.coordinates,
        )

    def encode(self, block: Values) -> NDArray[np.uint32]:
        """The cells that these users send: all coordinates once for each bit, user after user."""
        cells = np.empty((len(block), self._repeats, self._padded), dtype=np.uint32)
        for number, bits in enumerate(self._bits.of(block.values)):
            _cells(bits, cells[:, number])
        return cells.reshape(-1)


class OneBitTally:
    """The same reports, added up where they are made."""

    def __init__(self, mechanism: OneBit, encoding: SignBits, source: RandomSource) -> None:
        self._bits, self._cells = _Bits(mechanism, encoding, source), 2 * encoding.coordinates

    def add(self, block: Values, table: CountTable) -> None:
        """Add what these users bring to the table of all cells."""
        for bits in self._bits.of(block.values):
            _count(bits, table.reshape(-1, 2))

    def noise(self, users: int) -> CountTable:
        """Nothing more: it is in the bits."""
        return np.zeros(self._cells, dtype=np.int64)


@kernel
def _cells(bits: UInts, out: UInts) -> None:
    for i in range(bits.shape[0]):
        row, cells = bits[i], out[i]
        for j in range(row.size):
            cells[j] = np.uint32(2 * j) + np.uint32(row[j])


@kernel
def _count(bits: UInts, table: NDArray[Any]) -> None:
    ones = np.zeros(bits.shape[1], dtype=np.uint32)
    for i in range(bits.shape[0]):
        row = bits[i]
        for j in range(row.size):
            ones[j] += np.uint32(row[j])
    for j in range(ones.size):
        table[j, 0] += bits.shape[0] - np.int64(ones[j])
        table[j, 1] += np.int64(ones[j])
