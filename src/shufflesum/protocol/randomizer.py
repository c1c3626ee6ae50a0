"""The randomizer, run by each user on their own array (Algorithm 2 of the paper).

It samples coordinates, rounds their values at random to the plan's levels, and replaces each, with the noise
probability, by a uniform one. A single client and a simulated crowd are the same code with one row or many.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._compiled import kernel
from shufflesum.contract import Plan
from shufflesum.domain import Missing
from shufflesum.errors import ParameterError
from shufflesum.protocol.draws import (
    NOISE_BITS,
    SPARE_WORDS,
    privatize,
    stratified_coordinates,
    uniform_coordinates,
)
from shufflesum.protocol.randomness import RandomSource, SecureSource, Words, words
from shufflesum.protocol.reports import Reports

__all__ = ["Randomizer"]

_BLOCK_REPORTS = 1 << 17  # so that a block's words, values and positions stay in a core's cache
_BLOCK_VALUES = 1 << 22  # so that a block of wide rows stays small where it must be copied


_buffers = threading.local()


def _scratch(name: str, size: int, dtype: type[np.generic]) -> NDArray[Any]:
    """Memory for one block's work, kept by each thread: fresh pages for every block would cost more than the work."""
    buffer: NDArray[Any] | None = getattr(_buffers, name, None)
    if buffer is None or buffer.size < size:
        buffer = np.empty(size, dtype=dtype)
        setattr(_buffers, name, buffer)
    return buffer[:size]


@kernel
def _outside(row: NDArray[Any], lower: NDArray[Any], upper: NDArray[Any]) -> bool:
    """Whether a value of the row lies out of bounds; NaN does. Branch-free, so that the compiler vectorises it."""
    inside = True
    for j in range(row.size):
        inside &= (row[j] >= lower[j]) & (row[j] <= upper[j])
    return not inside


@kernel
def _positions_of_all(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    levels: float,
    out: NDArray[Any],
) -> int:
    """Every value's place in [0, levels], row after row; returns how many rows have a value out of bounds.

    Places are clamped: bounds rounded to single precision let values pass that lie outside by as much.
    """
    outside = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        outside += _outside(row, lower, upper)
        places = out[i]
        for j in range(row.size):
            places[j] = min(max((np.float64(row[j]) - origin[j]) * scale[j], 0.0), levels)
    return outside


@kernel
def _positions_of_sampled(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    levels: float,
    coordinates: NDArray[Any],
    out: NDArray[Any],
) -> int:
    """The sampled values' places in [0, levels]; all values are checked, sampled or not."""
    outside = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        outside += _outside(row, lower, upper)
        for j in range(coordinates.shape[1]):
            c = coordinates[i, j]
            out[i, j] = min(max((np.float64(row[c]) - origin[c]) * scale[c], 0.0), levels)
    return outside


class Randomizer:
    """Turns users' arrays into reports under a plan.

    Values out of bounds, NaN and infinities are refused unless `clip` moves values to the nearest bound and
    `missing="midpoint"` puts the middle of the bounds where a value is missing (which pulls the estimate towards that
    middle by the fraction missing). Randomness is secure unless a source is given, as tests do.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clip: bool = False,
        missing: Missing = "refuse",
        source: RandomSource | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise ParameterError(f"a plan is expected, from shufflesum.plan or Plan.load, not {type(plan).__name__}")
        plan.domain.check_missing(missing)
        self.plan = plan
        self._clip = clip
        self._missing = missing
        self._source = source or SecureSource()
        self._noise_numerator = np.uint64(plan.noise_probability * 2.0**NOISE_BITS)
        self._every_coordinate: Words = np.empty((0, plan.dimension), dtype=np.uint32)
        self._origin = plan.domain.lower
        self._scale = plan.levels / plan.domain.width
        self._limits = {np.dtype(t): plan.domain.limits(t) for t in (np.float32, np.float64)}

    def randomize(self, arrays: ArrayLike) -> Reports:
        """Reports for arrays of shape (m, *shape), m >= 1: `reports` of them for each row, each row one user.

        Either every row is valid and all reports come back, or an error names the first value that is not.
        """
        rows = self.plan.domain.rows(arrays)
        coordinates = np.empty(len(rows) * self.plan.reports, dtype=np.uint32)
        values = np.empty(len(coordinates), dtype=np.uint16)
        done = 0
        for block in self.blocks(rows):
            here = slice(done, done + len(block))
            coordinates[here], values[here] = block.coordinates, block.values
            done += len(block)
        return Reports(self.plan.id, coordinates, values)

    def blocks(self, arrays: ArrayLike, *, first_row: int = 0) -> Iterator[Reports]:
        """The same reports in pieces that stay in cache, for callers that count or store them as they come."""
        rows = self.plan.domain.rows(arrays)
        size = max(1, min(_BLOCK_REPORTS // self.plan.reports, _BLOCK_VALUES // self.plan.dimension))
        for start in range(0, len(rows), size):
            yield self._randomize_block(rows[start : start + size], first_row + start)

    def _randomize_block(self, rows: NDArray[Any], first_row: int) -> Reports:
        prepared = self.plan.domain.prepare(rows, first_row, clip=self._clip, missing=self._missing)
        lower, upper = self._limits[prepared.dtype]
        coordinates = self._sample_coordinates(len(prepared))
        positions = _scratch("positions", coordinates.size, np.float64).reshape(coordinates.shape)
        units = (self._origin, self._scale, float(self.plan.levels))
        if self.plan.reports == self.plan.dimension:
            outside = _positions_of_all(prepared, lower, upper, *units, positions)
        else:
            outside = _positions_of_sampled(prepared, lower, upper, *units, coordinates, positions)
        if outside:
            self.plan.domain.refuse(prepared, first_row)
        return Reports(self.plan.id, coordinates.reshape(-1), self._privatize(positions.reshape(-1)))

    def _sample_coordinates(self, users: int) -> Words:
        """(users, reports) coordinates, drawn independently of the data."""
        dimension, reports = self.plan.dimension, self.plan.reports
        if reports == dimension:  # both schemes report every coordinate once
            if len(self._every_coordinate) < users:
                self._every_coordinate = np.tile(np.arange(dimension, dtype=np.uint32), (users, 1))
                self._every_coordinate.setflags(write=False)  # all blocks share it
            return self._every_coordinate[:users]
        coordinates: Words = np.empty((users, reports), dtype=np.uint32)
        urn = np.arange(dimension if self.plan.sampling == "uniform" else 0, dtype=np.uint32)
        done = 0
        while done < users:
            left = coordinates[done:]
            drawn = words(self._source, left.size + left.size // 64 + SPARE_WORDS, np.uint32)
            if self.plan.sampling == "uniform":
                done += uniform_coordinates(drawn, dimension, urn, left)
            else:
                done += stratified_coordinates(drawn, dimension, reports, left)
        return coordinates

    def _privatize(self, positions: NDArray[np.float64]) -> NDArray[np.uint16]:
        drawn = _scratch("words", 3 * positions.size, np.uint16)
        self._source.fill(drawn)
        coins, noise, fresh = drawn.reshape(3, -1)
        values = np.empty(positions.size, dtype=np.uint16)
        done = 0
        while done < positions.size:
            spare = words(self._source, 4 * SPARE_WORDS, np.uint64)
            done += privatize(
                positions[done:],
                coins[done:],
                noise[done:],
                fresh[done:],
                spare,
                self.plan.levels,
                self._noise_numerator,
                values[done:],
            )
        return values
