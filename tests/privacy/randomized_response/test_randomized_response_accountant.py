"""The accountant of randomized response: the same figures as the bounds behind it, in the words of a plan."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.privacy import Guarantee, RandomizedResponseAccountant
from shufflesum.privacy.accountant import local_epsilon
from shufflesum.privacy.randomized_response import blanket, published
from shufflesum.privacy.randomized_response.accountant import forget
from shufflesum.privacy.randomized_response.schemes import Blocks


def test_one_report_is_the_blanket() -> None:
    found = RandomizedResponseAccountant(users=50_000, levels=3, noise_probability=0.004).delta(0.95)
    assert found.upper == blanket.delta_upper(50_000, 3, 0.004, 0.95)
    assert found.lower == blanket.delta_lower(50_000, 3, 0.004, 0.95)


def test_several_reports_and_rounds_compose() -> None:
    found = RandomizedResponseAccountant(10_000, 3, 0.2, coordinates=5, rounds=2).epsilon(1e-6)
    assert found.upper == Blocks(10_000, 3, 10).epsilon_upper(0.2, 1e-6)
    assert 0 < found.lower <= found.upper


def test_only_honest_users_count() -> None:
    all_honest = RandomizedResponseAccountant(users=5_000, levels=2, noise_probability=0.05)
    half_honest = RandomizedResponseAccountant(users=10_001, levels=2, noise_probability=0.05, honest_fraction=0.5)
    assert half_honest.delta(0.5) == all_honest.delta(0.5)


def test_knowing_that_every_coordinate_is_reported_tightens_one_level() -> None:
    unknown = RandomizedResponseAccountant(users=5_000, levels=1, coordinates=10)
    known = replace(unknown, dimension=10)
    assert known.smallest_noise_probability(1.0, 1e-6) < 0.75 * unknown.smallest_noise_probability(1.0, 1e-6)


def test_uniform_sampling_of_several_reports_is_covered_and_costs_more() -> None:
    stratified = RandomizedResponseAccountant(users=100_000, levels=1, coordinates=2, dimension=4)
    uniform = replace(stratified, sampling="uniform")
    noise = uniform.smallest_noise_probability(1.0, 1e-6)
    assert noise > stratified.smallest_noise_probability(1.0, 1e-6)
    drawn = replace(uniform, noise_probability=noise)
    assert drawn.delta_upper(1.0) <= 1e-6
    assert drawn.delta_upper(drawn.epsilon(1e-6).upper) <= 1e-6


def test_the_published_noise_is_rounded_up_to_what_a_randomizer_can_draw() -> None:
    exact = published.improved_noise_probability(users=50_000, dimension=100, levels=3, epsilon=0.95, delta=0.5)
    used = RandomizedResponseAccountant(50_000, 3, dimension=100).published_noise_probability(0.95, 0.5)
    assert exact <= used < exact + 2.0**-52
    assert (used * 2.0**53).is_integer()


def test_a_claim_must_hold_under_its_own_accountant() -> None:
    guarantee = Guarantee(0.95, 1e-6, users=50_000)
    noise = RandomizedResponseAccountant(50_000, 3, dimension=100).smallest_noise_probability(0.95, 1e-6)
    enough = RandomizedResponseAccountant(50_000, 3, noise, dimension=100)
    enough.check_claim(guarantee)
    with refusal("claim-not-confirmed", error=PlanError):
        replace(enough, noise_probability=noise * 0.99).check_claim(guarantee)
    with refusal("claim-not-confirmed", "published formula asks for", error=PlanError):
        enough.check_claim(replace(guarantee, delta=0.5, accountant="paper"))


def test_without_noise_no_bound_is_given() -> None:
    noiseless = RandomizedResponseAccountant(users=100, levels=1)
    for bound in (noiseless.delta, noiseless.delta_upper, noiseless.delta_lower):
        with refusal("not-certified", "noise_probability = 0", error=PrivacyError):
            bound(1.0)
    for other in (noiseless.epsilon, noiseless.epsilon_upper, noiseless.epsilon_lower):
        with refusal("not-certified", "noise_probability = 0", error=PrivacyError):
            other(1e-6)


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ({"coordinates": 5, "dimension": 4}, ("out-of-range", "coordinates is 5")),
        ({"sampling": "other"}, ("unknown-choice", "sampling is 'other'")),
        ({"sampling": "uniform", "coordinates": 2}, ("missing-argument", "dimension")),
        ({"honest_fraction": 0.0}, ("out-of-range", "honest_fraction is 0.0")),
        ({"coordinates": 0}, ("out-of-range", "coordinates is 0")),
        ({"rounds": -2}, ("out-of-range", "rounds is -2")),
    ],
)
def test_impossible_numbers_are_refused(arguments: dict[str, object], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        RandomizedResponseAccountant(users=100, levels=1, **arguments)  # type: ignore[arg-type]
    with refusal("out-of-range", "is 0", "between 1", error=ParameterError):
        RandomizedResponseAccountant(users=0, levels=1)


@pytest.mark.parametrize("coordinates", [1, 10])
def test_uniform_sampling_of_one_coordinate_or_of_all_is_stratified_too(coordinates: int) -> None:
    stratified = RandomizedResponseAccountant(5000, 1, 0.2, coordinates, dimension=10)
    uniform = replace(stratified, sampling="uniform")
    assert uniform.scheme == stratified.scheme
    assert uniform.delta(0.5) == stratified.delta(0.5)


def test_answers_are_remembered_and_the_same_after_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> tuple[object, ...]:
        noise = RandomizedResponseAccountant(users=777, levels=2).smallest_noise_probability(1.0, 1e-5)
        accountant = RandomizedResponseAccountant(777, 2, noise)
        return noise, accountant.delta(1.0), accountant.epsilon(1e-5)

    found = answers()
    with monkeypatch.context() as patch:
        for name in ("profile_upper", "delta_lower", "epsilon_upper", "epsilon_lower", "smallest_noise_probability"):
            patch.delattr(blanket, name)
        assert answers() == found
    forget()
    assert answers() == found


def test_what_was_remembered_never_lets_a_wrong_argument_pass() -> None:
    RandomizedResponseAccountant(100, 1, 1.0).delta(1.0)
    with refusal("wrong-type", error=ParameterError):
        RandomizedResponseAccountant(100, True, 1.0).delta(1.0)
    with refusal("wrong-type", error=ParameterError):
        RandomizedResponseAccountant(100, 1, True).delta(1.0)
    with refusal("wrong-type", error=ParameterError):
        RandomizedResponseAccountant(100, 1, 1.0).delta(True)


def test_one_report_has_the_largest_log_ratio_of_its_probability_table() -> None:
    levels, gamma = 3, 0.2
    table = np.full((4, 4), gamma / 4) + np.eye(4) * (1 - gamma)
    largest = np.log(table[:, None, :] / table[None, :, :]).max()
    assert local_epsilon(levels=levels, noise_probability=gamma) == pytest.approx(largest, rel=1e-14)


@given(st.integers(1, 999), st.integers(1, 2**53 - 1), st.integers(1, 50), st.integers(1, 50))
def test_the_total_is_rounded_up_and_adds_over_coordinates_and_rounds(
    levels: int, numerator: int, coordinates: int, rounds: int
) -> None:
    gamma = Fraction(numerator, 2**53)
    single = math.log1p((levels + 1) * (1 - gamma) / gamma)
    value = local_epsilon(levels=levels, noise_probability=float(gamma), coordinates=coordinates, rounds=rounds)
    assert coordinates * rounds * single <= value <= coordinates * rounds * single * (1 + 1e-14) + 1e-300


def test_no_noise_leaves_nothing_and_pure_noise_leaves_all() -> None:
    assert local_epsilon(levels=1, noise_probability=0.0) == math.inf
    assert local_epsilon(levels=1, noise_probability=5e-324) == math.inf
    assert local_epsilon(levels=1, noise_probability=1.0, coordinates=7) == 0.0


@pytest.mark.parametrize(
    ("changed", "knob"),
    [
        ({"levels": 0}, "levels"),
        ({"coordinates": 0}, "coordinates"),
        ({"rounds": 0}, "rounds"),
        ({"noise_probability": 1.5}, "noise_probability"),
        ({"noise_probability": math.nan}, "noise_probability"),
    ],
)
def test_refusals_name_the_knob(changed: dict[str, float], knob: str) -> None:
    arguments = {"levels": 3, "noise_probability": 0.5} | changed
    with refusal("out-of-range", knob, error=ParameterError):
        local_epsilon(**arguments)  # type: ignore[arg-type]
