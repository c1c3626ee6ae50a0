"""Times as ratios: what is compared runs alternately; the best run of each counts, or of processes the median."""

from __future__ import annotations

import resource
import statistics
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


def processor_times(*jobs: Callable[[], object], repeats: int = 5) -> list[float]:
    """Processor seconds of the processes that each job starts and waits for: the median of several alternating runs."""
    times: list[list[float]] = [[] for _ in jobs]
    for _ in range(repeats):
        for i, job in enumerate(jobs):
            start = _of_children()
            job()
            times[i].append(_of_children() - start)
    return [statistics.median(found) for found in times]


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def at_most(what: str, ratio: float, limit: float, detail: str = "") -> Row:
    return Row(what, f"{ratio:.2f}x{detail}", f"at most {limit:g}x", ratio <= limit)


def at_least(what: str, ratio: float, limit: float, detail: str = "") -> Row:
    return Row(what, f"{ratio:.0f}x{detail}", f"at least {limit:g}x", ratio >= limit)


def markdown(rows: list[Row]) -> str:
    lines = ["| what | measured | wanted | |", "| --- | --- | --- | --- |"]
    marks = {True: "holds", False: "**missed**", None: ""}
    lines += [f"| {row.what} | {row.measured} | {row.wanted} | {marks[row.holds]} |" for row in rows]
    return "\n".join(lines)
