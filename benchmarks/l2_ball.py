"""Speed of vectors with a bounded norm: clip, rotate, toss and count beside `randomized-response`, the transform alone,
plans.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import shufflesum as ss
from benchmarks.accounting import seconds_row
from benchmarks.timing import Row, at_most, best_times
from shufflesum import Plan, Randomizer
from shufflesum.mechanisms.one_bit.randomize import hadamard, toss
from shufflesum.privacy.one_bit import OneBitAccountant
from shufflesum.randomness import SecureSource
from shufflesum.reports import Counts
from shufflesum.testing import no_guarantee, unprotected_plan

ROWS, DIMENSION = 4_000, 8_192
TAU, AMPLITUDE = 3.0, 0.125


def roles() -> Row:
    """Half of the rows are too long and must be clipped."""
    rows: NDArray[np.float32] = np.random.default_rng(0).standard_normal((ROWS, DIMENSION), dtype=np.float32)
    rows *= np.linspace(0.5, 1.5, ROWS, dtype=np.float32)[:, None] / np.float32(np.sqrt(DIMENSION))
    plain: NDArray[np.float32] = np.random.default_rng(0).random((ROWS, DIMENSION), dtype=np.float32)
    ball = ss.L2Ball(DIMENSION, clipping_norm=1.0, seed=bytes(16))
    bits = Plan(ball, ss.OneBit(1, AMPLITUDE, TAU), no_guarantee(ROWS))
    papers = unprotected_plan(
        users=ROWS, shape=DIMENSION, coordinates=DIMENSION, levels=1, noise_probability=1 - AMPLITUDE
    )

    def count(plan: Plan, given: NDArray[np.float32], *, clip: bool) -> Callable[[], object]:
        def job() -> object:
            counts = Counts(plan)
            for reports in Randomizer(plan, clip=clip).blocks(given):
                counts.add(reports)
            return counts

        return job

    ours, theirs = best_times(count(bits, rows, clip=True), count(papers, plain, clip=False))
    return at_most(
        f"ball, {ROWS:,} rows of {DIMENSION:,} float32, half of them too long: clip + rotate + randomize + count, "
        "against `randomized-response` with every coordinate on plain data, per value",
        ours / theirs,
        2.5,
        f" ({1e9 * ours / rows.size:.1f} ns against {1e9 * theirs / rows.size:.1f} ns a value)",
    )


def transform() -> Row:
    """A row at a time, as the randomizer does; what the randomizer does without it is drawing coins and counting."""
    row: NDArray[np.float32] = np.random.default_rng(0).standard_normal(DIMENSION, dtype=np.float32)
    repeats = 1000
    plan = unprotected_plan(users=1, shape=DIMENSION, coordinates=DIMENSION, levels=1, noise_probability=0.5)
    plain: NDArray[np.float32] = np.random.default_rng(0).random((repeats, DIMENSION), dtype=np.float32)
    levels = np.random.default_rng(0).integers(-(1 << 15), 1 << 15, (16, DIMENSION), dtype=np.int32)
    source = SecureSource()

    def transformed() -> None:
        for _ in range(repeats):
            hadamard(row)
            row[:] = 1.0

    def randomized() -> None:
        for _ in Randomizer(plan).blocks(plain):
            pass

    def tossed() -> None:
        for _ in range(repeats // 16):
            toss(source, levels, 1 << 28)

    ours, theirs, coins = best_times(transformed, randomized, tossed)
    per_value = 1e9 / (repeats * DIMENSION)
    return at_most(
        f"the rotation alone, {DIMENSION:,} float32, against randomizing as many values by `randomized-response`",
        ours / theirs,
        1.0,
        f" ({per_value * ours:.2f} ns against {per_value * theirs:.2f} ns a value; exact coins alone "
        f"{per_value * coins * repeats / (repeats // 16 * 16):.2f} ns)",
    )


def rows() -> list[Row]:
    warnings.simplefilter("ignore")
    numbers = iter(range(1, 10_000))

    def certificate(users: int, coordinates: int, amplitude: float, rounds: int) -> Callable[[], object]:
        """Not one that is remembered."""
        return lambda: OneBitAccountant(
            users, coordinates, amplitude - next(numbers) * 2.0**-31, 3.0, rounds
        ).delta_upper(1.0)

    def plan(users: int, dimension: int, rounds: int) -> Callable[[], object]:
        def job() -> object:
            ball = ss.L2Ball(dimension, clipping_norm=1.0)
            return ss.plan(users=users + next(numbers), domain=ball, epsilon=2.0, delta=1e-6, rounds=rounds)

        return job

    return [
        roles(),
        transform(),
        seconds_row(
            "one certified delta of a ball, the slowest of (n, D, T) = (1e3, 8192, 1), (6e3, 8192, 30), (1e5, 1e6, 1)",
            2.0,
            certificate(1000, 8192, 0.1, 1),
            certificate(6000, 8192, 0.1, 30),
            certificate(100_000, 1 << 20, 0.4, 1),
        ),
        seconds_row(
            "a plan for a ball, the slowest of (n, d, T) = (6e3, 7850, 30), (1e4, 16384, 1), (1e5, 1e6, 1)",
            10.0,
            plan(6000, 7850, 30),
            plan(10_000, 16_384, 1),
            plan(100_000, 1_000_000, 1),
        ),
    ]
