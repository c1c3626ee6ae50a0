from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from tests.batch.report_folders import KEY, grid_rows, noiseless_plan, noiseless_task
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.batch.identity import PLAIN, SEALED, cells_of
from shufflesum.batch.targets import PlainTarget, SealedTarget, Target, count_records, randomize_rows
from shufflesum.cells import BLANK
from shufflesum.errors import DataError, ParameterError, ReportsError
from shufflesum.protocol import Randomizer
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import SEALED_BYTES
from shufflesum.testing import unprotected_plan

PLAN = noiseless_plan()
TASK = noiseless_task(PLAN)
OPEN = PlainTarget(PLAN)
SECRET = SealedTarget(TASK, private_key=KEY)


def records_for(target: Target, reports: Reports) -> Any:
    with target.encoding(1) as encode:
        return encode(reports)


def counted(target: Target, *pieces: Any) -> Counts:
    counts = Counts(target.plan)
    with target.opening(target.identity(), 1) as open_records:
        for records in pieces:
            count_records(records, counts, open_records)
    return counts


@pytest.mark.parametrize("target", [OPEN, SECRET], ids=["plain", "sealed"])
def test_rows_become_reports_and_reports_become_counts(target: Target) -> None:
    rows, table = grid_rows(20, PLAN)
    records = records_for(target, randomize_rows(rows, Randomizer(PLAN)))
    assert records.schema.equals(target.identity().arrow_schema())
    counts = counted(target, records.slice(0, 25), records.slice(25))  # a slice starts within its buffer
    np.testing.assert_array_equal(counts.table, table)
    assert counts.rejected == 0


@pytest.mark.parametrize("target", [OPEN, SECRET], ids=["plain", "sealed"])
def test_blanks_are_counted_apart(target: Target) -> None:
    reports = Reports(PLAN.id, np.array([BLANK, 0, BLANK, PLAN.cells, 1, BLANK - 1], dtype=np.uint32))
    counts = counted(target, records_for(target, reports))
    assert (counts.accepted, counts.blanks, counts.rejected, counts.received, counts.users) == (2, 2, 2, 6, 2)


@pytest.mark.parametrize("target", [OPEN, SECRET], ids=["plain", "sealed"])
def test_reports_of_other_plans_are_refused(target: Target) -> None:
    other = noiseless_plan(levels=5)
    with refusal("plan-mismatch", error=ReportsError):
        records_for(target, Randomizer(other).randomize(np.zeros((1, 3))))


def test_reports_of_other_rounds_are_refused_and_those_that_are_there_know_theirs() -> None:
    plan = replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=2))
    plain, sealed = PlainTarget(plan, 2), SealedTarget(noiseless_task(plan), 2, KEY)
    rows, table = grid_rows(4, plan)
    for target in (plain, sealed):
        assert target.identity().round_number == 2
        with refusal("round-mismatch", "round 1", "round 2", error=ReportsError):
            records_for(target, Randomizer(plan).randomize(rows))
        records = records_for(target, Randomizer(plan, round_number=2).randomize(rows))
        reader: Target = replace(target, round_number=1)  # as an analyzer's, who takes the round from the files
        reader.check(target.identity())
        counts = Counts(plan, 2)
        with reader.opening(target.identity(), 1) as open_records:
            count_records(records, counts, open_records)
            with refusal("round-mismatch", error=ReportsError):
                count_records(records, Counts(plan), open_records)
        np.testing.assert_array_equal(counts.table, table)


def test_files_of_a_round_that_the_plan_does_not_cover_are_refused() -> None:
    for target in (OPEN, SECRET):
        with refusal("out-of-range", "round_number is 2", error=ParameterError):
            target.check(replace(target.identity(), round_number=2))
    with refusal("out-of-range", "round_number is 2", error=ParameterError):
        PlainTarget(PLAN, 2)


def test_a_round_that_the_task_does_not_cover_is_refused() -> None:
    with refusal("wrong-round", "rounds 1", "to 1", error=ReportsError), replace(SECRET, round_number=2).encoding(1):
        pass


def test_a_bad_row_is_named_by_its_place_in_the_file() -> None:
    rows = np.zeros((5, 3))
    rows[2, 1] = np.nan
    with refusal("missing-value", "row 1002", "coordinate 1", error=DataError):
        randomize_rows(rows, Randomizer(PLAN), 1000)


numbers = st.none() | st.sampled_from([-(2**63), -1, 0, 2**32 - 1, 2**32, 2**63 - 1]) | st.integers(0, 5)


@given(st.lists(numbers, max_size=30), st.integers(0, 5))
def test_what_no_report_can_be_is_rejected_and_counted(given: list[int | None], cut: int) -> None:
    records = pa.RecordBatch.from_arrays([pa.array(given, pa.int64())], names=["cell"]).slice(cut)
    cells, rejected = cells_of(records)
    good = [cell for cell in given[cut:] if cell is not None and 0 <= cell < 2**32]
    assert cells.tolist() == good
    assert rejected == len(given[cut:]) - len(good)
    items = PLAIN.items(records).tolist()
    assert items == good + [BLANK - 1] * rejected, "a shuffle loses none, and makes none of them blank"


@pytest.mark.parametrize("kind", [pa.uint32(), pa.int64(), pa.uint64(), pa.int8()])
def test_any_integer_column_gives_the_same_counts(kind: Any) -> None:
    counts = counted(OPEN, pa.RecordBatch.from_arrays([pa.array([4, 5, 11, 15, 99], kind)], names=["cell"]))
    assert np.flatnonzero(counts.table).tolist() == [4, 5, 11]
    assert counts.rejected == 2  # beyond the last cell


def test_nulls_in_our_own_type_are_rejected_too() -> None:
    counts = counted(OPEN, pa.RecordBatch.from_arrays([pa.array([None, 2, None], pa.uint32())], names=["cell"]))
    assert (counts.accepted, counts.blanks, counts.rejected) == (1, 0, 2)


def sealed_records(rows: int) -> Any:
    return records_for(SECRET, randomize_rows(grid_rows(rows, PLAN)[0], Randomizer(PLAN)))


def test_sealed_reports_that_cannot_be_opened_are_rejected_and_counted() -> None:
    good = sealed_records(2).column("sealed").to_pylist()
    forged = bytes(SEALED_BYTES)
    for rows, kind in (([*good, forged], SEALED.arrow_type), ([*good, b"short", None, forged], pa.binary())):
        records = pa.RecordBatch.from_arrays([pa.array(rows, kind)], names=["sealed"])
        counts = counted(SECRET, records)
        assert (counts.accepted, counts.rejected) == (6, len(rows) - 6)
        assert len(SEALED.items(records)) == len(rows)


def test_another_key_is_refused_before_anything_is_counted() -> None:
    with refusal("key-mismatch", error=ParameterError):
        counted(replace(SECRET, private_key=X25519PrivateKey.generate()), sealed_records(1))


def orders_of_three_reports(rows_of: Any, repeats: int) -> float:
    """The p-value of all orders of one user's three reports being equally likely."""
    seen = dict.fromkeys(permutations((0, 5, 10)), 0)
    for _ in range(repeats):
        seen[rows_of()] += 1
    return chi_square(list(seen.values()), np.full(6, 1 / 6))


def opened(records: Any, target: SealedTarget = SECRET) -> list[int]:
    with target.opening(target.identity(), 1) as open_records:
        cells: list[int] = open_records(records)[0].cells.tolist()
        return cells


def test_the_place_of_a_sealed_report_says_nothing_about_its_coordinate() -> None:
    """A fair order fails with probability 1e-6; the order in which reports are drawn must fail."""
    reports = Randomizer(PLAN).randomize(np.zeros((1, 3)))
    assert orders_of_three_reports(lambda: tuple(opened(records_for(SECRET, reports))), 300) > FALSE_ALARM
    assert orders_of_three_reports(lambda: tuple(reports.cells.tolist()), 300) < FALSE_ALARM


def test_reports_of_several_users_are_mixed_across_users_too() -> None:
    plan = unprotected_plan(users=1, shape=1, levels=1)
    target = SealedTarget(noiseless_task(plan), private_key=KEY)
    reports = Randomizer(plan).randomize(np.repeat([[0.0], [1.0]], 30, axis=0))
    found = opened(records_for(target, reports), target)
    assert sorted(found) == [0] * 30 + [1] * 30
    assert found != [0] * 30 + [1] * 30  # by chance once in 1e17 runs
