"""Sums of vectors with discrete Gaussian noise: the accountant against full enumeration, and the lemmas it rests on."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.oracles import noisy_sums as oracle
from tests.refusals import refusal

from shufflesum.privacy import DiscreteGaussianAccountant, NoiseDistribution, discrete_gaussian, least_discrete_gaussian
from shufflesum.privacy.engine.gaussian import gaussian_noise, gaussian_profile_upper

EPSILONS = (0.0, 0.1, 0.5, 1.0, 1.7, 3.0)


def table(sigma: float, half_length: int) -> NoiseDistribution:
    return NoiseDistribution(2.0, sigma * math.sqrt(2.0), half_length)


ONE = DiscreteGaussianAccountant((table(2.5, 13),), 1, 4, 1, shown_shift=2)
TWO_COORDINATES = DiscreteGaussianAccountant((table(2.2, 9),), 1, 5, 2, shown_coordinates=2)
STRIDED = DiscreteGaussianAccountant((table(4.0, 19), table(1.6, 8)), 2, 9, 1, shown_shift=3)
SHORT = DiscreteGaussianAccountant((table(3.0, 6),), 1, 4, 1, shown_shift=2)  # much of delta is at its ends


def law(accountant: DiscreteGaussianAccountant) -> oracle.Law:
    return oracle.noise([noise.weights for noise in accountant.noise], stride=accountant.stride)


def weight(epsilon: float, side: int) -> Fraction:
    """An e^epsilon that is a little smaller (-1: more delta) or larger (1: less) than the true one."""
    return Fraction(math.exp(epsilon)) * (1 + side * Fraction(1, 2**49))


def shown(accountant: DiscreteGaussianAccountant, epsilon: float, side: int) -> list[Fraction]:
    """What all shifts show, in all coordinates and rounds together."""
    moves = oracle.moves_within(accountant.squared_shift, accountant.coordinates)
    return [oracle.delta(law(accountant), move, weight(epsilon, side)) for move in moves]


@pytest.mark.parametrize("accountant", [ONE, STRIDED, SHORT], ids=["one", "strided", "short"])
def test_bounds_enclose_the_enumerated_delta_of_all_shifts(accountant: DiscreteGaussianAccountant) -> None:
    for epsilon in EPSILONS:
        bounds = accountant.delta(epsilon)
        assert max(shown(accountant, epsilon, 1)) <= Fraction(bounds.upper), epsilon
        assert Fraction(bounds.lower) <= max(shown(accountant, epsilon, -1)), epsilon
        assert bounds.lower >= 0.5 * float(max(shown(accountant, epsilon, 1))) - 1e-9


def test_bounds_hold_in_all_directions_of_two_coordinates() -> None:
    for epsilon in (0.1, 1.0):
        bounds = TWO_COORDINATES.delta(epsilon)
        assert max(shown(TWO_COORDINATES, epsilon, 1)) <= Fraction(bounds.upper)
        assert Fraction(bounds.lower) <= max(shown(TWO_COORDINATES, epsilon, -1))


def test_two_rounds_are_two_coordinates_that_may_be_shifted_by_as_much_each() -> None:
    rounds = dataclasses.replace(ONE, rounds=2)
    for epsilon in (0.5, 1.7):
        most = oracle.delta(law(ONE), (2, -2), weight(epsilon, 1))
        assert most <= Fraction(rounds.delta_upper(epsilon))
        assert rounds.delta_lower(epsilon) <= float(most) * (1 + 1e-9)


def test_shifts_of_a_larger_norm_are_not_covered() -> None:
    for accountant, move in ((ONE, 3), (STRIDED, 5)):
        assert any(
            oracle.delta(law(accountant), (move,), weight(e, 1)) > Fraction(accountant.delta_upper(e)) for e in EPSILONS
        )


@pytest.mark.parametrize("accountant", [ONE, STRIDED], ids=["one", "strided"])
def test_less_noise_than_the_certified_one_is_noticed(accountant: DiscreteGaussianAccountant) -> None:
    first, *rest = accountant.noise
    less = NoiseDistribution(2.0, first.scale * 0.8, first.half_length)
    other = dataclasses.replace(accountant, noise=(less, *rest))
    assert any(max(shown(other, e, 1)) > Fraction(accountant.delta_upper(e)) for e in EPSILONS)


def test_ends_that_are_cut_off_are_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discrete_gaussian, "_apart", lambda noise: 0.0)
    assert float(max(shown(SHORT, 1.7, 1))) > discrete_gaussian._profile(SHORT, np.array([1.7]))[0]


def test_a_gaussian_of_the_same_variance_is_no_bound() -> None:
    above = 0
    for sigma in (0.8, 1.0, 1.5):
        exact = DiscreteGaussianAccountant((table(sigma, math.ceil(9 * sigma)),), 1, 1, 1)
        for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
            gaussian = gaussian_profile_upper(1.0 / sigma, np.array([epsilon]))[0]
            true = float(max(shown(exact, epsilon, 1)))
            above += true > gaussian * (1 + 1e-6)
            assert true <= exact.delta_upper(epsilon)
    assert above > 3


@pytest.mark.parametrize("spare", [0.15, 0.3, 0.5])
def test_discrete_noise_is_made_of_a_continuous_gaussian_within_kappa(spare: float) -> None:
    """X given Y ~ N(0, s1^2) is a whole number x with chances proportional to exp(-(x - Y)^2/(2 s2^2))."""
    variance = 3.0
    ys = np.linspace(-14.0, 14.0, 28 * 400 + 1)
    density = np.exp(-(ys**2) / (2 * (variance - spare))) / math.sqrt(2 * math.pi * (variance - spare))
    xs = np.arange(-20, 21)
    kernel = np.exp(-((xs[:, None] - ys) ** 2) / (2 * spare))
    made = (kernel / kernel.sum(axis=0)) @ density / 400
    true = oracle.discrete_gaussian(variance, 6)
    worst = max(abs(math.log(made[x + 20] / true[x])) for x in true)
    kappa = discrete_gaussian.domination(variance, spare)
    assert worst <= kappa
    assert worst >= kappa / 50  # so the test sees it


@pytest.mark.parametrize("part", [0.5, 0.7, 1.0])
def test_two_tables_are_one_discrete_gaussian_within_kappa(part: float) -> None:
    stride, second = 5, 2.0
    first = (part * stride) ** 2
    fine, coarse = oracle.discrete_gaussian(first, 60), oracle.discrete_gaussian(second, 14)
    made = {x: math.fsum(coarse[z] * fine.get(x - stride * z, 0.0) for z in coarse) for x in range(-15, 16)}
    true = oracle.discrete_gaussian(first + stride**2 * second, 15)
    worst = max(abs(math.log(made[x] / true[x])) for x in true)
    kappa = discrete_gaussian.strided(first, second, stride)
    assert worst <= kappa
    assert worst >= kappa / 10


def test_a_stride_that_leaves_gaps_is_not_certified() -> None:
    gaps = DiscreteGaussianAccountant((table(1.0, 4), table(3.0, 6)), 8, 4, 1, shown_shift=2)
    assert gaps.delta_upper(1.0) == 1.0
    assert max(shown(gaps, 1.0, 1)) > Fraction(1, 3)


TARGETS = [(1.0, 1, 512, 8192, 1), (1.0, 1, 512, 8192, 100), (8.0, 1, 1024, 100, 30), (0.5, 400, 1, 400, 10)]


@pytest.mark.parametrize(("epsilon", "cells", "shift", "coordinates", "rounds"), TARGETS)
def test_the_least_noise_is_nearly_the_analytic_gaussian(
    epsilon: float, cells: int, shift: int, coordinates: int, rounds: int
) -> None:
    squared = cells * shift**2
    found = least_discrete_gaussian(
        epsilon,
        1e-6,
        squared_shift=squared,
        coordinates=coordinates,
        rounds=rounds,
        shown_shift=shift,
        shown_coordinates=cells,
    )
    assert 0.99e-6 < found.delta_lower(epsilon) <= found.delta_upper(epsilon) <= 1e-6
    strides = (1, found.stride)
    variance = sum(n.variance * stride**2 for n, stride in zip(found.noise, strides, strict=False))
    assert variance <= 1.0005 * gaussian_noise(epsilon, 1e-6) ** 2 * squared * rounds
    assert all(n.half_length < 8000 for n in found.noise)
    bounds = found.epsilon(1e-6)
    assert 0.999 * epsilon < bounds.lower <= bounds.upper <= epsilon * (1 + 1e-9)
    assert found.delta_upper(bounds.upper) <= 1e-6


def test_its_losses_dominate_where_they_are_exported() -> None:
    found = least_discrete_gaussian(1.0, 1e-6, squared_shift=400, coordinates=400, shown_coordinates=400)
    pld = found.pld(1e-3)
    for epsilon in (0.0, 0.3, 1.0, 2.0, 5.0):
        assert found.delta_lower(epsilon) <= pld.delta_upper(epsilon)
        assert found.delta_upper(epsilon) <= pld.delta_upper(epsilon) * (1 + 1e-9)
    assert pld.delta_upper(1.0) <= 1.01e-6


def test_large_epsilons_are_bounded_by_smaller_ones() -> None:
    least = discrete_gaussian._least(SHORT)[0]
    assert SHORT.delta_upper(least + 5.0) == SHORT.delta_upper(least)
    assert SHORT.epsilon_upper(1e-12) == math.inf


@pytest.mark.parametrize(
    "wrong",
    [
        {"noise": (NoiseDistribution(1.5, 3.0, 9),)},
        {"noise": ()},
        {"noise": (table(2.0, 9),) * 3},
        {"noise": (table(2.0, 9), 7)},
        {"stride": 2},
        {"stride": 0},
        {"squared_shift": 0},
        {"coordinates": 0},
        {"rounds": 0},
        {"shown_shift": 3},
        {"shown_coordinates": 2},
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with refusal(("out-of-range", "wrong-type", "conflicting-arguments")):
        dataclasses.replace(ONE, **wrong)


def test_targets_out_of_reach_are_refused() -> None:
    with refusal("privacy-out-of-reach"):
        least_discrete_gaussian(1e-4, 1e-12, squared_shift=1 << 50, coordinates=10, rounds=1000)
    with refusal("out-of-range"):
        least_discrete_gaussian(0.0, 1e-6, squared_shift=1, coordinates=1)
