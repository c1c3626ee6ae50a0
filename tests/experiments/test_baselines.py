from __future__ import annotations

import itertools
import math

import pytest

from shufflesum.experiments.baselines import (
    curator_error,
    gaussian_noise,
    local_choice,
    local_delta,
    local_noise_probability,
)
from shufflesum.privacy import local_epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 1e-6), (0.95, 1e-6), (4.0, 1e-6), (1.0, 1e-3)])
def test_gaussian_noise_is_the_least_that_another_accountant_accepts(epsilon: float, delta: float) -> None:
    mechanism = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    noise = gaussian_noise(epsilon, delta)
    assert mechanism.GaussianPrivacyLoss(noise).get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)
    assert mechanism.GaussianPrivacyLoss(0.99 * noise).get_delta_for_epsilon(epsilon) > 1.01 * delta


def test_the_curators_error_is_that_of_noise_for_the_whole_vector() -> None:
    mechanism = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    deviation = math.sqrt(curator_error(2000, 30, 0.95, 1e-6) / 30)
    loss = mechanism.GaussianPrivacyLoss(deviation, sensitivity=math.sqrt(30) / 2000)
    assert loss.get_delta_for_epsilon(0.95) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(("levels", "coordinates"), [(1, 1), (1, 4), (2, 3), (3, 3)])
@pytest.mark.parametrize("gamma", [0.3, 0.8])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_local_delta_is_that_of_all_outcomes(levels: int, coordinates: int, gamma: float, epsilon: float) -> None:
    def chance(reported: int, value: int) -> float:
        return gamma / (levels + 1) + (1 - gamma) * (reported == value)

    delta = 0.0
    for outcome in itertools.product(range(levels + 1), repeat=coordinates):
        first = math.prod(chance(reported, 0) for reported in outcome)
        second = math.prod(chance(reported, 1) for reported in outcome)
        delta += max(0.0, first - math.exp(epsilon) * second)
    assert local_delta(levels, coordinates, gamma, epsilon) == pytest.approx(delta, abs=1e-14)


@pytest.mark.parametrize(("levels", "coordinates"), [(1, 1), (1, 100), (3, 10)])
def test_local_noise_is_enough_and_barely(levels: int, coordinates: int) -> None:
    gamma = local_noise_probability(levels, coordinates, 0.95, 1e-6)
    assert local_delta(levels, coordinates, gamma, 0.95) <= 1e-6
    assert local_delta(levels, coordinates, gamma * (1 - 1e-4), 0.95) > 1e-6


def test_one_local_report_needs_what_the_local_guarantee_says() -> None:
    gamma = local_noise_probability(3, 1, 0.95, 1e-9)
    assert local_epsilon(levels=3, noise_probability=gamma) == pytest.approx(0.95, rel=1e-6)


def test_the_local_choice_keeps_its_promise() -> None:
    choice = local_choice(10_000, 100, 4.0, 1e-6)
    assert 1 <= choice.coordinates <= 100
    assert local_delta(choice.levels, choice.coordinates, choice.noise_probability, 4.0) <= 1e-6
