"""Rows under `noisy-sums`: values to integers, and their exact sums; the noise is drawn once, when all rows are in.

Numbers with bounds are rounded to the nearest of so many levels that nothing is lost. Vectors of a bounded norm are
rounded at random, and drawn again where that makes them too long: the norm is enforced in integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.encodings import Residues, Values
from shufflesum.errors import DataError, ReportsError
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.randomness import RandomSource, UInts, random_uints, table_draws

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_sums.mechanism import NoisySums

_ROUND = 1.5 * 2.0**52  # added and taken off, it rounds a double to the nearest whole number
_EXACT_ROWS = 1 << 20  # whose sums of up to 2**32 each are whole numbers in double precision
_TOGETHER = 256  # values in a row of the kernel: short rows are taken together
_VECTOR_VALUES = 1 << 18  # rounded at once
_MOST_TRIES = 256


@kernel
def _add_positions(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    levels: float,
    sums: NDArray[np.float64],
) -> int:
    """Add each value's nearest level to the sums of its column; returns how many rows have a value out of bounds.

    A plain loop without branches, so that it is vectorised. Sums of whole numbers below 2**53 are exact.
    """
    outside = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        inside = True
        for j in range(row.size):
            inside &= bool((row[j] >= lower[j]) & (row[j] <= upper[j]))
            position = min(max((np.float64(row[j]) - origin[j]) * scale[j], 0.0), levels)
            sums[j] += (position + _ROUND) - _ROUND
        outside += not inside
    return outside


@kernel
def _add_vectors(
    rows: NDArray[Any],
    scale: float,
    most: float,
    most_squared: int,
    coins: UInts,
    sums: CountTable,
    again: NDArray[np.int64],
) -> int:
    """Round vectors at random and add up those that are short enough; returns how many must be drawn again, in `again`.

    A value that is no number, or beyond `most`, makes its vector too long.
    """
    vector = np.empty(rows.shape[1], dtype=np.int64)
    left = 0
    for i in range(rows.shape[0]):
        row, tossed = rows[i], coins[i]
        squares, inside = 0, True
        for j in range(row.size):
            position = np.float64(row[j]) * scale
            inside &= bool((position >= -most) & (position <= most))
            below = np.floor(min(max(position, -most), most))
            whole = np.int64(below) + np.int64(np.float64(tossed[j]) * 2.0**-32 < position - below)
            vector[j] = whole
            squares += int(whole * whole)
        if inside and squares <= most_squared:
            for j in range(row.size):
                sums[j] += vector[j]
        else:
            again[left] = i
            left += 1
    return left


class NoisySumsTally:
    """Exact sums of all rows added so far; the noise comes last."""

    def __init__(self, mechanism: NoisySums, encoding: Residues, source: RandomSource) -> None:
        self._mechanism, self._encoding, self._source = mechanism, encoding, source
        if encoding.scale is None:
            return
        together = max(1, _TOGETHER // encoding.dimension)
        scale = encoding.scale
        self._places = [np.tile(part, together) for part in (scale.lower, mechanism.levels / scale.width)]
        self._limits = {
            np.dtype(kind): [np.tile(limit, together) for limit in scale.limits(kind)]
            for kind in (np.float32, np.float64)
        }

    def add(self, block: Values, table: CountTable) -> None:
        """Add the integers of these users to the table of all coordinates; a value outside the domain is refused."""
        if self._encoding.scale is None:
            self._add_vectors(block, table)
            return
        values, width = np.ascontiguousarray(block.values), self._encoding.dimension
        together = len(self._places[0]) // width
        whole = len(values) - len(values) % together
        for part, size in ((values[:whole], together * width), (values[whole:], width)):
            rows = part.reshape(-1, size)
            for start in range(0, len(rows), _EXACT_ROWS):
                self._add_rows(rows[start : start + _EXACT_ROWS], block, table)

    def _add_rows(self, rows: NDArray[Any], block: Values, table: CountTable) -> None:
        size = rows.shape[1]
        sums = np.zeros(size)
        lower, upper, origin, scale = (part[:size] for part in (*self._limits[rows.dtype], *self._places))
        if _add_positions(rows, lower, upper, origin, scale, float(self._mechanism.levels), sums):
            block.refuse()
        table += sums.astype(np.int64).reshape(-1, self._encoding.dimension).sum(axis=0)

    def _add_vectors(self, block: Values, table: CountTable) -> None:
        mechanism, encoding = self._mechanism, self._encoding
        assert encoding.clipping_norm is not None  # what has no bounds has a norm
        scale, squared = mechanism.levels / encoding.clipping_norm, mechanism.squared_norm(encoding)
        at_once = max(1, _VECTOR_VALUES // encoding.dimension)
        for start in range(0, len(block.values), at_once):
            rows = block.values[start : start + at_once]
            for _ in range(_MOST_TRIES):
                coins = random_uints(self._source, rows.size, np.uint32).reshape(rows.shape)
                again = np.empty(len(rows), dtype=np.int64)
                left = _add_vectors(rows, scale, 2.0 * mechanism.levels, squared, coins, table, again)
                if not left:
                    break
                rows = rows[again[:left]]
            else:
                raise DataError("out-of-bounds", "a vector is longer than the clipping norm; pass clip=True")
        table += len(block.values) * mechanism.largest(encoding)

    def noise(self, users: int) -> CountTable:
        """One draw for each coordinate; more users than sums have room for are refused."""
        most = self._mechanism.max_users(self._encoding)
        if users > most:
            raise ReportsError(
                "too-many-reports",
                f"{users:,} users are more than exact sums have room for under this plan, {most:,}; plan for as many "
                "users as there are",
            )
        return self._mechanism.draw(self._encoding, self._source)


def drawn(mechanism: NoisySums, size: int, source: RandomSource) -> CountTable:
    """U + step (N1 + stride N2) for each coordinate: whole numbers, at least 0."""
    total = np.zeros(size, dtype=np.int64)
    for factor, table in zip((1, mechanism.stride), mechanism.noise, strict=False):
        total += factor * table_draws(source, table.thresholds, size)
    low = random_uints(source, size, np.uint64) & np.uint64(mechanism.step - 1)
    found: CountTable = total * mechanism.step + low.astype(np.int64)
    return found
