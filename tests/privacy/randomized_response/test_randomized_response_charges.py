"""Tails, cells and cuts of replaced reports, each made large enough to matter, against exact values."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.oracles.enumeration import concrete_delta, rational_blanket_delta
from tests.oracles.noisy_counts import binomial, weights_of
from tests.uncompiled_kernels import uncompiled

from shufflesum.privacy.accountant import local_epsilon
from shufflesum.privacy.engine.laws import evaluate_lower, evaluate_upper
from shufflesum.privacy.randomized_response import blanket, direct, schemes

EPSILONS = [0.0, 0.1, 0.4, 1.0, 2.0]
COARSE = [
    {"_OUTSIDE": 0.3},
    {"_CELL": 0.4},
    {"_CELL": 0.2, "_BLOCK": 0.5},
    {"_NODE": 0.5, "_NODE_VARIANCE": 0.5},
    {"_CHEAP_TAIL": 0.2},
    {"_OUTSIDE": 0.1, "_CELL": 0.3, "_BLOCK": 0.3, "_NODE": 0.3, "_NODE_VARIANCE": 0.3, "_CHEAP_TAIL": 0.1},
]


exact_blanket = cache(rational_blanket_delta)


@pytest.mark.parametrize("constants", COARSE)
@pytest.mark.parametrize(("users", "cells", "gamma"), [(11, 2, "1/2"), (12, 3, "1/2"), (10, 5, "3/4"), (12, 4, "1/8")])
def test_a_coarse_and_cut_blanket_is_still_above(
    monkeypatch: pytest.MonkeyPatch, users: int, cells: int, gamma: str, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, blanket, **constants)
    above = evaluate_upper(blanket.blanket_mixture(users, cells, float(Fraction(gamma))), np.array(EPSILONS))
    for most, weight in zip(above, weights_of(EPSILONS), strict=True):
        exact = exact_blanket(users, cells - 1, Fraction(gamma), weight)
        assert exact <= Fraction(most) <= 2 * exact + 2


@pytest.mark.parametrize("constants", [{}, *COARSE])
@pytest.mark.parametrize(("users", "cells", "gamma"), [(9, 3, 0.5), (8, 4, 0.75)])
def test_a_coarse_and_cut_pair_with_a_third_value_is_still_below(
    monkeypatch: pytest.MonkeyPatch, users: int, cells: int, gamma: float, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, blanket, **constants)
    below = evaluate_lower(blanket.third_value_mixture(users, cells, gamma), np.array(EPSILONS))
    for epsilon, least in zip(EPSILONS, below, strict=True):
        exact = concrete_delta([2] * (users - 1), 0, 1, cells - 1, gamma, epsilon)
        assert least <= exact * (1 + 1e-12)
        assert least >= exact * (1 - 2e-3) if not constants else least >= 0
    if "_OUTSIDE" not in constants and "_CELL" not in constants:
        assert below[0] > 0.5 * concrete_delta([2] * (users - 1), 0, 1, cells - 1, gamma, 0.0)


@pytest.mark.parametrize("outside", [1e-21, 1e-2, 0.3])
@pytest.mark.parametrize("hits", [300.0, 0.0])  # summed over both counts, or over one of them
@pytest.mark.parametrize(("users", "cells", "gamma"), [(9, 2, 0.5), (8, 3, 0.5), (7, 4, 0.875)])
def test_a_cut_pair_among_equal_users_is_still_below(
    monkeypatch: pytest.MonkeyPatch, users: int, cells: int, gamma: float, hits: float, outside: float
) -> None:
    uncompiled(monkeypatch, blanket, _OUTSIDE=outside, _MOST_HITS=hits)
    below = blanket.one_value_lower(users, cells, gamma, np.array(EPSILONS))
    for epsilon, least in zip(EPSILONS, below, strict=True):
        both = [concrete_delta([0] * (users - 1), *worlds, cells - 1, gamma, epsilon) for worlds in ((0, 1), (1, 0))]
        assert least <= max(both) * (1 + 1e-12)
        if outside < 1e-20 and (hits or cells == 2):
            assert least >= max(both) * (1 - 1e-9)


@pytest.mark.parametrize(("summed", "users", "cells", "gamma"), [("hits", 4000, 2, 0.05), ("both", 300, 3, 0.2)])
def test_rounding_moves_thresholds_so_that_a_lower_bound_shrinks(
    monkeypatch: pytest.MonkeyPatch, summed: str, users: int, cells: int, gamma: float
) -> None:
    found = {}
    for allowance in (0.0, 1e-2):
        uncompiled(monkeypatch, blanket, _OUTSIDE=1e-2, _ALLOWANCE=allowance)
        down, up, _ = getattr(blanket, f"_sum_over_{summed}")(users, cells, gamma, np.exp([0.0, 0.05, 0.1]))
        found[allowance] = np.array([down, up])
    assert (found[0.0] > 0).all()
    assert (found[1e-2] < found[0.0]).all()


def test_means_above_and_below_every_place_of_a_window() -> None:
    law = np.array([0.1, 0.2, 0.4, 0.25])
    places = np.arange(5)
    falling, rising = blanket._means(7, law)
    assert falling == pytest.approx([float(np.dot(law, np.maximum(j - places[:4], 0))) for j in places])
    assert rising == pytest.approx([float(np.dot(law, np.maximum(places[:4] - j, 0))) for j in places])


@pytest.mark.parametrize("error", [0.0, 0.01])
def test_errors_of_both_sums_go_against_us(error: float) -> None:
    """beta z - (w - 1) Z, where the true z may be larger by eight parts `error`, and the true Z smaller by one."""
    z, total, growth, gamma = 0.3, 0.2, 0.5, 0.25
    _, beta = direct._factors(np.array(growth), gamma)
    found = direct._directed(np.array(z), np.array(total), np.array(growth), error, gamma)
    assert float(found) == pytest.approx(beta * z * (1 + 8 * error) - growth * total * (1 - error), rel=1e-12)


def test_beyond_all_exponentials_the_lower_bound_is_nothing() -> None:
    assert blanket.one_value_lower(5, 2, 2.0**-40, np.array([599.0, 601.0]))[1] == 0.0


@cache
def exact_binary(users: int, gamma: Fraction, weight: Fraction) -> Fraction:
    """The worst data set of others and the worse direction, for two values."""
    rho = gamma / 2
    worst = Fraction(0)
    for zeros in range(users):
        ups, downs = binomial(zeros, rho), binomial(users - 1 - zeros, rho)[::-1]
        z = [Fraction(0)] * (users + 2)
        for i, p in enumerate(ups):
            for j, q in enumerate(downs):
                z[i + j + 1] += p * q
        p_law = [(1 - rho) * z[y + 1] + rho * z[y] for y in range(users + 1)]
        q_law = [rho * z[y + 1] + (1 - rho) * z[y] for y in range(users + 1)]
        for first, second in ((p_law, q_law), (q_law, p_law)):
            shown = [max(Fraction(0), p - weight * q) for p, q in zip(first, second, strict=True)]
            worst = max(worst, sum(shown, Fraction(0)))
    return worst


@pytest.mark.parametrize("outside", [1e-22, 1e-4, 1e-2])
@pytest.mark.parametrize("cells", [100, 2])
@pytest.mark.parametrize("dense", [1e7, 0])  # in full, or by samples and chords
@pytest.mark.parametrize(("users", "gamma"), [(9, "1/2"), (16, "1/4"), (21, "7/8")])
def test_cut_laws_and_coarse_cells_of_two_values_are_still_above(
    monkeypatch: pytest.MonkeyPatch, users: int, gamma: str, cells: int, dense: float, outside: float
) -> None:
    for name, constant in {
        "_BINARY_OUTSIDE": outside,
        "_CELLS": cells,
        "_FEWEST_CELLS": cells,
        "_DENSE": dense,
    }.items():
        monkeypatch.setattr(direct, name, constant)
    p = Fraction(gamma)
    above = direct.binary_profile_upper(users, float(p), np.array(EPSILONS))
    for most, weight in zip(above, weights_of(EPSILONS), strict=True):
        exact = exact_binary(users, p, weight * (1 + Fraction(1, 2**40)))
        assert exact <= Fraction(most)
        if cells == 100 and dense:
            assert most <= float(exact) * (1 + 1e-6) + 40 * outside


@pytest.mark.parametrize("outside", [1e-22, 1e-2, 0.2])
def test_a_cut_pair_of_two_values_is_still_below(monkeypatch: pytest.MonkeyPatch, outside: float) -> None:
    monkeypatch.setattr(direct, "_BINARY_OUTSIDE", outside)
    for pair, worlds in zip(direct.one_value_plds(9, 0.5, 0.01), ((0, 1), (1, 0)), strict=True):
        for epsilon in EPSILONS:
            exact = concrete_delta([0] * 8, *worlds, 1, 0.5, epsilon)
            assert exact - 6 * outside - 0.02 <= pair.delta_lower(epsilon) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("constants", [{}, {"_OUTSIDE": 0.2}, {"_CELL": 0.4}, {"_OUTSIDE": 0.1, "_CELL": 0.4}])
@pytest.mark.parametrize(("users", "cells", "gamma"), [(9, 3, 0.5), (8, 4, 0.75)])
def test_a_coarse_and_cut_pair_on_a_grid_is_still_below(
    monkeypatch: pytest.MonkeyPatch, users: int, cells: int, gamma: float, constants: dict[str, float]
) -> None:
    uncompiled(monkeypatch, direct, **constants)
    pair = direct.third_value_pld(users, cells, gamma, 0.01)
    for epsilon in EPSILONS:
        exact = concrete_delta([2] * (users - 1), 0, 1, cells - 1, gamma, epsilon)
        assert pair.delta_lower(epsilon) <= exact * (1 + 1e-9)
        assert pair.delta_lower(epsilon) >= (0.9 * exact - 0.02 if not constants else 0.0)


@pytest.mark.parametrize("outside", [1e-21, 1e-3, 0.2])
def test_rare_numbers_of_blanket_reports_are_given_up_at_what_they_cost(
    monkeypatch: pytest.MonkeyPatch, outside: float
) -> None:
    monkeypatch.setattr(schemes, "_OUTSIDE", outside)
    monkeypatch.setattr(schemes, "_GIVEN_UP", (3.0, 1.0, 0.1, 1e-2, 1e-4, 1e-9))
    law = binomial(40, Fraction(1, 4) * Fraction(2, 5))
    found = schemes._thresholds(40, 0.25, 2, 5, 6)
    assert len(found) > 2
    for least, given_up in found:
        exact = 6 * sum(law[:least])
        assert exact <= Fraction(given_up) <= exact + Fraction(13 * outside) + Fraction(1, 10**9)


def exact_fixed(count: int, cells: int, gamma: Fraction, weight: Fraction) -> Fraction:
    """The blanket pair with exactly so many uniform reports, the victim's among them."""
    result = Fraction(0)
    for a in range(count + 1):
        for b in range(count + 1 - a):
            ways = math.comb(count, a) * math.comb(count - a, b) * (cells - 2) ** (count - a - b)
            first, second = ((1 - gamma) * hit * cells / count + gamma for hit in (a, b))
            result += Fraction(ways, cells**count) * max(Fraction(0), first - weight * second)
    return result


@pytest.mark.parametrize("constants", [{}, {"_OUTSIDE": 0.3}, {"_CELL": 0.4}, {"_OUTSIDE": 0.3, "_CELL": 0.4}])
@pytest.mark.parametrize(("count", "cells", "gamma"), [(9, 2, "1/2"), (12, 4, "1/4"), (10, 7, "3/4")])
def test_a_fixed_number_of_blanket_reports_is_bounded_from_above(
    monkeypatch: pytest.MonkeyPatch, count: int, cells: int, gamma: str, constants: dict[str, float]
) -> None:
    for name, constant in constants.items():
        monkeypatch.setattr(schemes, name, constant)
    above = schemes._fixed_profile(count, cells, float(Fraction(gamma)))(np.array(EPSILONS))
    for most, weight in zip(above, weights_of(EPSILONS), strict=True):
        exact = exact_fixed(count, cells, Fraction(gamma), weight)
        assert exact <= Fraction(most)
        assert constants or most <= float(exact) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("levels", [1, 3, 998])
@pytest.mark.parametrize(
    "gamma", [2.0**-53, 1e-9, 0.1, 1 / 3, 0.999, 1 - 2.0**-53, *(1 - np.random.default_rng(1).random(30) ** 4)]
)
def test_the_local_epsilon_is_rounded_up(levels: int, gamma: float) -> None:
    """By as much as its odds may be off, and once more by as much as the result may."""
    with decimal.localcontext(prec=60):
        odds = Decimal(levels + 1) * (1 - Decimal(gamma)) / Decimal(gamma)
        for coordinates, rounds in ((1, 1), (7, 3)):
            exact = coordinates * rounds * (1 + odds).ln()
            found = Decimal(
                local_epsilon(levels=levels, noise_probability=gamma, coordinates=coordinates, rounds=rounds)
            )
            assert exact * (1 + Decimal(2) ** -50) < found < exact * (1 + Decimal(2) ** -44)


def test_where_nearly_all_reports_are_noise_all_others_may_be_counted_on() -> None:
    found = dict(schemes._thresholds(3, 1 - 1e-6, 2, 2, 4))
    assert found[3] == pytest.approx(4 * 3e-6, rel=1e-5)


@pytest.mark.parametrize("levels", [1, 3, 998])
def test_the_noise_that_hides_single_reports_is_hardly_more_than_it_must_be(levels: int) -> None:
    for epsilon in np.linspace(0.05, 12.0, 60):
        found = blanket._enough(levels, float(epsilon))
        assert local_epsilon(levels=levels, noise_probability=found) <= epsilon
        assert found == pytest.approx((levels + 1) / (math.expm1(epsilon) + levels + 1), rel=1e-9)
