"""How much noise the planner finds enough, against values computed beforehand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms import NoisyCounts
from shufflesum.mechanisms.mechanism import NoiseBy
from shufflesum.plans import Plan

# digits, dummy reports of a user and coordinate, noise over a trusted curator's: 50,000 users, 100 coordinates
KNOWN = [(1, 0.0413, 1.009), (3, 0.506, 1.006), (4, 1.166, 1.006)]


def planned(digits: int, *, noise_by: NoiseBy = "users") -> Plan:
    return ss.plan(
        users=50_000,
        shape=100,
        epsilon=0.95,
        delta=1e-6,
        mechanism=ss.NoisyCounts.Options(digits=digits),
        noise_by=noise_by,
    )


def add_of(plan: Plan) -> NoisyCounts:
    assert isinstance(plan.mechanism, NoisyCounts)
    return plan.mechanism


@pytest.mark.parametrize(("digits", "reports", "noise"), KNOWN)
def test_noise_is_no_more_than_known_to_be_enough(digits: int, reports: float, noise: float) -> None:
    """Within 1 %; and no less than the lower bound allows, which is within 1.5 % of it."""
    plan = planned(digits)
    assert 0.97 * reports < float(np.sum(add_of(plan).noise_means)) <= 1.01 * reports
    assert plan.expected_error.noise <= 1.01 * noise * plan.curator_error
    assert plan.expected_error.rounding == pytest.approx(100 / (4 * (2**digits - 1) ** 2) / 50_000)
    epsilon = plan.privacy.epsilon(1e-6)
    assert 0.985 * 0.95 < epsilon.lower < epsilon.upper <= 0.95


@pytest.mark.parametrize("digits", [3, 4])
def test_noise_is_halved_from_digit_to_digit_and_its_chances_are_small(digits: int) -> None:
    mechanism = add_of(planned(digits))
    np.testing.assert_allclose(mechanism.noise_variances[:-1] / mechanism.noise_variances[1:], 2, rtol=1e-3)
    assert max(mechanism.probabilities) <= 1 / 16


def test_the_cap_costs_a_hundredth_of_delta_at_most_and_one_less_would_cost_more() -> None:
    plan = planned(3)
    mechanism = add_of(plan)
    free = Plan(plan.domain, NoisyCounts(3, mechanism.trials, mechanism.probabilities, 10**6), plan.guarantee)
    without = free.privacy.delta(0.95).upper
    for less, holds in ((0, True), (1, False)):
        capped = NoisyCounts(3, mechanism.trials, mechanism.probabilities, mechanism.cap - less)
        charged = Plan(plan.domain, capped, plan.guarantee).privacy.delta(0.95).upper - without
        assert (charged <= 0.01 * 1e-6) == holds


def test_rounds_and_malicious_users_ask_for_more_noise() -> None:
    once = planned(3).expected_error.noise
    settings = {
        "users": 50_000,
        "shape": 100,
        "epsilon": 0.95,
        "delta": 1e-6,
        "mechanism": ss.NoisyCounts.Options(digits=3),
    }
    for more, factor in (({"rounds": 4}, 4.0), ({"honest_fraction": 0.5}, 2.0)):
        plan = ss.plan(**settings, **more)  # type: ignore[arg-type]
        plan.verify()
        assert plan.expected_error.noise == pytest.approx(factor * once, rel=0.02)


def test_what_no_noise_hides_is_refused() -> None:
    with refusal("privacy-out-of-reach", "'noisy-counts'", error=PrivacyError):
        ss.plan(
            users=10**6, shape=10**5, epsilon=1e-4, delta=1e-9, mechanism=ss.NoisyCounts.Options(digits=8), rounds=10
        )
