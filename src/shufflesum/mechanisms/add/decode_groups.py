"""A table of counts to sums and counts of groups, under `add` (docs/accuracy.md).

The noise of a cell is Binomial(users q, p), public and independent from cell to cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shufflesum.mechanisms.coins import binomial_ends
from shufflesum.mechanisms.mechanism import Floats, Table

if TYPE_CHECKING:
    from shufflesum.mechanisms.add.layout import Layout
    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddGroupSums"]


@dataclass(frozen=True, slots=True, eq=False)
class AddGroupSums:
    """Users and sums of each group, values as fractions of the width of their bounds."""

    mechanism: Add
    layout: Layout
    table: Table
    users: int

    @property
    def counts(self) -> Floats:
        """Unbiased numbers of users."""
        return self._grouped[:, -1].astype(np.float64) - self.users * float(self.mechanism.noise_means[-1])

    @property
    def sums(self) -> Floats:
        """Digits added up, less the mean of the noise."""
        digits = self._grouped[:, :-1].reshape(self.layout.groups, self.layout.coordinates, self.layout.digits)
        sums: Floats = (digits - self.users * self.mechanism.noise_means[:-1]) @ self.mechanism.weights
        return sums

    @property
    def count_variance(self) -> float:
        """Public and exact."""
        return self.users * float(self.mechanism.noise_variances[-1])

    @property
    def sum_variance(self) -> float:
        """Public and exact."""
        return self.users * self.mechanism.noise_of_sum

    @property
    def rounding(self) -> float:
        """A coin between two neighbours on the scale of whole numbers."""
        return 1 / (4 * self.mechanism.levels**2)

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """What is left of a count when the noise is as small or as large as it is with this chance: exact."""
        low, high = binomial_ends(self.users * self.mechanism.trials[-1], self.mechanism.probabilities[-1], tail)
        counted = self._grouped[:, -1]
        return (counted - high).astype(np.float64), (counted - low).astype(np.float64)

    @property
    def _grouped(self) -> Table:
        return self.table.reshape(self.layout.groups, self.layout.group_cells)
