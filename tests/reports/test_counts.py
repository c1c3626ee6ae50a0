from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shufflesum import Reports
from shufflesum.errors import ReportsError
from shufflesum.protocol import Counts
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=3, levels=4)
OTHER = unprotected_plan(users=2, shape=3, levels=4)
pairs = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1)), st.one_of(st.integers(0, 6), st.integers(0, 65535))
    ),
    max_size=30,
)


def reports_of(cells: list[tuple[int, int]], plan_id: str = PLAN.id) -> Reports:
    return Reports(
        plan_id, np.array([c for c, _ in cells], dtype=np.uint32), np.array([v for _, v in cells], dtype=np.uint16)
    )


@given(cells=pairs)
def test_reports_inside_the_domain_are_counted_and_all_others_rejected(cells: list[tuple[int, int]]) -> None:
    counts = Counts(PLAN)
    counts.add(reports_of(cells))
    table = np.zeros((3, 5), dtype=np.int64)
    for coordinate, value in cells:
        if coordinate < 3 and value < 5:
            table[coordinate, value] += 1
    np.testing.assert_array_equal(counts.table, table)
    assert counts.accepted == table.sum()
    assert counts.rejected == len(cells) - table.sum()


@given(cells=pairs, cut=st.integers(0, 30), swap=st.booleans())
def test_pieces_and_shards_give_the_table_of_the_whole(cells: list[tuple[int, int]], cut: int, swap: bool) -> None:
    whole, pieces, first, second = (Counts(PLAN) for _ in range(4))
    whole.add(reports_of(cells))
    for part in (cells[cut:], cells[:cut]) if swap else (cells[:cut], cells[cut:]):
        pieces.add(reports_of(part))
    first.add(reports_of(cells[:cut]))
    second.add(reports_of(cells[cut:]))
    first.merge(second)
    for counts in (pieces, first):
        np.testing.assert_array_equal(counts.table, whole.table)
        assert counts.rejected == whole.rejected


def test_reports_and_shards_of_another_plan_are_refused_and_change_nothing() -> None:
    counts, other = Counts(PLAN), Counts(OTHER)
    other.add(reports_of([(0, 0)], OTHER.id))
    with pytest.raises(ReportsError, match=f"belong to plan {OTHER.id[:12]}, this analyzer to plan {PLAN.id[:12]}"):
        counts.add(reports_of([(0, 0)], OTHER.id))
    with pytest.raises(ReportsError, match="cannot merge counts of plan"):
        counts.merge(other)
    assert (counts.accepted, counts.rejected) == (0, 0)


def test_a_table_is_not_merged_with_itself() -> None:
    counts = Counts(PLAN)
    counts.add(reports_of([(0, 0)]))
    with pytest.raises(ReportsError, match="twice"):
        counts.merge(counts)
    assert counts.accepted == 1


def test_strided_and_read_only_reports_are_counted_as_well() -> None:
    coordinates = np.arange(6, dtype=np.uint32)[::2]
    values = np.zeros(3, dtype=np.uint16)
    values.setflags(write=False)
    counts = Counts(PLAN)
    counts.add(Reports(PLAN.id, coordinates, values))
    assert counts.table[:, 0].tolist() == [1, 0, 1]
    assert counts.rejected == 1


def test_the_first_value_and_coordinate_outside_are_rejected() -> None:
    counts = Counts(PLAN)
    counts.add(reports_of([(0, 5), (2, 5), (3, 0), (3, 4), (2, 4)]))
    assert counts.rejected == 4
    assert np.argwhere(counts.table).tolist() == [[2, 4]]
