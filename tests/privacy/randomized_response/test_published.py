from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refusal

from experiments import published_errors
from shufflesum.errors import ParameterError, PrivacyError, ShufflesumError
from shufflesum.privacy.randomized_response import published

SETTING: dict[str, Any] = {"users": 50_000, "dimension": 100, "epsilon": 0.95, "delta": 0.5}
HIGH: dict[str, Any] = SETTING | {"epsilon": 2.0}


def test_improved_noise_probability_at_the_settings_of_the_experiments() -> None:
    assert published.improved_noise_probability(levels=3, **SETTING) == pytest.approx(0.17053, abs=5e-6)
    strict = SETTING | {"delta": 1e-6}
    assert published.improved_noise_probability(levels=3, **strict) == pytest.approx(1.3504, abs=5e-5)


def test_main_theorem_noise_probability_at_the_linked_message_setting() -> None:
    gamma = published.theorem_main_noise_probability(
        users=10**6, dimension=10, levels=1, coordinates=10, epsilon=0.95, delta=1e-6
    )
    assert gamma == pytest.approx(0.1441, abs=5e-5)


def test_the_two_ranges_of_epsilon_differ_by_the_published_constants() -> None:
    def main(epsilon: float) -> float:
        gamma = published.theorem_main_noise_probability(
            users=10**9, dimension=5, levels=3, coordinates=2, epsilon=epsilon, delta=1e-6
        )
        return gamma * epsilon**2

    assert main(1.0) / main(0.999) == pytest.approx(36.0)
    below = published.improved_noise_probability(users=10**6, dimension=5, levels=3, epsilon=0.999, delta=1e-6)
    above = published.improved_noise_probability(users=10**6, dimension=5, levels=3, epsilon=1.0, delta=1e-6)
    assert above / (below * 0.999**2) == pytest.approx(80 / 14)


def test_the_second_terms_of_the_improved_maxima_are_reached() -> None:
    # log(2/delta) = log 2 at delta = 1: 14 log 2 / eps < 27 for eps > 0.36, 80 log 2 / eps > 36/11 for all eps < 6
    gamma = published.improved_noise_probability(users=10_001, dimension=1, levels=1, epsilon=0.9, delta=1.0)
    assert gamma == pytest.approx(27 / (10_000 * 0.9))
    levels = published.improved_levels(users=54_000, dimension=1, epsilon=0.9, delta=1.0)
    assert levels == pytest.approx((54_000 * 0.9 / 54) ** (1 / 3))


def test_squared_errors_by_hand() -> None:
    log = math.log(4.0)
    value = published_errors.improved_mse(noise_probability=0.0, **SETTING)
    first = 98 ** (1 / 3) * 100 ** (8 / 3) * log ** (2 / 3) / (50_000 ** (5 / 3) * 0.95 ** (4 / 3))
    second = 18 * 100 ** (8 / 3) / (50_000 ** (5 / 3) * 3.8 ** (2 / 3))
    assert value == pytest.approx(max(first, second))
    value = published_errors.theorem_mse(coordinates=2, noise_probability=0.5, **HIGH)
    logs = math.log(2.0) * math.log(8.0)
    assert value == pytest.approx(
        16 * 100 ** (8 / 3) * (63 * logs) ** (2 / 3) / (0.25 * 50_000 ** (5 / 3) * 2 ** (4 / 3))
    )


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_published_squared_error_follows_from_the_cube_rooted_levels(epsilon: float) -> None:
    # n large: n - 1 and n agree. Both terms of the proof are equal at its k, and their sum is the theorem's bound.
    n, d, t, delta = 10**12, 7, 3, 1e-6
    a = 28.0 if epsilon < 1 else 1008.0
    logs = math.log(1 / delta) * math.log(2 * t / delta)
    k = published.theorem_mse_levels(users=n, dimension=d, coordinates=t, epsilon=epsilon, delta=delta)
    rounding, noise = 1 / (4 * k**2), a * d * k * logs / (n * epsilon**2)
    assert rounding == pytest.approx(noise)
    bound = published_errors.theorem_mse(
        users=n, dimension=d, coordinates=t, epsilon=epsilon, delta=delta, noise_probability=0.0
    )
    assert t * n * (rounding + noise) / (n / d) ** 2 == pytest.approx(bound)


def test_levels_of_a_plan_are_rounded_down_and_at_least_one() -> None:
    assert published.improved_levels(**SETTING) == pytest.approx(2.06, abs=0.01)
    assert published.published_levels(coordinates=1, **SETTING) == 2
    assert published.published_levels(users=2, dimension=100, coordinates=1, epsilon=0.1, delta=1e-9) == 1
    assert published.published_levels(users=10**9, dimension=10, coordinates=2, epsilon=0.9, delta=1e-6) == math.floor(
        (10**9 * 0.81 / (4 * 28 * 10 * math.log(1e6) * math.log(4e6))) ** (1 / 3)
    )
    assert published.published_levels(users=10**6, dimension=10, coordinates=1, epsilon=2.0, delta=1e-6) == math.floor(
        (10**6 * 4 / (1600 * math.log(2e6))) ** (1 / 3)
    )


def test_a_plan_takes_the_improved_bound_for_one_report_and_the_theorem_for_more() -> None:
    one = published.published_noise_probability(levels=3, coordinates=1, **SETTING)
    assert one == published.improved_noise_probability(levels=3, **SETTING)
    several = SETTING | {"users": 10**6}
    two = published.published_noise_probability(levels=3, coordinates=2, **several)
    assert two == published.theorem_main_noise_probability(levels=3, coordinates=2, **several)


def test_a_noise_probability_above_one_is_refused_with_every_knob() -> None:
    with pytest.raises(PrivacyError) as caught:
        published.published_noise_probability(
            users=50_000, dimension=100, levels=3, coordinates=1, epsilon=0.95, delta=1e-6
        )
    for word in ("1.35", "users", "dimension", "levels", "epsilon", "delta"):
        assert word in str(caught.value)
    suggested = 67_521
    assert str(suggested) in str(caught.value)
    enough = published.published_noise_probability(
        users=suggested, dimension=100, levels=3, coordinates=1, epsilon=0.95, delta=1e-6
    )
    assert 0.9999 < enough <= 1.0


@pytest.mark.parametrize(
    ("changed", "error", "knob"),
    [
        ({"users": 1}, ParameterError, "users"),
        ({"dimension": 0}, ParameterError, "dimension"),
        ({"levels": 0}, ParameterError, "levels"),
        ({"coordinates": 101}, ParameterError, "coordinates"),
        ({"epsilon": 6.0}, PrivacyError, "epsilon"),
        ({"epsilon": 0.0}, PrivacyError, "epsilon"),
        ({"epsilon": math.nan}, PrivacyError, "epsilon"),
        ({"delta": 0.0}, PrivacyError, "delta"),
        ({"delta": 1.01}, PrivacyError, "delta"),
    ],
)
def test_outside_the_validity_range_is_refused(
    changed: dict[str, Any], error: type[ShufflesumError], knob: str
) -> None:
    arguments = SETTING | {"levels": 3, "coordinates": 1} | changed
    with refusal("out-of-range", str(knob), error=error):
        published.published_noise_probability(**arguments)


def test_delta_one_is_allowed_and_unbounded_levels_are_refused() -> None:
    setting = SETTING | {"delta": 1.0}
    assert published.theorem_mse_levels(coordinates=2, **setting) == math.inf
    assert published.theorem_main_noise_probability(levels=1, coordinates=1, **setting) == 0.0
    with refusal("out-of-range", error=PrivacyError):
        published.published_levels(coordinates=2, **setting)
    with refusal("out-of-range", error=ParameterError):
        published_errors.improved_mse(noise_probability=1.0, **setting)


@pytest.mark.parametrize(("epsilon", "constant"), [(0.5, 28.0), (2.0, 160.0)])
def test_the_first_terms_of_the_improved_minima_by_hand(epsilon: float, constant: float) -> None:
    levels = published.improved_levels(users=10**7, dimension=10, epsilon=epsilon, delta=1e-6)
    assert levels**3 == pytest.approx(10**7 * epsilon**2 / (constant * 10 * math.log(2e6)))
