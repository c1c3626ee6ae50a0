"""What the engine charges for roundings, place by place: made large enough to matter, or met where it matters."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.privacy.engine.mixtures import one_cell
from tests.uncompiled_kernels import uncompiled

from shufflesum._search import bisect
from shufflesum.errors import ParameterError
from shufflesum.privacy.engine import filters, gaussian, laws, pld
from shufflesum.privacy.engine.filters import GaussianFilter, PrivacyCost, RenyiFilter, total
from shufflesum.privacy.engine.laws import evaluate_lower, evaluate_upper
from shufflesum.privacy.engine.pld import PrivacyLossDistribution, dominated, dominating, grid_of_atoms

mpmath = pytest.importorskip("mpmath")

ULP = Fraction(1, 2**52)
LARGE = 1e-7  # in the place of 2^-52: large, and still below what a composition may err by
PAIR = PrivacyLossDistribution(0.5, -3, np.array([0.02, 0.1, 0.2, 0.25, 0.2, 0.1, 0.02]), 0.01, 0.0)


# Pairs on a grid


def test_products_cuts_and_coarser_grids_count_their_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pld, "ULP", LARGE)
    nodes = len(PAIR.symmetrised)
    assert pld.coarsen_above(PAIR).error >= 8 * LARGE
    assert pld.trim_above(PAIR, 0.1).error >= 2 * (nodes // 2) * LARGE
    assert pld.product_above([PAIR, PAIR], 0.0).error >= nodes * LARGE
    assert pld.product_below([PAIR, PAIR], 0.0).error >= nodes * LARGE


def test_the_pair_of_a_profile_counts_its_roundings_and_is_no_less_than_a_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pld, "ULP", LARGE)
    heights = np.array([0.4, 0.2, 0.1, 0.0])
    found = dominating(0.5, heights, 1e-6)
    assert found.error >= 1e-6 + (8 * 3 + 4 * 1.5) * LARGE
    assert found.upper_masses().sum() + found.infinity_mass >= 1.0 + 3 * LARGE


def test_merged_atoms_count_their_roundings_and_what_the_middle_may_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    upper, lower = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2])
    monkeypatch.setattr(pld, "slack", lambda steps: 1e-5 * steps)
    assert grid_of_atoms(upper, lower, 0.1, 0.0).error >= 3e-5
    monkeypatch.setattr(pld, "ULP", LARGE)
    reach = math.log(2.5)
    assert dominated(0.1, upper, lower, 0.0).error >= LARGE * (64 + 4 * reach)
    for ends in ([-1.0, 9.0], [-9.0, 1.0]):
        assert pld.merging_error(np.array(ends)) >= LARGE * (64 + 4 * 9)
    monkeypatch.setattr(pld, "ULP", 0.0)
    uncompiled(monkeypatch, pld, _BALANCE=5e-5)
    assert dominated(0.1, upper, lower, 0.0).error >= 5e-5


@pytest.mark.parametrize("balance", [1e-13, 1e-2])
def test_a_group_that_counts_as_balanced_lacks_no_more_than_is_charged(
    monkeypatch: pytest.MonkeyPatch, balance: float
) -> None:
    """Atoms just below the nodes of the grid: each may pass for one at its node."""
    uncompiled(monkeypatch, pld, _BALANCE=balance, MOST_ERROR=1.0)
    places = 0.25 * np.arange(-4, 5) - 0.9 * balance
    masses = np.array([1, 3, 8, 20, 30, 20, 8, 3, 1]) / 94
    upper, lower = masses * np.exp(places / 2), masses * np.exp(-places / 2)
    found = dominated(0.25, upper, lower, 0.0)
    for epsilon in (0.0, 0.1, 0.3, 0.6, 0.9):
        exact = math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(upper, lower, strict=True))
        assert found.delta_lower(epsilon) <= exact * (1 + 1e-14)


# Mixtures


@pytest.mark.parametrize("upper", [True, False])
def test_rounding_moves_the_threshold_of_a_mean_against_us(monkeypatch: pytest.MonkeyPatch, upper: bool) -> None:
    """tanh(eps/2) (1 -+ 2^-7), with roundings of 1/32 of that."""
    uncompiled(monkeypatch, laws)
    uncompiled(monkeypatch, laws, _ALLOWANCE=32 * 2.0**-12)
    laid, epsilon = one_cell(0.25), 0.5
    found = float(laws._evaluate(laid, np.array([epsilon]), upper)[0][0])
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
    monkeypatch.setattr(laws, "_UNDERFLOW", 0.01)
    np.testing.assert_allclose(evaluate_upper(laid, epsilons), above + 0.01)
    np.testing.assert_allclose(evaluate_lower(laid, epsilons), below - 0.01)


# Charges of a budget


@pytest.mark.parametrize(
    ("epsilon", "delta", "apart", "order"), [(1.0, 1e-6, 0.5, 8.0), (0.1, 1e-9, 0.25, 300.0), (7.0, 1e-3, 0.75, 1.5)]
)
def test_limits_of_a_budget_are_rounded_down(epsilon: float, delta: float, apart: float, order: float) -> None:
    within = RenyiFilter(epsilon, delta, apart, order)
    whole = Fraction(apart) * Fraction(delta)
    assert whole * (1 - Fraction(1, 2**49)) <= Fraction(within.delta_limit) < whole
    with mpmath.workdps(50):
        a = mpmath.mpf(order)
        terms = [
            mpmath.log((1 - mpmath.mpf(apart)) * mpmath.mpf(delta)),
            *((a - 1) * mpmath.mpf(epsilon), a * mpmath.log(a), -(a - 1) * mpmath.log(a - 1)),
        ]
        gap = mpmath.fsum(terms) - mpmath.mpf(within.loss_limit)
        scale = mpmath.fsum(map(abs, terms)) * mpmath.mpf(2) ** -52
        assert 8 * scale < gap < 32 * scale


def test_a_budget_below_what_double_precision_can_tell_is_refused() -> None:
    with pytest.raises(ParameterError):
        RenyiFilter(1.0, 1e-151, 0.5, 2.0)


def test_sums_of_charges_are_rounded_up() -> None:
    costs = [PrivacyCost(0.1, 1e-7)] * 10 + [PrivacyCost(1 / 3, 1e-9)]
    found = total(costs)
    for sum_, parts in (
        (found.privacy_loss, [Fraction(cost.privacy_loss) for cost in costs]),
        (found.delta, [Fraction(cost.delta) for cost in costs]),
    ):
        assert sum(parts) * (1 + Fraction(1, 2 * 10**12)) < Fraction(sum_) < sum(parts) * (1 + Fraction(2, 10**12))


def test_charges_of_rounds_and_of_gaussian_noise_are_rounded_up() -> None:
    within = RenyiFilter(1.0, 1e-6, 0.5, 7.7)
    one = within._moment(PAIR)
    for rounds in (1, 3):
        found = within._cheapest([one, PrivacyCost(2 * one.privacy_loss, 2 * one.delta)], rounds)
        for part, whole in ((found.privacy_loss, one.privacy_loss), (found.delta, one.delta)):
            assert (
                rounds * Fraction(whole) * (1 + 2 * ULP) <= Fraction(part) <= rounds * Fraction(whole) * (1 + 8 * ULP)
            )
        pair = replace(PAIR, infinity_mass=0.0)
        assert within.cost(pair, rounds).privacy_loss <= within._cheapest([within._moment(pair)], rounds).privacy_loss
    for mu, apart in ((0.1, 1e-9), (1 / 3, 3e-8)):
        found = within.gaussian_cost(mu, apart)
        squares = GaussianFilter(1.0, 1e-6, 0.5).gaussian_cost(mu, apart)
        assert squares.delta == found.delta
        exact = Fraction(7.7) * (Fraction(7.7) - 1) * Fraction(mu) ** 2 / 2
        for value, least in ((found.privacy_loss, exact), (squares.privacy_loss, Fraction(mu) ** 2)):
            assert least * (1 + 8 * ULP) < Fraction(value) < least * (1 + 32 * ULP)
        assert (
            Fraction(apart) * (1 + Fraction(2, 2**52))
            < Fraction(found.delta)
            < Fraction(apart) * (1 + Fraction(1, 10**12))
        )


def test_a_charge_counts_the_roundings_of_its_logarithms_and_of_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    within = RenyiFilter(1.0, 1e-6, 0.5, 8.0)
    limit = within.delta_limit
    monkeypatch.setattr(filters, "ULP", 0.0)
    exact = within._moment(PAIR)
    monkeypatch.setattr(filters, "ULP", LARGE)
    rough = within._moment(PAIR)
    logarithms = np.log(PAIR.symmetrised) + 7.5 * PAIR.losses()
    assert rough.privacy_loss - exact.privacy_loss == pytest.approx(
        8 * LARGE * (7.5 * 1.5 + np.max(np.abs(logarithms)) + 7 + 64), rel=1e-6
    )
    assert rough.delta - exact.delta == pytest.approx(8 * LARGE * limit, rel=1e-3, abs=0.0)


# Gaussian pairs of a budget


@pytest.mark.parametrize(
    ("epsilon", "delta", "apart"), [(1.0, 1e-6, 0.5), (0.1, 1e-9, 0.25), (7.0, 1e-3, 0.75), (1e-3, 1e-40, 0.5)]
)
def test_the_largest_gaussian_pair_keeps_its_part_of_delta_and_nearly_uses_it(
    epsilon: float, delta: float, apart: float
) -> None:
    allowed = (1 - mpmath.mpf(apart)) * mpmath.mpf(delta)
    with mpmath.workdps(60):
        mu = mpmath.sqrt(mpmath.mpf(GaussianFilter(epsilon, delta, apart).loss_limit))
        assert gaussian_profile(mu, epsilon) <= allowed
        assert gaussian_profile(mu * (1 + mpmath.mpf(10) ** -9), epsilon) > allowed


def gaussian_profile(mu: Any, epsilon: float) -> Any:
    near, far = mpmath.mpf(epsilon) / mu - mu / 2, mpmath.mpf(epsilon) / mu + mu / 2
    tails = [mpmath.erfc(x / mpmath.sqrt(2)) / 2 for x in (near, far)]
    return tails[0] - mpmath.exp(mpmath.mpf(epsilon)) * tails[1]


def test_where_erfc_cannot_tell_the_largest_shift_is_delta_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """G_mu(w) <= G_mu(1) < mu/2: that needs no figure of a library."""
    monkeypatch.setattr(filters, "gaussian_profile_upper", lambda mu, at: np.ones(1))
    found = filters._largest_shift.__wrapped__(2.0, 1e-6)
    assert Fraction(found) < Fraction(1e-6) * (1 - 2 * ULP)
    assert gaussian_profile(mpmath.mpf(1e-6), 0.0) < 0.5e-6


def test_heights_of_a_pair_are_above_its_profile_by_what_masses_lack_and_sums_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = replace(PAIR, error=1e-5)
    atoms = list(zip(pair.symmetrised, pair.losses(), strict=True))
    exact = [
        pair.infinity_mass + math.fsum(r * (math.exp(x / 2) - math.exp(at - x / 2)) for r, x in atoms if x > at)
        for at in (0.0, 0.5, 1.0, 1.5)
    ]
    places, heights = pair.heights_above()
    assert places.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert (heights >= np.array(exact) * (1 + 1e-5)).all()
    assert heights == pytest.approx(np.array(exact) * (1 + 1e-5), rel=1e-12)
    monkeypatch.setattr(pld, "ULP", LARGE)
    rounded = 1 + 1e-5 + LARGE * (4 * 4 + 4 * 1.5 + 32)
    assert pair.heights_above()[1] == pytest.approx(np.array(exact) * rounded * (1 + 4 * LARGE), rel=1e-12)
    monkeypatch.undo()
    monkeypatch.setattr(pld, "_VANISHED", 0.01)
    assert pair.heights_above()[1] == pytest.approx((np.array(exact) + 0.01) * (1 + 1e-5), rel=1e-12)


def least_apart(mu: float, places: list[float], heights: list[float]) -> float:
    """The least chance up to which a Gaussian pair dominates."""
    return bisect(lambda apart: gaussian.dominates(mu, np.array(places), np.array(heights), apart), 0.0, 1.0)[1]


@pytest.mark.parametrize("end", [0, 1])
def test_domination_counts_what_tails_and_exponentials_err(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """Either end of the first edge decides."""
    uncompiled(monkeypatch, gaussian, _ULP=1e-6)
    mu, places = 1.0, [0.5, 0.6, 0.7]
    heights = [0.45, 0.4, 0.0] if end == 0 else [0.41, 0.4, 0.0]
    tails = [0.5 * math.erfc(x * math.sqrt(0.5)) for x in (0.0, 1.0)]
    error, at = (4 * 1.0 + 32) * 1e-6, places[end]
    line = tails[0] * (1 - error) - math.exp(at) * (1 + 4 * (at + 2) * 1e-6) * tails[1] * (1 + error)
    assert least_apart(mu, places, heights) == pytest.approx(heights[end] / (1 - 4e-6) - line, rel=1e-12)


def test_domination_sees_what_lies_between_nodes() -> None:
    """At both nodes the polygon is just below the Gaussian pair's profile, and between them above it."""
    places, mu = [0.0, 1.0, 40.0], 1.0
    heights = [0.999 * float(gaussian_profile(mpmath.mpf(mu), at)) for at in places]
    between = math.log((1 + math.e) / 2)
    over = (heights[0] + heights[1]) / 2 - float(gaussian_profile(mpmath.mpf(mu), between))
    assert over > 0.02
    assert least_apart(mu, places, heights) > over


@pytest.mark.parametrize(("mu", "places"), [(0.01, [0.0, 0.35, 0.37, 0.5]), (30.0, [0.0, 600.0, 699.0, 800.0])])
def test_beyond_what_doubles_can_tell_only_infinite_loss_pays(mu: float, places: list[float]) -> None:
    assert least_apart(mu, places, [0.2, 1e-3, 1e-3, 1e-4]) >= 1e-3
    assert least_apart(mu, [0.0], [0.125]) == 0.125


@pytest.mark.parametrize("rounds", [1, 7])
@pytest.mark.parametrize("open_chance", [0.0, 1e-4])
def test_the_gaussian_charge_of_a_pair_is_above_its_profile_everywhere(rounds: int, open_chance: float) -> None:
    step = 0.125
    masses = np.exp(-0.5 * (step * np.arange(-24, 25) / 0.6) ** 2)
    masses /= np.sum(masses * np.exp(step * np.arange(-24, 25) / 2)) / (1 - open_chance)
    pair, within = PrivacyLossDistribution(step, -24, masses, open_chance, 0.0), GaussianFilter(20.0, 0.5, 0.5)
    found = within.cost(pair, rounds)
    mu, apart = math.sqrt(found.privacy_loss / rounds), found.delta / rounds

    def over(mu: float, epsilon: float) -> float:
        return pair.hockey_stick_divergence(epsilon) - float(gaussian_profile(mpmath.mpf(mu), epsilon))

    assert max(over(mu, epsilon) for epsilon in np.linspace(-3.5, 3.5, 561)) <= apart
    assert max(over(0.97 * mu, epsilon) for epsilon in np.linspace(0, 3, 300)) > apart  # and little less would not do
    assert within.admits([found]) == (rounds * open_chance < within.delta_limit)


def test_domination_is_decided_before_exponentials_end_or_not_at_all() -> None:
    """What `apart` pays for is not looked at, however far out it reaches; an edge that it does not pay for is."""
    assert gaussian.dominates(1.0, np.array([0.0, 0.5, 800.0]), np.array([0.3, 0.005, 0.0]), 0.01)
    assert not gaussian.dominates(1.0, np.array([0.0, 800.0]), np.array([0.3, 0.0]), 0.01)
