"""The three roles on Spark: data frames of users' vectors to reports, to shuffled reports, to an estimate.

The steps are those of the local engine, on Arrow batches. Reports are written down as soon as they are drawn, and
again when they are shuffled, before anything depends on them: tasks that Spark runs twice can neither lose nor repeat
nor redraw a report. `_spark_frames` says how.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shufflesum.batch.datasets import Dataset, open_dataset
from shufflesum.batch.identity import Identity, Stage
from shufflesum.batch.local import check_target, file_digests
from shufflesum.batch.released import ReleaseLedger
from shufflesum.batch.sources import FileSource, folders_of, open_source, refuse_changed
from shufflesum.batch.uploads import holds_uploads
from shufflesum.contract import Plan
from shufflesum.domain import Missing
from shufflesum.errors import DataError, MissingExtraError, ParameterError, ReportsError
from shufflesum.estimation import Estimate, estimate
from shufflesum.honesty import refuse_broken
from shufflesum.protocol import Counts, Randomizer
from shufflesum.tables.columns import choose_columns

try:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, BooleanType, NumericType

    from shufflesum.batch import _spark_tasks as tasks
    from shufflesum.batch._spark_folders import (
        PARTS,
        frame_of,
        quoted,
        refuse_repeated_users,
        staged_folder,
        users_of,
    )
    from shufflesum.batch._spark_frames import (
        check_frame,
        first_words,
        identity_of,
        materialise,
        over_reports,
        remove,
        report_schema,
        spark_job,
        working_folder,
    )
except ImportError as error:
    raise MissingExtraError(f"Spark is not installed ({error}): pip install 'shufflesum[spark]'") from error

__all__ = [
    "analyze",
    "analyze_folder",
    "count",
    "count_folder",
    "randomize",
    "randomize_folder",
    "read",
    "session",
    "shuffle",
    "shuffle_folder",
    "write",
]

_BUCKET_BYTES = 24 << 20  # of packed reports, which a task holds several times over while it permutes them
_MOST_BUCKETS = 1 << 16
_COLLECTED_CELLS = 1 << 24
_NO_LOG = """status = off
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""


def session(master: str | None = None) -> SparkSession:
    """The running session, or a quiet new one whose executors use this very Python.

    `master` is Spark's address of a cluster; without one, what spark-submit or Spark's own configuration says counts,
    or else all cores of this machine.
    """
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    if SparkSession.getActiveSession() is None and shutil.which(java) is None:
        raise MissingExtraError(
            f"Spark runs on Java, and {java} was not found; install Java 17 or newer, or set JAVA_HOME to where it is"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("shufflesum")
    if master is not None:
        builder = builder.master(master)
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    try:
        with _quiet():
            return builder.config(map=settings).getOrCreate()
    except Exception as error:  # Java, Spark and the network can each fail in their own way
        raise ParameterError(
            f"no Spark session at {master or 'the configured master'}: {first_words(str(error))}; check --master"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Java started here logs nothing, unless the environment says how it should: errors come as exceptions anyway."""
    name = "LOG4J_CONFIGURATION_FILE"
    if name in os.environ:
        yield
        return
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(_NO_LOG)
        file.flush()
        os.environ[name] = file.name
        try:
            yield
        finally:
            del os.environ[name]


def randomize(
    frame: DataFrame,
    plan: Plan,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Reports of all rows, each row one user, drawn once and kept until Spark ends.

    The columns (all, unless named) are numbers in the order of the plan's entries, or one is an array of them. The
    result is for the shuffler alone. It lies in a folder of the checkpoint directory, which a cluster must have
    (`sparkContext.setCheckpointDir`); only its owner may read it.
    """
    identity = Identity.for_plan(plan, columns or frame.columns)
    drawn = _randomized(frame, plan, identity, clip=clip, missing=missing, columns=columns)
    with working_folder(frame.sparkSession) as folder:
        return _some(*materialise(drawn, f"{folder}/{PARTS}"))


def shuffle(frame: DataFrame) -> DataFrame:
    """The reports of `randomize`, or a union of several such, in a uniformly random order, kept until Spark ends.

    Refused below the plan's smallest batch. Each report draws a bucket, and that is written down; then every bucket,
    all of it in one place, is permuted, and that is written down.
    """
    identity = identity_of(frame, "reports")
    with working_folder(frame.sparkSession) as folder:
        return _shuffled(frame, identity, identity.shuffled(), folder)


def count(frame: DataFrame, plan: Plan) -> Counts:
    """The table of counts of shuffled reports: one for each partition, then their sum."""
    identity = identity_of(frame, "shuffled")
    check_target(identity, plan)
    with spark_job(frame.sparkSession):
        cells = over_reports(frame, identity, partial(tasks.count_partition, plan=plan), "cell long, count long")
        if cells.rdd.getNumPartitions() * plan.dimension * (plan.levels + 1) > _COLLECTED_CELLS:
            cells = cells.groupBy("cell").agg(F.sum("count").alias("count"))
        found = cells.toArrow()
    counts = Counts(plan)
    places, numbers = (found.column(name).to_numpy() for name in ("cell", "count"))
    inside = places != tasks.REJECTED
    np.add.at(counts.table.reshape(-1), places[inside], numbers[inside])
    counts.rejected = int(numbers[~inside].sum())
    return counts


def analyze(frame: DataFrame, plan: Plan) -> Estimate:
    """The estimate from the shuffled reports of a whole batch.

    Refused for another plan, unshuffled reports, too few of them, or more users who strayed from the protocol than the
    plan's honest fraction allows.
    """
    return _estimate(count(frame, plan))


def read(spark: SparkSession, path: str | os.PathLike[str], stage: Stage) -> DataFrame:
    """A folder of report files (Parquet) of either engine, checked as a whole, as a frame."""
    return frame_of(spark, open_dataset(path, stage=stage))


def write(frame: DataFrame, path: str | os.PathLike[str]) -> Dataset:
    """Write a frame of reports to a new folder that either engine reads; it appears whole or not at all.

    The folder must be one that the driver and all executors share.
    """
    identity = identity_of(frame)
    with staged_folder(path, identity) as folder:
        materialise(frame.select(*identity.columns), f"{folder}/{PARTS}")
    return open_dataset(path, stage=identity.stage)


def randomize_folder(
    users: str | os.PathLike[str],
    output: str | os.PathLike[str],
    plan: Plan,
    *,
    master: str | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    columns: Sequence[str] | None = None,
    user_column: str | None = None,
) -> Dataset:
    """`randomize` from a Parquet file, or a folder of such, to a new folder of reports; drawn once, written once.

    `columns` are names or ranges of positions such as 0:100. With `user_column`, a user with two rows is refused.
    """
    frame = users_of(session(master), Path(users))
    choice = choose_columns(str(users), frame.columns, columns, user_column)
    names = [frame.columns[place] for place in choice.data]
    identity = Identity.for_plan(plan, names)
    with staged_folder(output, identity) as folder:
        if user_column is not None:
            refuse_repeated_users(frame, str(users), user_column)
        drawn = _randomized(frame, plan, identity, clip=clip, missing=missing, columns=names)
        _some(*materialise(drawn, f"{folder}/{PARTS}"))
    return open_dataset(output, stage="reports")


def shuffle_folder(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    master: str | None = None,
    ledger: str | os.PathLike[str] | None = None,
) -> Dataset:
    """`shuffle` from a folder of reports, or from several, to a new one.

    What was released is remembered in the file `ledger`, by default `_released.json` in each input folder.
    """
    paths = [path] if isinstance(path, str | os.PathLike) else path
    for place in map(Path, paths):
        if place.exists() and holds_uploads(place):
            raise ParameterError(f"{place}: Spark shuffles report files; uploads are for --engine local")
    source = open_source(*paths)
    assert isinstance(source, FileSource)
    releases = ReleaseLedger(source.members(), folders_of(source), ledger)
    releases.check()
    spark, after = session(master), source.identity.shuffled()
    with staged_folder(output, after) as folder:
        _shuffled(frame_of(spark, source.dataset), source.identity, after, folder)
        refuse_changed(source)
        releases.record(after.shuffle_id)
    return open_dataset(output, stage="shuffled")


def count_folder(path: str | os.PathLike[str], plan: Plan, *, master: str | None = None) -> Counts:
    """`count` of a folder of shuffled reports."""
    dataset = open_dataset(path, stage="shuffled")
    check_target(dataset.identity, plan)
    return count(frame_of(session(master), dataset), plan)


def analyze_folder(path: str | os.PathLike[str], plan: Plan, *, master: str | None = None) -> Estimate:
    """`analyze` of a folder of shuffled reports; two equal files are refused."""
    file_digests(open_dataset(path, stage="shuffled"))
    return _estimate(count_folder(path, plan, master=master))


def _estimate(counts: Counts) -> Estimate:
    found = estimate(counts)
    refuse_broken(counts, (counts.accepted + counts.rejected) // counts.plan.reports)
    return found


def _randomized(
    frame: DataFrame, plan: Plan, identity: Identity, *, clip: bool, missing: Missing, columns: Sequence[str] | None
) -> DataFrame:
    """The users' reports, not drawn yet: each time they are asked for they are others."""
    check_frame(frame)
    Randomizer(plan, clip=clip, missing=missing)  # refuses here what every task would refuse
    with spark_job(frame.sparkSession):
        users = frame if columns is None else frame.select(*[F.col(quoted(name)) for name in columns])
        fields = users.schema.fields
    lists = [field for field in fields if isinstance(field.dataType, ArrayType)]
    for field in fields:
        kind = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
        if not isinstance(kind, NumericType | BooleanType):
            raise DataError(
                f"column {field.name!r} has type {field.dataType.simpleString()}; allowed are numbers and one array of "
                "numbers: convert it, or choose other columns (columns=, --columns)"
            )
    if lists and len(fields) > 1:
        raise DataError(
            f"column {lists[0].name!r} holds arrays and there are {len(fields) - 1} other columns; choose it alone "
            "(columns=, --columns), or leave it out"
        )
    if not lists and len(fields) != math.prod(plan.shape):
        raise DataError(
            f"a row has {len(fields)} columns, but the plan is for {math.prod(plan.shape)} values, shape {plan.shape}; "
            "choose the columns (columns=, --columns), or the right plan"
        )
    draw = partial(tasks.randomize_partition, plan=plan, identity=identity, clip=clip, missing=missing)
    return users.mapInArrow(draw, report_schema(identity))


def _shuffled(frame: DataFrame, before: Identity, after: Identity, folder: str) -> DataFrame:
    """The reports in random order, written to the parts of a folder."""
    spark = frame.sparkSession
    with spark_job(spark):
        rows = frame.count()
    if rows < before.least_reports:
        raise ReportsError(
            f"there are {rows} reports, but the plan hides a user among {before.users} users with {before.reports} "
            f"reports each; wait for {before.least_reports - rows} more"
        )
    total = rows * tasks.item_type(before).itemsize
    buckets = min(_MOST_BUCKETS, 1 << max(0, math.ceil(math.log2(total / _BUCKET_BYTES))))
    deal = partial(tasks.scatter_partition, identity=before, buckets=buckets)
    dealt, _ = materialise(over_reports(frame, before, deal, "bucket int, reports binary"), f"{folder}/dealt")
    # From here on, only the last stage draws; what the exchange brings it is the same each time it is asked for.
    # The number of partitions is given, so that Spark does not cut a bucket in two.
    together = dealt.repartitionById(buckets, "bucket")
    permuted = together.mapInArrow(partial(tasks.permute_partition, identity=before), report_schema(after))
    shuffled, found = materialise(permuted, f"{folder}/{PARTS}")
    remove(spark, f"{folder}/dealt")
    if found != rows:
        raise ReportsError(f"{found} reports came out of the shuffle, and {rows} went in; the input was changed")
    return shuffled


def _some(frame: DataFrame, rows: int) -> DataFrame:
    if rows == 0:
        raise DataError("there are no rows; one row of numbers for each of at least one user is expected")
    return frame
