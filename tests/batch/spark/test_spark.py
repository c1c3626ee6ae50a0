"""The three roles on Spark, on this machine's cores; several processes and killed executors are in the slow suite."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.report_folders import KEY, grid_rows, noiseless_plan, noiseless_task, write_folder
from tests.batch.spark.refusals import REFUSED
from tests.batch.spark_frames import (
    DIMENSION,
    NEEDS_JAVA,
    PLAN,
    USERS,
    Batch,
    cells_in,
    largest_error,
    uniformity,
    users_frame,
)
from tests.refusals import refusal
from tests.round_dependent import FALSE_ALARM_OF_BALLS, TURNING, turned_rows
from tests.stat_tests import FALSE_ALARM

import shufflesum as ss
from shufflesum.batch.files import open_dataset
from shufflesum.batch.identity import Identity
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget
from shufflesum.cells import BLANK
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.errors import DataError, FileError, ParameterError, PlanError, ReportsError
from shufflesum.release import release
from shufflesum.synthetic import heartbeats
from shufflesum.testing import unprotected_plan

pytestmark = NEEDS_JAVA

TARGET = PlainTarget(PLAN)


@pytest.fixture(scope="module")
def batch(session: Any) -> Batch:
    from shufflesum.batch import spark

    rows = heartbeats(USERS, DIMENSION, seed=3)
    users = users_frame(session, rows, 3)
    reports = spark.randomize(users, PLAN)
    return Batch(rows, users, reports, spark.shuffle(reports))


def test_the_shuffle_keeps_every_report_and_not_their_order(batch: Batch) -> None:
    before, after = cells_in(batch.reports), cells_in(batch.shuffled)
    assert len(before) == USERS * DIMENSION
    np.testing.assert_array_equal(np.sort(before), np.sort(after))
    assert not np.array_equal(before, after)


def test_what_was_drawn_stays_the_same_however_often_it_is_read(batch: Batch) -> None:
    np.testing.assert_array_equal(cells_in(batch.reports), cells_in(batch.reports))


@pytest.mark.slow
def test_local_counts_what_spark_wrote(batch: Batch, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    name = "a strange [name] {with}, * and %20"
    dataset = spark.write(batch.shuffled, tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == [name]
    counted, _ = count(dataset, TARGET)
    found = spark.count(spark.read(batch.shuffled.sparkSession, tmp_path / name, "shuffled"), PLAN)
    np.testing.assert_array_equal(counted.table, found.table)
    np.testing.assert_array_equal(counted.table, spark.analyze(batch.shuffled, PLAN).table)
    with refusal("exists", error=FileError):
        spark.write(batch.shuffled, tmp_path / name)


@pytest.mark.slow
def test_spark_counts_what_local_wrote(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    np.save(tmp_path / "users.npy", heartbeats(USERS, DIMENSION, seed=4))
    randomize(open_users(tmp_path / "users.npy"), tmp_path / "reports", TARGET)
    shuffle(tmp_path / "reports", tmp_path / "by local")
    spark.shuffle_folder(tmp_path / "reports", tmp_path / "by spark")
    counted, _ = count(open_dataset(tmp_path / "by local", stage="shuffled"), TARGET)
    for folder in ("by local", "by spark"):
        found = spark.analyze(spark.read(session, tmp_path / folder, "shuffled"), PLAN)
        np.testing.assert_array_equal(found.table, counted.table)
        # Also where the frame is no longer just files.
        frame = spark.read(session, tmp_path / folder, "shuffled").where("cell >= 0")
        np.testing.assert_array_equal(spark.count(frame, PLAN).table, counted.table)


@pytest.mark.slow
def test_folders_repeated_are_left_as_they_are_and_hold_rows_without_statistics(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    rows = heartbeats(USERS, DIMENSION, seed=5)
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "none.parquet").touch()
    parquet.write_table(
        pa.table({f"c{number}": rows[:, number] for number in range(DIMENSION)}), tmp_path / "users" / "a.parquet"
    )
    made, begun = [], list[str]()
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"none\.parquet"):
            reports = spark.randomize_folder(tmp_path / "users", tmp_path / "reports", PLAN, begin=begun.append)
        assert begun == list(reports.identity.contribution_ids) * len(begun)  # by its name, before it is drawn
        made.append((reports.identity, spark.shuffle_folder(tmp_path / "reports", tmp_path / "shuffled").identity))
    assert made[0] == made[1]
    with pytest.warns(UserWarning, match=r"none\.parquet"), refusal("exists", error=FileError):
        spark.randomize_folder(tmp_path / "users", tmp_path / "reports", PLAN, clip=True)
    again = spark.write(spark.read(session, tmp_path / "shuffled", "shuffled"), tmp_path / "again")
    for file in (*reports.files, *open_dataset(tmp_path / "shuffled", stage="shuffled").files, *again.files):
        column = parquet.ParquetFile(file.path)
        assert column.schema.column(0).max_definition_level == 0  # no nulls, which take time to read
        assert not column.metadata.row_group(0).column(0).is_stats_set


@pytest.mark.slow
def test_each_round_is_read_with_its_own_rotation_by_either_engine(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    rows = turned_rows()
    users = users_frame(session, rows, 2)
    second = spark.shuffle(spark.randomize(users, TURNING, round_number=2))
    found = spark.analyze(second, TURNING)
    local, _ = count(spark.write(second, tmp_path / "shuffled"), PlainTarget(TURNING))
    for estimate in (found, release(local)):
        assert isinstance(estimate, L2BallEstimate)
        assert estimate.round_number == 2
        distance = np.linalg.norm(estimate.mean - rows.mean(axis=0))
        assert distance < estimate.error_norm(1 - FALSE_ALARM_OF_BALLS)
    both = spark.randomize(users, TURNING).union(spark.randomize(users, TURNING, round_number=2))
    with refusal("round-mismatch", "round 1", "round 2", error=ReportsError):
        spark.shuffle(both)
    with refusal("out-of-range", "round_number is 4", error=ParameterError):
        spark.randomize(users, TURNING, round_number=4)


def test_sealed_reports_are_shuffled_unopened(tmp_path: Path) -> None:
    from shufflesum.batch import spark

    plan = noiseless_plan(users=20)
    task = noiseless_task(plan)
    rows, table = grid_rows(20, plan)
    np.save(tmp_path / "users.npy", rows)
    randomize(open_users(tmp_path / "users.npy"), tmp_path / "reports", SealedTarget(task), workers=1)
    shuffled = spark.shuffle_folder(tmp_path / "reports", tmp_path / "shuffled")
    counted, _ = count(shuffled, SealedTarget(task, private_key=KEY), workers=1)
    np.testing.assert_array_equal(counted.table, table)
    assert counted.rejected == 0


@pytest.mark.slow
def test_files_that_only_spark_can_reach_are_counted_too(session: Any, batch: Batch, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    spark.write(batch.shuffled, tmp_path / "shuffled")
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.viewfs.mounttable.default.link./elsewhere", tmp_path.as_uri())
    frame = session.read.schema(batch.shuffled.schema).parquet("viewfs:///elsewhere/shuffled")
    assert frame.inputFiles()[0].startswith("viewfs:")
    np.testing.assert_array_equal(spark.count(frame, PLAN).table, spark.count(batch.shuffled, PLAN).table)


def test_blanks_and_reports_that_name_no_cell_are_counted_apart(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    identity = Identity.for_plan(PLAN).shuffled(99)
    folder = write_folder(tmp_path / "shuffled", identity, [3, PLAN.cells, BLANK, BLANK - 1], [38, BLANK])
    counts = spark.count(spark.read(session, folder, "shuffled"), PLAN)
    assert (counts.accepted, counts.blanks, counts.rejected) == (2, 2, 2)
    assert counts.table[3] == counts.table[38] == 1
    with refusal("too-few-users", "6 reports", "2 rejected", error=ReportsError):
        spark.analyze(spark.read(session, folder, "shuffled"), PLAN)


def test_a_batch_with_too_many_malicious_users_has_no_estimate(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    plan = unprotected_plan(users=4, shape=2, coordinates=2, levels=1)
    honest, malicious = [0, 2] * 4, [1] * 8  # the latter's reports are all of one coordinate
    folder = write_folder(tmp_path / "honest", Identity.for_plan(plan).shuffled(16), honest, honest)
    assert spark.analyze(spark.read(session, folder, "shuffled"), plan).users == 8
    folder = write_folder(tmp_path / "part", Identity.for_plan(plan).shuffled(24), honest, honest)
    with refusal("guarantee-broken", error=ReportsError):  # of a part of a batch nobody can see who was honest
        spark.analyze(spark.read(session, folder, "shuffled"), plan)
    folder = write_folder(tmp_path / "malicious", Identity.for_plan(plan).shuffled(16), honest, malicious)
    with refusal("guarantee-broken", "least 4", "of 8", error=ReportsError):
        spark.analyze(spark.read(session, folder, "shuffled"), plan)
    found = spark.analyze(spark.read(session, folder, "shuffled"), plan, without_guarantee=True)
    assert not found.guarantee_holds


@pytest.mark.slow
def test_columns_of_numbers_and_arrays_mean_the_same(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    plan = unprotected_plan(users=4, shape=(2, 2), coordinates=4, levels=8)
    rows = np.random.default_rng(1).integers(0, 9, (50, 4)) / 8
    table = pa.table({"who": pa.array(range(50)), **{f"x {i}": rows[:, i] for i in range(4)}})
    parquet.write_table(table, tmp_path / "users.parquet")
    dataset = spark.randomize_folder(
        tmp_path / "users.parquet", tmp_path / "reports", plan, user_column="who", columns=["1:5"]
    )
    by_columns = cells_in(spark.read(session, tmp_path / "reports", "reports"))
    by_arrays = cells_in(spark.randomize(users_frame(session, rows, 2), plan))
    expected = np.arange(4) * 9 + np.rint(rows * 8).astype(int)
    np.testing.assert_array_equal(np.sort(by_columns), np.sort(expected.reshape(-1)))
    np.testing.assert_array_equal(np.sort(by_arrays), np.sort(expected.reshape(-1)))
    assert dataset.identity.plan_id == plan.id


@pytest.mark.slow
def test_the_order_after_the_shuffle_says_nothing_about_the_order_before(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm 1e-6; reports in order, dealt but not permuted, or permuted but not dealt are rejected."""
    from shufflesum.batch import spark

    users = 1 << 14
    plan = unprotected_plan(users=users, shape=1, levels=users)
    monkeypatch.setattr(spark.roles, "_BUCKET_BYTES", users * 4 // 8)
    reports = spark.randomize(users_frame(session, np.arange(users)[:, None] / users, 3), plan)
    shuffled = spark.shuffle(reports)
    assert len(shuffled.inputFiles()) == 8
    place = np.empty(users, dtype=np.int64)
    place[cells_in(reports)] = np.arange(users)
    order = place[cells_in(shuffled)]
    assert uniformity(order) > FALSE_ALARM

    generator = np.random.default_rng(1)
    dealt = np.argsort(generator.integers(0, 8, users), kind="stable")
    permuted = np.concatenate([generator.permutation(part) for part in np.array_split(np.arange(users), 8)])
    for wrong in (np.arange(users), dealt, permuted):
        assert uniformity(wrong) < FALSE_ALARM


def test_no_two_tasks_draw_the_same(session: Any) -> None:
    from shufflesum.batch import spark

    plan = unprotected_plan(users=1, shape=1000, levels=1)
    frame = users_frame(session, np.zeros((400, 1000)), 4)
    drawn = []
    for _ in range(2):  # the second time in the same Python workers
        for file in spark.randomize(frame, plan).inputFiles():
            drawn.append(tuple(parquet.read_table(file.removeprefix("file://")).column("cell").to_pylist()[:50]))
    assert len(drawn) == 8
    assert len(set(drawn)) == 8
    assert all(len(set(cells)) > 20 for cells in drawn)


def test_end_to_end_within_the_predicted_error(session: Any) -> None:
    """False alarm 1e-6; with half the noise corrected the error is too large."""
    from shufflesum.batch import spark

    beats = heartbeats(20_000, 20, seed=5)
    plan = ss.plan(
        users=len(beats), shape=20, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6, mechanism="randomized-response"
    )
    found = spark.analyze(spark.shuffle(spark.randomize(users_frame(session, beats, 2), plan)), plan)
    assert (found.users, found.rejected) == (len(beats), 0)
    assert isinstance(plan.mechanism, ss.RandomizedResponse)
    noise = np.ceil(plan.mechanism.noise_probability / 2 * 2.0**53) * 2.0**-53
    half = replace(plan, mechanism=replace(plan.mechanism, noise_probability=noise))
    wrong = Estimate(half, found.users, 0, found.table)
    right_error, wrong_error = (float(np.sum((e.mean - beats.mean(axis=0)) ** 2)) for e in (found, wrong))
    assert right_error <= largest_error(plan.expected_error.total, 20) < wrong_error


@pytest.mark.slow
def test_digits_noise_and_blanks_go_the_same_way(session: Any) -> None:
    """Under `noisy-counts`, at false alarm 1e-6."""
    from shufflesum.batch import spark

    beats = heartbeats(5000, 10, seed=5)
    plan = ss.plan(users=len(beats), shape=10, bounds=(0.0, 1.0), epsilon=2.0, delta=1e-6, mechanism="noisy-counts")
    users = users_frame(session, beats, 2)
    found = spark.analyze(spark.shuffle(spark.randomize(users, plan)), plan)
    assert (found.users, found.rejected) == (len(beats), 0)
    assert 0 < found.table.sum() < plan.reports * len(beats)
    error = float(np.sum((found.mean - beats.mean(axis=0)) ** 2))
    assert error <= largest_error(plan.expected_error.total, 10)
    alone = ss.plan(
        users=len(beats),
        shape=10,
        bounds=(0.0, 1.0),
        epsilon=2.0,
        delta=1e-6,
        mechanism="noisy-counts",
        noise_by="curator",
    )
    with refusal("one-process-only", error=PlanError):
        spark.randomize(users, alone)


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses_in_a_line(batch: Batch, case: str) -> None:
    from shufflesum.batch import spark

    kind, refused, call = REFUSED[case]
    with refusal(*refused, error=kind) as caught:
        call(spark, batch)
    assert len(str(caught.value)) < 700
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_batches_of_the_same_plan_are_shuffled_together(batch: Batch) -> None:
    from shufflesum.batch import spark

    more = spark.randomize(batch.users.limit(100), PLAN)
    shuffled = spark.shuffle(batch.reports.union(more))
    assert spark.analyze(shuffled, PLAN).users == USERS + 100
    found = Identity.from_json(shuffled.schema["cell"].metadata["shufflesum"])
    assert len(found.contribution_ids) == 2


@pytest.mark.slow
def test_bad_input_leaves_nothing_behind(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    plan = unprotected_plan(users=1, shape=2, coordinates=2, levels=1)
    table = pa.table({"who": ["a", "b", " a"], "x": [0.0, 1.0, 0.5], "y": [0.0, float("nan"), 1.0]})
    parquet.write_table(table, tmp_path / "users.parquet")
    for options, refused in (
        ({"columns": ["x", "y"]}, ("missing-value",)),
        ({"user_column": "who"}, ("repeated-user", "'a'")),
    ):
        with refusal(*refused, error=DataError):
            spark.randomize_folder(tmp_path / "users.parquet", tmp_path / "reports", plan, **options)
    (tmp_path / "users.csv").write_text("1,2\n")
    with refusal("unknown-file-type", "Parquet", "--engine local", error=FileError):
        spark.randomize_folder(tmp_path / "users.csv", tmp_path / "reports", plan)
    assert sorted(os.listdir(tmp_path)) == ["users.csv", "users.parquet"]
    (tmp_path / "reports").mkdir()
    with refusal("exists", error=FileError):
        spark.randomize_folder(tmp_path / "users.parquet", tmp_path / "reports", plan, columns=["x", "y"])


def test_a_damaged_file_is_named(session: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    identity = Identity.for_plan(PLAN).shuffled(99)
    folder = write_folder(tmp_path / "shuffled", identity, [3] * 5000)
    frame = spark.read(session, folder, "shuffled")
    (folder / "part-0.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with refusal("damaged", "part-0.parquet", error=FileError):
        spark.count(frame, PLAN)


def test_a_cluster_needs_a_place_for_what_was_drawn(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    from shufflesum.batch import spark

    monkeypatch.setattr(batch.users.sparkSession.sparkContext, "master", "spark://cluster:7077")
    with refusal("missing-argument", error=ParameterError):
        spark.randomize(batch.users, PLAN)
