from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import shufflesum as ss
from shufflesum.domain import Domain
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import UninformativePlanWarning, plan_for_error
from shufflesum.testing import SeededSource

BASE: dict[str, Any] = {"users": 3000, "shape": 4, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0.0; it must be positive"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"delta": 0.0}, "delta is 0.0; it must lie strictly between 0 and 1"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"delta": -1e-6}, "delta is -1e-06"),
        ({"delta": math.nan}, "delta is nan"),
        ({"users": 0}, "users is 0"),
        ({"users": 2.5}, "users is 2.5; it must be a whole number"),
        ({"reports": 0}, "reports is 0; it must lie between 1 and 4"),
        ({"reports": 5}, "reports is 5; it must lie between 1 and 4"),
        ({"reports": 1.5}, "reports is 1.5; it must be a whole number"),
        ({"reports": 3, "max_reports": 2}, "reports is 3, above max_reports = 2"),
        ({"reports": "3", "max_reports": 2}, "reports is '3'; it must be a whole number"),
        ({"max_reports": 0}, "max_reports is 0"),
        ({"levels": 0}, "levels is 0; it must lie between 1 and 999"),
        ({"levels": 1000}, "levels is 1000; it must lie between 1 and 999"),
        ({"levels": 0, "accountant": "paper"}, "levels is 0; it must lie between 1 and 32766"),
        ({"levels": 32767, "accountant": "paper"}, "levels is 32767; it must lie between 1 and 32766"),
        ({"levels": 2.0}, "levels is 2.0; it must be a whole number"),
        ({"sampling": "poisson"}, "sampling is 'poisson'; it must be one of stratified, uniform"),
        ({"accountant": "none"}, "accountant is 'none'; it must be one of exact, paper"),
        ({"honest_fraction": 0.0}, "honest_fraction is 0.0"),
        ({"honest_fraction": 1.01}, "honest_fraction is 1.01"),
        ({"rounds": 0}, "rounds is 0"),
        ({"spread": -0.1}, "spread is -0.1"),
        ({"spread": math.nan}, "spread is nan"),
        ({"spread": "small"}, "spread is 'small'; it must be a number"),
        ({"bounds": (1.0, 1.0)}, "the lower bound must be below the upper one"),
        ({"bounds": (2.0, 1.0)}, "the lower bound must be below the upper one"),
        ({"bounds": (0.0, math.inf)}, "both must be finite"),
        ({"bounds": (0.0, [1, 2, 3])}, "bounds"),
        ({"bounds": 3.0}, "bounds must be a pair"),
        ({"shape": 0}, "every size must be at least 1"),
        ({"shape": 2.5}, "shape 2.5 is not allowed"),
        ({"shape": 2**31}, "reports can number at most 2147483647"),
        ({"shape": 2**31 - 1}, "too large for the report format"),
        ({"shape": 10**9, "levels": 4}, "levels is 4; it must lie between 1 and"),
        ({"rounds": 2, "accountant": "paper"}, "the published formula covers one round"),
        ({"reports": 2, "sampling": "stratified", "accountant": "paper"}, "goes with sampling='uniform'"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ss.plan(**BASE | change)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"reports": 1},
        {"max_reports": 2},
        {"levels": 1},
        {"levels": 7, "reports": 3},
        {"sampling": "uniform", "reports": 2},
        {"sampling": "uniform"},
        {"honest_fraction": 0.5},
        {"rounds": 3},
        {"epsilon": 0.3},
        {"epsilon": 4.0, "delta": 0.01},
        {"shape": ss.Symmetric(3)},
        {"shape": ()},
        {"users": 10**6, "accountant": "paper", "delta": 1e-3},
        {"users": 10**8, "accountant": "paper", "reports": 2, "epsilon": 2.0},
    ],
    ids=str,
)
def test_every_plan_is_certified_at_the_noise_it_uses(change: dict[str, Any]) -> None:
    asked = BASE | change
    plan = ss.plan(**asked)
    plan.verify()
    assert ss.Plan.from_json(plan.to_json()) == plan
    assert 0 < plan.noise_probability < 1
    assert (plan.noise_probability * 2**53).is_integer()
    for name in ("users", "epsilon", "delta", "reports", "levels", "honest_fraction", "rounds"):
        if name in asked:
            assert getattr(plan, name) == asked[name]
    assert plan.reports <= asked.get("max_reports", plan.dimension)


def test_a_planned_noise_probability_is_hardly_more_than_needed() -> None:
    plan = ss.plan(users=50_000, shape=100, epsilon=0.95, delta=1e-6, reports=1, levels=3)
    privacy = plan.privacy
    assert privacy.delta_upper(plan.noise_probability, 0.95) <= 1e-6
    assert privacy.delta_upper(plan.noise_probability * 0.999, 0.95) > 1e-6


def test_many_rounds_leave_fewer_reports_to_choose_from() -> None:
    assert ss.plan(users=10**5, shape=1000, epsilon=1.0, delta=1e-8, rounds=2000).reports <= 500


def test_numbers_of_numpy_plan_the_same() -> None:
    plain = ss.plan(users=3000, shape=4, epsilon=1, delta=1e-6, reports=2, levels=3, rounds=1)
    numpy = ss.plan(
        users=np.int64(3000),  # type: ignore[arg-type]
        shape=np.int64(4),  # type: ignore[arg-type]
        epsilon=np.float64(1),
        delta=np.float64(1e-6),
        reports=np.int32(2),  # type: ignore[arg-type]
        levels=np.uint8(3),  # type: ignore[arg-type]
        rounds=np.int64(1),  # type: ignore[arg-type]
    )
    assert numpy == plain
    assert numpy.to_json() == plain.to_json()


def test_the_planners_choice_is_no_worse_than_any_small_choice_by_hand() -> None:
    chosen = ss.plan(**BASE).expected_error.total
    for reports in (1, 2, 4):
        for levels in (1, 2, 3, 5, 8):
            by_hand = ss.plan(**BASE, reports=reports, levels=levels)
            assert chosen <= by_hand.expected_error.total * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"), [("users", [2000, 2100, 10_000, 50_000]), ("epsilon", [0.5, 0.55, 2.0, 4.0])]
)
def test_more_users_and_more_epsilon_are_never_worse(name: str, values: list[float]) -> None:
    errors = [ss.plan(**BASE | {name: value, "shape": 10}).expected_error.total for value in values]
    for before, after in pairwise(errors):
        assert after <= before


def test_a_delta_that_cannot_be_certified_is_refused() -> None:
    with pytest.raises(PrivacyError, match="cannot certify a delta below 1e-15; raise delta"):
        ss.plan(users=1, shape=4, epsilon=0.1, delta=1e-30)


def test_published_noise_above_one_is_refused_with_the_knobs_to_turn() -> None:
    with pytest.raises(PrivacyError, match=r"the published noise probability is 1\.35.*raise users"):
        ss.plan(users=50_000, shape=100, epsilon=0.95, delta=1e-6, levels=3, accountant="paper")


def test_the_published_plan_has_the_papers_noise() -> None:
    plan = ss.plan(users=50_000, shape=100, epsilon=0.95, delta=0.5, levels=3, accountant="paper")
    assert plan.noise_probability == pytest.approx(0.17053, abs=1e-5)
    assert (plan.reports, plan.sampling) == (1, "stratified")


def test_a_plan_worse_than_guessing_is_warned_about() -> None:
    with pytest.warns(UninformativePlanWarning, match="worse than guessing"):
        ss.plan(users=30, shape=10, epsilon=0.5, delta=1e-6, reports=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("users", [3_000, 4_000, 6_000, 10_000, 20_000, 50_000, 200_000]),
        ("epsilon", [0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 3.0]),
    ],
)
def test_composed_plans_never_grow_worse_by_more_than_half_a_percent(name: str, values: list[float]) -> None:
    base = {"users": 10_000, "epsilon": 1.0, "shape": 50, "delta": 1e-6}
    errors = [ss.plan(**base | {name: value}).expected_error.total for value in values]  # type: ignore[arg-type]
    assert all(after <= 1.005 * before for before, after in pairwise(errors))


def test_a_known_spread_makes_for_a_better_plan() -> None:
    target: dict[str, Any] = {"users": 50_000, "shape": 100, "epsilon": 1.0, "delta": 1e-6, "max_reports": 1}
    narrow, cautious = ss.plan(**target, spread=0.1), ss.plan(**target)
    assert narrow.error_at_spread(0.1).total < 0.9 * cautious.error_at_spread(0.1).total
    assert cautious.expected_error.total < narrow.expected_error.total
    assert ss.plan(**target, spread=0.5).error_at_spread(0.5).total == pytest.approx(
        cautious.expected_error.total, rel=1e-3
    )
    scaled = ss.plan(**target, spread=1.0, bounds=(-3.0, 7.0))
    assert scaled.levels == narrow.levels
    assert scaled.error_at_spread(1.0).total == pytest.approx(100 * narrow.error_at_spread(0.1).total)


def test_the_error_at_a_spread_is_an_upper_bound_of_what_is_seen() -> None:
    """Users who differ little: the mean squared error of 40 runs, against twice what its own noise allows."""
    plan = ss.plan(users=2000, shape=20, epsilon=1.0, delta=1e-6, reports=2, spread=0.05)
    rows = np.random.default_rng(1).normal(0.4, 0.05, (2000, 20)).clip(0, 1)
    truth, spread = rows.mean(axis=0), float(rows.std(axis=0).max())
    errors = []
    for seed in range(40):
        reports = ss.Randomizer(plan, source=SeededSource(seed)).randomize(rows)
        errors.append(float(np.sum((ss.Analyzer(plan).analyze(reports).mean - truth) ** 2)))
    predicted = plan.error_at_spread(spread).total
    assert 0.3 * predicted < np.mean(errors) < 1.1 * predicted
    assert predicted < 0.9 * plan.expected_error.total


def test_a_target_error_at_a_spread_needs_fewer_users() -> None:
    target: dict[str, Any] = {"shape": 10, "epsilon": 1.0, "delta": 1e-6, "reports": 1, "levels": 3}
    cautious, narrow = plan_for_error(1e-2, **target), plan_for_error(1e-2, **target, spread=0.05)
    assert narrow.users < 0.8 * cautious.users
    assert narrow.error_at_spread(0.05).total <= 1e-2


def test_what_a_spread_costs_in_sampling_does_not_depend_on_the_bounds() -> None:
    plan = ss.plan(users=5000, shape=10, epsilon=1.0, delta=1e-6, reports=1, levels=20)
    unequal = replace(plan, domain=Domain.of(10, (0.0, np.linspace(1, 3, 10))))
    assert unequal.error_at_spread(0.01).sampling == pytest.approx(plan.error_at_spread(0.01).sampling)
    assert unequal.error_at_spread(0.01).noise > plan.error_at_spread(0.01).noise
    assert unequal.error_at_spread(9.0).total <= unequal.expected_error.total * (1 + 1e-12)
