"""Speed of the three roles, secure randomness and input validation included."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Row, at_least, at_most, best_times
from shufflesum import Analyzer, Plan, Randomizer, shuffle
from shufflesum.reports import Counts
from shufflesum.testing import unprotected_plan

Rows = NDArray[np.float32]
ROWS, DIMENSION = 1_000_000, 100
LEVELS, NOISE = 3, 0.2


def _plan(coordinates: int) -> Plan:
    return unprotected_plan(
        users=1, shape=DIMENSION, coordinates=coordinates, levels=LEVELS, noise_probability=NOISE, bounds=(0.0, 1.0)
    )


def one_report(rows: Rows) -> list[Row]:
    plan = _plan(1)
    coordinates = np.random.default_rng(1).integers(0, DIMENSION, len(rows))
    order = np.arange(len(rows))

    def ours() -> object:
        return Analyzer(plan).analyze(shuffle(Randomizer(plan).randomize(rows)))

    protocol, gather, minimum = best_times(ours, lambda: rows[order, coordinates], rows.min)
    detail = f" ({1e9 * protocol / len(rows):.0f} ns a report; bare gather alone {1e9 * gather / len(rows):.0f} ns)"
    return [
        at_most(
            f"t = 1, {len(rows):,} rows of {DIMENSION} float32: randomize + shuffle + analyze, against the bare gather "
            "`X[arange(n), c]` plus one pass `X.min()`",
            protocol / (gather + minimum),
            2.0,
            detail,
        )
    ]


def all_coordinates(rows: Rows) -> list[Row]:
    plan = _plan(DIMENSION)

    def count(part: Rows) -> Counts:
        counts = Counts(plan)
        for reports in Randomizer(plan).blocks(part):
            counts.add(reports)
        return counts

    halves = np.array_split(rows, 2)
    with ThreadPoolExecutor(2) as pool:
        one, two, baseline = best_times(
            lambda: count(rows),
            lambda: list(pool.map(count, halves)),
            lambda: rows.sum(axis=0),
            repeats=5,
        )
    detail = f" ({1e9 * one / rows.size:.1f} ns a value)"
    return [
        at_most(
            f"t = d, {len(rows):,} rows of {DIMENSION} float32: randomize + count, against `X.sum(axis=0)`",
            one / baseline,
            15.0,
            detail,
        ),
        Row("the same on two threads, against one thread", f"{one / two:.2f}x as fast", "", None),
    ]


def _local_randomizer(value: int) -> int:
    """Algorithm 1."""
    if random.random() < NOISE:
        return random.randint(0, LEVELS)
    return value


def _vector_randomizer(vector: Rows, reports: int) -> list[tuple[int, int]]:
    """Algorithm 2."""
    result = []
    for coordinate in random.sample(range(DIMENSION), reports):
        scaled = vector[coordinate] * LEVELS
        floor = math.floor(scaled)
        result.append((coordinate, _local_randomizer(floor + (random.random() < scaled - floor))))
    return result


def _analyzer(reports: list[tuple[int, int]]) -> list[float]:
    """Algorithm 3."""
    sums, counts = [0.0] * DIMENSION, [0] * DIMENSION
    for coordinate, value in reports:
        sums[coordinate] += value / LEVELS
        counts[coordinate] += 1
    return [(total - NOISE / 2 * count) / (1 - NOISE) for total, count in zip(sums, counts, strict=True)]


def against_peers(rows: Rows) -> list[Row]:
    """A plain loop over the paper's pseudo-code, and the GRR client of multi-freq-ldpy."""
    few = rows[:5000]
    single, full = _plan(1), _plan(DIMENSION)

    def pseudo_code() -> list[float]:
        reports = [report for vector in few for report in _vector_randomizer(vector, 1)]
        random.shuffle(reports)
        return _analyzer(reports)

    def ours_single() -> object:
        return Analyzer(single).analyze(shuffle(Randomizer(single).randomize(rows)))

    loop, ours = best_times(pseudo_code, ours_single, repeats=5)
    detail = f" ({1e9 * loop / len(few):.0f} ns against {1e9 * ours / len(rows):.0f} ns a report)"
    result = [
        at_least(
            "t = 1, per report: faster than a plain Python loop over Algorithms 1 to 3, which checks no input",
            (loop / len(few)) / (ours / len(rows)),
            50.0,
            detail,
        )
    ]
    try:
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    except ImportError:
        return [*result, Row("t = d, per report, against multi-freq-ldpy", "not installed", "at least 50x", None)]
    values = np.rint(few[:30].reshape(-1) * LEVELS).astype(int)
    epsilon = float(np.log(1 + (LEVELS + 1) * (1 - NOISE) / NOISE))

    def peer() -> list[int]:
        return [GRR_Client(value, LEVELS + 1, epsilon) for value in values]

    part = rows[:100_000]
    theirs, ours = best_times(peer, lambda: Randomizer(full).randomize(part), repeats=15)
    return [
        *result,
        at_least(
            "t = d, per report: randomizing, faster than multi-freq-ldpy's GRR client",
            (theirs / len(values)) / (ours / part.size),
            50.0,
            f" ({1e9 * theirs / len(values):.0f} ns against {1e9 * ours / part.size:.1f} ns a report)",
        ),
    ]


def rows() -> list[Row]:
    data = np.random.default_rng(0).random((ROWS, DIMENSION), dtype=np.float32)
    return [*one_report(data), *all_coordinates(data), *against_peers(data)]
