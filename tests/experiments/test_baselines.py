from __future__ import annotations

import itertools
import math

import pytest

from experiments.comparisons import local_choice, local_delta, local_noise_probability
from shufflesum.privacy import local_epsilon


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
