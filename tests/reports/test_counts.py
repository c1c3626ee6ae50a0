from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum import Reports
from shufflesum.cells import BLANK
from shufflesum.errors import ReportsError
from shufflesum.reports import Counts
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=5, coordinates=2, levels=2)  # 15 cells, two reports a user
OTHER = unprotected_plan(users=2, shape=5, coordinates=2, levels=2)
some_cells = st.lists(
    st.one_of(st.integers(0, 17), st.integers(0, 2**32 - 1), st.sampled_from([BLANK, BLANK - 1])), max_size=30
)


def reports_of(cells: list[int], plan_id: str = PLAN.id) -> Reports:
    return Reports(plan_id, np.array(cells, dtype=np.uint32))


def counted(*cells: int) -> Counts:
    counts = Counts(PLAN)
    counts.add(reports_of(list(cells)))
    return counts


@given(cells=some_cells)
def test_cells_of_the_plan_are_counted_blanks_apart_and_all_others_rejected(cells: list[int]) -> None:
    counts = counted(*cells)
    assert counts.table.tolist() == [cells.count(cell) for cell in range(15)]
    assert counts.accepted == sum(cell < 15 for cell in cells)
    assert counts.blanks == cells.count(4294967295)
    assert counts.rejected == sum(15 <= cell < 4294967295 for cell in cells)
    assert counts.received == len(cells)
    assert counts.users == len(cells) // 2


def test_the_first_and_the_last_number_that_is_no_cell_are_rejected_and_only_the_very_last_is_a_blank() -> None:
    counts = counted(14, 15, 4294967294, 4294967295)
    assert (counts.accepted, counts.rejected, counts.blanks) == (1, 2, 1)
    assert np.flatnonzero(counts.table).tolist() == [14]


def test_blanks_count_towards_the_users_as_rejected_reports_do() -> None:
    """Every user sends as many reports, whatever is in them, so users follow from the reports received."""
    assert counted(0, 4, BLANK, BLANK).users == 2
    assert counted(BLANK, BLANK).users == 1
    assert counted(99, 99, 0, BLANK).users == 2
    assert counted(0, 4, BLANK).users == 1  # half a user is none


@given(cells=some_cells, cut=st.integers(0, 30), swap=st.booleans())
def test_pieces_and_shards_give_the_table_of_the_whole(cells: list[int], cut: int, swap: bool) -> None:
    whole, pieces, first, second = (Counts(PLAN) for _ in range(4))
    whole.add(reports_of(cells))
    for part in (cells[cut:], cells[:cut]) if swap else (cells[:cut], cells[cut:]):
        pieces.add(reports_of(part))
    first.add(reports_of(cells[:cut]))
    second.add(reports_of(cells[cut:]))
    first.merge(second)
    for counts in (pieces, first):
        np.testing.assert_array_equal(counts.table, whole.table)
        assert (counts.rejected, counts.blanks, counts.users) == (whole.rejected, whole.blanks, whole.users)


def test_reports_and_shards_of_another_plan_are_refused_and_change_nothing() -> None:
    counts, other = Counts(PLAN), Counts(OTHER)
    other.add(reports_of([0, BLANK, 99], OTHER.id))
    with refusal("plan-mismatch", str(OTHER.id[:12]), str(PLAN.id[:12]), error=ReportsError):
        counts.add(reports_of([0, BLANK, 99], OTHER.id))
    with refusal("plan-mismatch", error=ReportsError):
        counts.merge(other)
    assert counts.received == 0


def test_what_is_no_report_is_refused() -> None:
    with refusal("wrong-type", error=ReportsError):
        Counts(PLAN).add(np.zeros(2, dtype=np.uint32))  # type: ignore[arg-type]


def test_a_table_is_not_merged_with_itself() -> None:
    counts = counted(0)
    with refusal("counted-twice", error=ReportsError):
        counts.merge(counts)
    assert counts.accepted == 1


def test_strided_and_read_only_reports_are_counted_as_well() -> None:
    cells = np.arange(20, dtype=np.uint32)[::7]
    cells.setflags(write=False)
    counts = Counts(PLAN)
    counts.add(Reports(PLAN.id, cells))
    assert np.flatnonzero(counts.table).tolist() == [0, 7, 14]
    counts.add(Reports(PLAN.id, cells + np.uint32(14)))
    assert (counts.table[14], counts.rejected) == (2, 2)


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
