"""What travels and how it is counted: reports as single cells, and the table of counts; nothing of any mechanism."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import OnlyOnce, check_size
from shufflesum._compiled import kernel
from shufflesum.cells import BLANK, count_cells
from shufflesum.encodings import Positions
from shufflesum.errors import ReportsError
from shufflesum.plans import Plan, check_plan, check_unaltered
from shufflesum.randomness import RandomSource, SecureSource


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Reports of one round of a plan, each one cell: a 32-bit number whose meaning is the plan's mechanism's affair.

    Whether a cell exists in the plan is not decided here: whoever counts reports rejects those that do not.
    """

    plan_id: str
    cells: NDArray[np.uint32]
    round_number: int = 1
    by_position: tuple[int, ...] | None = None
    """How many there are of each position, one position after another, once a shuffler has added its noise.

    None where users draw the noise, and before: then users come one after another.
    """
    users: int | None = None
    """Whose reports the shuffler put together, wherever `by_position` is given; of a piece, those of all pieces."""

    def __post_init__(self) -> None:
        """Check the format, not the content."""
        if (self.by_position is None) != (self.users is None):
            raise ReportsError("wrong-type", "by_position and users are given together, or neither of them")
        if self.by_position is not None and self.users is not None:
            check_size("users", self.users, 0, (1 << 32) - 1)
            if not all(isinstance(number, int) and number >= 0 for number in self.by_position):
                raise ReportsError("wrong-type", "by_position must be whole numbers of reports, none below 0")
            if sum(self.by_position) != len(self.cells):
                raise ReportsError(
                    "wrong-length", f"by_position has {sum(self.by_position)} reports, but there are {len(self.cells)}"
                )
        if not isinstance(self.cells, np.ndarray) or self.cells.dtype != np.uint32 or self.cells.ndim != 1:
            raise ReportsError("wrong-type", "cells of reports must be a one-dimensional uint32 array")
        check_size("round_number", self.round_number, 1, (1 << 32) - 1)

    def __len__(self) -> int:
        """How many reports there are, blanks included (reports, not users)."""
        return len(self.cells)

    def __getitem__(self, part: slice) -> Reports:
        """A piece of the reports, without copying them."""
        cells = self.cells[part]
        if self.by_position is None:
            return replace(self, cells=cells)
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise ReportsError("wrong-type", "reports in the order of positions are cut into pieces, not thinned out")
        ends = np.clip(np.concatenate([[0], np.cumsum(self.by_position)]), start, max(start, stop))
        return replace(self, cells=cells, by_position=tuple(np.diff(ends).tolist()))

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
        cells = np.concatenate([piece.cells for piece in given])
        if {piece.users for piece in given} == {None}:
            return replace(given[0], cells=cells)
        if len({piece.users for piece in given}) != 1:
            raise ReportsError("mixed-reports", "pieces of one shuffled batch can be put together, not of several")
        found = np.array([piece.by_position for piece in given], dtype=np.int64)
        held = np.flatnonzero(found) % found.shape[1]  # the positions in each piece, one piece after another
        if (np.diff(held) < 0).any():
            raise ReportsError("mixed-reports", "pieces of a shuffled batch are put together in their order")
        return replace(given[0], cells=cells, by_position=tuple(found.sum(axis=0).tolist()))


class Counts(OnlyOnce):
    """How often each cell was reported, in one round of a plan; blanks and what names no cell are counted apart.

    Adding reports in pieces, in any order, or merging the tables of several shards gives the same table: order carries
    nothing, so a table of counts is itself a perfect shuffle. Once it is released it takes nothing more.

    Where servers draw the noise, `blanks` and `rejected` stay 0: exact numbers would say what noise hides. Where the
    analyzer draws, the table begins with its `draw`, before the first report, and is never seen without.
    """

    __slots__ = ("_counted", "_draw", "_received", "_users", "blanks", "plan", "rejected", "round_number", "table")

    _check_plan = staticmethod(check_plan)

    def __init__(
        self,
        plan: Plan,
        round_number: int = 1,
        *,
        draw: NDArray[np.int64] | None = None,
        source: RandomSource | None = None,
    ) -> None:
        self._check_plan(plan)
        plan.check_round(round_number)
        self.plan = plan
        self.round_number = round_number
        self.table: NDArray[np.int64] = np.zeros(plan.cells, dtype=np.int64)
        self.blanks = 0
        self.rejected = 0
        self._users = 0
        self._counted = False  # elsewhere: no reports were received here
        self._received = None if plan.positions is None else np.zeros(len(plan.positions), dtype=np.int64)
        self._draw: NDArray[np.int64] | None = None
        if plan.noise_by == "servers":
            self._draw = plan.mechanism.draw(plan.encoding, source or SecureSource()) if draw is None else draw
            self.table += self._draw

    @property
    def accepted(self) -> int:
        """Reports in the table, noise among them."""
        return int(self.table.sum())

    @property
    def received(self) -> int:
        """All reports: accepted, blank or rejected."""
        if self._received is not None:
            return int(self._received.sum())
        return self.accepted + self.blanks + self.rejected

    @property
    def users(self) -> int:
        """How many users the reports received come from: each sends the same number; or as many as a shuffler said."""
        return self._users if self._received is not None else self.received // self.plan.reports

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
        if self.plan.positions is not None:
            if self._counted:
                raise ReportsError("mixed-reports", "a table with its noise in it takes no further reports")
            self._add_shuffled(reports, self.plan.positions)
            return
        if outside := count_cells(reports.cells, self.table):
            blanks = int(np.count_nonzero(reports.cells == BLANK))
            self.blanks += blanks
            self.rejected += outside - blanks

    def _add_shuffled(self, reports: Reports, positions: Positions) -> None:
        if reports.by_position is None or reports.users is None:
            raise ReportsError(
                "wrong-stage",
                "these reports were not shuffled yet, and have no noise: shuffle(reports, plan=plan) adds it",
            )
        if len(reports.by_position) != len(positions):
            raise ReportsError(
                "plan-mismatch", f"{len(reports.by_position)} positions are given; the plan has {len(positions)}"
            )
        self._take_users(reports.users)
        found = np.array(reports.by_position, dtype=np.int64)
        count_at_positions(reports.cells, found, positions.first, self.table)
        assert self._received is not None
        self._received += found

    def add_table(self, table: NDArray[np.int64], users: int) -> None:
        """Add what was counted of so many users elsewhere, the noise of shuffler or process in it."""
        self._refuse_if_released()
        if self._counted or self.received:
            raise ReportsError("mixed-reports", "a table that was counted elsewhere goes into an empty one")
        self._take_users(users)
        self.table += table
        self._counted = True

    def _take_users(self, users: int) -> None:
        """All pieces are of one batch."""
        if self._users not in (0, users):
            raise ReportsError(
                "mixed-reports",
                f"these are of a shuffled batch of {users} users, those before of one of {self._users}; count each "
                "batch by itself",
            )
        self._users = users

    def missing(self) -> str | None:
        """What is missing or too many of a shuffled batch, by the numbers of reports alone; None where nothing is."""
        positions, received = self.plan.positions, self._received
        if positions is None or received is None or self._counted:
            return None
        sent = self._users * positions.reports
        added = np.add.reduceat(self.plan.mechanism.most_drawn(self.plan.encoding), positions.first[:-1])
        wrong = (received < sent) | (received > sent + added) | (positions.blank & (received != sent + added))
        if not wrong.any():
            return None
        return (
            f"{int(wrong.sum())} of {len(positions)} positions have other numbers of reports than {self._users} users "
            "and the shuffler's noise make"
        )

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
        if self._received is not None and other._received is not None:
            other._refuse_if_released()  # it would be released with a second draw
            if self._counted or other._counted:
                raise ReportsError("mixed-reports", "a table with its noise in it is a batch of its own")
            if other._users:
                self._take_users(other._users)
            self._received += other._received
            other.close()
        self.table += other.table if other._draw is None else other.table - other._draw  # one draw for all of them
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


@kernel
def count_at_positions(
    cells: NDArray[Any], by_position: NDArray[np.int64], first: NDArray[np.int64], table: NDArray[np.int64]
) -> None:
    """Add reports to the table, one position after another; what is no cell of its position is left out, untold."""
    start = 0
    for position in range(by_position.size):
        stop = start + by_position[position]
        for cell in cells[start:stop]:
            if first[position] <= cell < first[position + 1]:
                table[cell] += 1
        start = stop
