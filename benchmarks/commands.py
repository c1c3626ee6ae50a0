"""How long whole commands take, in processes of their own: with compiled kernels at hand, and the first time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, at_most, best_times, processor_times
from shufflesum.tables.readers import open_table

SCRIPT = Path(sys.executable).with_name("shufflesum")
EXPERIMENTS = (sys.executable, "-m", "experiments", "paper")


def _row(what: str, limit: float, *command: str | Path) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        for run in ("compiling", "measured"):
            start = time.perf_counter()
            subprocess.run([*command, "-o", str(Path(folder) / run)], check=True, capture_output=True)
            seconds = time.perf_counter() - start
    return Row(what, f"{seconds:.1f} s", f"below {limit:g} s", seconds < limit)


def first_rows() -> list[Row]:
    """Processor time of what is done first, against that of a Python that imports NumPy."""
    python = (sys.executable, "-c")
    plan = (SCRIPT, "plan", "--users", "50000", "--dimension", "100", "--epsilon", "1", "--delta", "1e-6")
    first = (
        ("`import shufflesum`, against `import numpy`, each in a new Python", 2.5, (*python, "import shufflesum")),
        ("`shufflesum --help`, the same", 3.0, (SCRIPT, "--help")),
        ("a first `shufflesum plan`, n = 5e4, d = 100, no kernel compiled yet, the same", 70.0, plan),
    )
    commands = [(*python, "import numpy"), *(command for *_, command in first)]
    bare, *ours = processor_times(*(partial(_run_first, *command) for command in commands))
    return [
        at_most(what, seconds / bare, limit, f" ({seconds:.2f} s of processor time)")
        for (what, limit, _), seconds in zip(first, ours, strict=True)
    ]


def _run_first(*command: str | Path) -> None:
    with tempfile.TemporaryDirectory() as kernels:
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"NUMBA_CACHE_DIR": kernels})


def csv_row() -> Row:
    """A file of text as `run` reads it, detection and rows of numbers included."""
    import pyarrow as pa
    from pyarrow import csv

    users, columns = 1_000_000, 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numbers.csv"
        values = np.random.default_rng(0).random((columns, users))
        csv.write_csv(pa.table({f"c{place}": column for place, column in enumerate(values)}), path)
        ours, bare = best_times(
            lambda: sum(len(batch) for batch in open_table(path).batches()), lambda: csv.read_csv(path), repeats=5
        )
    return at_most(
        f"a CSV of {users:,} x {columns} numbers read, against `pyarrow.csv.read_csv`",
        ours / bare,
        1.5,
        f" ({ours:.2f} s against {bare:.2f} s)",
    )


def rows() -> list[Row]:
    table = [
        *first_rows(),
        csv_row(),
        _row("`shufflesum demo`", 30.0, SCRIPT, "demo"),
        _row("`python -m experiments paper --quick`", 20.0, *EXPERIMENTS, "--quick"),
    ]
    beats = os.environ.get("SHUFFLESUM_HEARTBEATS")
    if beats:
        what = "`python -m experiments paper` on 109,446 real beats"
        table.append(_row(what, 180.0, *EXPERIMENTS, "--data", beats))
    return table
