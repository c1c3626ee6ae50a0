"""Values to positions on a scale of whole numbers, and random rounding: how every mechanism for numbers begins.

A value is rounded to one of the two nearest whole numbers so that its mean stays. The coin compares 15 bits, and looks
at further ones only on a tie.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import count_cells
from shufflesum.encodings import AttributeValues, Scale, Values
from shufflesum.mechanisms.mechanism import CountTable, Encoder
from shufflesum.randomness import SPARE_WORDS, RandomSource, UInts, random_uints

_UNIT_BITS = 15
_UNIT = 1 << _UNIT_BITS
_DRAFT = 1024  # values whose rare ties are looked for together: in one of 32 drafts there is one


@kernel
def outside_bounds(row: NDArray[Any], lower: NDArray[Any], upper: NDArray[Any]) -> bool:
    """Whether a value of the row lies out of bounds; NaN does. Branch-free, so that the compiler vectorises it."""
    inside = True
    for j in range(row.size):
        inside &= (row[j] >= lower[j]) & (row[j] <= upper[j])
    return not inside


@kernel
def positions_of_all(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    levels: float,
    out: NDArray[Any],
) -> int:
    """Every value's position in [0, levels], row after row; returns how many rows have a value out of bounds.

    Positions are clamped: bounds rounded to single precision let values pass that lie outside by as much.
    """
    outside = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        outside += outside_bounds(row, lower, upper)
        positions = out[i]
        for j in range(row.size):
            positions[j] = min(max((np.float64(row[j]) - origin[j]) * scale[j], 0.0), levels)
    return outside


@kernel
def _fixed_point(
    row: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    top: np.int32,
    out: NDArray[np.int32],
) -> bool:
    """Every value's position, in units of 2^-15, rounded down; returns whether one lies out of bounds, as NaN does.

    A plain loop, so that it is vectorised, as the next one; whole numbers are clamped faster than others.
    """
    inside = True
    for j in range(row.size):
        inside &= (row[j] >= lower[j]) & (row[j] <= upper[j])
        position = np.int32((np.float64(row[j]) - origin[j]) * scale[j])
        out[j] = min(max(position, np.int32(0)), top)
    return not inside


@kernel
def _draft_rounding(fixed: NDArray[np.int32], coins: UInts, out: UInts) -> np.int32:
    """Round down or up by coins of 15 bits; returns how many values these do not settle."""
    ties = np.int32(0)
    for j in range(fixed.size):
        coin = np.int32(coins[j] >> np.uint16(1))
        out[j] = np.uint16((fixed[j] + (np.int32(_UNIT - 1) - coin)) >> np.int32(_UNIT_BITS))
        ties += np.int32((fixed[j] & np.int32(_UNIT - 1)) == coin)
    return ties


@kernel
def _rounded(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    top: float,
    coins: UInts,
    spare: UInts,
    out: UInts,
) -> tuple[int, int]:
    """Round rows; returns how many have a value out of bounds, and how many are settled before `spare` ran out."""
    width = rows.shape[1]
    at_once = max(1, _DRAFT // width)
    fixed = np.empty(at_once * width, dtype=np.int32)
    outside, used = 0, 0
    for first in range(0, rows.shape[0], at_once):
        last = min(first + at_once, rows.shape[0])
        for i in range(first, last):
            positions = fixed[(i - first) * width : (i - first + 1) * width]
            outside += _fixed_point(rows[i], lower, upper, origin, scale, np.int32(top), positions)
        drafted = fixed[: (last - first) * width]
        begin, end = first * width, last * width
        ties = _draft_rounding(drafted, coins[begin:end], out[begin:end])
        if ties == 0:
            continue
        if spare.size - used < ties:
            return outside, first
        for k in range(drafted.size):
            if drafted[k] & (_UNIT - 1) == coins[begin + k] >> 1:
                i, j = divmod(k, width)
                position = min(max((np.float64(rows[first + i, j]) - origin[j]) * scale[j], 0.0), top)
                up = np.float64(spare[used] >> np.uint64(11)) * 2.0**-53 < position - drafted[k]
                used += 1
                out[begin + k] = np.uint16((drafted[k] >> _UNIT_BITS) + int(up))
    return outside, int(rows.shape[0])


class Rounding:
    """Values of all coordinates, rounded at random to whole numbers from 0 to `levels`, at most 65535."""

    def __init__(self, levels: int, scale: Scale, source: RandomSource) -> None:
        self._source = source
        self._origin, self._scale, self._top = scale.lower, levels * _UNIT / scale.width, float(levels * _UNIT)
        self._limits = {np.dtype(t): scale.limits(t) for t in (np.float32, np.float64)}

    def of(self, block: Values) -> NDArray[np.uint16]:
        """(m, d) whole numbers whose means are the positions of the values; valid until this thread rounds again.

        A value outside the limits is refused.
        """
        coordinates = block.values
        rows, width = coordinates.shape
        coins, out = (scratch(name, coordinates.size, np.uint16) for name in ("coins", "rounded"))
        self._source.fill(coins)
        lower, upper = self._limits[coordinates.dtype]
        done = outside = 0
        while done < rows:
            spare = random_uints(self._source, max(width, _DRAFT) // 256 + SPARE_WORDS, np.uint64)
            found, settled = _rounded(
                coordinates[done:],
                lower,
                upper,
                self._origin,
                self._scale,
                self._top,
                coins[done * width :],
                spare,
                out[done * width :],
            )
            done, outside = done + settled, outside + found
        if outside:
            block.refuse()
        return out.reshape(rows, width)


def rounded_values(block: AttributeValues, source: RandomSource) -> NDArray[np.uint32]:
    """The value of each attribute, (m, attributes), with users' numbers rounded at random: once for all tables."""
    if not block.numbers:
        return block.values
    values = block.values.copy()
    for attribute, levels, numbers in block.numbers:
        assert numbers.scale is not None  # numbers have bounds
        rounded = Rounding(levels, numbers.scale, source).of(numbers)[:, 0]
        given = values[:, attribute] == 0
        values[given, attribute] = rounded[given]
    return values


_buffers = threading.local()


def scratch(name: str, size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Memory for one block's work, kept by each thread: fresh pages for every block would cost more than the work."""
    buffer: NDArray[Any] | None = getattr(_buffers, name, None)
    if buffer is None or buffer.size < size:
        buffer = np.empty(size, dtype=dtype)
        setattr(_buffers, name, buffer)
    return buffer[:size]


@dataclass(frozen=True, slots=True)
class EncodedTally:
    """For mechanisms whose reports carry their own noise; a permutation would not change the table."""

    encoder: Encoder
    cells: int

    def add(self, block: Any, table: CountTable) -> None:
        """Count the reports of these users; every one names a cell."""
        count_cells(self.encoder.encode(block), table)

    def noise(self, users: int) -> CountTable:
        """Nothing more: it is in the reports."""
        return np.zeros(self.cells, dtype=np.int64)
