"""Estimates of vectors with a bounded norm: their shape, their error bars, linear functions, the norm of the error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.mechanisms.mechanism import Target
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource, no_guarantee

USERS = 400
NAMED = {"weight": (5, 3), "bias": (3,)}


def plan_of(domain: ss.L2Ball, users: int = USERS, bits: int = 1, amplitude: float = 0.5) -> Plan:
    return Plan(domain.seeded(bytes(range(16))), ss.OneBit(bits, amplitude, 2.5), no_guarantee(users))


def estimate_of(plan: Plan, rows: Any, seed: int) -> L2BallEstimate:
    estimate = aggregate_batches([rows], plan, source=SeededSource(seed))
    assert isinstance(estimate, L2BallEstimate)
    return estimate


def some_rows(dimension: int, users: int = USERS) -> NDArray[np.float64]:
    rows = np.random.default_rng(1).normal(size=(users, dimension)) + 1.0
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_a_mean_has_the_users_shape_and_lies_near_the_truth() -> None:
    rows = 7.0 * some_rows(20).reshape(-1, 4, 5)
    estimate = estimate_of(plan_of(ss.L2Ball((4, 5), clipping_norm=7.0), bits=50), rows, 1)
    assert estimate.mean.shape == estimate.standard_error.shape == estimate.report_counts.shape == (4, 5)
    assert (np.abs(estimate.mean - rows.mean(axis=0)) < 6 * estimate.standard_error).all()
    np.testing.assert_allclose(estimate.sum, USERS * estimate.mean)
    np.testing.assert_array_equal(estimate.layers, estimate.mean)


def test_layers_come_back_as_they_were_given_with_the_centre_added() -> None:
    center = {"weight": np.full((5, 3), 100.0), "bias": np.full(3, -50.0)}
    ball = ss.L2Ball(NAMED, clipping_norm=1.0, center=center)
    updates = [ball.unflatten(row + ball.flatten(center)) for row in some_rows(18)]
    estimate = estimate_of(plan_of(ball, bits=50), ball.rows(updates), 1)
    assert estimate.mean.shape == (18,)
    layers = estimate.layers
    assert list(layers) == ["weight", "bias"]
    assert layers["weight"].shape == (5, 3)
    np.testing.assert_array_equal(np.concatenate([layers["weight"].reshape(-1), layers["bias"]]), estimate.mean)
    truth = np.mean([update["bias"] for update in updates], axis=0)
    assert (np.abs(layers["bias"] - truth) < 6 * estimate.standard_error[15:]).all()


def covered(hits: int, trials: int, level: float) -> bool:
    """Whether so few hits are no surprise where each has this chance or more."""
    return float(binom.cdf(hits, trials, level)) > FALSE_ALARM


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_and_norms_hold_as_often_as_they_say(level: float) -> None:
    """200 batches; intervals of four entries, a linear function, and the norm; halved ones are caught."""
    plan, rows = plan_of(ss.L2Ball(40, clipping_norm=1.0)), some_rows(40)
    truth, weights = rows.mean(axis=0), np.linspace(-1, 2, 40)
    hits = {"entries": 0, "halved": 0, "all": 0, "norm": 0, "linear": 0}
    batches = 200
    for seed in range(batches):
        estimate = estimate_of(plan, rows, seed)
        low, high = estimate.confidence_interval(level)
        half = (high - low) / 4
        hits["entries"] += int(np.sum((low <= truth) & (truth <= high)))
        hits["halved"] += int(np.sum(np.abs(estimate.mean - truth) <= half))
        low, high = estimate.confidence_interval(level, simultaneous=True)
        hits["all"] += bool(((low <= truth) & (truth <= high)).all())
        error = float(np.linalg.norm(estimate.mean - truth))
        hits["norm"] += error <= estimate.error_norm(level)
        assert error < 2 * estimate.error_norm(level)
        found = estimate.linear(weights)
        value, deviation = found.value, found.standard_error
        assert value == pytest.approx(float(weights @ estimate.mean))
        hits["linear"] += abs(value - float(weights @ truth)) <= 1.96 * deviation
    assert covered(hits["entries"], 40 * batches, level)
    assert not covered(hits["halved"], 40 * batches, level)
    assert covered(hits["all"], batches, level)
    assert covered(hits["norm"], batches, level)
    assert covered(hits["linear"], batches, 0.95)


def test_the_bound_on_the_norm_is_not_much_too_wide() -> None:
    plan, rows = plan_of(ss.L2Ball(4000, clipping_norm=3.0)), 3 * some_rows(4000)
    estimate = estimate_of(plan, rows, 1)
    error = float(np.linalg.norm(estimate.mean - rows.mean(axis=0)))
    assert error <= estimate.error_norm(0.999) < 1.3 * error


@pytest.mark.long
def test_a_population_has_wider_error_bars_that_cover_users_drawn_from_it() -> None:
    """All users at one end of an axis or the other: the mean of 400 coins is off by 1/20."""
    plan, misses, batches = plan_of(ss.L2Ball(3, clipping_norm=1.0), amplitude=1.0, bits=200), 0, 100
    targets: tuple[Target, ...] = ("users", "population")
    for seed in range(batches):
        rows = np.zeros((USERS, 3))
        rows[:, 0] = np.random.default_rng(seed).choice([-1.0, 1.0], USERS)
        estimate = estimate_of(plan, rows, seed)
        users, population = (estimate.standard_error_of(target)[0] for target in targets)
        assert population > 2 * users
        low, high = estimate.confidence_interval(target="population")
        misses += not low[0] <= 0.0 <= high[0]
    assert covered(batches - misses, batches, 0.95)


def test_linear_functions_take_layers_and_refuse_other_shapes() -> None:
    estimate = estimate_of(plan_of(ss.L2Ball(NAMED, clipping_norm=1.0)), some_rows(18), 1)
    layered = {"weight": np.ones((5, 3)), "bias": np.zeros(3)}
    assert estimate.linear(layered) == estimate.linear(np.repeat([1.0, 0.0], [15, 3]))
    with refusal("wrong-shape"):
        estimate_of(plan_of(ss.L2Ball(18, clipping_norm=1.0)), some_rows(18), 1).linear(np.ones(17))
    with refusal("layers-mismatch"):
        estimate.linear({"bias": np.zeros(3), "weight": np.ones((5, 3))})
    with refusal("out-of-range"):
        estimate.error_norm(1.0)
    with refusal("unknown-choice"):
        estimate.standard_error_of("somebody")  # type: ignore[arg-type]
