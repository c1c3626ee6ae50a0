from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.enumeration import (
    binary_blanket_delta,
    blanket_delta,
    concrete_delta,
    rational_blanket_delta,
    worst_delta,
)
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError, ShufflesumError
from shufflesum.privacy.randomized_response import blanket

EPSILONS = [0.0, 0.1, 0.5, 1.0, 2.0, 4.0]
# (dimension, levels, users): every size that can be enumerated within a moment
SIZES = [
    *((1, 1, n) for n in (1, 2, 3, 4, 5)),
    *((1, 2, n) for n in (1, 2, 3, 4, 5)),
    *((1, 3, n) for n in (2, 3, 4, 5)),
    *((2, 1, n) for n in (2, 3, 4, 5)),
    *((2, 2, n) for n in (2, 3)),
    (2, 3, 2),
    (3, 1, 2),
    (3, 1, 3),
    (3, 2, 2),
]
# what double precision may differ by between an enumeration and a bound that equals it
ROUNDING = 1e-13


@pytest.mark.parametrize("gamma", [0.03, 0.5, 0.9])
@pytest.mark.parametrize(("dimension", "levels", "users"), SIZES)
def test_enumerated_worst_case_lies_between_the_bounds(dimension: int, levels: int, users: int, gamma: float) -> None:
    exact = worst_delta(users=users, dimension=dimension, levels=levels, noise_probability=gamma, epsilons=EPSILONS)
    upper = blanket.profile_upper(users, levels, gamma, np.array(EPSILONS))
    lower = blanket.profile_lower(users, levels, gamma, np.array(EPSILONS))
    assert np.all(exact <= upper + ROUNDING)
    assert np.all(lower <= exact + ROUNDING)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_five_per_cent_less_noise_than_claimed_is_seen_by_the_enumeration(levels: int) -> None:
    exact = worst_delta(users=2, dimension=1, levels=levels, noise_probability=0.5, epsilons=[0.5])
    assert exact[0] > blanket.delta_upper(2, levels, 0.5 * 1.05, 0.5)
    assert exact[0] < blanket.delta_lower(2, levels, 0.5 / 1.05, 0.5)


@pytest.mark.parametrize(("dimension", "levels", "users"), [(2, 1, 3), (2, 2, 2), (2, 2, 3), (3, 1, 2), (2, 3, 2)])
@pytest.mark.parametrize("gamma", [0.2, 0.6])
def test_two_enumerated_blocks_stay_below_the_sum_of_two_bounds(
    dimension: int, levels: int, users: int, gamma: float
) -> None:
    exact = worst_delta(
        users=users, dimension=dimension, levels=levels, noise_probability=gamma, epsilons=[0.4, 1.0], reports=2
    )
    single = blanket.profile_upper(users, levels, gamma, np.array([0.2, 0.5]))
    assert np.all(exact <= 2 * single)
    assert exact[1] > blanket.delta_lower(users, levels, gamma, 1.0)


def test_smallest_example_in_three_values() -> None:
    exact = worst_delta(users=3, dimension=1, levels=2, noise_probability=0.5, epsilons=[1.0])[0]
    assert exact == pytest.approx(0.0949, abs=5e-5)
    assert blanket.delta_upper(3, 2, 0.5, 1.0) == pytest.approx(0.0989, abs=5e-5)


@pytest.mark.parametrize(
    ("users", "levels", "gamma", "epsilon"),
    [
        (40, 1, 0.3, 0.3),
        (40, 2, 0.3, 0.3),
        (300, 3, 0.2, 0.5),
        (300, 9, 0.9, 0.05),
        (1500, 1, 0.04, 1.0),
        (1500, 3, 0.05, 1.0),
        (1500, 20, 0.08, 2.0),
        (200, 4, 0.01, 5.0),
        (60, 2, 1e-4, 9.5),
    ],
)
def test_upper_bound_is_the_written_out_blanket_sum(users: int, levels: int, gamma: float, epsilon: float) -> None:
    direct = blanket_delta(users, levels, gamma, epsilon)
    upper = blanket.delta_upper(users, levels, gamma, epsilon)
    assert direct * (1 - 1e-10) <= upper <= direct * (1 + 2e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 2**53 - 1), st.floats(0, 30))
def test_rounding_always_goes_up(users: int, levels: int, numerator: int, epsilon: float) -> None:
    gamma = Fraction(numerator, 2**53)
    growth = Fraction(math.exp(epsilon))
    # the sum falls with growth, so the true value lies between these two
    below = rational_blanket_delta(users, levels, gamma, growth * (1 + Fraction(1, 2**50)))
    above = rational_blanket_delta(users, levels, gamma, growth * (1 - Fraction(1, 2**50)))
    upper = Fraction(blanket.delta_upper(users, levels, float(gamma), epsilon))
    assert below <= upper <= above * (1 + Fraction(1, 10**5)) + Fraction(1, 10**18)


@pytest.mark.parametrize(
    ("users", "gamma", "epsilon"),
    [(10**5, 0.5, 0.02), (10**6, 0.3, 0.005), (10**6, 0.9, 0.0001), (10**7, 0.001, 0.07), (10**8, 0.01, 0.006)],
)
def test_cells_of_many_counts_cost_little(users: int, gamma: float, epsilon: float) -> None:
    direct = binary_blanket_delta(users, gamma, epsilon)
    upper = blanket.delta_upper(users, 1, gamma, epsilon)
    assert 1e-12 < direct * (1 - 1e-8) <= upper <= direct * 1.005


@pytest.mark.parametrize(
    ("others", "levels", "gamma", "epsilon"),
    [([2] * 11, 2, 0.3, 0.4), ([3] * 8, 3, 0.6, 0.2), ([0] * 11, 1, 0.4, 0.4), ([0] * 9, 2, 0.5, 1.0)],
)
def test_lower_bound_is_at_least_every_concrete_pair_it_is_built_from(
    others: list[int], levels: int, gamma: float, epsilon: float
) -> None:
    pairs = [(0, 1), (1, 0)]
    concrete = max(concrete_delta(others, x, y, levels, gamma, epsilon) for x, y in pairs)
    lower = blanket.delta_lower(len(others) + 1, levels, gamma, epsilon)
    assert concrete * (1 - 1e-3) <= lower


@pytest.mark.parametrize(
    ("users", "epsilon", "levels", "upper", "lower", "units"),
    [
        (50_000, 0.95, 1, 0.001839393, 0.00143798, (1e-9, 1e-8)),
        (50_000, 0.95, 3, 0.003664212, 0.003664212, (1e-9, 1e-9)),
        (50_000, 0.95, 10, 0.00993825, 0.00993812, (1e-8, 1e-8)),
        (10_000, 1.0, 3, 0.0164732, 0.0164725, (1e-7, 1e-7)),
    ],
)
def test_smallest_noise_probability_of_independent_computations(
    users: int, epsilon: float, levels: int, upper: float, lower: float, units: tuple[float, float]
) -> None:
    enough = blanket.smallest_noise_probability(users, levels, epsilon, 1e-6)
    too_small = blanket.noise_probability_lower_bound(users, levels, epsilon, 1e-6)
    assert enough == pytest.approx(upper, abs=units[0] / 2)
    assert too_small == pytest.approx(lower, abs=units[1] / 2)
    assert too_small < enough


@pytest.mark.parametrize(
    ("users", "levels"), [(1_000, 2), (1_000, 10), (50_000, 3), (50_000, 100), (10**7, 10), (10**10, 2), (10**10, 100)]
)
def test_bounds_on_the_noise_meet_within_a_thousandth(users: int, levels: int) -> None:
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5)):
        enough = blanket.smallest_noise_probability(users, levels, epsilon, delta)
        too_small = blanket.noise_probability_lower_bound(users, levels, epsilon, delta)
        assert too_small < enough < too_small * 1.001


PROTOCOLS = st.tuples(
    st.floats(0, 6).map(lambda x: max(1, round(10**x))), st.integers(1, 30), st.floats(-4, -0.01).map(lambda x: 10**x)
)
# coarse cells may lose this much of delta, and lose differently on both sides of a comparison
GRID_LOSS = 1.005
FLOOR = 1e-18


@settings(max_examples=60, deadline=None)
@given(PROTOCOLS, st.floats(0, 4), st.floats(0.001, 2))
def test_delta_falls_with_epsilon(protocol: tuple[int, int, float], epsilon: float, more: float) -> None:
    for bound in (blanket.profile_upper, blanket.profile_lower):
        first, second = bound(*protocol, np.array([epsilon, epsilon + more]))
        assert second <= first * (1 + 1e-9) + FLOOR


@settings(max_examples=60, deadline=None)
@given(PROTOCOLS, st.floats(0, 4), st.integers(1, 1000))
def test_delta_falls_with_users(protocol: tuple[int, int, float], epsilon: float, more: int) -> None:
    users, levels, gamma = protocol
    fewer = blanket.delta_upper(users, levels, gamma, epsilon)
    assert blanket.delta_upper(users + more, levels, gamma, epsilon) <= fewer * GRID_LOSS + FLOOR


@settings(max_examples=60, deadline=None)
@given(PROTOCOLS, st.floats(0, 4), st.floats(0, 1))
def test_delta_falls_with_noise(protocol: tuple[int, int, float], epsilon: float, part: float) -> None:
    users, levels, gamma = protocol
    louder = gamma + part * (1 - gamma)
    less = blanket.delta_upper(users, levels, gamma, epsilon)
    assert blanket.delta_upper(users, levels, louder, epsilon) <= less * GRID_LOSS + FLOOR


@settings(max_examples=60, deadline=None)
@given(PROTOCOLS, st.floats(0, 60))
def test_lower_never_exceeds_upper(protocol: tuple[int, int, float], epsilon: float) -> None:
    lower, upper = blanket.delta_lower(*protocol, epsilon), blanket.delta_upper(*protocol, epsilon)
    assert 0.0 <= lower <= upper + ROUNDING * lower <= 1.0
    assert upper <= 1 - protocol[2] + ROUNDING


@settings(max_examples=30, deadline=None)
@given(PROTOCOLS, st.floats(-15, -0.1).map(lambda x: 10**x))
def test_epsilon_and_delta_invert_each_other(protocol: tuple[int, int, float], delta: float) -> None:
    upper, lower = blanket.epsilon_upper(*protocol, delta), blanket.epsilon_lower(*protocol, delta)
    assert blanket.delta_upper(*protocol, upper) <= delta
    assert lower <= upper
    if lower > 0:
        assert blanket.delta_lower(*protocol, lower) > delta
    if upper > 1e-3:
        assert blanket.delta_upper(*protocol, upper * (1 - 1e-8)) > delta * (1 - 1e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 10), st.integers(1, 999), st.floats(-3, 1.3), st.floats(-14.9, -0.1))
def test_the_noise_probability_is_on_the_grid_and_evaluated(
    log_users: float, levels: int, log_epsilon: float, log_delta: float
) -> None:
    users, epsilon, delta = round(10**log_users), 10**log_epsilon, 10**log_delta
    gamma = blanket.smallest_noise_probability(users, levels, epsilon, delta)
    assert (gamma * 2**53).is_integer()
    assert 0 < gamma <= 1
    assert blanket.delta_upper(users, levels, gamma, epsilon) <= delta
    bound = blanket.noise_probability_lower_bound(users, levels, epsilon, delta)
    assert bound < gamma
    assert bound == 0 or blanket.delta_lower(users, levels, bound, epsilon) > delta


def test_a_profile_keeps_the_order_and_agrees_with_single_values() -> None:
    epsilons = np.array([3.0, 0.0, 25.0, 0.7, 0.7])
    profile = blanket.profile_upper(500, 3, 0.1, epsilons)
    assert profile.tolist() == [blanket.delta_upper(500, 3, 0.1, e) for e in epsilons]
    profile = blanket.profile_lower(500, 3, 0.1, epsilons)
    assert profile.tolist() == [blanket.delta_lower(500, 3, 0.1, e) for e in epsilons]
    assert blanket.profile_upper(500, 3, 0.1, np.array([])).size == 0


@pytest.mark.parametrize("levels", [1, 2, 999])
def test_corners(levels: int) -> None:
    values = levels + 1
    for epsilon in (0.0, 1e-6, 1.0, 50.0, 1e4):
        for users in (1, 10**10):
            assert blanket.delta_upper(users, levels, 1.0, epsilon) == 0.0
            assert blanket.delta_lower(users, levels, 1.0, epsilon) == 0.0
        for gamma in (2.0**-53, 0.5, 1 - 2.0**-53):
            # a single user: the divergence of two reports, by hand
            noise = Fraction(gamma)
            keep = 1 - noise + noise / values
            alone = float(max(Fraction(0), keep - Fraction(math.exp(min(epsilon, 700))) * noise / values))
            assert blanket.delta_upper(1, levels, gamma, epsilon) == pytest.approx(alone, rel=1e-6, abs=1e-18)
            assert alone * (1 - 1e-6) - 1e-14 <= blanket.delta_lower(1, levels, gamma, epsilon) <= alone * (1 + 1e-12)
    for gamma in (1e-9, 0.5):
        for epsilon in (0.0, 1e-6, 50.0):
            lower = blanket.delta_lower(10**10, levels, gamma, epsilon)
            upper = blanket.delta_upper(10**10, levels, gamma, epsilon)
            assert 0.0 <= lower <= upper <= 1.0
            if levels > 1:
                assert upper <= lower * 1.001 + 1e-18


@pytest.mark.parametrize(("users", "levels"), [(1, 1), (10**4, 3), (10**10, 999)])
@pytest.mark.parametrize("epsilon", [1e-6, 50.0])
def test_the_strictest_targets_are_reached(users: int, levels: int, epsilon: float) -> None:
    gamma = blanket.smallest_noise_probability(users, levels, epsilon, 1e-15)
    assert blanket.delta_upper(users, levels, gamma, epsilon) <= 1e-15


def test_from_the_local_epsilon_on_nothing_is_lost() -> None:
    assert blanket.delta_upper(100, 3, 0.5, math.log(5.0) + 1e-9) == 0.0
    assert blanket.delta_upper(100, 3, 0.5, math.log(5.0) - 1e-3) > 0.0


@pytest.mark.parametrize(
    ("changed", "error", "problem", "knob"),
    [
        ({"honest_users": 0}, ParameterError, "out-of-range", "honest_users"),
        ({"honest_users": 10**10 + 1}, ParameterError, "out-of-range", "honest_users"),
        ({"honest_users": 2.5}, ParameterError, "wrong-type", "honest_users"),
        ({"levels": 0}, ParameterError, "out-of-range", "levels"),
        ({"levels": 2**32 - 2}, ParameterError, "out-of-range", "levels"),
        ({"noise_probability": 0.0}, PrivacyError, "not-certified", "noise_probability"),
        ({"noise_probability": 1.1}, PrivacyError, "not-certified", "noise_probability"),
        ({"noise_probability": math.nan}, PrivacyError, "not-certified", "noise_probability"),
        ({"epsilon": -0.1}, ParameterError, "out-of-range", "epsilon"),
        ({"epsilon": math.inf}, ParameterError, "out-of-range", "epsilon"),
    ],
)
def test_what_cannot_be_certified_is_refused(
    changed: dict[str, Any], error: type[ShufflesumError], problem: str, knob: str
) -> None:
    arguments = {"honest_users": 10, "levels": 3, "noise_probability": 0.5, "epsilon": 1.0} | changed
    for bound in (blanket.delta_upper, blanket.delta_lower):
        with refusal(problem, knob, error=error):
            bound(**arguments)


@pytest.mark.parametrize(
    ("epsilon", "delta", "problem", "knob"),
    [
        (0.0, 0.1, "out-of-range", "epsilon"),
        (math.nan, 0.1, "out-of-range", "epsilon"),
        (1.0, 1e-16, "not-certified", "delta"),
        (1.0, 1.0, "out-of-range", "delta"),
    ],
)
def test_targets_out_of_reach_are_refused(epsilon: float, delta: float, problem: str, knob: str) -> None:
    for search in (blanket.smallest_noise_probability, blanket.noise_probability_lower_bound):
        with refusal(problem, knob, error=PrivacyError):
            search(10, 3, epsilon, delta)
    if knob != "epsilon":
        for bound in (blanket.epsilon_upper, blanket.epsilon_lower):
            with refusal(problem, knob, error=PrivacyError):
                bound(10, 3, 0.5, delta)


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [1e-7, 1e-4, 0.01, 0.5])
@pytest.mark.parametrize("levels", [1, 3, 10, 999])
def test_one_delta_for_a_hundred_million_users_is_quick(levels: int, gamma: float) -> None:
    blanket.delta_upper(10**8, levels, gamma, 0.1)
    start = time.perf_counter()
    blanket.delta_upper(10**8, levels, gamma, 0.1)
    assert time.perf_counter() - start < 0.2
