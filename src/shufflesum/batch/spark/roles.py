"""The three roles on Spark: on data frames, on folders shared with the local engine, and on users' rows in Parquet.

Reports are written down as soon as they are drawn, and again when they are shuffled, before anything depends on them:
tasks that Spark runs twice can neither lose nor repeat nor redraw a report. `jobs` says how.
"""

from __future__ import annotations

import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from shufflesum._machine import sync
from shufflesum.batch import shuffle as sources
from shufflesum.batch.files import Dataset, StagedFolder, describe_inputs, finished_reports, open_dataset
from shufflesum.batch.identity import PLAIN, Identity, Stage
from shufflesum.batch.once import Released
from shufflesum.batch.spark import jobs, tasks
from shufflesum.batch.targets import DEFAULT_MEMORY, PlainTarget
from shufflesum.domains import Missing
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.estimate import AnyEstimate
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.tables.paths import Address, place, visible

_BUCKET_BYTES = 24 << 20  # of packed reports, which a task holds several times over while it permutes them
_MAX_WIDTH = 1 << 16
_COLLECTED_CELLS = 1 << 24


def randomize(
    frame: DataFrame,
    plan: Plan,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
    round_number: int = 1,
) -> DataFrame:
    """Reports of all rows for a round of the plan, each row one user, drawn once and kept until Spark ends.

    The columns (all, unless named) are numbers in the order of the plan's entries, or one is an array of them. Labels
    are in `label_column`, in the column that the plan names, or in the only one: text, whole numbers, or true and
    false; arrays of them for `MultiChoice`. The result is for the shuffler alone. It lies in a folder of the checkpoint
    directory, which a cluster must have (`sparkContext.setCheckpointDir`); only its owner may read it.
    """
    users = jobs.users_columns(frame, "the DataFrame", plan.domain, columns=columns, label_column=label_column)
    identity = Identity.for_plan(plan, users.columns, round_number)
    drawn = randomized(users, plan, identity, clip=clip, missing=missing)
    with jobs.working_folder(frame.sparkSession) as folder:
        return not_empty(*jobs.materialise(drawn, f"{folder}/{jobs.PARTS}"))


def shuffle(frame: DataFrame) -> DataFrame:
    """The reports of `randomize`, or a union of several such, in a uniformly random order, kept until Spark ends.

    Refused below the plan's smallest batch. Each report draws a bucket, and that is written down; then every bucket,
    all of it in one place, is permuted, and that is written down.
    """
    identity = jobs.identity_of(frame, "reports")
    with jobs.spark_job(frame.sparkSession):
        rows = frame.count()
    identity.check_enough(rows)
    with jobs.working_folder(frame.sparkSession) as folder:
        return shuffled_to(frame, identity, identity.shuffled(rows), folder)


def count(frame: DataFrame, plan: Plan) -> Counts:
    """The table of counts of shuffled reports: one for each partition, then their sum."""
    identity = jobs.identity_of(frame, "shuffled")
    counts = Counts(plan, identity.round_number)  # refuses here a plan that no task verifies again
    PlainTarget(plan).check(identity)
    with jobs.spark_job(frame.sparkSession):
        add_up = partial(tasks.count_partition, plan=plan, round_number=identity.round_number)
        cells = jobs.over_reports(frame, identity, add_up, "cell long, count long")
        if cells.rdd.getNumPartitions() * plan.cells > _COLLECTED_CELLS:
            cells = cells.groupBy("cell").agg(F.sum("count").alias("count"))
        found = cells.toArrow()
    cell, number = (found.column(name).to_numpy() for name in ("cell", "count"))
    np.add.at(counts.table, cell[cell >= 0], number[cell >= 0])
    counts.blanks = int(number[cell == tasks.BLANKS].sum())
    counts.rejected = int(number[cell == tasks.REJECTED].sum())
    return counts


def analyze(frame: DataFrame, plan: Plan, *, without_guarantee: bool = False) -> AnyEstimate:
    """The estimate from the shuffled reports of a whole batch.

    Refused for another plan, for unshuffled reports, and as `shufflesum.release` says.
    """
    counts = count(frame, plan)
    whole = counts.received == jobs.identity_of(frame, "shuffled").written
    return release(counts, whole=whole, without_guarantee=without_guarantee)


def randomized(users: DataFrame, plan: Plan, identity: Identity, *, clip: bool, missing: Missing) -> DataFrame:
    """The reports of users in columns that were checked, not drawn yet: whenever asked for they are others."""
    Randomizer(plan, clip=clip, missing=missing)  # refuses here what every task would refuse
    draw = partial(tasks.randomize_partition, plan=plan, identity=identity, clip=clip, missing=missing)
    return users.mapInArrow(draw, jobs.report_schema(identity))


def shuffled_to(frame: DataFrame, before: Identity, after: Identity, folder: str) -> DataFrame:
    """The reports in random order, written to the parts of a folder."""
    spark, rows = frame.sparkSession, after.written or 0
    before.check_enough(rows)
    total = rows * before.kind.item.itemsize
    buckets = min(_MAX_WIDTH, 1 << max(0, math.ceil(math.log2(total / _BUCKET_BYTES))))
    deal = partial(tasks.scatter_partition, identity=before, buckets=buckets)
    dealt, _ = jobs.materialise(jobs.over_reports(frame, before, deal, "bucket int, reports binary"), f"{folder}/dealt")
    # From here on, only the last stage draws; what the exchange brings it is the same each time it is asked for.
    # The number of partitions is given, so that Spark does not cut a bucket in two.
    together = dealt.repartitionById(buckets, "bucket")
    permuted = together.mapInArrow(partial(tasks.permute_partition, identity=before), jobs.report_schema(after))
    shuffled, found = jobs.materialise(permuted, f"{folder}/{jobs.PARTS}")
    jobs.remove(spark, f"{folder}/dealt")
    if found != rows:
        raise ReportsError(
            "changed-meanwhile", f"{found} reports came out of the shuffle, and {rows} went in; the input was changed"
        )
    return shuffled


def not_empty(frame: DataFrame, rows: int) -> DataFrame:
    """Refuse users of whom there is none."""
    if rows == 0:
        raise DataError("no-rows", "there are no rows; one row for each of at least one user is expected")
    return frame


_STAGE = "_spark"


def read(spark: SparkSession, path: str | os.PathLike[str], stage: Stage) -> DataFrame:
    """A folder of report files (Parquet) of either engine, checked as a whole, as a frame."""
    return frame_of(spark, open_dataset(path, stage=stage))


def write(frame: DataFrame, path: str | os.PathLike[str]) -> Dataset:
    """Write a frame of reports to a new folder that either engine reads; it appears whole or not at all.

    The folder must be one that the driver and all executors share.
    """
    identity = jobs.identity_of(frame)
    with staged_folder(path, identity) as folder:
        jobs.materialise(_without_nulls(frame, identity), f"{folder}/{jobs.PARTS}")
    return open_dataset(path, stage=identity.stage)


def _without_nulls(frame: DataFrame, identity: Identity) -> DataFrame:
    """Spark says of all that it read that it may be null; what is becomes another report that is rejected."""
    column, none = identity.kind.column, F.lit(-1 if identity.kind is PLAIN else b"")
    return frame.select(F.coalesce(F.col(column), none).alias(column, metadata=frame.schema[column].metadata))


def randomize_folder(
    users: str | os.PathLike[str] | Address,
    output: str | os.PathLike[str],
    plan: Plan,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    columns: Sequence[str] | None = None,
    label_column: str | None = None,
    user_column: str | None = None,
    round_number: int = 1,
    restart: bool = False,
    begin: Callable[[str], None] | None = None,
) -> Dataset:
    """`randomize` from a Parquet file, or a folder of such, to a new folder of reports; drawn once, written once.

    `columns` are names or ranges of positions such as 0:100. With `user_column`, a user with two rows is refused.
    Repeated after it has finished, it draws nothing and returns what is there. `begin` is called with the name of the
    run before it draws anything; one that was interrupted is drawn anew, under another name.
    """
    files = users_files(users)
    frame = users_of(jobs.session(master, conf), files)
    chosen = jobs.users_columns(
        frame, str(users), plan.domain, columns=columns, label_column=label_column, user_column=user_column
    )
    identity = Identity.for_plan(plan, chosen.columns, round_number)
    work = {
        "step": "randomize on Spark",
        "inputs": describe_inputs(files),
        "columns": chosen.columns,
        "user_column": user_column,
        "clip": clip,
        "missing": missing,
    }
    begin = begin or (lambda _: None)
    if (finished_before := finished_reports(output, work, identity, restart=restart)) is not None:
        begin(*finished_before.identity.contribution_ids)
        return finished_before
    plan.check_round(round_number)
    plan.domain.check_options(clip=clip, missing=missing)
    if user_column is not None:
        refuse_repeated_users(frame, str(users), user_column)
    with jobs.spark_job(frame.sparkSession):
        not_empty(chosen, chosen.limit(1).count())
    with staged_folder(output, identity, work, begin) as folder:
        begin(*identity.contribution_ids)
        drawn = randomized(chosen, plan, identity, clip=clip, missing=missing)
        not_empty(*jobs.materialise(drawn, f"{folder}/{jobs.PARTS}"))
    return open_dataset(output, stage="reports")


def shuffle_folder(
    reports: sources.Place | Sequence[sources.Place],
    output: str | os.PathLike[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    released: str | os.PathLike[str] | None = None,
) -> Dataset:
    """`shuffle` from a folder of reports, or from several, to a new one.

    What was released is remembered in the file `released`, by default `_released.db` in each input folder. Repeated
    after it has finished, it does nothing and returns what is there.
    """
    paths = sources.each_of(reports)
    for given in map(place, paths):
        if given.exists() and sources.holds_uploads(given):
            raise ParameterError(
                "conflicting-arguments", f"{given}: Spark shuffles report files; uploads are for --engine local"
            )
    source = sources.open_source(*paths)
    assert isinstance(source, sources.FileSource)
    sources.refuse_copied_reports(source, DEFAULT_MEMORY)
    releases = Released(source.members(), sources.folders_of(source), released)
    releases.check()
    if (before := sources.shuffled_before(output, releases, "parquet")) is not None:
        return before
    spark, after = jobs.session(master, conf), source.identity.shuffled(source.dataset.rows)
    with staged_folder(output, after) as folder:
        shuffled_to(frame_of(spark, source.dataset), source.identity, after, folder)
        sources.refuse_changed(source)
        releases.record(after.shuffle_id)
    return open_dataset(output, stage="shuffled")


def count_folder(
    path: str | os.PathLike[str] | Address,
    plan: Plan,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Counts:
    """`count` of a folder of shuffled reports."""
    dataset = open_dataset(path, stage="shuffled")
    PlainTarget(plan).check(dataset.identity)
    return count(frame_of(jobs.session(master, conf), dataset), plan)


def frame_of(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The reports of a folder that was opened and checked."""
    for file in dataset.files:
        if not isinstance(file.path, Path):
            raise FileError(
                "impossible-combination",
                f"{file.path}: these commands give Spark folders that driver and executors share; in a job of yours "
                "Spark reads addresses itself (docs/scale.md)",
            )
        if file.path.suffix != ".parquet":
            raise FileError(
                "unknown-file-type",
                f"{file.path}: Spark reads reports in Parquet only; write them with format='parquet'",
            )
    paths = [f"file://{jobs.exact_path(str(file.path.absolute()))}" for file in dataset.files]
    with jobs.spark_job(spark):
        return spark.read.schema(jobs.report_schema(dataset.identity)).parquet(*paths)


def users_files(users: str | os.PathLike[str] | Address) -> list[Path]:
    """A Parquet file, or those of a folder that are not empty."""
    path = place(users)
    if not isinstance(path, Path):
        raise FileError(
            "impossible-combination",
            f"{path}: Spark reads addresses itself, in a job of yours (docs/scale.md); or leave out --engine spark",
        )
    if not path.exists():
        raise FileError(
            "unreadable", f"{path}: does not exist; give a Parquet file of users' rows, or a folder of such"
        )
    files = visible(path) if path.is_dir() else [path]
    if path.is_dir() and (empty := [file for file in files if file.stat().st_size == 0]):
        warnings.warn(f"{path}: skipped {', '.join(file.name for file in empty[:5])}, empty files", stacklevel=3)
        files = [file for file in files if file not in empty]
    if not files or not all(file.suffix.lower() == ".parquet" for file in files):
        raise FileError(
            "unknown-file-type", f"{path}: Spark reads users' rows from Parquet files; for others use --engine local"
        )
    return files


def users_of(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The rows of Parquet files."""
    with jobs.spark_job(spark):
        return spark.read.parquet(*[f"file://{jobs.exact_path(str(file.absolute()))}" for file in files])


def refuse_repeated_users(frame: DataFrame, where: str, column: str) -> None:
    """One row is one user: a user with two would get half the promise."""
    with jobs.spark_job(frame.sparkSession):
        user = F.col(jobs.quoted(column))
        if isinstance(frame.schema[column].dataType, StringType):
            user = F.nullif(F.trim(user), F.lit(""))  # " 7" and "7" are the same person typed twice
        repeated = frame.groupBy(user.alias("user")).count().where("count > 1 or user is null").head()
    if repeated is None:
        return
    if repeated["user"] is None:
        raise DataError(
            "missing-value", f"{where}: {repeated['count']} rows have no user in column {column!r}; one row is one user"
        )
    raise DataError(
        "repeated-user",
        f"{where}: a user has {repeated['count']} rows; with user_column={column!r} each user has "
        "one. Combine each user's rows first, by their average or sum",
        value=repr(repeated["user"]),
    )


@contextmanager
def staged_folder(
    path: str | os.PathLike[str],
    identity: Identity,
    work: Mapping[str, Any] | None = None,
    begin: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """A folder for Spark to write to; its files go to a new folder of reports, which appears whole or not at all.

    Where `work` says what it is made from, a note stays beside it, see `finished_reports`. `begin` is that of
    `StagedFolder`.
    """
    made_from = work or {"step": "spark"}
    with StagedFolder(path, made_from, identity, restart=True, noted=work is not None, begin=begin) as staged:
        inner = staged.path / _STAGE
        try:
            yield f"file://{inner.absolute()}"
            for number, part in enumerate(sorted(inner.glob(f"{jobs.PARTS}/part-*.parquet"))):
                sync(part)
                part.rename(staged.path / f"part-{number:05d}.parquet")
        finally:
            shutil.rmtree(inner, ignore_errors=True)
