"""The three roles on Spark: on data frames, and on folders that the local engine shares."""

from __future__ import annotations

from shufflesum.errors import MissingExtraError

try:
    from shufflesum.batch.spark.jobs import session
    from shufflesum.batch.spark.roles import (
        analyze,
        count,
        count_folder,
        randomize,
        randomize_folder,
        read,
        shuffle,
        shuffle_folder,
        write,
    )
except ImportError as error:
    raise MissingExtraError(
        "missing-extra", f"Spark is not installed ({error}): pip install 'shufflesum[spark]'"
    ) from error

__all__ = [
    "analyze",
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
