"""Times as ratios: what is compared runs alternately in one process, and the best run of each counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    what: str
    measured: str
    wanted: str
    holds: bool | None = None


def best_times(*jobs: Callable[[], object], repeats: int = 7) -> list[float]:
    """Seconds of the best of several alternating runs of each job, after one run that warms caches and compilers."""
    for job in jobs:
        job()
    best = [float("inf")] * len(jobs)
    for _ in range(repeats):
        for i, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def at_most(what: str, ratio: float, limit: float, detail: str = "") -> Row:
    return Row(what, f"{ratio:.2f}x{detail}", f"at most {limit:g}x", ratio <= limit)


def at_least(what: str, ratio: float, limit: float, detail: str = "") -> Row:
    return Row(what, f"{ratio:.0f}x{detail}", f"at least {limit:g}x", ratio >= limit)


def markdown(rows: list[Row]) -> str:
    lines = ["| what | measured | wanted | |", "| --- | --- | --- | --- |"]
    marks = {True: "holds", False: "**missed**", None: ""}
    lines += [f"| {row.what} | {row.measured} | {row.wanted} | {marks[row.holds]} |" for row in rows]
    return "\n".join(lines)
