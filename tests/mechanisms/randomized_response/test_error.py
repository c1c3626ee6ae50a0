from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.plan_builders import encoding_for, replace_of
from tests.stat_tests import FALSE_ALARM, mean_is, report_law

from shufflesum import Analyzer, Randomizer
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.mechanism import ExpectedError
from shufflesum.mechanisms.randomized_response.decode import (
    coordinate_error,
    expected_inverse_count,
    report_variance,
    rounding_variance,
)
from shufflesum.testing import SeededSource, unprotected_plan

unit = st.floats(0, 1)
some_levels = st.sampled_from([1, 2, 3, 4, 7, 10, 50])
some_noise = st.one_of(st.just(0.0), st.floats(1e-6, 0.95))


@given(x=unit, levels=some_levels, gamma=some_noise)
def test_the_variance_of_a_report_is_that_of_its_probability_table(x: float, levels: int, gamma: float) -> None:
    law = report_law(x, levels, gamma)
    values = np.arange(levels + 1) / levels
    mean = law @ values
    assert (mean - gamma / 2) / (1 - gamma) == pytest.approx(x, abs=1e-9 / (1 - gamma))
    expected = law @ (values - mean) ** 2 / (1 - gamma) ** 2
    assert float(report_variance(x, levels, gamma)) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert float(rounding_variance(x, levels)) == pytest.approx(float(report_variance(x, levels, 0.0)), abs=1e-15)


def test_on_a_level_nothing_is_lost_to_rounding_and_pure_noise_says_nothing() -> None:
    assert rounding_variance([0, 0.25, 0.5, 0.75, 1], 4).tolist() == [0] * 5
    assert report_variance([0.0, 0.3], 4, 1.0).tolist() == [math.inf, math.inf]
    assert coordinate_error(10, 1.0, 3, 1.0).total == math.inf


@given(users=st.integers(1, 3000), probability=st.floats(1e-3, 1))
def test_the_expected_inverse_count_is_that_of_the_binomial_law(users: int, probability: float) -> None:
    counts = np.arange(1, users + 1)
    law = binom.pmf(counts, users, probability)
    assert expected_inverse_count(users, probability) == pytest.approx(law @ (1 / counts) / law.sum(), rel=1e-5)


def test_the_expected_inverse_count_has_no_step_where_the_expansion_takes_over() -> None:
    for probability in (0.001, 0.2, 0.9):
        users = math.ceil(1000 / probability)
        below, above = (expected_inverse_count(users + step, probability) for step in (-1, 1))
        assert below == pytest.approx(above, rel=3 / users + 1e-5)
        assert below > above


def total_of(users: int, probability: float, levels: int, gamma: float, x: np.ndarray, weights: np.ndarray) -> float:
    """The predicted squared error where the users' values have the given law."""
    inverse = expected_inverse_count(users, probability)
    spread = weights @ x**2 - (weights @ x) ** 2
    return float((weights @ report_variance(x, levels, gamma) + spread) * inverse - spread / users)


@given(
    users=st.integers(2, 10_000),
    block=st.integers(1, 20),
    levels=some_levels,
    gamma=some_noise,
    points=st.lists(st.tuples(unit, st.floats(1e-3, 1)), min_size=1, max_size=4),
)
def test_no_law_of_the_data_has_a_larger_error_than_the_worst(
    users: int, block: int, levels: int, gamma: float, points: list[tuple[float, float]]
) -> None:
    worst = coordinate_error(users, 1 / block, levels, gamma)
    assert min(worst.sampling, worst.rounding, worst.noise) >= -1e-15
    x, weights = np.array(points).T
    rival = total_of(users, 1 / block, levels, gamma, x, weights / weights.sum())
    assert with_unreported(rival, users, block) <= worst.total * (1 + 1e-9) + 1e-15


@given(users=st.integers(2, 10_000), block=st.integers(1, 20), levels=some_levels, gamma=some_noise)
def test_the_worst_error_is_reached_by_some_data(users: int, block: int, levels: int, gamma: float) -> None:
    grid = np.unique(np.concatenate([np.linspace(0, 0.5, 2001), np.arange(levels + 1) / levels]))
    inverse = expected_inverse_count(users, 1 / block)
    sampled = inverse - 1 / users
    totals = inverse * report_variance(grid, levels, gamma) + sampled * (grid - 0.5) ** 2
    expected = with_unreported(totals.max(), users, block)
    assert coordinate_error(users, 1 / block, levels, gamma).total == pytest.approx(expected, rel=1e-4, abs=1e-12)


@given(users=st.integers(2, 10_000), block=st.integers(1, 20), levels=some_levels, gamma=some_noise, x=unit, y=unit)
def test_with_a_spread_no_data_of_that_spread_has_a_larger_error(
    users: int, block: int, levels: int, gamma: float, x: float, y: float
) -> None:
    predicted = coordinate_error(users, 1 / block, levels, gamma, assumed_std=abs(x - y) / 2)
    rival = total_of(users, 1 / block, levels, gamma, np.array([x, y]), np.array([0.5, 0.5]))
    assert with_unreported(rival, users, block) <= predicted.total * (1 + 1e-9) + 1e-15


def with_unreported(error: float, users: int, block: int) -> float:
    """The error, or the whole width where nobody reports the coordinate."""
    chance = (1 - 1 / block) ** users
    return (1 - chance) * error + chance


def test_errors_add_and_scale_part_by_part() -> None:
    error = ExpectedError(1.0, 2.0, 3.0)
    assert error.total == 6
    assert error + error == error * 2 == ExpectedError(2.0, 4.0, 6.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("coordinates", "levels", "gamma", "sampling"),
    [
        (1, 1, 0.0, "stratified"),
        (1, 3, 0.3, "stratified"),
        pytest.param(2, 10, 0.05, "stratified", marks=pytest.mark.slow),
        (3, 2, 0.6, "uniform"),
        (4, 5, 0.2, "stratified"),
        pytest.param(6, 1, 0.25, "stratified", marks=pytest.mark.slow),
        pytest.param(6, 4, 0.5, "uniform", marks=pytest.mark.slow),
    ],
)
def test_estimates_are_unbiased_and_err_as_predicted(
    coordinates: int, levels: int, gamma: float, sampling: str
) -> None:
    """Bias and mean squared error over 1,500 runs, normal tests at false alarm 1e-6; 30% more error is rejected."""
    users, dimension, runs = 300, 6, 1500
    plan = unprotected_plan(
        users=users,
        shape=dimension,
        coordinates=coordinates,
        levels=levels,
        noise_probability=gamma,
        sampling=sampling,  # type: ignore[arg-type]
    )
    rng = np.random.default_rng(5)
    data = np.clip(rng.normal([0.0, 0.1, 0.3, 0.5, 0.77, 1.0], [0, 0.1, 0.3, 0.2, 0.0, 0.05], (users, 6)), 0, 1)
    randomizer = Randomizer(plan, source=SeededSource(coordinates * 100 + levels))
    errors = np.array(
        [Analyzer(plan).analyze(randomizer.randomize(data)).mean - data.mean(axis=0) for _ in range(runs)]
    )
    moving = errors.std(axis=0) > 1e-12
    assert np.allclose(errors[:, ~moving], 0, atol=1e-12)
    assert mean_is(errors[:, moving], np.zeros(moving.sum())) > FALSE_ALARM
    assert mean_is(errors[:, moving], 0.2 * errors[:, moving].std(axis=0)) < FALSE_ALARM

    spread = data.var(axis=0)
    mechanism = replace_of(plan)
    sampled = mechanism.sampling_probabilities(encoding_for(plan.domain, RandomizedResponse))
    inverse = np.array([expected_inverse_count(users, p) for p in sampled])
    own = report_variance(data, levels, mechanism.noise_probability).mean(axis=0)
    predicted = (own + spread) * inverse - spread / users
    squared = (errors**2).sum(axis=1)
    assert mean_is(squared, predicted.sum()) > FALSE_ALARM
    assert mean_is(squared, 1.3 * predicted.sum()) < FALSE_ALARM
    assert predicted.sum() <= plan.expected_error.total
