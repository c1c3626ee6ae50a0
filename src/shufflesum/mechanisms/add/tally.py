"""All users' reports under `add` as one table, in one process: digits are summed, each cell's noise is drawn once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.cells import count_cells
from shufflesum.domain import Domain, Grouped
from shufflesum.mechanisms.mechanism import Table
from shufflesum.mechanisms.rounding import rounding_of
from shufflesum.randomness import RandomSource, Words
from shufflesum.randomness.binomial import binomials

if TYPE_CHECKING:
    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddTally"]

_MOST_ROWS = (1 << 16) - 1  # whose digits, added up, fit 16 bits
_VALUES = 1024  # added at once: short rows are taken together


@kernel
def _sum_digits(rounded: NDArray[Any], sums: NDArray[Any]) -> None:
    """Add binary digits to sums (digits, values), over and over, as many values at once; vectorised, being plain."""
    size = sums.shape[1]
    for first in range(0, rounded.size, size):
        values = rounded[first : first + size]
        for j in range(sums.shape[0]):
            digit = sums[j]
            shift = np.uint16(j)
            for c in range(values.size):
                digit[c] += np.uint16((values[c] >> shift) & np.uint16(1))


@kernel
def _sum_grouped(rounded: Words, groups: Words, digits: int, table: Table) -> None:
    """Add binary digits, and one for each user, to the cells of the users' groups: table is (groups, cells)."""
    for i in range(rounded.shape[0]):
        cells = table[groups[i]]
        for c in range(rounded.shape[1]):
            value = rounded[i, c]
            for j in range(digits):
                cells[c * digits + j] += np.int64((value >> j) & 1)
        cells[rounded.shape[1] * digits] += 1


class AddTally:
    """Sums of what is true of all rows added so far; the noise comes last, for all users at once."""

    def __init__(self, mechanism: Add, domain: Domain, source: RandomSource) -> None:
        self._mechanism = mechanism
        self._layout = mechanism.layout(domain)
        self._source = source
        self._rounding = rounding_of(mechanism.levels, domain, source)

    def add(self, prepared: Any, first_row: int, table: Table) -> None:
        """Add the digits, or the choices, of these users to the table of all cells."""
        if self._rounding is None:
            count_cells(prepared.reshape(-1), table)  # who chose fewer labels sends blanks, which are left out
        elif isinstance(prepared, Grouped):
            rounded = self._rounding.of(prepared.coordinates, first_row)
            _sum_grouped(rounded, prepared.groups, self._layout.digits, table.reshape(self._layout.groups, -1))
        else:
            self._add_box(self._rounding.of(prepared, first_row), table)

    def _add_box(self, rounded: NDArray[np.uint16], table: Table) -> None:
        digits, dimension = self._layout.digits, self._layout.coordinates
        at_once = max(1, _VALUES // dimension)
        for start in range(0, len(rounded), _MOST_ROWS):
            sums = np.zeros((digits, at_once, dimension), dtype=np.uint16)
            _sum_digits(rounded[start : start + _MOST_ROWS].reshape(-1), sums.reshape(digits, -1))
            table += sums.sum(axis=1, dtype=np.int64).T.reshape(-1)

    def noise(self, users: int) -> Table:
        """Binomial(users x trials, probability) for each cell, under a plan with a cap as well.

        The free law needs no charge; to draw again by what users together drew would need a proof of its own.
        """
        mechanism, layout = self._mechanism, self._layout
        noise = np.zeros(layout.cells, dtype=np.int64)
        for j, (trials, probability) in enumerate(zip(mechanism.trials, mechanism.probabilities, strict=True)):
            noise[layout.cells_of(j)] = binomials(self._source, users * trials, probability, layout.sizes[j])
        return noise
