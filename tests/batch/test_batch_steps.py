from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from tests.batch.report_folders import KEY, grid_rows, noiseless_plan, noiseless_task
from tests.chances import FALSE_ALARM, chi_square

from shufflesum.batch.identity import Identity
from shufflesum.batch.steps import (
    count_batch,
    count_sealed_batch,
    randomize_batch,
    randomize_rows,
    reports_of,
    seal_batch,
)
from shufflesum.errors import DataError, ParameterError, ReportsError
from shufflesum.protocol import Counts, Randomizer
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Opener

PLAN = noiseless_plan()
TASK = noiseless_task(PLAN)
PLAIN = Identity.for_plan(PLAN)
OPENER = Opener(KEY, processes=1)


def test_rows_become_reports_and_reports_become_counts() -> None:
    rows, table = grid_rows(500, PLAN)
    batch = randomize_batch(rows, Randomizer(PLAN), PLAIN)
    assert batch.schema.equals(PLAIN.arrow_schema(), check_metadata=True)
    counts = Counts(PLAN)
    count_batch(batch, counts)
    np.testing.assert_array_equal(counts.table, table)
    assert counts.rejected == 0


def test_reports_of_other_plans_and_unsealed_ones_for_a_task_are_refused() -> None:
    other = noiseless_plan(levels=5)
    rows = np.zeros((1, 3))
    with pytest.raises(ReportsError, match="both must be of one plan"):
        randomize_batch(rows, Randomizer(other), PLAIN)
    with pytest.raises(ReportsError, match="to be sealed"):
        randomize_batch(rows, Randomizer(PLAN), Identity.for_task(TASK, 1))
    with pytest.raises(ReportsError, match="randomize with the task's plan"):
        seal_batch(Randomizer(other).randomize(rows), TASK, 1)


def test_a_bad_row_is_named_by_its_place_in_the_file() -> None:
    rows = np.zeros((5, 3))
    rows[2, 1] = np.nan
    with pytest.raises(DataError, match="row 1002, coordinate 1"):
        randomize_batch(rows, Randomizer(PLAN), PLAIN, first_row=1000)


numbers = (
    st.none() | st.sampled_from([-(2**63), -1, 0, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**63 - 1]) | st.integers(0, 5)
)


@given(st.lists(st.tuples(numbers, numbers), max_size=30), st.integers(0, 5))
def test_what_no_report_can_be_is_rejected_and_counted(pairs: list[tuple[int | None, int | None]], cut: int) -> None:
    columns = [pa.array([pair[i] for pair in pairs], pa.int64()) for i in range(2)]
    batch = pa.RecordBatch.from_arrays(columns, names=["coordinate", "value"]).slice(cut)
    reports, rejected = reports_of(batch, PLAN.id)
    good = [(c, v) for c, v in pairs[cut:] if c is not None and v is not None and 0 <= c < 2**32 and 0 <= v < 2**16]
    assert list(zip(reports.coordinates.tolist(), reports.values.tolist(), strict=True)) == good
    assert rejected == len(pairs[cut:]) - len(good)


@pytest.mark.parametrize(
    "kinds", [(pa.uint32(), pa.uint16()), (pa.int64(), pa.int32()), (pa.uint64(), pa.uint64()), (pa.int8(), pa.int8())]
)
def test_any_integer_columns_give_the_same_counts(kinds: tuple[Any, Any]) -> None:
    columns = [pa.array([0, 1, 2, 2, 3], kinds[0]), pa.array([4, 0, 1, 5, 0], kinds[1])]
    counts = Counts(PLAN)
    count_batch(pa.RecordBatch.from_arrays(columns, names=["coordinate", "value"]), counts)
    assert np.argwhere(counts.table).tolist() == [[0, 4], [1, 0], [2, 1]]
    assert counts.rejected == 2  # a value above the levels, a coordinate beyond the last


def test_nulls_in_our_own_types_are_rejected_too() -> None:
    columns = [pa.array([0, None, 2], pa.uint32()), pa.array([None, 1, 1], pa.uint16())]
    counts = Counts(PLAN)
    count_batch(pa.RecordBatch.from_arrays(columns, names=["coordinate", "value"]), counts)
    assert (counts.accepted, counts.rejected) == (1, 2)


def sealed_batch(rows: int) -> tuple[Any, Any]:
    users, table = grid_rows(rows, PLAN)
    return seal_batch(randomize_rows(users, Randomizer(PLAN)), TASK, 1), table


def test_sealed_reports_reach_the_table() -> None:
    batch, table = sealed_batch(20)
    assert batch.schema.field("sealed").type == pa.binary(54)
    counts = Counts(PLAN)
    for start in (0, 25):  # a slice starts within its buffer
        count_sealed_batch(batch.slice(start, 25 if start == 0 else None), counts, TASK, 1, OPENER)
    np.testing.assert_array_equal(counts.table, table)
    assert counts.rejected == 0


def test_sealed_reports_that_cannot_be_opened_are_rejected_and_counted() -> None:
    batch, _ = sealed_batch(2)
    good = batch.column("sealed").to_pylist()
    forged = bytes(54)
    for rows, kind in (([*good, forged], pa.binary(54)), ([*good, b"short", None, forged], pa.binary())):
        counts = Counts(PLAN)
        column = pa.array(rows, kind)
        count_sealed_batch(pa.RecordBatch.from_arrays([column], names=["sealed"]), counts, TASK, 1, OPENER)
        assert (counts.accepted, counts.rejected) == (6, len(rows) - 6)


def test_another_key_is_refused_before_anything_is_counted() -> None:
    batch, _ = sealed_batch(1)
    counts = Counts(PLAN)
    with pytest.raises(ParameterError, match="this private key belongs to"):
        count_sealed_batch(batch, counts, TASK, 1, Opener(X25519PrivateKey.generate(), processes=1))
    assert (counts.accepted, counts.rejected) == (0, 0)


def orders_of_three_reports(rows_of: Any, repeats: int) -> float:
    """The p-value of all orders of one user's three reports being equally likely."""
    seen = dict.fromkeys(permutations(range(3)), 0)
    for _ in range(repeats):
        seen[rows_of()] += 1
    return chi_square(list(seen.values()), np.full(6, 1 / 6))


def test_the_place_of_a_sealed_report_says_nothing_about_its_coordinate() -> None:
    """A fair order fails with probability 1e-6; the order in which reports are drawn must fail."""
    reports = Randomizer(PLAN).randomize(np.zeros((1, 3)))

    def sealed_order() -> tuple[int, ...]:
        sealed = seal_batch(reports, TASK, 1).column("sealed").to_pylist()
        return tuple(TASK.open_reports(b"".join(sealed), 1, OPENER)[0].coordinates.tolist())

    assert orders_of_three_reports(sealed_order, 300) > FALSE_ALARM
    assert orders_of_three_reports(lambda: tuple(reports.coordinates.tolist()), 300) < FALSE_ALARM


def test_reports_of_several_users_are_mixed_across_users_too() -> None:
    plan = unprotected_plan(users=1, shape=1, levels=1)
    task = noiseless_task(plan)
    reports = Randomizer(plan).randomize(np.repeat([[0.0], [1.0]], 30, axis=0))
    sealed = seal_batch(reports, task, 1).column("sealed").to_pylist()
    opened = task.open_reports(b"".join(sealed), 1, OPENER)[0].values.tolist()
    assert sorted(opened) == [0] * 30 + [1] * 30
    assert opened != [0] * 30 + [1] * 30  # by chance once in 1e17 runs
