"""Spark jobs and frames of reports: how a stage that draws is made to last, how a task's error comes out as it was.

Spark may run any task again: because an executor died, because another copy seemed faster, because files of an
exchange were lost. What a task with fresh randomness gives the second time is something else. So such tasks are always
the last stage of a job that writes files, and everything after reads the files. Spark's commit protocol lets exactly
one attempt of each task into them: the driver says which one may commit, and until the job commits a committed attempt
can only be replaced as a whole.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, NumericType, StringType, StructField, StructType

from shufflesum.batch.identity import METADATA_KEY, Identity, Stage
from shufflesum.batch.spark.tasks import OnPartition, error_in, reports_of_files
from shufflesum.domains import ColumnLayout, Domain
from shufflesum.errors import DataError, FileError, MissingExtraError, ParameterError, ReportsError, ShufflesumError
from shufflesum.tables.sources import ReadOptions, choose_columns

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


_NO_LOG = """status = off
appender.none.type = Null
appender.none.name = none
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
"""


def session(master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """The running session, or a quiet new one whose executors use this very Python.

    `master` is Spark's address of a cluster; without one, what spark-submit or Spark's own configuration says counts,
    or else all cores of this machine. `conf` are settings of Spark's, by name; of a running session only those change
    that Spark lets change.
    """
    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
    if SparkSession.getActiveSession() is None and shutil.which(java) is None:
        raise MissingExtraError(
            "missing-extra",
            f"Spark runs on Java, and {java} was not found; install Java 17 or newer, or set JAVA_HOME to where it is",
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("shufflesum")
    if master is not None:
        builder = builder.master(master)
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        **(conf or {}),
    }
    try:
        with _quiet():
            return builder.config(map=settings).getOrCreate()
    except Exception as error:  # Java, Spark and the network can each fail in their own way
        raise ParameterError(
            "spark-failed",
            f"no Spark session at {master or 'the configured master'}: {first_words(str(error))}; check --master "
            "and --conf",
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


def check_frame(frame: object) -> DataFrame:
    """Refuse what is no data frame of a session with a Spark driver in this process."""
    if not isinstance(frame, DataFrame):
        raise ParameterError("wrong-type", f"a Spark DataFrame is expected, not {type(frame).__name__}")
    if not hasattr(frame, "_jdf"):
        raise ParameterError(
            "wrong-type",
            "this DataFrame is of a Spark Connect session, which does not let us choose where to keep what was drawn; "
            "run the job on the cluster with spark-submit, or connect with SparkSession.builder.master(...)",
        )
    return frame


def report_schema(identity: Identity) -> StructType:
    """The column of a frame of reports, with the identity in its metadata.

    Without nulls, so that files are written, and read, without a level for each row that says so.
    """
    kind = identity.kind
    return StructType().add(kind.column, kind.spark_type, nullable=False, metadata={METADATA_KEY: identity.to_json()})


def identity_of(frame: DataFrame, stage: Stage | None = None) -> Identity:
    """Whose reports a frame holds; all that it is made of must say so, agree, and be there once."""
    check_frame(frame)
    nameless = [field.name for field in frame.schema.fields if METADATA_KEY not in (field.metadata or {})]
    if nameless or not frame.columns:
        raise ReportsError(
            "mixed-reports",
            f"column {nameless[0] if nameless else ''!r} does not say whose reports it holds; give the DataFrame of "
            "randomize, shuffle or read, not one that was computed from it or read in another way",
        )
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: Identity | None = None
    for index in range(leaves.size()):
        identity = _identity_of_leaf(json.loads(leaves.apply(index).schema().json()))
        if found is not None and set(found.contribution_ids) & set(identity.contribution_ids):
            raise ReportsError(
                "counted-twice", "the DataFrame holds the same reports twice: a user would count twice; leave one out"
            )
        found = identity if found is None else found.merge(identity)
    assert found is not None
    found.check_columns(frame.columns, "the DataFrame")
    if stage is not None and found.stage != stage:
        raise ReportsError(
            "wrong-stage",
            "these reports were not shuffled; their order may tell whose they are: call shuffle first"
            if stage == "shuffled"
            else "these reports are shuffled already; give those of randomize",
        )
    return found


def _identity_of_leaf(schema: Any) -> Identity:
    """What one of a frame's sources says."""
    found = {field["metadata"].get(METADATA_KEY) for field in schema["fields"]}
    if len(found) != 1 or not isinstance(text := found.pop(), str):
        raise ReportsError(
            "mixed-reports",
            "the DataFrame mixes reports with something that does not say whose reports it holds; give the one of "
            "randomize, shuffle or read as it is, or a union of such",
        )
    return Identity.from_json(text)


def over_reports(frame: DataFrame, identity: Identity, function: OnPartition, schema: StructType | str) -> DataFrame:
    """The function over all partitions of a frame of reports, lazily.

    Where the frame is just what is in files, Arrow reads them: from the executor's own disk, or from bytes that Spark
    fetched from wherever they are.
    """
    plan = frame._jdf.queryExecution().analyzed()
    files = frame.inputFiles() if plan.getClass().getSimpleName() == "LogicalRelation" else []
    if not files or not all(file.endswith(".parquet") for file in files):
        return frame.select(identity.kind.column).mapInArrow(function, schema)
    columns = ["path"] if all(file.startswith("file:") for file in files) else ["path", "content"]
    paths = [exact_path(unquote(file)) for file in files]
    found = frame.sparkSession.read.format("binaryFile").load(paths).select(*columns)
    return found.mapInArrow(reports_of_files(function, identity), schema)


def quoted(name: str) -> str:
    """A column's name as Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"


# ---- Which columns of a frame are the users' data: numbers, labels, or both; and how a partition's rows are read.


def users_columns(
    frame: DataFrame,
    where: str,
    domain: Domain,
    *,
    columns: Sequence[str] | None,
    label_column: str | None,
    user_column: str | None = None,
) -> DataFrame:
    """The columns that a domain is read from, that of labels first; refused where their types cannot hold it."""
    check_frame(frame)
    options = ReadOptions(columns, user_column, column=label_column).for_domain(domain)
    names = frame.columns  # asked for once: Spark makes the list anew each time
    choice = choose_columns(where, names, options)
    with spark_job(frame.sparkSession):
        users = frame.select(*[F.col(quoted(names[place])) for place in choice.read])
        fields = list(users.schema.fields)
    if choice.label is not None:
        _check_labels(fields.pop(0), domain.column_layout)
    if choice.data:
        _check_numbers(fields, domain.column_layout)
    return users


def _check_labels(field: StructField, layout: ColumnLayout) -> None:
    kind: DataType = field.dataType
    if layout.lists and isinstance(kind, ArrayType):
        kind = kind.elementType
    elif layout.lists:
        raise DataError(
            "wrong-type",
            f"column {field.name!r} has type {field.dataType.simpleString()}; several labels of a user are an array of "
            "text or whole numbers",
        )
    if not isinstance(kind, StringType | NumericType | BooleanType):
        raise DataError(
            "wrong-type",
            f"column {field.name!r} has type {field.dataType.simpleString()}; labels are text, whole numbers, or true "
            "and false: convert it, or name another column",
        )


def _check_numbers(fields: Sequence[StructField], layout: ColumnLayout) -> None:
    lists = [field for field in fields if isinstance(field.dataType, ArrayType)]
    for field in fields:
        kind = field.dataType.elementType if isinstance(field.dataType, ArrayType) else field.dataType
        if not isinstance(kind, NumericType | BooleanType):
            raise DataError(
                "not-numbers",
                f"column {field.name!r} has type {field.dataType.simpleString()}; allowed are numbers and one array of "
                "numbers: convert it, or choose other columns (columns=)",
            )
    if lists and len(fields) > 1:
        raise DataError(
            "wrong-shape",
            f"column {lists[0].name!r} holds arrays and there are {len(fields) - 1} other columns; choose it alone "
            "(columns=), or leave it out",
        )
    shape = layout.numbers
    assert shape is not None
    if not lists and len(fields) != math.prod(shape):
        raise DataError(
            "wrong-shape",
            f"a row has {len(fields)} columns, but the plan is for {math.prod(shape)} values, shape {shape}; "
            "choose the columns (columns=), or the right plan",
        )
