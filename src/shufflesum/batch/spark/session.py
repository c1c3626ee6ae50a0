"""The Spark session that the commands use."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from shufflesum.batch.spark.jobs import first_words
from shufflesum.errors import MissingExtraError, ParameterError

__all__ = ["session"]

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
