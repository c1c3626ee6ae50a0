"""Speed of `noisy-counts` beside `randomized-response`, in one process and into files; and of `noisy-sums`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from benchmarks.accounting import seconds_row
from benchmarks.timing import Row, at_most, best_times
from shufflesum.aggregation import aggregate_batches
from shufflesum.batch.local import open_users, randomize
from shufflesum.batch.targets import PlainTarget
from shufflesum.mechanisms.mechanism import NoiseBy
from shufflesum.plans import Plan
from shufflesum.privacy.noisy_counts import ChangedCounts, NoisyCountsAccountant

ROWS, FILE_ROWS, DIMENSION = 1_000_000, 100_000, 100


def _plans(users: int, *, noise_by: NoiseBy) -> tuple[Plan, Plan]:
    """Three digits, and every coordinate replaced."""
    return (
        ss.plan(
            users=users,
            shape=DIMENSION,
            epsilon=1.0,
            delta=1e-6,
            mechanism=ss.NoisyCounts.Options(digits=3),
            noise_by=noise_by,
        ),
        ss.plan(
            users=users,
            shape=DIMENSION,
            epsilon=1.0,
            delta=1e-6,
            mechanism=ss.RandomizedResponse.Options(coordinates=DIMENSION),
        ),
    )


def curator() -> Row:
    rows: NDArray[np.float32] = np.random.default_rng(0).random((ROWS, DIMENSION), dtype=np.float32)

    def job(plan: Plan) -> Callable[[], object]:
        return lambda: aggregate_batches([rows], plan, workers=1)

    ours, papers = best_times(*map(job, _plans(ROWS, noise_by="curator")), repeats=7)
    return at_most(
        f"`noisy-counts`, 3 digits, {ROWS:,} rows of {DIMENSION} float32 aggregated in one process, one thread, "
        "against `randomized-response` with every coordinate",
        ours / papers,
        0.7,
        f" ({1e9 * ours / rows.size:.1f} ns against {1e9 * papers / rows.size:.1f} ns a value)",
    )


def sums() -> Row:
    rows: NDArray[np.float32] = np.random.default_rng(0).random((ROWS, DIMENSION), dtype=np.float32)
    plan = ss.plan(users=ROWS, shape=DIMENSION, epsilon=1.0, delta=1e-7, noise_by="curator")
    ours, bare = best_times(lambda: aggregate_batches([rows], plan, workers=1), lambda: rows.sum(axis=0), repeats=7)
    return at_most(
        f"`noisy-sums`, {ROWS:,} rows of {DIMENSION} float32 aggregated in one process, one thread: bounds checked, "
        "integers summed exactly, noise and estimate, against `X.sum(axis=0)`",
        ours / bare,
        3.0,
        f" ({1e9 * ours / rows.size:.2f} ns against {1e9 * bare / rows.size:.2f} ns a value)",
    )


def files() -> Row:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "users.npy", np.random.default_rng(0).random((FILE_ROWS, DIMENSION), dtype=np.float32))
        users, made = open_users(folder / "users.npy"), iter(range(100))

        def job(plan: Plan) -> Callable[[], object]:
            target = PlainTarget(plan)
            return lambda: randomize(users, folder / str(next(made)), target, workers=1)

        plans = _plans(FILE_ROWS, noise_by="users")
        ours, papers = best_times(*map(job, plans), repeats=3)
    said = [FILE_ROWS * (plan.reports - plan.blanks) for plan in plans]
    return at_most(
        f"`noisy-counts`, 3 digits, {FILE_ROWS:,} rows of {DIMENSION} float32 randomized into files, "
        "against `randomized-response` with every coordinate, for each report that is not blank",
        (ours / said[0]) / (papers / said[1]),
        3.0,
        f" ({1e9 * ours / said[0]:.1f} ns against {1e9 * papers / said[1]:.1f} ns)",
    )


def rows() -> list[Row]:
    cells = (
        ChangedCounts(50_000 * 8, 0.0357, 100),
        ChangedCounts(50_000 * 4, 0.0357, 100),
        ChangedCounts(50_000 * 2, 0.0357, 100),
    )
    scales = iter(range(1, 1000))

    def certificate() -> float:
        """Not one that is remembered."""
        return NoisyCountsAccountant(cells, overflow=next(scales) * 1e-15).delta_upper(0.95)

    return [
        curator(),
        sums(),
        files(),
        seconds_row("one certified delta of `noisy-counts`, d J = 300", 1.0, certificate),
    ]
