"""What the batch steps cost by size, as the tables of docs/scale.md: `python -m benchmarks.scale [largest]`.

The real steps on real files, all cores, each user sending all of 100 coordinates; sealed reports on fewer, because each
costs some hundred microseconds. Times are of this machine and this run, others at work on it included: the core time
for each report is what to compute with. A billion reports (`1e9`) take some 11 GB of disk beside the program.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from shufflesum.batch.files import open_dataset
from shufflesum.batch.local import count, open_users, randomize
from shufflesum.batch.shuffle import shuffle
from shufflesum.batch.targets import PlainTarget, SealedTarget, Target
from shufflesum.keys import generate_private_key
from shufflesum.testing import UnprotectedTask, unprotected_plan

DIMENSION, LEVELS = 100, 3
LARGEST, SEALED, PIECE = 100_000_000, 200_000, 100_000


def steps(folder: Path, users: int, *, sealed: bool) -> list[str]:
    """Lines of the table: the three steps on reports of so many users."""
    plan = unprotected_plan(users=users, shape=DIMENSION, levels=LEVELS, noise_probability=0.2, coordinates=DIMENSION)
    key = generate_private_key()
    target: Target = PlainTarget(plan)
    if sealed:
        task = UnprotectedTask(
            name="scale",
            plan=plan,
            analyzer_key=key.public_key().public_bytes_raw(),
            shuffler="http://127.0.0.1",
            expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
        )
        target = SealedTarget(task, private_key=key)
    _write_users(folder / "users.npy", users)
    reports = users * plan.reports
    jobs: dict[str, tuple[Callable[[], object], Path]] = {
        "randomize": (
            lambda: randomize(open_users(folder / "users.npy"), folder / "reports", target),
            folder / "reports",
        ),
        "shuffle": (lambda: shuffle(folder / "reports", folder / "shuffled"), folder / "shuffled"),
        "analyze": (
            lambda: count(open_dataset(folder / "shuffled", stage="shuffled"), target),
            folder / "shuffled",
        ),
    }
    lines = []
    for name, (job, wrote) in jobs.items():
        start, worked = time.perf_counter(), _core_seconds()
        job()
        seconds, worked = time.perf_counter() - start, _core_seconds() - worked
        size = sum(path.stat().st_size for path in wrote.iterdir())
        kind = "sealed" if sealed else "plain"
        lines.append(
            f"| {name}, {kind} | {users:,} | {reports:,} | {seconds:.2f} s | {worked:.2f} s | "
            f"{worked / reports * 1e9:,.0f} ns | {size / 1e6:,.0f} MB |"
        )
    return lines


def _write_users(path: Path, users: int) -> None:
    """Uniform rows, written piece by piece: of a billion values only some are in memory."""
    random = np.random.default_rng(1)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (users, DIMENSION))
    for start in range(0, users, PIECE):
        rows[start : start + PIECE] = random.random((min(PIECE, users - start), DIMENSION), dtype=np.float32)
    rows.flush()


def _core_seconds() -> float:
    """Of this process and of those it started and that have ended: sealing has some of its own."""
    return sum(os.times()[:4])


def main() -> None:
    largest = int(float(sys.argv[1])) if len(sys.argv) > 1 else LARGEST
    print(f"Load of the machine before: {os.getloadavg()}")
    print("| step | users | reports | time | core time | for each report | files |\n" + "| --- " * 7 + "|")
    sizes = [size for size in (10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000) if size <= largest]
    for size in sizes:  # the first, which compiles, is not shown
        with tempfile.TemporaryDirectory(prefix="shufflesum-scale-") as name:
            lines = steps(Path(name), size // DIMENSION, sealed=False)
        if size > sizes[0]:
            print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory(prefix="shufflesum-scale-") as name:
        print("\n".join(steps(Path(name), SEALED // DIMENSION, sealed=True)))
    print(f"Load of the machine after: {os.getloadavg()}")


if __name__ == "__main__":
    main()
