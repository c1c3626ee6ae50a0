"""The roles on folders that Spark shares with the local engine, and on users' rows in Parquet."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from shufflesum._machine import sync
from shufflesum.batch.files import Dataset, StagedFolder, describe_inputs, finished_reports, open_dataset
from shufflesum.batch.identity import Identity, Stage
from shufflesum.batch.kinds import PLAIN
from shufflesum.batch.memory import DEFAULT_MEMORY
from shufflesum.batch.once import Released
from shufflesum.batch.shuffle.sources import (
    FileSource,
    folders_of,
    open_source,
    refuse_changed,
    refuse_copied_reports,
    shuffled_before,
)
from shufflesum.batch.shuffle.uploads import holds_uploads
from shufflesum.batch.spark.columns import users_columns
from shufflesum.batch.spark.frames import identity_of, quoted, report_schema
from shufflesum.batch.spark.jobs import PARTS, exact_path, materialise, spark_job
from shufflesum.batch.spark.roles import count, not_empty, randomized, shuffled_to
from shufflesum.batch.spark.session import session
from shufflesum.batch.targets import PlainTarget
from shufflesum.domain import Missing
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.estimate import Estimate
from shufflesum.plans import Plan
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.tables import Address, place

__all__ = ["analyze_folder", "count_folder", "randomize_folder", "read", "shuffle_folder", "write"]

_STAGE = "_spark"


def read(spark: SparkSession, path: str | os.PathLike[str], stage: Stage) -> DataFrame:
    """A folder of report files (Parquet) of either engine, checked as a whole, as a frame."""
    return frame_of(spark, open_dataset(path, stage=stage))


def write(frame: DataFrame, path: str | os.PathLike[str]) -> Dataset:
    """Write a frame of reports to a new folder that either engine reads; it appears whole or not at all.

    The folder must be one that the driver and all executors share.
    """
    identity = identity_of(frame)
    with staged_folder(path, identity) as folder:
        materialise(_without_nulls(frame, identity), f"{folder}/{PARTS}")
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
    frame = users_of(session(master, conf), files)
    chosen = users_columns(
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
    with spark_job(frame.sparkSession):
        not_empty(chosen, chosen.limit(1).count())
    with staged_folder(output, identity, work, begin) as folder:
        begin(*identity.contribution_ids)
        drawn = randomized(chosen, plan, identity, clip=clip, missing=missing)
        not_empty(*materialise(drawn, f"{folder}/{PARTS}"))
    return open_dataset(output, stage="reports")


def shuffle_folder(
    path: str | os.PathLike[str] | Address | Sequence[str | os.PathLike[str] | Address],
    output: str | os.PathLike[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    released: str | os.PathLike[str] | None = None,
) -> Dataset:
    """`shuffle` from a folder of reports, or from several, to a new one.

    What was released is remembered in the file `released`, by default `_released.json` in each input folder. Repeated
    after it has finished, it does nothing and returns what is there.
    """
    paths = [path] if isinstance(path, str | os.PathLike | Address) else path
    for given in map(place, paths):
        if given.exists() and holds_uploads(given):
            raise ParameterError(
                "conflicting-arguments", f"{given}: Spark shuffles report files; uploads are for --engine local"
            )
    source = open_source(*paths)
    assert isinstance(source, FileSource)
    refuse_copied_reports(source, DEFAULT_MEMORY)
    releases = Released(source.members(), folders_of(source), released)
    releases.check()
    if (before := shuffled_before(output, releases, "parquet")) is not None:
        return before
    spark, after = session(master, conf), source.identity.shuffled(source.dataset.rows)
    with staged_folder(output, after) as folder:
        shuffled_to(frame_of(spark, source.dataset), source.identity, after, folder)
        refuse_changed(source)
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
    return _count(open_dataset(path, stage="shuffled"), plan, master, conf)


def analyze_folder(
    path: str | os.PathLike[str],
    plan: Plan,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    without_guarantee: bool = False,
) -> Estimate:
    """`analyze` of a folder of shuffled reports; refused as `shufflesum.release` says."""
    dataset = open_dataset(path, stage="shuffled")
    counts = _count(dataset, plan, master, conf)
    return release(counts, whole=dataset.whole, without_guarantee=without_guarantee)


def _count(dataset: Dataset, plan: Plan, master: str | None, conf: Mapping[str, str] | None) -> Counts:
    PlainTarget(plan).check(dataset.identity)
    return count(frame_of(session(master, conf), dataset), plan)


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
                f"{file.path}: Spark reads reports in Parquet only; write them with --format parquet",
            )
    paths = [f"file://{exact_path(str(file.path.absolute()))}" for file in dataset.files]
    with spark_job(spark):
        return spark.read.schema(report_schema(dataset.identity)).parquet(*paths)


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
    files = sorted(p for p in path.iterdir() if not p.name.startswith(("_", "."))) if path.is_dir() else [path]
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
    with spark_job(spark):
        return spark.read.parquet(*[f"file://{exact_path(str(file.absolute()))}" for file in files])


def refuse_repeated_users(frame: DataFrame, where: str, column: str) -> None:
    """One row is one user: a user with two would get half the promise."""
    with spark_job(frame.sparkSession):
        user = F.col(quoted(column))
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
        f"{where}: a user has {repeated['count']} rows; with --user-column {column} each user has "
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
            for number, part in enumerate(sorted(inner.glob(f"{PARTS}/part-*.parquet"))):
                sync(part)
                part.rename(staged.path / f"part-{number:05d}.parquet")
        finally:
            shutil.rmtree(inner, ignore_errors=True)
