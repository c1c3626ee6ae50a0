"""What must hold of the mechanism `noisy-counts` on the real heartbeats; skipped without them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from tests.experiments.agreement import p_value
from tests.stat_tests import FALSE_ALARM

import shufflesum as ss
from experiments.data import Heartbeats
from experiments.trials import AddTrial, Moments, Prediction, predict
from shufflesum.plans import Plan
from shufflesum.protocol import Tally
from shufflesum.release import release
from shufflesum.testing import SeededSource

USERS, DIMENSION, RUNS = 50_000, 100, 300
MOST_REPORTS = 420  # 4.2 for each coordinate, blanks included
CURATOR = 7.85e-5

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Runs:
    """The squared error of every run, and which of its 95 % intervals hold the truth."""

    plan: Plan
    prediction: Prediction
    errors: NDArray[np.float64]
    covered: NDArray[np.bool_]

    @property
    def mean_error(self) -> float:
        return float(self.errors.mean())


@pytest.fixture(scope="module")
def runs(real: Heartbeats) -> Runs:
    """All in one process: the digits are rounded, and each cell's noise drawn, anew in every run."""
    beats = np.ascontiguousarray(real.beats[:USERS, :DIMENSION])
    plan = ss.plan(
        users=USERS, shape=DIMENSION, epsilon=0.95, delta=1e-6, mechanism="noisy-counts", max_reports=MOST_REPORTS
    )
    prediction = predict(Moments.of(beats, AddTrial.of(plan).mechanism.levels), AddTrial.of(plan))
    truth = beats.mean(axis=0, dtype=np.float64)
    errors, covered = [], []
    for run in range(RUNS):
        tally = Tally(plan, source=SeededSource(run))
        tally.add(beats)
        estimate = release(tally.counts())
        lower, upper = estimate.confidence_interval(0.95)
        errors.append(float(np.sum((estimate.mean - truth) ** 2)))
        covered.append((lower <= truth) & (truth <= upper))
    return Runs(plan, prediction, np.array(errors), np.array(covered))


def test_the_plan_sends_what_it_may_and_the_curator_is_the_known_one(runs: Runs) -> None:
    assert runs.plan.reports <= MOST_REPORTS
    assert runs.plan.noise_by == "users"
    assert runs.plan.curator_error == pytest.approx(CURATOR, rel=1e-3)


def test_the_error_is_within_a_tenth_of_a_trusted_curators(runs: Runs) -> None:
    """Expected on this data at most 1.1 times, observed at most 1.12 times.

    The standard error of 300 runs is 0.9 %. Seeded, so always or never: expected are 1.090 times, observed 1.104.
    """
    assert runs.prediction.parts.total <= 1.1 * CURATOR
    assert runs.mean_error <= 1.12 * CURATOR


def test_the_plans_expected_error_is_not_below_what_is_observed(runs: Runs) -> None:
    deviation = runs.errors.std(ddof=1) / math.sqrt(RUNS)
    assert runs.mean_error - norm.isf(FALSE_ALARM) * deviation <= runs.plan.expected_error.total
    assert runs.prediction.parts.total <= runs.plan.expected_error.total


def test_the_prediction_from_the_datas_own_rounding_agrees(runs: Runs) -> None:
    """False-alarm rate 1e-6; a prediction without rounding, or for 10 % more noise, is refuted."""
    assert p_value(runs.mean_error, RUNS, runs.prediction) > FALSE_ALARM
    parts = runs.prediction.parts
    for wrong in (replace(parts, rounding=0.0), replace(parts, noise=1.1 * parts.noise)):
        scaled = replace(
            runs.prediction, parts=wrong, coordinates=runs.prediction.coordinates * wrong.total / parts.total
        )
        assert p_value(runs.mean_error, RUNS, scaled) < FALSE_ALARM


def test_intervals_cover_what_they_say(runs: Runs) -> None:
    """30,000 intervals, whose part that holds the truth has a standard error of 0.13 % if they hold it in 95 %.

    A coordinate's 300 intervals hold it in less than 85 % once in 10^11 times.
    """
    assert 0.94 <= runs.covered.mean() <= 0.99
    assert runs.covered.mean(axis=0).min() >= 0.85
