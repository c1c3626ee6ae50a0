"""The randomizer, run by each user on their own array (Algorithms 1 and 2 of the paper).

What a user's array becomes is the mechanism's affair; here it is cut into blocks, checked against the domain, and
handed on as reports. A single client and a simulated crowd are the same code with one row or many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from shufflesum._compiled import can_compile, uncompiled
from shufflesum.domain import Missing
from shufflesum.plans import Plan, check_plan, check_unaltered
from shufflesum.randomness import RandomSource, SecureSource
from shufflesum.reports import Reports

__all__ = ["Randomizer", "UnverifiedRandomizer", "rows_at_once"]

_BLOCK_REPORTS = 1 << 17  # so that a block's words, values and positions stay in a core's cache
_BLOCK_VALUES = 1 << 22  # so that a block of wide rows stays small where it must be copied


def rows_at_once(plan: Plan, numbers_each: int) -> int:
    """How many rows make a block, with so many numbers to draw for each."""
    return max(1, min(_BLOCK_REPORTS // numbers_each, _BLOCK_VALUES // plan.domain.entries))


class Randomizer:
    """Turns users' arrays into reports under a plan.

    Values out of bounds, NaN and infinities are refused unless `clip` moves values to the nearest bound and
    `missing="midpoint"` puts the middle of the bounds where a value is missing (which pulls the estimate towards that
    middle by the fraction missing). Randomness is secure unless a source is given, as tests do. Reports are for one
    round of the plan, `round_number`. With `compiled=False` kernels run as plain Python, by the same law, bit for bit:
    for a few rows that is quicker than compiling, and it is what happens where numba is not installed.
    """

    @staticmethod
    def _check_plan(plan: Plan) -> None:
        check_plan(plan)

    def __init__(
        self,
        plan: Plan,
        *,
        clip: bool = False,
        missing: Missing = "refuse",
        source: RandomSource | None = None,
        round_number: int = 1,
        compiled: bool | None = None,
    ) -> None:
        self._check_plan(plan)
        plan.check_round(round_number)
        plan.domain.check_options(clip=clip, missing=missing)
        self.plan = plan
        self.round_number = round_number
        self._domain = plan.domain.of_round(round_number)
        self._clip = clip
        self._missing = missing
        self.compiled = can_compile() if compiled is None else compiled
        self._encoder = plan.mechanism.encoder(self._domain, source or SecureSource())

    def randomize(self, arrays: Any) -> Reports:
        """Reports for arrays of shape (m, *shape), m >= 1: `plan.reports` of them for each row, each row one user.

        Under a plan for labels, m labels, lists of labels, or a pair of m groups and m arrays. Either every row is
        valid and all reports come back, or an error names the first value that is not.
        """
        rows = self._domain.rows(arrays)
        cells = np.empty(len(rows) * self.plan.reports, dtype=np.uint32)
        done = 0
        for block in self.blocks(rows):
            cells[done : done + len(block)] = block.cells
            done += len(block)
        return Reports(self.plan.id, cells, self.round_number)

    def blocks(self, arrays: Any, *, first_row: int = 0) -> Iterator[Reports]:
        """The same reports in pieces that stay in cache, for callers that count or store them as they come."""
        rows = self._domain.rows(arrays)
        size = rows_at_once(self.plan, self.plan.reports)
        for start in range(0, len(rows), size):
            yield self._randomize_block(rows[start : start + size], first_row + start)

    def _randomize_block(self, rows: Any, first_row: int) -> Reports:
        with self.kernels():
            prepared = self._domain.prepare(rows, first_row, clip=self._clip, missing=self._missing)
            return Reports(self.plan.id, self._encoder.encode(prepared, first_row), self.round_number)

    def kernels(self) -> AbstractContextManager[None]:
        """Within it kernels run as here: compiled, or as plain Python."""
        return nullcontext() if self.compiled else uncompiled()


class UnverifiedRandomizer(Randomizer):
    """For a plan whose guarantee somebody else verified: a client's task read with verify=False, a driver's plan."""

    @staticmethod
    def _check_plan(plan: Plan) -> None:
        check_unaltered(plan)
