"""Means and variances from values and their squares: intervals hold as often as they say, whatever the law.

False alarms: at most 1e-6 for each test that counts misses.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import lacking, refusal
from tests.value_distributions import SIX_LAWS, too_many_misses

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains import Arrays
from shufflesum.moments import Moments, Squares
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

USERS = 1000
BOUNDS = (-50.0, 250.0)
SQUARES = Squares(Arrays((), BOUNDS))


def plan_of(**choices: object) -> Plan:
    box = SQUARES.domain
    return ss.plan(users=USERS, shape=2, bounds=(box.lower, box.upper), epsilon=2, delta=1e-5, **choices)  # type: ignore[arg-type]


def missed(plan: Plan, runs: int, level: float, asked: float | None = None, target: str = "users") -> tuple[int, int]:
    count = 0
    for seed in range(runs):
        for number, law in enumerate(SIX_LAWS.values()):
            values = np.clip(law(np.random.default_rng([seed, number]), USERS), *BOUNDS)
            rows = SQUARES.rows(values)
            found = Moments.of(SQUARES, aggregate_batches([rows], plan, source=SeededSource(100 * seed + number)))
            lower, upper = found.variance_interval(asked or level, target=target)  # type: ignore[arg-type]
            count += not lower <= values.var() <= upper
    return count, runs * len(SIX_LAWS)


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
def test_intervals_of_variances_hold_on_six_laws(mechanism: str) -> None:
    count, trials = missed(plan_of(mechanism=mechanism), 15, 0.9)
    assert count < too_many_misses(trials, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
def test_intervals_of_variances_hold_on_six_laws_long(mechanism: str) -> None:
    count, trials = missed(plan_of(mechanism=mechanism), 150, 0.9)
    assert count < too_many_misses(trials, 0.9)


@pytest.mark.long
def test_intervals_that_are_too_short_would_be_found_out() -> None:
    count, trials = missed(plan_of(mechanism="noisy-counts"), 25, 0.9, asked=0.3)
    assert count >= too_many_misses(trials, 0.9)


def test_the_variance_of_a_population_is_held_too() -> None:
    plan, count, runs = plan_of(mechanism="noisy-counts"), 0, 60
    for seed in range(runs):
        values = np.random.default_rng(seed).normal(100, 20, USERS)
        found = Moments.of(SQUARES, aggregate_batches([SQUARES.rows(values)], plan, source=SeededSource(seed)))
        lower, upper = found.variance_interval(0.9, target="population")
        count += not lower <= 400 <= upper
    assert count < too_many_misses(runs, 0.9)


def test_mean_variance_and_deviation_of_several_columns() -> None:
    values = np.random.default_rng(1).normal([10, -2], [2, 0.5], (50_000, 2))
    found = ss.moments(values, epsilon=1, delta=1e-6, bounds=([0, -5], [20, 1]), clip=True)
    assert found.users == 50_000
    assert found.mean == pytest.approx([10, -2], abs=0.05)
    assert found.variance == pytest.approx([4, 0.25], rel=0.1)
    assert found.standard_deviation == pytest.approx(np.sqrt(found.variance))
    for (lower, upper), middle in (
        (found.mean_interval(), found.mean),
        (found.variance_interval(), found.variance),
        (found.standard_deviation_interval(), found.standard_deviation),
    ):
        assert lower.shape == (2,)
        assert np.all((lower < middle) & (middle < upper))
    wider = found.variance_interval(0.999)
    assert np.all(wider[0] < found.variance_interval()[0])


def test_the_tidy_table_of_moments_has_each_figure_of_each_entry() -> None:
    values = np.random.default_rng(1).normal([10, -2], [2, 0.5], (20_000, 2))
    found = ss.moments(values, epsilon=1, delta=1e-6, bounds=([0, -5], [20, 1]), clip=True)
    frame = found.to_frame(0.9, library="pandas").set_index("name")
    assert list(frame.index) == [f"{name} of {i}" for name in ("mean", "variance", "standard deviation") for i in "01"]
    assert frame["value"].tolist() == [*found.mean, *found.variance, *found.standard_deviation]
    assert frame["upper"].tolist()[2:4] == found.variance_interval(0.9)[1].tolist()
    # an interval at 90 % reaches at least 1.64 standard errors, and not as many as 4
    reach = (frame["upper"] - frame["value"]) / frame["std_error"]
    assert reach.between(1.6, 4).all()
    single = ss.moments(values[:, 0], epsilon=1, delta=1e-6, bounds=(0, 20), clip=True)
    assert not lacking(str(single), "Moments", "20,000 users", "variance", "standard deviation", "±", "nearest")


def test_a_value_that_never_varies_has_no_error_of_its_deviation() -> None:
    squares = Squares(Arrays(1, (0, 2)))
    plan = ss.plan(users=1000, shape=2, bounds=([-1, 0], [1, 1]), epsilon=1, delta=1e-5)
    found = Moments.of(squares, aggregate_batches([squares.rows(np.ones((1000, 1)))], plan, source=SeededSource(3)))
    table = found.to_table()
    assert (table.value[2] == 0) == bool(np.isnan(table.std_error[2]))


def test_a_table_names_its_squares() -> None:
    import pandas as pd

    found = ss.moments(pd.DataFrame({"age": [20.0, 30.0] * 500}), epsilon=2, delta=1e-4, bounds=(0, 100))
    domain = found.estimate.plan.domain
    assert isinstance(domain, Arrays)
    assert domain.columns == ("age", "age squared")


def test_what_is_out_of_bounds_or_missing_is_refused_with_its_row() -> None:
    values = np.full(USERS, 10.0)
    values[7] = 300
    with refusal("out-of-bounds", "row 7"):
        ss.moments(values, epsilon=1, delta=1e-5, bounds=BOUNDS)
    values[7] = np.nan
    with refusal("missing-value", "row 7"):
        ss.moments(values, epsilon=1, delta=1e-5, bounds=BOUNDS)
    assert ss.moments(values, epsilon=1, delta=1e-5, bounds=BOUNDS, missing="midpoint").users == USERS


def test_an_estimate_of_something_else_is_refused() -> None:
    with refusal("plan-mismatch"):
        Moments.of(SQUARES, ss.aggregate(np.zeros((100, 2)), epsilon=5, delta=1e-3))
    with refusal("impossible-combination"):
        Squares(Arrays(ss.Symmetric(3), (0, 1)))
