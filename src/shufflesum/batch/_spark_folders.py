"""Folders of files on Spark: reports to and from folders that the local engine shares, and users' rows in Parquet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from shufflesum._machine import sync
from shufflesum.batch._spark_frames import exact_path, report_schema, spark_job
from shufflesum.batch.datasets import Dataset, StagedFolder
from shufflesum.batch.identity import Identity
from shufflesum.errors import DataError, FileError

__all__ = ["PARTS", "frame_of", "quoted", "refuse_repeated_users", "staged_folder", "users_of"]

PARTS = "parts"  # where in a folder the result is written; what else is in it is on the way there
_STAGE = "_spark"


def frame_of(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The reports of a folder that was opened and checked."""
    for file in dataset.files:
        if file.path.suffix != ".parquet":
            raise FileError(f"{file.path}: Spark reads reports in Parquet only; write them with --format parquet")
    paths = [f"file://{exact_path(str(file.path.absolute()))}" for file in dataset.files]
    with spark_job(spark):
        return spark.read.schema(report_schema(dataset.identity)).parquet(*paths)


def users_of(spark: SparkSession, path: Path) -> DataFrame:
    """The rows of a Parquet file, or of a folder of such."""
    if not path.exists():
        raise FileError(f"{path}: does not exist; give a Parquet file of users' rows, or a folder of such")
    files = sorted(p for p in path.iterdir() if not p.name.startswith(("_", "."))) if path.is_dir() else [path]
    if not files or not all(file.suffix.lower() == ".parquet" for file in files):
        raise FileError(f"{path}: Spark reads users' rows from Parquet files; for others use --engine local")
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
        raise DataError(f"{where}: {repeated['count']} rows have no user in column {column!r}; one row is one user")
    raise DataError(
        f"{where}: user {repeated['user']!r} has {repeated['count']} rows; with --user-column {column} each user has "
        "one. Combine each user's rows first, by their average or sum"
    )


def quoted(name: str) -> str:
    """A column's name as Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"


@contextmanager
def staged_folder(path: str | os.PathLike[str], identity: Identity) -> Iterator[str]:
    """A folder for Spark to write to; its files go to a new folder of reports, which appears whole or not at all."""
    with StagedFolder(path, {"step": "spark"}, identity, restart=True) as staged:
        inner = staged.path / _STAGE
        try:
            yield f"file://{inner.absolute()}"
            for number, part in enumerate(sorted(inner.glob(f"{PARTS}/part-*.parquet"))):
                sync(part)
                part.rename(staged.path / f"part-{number:05d}.parquet")
        finally:
            shutil.rmtree(inner, ignore_errors=True)
