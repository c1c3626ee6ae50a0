"""All users' reports under `add` as one table, in one process: digits are summed, each cell's noise is drawn once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.domain import Domain
from shufflesum.mechanisms.mechanism import Table
from shufflesum.mechanisms.rounding import Rounding
from shufflesum.randomness import RandomSource
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


class AddTally:
    """Sums of the digits of all rows added so far; the noise comes last, for all users at once."""

    def __init__(self, mechanism: Add, domain: Domain, source: RandomSource) -> None:
        self._mechanism = mechanism
        self._dimension = domain.dimension
        self._source = source
        self._rounding = Rounding(mechanism.levels, domain, source)

    def add(self, coordinates: NDArray[Any], first_row: int, table: Table) -> None:
        """Add the digits of (m, d) coordinates to the table of all cells."""
        rounded = self._rounding.of(coordinates, first_row)
        digits, at_once = self._mechanism.digits, max(1, _VALUES // self._dimension)
        for start in range(0, len(rounded), _MOST_ROWS):
            sums = np.zeros((digits, at_once, self._dimension), dtype=np.uint16)
            _sum_digits(rounded[start : start + _MOST_ROWS].reshape(-1), sums.reshape(digits, -1))
            table += sums.sum(axis=1, dtype=np.int64).T.reshape(-1)

    def noise(self, users: int) -> Table:
        """Binomial(users x trials, probability) for each cell, under a plan with a cap as well.

        The free law needs no charge; to draw again by what users together drew would need a proof of its own.
        """
        mechanism = self._mechanism
        noise = [
            binomials(self._source, users * trials, probability, self._dimension)
            for trials, probability in zip(mechanism.trials, mechanism.probabilities, strict=True)
        ]
        return np.stack(noise, axis=1).reshape(-1)
