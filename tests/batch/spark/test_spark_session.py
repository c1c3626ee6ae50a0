from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


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
