from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm
from tests.estimate.decoded import Sums, group_estimate
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, mean_is

from shufflesum.domains import Arrays, GroupBy, Span, Symmetric
from shufflesum.domains.group_by.estimate import fieller
from shufflesum.errors import ParameterError

Floats = Any


def test_sizes_sums_and_means_are_in_the_users_units() -> None:
    domain = GroupBy(["a", "b"], Arrays(2, ([10, 0], [30, 5])))
    sums = Sums(np.array([50.0, 100.0]), np.array([[10.0, 25.0], [50.0, 100.0]]), 4.0, 9.0, rounding=0.25)
    estimate = group_estimate(domain, sums)
    assert estimate.groups == estimate.names == ("a", "b")
    assert estimate.counts.tolist() == [50, 100]
    np.testing.assert_allclose(estimate.mean, [[14.0, 2.5], [20.0, 5.0]])
    np.testing.assert_allclose(estimate.sum, [[700, 125], [2000, 500]])
    np.testing.assert_allclose(estimate.count_standard_error, [2, 2])
    assert estimate.too_few.tolist() == [False, False]
    # sums above the lower bound have 400 x 9 of noise and 400/4 of rounding for each of 56 users, those of all users
    # the noise of the size, times 10, as well; 56 is three standard errors above the size
    np.testing.assert_allclose(estimate.sum_standard_error[0, 0], np.sqrt(400 * 9 + 56 * 100 + 100 * 4))
    np.testing.assert_allclose(estimate.standard_error[0, 0], np.sqrt(400 * 9 + 56 * 100 + 4**2 * 4) / 50)
    np.testing.assert_allclose(estimate.count_interval(0.9, simultaneous=True)[0], [50, 100] - 2 * norm.isf(0.025))


def test_groups_of_single_numbers_have_one_mean_each() -> None:
    estimate = group_estimate(
        GroupBy(3, Arrays((), (0, 10))), Sums(np.array([50.0, 20, 30]), np.full((3, 1), 10.0), 1.0, 1.0)
    )
    for result in (estimate.mean, estimate.sum, estimate.standard_error, *estimate.confidence_interval()):
        assert result.shape == (3,)
    np.testing.assert_allclose(estimate.mean, [2, 5, 100 / 30])


def test_fieller_holds_just_the_ratios_that_the_sums_do_not_speak_against() -> None:
    """Each ratio of a fine grid, judged by the inequality itself."""
    rng = np.random.default_rng(1)
    u = np.linspace(-3, 4, 7001)
    for _ in range(50):
        total, size, variance, noise = rng.uniform([0, 20, 1, 1], [100, 200, 400, 400])
        scale = np.asarray(1e-9)  # so small that the quantile is the normal one
        low, high = fieller(np.asarray(total), np.asarray(size), np.asarray(variance), noise, scale, 0.025)
        holds = (total - u * size) ** 2 <= norm.isf(0.025) ** 2 * (variance + u**2 * noise)
        inside = (low <= u) & (u <= high)
        if size**2 > norm.isf(0.025) ** 2 * noise:
            np.testing.assert_array_equal(inside, holds)
        else:
            assert np.isneginf(low)
            assert np.isposinf(high)


def test_a_group_that_may_be_empty_has_no_mean_and_says_so() -> None:
    sums = Sums(np.array([25.0, 26.0, -40.0]), np.full((3, 1), 10.0), 100.0, 1.0)
    estimate = group_estimate(GroupBy(["a", "b", "c"], ()), sums)
    # 2.576 standard errors of 10 at 99 %
    assert estimate.too_few.tolist() == [True, False, True]
    for result in (estimate.mean, estimate.standard_error):
        assert np.isnan(result).tolist() == [True, False, True]
    low, high = estimate.confidence_interval(0.8)
    assert np.isinf(low).tolist() == np.isinf(high).tolist() == [True, False, True]
    assert np.isinf(estimate.confidence_interval(0.999)).all()
    assert np.isfinite(estimate.sum).all()


def covered(
    size: int, size_variance: float, runs: int, *, ignored: bool = False, target: Any = "users", level: float = 0.95
) -> int:
    """How many intervals hold the mean of a group of so many users, of values rounded to 0 or 1 and noise added."""
    rng = np.random.default_rng(size)
    truth, variance = 0.8, 30.0
    sizes = size + rng.normal(0, np.sqrt(size_variance), (runs, 1))
    ones = rng.binomial(size, truth, (runs, 1)) if target == "population" else np.full((runs, 1), truth * size)
    rounded = ones if target == "population" else rng.binomial(size, truth, (runs, 1))
    totals = rounded + rng.normal(0, np.sqrt(variance), (runs, 1))
    told = 1e-12 if ignored else size_variance
    # all runs at once, as so many groups
    sums = Sums(sizes[:, 0], totals, told, variance, rounding=0.25)
    estimate = group_estimate(GroupBy(runs, Arrays((), (-1, 1))), sums)
    low, high = estimate.confidence_interval(level, target=target)
    return int(((low <= 2 * truth - 1) & (2 * truth - 1 <= high)).sum())


@pytest.mark.parametrize("size", [30, 100, 400, 10_000])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_intervals_of_means_hold_where_the_size_is_noisy(size: int, level: float) -> None:
    """20,000 groups: too few hits once in 10^6; intervals that take the size for exact miss far too often."""
    least = binom.ppf(FALSE_ALARM, 20_000, level)
    assert covered(size, 150.0, 20_000, level=level) >= least
    if size <= 100 and level > 0.9:
        assert covered(size, 150.0, 20_000, level=level, ignored=True) < least


@pytest.mark.parametrize("size", [100, 1000])
def test_intervals_for_a_population_hold(size: int) -> None:
    """20,000 groups drawn from a population: too few hits once in 10^6; intervals of their own users are too short."""
    least = binom.ppf(FALSE_ALARM, 20_000, 0.95)
    assert covered(size, 150.0, 20_000, target="population") >= least


def test_standard_errors_are_those_of_the_means() -> None:
    """Squared errors of 20,000 means against their standard errors; false alarm 1e-6."""
    rng = np.random.default_rng(3)
    sizes = 500 + rng.normal(0, 10, 20_000)
    totals = 400 + rng.normal(0, 6, (20_000, 1))
    estimate = group_estimate(GroupBy(20_000, ()), Sums(sizes, totals, 100.0, 36.0))
    ratio = (estimate.mean - 0.8) ** 2 / estimate.standard_error**2
    assert mean_is(ratio, 1.0) > FALSE_ALARM
    assert mean_is(ratio, 1.4) < FALSE_ALARM


def test_simultaneous_intervals_divide_the_tail_by_all_entries_of_all_groups() -> None:
    sums = Sums(np.array([500.0, 400.0]), np.full((2, 3), 100.0), 1e-12, 25.0)
    estimate = group_estimate(GroupBy(2, 3), sums)
    together = estimate.confidence_interval(0.94, simultaneous=True)
    alone = estimate.confidence_interval(0.99)
    np.testing.assert_allclose(together, alone)


def test_groups_of_structured_arrays_come_back_whole() -> None:
    symmetric = group_estimate(
        GroupBy(2, Arrays(Symmetric(2), (-1, 1))), Sums(np.full(2, 100.0), np.tile([50.0, 75, 100], (2, 1)), 1.0, 1.0)
    )
    np.testing.assert_allclose(symmetric.mean[1], [[0, 0.5], [0.5, 1]])
    assert symmetric.confidence_interval()[0].shape == (2, 2, 2)
    span = group_estimate(
        GroupBy(2, Arrays(Span([[1.0, 1.0], [0.0, 1.0]]), (0, 1))),
        Sums(np.full(2, 100.0), np.tile([50.0, 25.0], (2, 1)), 0.0, 4.0),
    )
    np.testing.assert_allclose(span.mean[0], [0.5, 0.75])
    np.testing.assert_allclose(span.standard_error[0], np.sqrt([4, 8]) / 100)
    with refusal("impossible-combination", "population", error=ParameterError):
        span.confidence_interval(target="population")
    with refusal("unknown-choice", error=ParameterError):
        span.confidence_interval(target="all")  # type: ignore[arg-type]


def coverage_by_few_dummy_reports(trials: int, asked: float) -> float:
    """All of 20 users in a group at the upper bound, as many dummy reports of either kind: every outcome enumerated."""
    noise, chances = np.arange(trials + 1) - trials / 2, binom.pmf(np.arange(trials + 1), trials, 0.5)
    sums, sizes = np.meshgrid(20 + noise, 20 + noise)
    variance = np.full_like(sums, trials / 4)
    lower, upper = fieller(sums, sizes, variance, trials / 4, np.ones_like(sums), (1 - asked) / 2)
    return float(np.outer(chances, chances)[(lower <= 1) & (upper >= 1)].sum())


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
def test_half_a_report_is_for_continuity(level: float) -> None:
    assert all(coverage_by_few_dummy_reports(trials, level) >= level for trials in (4, 12, 43, 110))


def test_means_of_groups_at_a_lower_level_would_be_found_out() -> None:
    assert min(coverage_by_few_dummy_reports(trials, 0.4) for trials in (4, 12, 43, 110)) < 0.5


def test_sums_without_noise_leave_that_of_the_size() -> None:
    """T = 40 exactly, C = 100 +- 2: all u with (40 - 100 u)^2 <= z^2 4 u^2."""
    z = norm.isf(0.025)
    low, high = fieller(np.asarray(40.0), np.asarray(100.0), np.asarray(0.0), 4.0, np.asarray(1.0), 0.025)
    np.testing.assert_allclose([low, high], [40 / (100 + 2 * z), 40 / (100 - 2 * z)])
