"""A batch of reports: all that ever leaves a user's hands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum.errors import ReportsError

__all__ = ["Reports"]


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
            raise ReportsError("other-plan", f"reports of exactly one plan can be put together, not of {len(plans)}")
        rounds = sorted({piece.round_number for piece in given})
        if len(rounds) != 1:
            raise ReportsError(
                "other-round", f"reports of exactly one round can be put together, not of rounds {rounds[:10]}"
            )
        return replace(given[0], cells=np.concatenate([piece.cells for piece in given]))
