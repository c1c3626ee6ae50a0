from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.batch.spark_frames import NEEDS_JAVA, largest_error, users_frame

import shufflesum as ss
from experiments.data import load
from shufflesum.batch.local import count
from shufflesum.batch.targets import PlainTarget


def test_without_java_it_says_so(tmp_path: Path) -> None:
    code = "from shufflesum.batch import spark; spark.session('local[1]')"
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "MissingExtraError: Spark runs on Java" in done.stderr


@NEEDS_JAVA
def test_settings_of_spark_can_be_given() -> None:
    from shufflesum.batch import spark

    session = spark.session("local[1]", {"spark.sql.shuffle.partitions": "3", "spark.app.name": "ours"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    session.stop()


@NEEDS_JAVA
@pytest.mark.slow
def test_the_example_job_runs_and_errs_as_predicted() -> None:
    example = Path(__file__).parents[3] / "examples" / "spark_job.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "guarantee: epsilon 1.0, delta 1e-06" in done.stdout
    found = re.search(r"squared error (\S+), expected at worst (\S+)$", done.stdout, flags=re.MULTILINE)
    assert found is not None
    assert float(found[2]) / 10 <= float(found[1]) <= 1.01 * largest_error(float(found[2]), 100)


@NEEDS_JAVA
@pytest.mark.slow
def test_the_real_heartbeats_end_to_end(tmp_path: Path) -> None:
    from shufflesum.batch import spark

    archive = os.environ.get("SHUFFLESUM_HEARTBEATS")
    if not archive:
        pytest.skip("SHUFFLESUM_HEARTBEATS does not name the .npz archive of the heartbeats")
    session = spark.session("local[2]")
    beats = load(Path(archive)).beats[:50_000, :100]
    plan = ss.plan(users=len(beats), shape=100, bounds=(0.0, 1.0), epsilon=0.95, delta=1e-6)
    shuffled = spark.shuffle(spark.randomize(users_frame(session, beats, 4), plan))
    found = spark.analyze(shuffled, plan)
    error = float(np.sum((found.mean - beats.mean(axis=0)) ** 2))
    assert plan.expected_error.total / 10 <= error <= largest_error(plan.expected_error.total, 100)
    counted, _ = count(spark.write(shuffled, tmp_path / "shuffled"), PlainTarget(plan))
    np.testing.assert_array_equal(counted.table, found.table)
    session.stop()
