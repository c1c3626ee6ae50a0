"""The rotation of each round: randomizer and analyzer must use the same, or nothing can be read."""

from __future__ import annotations

import numpy as np
from tests.round_dependent import FALSE_ALARM_OF_BALLS, TURNING, turned_rows

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.l2_ball.estimate import L2BallEstimate


def off(estimate: Estimate, truth: np.ndarray) -> bool:
    """Whether the estimate is farther from the truth than chance allows; a false alarm has chance 1e-7 at most."""
    assert isinstance(estimate, L2BallEstimate)
    distance = float(np.linalg.norm(estimate.mean - truth))
    return distance > estimate.error_norm(1 - FALSE_ALARM_OF_BALLS)


def test_each_round_is_read_with_its_own_rotation() -> None:
    rows = turned_rows()
    truth = rows.mean(axis=0)
    for number in (1, 2, 3):
        reports = ss.shuffle(ss.Randomizer(TURNING, round_number=number).randomize(rows))
        assert not off(ss.Analyzer(TURNING, round_number=number).analyze(reports), truth)
        assert not off(aggregate_batches([rows], TURNING, workers=1, round_number=number), truth)
        for other in {1, 2, 3} - {number}:  # said to be of another round, all is lost, and it is noticed
            moved = ss.Reports(reports.plan_id, reports.cells, other)
            assert off(ss.Analyzer(TURNING, round_number=other).analyze(moved), truth)


def test_a_round_that_is_not_told_to_the_randomizer_is_noticed() -> None:
    rows = turned_rows()
    reports = ss.Randomizer(TURNING).randomize(rows)
    relabelled = ss.Reports(reports.plan_id, reports.cells, 2)
    assert off(ss.Analyzer(TURNING, round_number=2).analyze(relabelled), rows.mean(axis=0))
