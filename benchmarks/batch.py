"""Speed of the analyzer on files, hashing of the files included, against engines that count groups and nothing else."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.timing import Row, at_most, best_times
from shufflesum.batch.files import Dataset, open_dataset, write_part
from shufflesum.batch.identity import PLAIN, Identity
from shufflesum.batch.local import count
from shufflesum.batch.targets import PlainTarget
from shufflesum.plans import Plan
from shufflesum.testing import unprotected_plan

REPORTS, DIMENSION, LEVELS, WORKERS = 100_000_000, 100, 3, 2
PART = 1 << 22


def shuffled_folder(folder: Path, plan: Plan, reports: int) -> Dataset:
    """So many uniform reports, as the shuffler would leave them."""
    identity = Identity.for_plan(plan).shuffled(reports)
    random = np.random.default_rng(1)
    for number, start in enumerate(range(0, reports, PART)):
        rows = min(PART, reports - start)
        records = PLAIN.records(random.integers(0, plan.cells, rows, dtype=np.uint32))
        write_part(folder, f"part-{number:06d}", [records], identity)
    return open_dataset(folder, stage="shuffled")


def analyze(reports: int = REPORTS) -> list[Row]:
    import pyarrow as pa
    from pyarrow import dataset as arrow_dataset

    plan = unprotected_plan(users=reports, shape=DIMENSION, levels=LEVELS, noise_probability=0.2)
    # What counts is the work, not the disk: the files stay in the machine's memory after the first pass.
    with tempfile.TemporaryDirectory(prefix="shufflesum-bench-") as name:
        dataset = shuffled_folder(Path(name), plan, reports)
        paths = [str(file.path) for file in dataset.files]
        pa.set_cpu_count(WORKERS)

        def ours() -> object:
            return count(dataset, PlainTarget(plan), workers=WORKERS)

        def arrow() -> object:
            table = arrow_dataset.dataset(paths).to_table()
            return table.group_by(["cell"]).aggregate([([], "count_all")])

        jobs = {"DuckDB": _duckdb(paths), "PyArrow": arrow}
        known = {engine: job for engine, job in jobs.items() if job is not None}
        mine, *theirs = best_times(ours, *known.values(), repeats=3)
    what = f"analyze {reports:,} reports in {len(paths)} files, {WORKERS} threads, against a group-by count in "
    result = [
        at_most(what + engine, mine / time, 3.0, f" ({mine:.2f} s against {time:.2f} s)")
        for engine, time in zip(known, theirs, strict=True)
    ]
    return result if jobs["DuckDB"] else [*result, Row(what + "DuckDB", "not installed", "at most 3x")]


def _duckdb(paths: list[str]) -> Callable[[], object] | None:
    try:
        import duckdb
    except ImportError:
        return None
    connection = duckdb.connect(config={"threads": WORKERS})
    return lambda: connection.execute("select cell, count(*) from read_parquet(?) group by all", [paths]).fetchall()


def rows() -> list[Row]:
    return analyze()


if __name__ == "__main__":
    for row in analyze(int(float(sys.argv[1])) if len(sys.argv) > 1 else REPORTS):
        print(row.what, row.measured, row.wanted, sep=" | ")
