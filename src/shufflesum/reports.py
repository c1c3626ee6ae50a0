"""What travels and how it is counted: reports as single cells, and the table of counts; nothing of any mechanism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import OnlyOnce, check_size
from shufflesum.cells import BLANK, count_cells
from shufflesum.errors import ReportsError
from shufflesum.plans import Plan, check_plan, check_unaltered


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Reports of one round of a plan, each one cell: a 32-bit number whose meaning is the plan's mechanism's affair.

    Whether a cell exists in the plan is not decided here: whoever counts reports rejects those that do not.
    """

    plan_id: str
    cells: NDArray[np.uint32]
    round_number: int = 1

    def __post_init__(self) -> None:
        """Check the format, not the content."""
        if not isinstance(self.cells, np.ndarray) or self.cells.dtype != np.uint32 or self.cells.ndim != 1:
            raise ReportsError("wrong-type", "cells of reports must be a one-dimensional uint32 array")
        check_size("round_number", self.round_number, 1, (1 << 32) - 1)

    def __len__(self) -> int:
        """How many reports there are, blanks included (reports, not users)."""
        return len(self.cells)

    def __getitem__(self, part: slice) -> Reports:
        """A piece of the reports, without copying them."""
        return replace(self, cells=self.cells[part])

    @staticmethod
    def concatenate(pieces: Iterable[Reports]) -> Reports:
        """Put pieces of one round of a plan together, in order."""
        given = list(pieces)
        plans = {piece.plan_id for piece in given}
        if len(plans) != 1:
            raise ReportsError("plan-mismatch", f"reports of exactly one plan can be put together, not of {len(plans)}")
        rounds = sorted({piece.round_number for piece in given})
        if len(rounds) != 1:
            raise ReportsError(
                "round-mismatch", f"reports of exactly one round can be put together, not of rounds {rounds[:10]}"
            )
        return replace(given[0], cells=np.concatenate([piece.cells for piece in given]))


class Counts(OnlyOnce):
    """How often each cell was reported, in one round of a plan; blanks and what names no cell are counted apart.

    Adding reports in pieces, in any order, or merging the tables of several shards gives the same table: order carries
    nothing, so a table of counts is itself a perfect shuffle. Once it is released it takes nothing more.
    """

    __slots__ = ("blanks", "plan", "rejected", "round_number", "table")

    _check_plan = staticmethod(check_plan)

    def __init__(self, plan: Plan, round_number: int = 1) -> None:
        self._check_plan(plan)
        plan.check_round(round_number)
        self.plan = plan
        self.round_number = round_number
        self.table: NDArray[np.int64] = np.zeros(plan.cells, dtype=np.int64)
        self.blanks = 0
        self.rejected = 0

    @property
    def accepted(self) -> int:
        """Reports in the table."""
        return int(self.table.sum())

    @property
    def received(self) -> int:
        """All reports: accepted, blank or rejected."""
        return self.accepted + self.blanks + self.rejected

    @property
    def users(self) -> int:
        """How many users the reports received come from: each sends the same number."""
        return self.received // self.plan.reports

    def add(self, reports: Reports) -> None:
        """Count reports of the same plan and round; those that name no cell of it are rejected and counted as such."""
        if not isinstance(reports, Reports):
            raise ReportsError(
                "wrong-type", f"reports from Randomizer.randomize are expected, not {type(reports).__name__}"
            )
        if reports.plan_id != self.plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"these reports belong to plan {reports.plan_id[:12]}, this analyzer to plan {self.plan.id[:12]}; "
                "analyze reports with the plan they were made under",
            )
        self._check_round(reports.round_number)
        self._refuse_if_released()
        if outside := count_cells(reports.cells, self.table):
            blanks = int(np.count_nonzero(reports.cells == BLANK))
            self.blanks += blanks
            self.rejected += outside - blanks

    def merge(self, other: Counts) -> None:
        """Add the table of another shard of the same batch."""
        if other is self:
            raise ReportsError(
                "counted-twice", "a table of counts cannot be merged with itself: every report would count twice"
            )
        if other.plan.id != self.plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"cannot merge counts of plan {other.plan.id[:12]} into counts of plan {self.plan.id[:12]}",
            )
        self._check_round(other.round_number)
        self._refuse_if_released()
        self.table += other.table
        self.blanks += other.blanks
        self.rejected += other.rejected

    def close(self) -> None:
        """Take nothing more: a second estimate with a few reports more would show those few by the difference."""
        self.table.setflags(write=False)

    def _refuse_if_released(self) -> None:
        if not self.table.flags.writeable:
            raise ReportsError("batch-closed", "this table was released already, so it takes no more reports")

    def _check_round(self, other: int) -> None:
        if other != self.round_number:
            raise ReportsError(
                "round-mismatch",
                f"round {other} cannot be counted with round {self.round_number}: each round has an estimate of its "
                "own; keep their reports apart",
            )


class UnverifiedCounts(Counts):
    """For a part of a batch, counted where nothing is released; whoever adds up all parts verified the plan."""

    __slots__ = ()

    _check_plan = staticmethod(check_unaltered)
