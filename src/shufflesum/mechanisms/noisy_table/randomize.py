"""Rows under `noisy-table`: what is true of each user, position after position, or added up in one process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK, count_cells
from shufflesum.encodings import (
    AttributeValues,
    ChosenCells,
    GroupedValues,
    Marginals,
    MultiHot,
    OneHot,
    OwnCells,
    Values,
)
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.mechanisms.noisy_table.digits import Digits
from shufflesum.mechanisms.rounding import Rounding, rounded_values
from shufflesum.randomness import RandomSource, UInts

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_table.mechanism import NoisyTable

_Layout = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
Data = OwnCells | ChosenCells | GroupedValues | Values | AttributeValues
Table = OneHot | MultiHot | Marginals


@kernel
def _write_at_labels(codes: UInts, out: UInts) -> None:
    """Put each chosen cell at the position of its label."""
    for i in range(codes.shape[0]):
        for c in range(codes.shape[1]):
            if codes[i, c] != np.uint32(BLANK):
                out[i, codes[i, c]] = codes[i, c]


@kernel
def _write_digits(
    rounded: UInts,
    groups: UInts,
    cell_of: NDArray[np.int64],
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: UInts,
) -> None:
    """Write the cell of each digit at its position, or a blank, and the cell of the group's count if there is one."""
    digits = sizes.size
    for i in range(rounded.shape[0]):
        group = np.int64(groups[i])
        for c in range(rounded.shape[1]):
            for j in range(digits):
                cell, position = cell_of[rounded[i, c], j], c * digits + j
                if cell < 0:
                    out[i, position] = np.uint32(BLANK)
                else:
                    out[i, position] = np.uint32(first[position] + group * sizes[j] + cell)
        if counts.size:
            out[i, rounded.shape[1] * digits] = np.uint32(counts[0] + group)


@kernel
def _count_digits(
    rounded: UInts,
    groups: UInts,
    cell_of: NDArray[np.int64],
    sizes: NDArray[np.int64],
    first: NDArray[np.int64],
    counts: NDArray[np.int64],
    table: CountTable,
) -> None:
    """Add the cell of each digit, unless it is blank, and that of the group's count to the table."""
    digits = sizes.size
    for i in range(rounded.shape[0]):
        group = np.int64(groups[i])
        for c in range(rounded.shape[1]):
            value = rounded[i, c]
            for j in range(digits):
                cell = cell_of[value, j]
                if cell >= 0:
                    table[first[c * digits + j] + group * sizes[j] + cell] += 1
        if counts.size:
            table[counts[0] + group] += 1


@kernel
def _count_levels(rounded: UInts, groups: UInts, counts: CountTable) -> None:
    """Count how often each coordinate has each number in each group: one addition, however many digits it has."""
    for i in range(rounded.shape[0]):
        own = counts[groups[i]]
        for c in range(rounded.shape[1]):
            own[c, rounded[i, c]] += 1


_MOST_COUNTS = 1 << 17  # of groups, coordinates and numbers: a megabyte, within a core's cache


class _DigitCells:
    """Where the digits of users' numbers are, in the cells of their group."""

    def __init__(self, mechanism: NoisyTable, encoding: Table, source: RandomSource) -> None:
        self._rounding: Rounding | None = None
        if isinstance(encoding, MultiHot) and encoding.scale is not None:
            digits, first = Digits(mechanism.radices), mechanism.positions(encoding).first
            self._rounding = Rounding(digits.levels, encoding.scale, source)
            counts, self._groups = first[-2:-1] if encoding.counted else first[:0], encoding.groups
            self._layout: _Layout = digits.cell_of, np.array(digits.sizes, dtype=np.int64), first, counts

    def add(self, block: GroupedValues | Values, table: CountTable) -> None:
        """Add the cells of these users' digits, and of their groups, to the table."""
        rounded, groups, (cell_of, sizes, first, counts) = self(block)
        shape = self._groups, rounded.shape[1], len(cell_of)
        if math.prod(shape) > min(_MOST_COUNTS, rounded.size):
            _count_digits(rounded, groups, cell_of, sizes, first, counts, table)
            return
        held: CountTable = np.zeros(shape, dtype=np.int64)
        _count_levels(rounded, groups, held)
        each = [held @ (cell_of[:, [j]] == np.arange(size)) for j, size in enumerate(sizes.tolist())]
        digits = np.concatenate([one.transpose(1, 0, 2).reshape(shape[1], -1) for one in each], axis=1).reshape(-1)
        table[: digits.size] += digits
        if counts.size:
            table[digits.size :] += held[:, 0].sum(axis=1)  # everybody in a group has one number at each coordinate

    def __call__(self, block: GroupedValues | Values) -> tuple[UInts, UInts, _Layout]:
        """Rounded numbers, groups and the layout of cells, as the kernels take them."""
        assert self._rounding is not None  # numbers have a scale
        if isinstance(block, GroupedValues):
            return self._rounding.of(block.numbers), block.groups, self._layout
        return self._rounding.of(block), np.zeros(len(block), dtype=np.uint32), self._layout


class NoisyTableEncoder:
    """Writes what is true, and nothing else: users draw no noise, but for the coins that round their numbers."""

    def __init__(self, mechanism: NoisyTable, encoding: Table, source: RandomSource) -> None:
        self._positions, self._encoding, self._source = mechanism.positions(encoding), encoding, source
        self._digit_cells = _DigitCells(mechanism, encoding, source)

    def encode(self, block: Data) -> NDArray[np.uint32]:
        """The cells that these users send, in the order of positions, user after user."""
        if isinstance(block, AttributeValues):
            assert isinstance(self._encoding, Marginals)
            return self._encoding.cells_of(rounded_values(block, self._source)).reshape(-1)
        if isinstance(block, OwnCells):
            block.check()
            return block.of_all_tables().astype(np.uint32).reshape(-1)
        if isinstance(block, ChosenCells) and len(self._positions) == 1:  # for all that a user chose
            return block.cells.reshape(-1)
        sent = np.full((len(block), self._positions.each), BLANK, dtype=np.uint32)
        if isinstance(block, ChosenCells):
            _write_at_labels(block.cells, sent)
        else:
            rounded, groups, layout = self._digit_cells(block)
            _write_digits(rounded, groups, *layout, sent)
        return sent.reshape(-1)


class NoisyTableTally:
    """Sums of what is true of all rows added so far; the noise comes last, once for each cell."""

    def __init__(self, mechanism: NoisyTable, encoding: Table, source: RandomSource) -> None:
        self._mechanism, self._encoding, self._source = mechanism, encoding, source
        self._tables = encoding.layout[0] if isinstance(encoding, OneHot) else 1
        self._digit_cells = _DigitCells(mechanism, encoding, source)

    def add(self, block: Data, table: CountTable) -> None:
        """Add what these users hold to the table of all cells."""
        if isinstance(block, AttributeValues):
            assert isinstance(self._encoding, Marginals)
            count_cells(self._encoding.cells_of(rounded_values(block, self._source)).reshape(-1), table)
        elif isinstance(block, ChosenCells):
            count_cells(block.cells.reshape(-1), table)  # who chose fewer labels sends blanks, which are left out
        elif isinstance(block, OwnCells):
            own = block.of_all_tables() if self._tables > 1 else block.draw(self._source)
            cells = own if own.dtype in (np.uint32, np.int64) else own.astype(np.int64)
            if count_cells(cells.reshape(-1), table):
                block.refuse(cells)
        else:
            self._digit_cells.add(block, table)

    def noise(self, users: int) -> CountTable:
        """One draw for each cell, that of the one process or of the shuffler."""
        return self._mechanism.draw(self._encoding, self._source)
