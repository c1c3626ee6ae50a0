"""Several Spark processes, and executors that die in the middle: nothing is lost, repeated or drawn again.

Executors are separate Java processes with Python workers of their own (`local-cluster`). Which reports were written is
known from Spark's commit protocol: `_temporary/0/task_*` is there for each task that committed in a job that has not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.batch.spark_frames import NEEDS_JAVA, cells_in, first_one_waits, largest_error, slowly, users_frame
from tests.forked_processes import wait_until

import shufflesum as ss
from shufflesum.synthetic import heartbeats
from shufflesum.testing import unprotected_plan

pytestmark = [pytest.mark.slow, NEEDS_JAVA]

ID_LEVELS = 1 << 14  # a user's number is reported exactly: levels are its binary digits
PARTITIONS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[3]),  # for what the tests make Spark run
        "spark.task.maxFailures": "8",
        # Second copies of slow tasks, at the least suspicion.
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3",
        "spark.checkpoint.dir": str(tmp_path_factory.mktemp("checkpoints")),
    }
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=settings).getOrCreate()
    yield spark
    spark.stop()


def executors(spark: Any) -> dict[str, int]:
    """The processes of a session's executors, by Spark's names for them."""
    driver = f":{spark.conf.get('spark.driver.port')}"
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            options = dict(pairwise(path.read_text(errors="replace").split("\0")))
            if options.get("--driver-url", "").endswith(driver):
                found[options["--executor-id"]] = int(path.parent.name)
    return found


def both_executors(spark: Any) -> set[int]:
    """The processes of the two executors, once both have registered: Spark starts and replaces them in its own time."""

    def registered() -> bool:
        known = set(spark.sparkContext._jsc.sc().getExecutorIds().mkString(",").split(","))
        return len(known) == 2 and known == set(executors(spark))

    wait_until(registered, 300)
    return set(executors(spark).values())


class Killer(threading.Thread):
    """Kills an executor once some tasks of a job have committed what they wrote below a folder, and others have not."""

    def __init__(self, spark: Any, pattern: str, folder: Path | None = None) -> None:
        super().__init__(daemon=True)
        self._spark = spark
        self._folder = folder or Path(spark.sparkContext.getCheckpointDir().removeprefix("file:"))
        self._pattern = pattern
        self._over = threading.Event()
        self.committed = 0

    def run(self) -> None:
        while not self._over.is_set():
            self.committed = sum(1 for _ in self._folder.glob(f"shufflesum-*/{self._pattern}/_temporary/0/task_*"))
            if self.committed:
                os.kill(min(self.before), signal.SIGKILL)
                return
            time.sleep(0.005)

    def __enter__(self) -> Killer:
        self.before = both_executors(self._spark)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()
        assert self.committed, "the job was over before anything could be killed"
        wait_until(lambda: len(both_executors(self._spark) - self.before) == 1, 300)


def numbered(spark: Any, users: int, copies: int) -> Any:
    """Users whose every value is their own number, slow to come."""
    rows = np.tile((np.arange(users) / ID_LEVELS)[:, None], (1, copies))
    frame = users_frame(spark, rows, PARTITIONS)
    return frame.mapInArrow(partial(slowly, seconds=0.7), frame.schema)


def identifying_plan(users: int, copies: int) -> ss.Plan:
    return unprotected_plan(users=users, shape=copies, coordinates=copies, levels=ID_LEVELS)


def everybody(users: int, copies: int) -> NDArray[np.int64]:
    """What the reports of such users are, each once."""
    return np.sort((np.arange(copies)[:, None] * (ID_LEVELS + 1) + np.arange(users)).reshape(-1))


def test_an_executor_killed_while_users_are_randomized(cluster: Any) -> None:
    from shufflesum.batch import spark

    users, copies = 8000, 4
    with Killer(cluster, "parts") as killer:
        reports = spark.randomize(numbered(cluster, users, copies), identifying_plan(users, copies))
    assert killer.committed < PARTITIONS
    np.testing.assert_array_equal(np.sort(cells_in(reports)), everybody(users, copies))


def test_reports_are_not_drawn_again_when_an_executor_is_killed(cluster: Any) -> None:
    from shufflesum.batch import spark

    plan = unprotected_plan(users=1000, shape=20, coordinates=1, levels=3, noise_probability=0.5)
    reports = spark.randomize(users_frame(cluster, np.full((4000, 20), 0.4), PARTITIONS), plan)
    first = cells_in(reports)
    os.kill(min(both_executors(cluster)), signal.SIGKILL)
    np.testing.assert_array_equal(np.sort(cells_in(reports)), np.sort(first))


@pytest.mark.parametrize("stage", ["dealt", "parts"])
def test_an_executor_killed_in_the_middle_of_the_shuffle(
    cluster: Any, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shufflesum.batch import spark

    users, copies = 16_000, 100
    monkeypatch.setattr(spark.roles, "_BUCKET_BYTES", users * copies * 4 // 16)
    reports = spark.randomize(
        users_frame(cluster, np.tile((np.arange(users) / ID_LEVELS)[:, None], (1, copies)), PARTITIONS),
        identifying_plan(users, copies),
    )
    slow = reports.mapInArrow(partial(slowly, seconds=0.5), reports.schema)
    with Killer(cluster, stage) as killer:
        shuffled = spark.shuffle(slow)
    assert killer.committed < (PARTITIONS if stage == "dealt" else 16)
    order = cells_in(shuffled)
    np.testing.assert_array_equal(np.sort(order), everybody(users, copies))
    assert not np.array_equal(order, np.sort(order))
    assert int(spark.count(shuffled, identifying_plan(users, copies)).table.sum()) == users * copies


def test_a_shuffle_that_writes_nothing_down_is_caught(cluster: Any, tmp_path: Path) -> None:
    """The twin: buckets are drawn in the stage before the exchange, and not written down before they are used."""
    from shufflesum.batch import spark
    from shufflesum.batch.spark import tasks
    from shufflesum.batch.spark.jobs import identity_of, report_schema

    users, copies = 8000, 4
    reports = spark.randomize(
        users_frame(cluster, np.tile((np.arange(users) / ID_LEVELS)[:, None], (1, copies)), PARTITIONS),
        identifying_plan(users, copies),
    )
    identity = identity_of(reports)
    deal = partial(tasks.scatter_partition, identity=identity, buckets=16)
    settings = {"spark.sql.files.maxPartitionBytes": "16384"}  # a task for each file
    for name in ("enabled", "enableFullRetryOnMismatch", "enableQueryLevelRollbackOnMismatch"):
        # With these, newer versions of Spark notice what happened, and give up; without them nobody does.
        settings[f"spark.sql.shuffle.orderIndependentChecksum.{name}"] = "false"
    for name, value in settings.items():
        cluster.conf.set(name, value)
    dealt = reports.mapInArrow(deal, "bucket int, reports binary")
    permuted = dealt.repartitionById(16, "bucket").mapInArrow(
        partial(tasks.permute_partition, identity=identity), report_schema(identity)
    )
    slow = permuted.mapInArrow(partial(slowly, seconds=0.7), permuted.schema)
    output = tmp_path / "shufflesum-twin" / "parts"
    try:
        with Killer(cluster, "parts", tmp_path):
            slow.write.parquet(str(output))
    finally:
        for name in settings:
            cluster.conf.unset(name)
    found = cells_in(cluster.read.schema(permuted.schema).parquet(str(output)))
    assert not np.array_equal(np.sort(found), everybody(users, copies))


def test_two_copies_of_a_task_count_once(cluster: Any, tmp_path: Path) -> None:
    from shufflesum.batch import spark

    users, copies = 8000, 4
    frame = users_frame(cluster, np.tile((np.arange(users) / ID_LEVELS)[:, None], (1, copies)), PARTITIONS)
    waiting = frame.mapInArrow(partial(first_one_waits, folder=str(tmp_path)), frame.schema)
    reports = spark.randomize(waiting, identifying_plan(users, copies))
    assert sorted(os.listdir(tmp_path)) == ["0", "4"]
    time.sleep(8)  # for the copies that lost, wherever they are
    np.testing.assert_array_equal(np.sort(cells_in(reports)), everybody(users, copies))


def test_end_to_end_within_the_predicted_error_with_a_killed_executor(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shufflesum.batch import spark

    beats = heartbeats(20_000, 100, seed=5)
    plan = ss.plan(users=len(beats), shape=100, bounds=(0.0, 1.0), epsilon=1.0, delta=1e-6)
    frame = users_frame(cluster, beats, PARTITIONS)
    monkeypatch.setattr(spark.roles, "_BUCKET_BYTES", len(beats) * plan.reports * 4 // 16)
    reports = spark.randomize(frame, plan)
    with Killer(cluster, "parts"):
        shuffled = spark.shuffle(reports)
    found = spark.analyze(shuffled, plan)
    assert found.users == len(beats)
    assert found.rejected == 0
    error = float(np.sum((found.mean - beats.mean(axis=0)) ** 2))
    assert plan.expected_error.total / 10 <= error <= largest_error(plan.expected_error.total, 100)
