from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.batch.spark_frames import NEEDS_JAVA, largest_error


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
@pytest.mark.slow
def test_the_example_job_runs_and_errs_as_predicted() -> None:
    example = Path(__file__).parents[3] / "examples" / "spark_job.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "guarantee: epsilon 1.0, delta 1e-06" in done.stdout
    found = re.search(r"squared error (\S+), expected at worst (\S+)$", done.stdout, flags=re.MULTILINE)
    assert found is not None
    assert float(found[2]) / 10 <= float(found[1]) <= 1.01 * largest_error(float(found[2]), 100)
