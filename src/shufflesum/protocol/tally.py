"""All roles but the analyzer in one process, for whoever holds all rows: from rows straight to the table of counts.

Order carries nothing in a table, so counting shuffles perfectly. What is noise in users' reports may be drawn once for
all of them: the law of the table is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shufflesum._checks import OnlyOnce
from shufflesum.domain import Box, Categories, Domain, Groups, Missing
from shufflesum.errors import ReportsError
from shufflesum.plans import Plan, check_plan
from shufflesum.protocol.randomizer import rows_at_once
from shufflesum.randomness import RandomSource, SecureSource
from shufflesum.reports import Counts

__all__ = ["Tally", "check_rows"]


class Tally(OnlyOnce):
    """Adds up rows under a plan; `counts` draws what noise is left to draw, and ends it.

    Rows are taken and refused as by a `Randomizer`. Until `counts`, the table may hold bare sums: it is not private.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clip: bool = False,
        missing: Missing = "refuse",
        source: RandomSource | None = None,
        round_number: int = 1,
    ) -> None:
        check_plan(plan)
        plan.check_round(round_number)
        plan.domain.check_options(clip=clip, missing=missing)
        self.plan = plan
        self.round_number = round_number
        self.users = 0
        self._clip, self._missing = clip, missing
        self._domain = plan.domain.of_round(round_number)
        self._tally = plan.mechanism.tally(self._domain, source or SecureSource())
        self._table = np.zeros(plan.cells, dtype=np.int64)
        self._closed = False

    def add(self, arrays: Any, *, first_row: int = 0) -> None:
        """Add m users: arrays of shape (m, *shape), or what else the plan's domain takes."""
        self._refuse_if_closed()
        for block, first in _blocks(self.plan, self._domain, arrays, first_row):
            prepared = self._domain.prepare(block, first, clip=self._clip, missing=self._missing)
            self._tally.add(prepared, first, self._table)
            self.users += len(block)

    def merge(self, other: Tally) -> None:
        """Take over the rows of another tally of the same plan and round, before either draws its noise."""
        if other is self or other.plan.id != self.plan.id:
            raise ReportsError("other-plan", "only another tally of the same plan can be merged")
        if other.round_number != self.round_number:
            raise ReportsError(
                "other-round", f"a tally of round {other.round_number} cannot be merged into one of {self.round_number}"
            )
        self._refuse_if_closed()
        other._refuse_if_closed()
        self._table += other._table
        self.users += other.users
        other._closed = True

    def counts(self) -> Counts:
        """The table as the users' reports would have made it, blanks and all.

        It ends the tally: the same sums with other noise, or with a few rows more, would show what noise hides.
        """
        self._refuse_if_closed()
        self._closed = True
        counts = Counts(self.plan, self.round_number)
        counts.table += self._table + self._tally.noise(self.users)
        counts.blanks = self.users * self.plan.reports - counts.accepted
        if counts.blanks < 0:  # seen from the noisy table alone, so that it reveals nothing more
            raise ReportsError(
                "too-many-reports",
                f"noise drawn for all {self.users} users at once is more than the plan's reports of each can hold, "
                "which under a plan whose guarantee holds is next to impossible; there is no estimate: raise the cap",
            )
        return counts

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ReportsError("batch-closed", "this tally has been counted or merged; start a new one for other rows")


def check_rows(plan: Plan, arrays: Any, *, first_row: int = 0, clip: bool = False, missing: Missing = "refuse") -> None:
    """Refuse what `Tally.add` would refuse, and draw nothing: for whoever must know before something is spent."""
    domain = plan.domain
    for block, first in _blocks(plan, domain, arrays, first_row):
        prepared: Any = domain.prepare(block, first, clip=clip, missing=missing)
        match domain:  # all others are looked at while they are prepared
            case Box():
                domain.check_within(prepared, first)
            case Groups():
                domain.box.check_within(prepared.coordinates, first)
            case Categories():
                domain.check_codes(prepared, first)


def _blocks(plan: Plan, domain: Domain, arrays: Any, first_row: int) -> Iterator[tuple[Any, int]]:
    """Rows, some at a time, each with the number of its first."""
    rows: Any = domain.rows(arrays)
    # More reports than values are never made here, values are only rounded: that takes a fourth of the memory.
    reports, entries = plan.reports, domain.entries
    size = rows_at_once(plan, reports if reports <= entries else max(1, entries // 4))
    for start in range(0, len(rows), size):
        yield rows[start : start + size], first_row + start
