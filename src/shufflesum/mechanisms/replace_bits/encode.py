"""Rows to reports: for each rotated coordinate so many random bits, each a report 2 x coordinate + bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.domain import Ball
from shufflesum.mechanisms.mechanism import Table
from shufflesum.mechanisms.replace_bits.coin import toss
from shufflesum.mechanisms.replace_bits.rotate import rotated, squares_allowed
from shufflesum.mechanisms.rounding import scratch
from shufflesum.randomness import RandomSource, Words

if TYPE_CHECKING:
    from shufflesum.mechanisms.replace_bits.mechanism import ReplaceBits

__all__ = ["BitsEncoder", "BitsTally", "Rotation"]


class Rotation:
    """Prepared rows of a ball to the whole numbers that coins are made from."""

    def __init__(self, domain: Ball, tau: float) -> None:
        self._padded = domain.padded
        self._signed = domain.signs().astype(np.float64) / (domain.radius * tau)
        self._most_squares = squares_allowed(domain.padded, tau)

    def of(self, prepared: NDArray[Any]) -> NDArray[np.int32]:
        """(m, D) levels of 2^-15; valid until this thread rotates again."""
        levels = scratch("levels", len(prepared) * self._padded, np.int32).reshape(-1, self._padded)
        single = prepared.dtype == np.float32
        row = scratch("row", self._padded, np.float32) if single else scratch("wide row", self._padded, np.float64)
        rotated(prepared, self._signed, self._most_squares, row, levels)
        return levels


class _Bits:
    def __init__(self, mechanism: ReplaceBits, domain: Ball, source: RandomSource) -> None:
        self._rotation = Rotation(domain, mechanism.tau)
        self._amplitude, self._repeats, self._source = mechanism.numerator, mechanism.bits, source

    def of(self, prepared: NDArray[Any]) -> Iterator[NDArray[np.uint8]]:
        """(m, D) bits, as often as the plan says."""
        levels = self._rotation.of(prepared)
        for _ in range(self._repeats):
            yield toss(self._source, levels, self._amplitude)


class BitsEncoder:
    """Rotates and tosses coins, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: ReplaceBits, domain: Ball, source: RandomSource) -> None:
        self._bits, self._repeats, self._padded = _Bits(mechanism, domain, source), mechanism.bits, domain.padded

    def encode(self, prepared: NDArray[Any], first_row: int) -> NDArray[np.uint32]:
        """The cells that these users send: all coordinates once for each bit, user after user."""
        cells = np.empty((len(prepared), self._repeats, self._padded), dtype=np.uint32)
        for place, bits in enumerate(self._bits.of(prepared)):
            _cells(bits, cells[:, place])
        return cells.reshape(-1)


class BitsTally:
    """The same reports, added up where they are made."""

    def __init__(self, mechanism: ReplaceBits, domain: Ball, source: RandomSource) -> None:
        self._bits, self._cells = _Bits(mechanism, domain, source), 2 * domain.padded

    def add(self, prepared: NDArray[Any], first_row: int, table: Table) -> None:
        """Add what these users bring to the table of all cells."""
        for bits in self._bits.of(prepared):
            _count(bits, table.reshape(-1, 2))

    def noise(self, users: int) -> Table:
        """Nothing more: it is in the bits."""
        return np.zeros(self._cells, dtype=np.int64)


@kernel
def _cells(bits: Words, out: Words) -> None:
    for i in range(bits.shape[0]):
        row, cells = bits[i], out[i]
        for j in range(row.size):
            cells[j] = np.uint32(2 * j) + np.uint32(row[j])


@kernel
def _count(bits: Words, table: NDArray[Any]) -> None:
    ones = np.zeros(bits.shape[1], dtype=np.uint32)
    for i in range(bits.shape[0]):
        row = bits[i]
        for j in range(row.size):
            ones[j] += np.uint32(row[j])
    for j in range(ones.size):
        table[j, 0] += bits.shape[0] - np.int64(ones[j])
        table[j, 1] += np.int64(ones[j])
