"""How long whole commands take, in processes of their own, with compiled kernels at hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import Row

SCRIPT = Path(sys.executable).with_name("shufflesum")


def _row(what: str, limit: float, *arguments: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        for run in ("compiling", "measured"):
            start = time.perf_counter()
            subprocess.run([SCRIPT, *arguments, "-o", str(Path(folder) / run)], check=True, capture_output=True)
            seconds = time.perf_counter() - start
    return Row(what, f"{seconds:.1f} s", f"below {limit:g} s", seconds < limit)


def rows() -> list[Row]:
    table = [
        _row("`shufflesum demo`", 30.0, "demo"),
        _row("`shufflesum reproduce --quick`", 20.0, "reproduce", "--quick"),
    ]
    beats = os.environ.get("SHUFFLESUM_HEARTBEATS")
    if beats:
        table.append(_row("`shufflesum reproduce` on 109,446 real beats", 180.0, "reproduce", "--data", beats))
    return table
