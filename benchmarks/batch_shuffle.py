"""Speed of the shuffler on files, against reading and writing the same files in the same order, and against `cp`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Row, at_most, best_times
from shufflesum.batch.files import parquet_settings, write_part
from shufflesum.batch.identity import PLAIN, Identity
from shufflesum.batch.shuffle import shuffle
from shufflesum.testing import unprotected_plan

REPORTS, DIMENSION, LEVELS, WORKERS = 100_000_000, 100, 3, 2
FILES, GROUP = 10, 1 << 20
SETTINGS = parquet_settings(PLAIN)


def report_folder(folder: Path, reports: int) -> list[Path]:
    """So many uniform reports, as the randomizer would leave them."""
    plan = unprotected_plan(users=1, shape=DIMENSION, levels=LEVELS, noise_probability=0.2)
    identity = Identity.for_plan(plan)
    random = np.random.default_rng(1)

    def records(rows: int) -> Iterator[Any]:
        for start in range(0, rows, GROUP):
            yield PLAIN.records(random.integers(0, plan.cells, min(GROUP, rows - start), dtype=np.uint32))

    folder.mkdir()
    for number in range(FILES):
        write_part(folder, f"part-{number:05d}", records(reports // FILES), identity)
    return sorted(folder.iterdir())


def shuffled(reports: int = REPORTS) -> list[Row]:
    from pyarrow import parquet

    with tempfile.TemporaryDirectory(prefix="shufflesum-bench-") as name:
        folder, output = Path(name), Path(name) / "output"
        paths = report_folder(folder / "reports", reports)

        def streamed() -> None:
            for path in paths:
                with (
                    parquet.ParquetFile(path) as file,
                    parquet.ParquetWriter(output / path.name, file.schema_arrow, **SETTINGS) as writer,
                ):
                    for batch in file.iter_batches(GROUP):
                        writer.write_batch(batch, GROUP)

        def whole() -> None:
            for path in paths:
                parquet.write_table(parquet.read_table(path), output / path.name, row_group_size=GROUP, **SETTINGS)

        def copied() -> None:
            subprocess.run(["cp", *paths, output], check=True)

        def anew(job: Callable[[], object], *, made: bool = True) -> Callable[[], None]:
            """Into an empty folder, or one that the job makes."""

            def call() -> None:
                shutil.rmtree(output, ignore_errors=True)
                if made:
                    output.mkdir()
                job()

            return call

        def ours(memory: int) -> Callable[[], None]:
            return anew(
                lambda: shuffle(folder / "reports", output, memory=memory, workers=WORKERS, restart=True), made=False
            )

        fits, spills, *peers, copy = best_times(
            ours(10**9), ours(2 * 10**8), anew(streamed), anew(whole), anew(copied), repeats=3
        )
        size = sum(path.stat().st_size for path in paths)
    plain = min(peers)
    what = f"shuffle {reports:,} reports ({size / 1e6:,.0f} MB of Parquet), {WORKERS} threads, "
    against = "against a plain PyArrow read and write of the same files"
    return [
        at_most(f"{what}in memory (1 GB), {against}", fits / plain, 2.0, f" ({fits:.2f} s against {plain:.2f} s)"),
        at_most(f"{what}spilling (200 MB), {against}", spills / plain, 2.0, f" ({spills:.2f} s)"),
        Row(f"{what}in memory, against `cp`", f"{fits / copy:.1f}x ({copy:.2f} s)", ""),
    ]


def rows() -> list[Row]:
    return shuffled()


if __name__ == "__main__":
    for row in shuffled(int(float(sys.argv[1])) if len(sys.argv) > 1 else REPORTS):
        print(row.what, row.measured, row.wanted, sep=" | ")
