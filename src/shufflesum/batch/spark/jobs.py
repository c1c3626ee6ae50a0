"""Spark jobs: how a stage that draws is made to last, and how an error of a task comes out as what it was.

Spark may run any task again: because an executor died, because another copy seemed faster, because files of an
exchange were lost. What a task with fresh randomness gives the second time is something else. So such tasks are always
the last stage of a job that writes files, and everything after reads the files. Spark's commit protocol lets exactly
one attempt of each task into them: the driver says which one may commit, and until the job commits a committed attempt
can only be replaced as a whole.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from shufflesum.batch.spark.tasks import error_in
from shufflesum.errors import FileError, ParameterError, ShufflesumError

__all__ = ["PARTS", "exact_path", "first_words", "materialise", "remove", "spark_job", "working_folder"]

PARTS = "parts"  # where in a folder the result is written; what else is in it is on the way there

_WRITING = {
    "compression": "none",  # as in files of the local engine: what a dictionary leaves over is random
    # The other version moves a task's files to their place one by one, before anybody knows that the job succeeds.
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    # Rows, and nothing about them: as in files of the local engine.
    "parquet.column.statistics.enabled": "false",
}
# Where there are so many cells that no dictionary holds them, whole numbers are packed as the local engine packs them:
# eight bytes a report would take longer to read, and to hash, than to unpack.
_PACKED = {"parquet.writer.version": "v2"}
# The number of rows, which is limited by default, says nothing about rows that are whole files or long vectors.
_BATCH_BYTES = ("spark.sql.execution.arrow.maxBytesPerBatch", str(64 << 20))


def exact_path(path: str) -> str:
    """A path that Spark takes as it is, though it may hold characters that it would read as patterns."""
    return re.sub(r"([\\{}\[\]*?,^])", r"\\\1", path)


def materialise(frame: DataFrame, path: str) -> tuple[DataFrame, int]:
    """Write a frame to a new folder; returns what is there, the same however often it is read, and its rows."""
    with spark_job(frame.sparkSession):
        produced = Observation()
        counted = frame.observe(produced, F.count(F.lit(1)).alias("rows"))
        packed = _PACKED if {kind for _, kind in frame.dtypes} == {"bigint"} else {}
        counted.write.options(**_WRITING, **packed).parquet(path)
        written = frame.sparkSession.read.schema(frame.schema).parquet(exact_path(path))
        rows, found = produced.get["rows"], written.count()
    if rows != found:
        raise FileError(
            "changed-meanwhile",
            f"{path}: {rows} rows were written, and {found} are there; it must be in a folder that the driver and all "
            "executors share, such as one on HDFS, S3 or NFS (sparkContext.setCheckpointDir)",
        )
    return written, found


@contextmanager
def working_folder(session: SparkSession) -> Iterator[str]:
    """A folder for stages that later ones read, in Spark's checkpoint directory; only its owner may look into it.

    It lasts until Spark ends, or until the block fails.
    """
    context = session.sparkContext
    base = context.getCheckpointDir()
    if base is None and not str(context.master).startswith("local"):
        raise ParameterError(
            "missing-argument",
            "what was drawn at random must be kept where all executors can read it; name such a folder, on HDFS, S3 or "
            "NFS, with sparkContext.setCheckpointDir(...) (--conf spark.checkpoint.dir=...)",
        )
    name = f"{base}/shufflesum-{secrets.token_hex(8)}" if base is not None else tempfile.mkdtemp(prefix="shufflesum-")
    with spark_job(session):
        hadoop, files, path = _hadoop(session, name)
        if base is not None:
            files.mkdirs(path)
            files.setPermission(path, hadoop.permission.FsPermission("700"))
        files.deleteOnExit(path)
    try:
        yield name
    except BaseException:
        with suppress(Py4JError, ConnectionError):
            remove(session, name)
        if base is None:
            shutil.rmtree(name, ignore_errors=True)  # should Spark's driver be gone
        raise


def remove(session: SparkSession, name: str) -> None:
    """Delete a folder, wherever Spark keeps it."""
    _, files, path = _hadoop(session, name)
    files.delete(path, True)


def _hadoop(session: SparkSession, name: str) -> tuple[Any, Any, Any]:
    """Java's classes for files, the file system of a path, and the path."""
    context: Any = session.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    path = hadoop.Path(name)
    return hadoop, path.getFileSystem(context._jsc.hadoopConfiguration()), path


@contextmanager
def spark_job(session: SparkSession) -> Iterator[None]:
    """Run jobs with record batches of a bounded size; when one fails, say why in a line instead of a page.

    Errors that our tasks raised on purpose come out as what they were.
    """
    limit = session.conf.get(_BATCH_BYTES[0])
    try:
        session.conf.set(*_BATCH_BYTES)
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        if (ours := error_in(text)) is not None:
            raise ours from None
        raise ShufflesumError("spark-failed", f"Spark could not do it: {first_words(text)}") from error
    except ConnectionError as error:
        raise ShufflesumError(
            "spark-failed",
            f"Spark's driver is gone ({error}); it may have run out of memory: --conf spark.driver.memory=4g",
        ) from error
    finally:
        with suppress(Py4JError, ConnectionError):
            session.conf.set(_BATCH_BYTES[0], str(limit))


def first_words(text: str) -> str:
    """What Spark says, without its pages of stack traces."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("at ", "SQLSTATE", "JVM stacktrace"))]
    first = lines[-1:] if any(line.startswith("Traceback") for line in lines) else lines[:3]
    return " ".join(first)[:600] or "it gave no reason"
