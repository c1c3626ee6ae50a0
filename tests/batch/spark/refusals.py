"""What the roles on Spark refuse: the error, what it must name, and the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.batch.spark_frames import DIMENSION, PLAN, USERS, Batch

from shufflesum.errors import DataError, FileError, ParameterError, ReportsError, ShufflesumError
from shufflesum.testing import unprotected_plan

__all__ = ["REFUSED"]


def with_column(batch: Batch) -> Any:
    from pyspark.sql import functions as F

    return batch.shuffled.withColumn("cell", F.lit(1))


def twice(batch: Batch) -> Any:
    return batch.shuffled.withColumn("again", batch.shuffled["cell"])


def mixed(batch: Batch) -> Any:
    return batch.shuffled.union(batch.shuffled.sparkSession.createDataFrame([(1,)], "cell long"))


OTHER = unprotected_plan(users=USERS, shape=DIMENSION, coordinates=DIMENSION, levels=3)
REFUSED: dict[str, tuple[type[ShufflesumError], tuple[str, ...], Callable[[Any, Batch], object]]] = {
    "another plan": (
        ReportsError,
        ("plan-mismatch", PLAN.id[:12], OTHER.id[:12]),
        lambda spark, b: spark.analyze(b.shuffled, OTHER),
    ),
    "not shuffled": (ReportsError, ("wrong-stage",), lambda spark, b: spark.analyze(b.reports, PLAN)),
    "shuffled twice": (ReportsError, ("wrong-stage",), lambda spark, b: spark.shuffle(b.shuffled)),
    "no identity": (ReportsError, ("mixed-reports", "'beat'"), lambda spark, b: spark.analyze(b.users, PLAN)),
    "a computed column": (
        ReportsError,
        ("mixed-reports", "'cell'"),
        lambda spark, b: spark.analyze(with_column(b), PLAN),
    ),
    "foreign rows": (ReportsError, ("mixed-reports",), lambda spark, b: spark.analyze(mixed(b), PLAN)),
    "other columns": (
        ReportsError,
        ("unknown-column", "'again'", "'cell'"),
        lambda spark, b: spark.count(twice(b), PLAN),
    ),
    "twice": (ReportsError, ("counted-twice",), lambda spark, b: spark.shuffle(b.reports.union(b.reports))),
    "too few": (ReportsError, ("too-few-users", "29995"), lambda spark, b: spark.shuffle(b.reports.limit(5))),
    "no rows": (DataError, ("no-rows",), lambda spark, b: spark.randomize(b.users.limit(0), PLAN)),
    "no frame": (ParameterError, ("wrong-type", "ndarray"), lambda spark, b: spark.shuffle(b.rows)),
    "wrong width": (
        DataError,
        ("wrong-shape", "1 columns", "10 values"),
        lambda spark, b: spark.randomize(b.users.selectExpr("beat[0]"), PLAN),
    ),
    "text": (
        DataError,
        ("not-numbers", "column 't'", "string"),
        lambda spark, b: spark.randomize(b.users.selectExpr("'a' as t"), PLAN),
    ),
    "arrays and more": (
        DataError,
        ("wrong-shape", "column 'beat'", "columns="),
        lambda spark, b: spark.randomize(b.users.selectExpr("beat", "1"), PLAN),
    ),
    "no such column": (
        FileError,
        ("unknown-column", "nowhere"),
        lambda spark, b: spark.randomize(b.users, PLAN, columns=["nowhere"]),
    ),
    "missing value": (
        DataError,
        ("missing-value", "partition", "coordinate 9"),
        lambda spark, b: spark.randomize(b.users.selectExpr("array_append(slice(beat, 1, 9), null) as beat"), PLAN),
    ),
}
