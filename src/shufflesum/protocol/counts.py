"""The mergeable d x K table of counts: everything the analyzer needs of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.contract import Plan
from shufflesum.errors import ReportsError
from shufflesum.protocol.reports import Reports

__all__ = ["Counts"]


@kernel
def _count(coordinates: NDArray[Any], values: NDArray[Any], table: NDArray[Any]) -> int:
    """Add reports to the table; returns how many lay outside it and were left out."""
    dimension, cells = table.shape
    flat = table.reshape(-1)
    rejected = 0
    for i in range(coordinates.size):
        if coordinates[i] < dimension and values[i] < cells:
            flat[np.uint64(coordinates[i]) * np.uint64(cells) + np.uint64(values[i])] += 1
        else:
            rejected += 1
    return rejected


class Counts:
    """How often each value was reported for each coordinate, under one plan.

    Adding reports in pieces, in any order, or merging the tables of several shards gives the same table: order carries
    nothing, so a table of counts is itself a perfect shuffle.
    """

    __slots__ = ("plan", "rejected", "table")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.table: NDArray[np.int64] = np.zeros((plan.dimension, plan.levels + 1), dtype=np.int64)
        self.rejected = 0

    @property
    def accepted(self) -> int:
        """Reports in the table."""
        return int(self.table.sum())

    def add(self, reports: Reports) -> None:
        """Count reports of the same plan; those outside its domain are rejected and counted as such."""
        if not isinstance(reports, Reports):
            raise ReportsError(f"reports from Randomizer.randomize are expected, not {type(reports).__name__}")
        if reports.plan_id != self.plan.id:
            raise ReportsError(
                f"these reports belong to plan {reports.plan_id[:12]}, this analyzer to plan {self.plan.id[:12]}; "
                "analyze reports with the plan they were made under"
            )
        self.rejected += _count(reports.coordinates, reports.values, self.table)

    def merge(self, other: Counts) -> None:
        """Add the table of another shard of the same batch."""
        if other is self:
            raise ReportsError("a table of counts cannot be merged with itself: every report would count twice")
        if other.plan.id != self.plan.id:
            raise ReportsError(
                f"cannot merge counts of plan {other.plan.id[:12]} into counts of plan {self.plan.id[:12]}"
            )
        self.table += other.table
        self.rejected += other.rejected
