"""Labels on Spark: text, whole numbers, true and false, arrays of labels, groups with numbers, words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.batch.spark_frames import NEEDS_JAVA
from tests.plan_builders import held
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.batch.files import open_dataset
from shufflesum.batch.local import count
from shufflesum.batch.targets import PlainTarget
from shufflesum.errors import DataError, FileError, ParameterError

pytestmark = NEEDS_JAVA

USERS = 1200
SURE = 1 - 1e-8  # an interval of counts is exact: it fails with probability at most 1e-8


@pytest.fixture(scope="module")
def table() -> pa.Table:
    random = np.random.default_rng(5)
    country = random.permutation(np.repeat(["DE", "FR"], (900, 300)))
    columns = {
        "answer": random.permutation(np.repeat(["yes", "no", "unsure"], (700, 400, 100))),
        "code": random.permutation(np.repeat([0, 1, 2], (700, 400, 100))),
        "agreed": random.permutation(np.repeat([True, False], (1000, 200))),
        "ticked": pa.array([["web", "mail"][: i % 3] for i in range(USERS)], pa.list_(pa.string())),
        "country": country,
        "x": np.where(country == "DE", 0.9, 0.1),
        "y": np.where(country == "DE", 0.2, 0.6),
    }
    return pa.table(columns)


def planned(shape: Any, **choices: Any) -> ss.Plan:
    return ss.plan(users=USERS, **held(shape), epsilon=1.0, delta=1e-5, **choices)


def through(frame: Any, plan: ss.Plan, **named: Any) -> Any:
    from shufflesum.batch import spark

    return spark.analyze(spark.shuffle(spark.randomize(frame, plan, **named)), plan)


def holds(ends: Any, truth: Any) -> bool:
    return bool(np.all((ends[0] <= np.array(truth)) & (np.array(truth) <= ends[1])))


@pytest.mark.parametrize(
    ("column", "labels", "truth"),
    [
        ("answer", ["yes", "no", "unsure"], (700, 400, 100)),
        pytest.param("code", 3, (700, 400, 100), marks=pytest.mark.slow),
        pytest.param("agreed", [True, False], (1000, 200), marks=pytest.mark.slow),
    ],
)
def test_one_label_of_each_user(session: Any, table: pa.Table, column: str, labels: Any, truth: Any) -> None:
    frame = session.createDataFrame(table.select([column, "x"])).repartition(3)
    ends = through(frame, planned(ss.Categories(labels)), label_column=column).count_interval(SURE)
    assert holds(ends, truth)
    assert not holds(ends, truth[::-1])


@pytest.mark.slow
def test_several_labels_of_each_user(session: Any, table: pa.Table) -> None:
    frame = session.createDataFrame(table.select(["ticked"]))
    ends = through(frame, planned(ss.MultiChoice(["mail", "web"], max_choices=2))).count_interval(SURE)
    assert holds(ends, (400, 800))
    assert not holds(ends, (800, 400))


@pytest.mark.slow
def test_groups_with_the_columns_of_the_plan(session: Any, table: pa.Table) -> None:
    plan = planned(ss.GroupBy(["DE", "FR"], (2,), column="country"), columns=["y", "x"])
    estimate = through(session.createDataFrame(table), plan)
    assert holds(estimate.count_interval(SURE), (900, 300))
    ends = estimate.confidence_interval(SURE)
    assert holds(ends, [[0.2, 0.9], [0.6, 0.1]])
    assert not holds(ends, [[0.9, 0.2], [0.1, 0.6]])


@pytest.mark.slow
def test_words_and_numbers_in_bins(session: Any, table: pa.Table) -> None:
    frame = session.createDataFrame(table)
    words = through(frame, planned(ss.OpenVocabulary(60, 8)), label_column="answer").counts_of(["yes", "no", "perhaps"])
    assert holds(words.count_interval(SURE), (700, 400, 0))
    binned = through(frame, planned(ss.Categories(bins=[0, 0.5, 1], column="x")))
    assert holds(binned.count_interval(SURE), (300, 900))


@pytest.mark.slow
def test_folders_of_labels_are_shared_with_the_local_engine(session: Any, table: pa.Table, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    plan = planned(ss.Categories(["yes", "no", "unsure"], column="answer"))
    parquet.write_table(table, tmp_path / "users.parquet")
    spark.randomize_folder(tmp_path / "users.parquet", tmp_path / "reports", plan)
    spark.shuffle_folder(tmp_path / "reports", tmp_path / "shuffled")
    counts, _ = count(open_dataset(tmp_path / "shuffled", stage="shuffled"), PlainTarget(plan))
    estimate = spark.analyze(spark.read(session, tmp_path / "shuffled", "shuffled"), plan)
    np.testing.assert_array_equal(estimate.table, counts.table)
    assert isinstance(estimate, ss.CountEstimate)
    assert holds(estimate.count_interval(SURE), (700, 400, 100))


@pytest.mark.parametrize(
    ("rows", "options", "problem"),
    [
        (USERS, {"clip": True}, "impossible-combination"),
        (USERS, {"missing": "midpoint"}, "impossible-combination"),
        (USERS, {"round_number": 2}, "out-of-range"),
        (0, {}, "no-rows"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run_begins(
    table: pa.Table, tmp_path: Path, rows: int, options: dict[str, Any], problem: str
) -> None:
    from shufflesum.batch import spark

    plan = planned(ss.Categories(["yes", "no", "unsure"], column="answer"))
    parquet.write_table(table[:rows], tmp_path / "users.parquet")
    begun = list[str]()
    with refusal(problem):
        spark.randomize_folder(tmp_path / "users.parquet", tmp_path / "r", plan, begin=begun.append, **options)
    assert begun == []
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("shape", "named", "problem", "facts", "error"),
    [
        (ss.Categories(["yes", "no"]), {"label_column": "answer"}, "unknown-label", ["row"], DataError),
        (ss.Categories(["yes", "no"]), {}, "missing-argument", ["'answer'"], ParameterError),
        (ss.Categories(["yes", "no"]), {"label_column": "nowhere"}, "unknown-column", ["'nowhere'"], FileError),
        (ss.Categories(2), {"label_column": "ticked"}, "wrong-type", ["array<string>"], DataError),
        (ss.Categories(2, column="reply"), {}, "columns-mismatch", ["'reply'"], DataError),
        (
            ss.MultiChoice(["web", "mail"], max_choices=2),
            {"label_column": "answer"},
            "wrong-type",
            ["string"],
            DataError,
        ),
        (
            ss.MultiChoice(["web", "fax"], max_choices=2),
            {"label_column": "ticked"},
            "unknown-label",
            ["row"],
            DataError,
        ),
        (
            ss.GroupBy(["DE", "FR"], 2),
            {"label_column": "country", "columns": ["x"]},
            "wrong-shape",
            ["1 columns"],
            DataError,
        ),
        (
            ss.GroupBy(["DE", "FR"], 1),
            {"label_column": "country", "columns": ["answer"]},
            "not-numbers",
            ["'answer'"],
            DataError,
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    session: Any, table: pa.Table, shape: Any, named: dict[str, Any], problem: str, facts: list[str], error: Any
) -> None:
    from shufflesum.batch import spark

    with refusal(problem, *facts, error=error):
        spark.randomize(session.createDataFrame(table), planned(shape), **named)
