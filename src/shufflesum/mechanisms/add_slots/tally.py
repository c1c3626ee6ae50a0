"""All users' reports under `add` with slots as one table, in one process: labels are counted, noise is drawn once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shufflesum.domain import Categories, Hashed
from shufflesum.mechanisms.add_slots.truth import count_codes, truth_of
from shufflesum.mechanisms.mechanism import Table
from shufflesum.randomness import RandomSource
from shufflesum.randomness.binomial import binomials
from shufflesum.randomness.trials import add_uniform

if TYPE_CHECKING:
    from shufflesum.mechanisms.add_slots.mechanism import AddSlots

__all__ = ["SlotsTally"]


class SlotsTally:
    """Counts of all rows added so far; the noise comes last, for all users at once, by the same law as their slots'."""

    def __init__(self, mechanism: AddSlots, domain: Categories | Hashed, source: RandomSource) -> None:
        self._mechanism, self._domain, self._source = mechanism, domain, source
        self._truth = truth_of(domain, source)

    def add(self, prepared: Any, first_row: int, table: Table) -> None:
        """Count the users' own cells."""
        if isinstance(self._domain, Categories):
            codes = prepared if prepared.dtype in (np.uint32, np.int64) else prepared.astype(np.int64)
            if count_codes(codes, table):
                self._domain.refuse(codes, first_row)
            return
        count_codes(self._truth(prepared, first_row), table)

    def noise(self, users: int) -> Table:
        """Binomial(users x slots, chance) reports, each in a uniform cell."""
        noise = np.zeros(self._mechanism.cells(self._domain), dtype=np.int64)
        (reports,) = binomials(self._source, users * self._mechanism.slots, self._mechanism.chance, 1)
        add_uniform(self._source, int(reports), noise)
        return noise
