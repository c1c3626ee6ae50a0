from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.oracles.enumeration import worst_delta
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.randomized_response import blanket
from shufflesum.privacy.randomized_response.schemes import Blocks

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.5)

# users, dimension, levels: two blocks, of one coordinate each or of one and two
ENUMERABLE = [
    (1, 2, 1),
    (2, 2, 1),
    (3, 2, 1),
    (4, 2, 1),
    (1, 2, 2),
    (2, 2, 2),
    (3, 2, 2),
    (2, 2, 3),
    (2, 3, 1),
    (3, 3, 1),
]


@pytest.mark.parametrize(("users", "dimension", "levels"), ENUMERABLE)
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_enumeration_of_two_blocks_lies_between_the_bounds(
    users: int, dimension: int, levels: int, gamma: float
) -> None:
    truth = worst_delta(
        users=users, dimension=dimension, levels=levels, noise_probability=gamma, epsilons=EPSILONS, reports=2
    )
    alone = dimension == 2
    upper = Blocks(users, levels, 2, alone).upper(gamma)
    lower = Blocks(users, levels, 2).lower(gamma)
    for epsilon, exact in zip(EPSILONS, truth, strict=True):
        assert lower.delta(epsilon) <= exact * (1 + 1e-9) + 1e-13
        assert upper.delta(epsilon) >= exact * (1 - 1e-12)
    if levels == 1 and alone:  # the direct bound is nearly the worst case itself
        assert upper.delta(0.0) <= truth[0] * 1.1


def test_too_little_noise_in_the_accountant_would_be_seen_by_the_enumeration() -> None:
    truth = worst_delta(users=3, dimension=2, levels=1, noise_probability=0.5, epsilons=EPSILONS, reports=2)
    flattering = Blocks(3, 1, 2, single_coordinate=True).upper(0.55)
    assert any(flattering.delta(epsilon) < exact for epsilon, exact in zip(EPSILONS, truth, strict=True))
    pessimistic = Blocks(3, 1, 2).lower(0.4)
    assert any(pessimistic.delta(epsilon) > exact for epsilon, exact in zip(EPSILONS, truth, strict=True))


def smallest(users: int, levels: int, epsilon: float, delta: float, copies: int, alone: bool) -> tuple[float, float]:
    return (
        Blocks(users, levels, copies, alone).smallest_noise_probability(epsilon, delta),
        Blocks(users, levels, copies).noise_probability_lower_bound(epsilon, delta),
    )


def test_one_hundred_reports_need_the_noise_computed_independently() -> None:
    upper, lower = smallest(50_000, 3, 0.95, 1e-6, 100, True)
    assert 0.2005 <= lower <= upper <= 0.203
    upper, lower = smallest(50_000, 1, 0.95, 1e-6, 100, False)
    assert 0.1210 <= upper <= 0.1225
    upper, lower = smallest(50_000, 1, 0.95, 1e-6, 100, True)
    assert upper == pytest.approx(0.0715, abs=1.5e-4)
    assert lower == pytest.approx(0.0707, abs=0.5e-4)


def nearly_exact(users: int, values: int, gamma: float, copies: int, epsilon: float) -> float:
    """Compose the pair of a third value by plain FFT on a fine grid, rounding losses without bias."""
    step, size = 2e-5, 2**18
    beta, r = (1 - gamma) * values / gamma, gamma / (values * (1 - gamma) + gamma)
    other = gamma * (values - 3) / (values - 2 * gamma)
    mean = users * 2 * gamma / values
    grid = np.zeros(size)
    for s in range(int(mean - 8 * mean**0.5), int(mean + 8 * mean**0.5)):
        a = np.arange(max(0, int(s / 2 - 4 * s**0.5)), min(s, int(s / 2 + 4 * s**0.5)) + 1)
        rest = s + (users - s) * other
        constant = rest + r * (users - rest)
        p, q = (beta * a + constant) / users, (beta * (s - a) + constant) / users
        place = np.log(p / q) / step
        index = np.floor(place).astype(int)
        masses = binom.pmf(s, users, 2 * gamma / values) * binom.pmf(a, s, 0.5) * p
        np.add.at(grid, index % size, masses * (1 - (place - index)))
        np.add.at(grid, (index + 1) % size, masses * (place - index))
    composed = np.fft.irfft(np.fft.rfft(grid) ** copies, size)
    losses = np.fft.fftfreq(size, 1 / size) * step
    above = losses > epsilon
    return float(np.sum(composed[above] * -np.expm1(epsilon - losses[above])))


def test_both_bounds_embrace_a_plain_computation_closely() -> None:
    users, gamma, copies = 4000, 0.3, 20
    upper = Blocks(users, 3, copies, single_coordinate=True).upper(gamma)
    lower = Blocks(users, 3, copies).lower(gamma)
    for epsilon in (0.2, 0.6, 1.0):
        plain = nearly_exact(users, 4, gamma, copies, epsilon)
        assert plain * 0.99 <= lower.delta(epsilon) <= plain * 1.001
        assert plain * 0.999 <= upper.delta(epsilon) <= plain * 1.02


PRACTICAL = [
    (1000, 3, 1.0, 1e-6, 2),
    (1000, 2, 4.0, 1e-5, 20),
    (5000, 9, 2.0, 1e-8, 5),
    (10**6, 9, 1.0, 1e-12, 1000),
    (10**10, 3, 0.1, 1e-12, 100),
    (1000, 3, 0.5, 1e-6, 1000),
]


@pytest.mark.parametrize(("users", "levels", "epsilon", "delta", "copies"), PRACTICAL)
def test_the_gap_between_the_bounds_is_below_two_percent_of_the_noise(
    users: int, levels: int, epsilon: float, delta: float, copies: int
) -> None:
    upper, lower = smallest(users, levels, epsilon, delta, copies, False)
    assert lower < upper < lower * 1.005  # 0.02 is promised


@pytest.mark.parametrize(
    ("users", "epsilon", "delta", "copies"),
    [
        (1000, 1.0, 1e-6, 1),
        (1000, 1.0, 1e-6, 3),
        (5000, 0.5, 1e-6, 10),
        (50_000, 0.95, 1e-12, 100),
        (10**6, 2.0, 1e-6, 500),
    ],
)
def test_two_values_in_blocks_of_one_coordinate_have_a_gap_below_three_percent(
    users: int, epsilon: float, delta: float, copies: int
) -> None:
    upper, lower = smallest(users, 1, epsilon, delta, copies, True)
    assert lower < upper < lower * 1.02
    assert upper < Blocks(users, 1, copies).smallest_noise_probability(epsilon, delta)


def test_the_smallest_noise_is_a_grid_point_that_holds_and_hardly_less_does_not() -> None:
    gamma = Blocks(20_000, 4, 30).smallest_noise_probability(1.0, 1e-7)
    assert (gamma * 2**53).is_integer()

    def delta(noise_probability: float) -> float:
        return Blocks(20_000, 4, 30).delta_upper(noise_probability, 1.0)

    assert delta(gamma) <= 1e-7 < delta(gamma * (1 - 2e-4))


@pytest.mark.long
@settings(max_examples=15, deadline=None)
@given(
    users=st.integers(1, 10**5),
    levels=st.integers(1, 12),
    gamma=st.floats(1e-4, 1.0),
    copies=st.integers(2, 300),
    epsilon=st.floats(0.0, 5.0),
    alone=st.booleans(),
)
def test_delta_falls_in_epsilon_users_and_noise_and_rises_with_reports(
    users: int, levels: int, gamma: float, copies: int, epsilon: float, alone: bool
) -> None:
    def upper(n: int, g: float, t: int) -> float:
        return Blocks(n, levels, t, alone).delta_upper(g, epsilon)

    here = upper(users, gamma, copies)
    slack = here * 1e-3 + 1e-14  # what the grids may differ by
    assert upper(2 * users, gamma, copies) <= here + slack
    assert upper(users, min(1.0, 1.1 * gamma), copies) <= here + slack
    assert upper(users, gamma, 2 * copies) >= here - slack
    bound = Blocks(users, levels, copies, alone).upper(gamma)
    assert bound.delta(epsilon + 0.1) <= bound.delta(epsilon)
    assert Blocks(users, levels, copies).delta_lower(gamma, epsilon) <= here


def test_epsilon_and_delta_are_inverse_and_directed() -> None:
    upper = Blocks(50_000, 3, 100, single_coordinate=True).upper(0.2)
    lower = Blocks(50_000, 3, 100).lower(0.2)
    for delta in (1e-3, 1e-6, 1e-9, 1e-12):
        high, low = upper.epsilon(delta), lower.epsilon(delta)
        assert upper.delta(high) <= delta < upper.delta(high * (1 - 1e-9))
        assert lower.delta(low) >= delta
        assert low < high < low * 1.005
    assert upper.epsilon(0.9) == lower.epsilon(0.9) == 0.0
    assert Blocks(50_000, 3, 100, single_coordinate=True).epsilon_upper(0.2, 1e-6) == upper.epsilon(1e-6)
    assert Blocks(50_000, 3, 100).epsilon_lower(0.2, 1e-6) == lower.epsilon(1e-6)


@pytest.mark.parametrize("count", [2, 3])
def test_few_reports_cost_more_than_one_and_are_composed(count: int) -> None:
    several, one = Blocks(50_000, 3, count), Blocks(50_000, 3, 1)
    assert several.epsilon_upper(0.2, 1e-6) == several.upper(0.2).epsilon(1e-6) > 1.2 * one.epsilon_upper(0.2, 1e-6)


def test_one_report_is_what_blanket_says() -> None:
    assert Blocks(1000, 3, 1).epsilon_upper(0.1, 1e-6) == blanket.epsilon_upper(1000, 3, 0.1, 1e-6)
    assert Blocks(1000, 3, 1).delta_upper(0.1, 0.5) == blanket.delta_upper(1000, 3, 0.1, 0.5)
    assert Blocks(1000, 3, 1).epsilon_lower(0.1, 1e-6) == blanket.epsilon_lower(1000, 3, 0.1, 1e-6)
    gridded = Blocks(1000, 3, 1).upper(0.1).delta(0.5)
    assert gridded == pytest.approx(blanket.delta_upper(1000, 3, 0.1, 0.5), rel=3e-3)


def test_pure_noise_hides_everything_and_one_user_nothing_but_its_own_noise() -> None:
    assert Blocks(10, 3, 100, single_coordinate=True).delta_upper(1.0, 0.5) == 0.0
    assert Blocks(10, 3, 100).delta_lower(1.0, 0.0) <= 1e-12
    # alone, each report is randomized response: delta(0) of one is 1 - gamma
    found = Blocks(1, 1, 2, single_coordinate=True).upper(0.5)
    p = np.outer([0.75, 0.25], [0.75, 0.25]).ravel()
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = np.maximum(p - math.exp(epsilon) * p[::-1], 0.0).sum()
        assert exact <= found.delta(epsilon) <= exact + 2e-3


def test_rounds_are_more_reports() -> None:
    once = Blocks(10**5, 3, 10, single_coordinate=True).delta_upper(0.1, 0.5)
    assert Blocks(10**5, 3, 40, single_coordinate=True).delta_upper(0.1, 0.5) > 4 * once


def test_what_cannot_be_certified_is_refused_with_the_knob_to_turn() -> None:
    good = Blocks(100, 3, 2).upper(0.5)
    with refusal("not-certified", "1e-13", error=PrivacyError):
        good.epsilon(1e-13)
    with refusal("out-of-range", "-1", error=PrivacyError):
        good.delta(-1.0)
    with refusal("out-of-range", error=ParameterError):
        Blocks(100, 3, 0).upper(0.5)
    with refusal("not-certified", "0", error=PrivacyError):
        Blocks(100, 3, 2).lower(0.0)
    with refusal("out-of-range", "is 0", error=ParameterError):
        Blocks(0, 3, 2).upper(0.5)
    with refusal("out-of-range", error=PrivacyError):
        Blocks(100, 3, 2).smallest_noise_probability(0.0, 1e-6)
