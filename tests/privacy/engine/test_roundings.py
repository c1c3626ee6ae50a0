"""What the engine charges for roundings, place by place: made large enough to matter, or met where it matters."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.privacy.engine.mixtures import one_cell
from tests.uncompiled import uncompiled

from shufflesum.errors import ParameterError
from shufflesum.privacy.engine import convolution, laws, losses, mixture, renyi
from shufflesum.privacy.engine.losses import GridLosses, dominated, dominating, grid_of_atoms
from shufflesum.privacy.engine.mixture import evaluate_lower, evaluate_upper
from shufflesum.privacy.engine.renyi import Charge, Filter, charge_of, gaussian_charge, total

mpmath = pytest.importorskip("mpmath")

ULP = Fraction(1, 2**52)
LARGE = 1e-7  # in the place of 2^-52: large, and still below what a composition may err by
PAIR = GridLosses(0.5, -3, np.array([0.02, 0.1, 0.2, 0.25, 0.2, 0.1, 0.02]), 0.01, 0.0)


# Pairs on a grid


def test_products_cuts_and_coarser_grids_count_their_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "ULP", LARGE)
    nodes = len(PAIR.balanced)
    assert convolution.coarsen_above(PAIR).error >= 8 * LARGE
    assert convolution.trim_above(PAIR, 0.1).error >= 2 * (nodes // 2) * LARGE
    assert convolution.product_above([PAIR, PAIR], 0.0).error >= nodes * LARGE
    assert convolution.product_below([PAIR, PAIR], 0.0).error >= nodes * LARGE


def test_the_pair_of_a_profile_counts_its_roundings_and_is_no_less_than_a_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(losses, "ULP", LARGE)
    heights = np.array([0.4, 0.2, 0.1, 0.0])
    found = dominating(0.5, heights, 1e-6)
    assert found.error >= 1e-6 + (8 * 3 + 4 * 1.5) * LARGE
    assert found.upper_masses().sum() + found.infinite >= 1.0 + 3 * LARGE


def test_merged_atoms_count_their_roundings_and_what_the_middle_may_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    upper, lower = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2])
    monkeypatch.setattr(losses, "slack", lambda steps: 1e-5 * steps)
    assert grid_of_atoms(upper, lower, 0.1, 0.0).error >= 3e-5
    monkeypatch.setattr(losses, "ULP", LARGE)
    reach = math.log(2.5)
    assert dominated(0.1, upper, lower, 0.0).error >= LARGE * (64 + 4 * reach)
    for ends in ([-1.0, 9.0], [-9.0, 1.0]):
        assert losses.merging_error(np.array(ends)) >= LARGE * (64 + 4 * 9)
    monkeypatch.setattr(losses, "ULP", 0.0)
    uncompiled(monkeypatch, losses, _BALANCE=5e-5)
    assert dominated(0.1, upper, lower, 0.0).error >= 5e-5


@pytest.mark.parametrize("balance", [1e-13, 1e-2])
def test_a_group_that_counts_as_balanced_lacks_no_more_than_is_charged(
    monkeypatch: pytest.MonkeyPatch, balance: float
) -> None:
    """Atoms just below the nodes of the grid: each may pass for one at its node."""
    uncompiled(monkeypatch, losses, _BALANCE=balance, MOST_ERROR=1.0)
    places = 0.25 * np.arange(-4, 5) - 0.9 * balance
    masses = np.array([1, 3, 8, 20, 30, 20, 8, 3, 1]) / 94
    upper, lower = masses * np.exp(places / 2), masses * np.exp(-places / 2)
    found = dominated(0.25, upper, lower, 0.0)
    for epsilon in (0.0, 0.1, 0.3, 0.6, 0.9):
        exact = math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(upper, lower, strict=True))
        assert found.profile_below(epsilon) <= exact * (1 + 1e-14)


# Mixtures


@pytest.mark.parametrize("upper", [True, False])
def test_rounding_moves_the_threshold_of_a_mean_against_us(monkeypatch: pytest.MonkeyPatch, upper: bool) -> None:
    """tanh(eps/2) (1 -+ 2^-7), with roundings of 1/32 of that."""
    uncompiled(monkeypatch, laws)
    uncompiled(monkeypatch, mixture, ROUNDING=2.0**-12)
    laid, epsilon = one_cell(0.25), 0.5
    found = float(mixture._evaluate(laid, np.array([epsilon]), upper)[0][0])
    tangent = math.tanh(epsilon / 2) * (1 + (-1 if upper else 1) * 2.0**-7)
    mean = math.fsum(math.comb(4, a) / 16 * max(0.0, a - 2 - tangent * 2.25) for a in range(5))
    assert found == pytest.approx(0.5 * (1 + math.exp(epsilon)) * 0.25 * mean, rel=1e-12)


def test_a_sum_too_small_for_double_precision_is_not_nothing() -> None:
    vanished, epsilons = one_cell(1e-300, 900, 0.0), np.array([0.1, 30.0])
    assert (evaluate_upper(vanished, epsilons) > 0).all()
    assert (evaluate_lower(vanished, epsilons) == 0).all()


def test_what_may_have_vanished_is_added_above_and_dropped_below(monkeypatch: pytest.MonkeyPatch) -> None:
    laid, epsilons = one_cell(0.25), np.array([0.0, 0.5])
    above, below = evaluate_upper(laid, epsilons), evaluate_lower(laid, epsilons)
    monkeypatch.setattr(mixture, "_UNDERFLOW", 0.01)
    np.testing.assert_allclose(evaluate_upper(laid, epsilons), above + 0.01)
    np.testing.assert_allclose(evaluate_lower(laid, epsilons), below - 0.01)


# Charges of a budget


@pytest.mark.parametrize(("epsilon", "delta", "order"), [(1.0, 1e-6, 8.0), (0.1, 1e-9, 300.0), (7.0, 1e-3, 1.5)])
def test_limits_of_a_budget_are_rounded_down(epsilon: float, delta: float, order: float) -> None:
    within = Filter(epsilon, delta, order)
    apart = Fraction(renyi.APART)
    assert apart * Fraction(delta) * (1 - Fraction(1, 2**49)) <= Fraction(within.apart_limit) < apart * Fraction(delta)
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        terms = [
            mpmath.log((1 - mpmath.mpf(renyi.APART)) * mpmath.mpf(delta)),
            *((a - 1) * mpmath.mpf(epsilon), a * mpmath.log(a), -(a - 1) * mpmath.log(a - 1)),
        ]
        gap = mpmath.fsum(terms) - mpmath.mpf(within.moment_limit)
        scale = mpmath.fsum(map(abs, terms)) * mpmath.mpf(2) ** -52
        assert 8 * scale < gap < 32 * scale


def test_a_budget_below_what_double_precision_can_tell_is_refused() -> None:
    with pytest.raises(ParameterError):
        Filter(1.0, 1e-151, 2.0)


def test_sums_of_charges_are_rounded_up() -> None:
    charges = [Charge(0.1, 1e-7)] * 10 + [Charge(1 / 3, 1e-9)]
    found = total(charges)
    for sum_, parts in (
        (found.moment, [Fraction(charge.moment) for charge in charges]),
        (found.apart, [Fraction(charge.apart) for charge in charges]),
    ):
        assert sum(parts) * (1 + Fraction(1, 2 * 10**12)) < Fraction(sum_) < sum(parts) * (1 + Fraction(2, 10**12))


def test_charges_of_rounds_and_of_gaussian_noise_are_rounded_up() -> None:
    within = Filter(1.0, 1e-6, 7.7)
    raw = renyi._charge(PAIR, within)
    for rounds in (1, 3):
        found = charge_of(PAIR, within, rounds)
        cut = renyi._charge(convolution.trim_above(PAIR, renyi._TRIMMED * within.apart_limit / rounds), within)
        for part, parts in ((found.moment, (raw.moment, cut.moment)), (found.apart, (raw.apart, cut.apart))):
            assert Fraction(part) >= rounds * Fraction(min(parts)) * (1 + 2 * ULP)
    for mu, apart in ((0.1, 1e-9), (1 / 3, 3e-8)):
        found = gaussian_charge(mu, apart, within)
        exact = Fraction(7.7) * (Fraction(7.7) - 1) * Fraction(mu) ** 2 / 2
        assert exact * (1 + 8 * ULP) < Fraction(found.moment) < exact * (1 + 32 * ULP)
        assert (
            Fraction(apart) * (1 + Fraction(2, 2**52))
            < Fraction(found.apart)
            < Fraction(apart) * (1 + Fraction(1, 10**12))
        )


def test_a_charge_counts_the_roundings_of_its_logarithms_and_of_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    within = Filter(1.0, 1e-6, 8.0)
    limit = within.apart_limit
    monkeypatch.setattr(renyi, "ULP", 0.0)
    exact = renyi._charge(PAIR, within)
    monkeypatch.setattr(renyi, "ULP", LARGE)
    rough = renyi._charge(PAIR, within)
    logarithms = np.log(PAIR.balanced) + 7.5 * PAIR.losses()
    assert rough.moment - exact.moment == pytest.approx(
        8 * LARGE * (7.5 * 1.5 + np.max(np.abs(logarithms)) + 7 + 64), rel=1e-6
    )
    assert rough.apart - exact.apart == pytest.approx(8 * LARGE * limit, rel=1e-3, abs=0.0)
