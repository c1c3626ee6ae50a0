"""Plans for vectors with a bounded norm: certified, near a trusted curator's error, and honest about boxes."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cautions import ArraysAreBetterWarning
from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.mechanisms.one_bit.mechanism import clipping_bias
from shufflesum.planning import alternatives, plan_for_error
from shufflesum.plans import Plan
from shufflesum.privacy.one_bit import OneBitAccountant
from shufflesum.statement import card


def planned(users: int, shape: Any, **choices: Any) -> Plan:
    domain = shape if isinstance(shape, ss.L2Ball) else ss.L2Ball(shape, clipping_norm=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ss.plan(domain=domain, **{"users": users, "epsilon": 1.0, "delta": 1e-6, **choices})


def bits(plan: Plan) -> ss.OneBit:
    assert isinstance(plan.mechanism, ss.OneBit)
    return plan.mechanism


@pytest.mark.long
@pytest.mark.parametrize(
    ("users", "dimension", "epsilon", "rounds", "ratio"),
    [
        (1000, 8192, 1.0, 1, 1.05),
        pytest.param(10_000, 16_384, 1.0, 1, 1.15, marks=pytest.mark.slow),
        pytest.param(6000, 7850, 2.0, 30, 1.04, marks=pytest.mark.slow),
    ],
)
def test_the_error_is_close_to_a_trusted_curators(
    users: int, dimension: int, epsilon: float, rounds: int, ratio: float
) -> None:
    plan = planned(users, dimension, epsilon=epsilon, rounds=rounds)
    assert 1.0 < plan.expected_error.total / plan.curator_error < ratio
    assert bits(plan).bits == 1
    plan.verify()
    assert Plan.from_json(plan.to_json()) == plan


def test_the_amplitude_is_nearly_the_largest_that_is_certified() -> None:
    plan = planned(1000, 1000, honest_fraction=0.8, rounds=3)
    mechanism = bits(plan)

    def certified(amplitude: float) -> float:
        return OneBitAccountant(800, 1024, amplitude, mechanism.tau, 3, mechanism.bits).delta_upper(1.0)

    assert certified(mechanism.amplitude) <= 1e-6 < certified(mechanism.amplitude * 1.001)
    more = replace(mechanism, amplitude=(mechanism.numerator + 2**23) / 2**31)
    with refusal("claim-not-confirmed", error=PlanError):
        Plan(plan.domain, more, plan.guarantee).verify()


@pytest.mark.long
def test_tau_is_where_noise_and_bias_are_least_together() -> None:
    """What privacy does not ask for, tau^2/(n r), and the bias; coordinates never reach beyond sqrt(D)."""
    plan = planned(3000, 4000)

    def cost(tau: float) -> float:
        return tau**2 / (3000 * bits(plan).bits) + clipping_bias(tau)

    tau = bits(plan).tau
    assert cost(tau) < min(cost(0.95 * tau), cost(1.05 * tau))
    assert bits(planned(3000, 2)).tau == pytest.approx(np.sqrt(2), abs=1e-3)


@pytest.mark.slow
def test_many_users_with_few_coordinates_send_several_bits_under_the_cap() -> None:
    free = planned(20_000, 500, epsilon=4.0)
    assert bits(free).bits > 4
    capped = planned(20_000, 500, epsilon=4.0, max_reports=1024)
    assert (bits(capped).bits, capped.reports) == (2, 1024)
    assert free.expected_error.total < capped.expected_error.total
    options = alternatives(free)
    assert [option.reports for option in options] == sorted(option.reports for option in options)
    assert {bits(option).bits for option in options} >= {1, 4, bits(free).bits}
    for option in options:
        option.verify()
    with refusal("privacy-out-of-reach", "512", error=PrivacyError):
        planned(20_000, 500, max_reports=511)


@pytest.mark.long
def test_a_box_is_recommended_where_it_is_better_and_it_is() -> None:
    with pytest.warns(ArraysAreBetterWarning, match="Arrays"):
        few = ss.plan(users=50_000, domain=ss.L2Ball(2, clipping_norm=1.0), epsilon=1.0, delta=1e-6, max_reports=64)
    assert few.domain.better_domain(few)
    assert "mechanism='noisy-counts'" in card(few)
    box = ss.plan(users=50_000, shape=2, bounds=(-1.0, 1.0), epsilon=1.0, delta=1e-6, mechanism="noisy-counts")
    assert box.expected_error.total < few.expected_error.total
    assert not box.domain.better_domain(box)
    many = planned(1000, 1000)
    assert not many.domain.better_domain(many)
    assert "mechanism='noisy-counts'" not in card(many)


def test_every_plan_draws_a_seed_of_its_own_unless_one_is_given() -> None:
    first, second = planned(500, 20), planned(500, 20)
    assert isinstance(first.domain, ss.L2Ball)
    assert first.domain.seed is not None
    assert first.domain != second.domain
    assert first.id != second.id
    seeded = ss.L2Ball(20, clipping_norm=1.0, seed=bytes(16))
    assert planned(500, seeded) == planned(500, seeded)


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ({"mechanism": "noisy-counts"}, "impossible-combination"),
        ({"mechanism": ss.NoisyCounts.Options(digits=3)}, "impossible-combination"),
        ({"mechanism": ss.RandomizedResponse.Options(coordinates=2)}, "impossible-combination"),
        ({"mechanism": ss.RandomizedResponse.Options(levels=2)}, "impossible-combination"),
        ({"accountant": "paper"}, "impossible-combination"),
        ({"assumed_std": 0.1}, "impossible-combination"),
        ({"bounds": (0, 1)}, "conflicting-arguments"),
        ({"columns": ["a", "b"]}, "conflicting-arguments"),
        ({"users": 0}, "out-of-range"),
        ({"delta": 1e-13}, "not-certified"),
    ],
    ids=str,
)
def test_what_means_nothing_for_a_ball_is_refused(choices: dict[str, Any], problem: Any) -> None:
    with refusal(problem, error=(ParameterError, PrivacyError)):
        planned(**{"users": 500, "shape": 2, **choices})


def test_a_plan_without_a_seed_or_noise_is_none() -> None:
    plan = planned(500, 20)
    with refusal("missing-argument"):
        Plan(ss.L2Ball(20, clipping_norm=1.0), plan.mechanism, plan.guarantee)
    bare = Plan(plan.domain, ss.OneBit(1, 1.0, 2.0), plan.guarantee)
    assert bare.local_epsilon == np.inf
    assert bare.privacy.epsilon(1e-6).upper == np.inf
    with refusal("claim-not-confirmed", error=PlanError):
        bare.verify()
    with refusal("not-certified"):
        bare.privacy.to_dp_accounting()


@pytest.mark.slow
def test_the_fewest_users_for_an_error_are_found() -> None:
    found = plan_for_error(0.5, domain=ss.L2Ball(100, clipping_norm=1.0), delta=1e-6, epsilon=2.0)
    assert 0.49 < found.expected_error.total <= 0.5


@pytest.mark.long
def test_aggregate_plans_sends_and_estimates_in_one_call() -> None:
    rows = np.random.default_rng(0).normal(size=(600, 4, 5)) / 10
    estimate = ss.aggregate(rows, domain=ss.L2Ball((4, 5), clipping_norm=1.0), epsilon=4.0, delta=1e-6)
    assert isinstance(estimate, ss.L2BallEstimate)
    error = float(np.sum((estimate.mean - rows.mean(axis=0)) ** 2))
    assert error < 10 * estimate.plan.expected_error.total
    layered = ss.L2Ball({"w": (4, 4), "b": (4,)}, clipping_norm=1.0)
    updates = [layered.unflatten(row.reshape(-1)) for row in rows]
    assert set(ss.aggregate(updates, domain=layered, epsilon=4.0, delta=1e-6).layers) == {"w", "b"}


def test_what_is_not_allowed_sends_nothing() -> None:
    plan = planned(600, 20)
    rows = np.full((3, 20), 0.01)
    for bad in (np.nan, np.inf, 50.0):
        rows[2, 7] = bad
        with refusal(("missing-value", "out-of-bounds"), "row 2"):
            ss.Randomizer(plan).randomize(rows)
    rows[2, 7] = 50.0
    assert len(ss.Randomizer(plan, clip=True).randomize(rows)) == 3 * plan.reports


@pytest.mark.long
def test_the_three_roles_agree_with_one_process() -> None:
    """The same plan, sent and counted, or tallied: means apart by their standard errors at most (6, seeded data)."""
    plan = planned(500, 50, epsilon=4.0)
    rows = np.random.default_rng(1).normal(size=(500, 50)) / 20
    sent = ss.Analyzer(plan).analyze(ss.shuffle(ss.Randomizer(plan).randomize(rows)))
    apart = np.abs(sent.mean - rows.mean(axis=0)) / sent.standard_error
    assert apart.max() < 6.5


def test_plans_and_certificates_are_quick() -> None:
    """Limits with some room for a busy machine; `make bench` measures."""
    start = time.perf_counter()
    plan = planned(9999, 16_000)
    assert time.perf_counter() - start < 10
    start = time.perf_counter()
    plan.verify()
    assert time.perf_counter() - start < 2
