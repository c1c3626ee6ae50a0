"""What replaced reports are charged for roundings, place by place: made large enough, or met where it matters."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.privacy.nodes import assert_read_below_each_node
from tests.uncompiled_kernels import uncompiled

from shufflesum.privacy.engine.laws import Mixture, binomial_window
from shufflesum.privacy.randomized_response import blanket, direct, schemes
from shufflesum.privacy.randomized_response.schemes import Subsets

mpmath = pytest.importorskip("mpmath")

LARGE = 1e-6
GAMMAS = [float(gamma) for gamma in np.linspace(0.01, 0.99, 197)]


@pytest.fixture
def large_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (direct, direct, blanket, direct, schemes):
        monkeypatch.setattr(module, "slack", lambda steps: LARGE * steps)


# One report


def test_no_more_is_shown_than_the_chance_of_a_truthful_report_rounded_up() -> None:
    """A single user: delta is 1 - gamma at epsilon 0."""
    for gamma in GAMMAS:
        (found,) = blanket.profile_upper(1, 3, gamma, np.zeros(1))
        assert Fraction(float(found)) >= 1 - Fraction(gamma)


def test_drifts_of_the_blanket_are_rounded_down_and_those_of_the_third_value_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {}
    for rounding in (0.0, 2.0**-20):
        uncompiled(monkeypatch, blanket, ROUNDING=rounding)
        found[rounding] = blanket.blanket_mixture(12, 4, 0.25).shifts, blanket.third_value_mixture(12, 4, 0.25)
    np.testing.assert_allclose(found[2.0**-20][0], found[0.0][0] * (1 - 8 * 2.0**-20), rtol=1e-12)
    exact, rough = (found[rounding][1].shifts for rounding in (0.0, 2.0**-20))
    assert (rough >= exact * (1 + 32 * 2.0**-20 * 64)).all()


# All others alike


@pytest.mark.parametrize("cells", [2, 5])
def test_each_threshold_among_equal_users_is_moved_for_itself_and_for_where_it_is_read(
    monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """E(j - b)+ and E(b - j)+ with h at its mean, at thresholds moved by an allowance of 1/100, twice.

    What it stands for are a dozen roundings at most, of the numbers that a threshold is made of.
    """
    assert blanket._ALLOWANCE >= 12 * 2.0**-53
    users, gamma, allowed = 6, 0.5, 0.01
    uncompiled(monkeypatch, blanket, _ALLOWANCE=allowed)
    weights = np.exp([0.0, 0.2, 0.7])
    down, up, _ = blanket._sum_over_hits(users, cells, gamma, weights)
    p = gamma / cells
    law = [math.comb(users, b) * p**b * (1 - p) ** (users - b) for b in range(users + 1)]
    u0 = gamma * (cells - 1) / (cells - gamma)
    u1 = ((1 - gamma) * cells / gamma + (1 - gamma) * cells / (cells - gamma)) / users
    for w, fallen, risen in zip(weights, down, up, strict=True):
        j = (1 - w * u0 - allowed * (1 + w * u0)) / (w * u1)
        j -= allowed * abs(j)
        assert fallen == pytest.approx(w * u1 * sum(m * max(0.0, j - b) for b, m in enumerate(law)), abs=1e-12)
        j = (w - u0 + allowed * w) / u1
        j += allowed * abs(j)
        assert risen == pytest.approx(u1 * sum(m * max(0.0, b - j) for b, m in enumerate(law)), abs=1e-12)


@pytest.mark.parametrize("users", [5, 300])  # of many no window begins at 0
def test_each_threshold_is_moved_where_both_counts_are_summed_over(monkeypatch: pytest.MonkeyPatch, users: int) -> None:
    cells, gamma, allowed = 4, 0.5, 0.01
    uncompiled(monkeypatch, blanket, _ALLOWANCE=allowed)
    weights = np.exp([0.0, 0.2, 0.7])
    down, up, _ = blanket._sum_over_both(users, cells, gamma, weights)
    hit, stay = gamma / cells, 1 - gamma + gamma / cells
    r, slope = hit / stay, (1 - gamma) / stay / users
    other = gamma * (cells - 2) / (cells - gamma)
    for w, fallen, risen in zip(weights, down, up, strict=True):
        falling = rising = 0.0
        for b in range(users + 1):
            weight = math.comb(users, b) * hit**b * (1 - hit) ** (users - b)
            rest = users - b
            law = [math.comb(rest, o) * other**o * (1 - other) ** (rest - o) for o in range(rest + 1)]
            first, *_ = binomial_window(rest, other, other / (1 - other), blanket._OUTSIDE)
            v = (r * rest + b / r) / users
            j = (1 - w * v - allowed * (1 + w * v)) / (w * slope)
            j -= allowed * (abs(j) + first)
            falling += weight * w * slope * sum(m * max(0.0, j - o) for o, m in enumerate(law))
            j = (w - v + allowed * (w + v)) / slope
            j += allowed * (abs(j) + first)
            rising += weight * slope * sum(m * max(0.0, o - j) for o, m in enumerate(law))
        assert fallen == pytest.approx(falling, abs=1e-12)
        assert risen == pytest.approx(rising, abs=1e-12)


@pytest.mark.parametrize(("users", "cells"), [(50, 2), (30, 4)])
def test_a_lower_bound_among_equal_users_shrinks_by_its_roundings(
    monkeypatch: pytest.MonkeyPatch, users: int, cells: int
) -> None:
    (before,) = blanket.one_value_lower(users, cells, 0.5, np.zeros(1))
    monkeypatch.setattr(blanket, "slack", lambda steps: LARGE * steps)
    (after,) = blanket.one_value_lower(users, cells, 0.5, np.zeros(1))
    assert after <= before * (1 - 4 * LARGE * 20)


# Two values


@pytest.mark.usefixtures("large_slack")
def test_laws_of_two_values_count_their_roundings() -> None:
    _, _, error = direct._others(20, 10, 0.5)
    assert error >= 4 * LARGE * 30
    for pair in direct.one_value_plds(20, 0.5, 0.05):
        assert pair.error >= 19 * LARGE
    assert direct.third_value_pld(20, 4, 0.5, 0.05).error >= 20 * LARGE


def test_what_the_difference_of_two_chances_may_be_off_by_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """alpha = 0 at this growth: whatever its rounding, something may be shown there, and next to it."""
    gamma = 0.5
    growth = np.array([(1 - gamma) / (gamma / 2)])
    monkeypatch.setattr(direct, "ROUNDING", 1e-3)
    relative_error_bound = 8e-3 * (1 + growth[0] * gamma)
    z, total = np.array([0.3]), np.array([0.1])
    assert direct._directed(z, total, growth, 0.0, gamma) == pytest.approx([2 * relative_error_bound])
    (near,) = direct._directed(z, total, growth - 1.0, 0.0, gamma)
    _, beta = direct._factors(growth - 1.0, gamma)
    relative_error_bound = 8e-3 * (1 + (growth[0] - 1.0) * gamma)
    assert near == pytest.approx(beta[0] * 0.3 - (growth[0] - 1.0) * 0.1 + 2 * relative_error_bound * 0.1)


def test_samples_of_a_long_law_are_read_above_and_up_to_the_last_epsilon() -> None:
    """Where alpha is positive in many digits and not as computed, something is shown all the same."""
    met = 0
    for gamma in GAMMAS:
        a, b, error = direct._others(40, 30, gamma)
        mode = float(np.max(np.convolve(a, b)))
        (first,) = direct._sampled_profile(a, b, error, gamma, np.zeros(1))
        assert first >= (1 - gamma) * mode * (1 + 8 * error) * (1 + 5e-13)
        with mpmath.workdps(40):
            last = mpmath.log((2 - mpmath.mpf(gamma)) / mpmath.mpf(gamma))
            epsilon = float(last)
            epsilon = epsilon if mpmath.mpf(epsilon) < last else math.nextafter(epsilon, 0.0)
        if direct._factors(np.expm1([epsilon]), gamma)[0][0] <= 0.0:
            met += 1
            assert direct._sampled_profile(a, b, error, gamma, np.array([epsilon])) > 0.0
    assert met > 5


# Many reports


@pytest.mark.usefixtures("large_slack")
def test_sums_of_pooled_reports_count_their_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    law = direct._binomial(20, 0.25)
    size = law.masses.size
    assert law.error >= 8 * LARGE * size
    assert law.plus(law).error >= 2 * law.error + LARGE * size
    exact = direct._Law(0, np.array([0.25, 0.5, 0.25]))
    assert direct._beyond(exact, exact, 1, -1) <= 0.3125 * (1 - 6 * LARGE)
    assert direct._beyond(exact, exact, 1, 1) >= 0.3125 * (1 + 6 * LARGE)
    cut = direct._Law(0, np.array([0.25, 0.5, 0.25]), outside=0.01)
    for laws, outside in (((cut, exact), 0.01), ((exact, cut), 0.01), ((cut, cut), 0.02)):
        assert direct._beyond(*laws, 1, 1) == pytest.approx(0.3125 + outside, rel=1e-4)
        assert direct._beyond(*laws, 1, -1) <= 0.3125
    victims: list[direct._Law] = []

    def threshold(up: Any, down: Any, here: direct._Law, there: Any, epsilon: float) -> float:
        victims.append(here)
        return 0.0

    monkeypatch.setattr(direct, "_best_threshold", threshold)
    direct.pooled_delta_lower(10, 4, 1, 0.5, 0.1)
    assert victims[-1].error >= LARGE


# Uniform sampling


def test_the_number_of_blanket_reports_is_bounded_with_chances_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for what a product may be off by, and once for the odds: of some of these every rounding goes against us."""
    seen: list[float] = []

    def window(trials: int, probability: float, odds: float, cut: float) -> Any:
        seen.append(odds)
        return 0, np.full(3, 1 / 3), 1.0, 0.0

    monkeypatch.setattr(schemes, "binomial_window", window)
    for gamma in GAMMAS:
        for coordinates, dimension in ((3, 7), (9, 13), (2, 100)):
            schemes._thresholds(10, gamma, coordinates, dimension, 1)
            exact = Fraction(gamma) * coordinates / (dimension - Fraction(gamma) * coordinates)
            assert 1 - Fraction(1, 2**48) < Fraction(seen[-1]) / exact < 1 - Fraction(1, 2**50)


def test_the_chance_of_too_few_blanket_reports_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "binomial_window", lambda *_: (0, np.full(3, 1 / 3), 1.0, 0.0))
    monkeypatch.setattr(schemes, "_GIVEN_UP", (0.5,))
    monkeypatch.setattr(schemes, "slack", lambda steps: LARGE * steps)
    assert dict(schemes._thresholds(10, 0.5, 1, 2, 1))[1] >= (1 + 6 * LARGE) / 3


def test_a_fixed_number_of_blanket_reports_drifts_by_no_more_than_in_many_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid: list[Mixture] = []
    monkeypatch.setattr(schemes, "evaluate_upper", lambda mixture, _: laid.append(mixture))
    for gamma in GAMMAS[::7]:
        schemes._fixed_profile(9, 5, gamma)(np.zeros(1))
        exact = Fraction(gamma) / ((1 - Fraction(gamma)) * 5) * 9
        assert (
            exact * (1 - Fraction(1, 2**48)) < Fraction(float(laid[-1].shifts[0])) <= exact * (1 - Fraction(1, 2**52))
        )


def test_what_the_window_of_a_fixed_number_leaves_out_counts_in_every_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    laid: list[Mixture] = []
    monkeypatch.setattr(schemes, "evaluate_upper", lambda mixture, _: laid.append(mixture))
    monkeypatch.setattr(schemes, "binomial_window", lambda *_: (1, np.array([1.0, 2.0, 1.0]), 4.0, 0.5))
    schemes._fixed_profile(9, 5, 0.5)(np.zeros(1))
    assert laid[0].outside == 0.5 / 4.0 * 5
    assert laid[0].weights.sum() == pytest.approx(1 / 9)


def test_a_pair_of_uniform_sampling_is_read_below_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def delta(self: Subsets, gamma: float, epsilon: float) -> float:
        asked.append(epsilon)
        return 0.1

    monkeypatch.setattr(Subsets, "epsilon_upper", lambda *_: 3.0)
    monkeypatch.setattr(Subsets, "delta_upper", delta)
    found = Subsets(100, 3, 2, 10, 1).pld(0.5, 0.1)
    assert_read_below_each_node(asked, found.step, at_least=5)
