"""Bounds found privately: what is said of the users within holds, and both plans together cost what was given.

False alarms: at most 1e-6 for each test that counts misses.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.oracles.composed_pairs import delta_of_binomial_and_slots
from tests.refusals import refusal
from tests.value_distributions import SIX_LAWS, too_many_misses

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.bounds import TwoPlans, plan_bounds
from shufflesum.budget import compose
from shufflesum.cautions import UncertainBoundsWarning
from shufflesum.domains import Arrays
from shufflesum.domains.counts import CountEstimate
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

GUARANTEE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
USERS = 3000


def found_in(plans: TwoPlans, values: NDArray[np.float64], seed: int, level: float = 0.95) -> Any:
    estimate = aggregate_batches([plans.rows(values)], plans.first, source=SeededSource(seed))
    return plans.found(estimate, level=level)


def within(values: NDArray[np.float64], lower: float, upper: float) -> float:
    """The part of the users in the bins that bounds span; 0 stands for the bin of what is nearly 0."""
    return float(np.mean((values >= lower) & (values <= upper)))


def misses(plans: TwoPlans, runs: int, level: float) -> int:
    missed = 0
    for seed in range(runs):
        for number, law in enumerate(SIX_LAWS.values()):
            values = law(np.random.default_rng([seed, number]), USERS)
            (column,) = found_in(plans, values, 100 * seed + number, level).columns
            share = within(values, column.lower, column.upper)
            missed += not column.within_lower <= share <= column.within_upper
    return missed


@pytest.fixture(scope="module")
def plans() -> TwoPlans:
    return plan_bounds(users=USERS, shape=(), **GUARANTEE)


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UncertainBoundsWarning")
def test_what_is_said_of_users_within_holds_on_six_laws(plans: TwoPlans) -> None:
    assert misses(plans, 10, 0.9) < too_many_misses(60, 0.9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.UncertainBoundsWarning")
def test_what_is_said_of_users_within_holds_on_six_laws_long(plans: TwoPlans) -> None:
    assert misses(plans, 200, 0.9) < too_many_misses(1200, 0.9)


def test_intervals_for_bounds_fixed_beforehand_would_be_found_out(plans: TwoPlans) -> None:
    """The twin: taking no account of the choice, at a level far too low, misses too often."""
    missed, runs = 0, 150
    for seed in range(runs):
        values = np.random.default_rng(seed).lognormal(3, 1, USERS)
        estimate = aggregate_batches([values], plans.first, source=SeededSource(seed))
        counts = estimate.mean
        at = int(np.argmax(counts))
        from shufflesum.domains.counts import Binned

        binned = Binned(plans.first, estimate.table, USERS, plans.edges)
        _, lower, upper = binned.within(at, at + 1, 0.4)
        share = np.mean((values >= plans.edges[at]) & (values < plans.edges[at + 1]))
        missed += not lower <= share <= upper
    assert missed >= too_many_misses(runs, 0.9)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("constant", (20, 50)), ("discrete", (0, 5)), ("bimodal", (-5, 50)), ("with outliers", (100, 200))],
)
def test_bounds_are_edges_next_to_the_bulk(name: str, bounds: tuple[float, float]) -> None:
    values = SIX_LAWS[name](np.random.default_rng(1), 50_000)
    found = ss.suggest_bounds(values, **GUARANTEE, cover=0.97, source=SeededSource(1))
    assert found.bounds == bounds
    assert found.columns[0].within_lower > 0.9


def test_nothing_but_zero_is_a_bound_of_its_own() -> None:
    lower, upper = ss.suggest_bounds(np.zeros(USERS), **GUARANTEE, source=SeededSource(4)).bounds
    assert lower == 0 < upper < 1e-20


def test_what_lies_beyond_all_bounds_is_never_said_to_be_within() -> None:
    values = np.repeat([1e300, -1e300, 4.0], USERS // 3)
    with pytest.warns(UncertainBoundsWarning):
        (column,) = ss.suggest_bounds(values, **GUARANTEE, source=SeededSource(1)).columns
    assert (column.lower, column.upper) == (2, 5)
    assert column.within_upper < 0.5
    with refusal("bad-bounds"):
        ss.suggest_bounds(values[:-1000], **GUARANTEE, source=SeededSource(1))


def test_under_replace_what_is_said_of_users_within_is_exact_too() -> None:
    """Users at one number, so that both ends are easy to see: the interval holds them, and is no wider than it must."""
    plan = ss.plan(
        users=USERS, domain=ss.Categories(bins=[0, 1, 2, 3]), epsilon=1, delta=1e-5, mechanism="randomized-response"
    )
    estimate = aggregate_batches([np.repeat([0.5, 1.5], [1000, 2000])], plan, source=SeededSource(3))
    assert isinstance(estimate, CountEstimate)
    found = estimate.linear([0, 1, 1], level=0.95)
    assert found.lower <= 2 / 3 <= found.upper
    assert found.upper - found.lower == pytest.approx(2 * 1.96 * found.standard_error, rel=0.05)


def test_the_main_plan_has_the_bounds_and_nearly_all_of_epsilon() -> None:
    values = np.random.default_rng(2).normal(50, 5, (20_000, 2)) * [1, 1000]
    found = ss.suggest_bounds(values, **GUARANTEE, source=SeededSource(2))
    main = found.main
    assert main is not None
    assert isinstance(main.domain, Arrays)
    assert np.array_equal(main.domain.lower, found.bounds[0])
    assert np.array_equal(main.domain.upper, found.bounds[1])
    assert 0.79 < main.epsilon < 1  # of two kinds of discrete Laplace noise losses simply add up
    assert math.fsum([found.estimate.plan.delta, main.delta]) <= 1e-6
    main.verify()
    estimate = aggregate_batches([values], main, clip=True)
    assert np.all(np.abs(estimate.mean - values.mean(axis=0)) < 6 * estimate.standard_error + 0.02 * main.domain.width)
    assert "epsilon 1.0" in found.statement


def test_tables_give_their_names_to_the_main_plan() -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": np.random.default_rng(3).integers(18, 90, USERS), "height": np.full(USERS, 1.7)})
    found = ss.suggest_bounds(frame, **GUARANTEE, source=SeededSource(7))
    assert found.main is not None
    assert isinstance(found.main.domain, Arrays)
    assert found.main.domain.columns == ("age", "height")
    for shown in (str(found), found._repr_html_()):
        assert all(text in shown for text in ("age", "height", "95 % interval", found.statement))


def test_all_may_be_spent_on_bounds() -> None:
    found = ss.suggest_bounds(np.full(USERS, 7.0), **GUARANTEE, share=1, source=SeededSource(5))
    assert found.main is None
    assert found.estimate.plan.epsilon == 1
    assert found.bounds == (5, 10)


def test_values_lost_in_noise_are_refused_or_warned_of() -> None:
    with refusal("nothing-but-noise"):
        ss.suggest_bounds(np.arange(50.0), **GUARANTEE, source=SeededSource(1))
    with pytest.warns(UncertainBoundsWarning):
        ss.suggest_bounds(np.random.default_rng(1).standard_cauchy(1000), **GUARANTEE, source=SeededSource(3))


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ({"share": 0}, "out-of-range"),
        ({"share": 1.5}, "out-of-range"),
        ({"cover": 0}, "out-of-range"),
        ({"cover": 2}, "out-of-range"),
        ({"bounds": (0, 1)}, "conflicting-arguments"),
        ({"bins": [1, 0]}, "bad-bounds"),
    ],
)
def test_what_makes_no_sense_is_refused(choices: dict[str, Any], problem: str) -> None:
    with refusal(problem):
        ss.suggest_bounds(np.ones(USERS), **GUARANTEE, **choices)


def test_missing_values_are_refused() -> None:
    with refusal("missing-value"):
        ss.suggest_bounds(np.array([1.0, np.nan] * USERS), **GUARANTEE)


def test_an_estimate_of_another_plan_is_refused(plans: TwoPlans) -> None:
    other = ss.aggregate(np.ones(USERS), domain=plans.first.domain, epsilon=1, delta=1e-6)
    with refusal("plan-mismatch"):
        plans.found(other)


def test_two_plans_together_by_an_oracle_that_shares_no_code() -> None:
    """One report in slots and one noisy count, both laws enumerated: the composition lies just above their product."""
    slots = Plan(ss.Categories(5), ss.NoisySlots(1, 0.25), ss.Guarantee(1.0, 0.5, 400))
    count = Plan(Arrays((), (0, 1)), ss.NoisyCounts(1, (1,), (0.25,), 1), ss.Guarantee(1.0, 0.5, 300))
    composed = compose([slots, count])
    for epsilon in (0.1, 0.5, 1.0):
        exact = delta_of_binomial_and_slots(trials=300, p=0.25, slots=400, chance=0.25, cells=5, epsilon=epsilon)
        assert exact <= composed.delta(epsilon) <= 1.02 * exact + 1e-9
        # the twin: either alone is far below
        assert slots.privacy.delta(epsilon).upper < 0.9 * exact
        assert count.privacy.delta(epsilon).upper < 0.9 * exact


def test_what_is_not_certified_is_not_composed() -> None:
    paper = ss.plan(
        users=100_000,
        shape=1,
        epsilon=1,
        delta=1e-6,
        accountant="paper",
        mechanism=ss.RandomizedResponse.Options(sampling="uniform"),
    )
    with refusal("not-certified"):
        compose([paper])
    # bounds and main plan then add up, which is always right
    plans = plan_bounds(users=100_000, shape=(), **GUARANTEE, accountant="paper", mechanism="randomized-response")
    assert plans.main is not None
    assert plans.main.epsilon + plans.first.epsilon <= 1


def test_subsets_that_overlap_are_composed_too() -> None:
    plan = ss.plan(
        users=20_000,
        shape=4,
        epsilon=1,
        delta=1e-5,
        mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=1, sampling="uniform"),
    )
    assert plan.privacy.delta(1.0).upper <= compose([plan]).delta(1.0) <= 2 * plan.delta
