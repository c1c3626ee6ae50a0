"""Rows to reports under `randomized-response` (Algorithms 1 and 2 of the paper).

It samples coordinates, rounds their values at random to the levels, and replaces each, with the noise probability, by
a uniform one. A coin of rational probability compares 16 bits and looks at further bits only on a tie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK
from shufflesum.encodings import Cells, Scale, Values
from shufflesum.mechanisms.rounding import outside_bounds, positions_of_all, scratch
from shufflesum.randomness import (
    PROBABILITY_BITS,
    SPARE_WORDS,
    RandomSource,
    UInts,
    bounded,
    random_uints,
    stratified_coordinates,
    uniform_coordinates,
    uniform_or_blank,
)

if TYPE_CHECKING:
    from shufflesum.mechanisms.randomized_response.mechanism import RandomizedResponse


_SCAN = 1024  # values whose rare ties and rejections are looked for together


@kernel
def _positions_of_sampled(
    rows: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    origin: NDArray[Any],
    scale: NDArray[Any],
    levels: float,
    values: int,
    coordinates: NDArray[Any],
    out: NDArray[Any],
) -> int:
    """The sampled values' positions in [0, levels]; all values are checked, sampled or not.

    Each coordinate is replaced by the number of its first cell.
    """
    outside = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        outside += outside_bounds(row, lower, upper)
        for j in range(coordinates.shape[1]):
            c = coordinates[i, j]
            out[i, j] = min(max((np.float64(row[c]) - origin[c]) * scale[c], 0.0), levels)
            coordinates[i, j] = np.uint32(c * values)
    return outside


@kernel
def _draft(
    first_cells: UInts,
    positions: UInts,
    coins: UInts,
    noise: UInts,
    fresh: UInts,
    levels: int,
    digit: np.int32,
    out: UInts,
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
        value = product >> np.int32(16) if decided < digit else rounded
        out[i] = np.uint32(first_cells[i] + np.uint32(value))
        rejected = np.int32((product & np.int32(65535)) < unfair) & np.int32(decided < digit)
        unsettled += np.int32(coin == fraction) | np.int32(decided == digit) | rejected
    return unsettled


@kernel
def privatize(
    first_cells: UInts,
    positions: UInts,
    coins: UInts,
    noise: UInts,
    fresh: UInts,
    spare: UInts,
    levels: int,
    noise_numerator: np.uint64,
    out: UInts,
) -> int:
    """Algorithm 1 of the paper on rounded values: out[i] is first_cells[i] and up to `levels` more.

    positions[i] in [0, levels] is rounded at random, and replaced by a uniform value with the noise probability.

    Three 16-bit words a value: `coins` round at random, `noise` decides keep or replace, `fresh` is the uniform
    replacement, drawn apart from the word that decided. Ties and rejections take 64-bit words from `spare`. Returns
    how many leading values are settled: fewer than all where `spare` ran low.
    """
    cells, unfair = levels + 1, 65536 % (levels + 1)
    digit = np.int32(noise_numerator >> np.uint64(PROBABILITY_BITS - 16))
    rest = noise_numerator & np.uint64((1 << (PROBABILITY_BITS - 16)) - 1)
    used = 0
    for start in range(0, positions.size, _SCAN):
        stretch = slice(start, start + _SCAN)
        drafted = out[stretch]
        unsettled = _draft(
            first_cells[stretch],
            positions[stretch],
            coins[stretch],
            noise[stretch],
            fresh[stretch],
            levels,
            digit,
            drafted,
        )
        if unsettled == 0:
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
                replace = (spare[used] >> np.uint64(64 - PROBABILITY_BITS + 16)) < rest
                used += 1
            value = min(floor + int(up), levels)
            if replace:
                value = -1 if rejected else product >> 16
                while value < 0 and used < spare.size:
                    value = int(bounded(np.uint32(spare[used] >> np.uint64(32)), np.uint64(cells)))
                    used += 1
                if value < 0:
                    return i
            out[i] = np.uint32(first_cells[i] + np.uint32(value))
    return int(positions.size)


class RandomizedResponseEncoder:
    """Rounds, samples and replaces, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: RandomizedResponse, scale: Scale, dimension: int, source: RandomSource) -> None:
        self._mechanism = mechanism
        self._dimension = dimension
        self._source = source
        self._noise_numerator = np.uint64(mechanism.noise_probability * 2.0**PROBABILITY_BITS)
        self._origin = scale.lower
        self._scale = mechanism.levels / scale.width
        self._limits = {np.dtype(t): scale.limits(t) for t in (np.float32, np.float64)}
        self._cells_of_all: UInts = np.empty((0, dimension), dtype=np.uint32)

    def encode(self, block: Values) -> NDArray[np.uint32]:
        """The cells that these users send: one for each sampled coordinate, user after user."""
        mechanism, coordinates, users = self._mechanism, block.values, len(block)
        lower, upper = self._limits[coordinates.dtype]
        units = (self._origin, self._scale, float(mechanism.levels))
        positions = scratch("positions", users * mechanism.coordinates, np.float64).reshape(users, -1)
        if mechanism.coordinates == self._dimension:  # both schemes report every coordinate once
            first_cells = self._first_cells_of_all(users)
            outside = positions_of_all(coordinates, lower, upper, *units, positions)
        else:
            first_cells = self._sample(users)
            outside = _positions_of_sampled(coordinates, lower, upper, *units, mechanism.values, first_cells, positions)
        if outside:
            block.refuse()
        return self._privatize(first_cells.reshape(-1), positions.reshape(-1))

    def _first_cells_of_all(self, users: int) -> UInts:
        if len(self._cells_of_all) < users:
            row = np.arange(self._dimension, dtype=np.uint32) * np.uint32(self._mechanism.values)
            self._cells_of_all = np.tile(row, (users, 1))
        return self._cells_of_all[:users]

    def _sample(self, users: int) -> UInts:
        """(users, coordinates) coordinates, drawn independently of the data."""
        dimension, sampled = self._dimension, self._mechanism.coordinates
        uniform = self._mechanism.sampling == "uniform"
        coordinates: UInts = np.empty((users, sampled), dtype=np.uint32)
        urn = np.arange(dimension if uniform else 0, dtype=np.uint32)
        done = 0
        while done < users:
            left = coordinates[done:]
            drawn = random_uints(self._source, left.size + left.size // 64 + SPARE_WORDS, np.uint32)
            if uniform:
                done += uniform_coordinates(drawn, dimension, urn, left)
            else:
                done += stratified_coordinates(drawn, dimension, sampled, left)
        return coordinates

    def _privatize(self, first_cells: UInts, positions: NDArray[np.float64]) -> NDArray[np.uint32]:
        drawn = scratch("words", 3 * positions.size, np.uint16)
        self._source.fill(drawn)
        coins, noise, fresh = drawn.reshape(3, -1)
        cells = np.empty(positions.size, dtype=np.uint32)
        done = 0
        while done < positions.size:
            spare = random_uints(self._source, 4 * SPARE_WORDS, np.uint64)
            done += privatize(
                first_cells[done:],
                positions[done:],
                coins[done:],
                noise[done:],
                fresh[done:],
                spare,
                self._mechanism.levels,
                self._noise_numerator,
                cells[done:],
            )
        return cells


class RandomizedResponseLabelsEncoder:
    """Randomized response over labels, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: RandomizedResponse, source: RandomSource) -> None:
        self._mechanism, self._source = mechanism, source

    def encode(self, block: Cells) -> NDArray[np.uint32]:
        """One cell for each user: the own label, or a uniform one."""
        block.check()
        cells = uniform_or_blank(self._source, len(block), self._mechanism.noise_probability, self._mechanism.values)
        np.copyto(cells, block.cells.astype(np.uint32), where=cells == BLANK)
        return cells
