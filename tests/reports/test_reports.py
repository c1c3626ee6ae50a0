from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shufflesum import Reports
from shufflesum.errors import ReportsError

COORDINATES = np.array([0, 2, 1], dtype=np.uint32)
VALUES = np.array([5, 0, 3], dtype=np.uint16)


def test_reports_are_two_arrays_of_one_length() -> None:
    assert len(Reports("plan", COORDINATES, VALUES)) == 3
    assert len(Reports("plan", COORDINATES[:0], VALUES[:0])) == 0
    with pytest.raises(ReportsError, match="3 coordinates but 2 values"):
        Reports("plan", COORDINATES, VALUES[:2])


@pytest.mark.parametrize(
    ("coordinates", "values", "named"),
    [
        (COORDINATES.astype(np.int64), VALUES, "coordinates"),
        (COORDINATES.astype(">u4"), VALUES, "coordinates"),
        (COORDINATES.reshape(3, 1), VALUES.reshape(3, 1), "coordinates"),
        ([0, 2, 1], VALUES, "coordinates"),
        (COORDINATES, VALUES.astype(np.float64), "values"),
        (COORDINATES, VALUES[None], "values"),
        (COORDINATES, None, "values"),
    ],
)
def test_another_format_is_refused_by_name(coordinates: Any, values: Any, named: str) -> None:
    with pytest.raises(ReportsError, match=f"^{named} of reports must be a one-dimensional uint"):
        Reports("plan", coordinates, values)


def test_reports_cannot_be_moved_to_another_plan() -> None:
    reports = Reports("plan", COORDINATES, VALUES)
    with pytest.raises(AttributeError):
        reports.plan_id = "other"  # type: ignore[misc]


def test_pieces_are_put_together_in_order() -> None:
    whole = Reports.concatenate(Reports("plan", COORDINATES[i:], VALUES[i:]) for i in range(3))
    assert whole.plan_id == "plan"
    assert whole.coordinates.tolist() == [0, 2, 1, 2, 1, 1]
    assert whole.values.tolist() == [5, 0, 3, 0, 3, 3]
    assert (whole.coordinates.dtype.name, whole.values.dtype.name) == ("uint32", "uint16")


def test_pieces_of_different_plans_and_no_pieces_are_refused() -> None:
    with pytest.raises(ReportsError, match="not of 2"):
        Reports.concatenate([Reports("one", COORDINATES, VALUES), Reports("two", COORDINATES, VALUES)])
    with pytest.raises(ReportsError, match="not of 0"):
        Reports.concatenate([])
