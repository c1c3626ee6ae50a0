from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.experiments.agreement import p_value
from tests.stat_tests import FALSE_ALARM

from experiments.data import Heartbeats
from experiments.trials import Errors, Moments, Prediction, Trial, measure, predict
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.randomized_response.decode import report_variance
from shufflesum.mechanisms.randomized_response.mechanism import on_grid

REPEATS = 30
TRIALS = [
    Trial(5000, 20, RandomizedResponse(1, 3, on_grid(0.2), "uniform")),
    Trial(5000, 20, RandomizedResponse(4, 2, on_grid(0.5), "uniform")),
    Trial(4000, 20, RandomizedResponse(7, 10, on_grid(0.05), "stratified")),
    Trial(3000, 20, RandomizedResponse(20, 1, on_grid(0.1), "stratified")),
    Trial(5000, 20, RandomizedResponse(1, 3, on_grid(0.2), "uniform"), encoding="authors"),
    Trial(5000, 20, RandomizedResponse(5, 3, on_grid(0.3), "uniform"), encoding="authors"),
]


def predicted(crowd: Heartbeats, trial: Trial) -> Prediction:
    return predict(Moments.of(crowd.beats[: trial.users], trial.mechanism.levels, trial.encoding), trial)


def measured(crowd: Heartbeats, trial: Trial) -> Errors:
    return Errors(*np.mean([measure(crowd.beats, trial, 1, repeat) for repeat in range(REPEATS)], axis=0))


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.key)
def test_measured_errors_are_as_predicted(crowd: Heartbeats, trial: Trial) -> None:
    """The six tests share the false-alarm rate; seeded, they fail always or never."""
    found, expected = measured(crowd, trial), predicted(crowd, trial)
    assert p_value(found.mean_error, REPEATS, expected) > FALSE_ALARM / len(TRIALS) / 2
    # The paper's metric has the same law but for what sampling adds, so the same relative spread.
    scaled = found.paper_error * expected.parts.total / expected.paper_error
    assert p_value(scaled, REPEATS, expected) > FALSE_ALARM / len(TRIALS) / 2


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.key)
def test_errors_predicted_for_other_noise_are_refuted(crowd: Heartbeats, trial: Trial) -> None:
    wrong = predicted(
        crowd,
        replace(
            trial,
            mechanism=replace(trial.mechanism, noise_probability=on_grid(trial.mechanism.noise_probability + 0.25)),
        ),
    )
    assert p_value(measured(crowd, trial).mean_error, REPEATS, wrong) < FALSE_ALARM / len(TRIALS) / 2


def test_a_prediction_that_forgets_the_spread_between_users_is_refuted(crowd: Heartbeats) -> None:
    trial = Trial(5000, 20, RandomizedResponse(1, 10, on_grid(0.0), "uniform"))
    moments = Moments.of(crowd.beats[:5000], 10)
    forgetful = predict(replace(moments, spread=0 * moments.spread), trial)
    assert p_value(measured(crowd, trial).mean_error, REPEATS, forgetful) < FALSE_ALARM
    assert p_value(measured(crowd, trial).mean_error, REPEATS, predict(moments, trial)) > FALSE_ALARM


@pytest.mark.parametrize("levels", [1, 3, 10])
@pytest.mark.parametrize("gamma", [0.0, 0.17, 0.95])
def test_the_average_variance_of_a_report_follows_from_the_moments(
    crowd: Heartbeats, levels: int, gamma: float
) -> None:
    beats = crowd.beats[:700].astype(np.float64)
    direct = report_variance(beats, levels, gamma).mean(axis=0)
    np.testing.assert_allclose(Moments.of(crowd.beats[:700], levels).report_variance(levels, gamma), direct, rtol=1e-9)


def test_a_run_is_repeatable_and_repeats_differ(crowd: Heartbeats) -> None:
    trial = TRIALS[0]
    assert measure(crowd.beats, trial, 1, 0) == measure(crowd.beats, trial, 1, 0)
    outcomes = {
        measure(crowd.beats, trial, 1, 0),
        measure(crowd.beats, trial, 1, 1),
        measure(crowd.beats, trial, 2, 0),
        measure(crowd.beats, replace(trial, mechanism=replace(trial.mechanism, coordinates=2)), 1, 0),
    }
    assert len(outcomes) == 4


def test_only_the_first_users_and_coordinates_count(crowd: Heartbeats) -> None:
    """n is varied by using n vectors."""
    trial = Trial(2000, 20, RandomizedResponse(1, 3, on_grid(0.2), "uniform"))
    assert measure(crowd.beats[:2000, :20].copy(), trial, 1, 0) == measure(crowd.beats, trial, 1, 0)
    other = crowd.beats.copy()
    other[1000:2000] = 0
    assert measure(other, trial, 1, 0) != measure(crowd.beats, trial, 1, 0)


def test_without_noise_or_rounding_the_papers_metric_is_zero_and_the_error_of_the_mean_is_not() -> None:
    beats = np.random.default_rng(1).integers(0, 2, (1000, 10)).astype(np.float32)
    errors = measure(beats, Trial(1000, 10, RandomizedResponse(1, 1, on_grid(0.0), "uniform")), 1, 0)
    assert errors.paper_error == pytest.approx(0, abs=1e-20)
    assert errors.mean_error > 1e-3
    assert measure(
        beats, Trial(1000, 10, RandomizedResponse(10, 1, on_grid(0.0), "stratified")), 1, 0
    ).mean_error == pytest.approx(0, abs=1e-20)


def test_the_authors_encoding_costs_four_times_the_noise(crowd: Heartbeats) -> None:
    """(1 + x)/2 halves every value, so noise of the same size is doubled on the way back."""
    trial = Trial(5000, 20, RandomizedResponse(1, 10, on_grid(0.9), "uniform"))
    plain, authors = predicted(crowd, trial), predicted(crowd, replace(trial, encoding="authors"))
    assert 3.5 < authors.parts.noise / plain.parts.noise < 4.5
    assert authors.parts.sampling == pytest.approx(plain.parts.sampling)
