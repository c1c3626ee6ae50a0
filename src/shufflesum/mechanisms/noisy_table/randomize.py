"""Rows under `noisy-table`: what is true of each user, position after position, or added up in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import BLANK, count_cells
from shufflesum.encodings import AttributeValues, ChosenCells, Marginals, MultiHot, OneHot, OwnCells
from shufflesum.mechanisms.mechanism import CountTable
from shufflesum.mechanisms.rounding import rounded_values
from shufflesum.randomness import RandomSource, UInts

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_table.mechanism import NoisyTable


@kernel
def _write_at_labels(codes: UInts, out: UInts) -> None:
    """Put each chosen cell at the position of its label."""
    for i in range(codes.shape[0]):
        for c in range(codes.shape[1]):
            if codes[i, c] != np.uint32(BLANK):
                out[i, codes[i, c]] = codes[i, c]


class NoisyTableEncoder:
    """Writes what is true, and nothing else: users draw no noise."""

    def __init__(self, mechanism: NoisyTable, encoding: OneHot | MultiHot | Marginals, source: RandomSource) -> None:
        self._positions, self._encoding, self._source = mechanism.positions(encoding), encoding, source

    def encode(self, block: OwnCells | ChosenCells | AttributeValues) -> NDArray[np.uint32]:
        """The cells that these users send, in the order of positions, user after user."""
        if isinstance(block, AttributeValues):
            assert isinstance(self._encoding, Marginals)
            return self._encoding.cells_of(rounded_values(block, self._source)).reshape(-1)
        if isinstance(block, OwnCells):
            block.check()
            return block.of_all_tables().astype(np.uint32).reshape(-1)
        if len(self._positions) == 1:  # for all that a user chose
            return block.cells.reshape(-1)
        sent = np.full((len(block), self._positions.each), BLANK, dtype=np.uint32)
        _write_at_labels(block.cells, sent)
        return sent.reshape(-1)


class NoisyTableTally:
    """Sums of what is true of all rows added so far; the noise comes last, once for each cell."""

    def __init__(self, mechanism: NoisyTable, encoding: OneHot | MultiHot | Marginals, source: RandomSource) -> None:
        self._mechanism, self._encoding, self._source = mechanism, encoding, source

    def add(self, block: OwnCells | ChosenCells | AttributeValues, table: CountTable) -> None:
        """Add what these users hold to the table of all cells."""
        if isinstance(block, AttributeValues):
            assert isinstance(self._encoding, Marginals)
            count_cells(self._encoding.cells_of(rounded_values(block, self._source)).reshape(-1), table)
            return
        if isinstance(block, ChosenCells):
            count_cells(block.cells.reshape(-1), table)  # who chose fewer labels sends blanks, which are left out
            return
        own = block.of_all_tables() if self._tables > 1 else block.draw(self._source)
        cells = own if own.dtype in (np.uint32, np.int64) else own.astype(np.int64)
        if count_cells(cells.reshape(-1), table):
            block.refuse(cells)

    def noise(self, users: int) -> CountTable:
        """One draw for each cell, that of the one process or of the shuffler."""
        return self._mechanism.draw(self._encoding, self._source)

    @property
    def _tables(self) -> int:
        return self._encoding.layout[0] if isinstance(self._encoding, OneHot) else 1
