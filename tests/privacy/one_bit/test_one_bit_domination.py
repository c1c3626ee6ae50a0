"""A Gaussian pair above every coordinate's: each step of the proof, and the whole in rational numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfcx, log_ndtr
from tests.oracles.one_bit import gaussian_delta, ones_law, shown

from shufflesum.privacy.engine.gaussian import gaussian_profile_upper
from shufflesum.privacy.one_bit import gdp_mu_per_unit, side_lower, thresholds

DELTA0 = 1e-12


def exponent_bound(x: float, a: float) -> float:
    """E of the condition, written out once more."""
    first = math.log((1 + x * a) / (1 - x * a)) - x * a / (1 + x * a)
    return math.sqrt(((first / a) ** 2 + (x / (1 + x * a)) ** 2) / 2)


@given(st.floats(0.001, 0.999), st.floats(0.01, 0.99), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_pair_has_a_larger_loss_for_its_size_than_the_condition_says(x: float, a: float, i: float, j: float) -> None:
    s, other = a * i, a * j
    size = math.sqrt(2 * (s**2 + other**2))
    if size > 1e-6:
        assert math.log((1 + x * s) / (1 - x * other)) / size <= exponent_bound(x, a) * (1 + 1e-9)


def gamma(mu: float, t: float) -> float:
    """G_mu(e^(mu t))/(e^(mu t) - 1)."""
    b = mu / 2
    mills = math.sqrt(math.pi / 2) * (float(erfcx((t - b) / math.sqrt(2))) - float(erfcx((t + b) / math.sqrt(2))))
    return math.exp(-(t**2 + b**2) / 2) * mills / (2 * math.sqrt(2 * math.pi) * math.sinh(b * t))


@given(st.floats(0.01, 6.0), st.floats(0.01, 8.0), st.floats(1.01, 2.0))
def test_what_a_gaussian_pair_shows_per_weight_falls_in_its_size_and_in_the_threshold(
    mu: float, t: float, factor: float
) -> None:
    assert gamma(mu * factor, t) < gamma(mu, t) * (1 + 1e-9)
    assert gamma(mu, t * factor) < gamma(mu, t) * (1 + 1e-9)


@given(st.floats(1e-4, 20.0), st.floats(0.0, 60.0))
def test_the_gaussian_profile_is_bounded_closely(mu: float, epsilon: float) -> None:
    t, b = epsilon / mu, mu / 2
    near, far = float(log_ndtr(b - t)), float(log_ndtr(-b - t)) + epsilon
    truth = math.exp(near) * -math.expm1(min(far - near, 0.0))
    bound = float(gaussian_profile_upper(mu, np.array([epsilon]))[0])
    slack = 1e-10 * math.exp(near)  # what scipy's logarithms may be off
    assert truth - slack - 1e-300 <= bound <= truth + slack + 1e-250


def test_the_gaussian_side_is_below_the_truth_and_near() -> None:
    a, m = 0.3, 0.05
    grid = np.linspace(0.0, 0.3, 300)
    exponents = np.array([exponent_bound(float(x), a) for x in grid])
    computed = side_lower(m, a, grid, exponents)
    truth = np.array([x * gamma(2 * a * m, e / m) for x, e in zip(grid[1:], exponents[1:], strict=True)])
    assert np.all(computed[1:] <= truth * (1 + 1e-11))
    np.testing.assert_allclose(computed[1:], truth, rtol=1e-9)


def pairs(amplitude: Fraction, weight: float, parts: int = 8) -> Iterator[tuple[Fraction, Fraction]]:
    """Pairs (s, s') on a grid of the box, and near the worst ones of each size."""
    steps = [amplitude * Fraction(i, 3) for i in range(-3, 4)]
    yield from itertools.product(steps, steps)
    for part in range(1, parts + 1):
        v = 2 * float(amplitude) * part / parts
        other = min(float(amplitude), v * weight / math.sqrt(2 * (1 + weight**2)))
        s = min(float(amplitude), math.sqrt(max(0.0, v**2 / 2 - other**2)))
        first, second = (Fraction(round(x * 10**6), 10**6) for x in (s, other))
        yield min(first, amplitude), -min(second, amplitude)
        yield -min(first, amplitude), min(second, amplitude)


def caught(users: int, amplitude: Fraction, mu_of: Callable[[float, float], float], weights: list[float]) -> int:
    """How many pairs of one coordinate lie above the Gaussian pair with this mu, over all positions of the others."""
    found = 0
    for high in range(users):
        law = ones_law([(1 + amplitude) / 2] * high + [(1 - amplitude) / 2] * (users - 1 - high))
        for weight in weights:
            for s, other in pairs(amplitude, weight):
                mu = mu_of(float(s), float(other))
                if mu < 1e-9:
                    continue
                delta = float(shown(law, s, other, Fraction(weight)))
                found += delta > gaussian_delta(mu, weight) * (1 + 1e-5) + DELTA0
    return found


SETTINGS = [(2, Fraction(1, 2)), (5, Fraction(3, 10)), (9, Fraction(1, 10))]
WEIGHTS = [1.0, 1.1, 1.5, 2.5]


@pytest.mark.long
@pytest.mark.parametrize(("users", "amplitude"), SETTINGS)
def test_every_pair_of_a_coordinate_is_below_its_gaussian_pair(users: int, amplitude: Fraction) -> None:
    m = gdp_mu_per_unit(users, float(amplitude), DELTA0)
    assert caught(users, amplitude, lambda s, other: m * math.sqrt(2 * (s**2 + other**2)), WEIGHTS) == 0


@pytest.mark.long
@pytest.mark.parametrize(("users", "amplitude"), [*SETTINGS[:2], pytest.param(*SETTINGS[2], marks=pytest.mark.slow)])
def test_a_slightly_smaller_gaussian_pair_would_be_caught(users: int, amplitude: Fraction) -> None:
    m = 0.9 * gdp_mu_per_unit(users, float(amplitude), DELTA0)
    weights = [float(w) for w in np.geomspace(1.0, (1 + float(amplitude)) / (1 - float(amplitude)) * 0.999, 12)]
    assert caught(users, amplitude, lambda s, other: m * math.sqrt(2 * (s**2 + other**2)), weights) > 0


@pytest.mark.long
@pytest.mark.parametrize(("users", "amplitude"), SETTINGS)
def test_a_gaussian_pair_from_the_difference_alone_would_be_caught(users: int, amplitude: Fraction) -> None:
    m = gdp_mu_per_unit(users, float(amplitude), DELTA0)
    assert caught(users, amplitude, lambda s, other: m * abs(s - other), WEIGHTS) > 0


def test_the_condition_fails_below_the_strength_and_holds_above() -> None:
    laid = thresholds(1000, 0.3)
    m = gdp_mu_per_unit(1000, 0.3, 1e-12)
    assert laid.holds(m, 1e-12)
    assert laid.holds(1.1 * m, 1e-12)
    assert not laid.holds(0.999 * m, 1e-12)
    assert gdp_mu_per_unit(1000, 0.3, 1e-18) > m > gdp_mu_per_unit(1000, 0.3, 1e-6)


def test_no_gaussian_pair_hides_a_bit_that_is_hardly_noisy() -> None:
    assert gdp_mu_per_unit(100, 0.999, 1e-12) == math.inf
