"""One user in a thousand who adds no noise shows among millions of users, by the one event that tells best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum.audit.evidence import deviation
from shufflesum.audit.findings.laws import Floats, law_of_sum
from shufflesum.audit.findings.reach import EVIDENCE
from shufflesum.mechanisms import Places

__all__ = ["Rare", "rare_event"]

_SILENT = 1e-3  # the part of all users


class Rare(NamedTuple):
    """That a user's reports in all places together are so few, or so many: its chance, and who is enough to see it."""

    name: str
    counted: NDArray[np.float32]  # of each cell, and of one more for all that are none: 1 where it has a place
    edge: int
    few: bool
    chance: float
    users: float

    def happened(self, cells: NDArray[np.uint32]) -> int:
        """How many of these users, (users, reports), did it."""
        found = self.counted[np.minimum(cells, len(self.counted) - 1)]
        totals = found @ np.ones(found.shape[1], dtype=np.float32)
        return int(np.count_nonzero(totals <= self.edge if self.few else totals >= self.edge))


def rare_event(places: Places, silent: Floats) -> Rare | None:
    """The event that tells users whose counts have the chances `silent` from the others soonest; None where none does.

    Counts of places are added up: of two laws of a sum, the ratio is largest at an end.
    """
    usual, quiet = law_of_sum(places.trials, places.chances), law_of_sum(places.trials, silent)
    if usual is None or quiet is None or places.true.any():
        return None
    size = int(places.trials.sum()) + 1
    terms = np.zeros((2, size))
    for row, law in zip(terms, (usual, quiet), strict=True):
        row[law.lowest : law.lowest + len(law.terms)] = law.terms
    means = terms @ np.arange(size)
    few = bool(means[1] < means[0])
    chances, hits = np.cumsum(terms if few else terms[:, ::-1], axis=1)
    chances = np.minimum(1.0, chances + usual.beyond)
    seen = chances + _SILENT * np.maximum(0.0, hits - chances)
    evidence = np.where(seen > chances, deviation(seen, 1.0, chances), 0.0)
    best = int(np.argmax(evidence))
    if not evidence[best] > 0:
        return None
    edge = best if few else size - 1 - best
    name = f"{places.name}, by one user, {'at most' if few else 'at least'} {edge} times,"
    counted = np.append(places.place >= 0, False).astype(np.float32)
    users = max(EVIDENCE / float(evidence[best]), EVIDENCE / _SILENT)
    return Rare(name, counted, edge, few, float(chances[best]), users)
