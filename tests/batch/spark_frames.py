"""What the tests on Spark share."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, norm
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.testing import unprotected_plan

__all__ = [
    "DIMENSION",
    "NEEDS_JAVA",
    "PLAN",
    "USERS",
    "Batch",
    "cells_in",
    "first_one_waits",
    "largest_error",
    "slowly",
    "uniformity",
    "users_frame",
]

NEEDS_JAVA = pytest.mark.skipif(
    shutil.which(os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java")
    is None,
    reason="Spark runs on Java",
)
USERS, DIMENSION = 3000, 10
PLAN = unprotected_plan(users=USERS, shape=DIMENSION, coordinates=DIMENSION, levels=3, noise_probability=0.2)


@dataclass(frozen=True)
class Batch:
    """One crowd on its way through the three roles."""

    rows: NDArray[Any]
    users: Any
    reports: Any
    shuffled: Any


def users_frame(spark: Any, rows: NDArray[Any], partitions: int) -> Any:
    """A frame with one column of arrays; each row one user."""
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1]).cast(pa.list_(pa.float64()))
    return spark.createDataFrame(pa.table({"beat": lists})).repartition(partitions)


def cells_in(frame: Any) -> NDArray[np.int64]:
    """The cells of a frame, in its order."""
    return np.asarray(frame.toArrow().column("cell").to_numpy())


def largest_error(predicted: float, numbers: int) -> float:
    """What a sum of squares of so many equal independent normal errors exceeds with probability at most 1e-6.

    Laurent and Massart's bound: the mean times 1 + 2 sqrt(u/n) + 2 u/n, u = log 1e6.
    """
    u = -math.log(FALSE_ALARM)
    return predicted * (1 + 2 * math.sqrt(u / numbers) + 2 * u / numbers)


def slowly(batches: Iterator[Any], *, seconds: float) -> Iterator[Any]:
    """All batches of a partition, after a while."""
    time.sleep(seconds)
    yield from batches


def first_one_waits(batches: Iterator[Any], *, folder: str) -> Iterator[Any]:
    """Every partition's first attempt stops in the middle, and goes on when a second one may have finished."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 0 and context.partitionId() % 4 == 0:
            try:
                os.close(os.open(f"{folder}/{context.partitionId()}", os.O_CREAT | os.O_EXCL))
                time.sleep(8)
            except FileExistsError:
                pass
        yield batch


def uniformity(order: NDArray[np.integer[Any]]) -> float:
    """The smallest p-value, times their number, of three tests that a permutation is a uniform one.

    Where blocks of the input went, whether neighbours rise or fall, and how far places go together. Blocks without
    replacement vary less than the chi-square says, and so do rises (their variance is a third of a coin's): both are
    on the safe side.
    """
    n = len(order)
    blocks = np.zeros((8, 8))
    np.add.at(blocks, (order * 8 // n, np.arange(n) * 8 // n), 1)
    rises = int((np.diff(order) > 0).sum())
    correlation = np.corrcoef(order, np.arange(n))[0, 1] * np.sqrt(n - 1)
    chances = (
        chi_square(blocks, np.full(64, 1 / 64)),
        2 * min(binom.cdf(rises, n - 1, 0.5), binom.sf(rises - 1, n - 1, 0.5)),
        2 * norm.sf(abs(correlation)),
    )
    return float(3 * min(chances))
