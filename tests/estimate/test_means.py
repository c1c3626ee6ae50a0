from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.plan_builders import reports_of
from tests.refusals import refusal
from tests.slow_params import slow_but_for
from tests.stat_tests import FALSE_ALARM, mean_is

from shufflesum import Analyzer, Estimate, Plan, Randomizer, Span, Symmetric, shuffle
from shufflesum.cautions import UnreportedCoordinateWarning
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.mechanism import Target
from shufflesum.testing import SeededSource, unprotected_plan

Floats = Any
TARGETS: tuple[Target, ...] = ("users", "population")


@given(
    shape=st.sampled_from([(), (1,), (3,), (2, 3, 4)]),
    users=st.integers(1, 6),
    seed=st.integers(0, 2**32),
    bounds=st.tuples(st.floats(-100, 100), st.floats(0.01, 100)),
)
def test_without_noise_values_on_levels_come_back_exactly(
    shape: tuple[int, ...], users: int, seed: int, bounds: tuple[float, float]
) -> None:
    low, width = bounds
    plan = unprotected_plan(
        users=users, shape=shape, coordinates=int(np.prod(shape)), levels=8, bounds=(low, low + width)
    )
    arrays = low + width * np.random.default_rng(seed).integers(0, 9, (users, *shape)) / 8
    # the coordinates' own rounding may leave a value a hair off its level; it is then rounded to either neighbour
    arrays = np.clip(arrays, low, low + width)
    estimate = Analyzer(plan).analyze(shuffle(Randomizer(plan).randomize(arrays)))
    assert estimate.users == users
    assert estimate.mean.shape == estimate.sum.shape == estimate.standard_error.shape == shape
    assert estimate.report_counts.shape == shape
    assert (estimate.report_counts == users).all()
    np.testing.assert_allclose(estimate.mean, arrays.mean(axis=0), rtol=1e-12, atol=1e-12 * (abs(low) + width))
    np.testing.assert_allclose(estimate.sum, arrays.sum(axis=0), rtol=1e-11, atol=1e-10 * (abs(low) + width))
    for target in TARGETS:
        lower, upper = estimate.confidence_interval(0.9, target=target)
        assert lower.shape == upper.shape == shape
        assert (lower < upper).all()


def test_the_estimate_is_the_papers_debiased_mean() -> None:
    plan = unprotected_plan(users=2, shape=2, coordinates=1, levels=4, noise_probability=0.25, bounds=(-1, 3))
    estimate = Analyzer(plan).analyze(reports_of(plan, [(0, 4), (0, 1), (0, 3), (1, 0)]))
    # c = 3 reports whose values sum to v = 8: z = (v/k - gamma c/2) / (1 - gamma)
    z = (8 / 4 - 0.25 * 3 / 2) / 0.75
    np.testing.assert_allclose(estimate.mean, [-1 + 4 * z / 3, -1 + 4 * (-0.125 / 0.75)])
    np.testing.assert_allclose(estimate.sum, 4 * estimate.mean)
    assert estimate.users == 4  # those who came, not the plan's users
    assert estimate.report_counts.tolist() == [3, 1]


def test_an_entry_nobody_reported_has_no_estimate() -> None:
    plan = unprotected_plan(users=2, shape=(2, 2))
    with pytest.warns(UnreportedCoordinateWarning):
        estimate = Analyzer(plan).analyze(reports_of(plan, [(1, 1), (2, 0)]))
    errors = [estimate.standard_error_of(target) for target in TARGETS]
    for result in (estimate.mean, estimate.sum, estimate.standard_error, *errors, *estimate.confidence_interval()):
        assert np.isnan(result).tolist() == [[True, False], [False, True]]
    assert estimate.report_counts.tolist() == [[0, 1], [1, 0]]


def test_an_unreported_coefficient_leaves_only_the_entries_it_reaches_without_estimate() -> None:
    plan = unprotected_plan(users=1, shape=Span([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    with pytest.warns(UnreportedCoordinateWarning, match="nobody reported coefficient 0"):
        estimate = Analyzer(plan).analyze(reports_of(plan, [(1, 1)]))
    for result in (estimate.mean, estimate.standard_error, *estimate.confidence_interval()):
        assert np.isnan(result).tolist() == [True, False, True]


def test_intervals_and_errors_are_the_mechanisms_in_the_users_units() -> None:
    plan = unprotected_plan(users=2, shape=(2, 2), levels=2, noise_probability=0.25, bounds=(-1, 3))
    pairs = [(coordinate, value) for coordinate in range(4) for value in (0, 1, 1, 2)[coordinate:]]
    estimate = Analyzer(plan).analyze(reports_of(plan, pairs))
    means = plan.mechanism.decode(plan.encoding, estimate.table, 10)
    for target in TARGETS:
        for simultaneous, tail in ((False, 0.05), (True, 0.05 / 4)):
            ends = estimate.confidence_interval(0.9, simultaneous=simultaneous, target=target)
            for end, expected in zip(ends, means.interval(tail, target), strict=True):
                np.testing.assert_allclose(end.reshape(-1), -1 + 4 * expected)
        error = estimate.standard_error_of(target).reshape(-1)
        np.testing.assert_allclose(error, 4 * np.sqrt(means.variance(target)))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95, np.nan])
def test_a_confidence_level_must_lie_between_zero_and_one(level: float) -> None:
    plan = unprotected_plan(users=1, shape=1)
    estimate = Analyzer(plan).analyze(reports_of(plan, [(0, 0)]))
    with refusal("out-of-range", error=ParameterError):
        estimate.confidence_interval(level)
    with refusal("unknown-choice", "is 'all'", error=ParameterError):
        estimate.confidence_interval(0.9, target="all")
    with refusal("unknown-choice", "is 'all'", error=ParameterError):
        estimate.standard_error_of("all")


def test_simultaneous_intervals_hold_all_entries_together() -> None:
    """400 runs of 50 entries at 90%: fewer than the least count once in 10^6; single intervals are far from it."""
    plan = unprotected_plan(users=200, shape=(5, 10), coordinates=50, levels=2, noise_probability=0.2)
    randomizer = Randomizer(plan, source=SeededSource(1))
    data = np.random.default_rng(1).random((200, 5, 10))
    together = alone = 0
    for _ in range(400):
        estimate = Analyzer(plan).analyze(randomizer.randomize(data))
        for simultaneous in (True, False):
            low, high = estimate.confidence_interval(0.9, simultaneous=simultaneous)
            hit = bool(((low <= data.mean(axis=0)) & (data.mean(axis=0) <= high)).all())
            together, alone = together + (simultaneous and hit), alone + (not simultaneous and hit)
    least = binom.ppf(FALSE_ALARM, 400, 0.9)
    assert together >= least
    assert alone < least


def runs_of(plan: Plan, data: Floats, runs: int, seed: int) -> list[Estimate]:
    randomizer = Randomizer(plan, source=SeededSource(seed))
    return [Analyzer(plan).analyze(randomizer.randomize(data)) for _ in range(runs)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("coordinates", "levels", "gamma"),
    [
        (1, 1, 0.1),
        (2, 4, 0.3),
        pytest.param(4, 1, 0.25, marks=pytest.mark.slow),
        pytest.param(4, 8, 0.05, marks=pytest.mark.slow),
    ],
)
def test_standard_errors_are_honest_and_not_much_too_wide(coordinates: int, levels: int, gamma: float) -> None:
    """Mean squared error over mean squared standard error, all coordinates; false alarm 1e-6."""
    plan = unprotected_plan(
        users=500, shape=4, coordinates=coordinates, levels=levels, noise_probability=gamma, bounds=(0, 10)
    )
    data = np.random.default_rng(1).uniform([0, 2, 4, 5], [10, 3, 6, 5], (500, 4))
    estimates = runs_of(plan, data, 800, seed=coordinates)
    squared = np.array([((e.mean - data.mean(axis=0)) ** 2).sum() for e in estimates])
    claimed = np.mean([(e.standard_error**2).sum() for e in estimates])
    ratio = squared / claimed
    if ratio.mean() > 1:
        assert mean_is(ratio, 1.0) > FALSE_ALARM
    assert mean_is(ratio, 1.4) < FALSE_ALARM  # so an error bar 15% too short would be noticed
    assert ratio.mean() > 0.5
    assert all((e.standard_error <= e.standard_error_of("population") * (1 + 1e-12)).all() for e in estimates[:20])


@pytest.mark.parametrize("coordinates", [1, pytest.param(3, marks=pytest.mark.slow), 6])
def test_symmetric_matrices_come_back_symmetric_with_their_errors(coordinates: int) -> None:
    plan = unprotected_plan(
        users=400, shape=Symmetric(3), coordinates=coordinates, levels=4, noise_probability=0.1, bounds=(-1, 1)
    )
    half = np.random.default_rng(2).uniform(-0.5, 0.5, (400, 3, 3))
    data = half + half.transpose(0, 2, 1)
    estimates = runs_of(plan, data, 400, seed=7)
    one = estimates[0]
    low, high = one.confidence_interval()
    for result in (one.mean, one.sum, one.standard_error, one.report_counts, low, high):
        assert result.shape == (3, 3)
        np.testing.assert_array_equal(result, result.T)
    errors = np.array([e.mean - data.mean(axis=0) for e in estimates])[:, *np.triu_indices(3)]
    assert mean_is(errors, np.zeros(6)) > FALSE_ALARM
    claimed = np.mean([e.standard_error[np.triu_indices(3)] ** 2 for e in estimates], axis=0)
    ratio = (errors**2 / claimed).mean(axis=1)
    assert ratio.mean() < 1 or mean_is(ratio, 1.0) > FALSE_ALARM
    assert ratio.mean() > 0.5
    assert (errors**2).sum(axis=1).mean() < plan.expected_error.total


@pytest.mark.long
@pytest.mark.parametrize("coordinates", slow_but_for([1, 2, 3], [3]))
def test_arrays_in_a_span_come_back_whole_with_errors_through_the_linear_map(coordinates: int) -> None:
    """Bias and mean squared error against the claimed one, entry by entry; false alarm 1e-6."""
    rng = np.random.default_rng(3)
    basis = rng.normal(size=(3, 2, 4))
    spanning = np.concatenate([basis, [basis[0] + basis[1]]])  # one vector too many
    span = Span(spanning)
    assert span.dimension == 3
    plan = unprotected_plan(
        users=400, shape=span, coordinates=coordinates, levels=6, noise_probability=0.1, bounds=(-2, 2)
    )
    coefficients = rng.uniform([-2, -1, 0.5], [2, 1, 1.0], (400, 3))
    data = np.tensordot(coefficients, span.vectors, axes=1)
    estimates = runs_of(plan, data, 500, seed=8)
    one = estimates[0]
    low, high = one.confidence_interval()
    for result in (one.mean, one.sum, one.standard_error, low, high):
        assert result.shape == (2, 4)
    assert one.report_counts.shape == (3,)
    # every estimate lies in the span itself
    flat = span.vectors.reshape(3, 8)
    projected = np.linalg.lstsq(flat.T, one.mean.reshape(8), rcond=None)[0] @ flat
    np.testing.assert_allclose(projected, one.mean.reshape(8), atol=1e-9)
    errors = np.array([(e.mean - data.mean(axis=0)).reshape(8) for e in estimates])
    independent = np.linalg.lstsq(flat.T, errors.T, rcond=None)[0].T
    assert mean_is(independent, np.zeros(3)) > FALSE_ALARM
    ratio = (errors**2 / np.mean([e.standard_error.reshape(8) ** 2 for e in estimates], axis=0)).mean(axis=1)
    assert ratio.mean() < 1 or mean_is(ratio, 1.0) > FALSE_ALARM
    assert ratio.mean() > 0.4
    covered = np.mean(
        [
            (ends[0] <= data.mean(axis=0)) & (data.mean(axis=0) <= ends[1])
            for ends in (e.confidence_interval(0.9) for e in estimates)
        ],
        axis=0,
    )
    assert (covered >= binom.ppf(FALSE_ALARM, 500, 0.9) / 500).all()


def test_identity_span_and_plain_vectors_agree_where_every_user_reports_all() -> None:
    cells = [(0, 1), (0, 4), (1, 2), (1, 3)]
    plain = unprotected_plan(users=2, shape=2, coordinates=2, levels=4, noise_probability=0.1)
    span = unprotected_plan(users=2, shape=Span(np.eye(2)), coordinates=2, levels=4, noise_probability=0.1)
    a, b = (Analyzer(plan).analyze(reports_of(plan, cells)) for plan in (plain, span))
    np.testing.assert_allclose(a.mean, b.mean)
    np.testing.assert_allclose(a.standard_error, b.standard_error)
    np.testing.assert_allclose(a.confidence_interval(), b.confidence_interval())


@pytest.mark.long
def test_population_errors_of_a_span_are_honest_with_one_report_and_refused_with_more() -> None:
    """Coefficients that rise and fall together: 95% intervals over 1,000 crowds, false alarm 1e-6."""
    span = Span([[1.0, 1.0], [0.0, 1.0]])
    plan = unprotected_plan(users=300, shape=span, levels=20, noise_probability=0.01)
    randomizer = Randomizer(plan, source=SeededSource(1))
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        crowd = np.repeat(rng.random((300, 1)), 2, axis=1) @ span.vectors
        low, high = Analyzer(plan).analyze(randomizer.randomize(crowd)).confidence_interval(target="population")
        covered += low[1] <= 1 <= high[1]
    assert covered >= binom.ppf(FALSE_ALARM, 1000, 0.95)
    several = unprotected_plan(users=300, shape=span, coordinates=2, levels=20)
    estimate = Analyzer(several).analyze(Randomizer(several).randomize(crowd))
    for ask in (estimate.standard_error_of, lambda target: estimate.confidence_interval(target=target)):
        with refusal("impossible-combination", "target=", "'population' is", "coordinates=", "1", error=ParameterError):
            ask("population")


@pytest.mark.long
@pytest.mark.slow
def test_errors_of_a_span_hold_where_coefficients_rise_against_each_other() -> None:
    """Each user reports one of two coefficients that add up to 1: mean squared error as claimed, false alarm 1e-6."""
    span = Span([[1.0, 1.0], [0.0, 1.0]])
    plan = unprotected_plan(users=300, shape=span, levels=20, noise_probability=0.01)
    first = np.random.default_rng(0).random((300, 1))
    crowd = np.hstack([first, 1 - first]) @ span.vectors
    estimates = runs_of(plan, crowd, 1500, seed=9)
    squared = np.array([(e.mean[1] - 1.0) ** 2 for e in estimates])
    claimed = np.mean([e.standard_error[1] ** 2 for e in estimates])
    assert squared.mean() < claimed or mean_is(squared / claimed, 1.0) > FALSE_ALARM
    # what it would be if each coefficient's error were narrowed as for a plain vector
    assert mean_is(squared / claimed, 0.5) < FALSE_ALARM
