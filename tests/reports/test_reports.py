from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

from shufflesum import Reports
from shufflesum.errors import ReportsError

CELLS = np.array([5, 0, 4294967295], dtype=np.uint32)


def test_reports_are_one_array_of_cells_whatever_they_say() -> None:
    assert len(Reports("plan", CELLS)) == 3
    assert len(Reports("plan", CELLS[:0])) == 0


@pytest.mark.parametrize(
    "cells",
    [CELLS.astype(np.int64), CELLS.astype(">u4"), CELLS.astype(np.float64), CELLS.reshape(3, 1), [5, 0, 1], None],
    ids=lambda cells: str(getattr(cells, "dtype", cells)) + str(np.shape(cells)),
)
def test_another_format_is_refused(cells: Any) -> None:
    with refusal("wrong-type", "uint32", error=ReportsError):
        Reports("plan", cells)


def test_reports_cannot_be_moved_to_another_plan() -> None:
    reports = Reports("plan", CELLS)
    with pytest.raises(AttributeError):
        reports.plan_id = "other"  # type: ignore[misc]


def test_a_piece_is_of_the_same_plan_and_no_copy() -> None:
    piece = Reports("plan", CELLS)[1:]
    assert (piece.plan_id, piece.cells.tolist()) == ("plan", [0, 4294967295])
    assert np.shares_memory(piece.cells, CELLS)


def test_pieces_are_put_together_in_order() -> None:
    whole = Reports.concatenate(Reports("plan", CELLS[i:]) for i in range(3))
    assert whole.plan_id == "plan"
    assert whole.cells.tolist() == [5, 0, 4294967295, 0, 4294967295, 4294967295]
    assert whole.cells.dtype == np.uint32


def test_pieces_of_different_plans_and_no_pieces_are_refused() -> None:
    with refusal("plan-mismatch", "of 2", error=ReportsError):
        Reports.concatenate([Reports("one", CELLS), Reports("two", CELLS)])
    with refusal("plan-mismatch", "of 0", error=ReportsError):
        Reports.concatenate([])
