"""Speed of the accountant and the planner, with nothing remembered from before."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import shufflesum as ss
from benchmarks.timing import Row
from shufflesum.privacy.randomized_response import blanket
from shufflesum.privacy.randomized_response.accountant import forget
from shufflesum.privacy.randomized_response.schemes import Blocks


def _seconds(job: Callable[[], object], repeats: int = 3) -> float:
    job()  # compiles
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def seconds_row(what: str, limit: float, *jobs: Callable[[], object]) -> Row:
    worst = max(_seconds(job) for job in jobs)
    return Row(what, f"{worst:.3f} s", f"below {limit:g} s", worst < limit)


def rows() -> list[Row]:
    warnings.simplefilter("ignore")

    def delta(noise_probability: float, epsilon: float) -> Callable[[], object]:
        return lambda: blanket.delta_upper(10**8, 3, noise_probability, epsilon)

    def smallest(users: int, levels: int, epsilon: float) -> Callable[[], object]:
        return lambda: blanket.smallest_noise_probability(users, levels, epsilon, 1e-6)

    def composed(levels: int) -> Callable[[], object]:
        return lambda: Blocks(50_000, levels, 100, single_coordinate=True).smallest_noise_probability(0.95, 1e-6)

    def plan(users: int, dimension: int) -> Callable[[], object]:
        def job() -> object:
            forget()
            return ss.plan(users=users, shape=dimension, epsilon=1.0, delta=1e-6)

        return job

    return [
        seconds_row(
            "one certified delta at n = 1e8, the slowest of noise probability 2e-6, 1e-3 and 0.5",
            0.2,
            delta(2e-6, 0.95),
            delta(1e-3, 0.02),
            delta(0.5, 1e-3),
        ),
        seconds_row(
            "smallest noise probability, t = 1, the slowest of n = 1e3, 5e4, 1e6, 1e8, 1e10",
            0.5,
            *(smallest(n, k, e) for n in (10**3, 5 * 10**4, 10**6, 10**8, 10**10) for k, e in ((1, 1.0), (10, 0.1))),
        ),
        seconds_row(
            "smallest noise probability, composed, t = 100, the slower of k = 1 and 3", 3.0, composed(1), composed(3)
        ),
        seconds_row("a full automatic plan, n = 5e4, d = 100", 10.0, plan(50_000, 100)),
        seconds_row("a full automatic plan, n = 1e6, d = 10,000", 10.0, plan(10**6, 10_000)),
    ]
