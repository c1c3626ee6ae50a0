"""Spark frames of reports: whose they are, and how they are read as files."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from shufflesum.batch.identity import METADATA_KEY, Identity, Stage
from shufflesum.batch.spark.jobs import exact_path
from shufflesum.batch.spark.tasks import OnPartition, reports_of_files
from shufflesum.errors import ParameterError, ReportsError

__all__ = ["check_frame", "identity_of", "over_reports", "quoted", "report_schema"]


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
