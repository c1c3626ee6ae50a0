"""A batch of reports: all that ever leaves a user's hands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import ReportsError

__all__ = ["Reports"]


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Reports (coordinate, value) under one plan, as two arrays of equal length.

    Whether a report lies in the plan's domain is not decided here: whoever counts reports rejects those outside it.
    """

    plan_id: str
    coordinates: NDArray[np.uint32]
    values: NDArray[np.uint16]

    def __post_init__(self) -> None:
        """Check the format, not the content."""
        for name, array, dtype in (
            ("coordinates", self.coordinates, np.uint32),
            ("values", self.values, np.uint16),
        ):
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != 1:
                raise ReportsError(f"{name} of reports must be a one-dimensional {np.dtype(dtype)} array")
        if len(self.coordinates) != len(self.values):
            raise ReportsError(
                f"reports have {len(self.coordinates)} coordinates but {len(self.values)} values; "
                "each report is one of each"
            )

    def __len__(self) -> int:
        """How many reports there are (reports, not users)."""
        return len(self.coordinates)

    def __getitem__(self, part: slice) -> Reports:
        """A piece of the reports, without copying them."""
        return Reports(self.plan_id, self.coordinates[part], self.values[part])

    @staticmethod
    def concatenate(pieces: Iterable[Reports]) -> Reports:
        """Put pieces of one plan together, in order."""
        batches = list(pieces)
        plans = {batch.plan_id for batch in batches}
        if len(plans) != 1:
            raise ReportsError(f"reports of exactly one plan can be put together, not of {len(plans)}")
        return Reports(
            batches[0].plan_id,
            np.concatenate([batch.coordinates for batch in batches]),
            np.concatenate([batch.values for batch in batches]),
        )
