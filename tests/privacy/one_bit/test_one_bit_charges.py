"""Tails, windows and roundings of the ball's certificates, made large enough to matter, against exact values."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles.noisy_counts import weights_of
from tests.oracles.one_bit import call, ones_law
from tests.uncompiled_kernels import uncompiled

from shufflesum.privacy import one_bit as accountant
from shufflesum.privacy import one_bit as domination
from shufflesum.privacy.engine.gaussian import gaussian_profile_upper
from shufflesum.privacy.one_bit import OneBitAccountant, gdp_mu_per_unit, side_lower

mpmath = pytest.importorskip("mpmath")

AMPLITUDES = [Fraction(1, 8), Fraction(1, 2), Fraction(15, 16)]
NARROW = [{"_NEAR": 1.0, "_NEAR_DEVIATIONS": 0.3}, {"_NEAR": 3.0, "_NEAR_DEVIATIONS": 0.5}]
EPSILONS = [0.0, 0.1, 0.4, 1.0, 2.0]


def exact_law(high: int, low: int, amplitude: Fraction) -> list[Fraction]:
    return ones_law([(1 + amplitude) / 2] * high + [(1 - amplitude) / 2] * low)


@pytest.mark.parametrize("constants", NARROW)
@pytest.mark.parametrize("amplitude", AMPLITUDES)
@pytest.mark.parametrize(("high", "low"), [(0, 30), (20, 20), (12, 25)])
def test_a_narrow_window_knows_what_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch, high: int, low: int, amplitude: Fraction, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, domination, **constants)
    exact = exact_law(high, low, amplitude)
    terms, z, below, above, widening, error = domination.law(high, low, float(amplitude))
    mean = high * (1 + amplitude) / 2 + low * (1 - amplitude) / 2
    near = constants["_NEAR"] + constants["_NEAR_DEVIATIONS"] * math.sqrt((high + low) * (1 - amplitude**2) / 4)
    first = max(0, int(float(mean) - near))
    inside = sum(exact[first : first + terms.size])
    assert terms.size < len(exact)
    for bound, left_out in ((below, exact[:first]), (above, exact[first + terms.size :])):
        assert sum(left_out) / inside <= Fraction(float(bound)) * (1 + Fraction(1, 10**9))
        assert bool(left_out) == (bound > 0)
        assert bound <= 30 * sum(left_out) / inside
    for i, term in enumerate(terms):
        assert abs(Fraction(float(term)) * inside / exact[first + i] - 1) <= Fraction(float(widening))
    for i, steepness in enumerate(z):
        one, zero = exact[first + i], exact[first + i + 1]
        assert abs(Fraction(float(steepness)) - (one - zero) / (one + zero)) <= Fraction(float(error)) + Fraction(
            1, 2**50
        )


@pytest.mark.parametrize("far", [1.0, 6.0])
@pytest.mark.parametrize(("high", "low"), [(0, 60), (30, 30), (20, 41)])
def test_chains_begun_in_the_middle_enclose_the_ratios(
    monkeypatch: pytest.MonkeyPatch, high: int, low: int, far: float
) -> None:
    uncompiled(monkeypatch, domination, _NEAR=1.0, _NEAR_DEVIATIONS=0.3, _FAR=1.0 + far, _FAR_DEVIATIONS=0.3)
    amplitude = Fraction(1, 2)
    exact = exact_law(high, low, amplitude)
    terms, _, below, above, widening, error = domination.law(high, low, 0.5)
    assert error > 1e-6  # it matters here
    mean = float(high * (1 + amplitude) / 2 + low * (1 - amplitude) / 2)
    first = int(mean - 1.0 - 0.3 * math.sqrt((high + low) * 0.75 / 4))
    inside = sum(exact[first : first + terms.size])
    for i, term in enumerate(terms):
        assert abs(Fraction(float(term)) * inside / exact[first + i] - 1) <= Fraction(float(widening))
    if math.isfinite(below):
        assert sum(exact[:first]) / inside <= Fraction(float(below)) * (1 + Fraction(float(widening)))
    if math.isfinite(above):
        assert sum(exact[first + terms.size :]) / inside <= Fraction(float(above)) * (1 + Fraction(float(widening)))


@pytest.mark.parametrize("constants", NARROW)
@pytest.mark.parametrize("amplitude", AMPLITUDES)
def test_calls_count_what_a_narrow_window_leaves_out(
    monkeypatch: pytest.MonkeyPatch, amplitude: Fraction, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, domination, **constants)
    users, grid = 16, np.array([0.0, 0.05, 0.2, 0.5, 0.9])
    found = domination.worst_calls(users, float(amplitude), grid)
    for x, most in zip(grid, found, strict=True):
        exact = max(
            call(exact_law(high, users - 1 - high, amplitude), Fraction(float(x)), sign)
            for high in range(users)
            for sign in (1, -1)
        )
        assert exact <= Fraction(float(most)) <= 40 * exact + 2


@pytest.mark.parametrize("constants", [{}, *NARROW])
@pytest.mark.parametrize("amplitude", AMPLITUDES[:2])
def test_moments_count_what_a_narrow_window_leaves_out(
    monkeypatch: pytest.MonkeyPatch, amplitude: Fraction, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, domination, **constants)
    uncompiled(monkeypatch, domination, ORDERS=np.array([1.1, 2.0, 3.0, 9.0]))
    users, a = 12, float(amplitude)
    found = domination._curvatures.__wrapped__(users, a)
    for order, most in zip(domination.ORDERS, found, strict=True):
        exact = 0.0
        for high in range(users):
            padded = [Fraction(0), *exact_law(high, users - 1 - high, amplitude), Fraction(0)]
            atoms = [
                (float(one + zero) / 2, float((one - zero) / (one + zero))) for one, zero in itertools.pairwise(padded)
            ]
            for s in (a, -a):
                moment = math.fsum(u * (1 + s * z) ** order * (1 - s * z) ** (1 - order) for u, z in atoms)
                square = math.fsum(u * z**2 / (1 + s * z) for u, z in atoms)
                exact = max(exact, (moment - 1) / (4 * a * a), 0.5 * order * (order - 1) * square)
        assert most >= exact * (1 - 1e-11)
        assert constants or most <= exact * (1 + 1e-6)


@pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 7.0, 60.0])
def test_gaussian_profiles_are_rounded_up(mu: float) -> None:
    epsilons = [0.0, 1e-4, 0.1, 1.0, 5.0, 20.0]
    with mpmath.workdps(60):
        for epsilon, most in zip(epsilons, gaussian_profile_upper(mu, np.array(epsilons)), strict=True):
            exact = gaussian(mpmath.mpf(mu), mpmath.mpf(epsilon))
            assert exact <= mpmath.mpf(float(most))
            near = exact + 1e-12 * mpmath.ncdf(mu / 2 - epsilon / mu)
            assert mpmath.mpf(float(most)) <= near + mpmath.mpf("1e-299") or most == 1.0


def gaussian(mu: Any, epsilon: Any) -> Any:
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("amplitude", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("m", [0.003, 0.1, 2.0])
def test_the_gaussian_side_of_the_condition_is_rounded_down(m: float, amplitude: float) -> None:
    grid = np.array([0.0, 1e-3, 0.02, 0.2, 0.7])
    exponents = np.array([0.0, 2e-3, 0.04, 0.4, 1.6])
    found = side_lower(m, amplitude, grid, exponents)
    with mpmath.workdps(60):
        for x, exponent, least in list(zip(grid, exponents, found, strict=True))[1:]:
            w = 2 * mpmath.mpf(amplitude) * mpmath.mpf(float(exponent))
            exact = mpmath.mpf(float(x)) * gaussian(2 * mpmath.mpf(amplitude) * mpmath.mpf(m), w) / mpmath.expm1(w)
            assert mpmath.mpf(float(least)) <= exact
            assert least >= float(exact) * (1 - 1e-5) - 1e-280


@pytest.mark.parametrize("charge", [1e-9, 0.01, 0.5])
@pytest.mark.parametrize(("coordinates", "rounds", "bits"), [(1, 1, 1), (64, 3, 2)])
def test_delta0_of_every_count_is_charged(coordinates: int, rounds: int, bits: int, charge: float) -> None:
    ball = OneBitAccountant(500, coordinates, 0.25, 2.0, rounds, bits)
    delta0 = Fraction(ball._delta0(charge))
    exact = (1 + delta0) ** (coordinates * rounds * bits) - 1
    assert exact <= Fraction(ball._charged(charge)) <= exact * (1 + Fraction(1, 2))
    assert ball._gaussian_delta(0.5, charge) >= min(1.0, float(exact))
    assert delta0 * coordinates * rounds * bits == pytest.approx(charge)
    with mpmath.workdps(40):
        m = mpmath.mpf(gdp_mu_per_unit(500, 0.25, float(delta0)))
        exact_mu = m * 2 * mpmath.mpf("0.25") * mpmath.sqrt(coordinates * rounds * bits) / 2
        assert exact_mu < mpmath.mpf(ball.mu(charge)) < exact_mu * (1 + mpmath.mpf(2) ** -46)


@pytest.mark.parametrize(("amplitude", "tau"), [(0.3, 1.7), (0.1, 3.3), (0.7, 2.9), (0.9, 1.1)])
def test_squares_of_moments_are_rounded_up(amplitude: float, tau: float) -> None:
    exact = 4 * Fraction(amplitude) ** 2 / Fraction(tau) ** 2
    found = Fraction(OneBitAccountant(100, 8, amplitude, tau)._moments[2])
    assert exact * (1 + Fraction(4, 2**52)) < found < exact * (1 + Fraction(1, 2**48))


@pytest.mark.parametrize("constants", [{}, *NARROW])
def test_worlds_of_a_narrow_window_are_below(monkeypatch: pytest.MonkeyPatch, constants: dict[str, float]) -> None:
    uncompiled(monkeypatch, domination, **constants)
    uncompiled(monkeypatch, accountant)
    bias = Fraction(3, 8)
    for bits in (1, 2):
        for high in (0, 12):
            worlds = (high + 1, 24 - high), (high, 25 - high)
            laws = [exact_law(bits * up, bits * down, bias) for up, down in worlds]
            for first, second in ((0, 1), (1, 0)):
                upper, lower, error = accountant._shown(worlds[first], worlds[second], bits, 0.375)
                for weight in weights_of(EPSILONS):
                    exact = sum(
                        max(Fraction(0), p - weight * q) for p, q in zip(laws[first], laws[second], strict=True)
                    )
                    found = sum(
                        max(Fraction(0), Fraction(float(p)) - weight * Fraction(float(q)))
                        for p, q in zip(upper, lower, strict=True)
                    )
                    assert found <= exact * (1 + Fraction(float(error))) + Fraction(float(error))
                    assert constants or found >= exact * (1 - Fraction(1, 10**9)) - Fraction(1, 10**12)


@pytest.mark.parametrize(("coordinates", "tau"), [(8, 2.0), (100, 3.3), (5, 1.0), (7, 10.0)])
def test_neighbours_keep_within_the_norm(coordinates: int, tau: float) -> None:
    for changed, y in accountant._changed_coordinates(coordinates, tau):
        assert 1 <= changed <= coordinates
        assert 0 < y <= 1
        assert changed * Fraction(y) ** 2 <= coordinates / Fraction(tau) ** 2 or changed == 1


def test_the_bound_of_a_gaussian_pair_is_a_chance() -> None:
    assert gaussian_profile_upper(80.0, np.array([0.0, 1.0])).tolist() == [1.0, 1.0]


def test_in_a_budget_a_ball_costs_what_its_gaussian_pair_does() -> None:
    """Its mu, and apart from it the charge of the pair's proof."""
    certified = OneBitAccountant(100_000, 8, 0.3, 2.0)
    found = certified.dominating_gaussian(1e-6)
    assert found is not None
    mu, charge = found
    assert 0 < charge <= 1e-6
    assert mu == pytest.approx(certified.mu(charge), rel=0.01)


@pytest.mark.parametrize("copies", [1, 4096])
def test_what_all_coordinates_are_charged_together_is_rounded_up(copies: int) -> None:
    certified = OneBitAccountant(1000, copies, 0.3, 2.0)
    for charge in (1e-3, 1e-8):
        exact = mpmath.expm1(mpmath.mpf(copies) * mpmath.mpf(certified._delta0(charge)))
        assert exact * (1 + 5e-13) <= certified._charged(charge) <= exact * (1 + 2e-12)
