from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import ArrayLike

from shufflesum.domains import Arrays
from shufflesum.privacy.engine import gaussian
from shufflesum.privacy.engine.gaussian import gaussian_noise


def curator_error(users: int, widths: ArrayLike, epsilon: float, delta: float, rounds: int = 1) -> float:
    """For arrays with bounds of these widths."""
    box = Arrays(len(np.ravel(widths)), (0.0, widths))
    return gaussian.curator_error(users, box.central_sensitivity, epsilon, delta, rounds)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.25, 1e-6), (0.95, 1e-6), (4.0, 1e-6), (1.0, 1e-3)])
def test_gaussian_noise_is_the_least_that_another_accountant_accepts(epsilon: float, delta: float) -> None:
    mechanism = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    noise = gaussian_noise(epsilon, delta)
    assert mechanism.GaussianPrivacyLoss(noise).get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)
    assert mechanism.GaussianPrivacyLoss(0.99 * noise).get_delta_for_epsilon(epsilon) > 1.01 * delta


def test_the_curators_error_is_that_of_noise_for_the_whole_vector() -> None:
    mechanism = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    deviation = math.sqrt(curator_error(2000, [1.0] * 30, 0.95, 1e-6) / 30)
    loss = mechanism.GaussianPrivacyLoss(deviation, sensitivity=math.sqrt(30) / 2000)
    assert loss.get_delta_for_epsilon(0.95) == pytest.approx(1e-6, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.95, 1e-6), (4.0, 1e-9), (8.0, 1e-3)])
def test_for_one_number_laplace_noise_is_better(epsilon: float, delta: float) -> None:
    """Noise of scale 1/epsilon has variance 2/epsilon^2, whatever delta is."""
    assert curator_error(1000, [1.0], epsilon, delta) == pytest.approx(2 / epsilon**2 / 1000**2)
    assert 2 / epsilon**2 < gaussian_noise(epsilon, delta) ** 2


def test_for_one_number_at_a_large_delta_gaussian_noise_is_better() -> None:
    assert curator_error(1000, [1.0], 0.1, 0.05) == pytest.approx(gaussian_noise(0.1, 0.05) ** 2 / 1000**2)
    assert gaussian_noise(0.1, 0.05) ** 2 < 2 / 0.1**2


def test_laplace_noise_serves_few_numbers_and_gaussian_noise_many() -> None:
    """At epsilon 0.95, delta 1e-6 a variance of 19.6 d^2 against 2.2 d^3: they meet between 8 and 9 numbers."""
    laplace = [2 / 0.95**2 * d**3 for d in (8, 9)]
    gaussian = [gaussian_noise(0.95, 1e-6) ** 2 * d**2 for d in (8, 9)]
    assert laplace[0] < gaussian[0]
    assert gaussian[1] < laplace[1]
    assert curator_error(1, [1.0] * 8, 0.95, 1e-6) == pytest.approx(laplace[0])
    assert curator_error(1, [1.0] * 9, 0.95, 1e-6) == pytest.approx(gaussian[1])


@pytest.mark.parametrize(("copies", "laplace"), [(2, True), (20, False)], ids=["Laplace", "Gaussian"])
def test_noise_is_shared_among_widths_as_well_as_it_can_be(copies: int, laplace: bool) -> None:
    """No other way to share privacy out among the coordinates has a smaller error; equal shares are much worse."""
    widths = np.array([0.1, 1.0, 2.0, 30.0] * copies)
    best = curator_error(10, widths, 0.95, 1e-6)
    power, cost = (1, 2 / 0.95**2) if laplace else (2, gaussian_noise(0.95, 1e-6) ** 2)

    def error(shares: np.ndarray) -> float:
        """Shares of epsilon for Laplace noise, of the squared sensitivity for Gaussian noise."""
        return float(cost * np.sum(widths**2 / shares ** (2 / power))) / 10**2

    shares = widths ** (2 / 3 if laplace else 1)
    shares /= shares.sum()
    assert best == pytest.approx(error(shares))
    random = np.random.default_rng(1)
    for size in (0.01, 0.1, 1.0):
        for _ in range(50):
            other = shares * np.exp(size * random.standard_normal(len(shares)))
            assert error(other / other.sum()) >= best * (1 - 1e-12)
    assert error(np.full(len(shares), 1 / len(shares))) > 1.5 * best


def test_widths_scale_the_error_by_their_square() -> None:
    for widths in ([1.0], [1.0] * 40, [0.5, 3.0]):
        assert curator_error(10, 7 * np.array(widths), 1.0, 1e-6) == pytest.approx(
            49 * curator_error(10, widths, 1.0, 1e-6)
        )


def test_rounds_cost_their_number_with_gaussian_noise_and_its_square_with_laplace_noise() -> None:
    many, one = [1.0] * 100, [1.0]
    assert curator_error(10, many, 1.0, 1e-6, 3) == pytest.approx(3 * curator_error(10, many, 1.0, 1e-6))
    assert curator_error(10, one, 1.0, 1e-6, 3) == pytest.approx(9 * curator_error(10, one, 1.0, 1e-6))
    many_rounds = curator_error(10, one, 1.0, 1e-6, 100)
    assert many_rounds == pytest.approx(100 * gaussian_noise(1.0, 1e-6) ** 2 / 10**2)
