"""Tails, cuts and slacks of the engine, each made large enough to matter, against exact values.

What keeps a bound on the safe side is tiny where it is used, so that a wrong one would go unnoticed there.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles.noisy_counts import binomial
from tests.privacy.engine.mixtures import one_cell
from tests.uncompiled_kernels import uncompiled

from shufflesum.privacy.engine import composition, laws, pld
from shufflesum.privacy.engine.composition import Factor, compose_profiles
from shufflesum.privacy.engine.laws import (
    Mixture,
    binomial_window,
    evaluate_lower,
    evaluate_upper,
    excess_table,
    log_concave_window,
    slack,
)
from shufflesum.privacy.engine.pld import PrivacyLossDistribution, dominated, dominating, grid_of_bins, to_dp_accounting

EPSILONS = [0.0, 0.1, 0.4, 1.0, 2.0]
ULP = Fraction(1, 2**52)


# Windows of laws


@pytest.mark.parametrize("cut", [0.3, 0.05, 1e-3, 1e-9])
@pytest.mark.parametrize(("trials", "chance"), [(1, "1/2"), (7, "1/4"), (40, "1/2"), (40, "1/32"), (90, "7/8")])
def test_a_window_knows_all_that_it_leaves_out(trials: int, chance: str, cut: float) -> None:
    p = Fraction(chance)
    exact = binomial(trials, p)
    lowest, terms, total, tail = binomial_window(trials, float(p), float(p / (1 - p)), cut)
    inside = sum(exact[lowest : lowest + terms.size])
    assert (1 - inside) / inside <= Fraction(tail) / Fraction(total) * (1 + 64 * trials * ULP)
    assert tail <= 2 * cut * total * (1 + 1e-12)
    for term, share in zip(terms, exact[lowest:], strict=False):
        assert float(term) / total == pytest.approx(float(share / inside), rel=slack(terms.size))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("first", "last", "shift", "odds", "start"), [(5, 60, 5, 0.25, 16), (1, 40, 0, 1.0, 20)])
def test_both_tails_of_a_log_concave_law_are_bounded(
    first: int, last: int, shift: int, odds: float, start: int, biased: bool
) -> None:
    exact = {first: Fraction(1)}
    for j in range(first, last):
        ratio = Fraction(odds) * (last - j) / (j + 1 - shift) * (Fraction(j + 1, j) if biased else 1)
        exact[j + 1] = exact[j] * ratio
    for cut, high_cut in ((1e-2, 0.0), (1e-6, 0.2)):
        lowest, terms, total, low, high = log_concave_window(first, last, shift, odds, biased, start, cut, high_cut)
        end = lowest + terms.size
        inside = sum(exact[j] for j in range(lowest, end))
        below, above = (sum(exact[j] for j in side) / inside for side in (range(first, lowest), range(end, last + 1)))
        assert below <= Fraction(low) / Fraction(total) * (1 + Fraction(1, 10**12))
        assert 0 < above <= Fraction(high) / Fraction(total) * (1 + Fraction(1, 10**12))
        assert low <= cut * total * (1 + 1e-12)
        assert high <= max(cut, high_cut) * total * (1 + 1e-12)


def test_the_slack_covers_ten_roundings_of_each_step_and_the_sum() -> None:
    for steps in (0, 1, 100, 10**6):
        assert 11 * steps * 2.0**-53 < slack(steps) < 64 * (steps + 64) * 2.0**-53


def exact_excess(size: int) -> list[Fraction]:
    """E (a - size//2 - i)+ for a fair binomial, i = 0, 1, ..."""
    law = binomial(size, Fraction(1, 2))
    base = size // 2
    return [
        sum(((a - base - i) * share for a, share in enumerate(law) if a > base + i), Fraction(0))
        for i in range(size - base + 1)
    ]


@pytest.mark.parametrize("reach", [0.3, 0.7, 7.0])
@pytest.mark.parametrize("size", [1, 2, 9, 30, 61, 120])
def test_a_short_table_of_excesses_lies_on_the_side_it_is_for(
    monkeypatch: pytest.MonkeyPatch, size: int, reach: float
) -> None:
    uncompiled(monkeypatch, laws, _REACH=reach)
    above, below = laws.excess_table(size, True), laws.excess_table(size, False)
    cut = above.size < size - size // 2 + 1
    for exact, most, least in zip(exact_excess(size), above, below, strict=False):
        assert Fraction(least) * (1 - 64 * size * ULP) <= exact <= Fraction(most) * (1 + 64 * size * ULP)
        if cut:
            assert least < float(exact) < most
        assert float(most - least) <= (0.6 if reach < 0.5 else 0.2) * math.sqrt(size)
    if reach == 7.0:
        np.testing.assert_allclose(above, excess_table(size, True), rtol=1e-14)


@pytest.mark.parametrize("error", [0.0, 0.002])
@pytest.mark.parametrize("lowest", [-2, -5])  # reaches farther above, and farther below
def test_a_profile_is_read_where_roundings_of_losses_and_sums_cannot_help_us(
    monkeypatch: pytest.MonkeyPatch, lowest: int, error: float
) -> None:
    monkeypatch.setattr(pld, "ULP", 0.001)
    pair = PrivacyLossDistribution(0.25, lowest, np.array([0.1, 0.2, 0.3, 0.15, 0.05]), 0.01, error)
    moved, relative = 4 * 0.001 * (0.3 + 0.25 * max(abs(lowest), abs(lowest + 5)) + 1), error + 0.001 * (5 + 16)
    assert pair.delta_upper(0.3) == pytest.approx(pair.hockey_stick_divergence(0.3 - moved) * (1 + relative), rel=1e-12)
    assert pair.delta_lower(0.3) == pytest.approx(
        pair.hockey_stick_divergence(0.3 + moved + 2.1 * error) * (1 - relative), rel=1e-12
    )


def test_bins_that_one_world_never_reaches_are_left_out_of_a_lower_bound() -> None:
    found = grid_of_bins(np.array([0.0, 0.2, 0.5, 0.3]), np.array([0.4, 0.5, 0.1, 0.0]), 0.1, 0.0)
    for epsilon in (0.0, 0.5, 1.0):
        assert found.delta_lower(epsilon) <= 0.5 - 0.1 * math.exp(epsilon) + 1e-12


# Mixtures


@pytest.mark.parametrize(("reach", "tight"), [(0.4, 2.2), (1.0, 1.1), (7.0, 1 + 1e-9)])
def test_what_is_beyond_a_table_and_outside_a_mixture_is_added_above_and_dropped_below(
    monkeypatch: pytest.MonkeyPatch, reach: float, tight: float
) -> None:
    """(1 + w) sum of weight E (x - tanh(eps/2)(drift/2 + y))+, written out."""
    uncompiled(monkeypatch, laws, _REACH=reach)
    uncompiled(monkeypatch, laws)
    sizes, weights, shifts = [40, 61], [0.25, 0.5], [0.5, 0.25]
    laid = Mixture(
        factor=0.5,
        sizes=np.array(sizes),
        drifts=np.array(sizes),
        first_nodes=np.arange(3),
        shifts=np.array(shifts),
        weights=np.array(weights),
        outside=1e-3,
        steps=61,
    )
    epsilons = np.array([0.0, 0.05, 0.2, 0.5, 1.0])
    above, below = evaluate_upper(laid, epsilons), evaluate_lower(laid, epsilons)
    longest = max(laws.excess_table(size, True).size - 1 for size in sizes)
    for upper in (True, False):  # every step of the longest table, of the law and of the sum is counted
        assert laws._evaluate(laid, epsilons, upper)[1] >= slack(61 + 3 * longest + 2)
    for epsilon, most, least in zip(epsilons, above, below, strict=True):
        tangent = math.tanh(epsilon / 2)
        exact = 0.0
        for size, weight, shift in zip(sizes, weights, shifts, strict=True):
            law = enumerate(binomial(size, Fraction(1, 2)))
            exact += weight * math.fsum(
                float(share) * max(0.0, a - size / 2 - tangent * (size / 2 + shift)) for a, share in law
            )
        exact *= 0.5 * (1 + math.exp(epsilon))
        assert least <= exact * (1 + 1e-13)
        assert exact + 1e-3 <= most * (1 + 1e-13)
        if epsilon <= 0.05:
            assert most - 1e-3 <= tight * exact
            assert least >= exact / tight


@pytest.mark.parametrize("threshold", [6.0, 8.0, 12.0])
def test_beyond_a_table_hoeffdings_bound_is_integrated_from_the_threshold_on(
    monkeypatch: pytest.MonkeyPatch, threshold: float
) -> None:
    size, weight = 40, 0.25
    uncompiled(monkeypatch, laws, _REACH=0.4)
    uncompiled(monkeypatch, laws)
    assert laws.excess_table(size, True).size - 1 <= threshold
    one = np.array([1.0])
    laid = np.array([size]), np.array([0]), np.arange(2), threshold * one, weight * one
    integral = 0.5 * math.sqrt(math.pi * size / 2) * math.erfc(threshold * math.sqrt(2 / size))
    assert weight * integral <= laws._positive_parts(*laid, one, True)[0][0] <= 1.5 * weight * integral
    assert laws._positive_parts(*laid, one, False)[0][0] == 0.0


@pytest.mark.parametrize("upper", [True, False])
def test_where_one_outcome_is_left_rounding_moves_the_sum_and_its_threshold_against_us(
    monkeypatch: pytest.MonkeyPatch, upper: bool
) -> None:
    """weight 2^-s (s - (w - 1) shift)+, with roundings of 1/32 of 2^-7: of the first term alone, and of both."""
    uncompiled(monkeypatch, laws, _ALLOWANCE=32 * 2.0**-12)
    epsilon = laws._LARGE_EPSILON + 1.0
    moved = (1 if upper else -1) * 2.0**-7
    for shift in (0.0, 2.0 * math.exp(-epsilon)):
        laid = one_cell(0.25, 4, shift)
        found = laws._evaluate(laid, np.array([epsilon]), upper)[0]
        expected = 0.5 * 0.25 * 2.0**-4 * (4 * (1 + moved) - math.expm1(epsilon) * shift * (1 - moved))
        assert found == pytest.approx([expected], rel=1e-12)


@pytest.mark.parametrize("epsilon", [20.5, 30.0])
def test_at_large_epsilons_only_the_extreme_outcome_counts(epsilon: float) -> None:
    size, shift, weight = 3, 1e-9, 0.5
    laid = one_cell(weight, size, shift, factor=1.0)
    exact = weight * Fraction(1, 8) * max(Fraction(0), 3 - Fraction(math.expm1(epsilon)) * Fraction(shift))
    (most,), (least,) = (evaluate(laid, np.array([epsilon])) for evaluate in (evaluate_upper, evaluate_lower))
    assert Fraction(least) <= exact <= Fraction(most) <= exact * (1 + Fraction(1, 10**9)) + Fraction(1, 10**12)
    assert exact == 0 or least > 0


# Pairs on a grid


def pair_of(
    step: float, lowest: int, symmetrised: list[float], infinite: float = 0.0, error: float = 0.0
) -> PrivacyLossDistribution:
    return PrivacyLossDistribution(step, lowest, np.array(symmetrised), infinite, error)


def normalised() -> PrivacyLossDistribution:
    """A symmetric pair of probabilities."""
    raw = pair_of(0.5, -3, [0.02, 0.1, 0.2, 0.25, 0.2, 0.1, 0.02])
    return PrivacyLossDistribution(0.5, -3, raw.symmetrised * 0.99 / raw.upper_masses().sum(), 0.01, 0.0)


PAIR = normalised()


def height(pair: PrivacyLossDistribution, epsilon: float) -> float:
    """H(e^epsilon), atom by atom."""
    atoms = [(r * math.exp(x / 2), r * math.exp(-x / 2)) for r, x in zip(pair.symmetrised, pair.losses(), strict=True)]
    return pair.infinity_mass + math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in atoms)


@pytest.mark.parametrize("error", [0.001, 0.05])
def test_masses_that_are_too_small_by_the_error_are_made_up_for(error: float) -> None:
    stored = PrivacyLossDistribution(
        PAIR.step, PAIR.lowest, PAIR.symmetrised / (1 + error), PAIR.infinity_mass / (1 + error), error
    )
    for epsilon in EPSILONS:
        exact = height(PAIR, epsilon)
        assert exact <= stored.delta_upper(epsilon) <= exact * (1 + 1e-9)
        assert stored.hockey_stick_divergence(epsilon) < exact


@pytest.mark.parametrize("error", [0.001, 0.02])
@pytest.mark.parametrize("signs", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_a_lower_bound_allows_for_errors_of_either_law(error: float, signs: tuple[int, int]) -> None:
    p, q = (1 + sign * error for sign in signs)
    atoms = [
        (r * math.exp(x / 2) / p, r * math.exp(-x / 2) / q)
        for r, x in zip(PAIR.symmetrised, PAIR.losses(), strict=True)
    ]
    stored = PrivacyLossDistribution(PAIR.step, PAIR.lowest, PAIR.symmetrised, 0.0, error)
    for epsilon in np.linspace(0, 1.4, 29):
        exact = math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in atoms)
        assert stored.delta_lower(float(epsilon)) <= exact
        assert stored.delta_lower(float(epsilon)) >= exact * (1 - 3 * error) - 6 * error


@pytest.mark.parametrize("charge", [0.3, 0.1, 0.02])
def test_cut_ends_raise_an_upper_profile_and_lower_a_lower_one_by_the_charge_at_most(charge: float) -> None:
    above, below = pld.trim_above(PAIR, charge), pld._trim_below(PAIR, charge)
    assert len(above.symmetrised) < len(PAIR.symmetrised)
    assert len(below.symmetrised) < len(PAIR.symmetrised) or charge < 0.05
    total = sum(PAIR.upper_masses()) + PAIR.infinity_mass
    assert sum(above.upper_masses()) + above.infinity_mass == pytest.approx(total, rel=1e-12)
    for epsilon in np.linspace(-2, 2, 41):
        exact = height(PAIR, float(epsilon))
        assert exact * (1 - 1e-12) <= above.hockey_stick_divergence(float(epsilon)) <= exact + charge + 1e-12
        assert exact - charge - 1e-12 <= below.hockey_stick_divergence(float(epsilon)) <= exact * (1 + 1e-12)


def product(copies: int) -> PrivacyLossDistribution:
    symmetrised, infinite = np.ones(1), 0.0
    for _ in range(copies):
        symmetrised, infinite = (
            np.convolve(symmetrised, PAIR.symmetrised),
            infinite + PAIR.infinity_mass * (1 - infinite),
        )
    return PrivacyLossDistribution(PAIR.step, copies * PAIR.lowest, symmetrised, infinite, 0.0)


@pytest.mark.parametrize("copies", [2, 3, 6, 13])
@pytest.mark.parametrize("charge", [0.2, 0.02])
def test_a_product_is_cut_at_most_by_the_charge_in_all(copies: int, charge: float) -> None:
    above, below = (power(PAIR, copies, charge) for power in (pld.power_above, pld.power_below))
    for epsilon in np.linspace(0, 4, 21):
        exact = height(product(copies), float(epsilon))
        assert exact * (1 - 1e-9) <= above.hockey_stick_divergence(float(epsilon)) <= exact + charge
        assert exact - charge <= below.hockey_stick_divergence(float(epsilon)) <= exact * (1 + 1e-9)


def test_a_product_of_several_is_charged_once_for_each() -> None:
    pairs = [PAIR, PAIR, PAIR]
    for charge in (0.1, 0.01):
        above, below = pld.product_above(pairs, charge), pld.product_below(pairs, charge)
        for epsilon in EPSILONS:
            exact = height(product(3), epsilon)
            assert exact * (1 - 1e-9) <= above.hockey_stick_divergence(epsilon) <= exact + charge
            assert exact - charge <= below.hockey_stick_divergence(epsilon) <= exact * (1 + 1e-9)


def test_errors_of_factors_add_up_in_a_product() -> None:
    rough = PrivacyLossDistribution(PAIR.step, PAIR.lowest, PAIR.symmetrised, PAIR.infinity_mass, 1e-6)
    for power in (pld.power_above, pld.power_below):
        assert power(rough, 5, 1e-9).error >= 5e-6
    assert pld.product_above([rough, rough], 1e-9).error >= 2e-6


@pytest.mark.parametrize("step", [0.3, 1.0])
def test_coarser_grids_raise_above_and_lower_below(step: float) -> None:
    pair = PrivacyLossDistribution(step, PAIR.lowest, PAIR.symmetrised, PAIR.infinity_mass, 0.0)
    above, below = pld.coarsen_above(pair), pld._coarsen_below(pair)
    assert above.step == below.step == 2 * step
    for epsilon in np.linspace(-3, 3, 61):
        exact = height(pair, float(epsilon))
        assert exact * (1 - 1e-12) <= above.hockey_stick_divergence(float(epsilon)) <= exact + step
        assert exact - step <= below.hockey_stick_divergence(float(epsilon)) <= exact * (1 + 1e-12)


def test_losses_too_large_for_exponentials_count_as_infinite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pld, "_LARGEST_LOSS", 1.2)
    cut = pld.trim_above(PAIR, 1e-9)
    assert max(cut.losses()) <= 1.0
    for epsilon in EPSILONS:
        assert cut.hockey_stick_divergence(epsilon) >= height(PAIR, epsilon) * (1 - 1e-12)
    assert cut.infinity_mass > PAIR.infinity_mass + 0.01


def test_a_grid_of_a_profile_ends_at_mass_of_infinite_loss() -> None:
    """The profile of PAIR at too few nodes: the last height stays."""
    heights = np.array([height(PAIR, 0.5 * node) for node in range(3)])
    found = dominating(0.5, heights, 0.0)
    assert found.infinity_mass == heights[-1]
    for epsilon in np.linspace(-2, 3, 51):
        assert found.delta_upper(float(epsilon)) >= height(PAIR, float(epsilon)) * (1 - 1e-12)


def test_a_profile_is_read_below_each_node_and_at_its_limit_beyond_the_highest_loss() -> None:
    """A node's loss is rounded itself; where all finite losses are passed, the chance of an infinite one is left."""
    asked = []

    def profile(epsilons: np.ndarray) -> np.ndarray:
        asked.append(epsilons.copy())
        return np.array([height(PAIR, float(epsilon)) for epsilon in epsilons])

    factor = Factor(profile, 0.5, 1.5, 1, limit=PAIR.infinity_mass)
    pair = factor.pld(0.1, 2.0)
    nodes = 0.1 * np.arange(21)
    (read,) = asked
    assert all(Fraction(float(at)) <= Fraction(1, 10) * i for i, at in enumerate(read))
    np.testing.assert_allclose(read, nodes, rtol=1e-15)
    assert pair.infinity_mass == PAIR.infinity_mass
    composed = compose_profiles([Factor(profile, 0.5, 1.5, 3, limit=PAIR.infinity_mass)])
    for epsilon in EPSILONS:
        assert composed.delta(epsilon) >= height(product(3), epsilon) * (1 - 1e-12)


@pytest.mark.parametrize("charge", [0.05, 0.01])
def test_a_composition_from_above_and_below_is_cut_at_most_by_its_charge(
    monkeypatch: pytest.MonkeyPatch, charge: float
) -> None:
    monkeypatch.setattr(composition, "_CHARGE", charge)

    def profile(epsilons: np.ndarray) -> np.ndarray:
        return np.array([height(PAIR, float(epsilon)) for epsilon in epsilons])

    above = compose_profiles([Factor(profile, 0.05, 1.5, 3, limit=PAIR.infinity_mass)])
    below = composition.compose_pairs([[(PAIR, 3)]])
    for epsilon in EPSILONS:
        exact = height(product(3), epsilon)
        assert exact * (1 - 1e-12) <= above.delta(epsilon) <= exact + 3 * charge
        assert exact - 3 * charge <= below.delta(epsilon) <= exact * (1 + 1e-9)


def test_what_others_are_handed_has_the_error_added() -> None:
    pytest.importorskip("dp_accounting")
    rough = PrivacyLossDistribution(PAIR.step, PAIR.lowest, PAIR.symmetrised / 1.01, PAIR.infinity_mass / 1.01, 0.01)
    handed = to_dp_accounting(rough, 0.25)
    for epsilon in EPSILONS:
        assert handed.get_delta_for_epsilon(epsilon) >= height(PAIR, epsilon) * (1 - 1e-12)
    finer = to_dp_accounting(PAIR, 1.0)  # coarsened, upwards
    for epsilon in EPSILONS:
        assert finer.get_delta_for_epsilon(epsilon) >= height(PAIR, epsilon) * (1 - 1e-12)


def test_atoms_that_are_merged_lose_something_but_never_gain() -> None:
    upper = np.array([0.05, 0.1, 0.3, 0.35, 0.2])
    lower = upper[::-1].copy()
    order = np.argsort(upper / lower)
    upper, lower = upper[order], lower[order]
    for step in (0.05, 0.4, 1.6):
        pair = dominated(step, upper, lower, 0.0)
        found = [pair.delta_lower(epsilon) for epsilon in EPSILONS]
        for epsilon, least in zip(EPSILONS, found, strict=True):
            exact = math.fsum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(upper, lower, strict=True))
            assert exact - step <= least <= exact * (1 + 1e-12)


def test_atoms_on_nodes_of_the_grid_stay_there() -> None:
    masses = np.array([0.01, 0.05, 0.1, 0.2, 0.15, 0.1, 0.04, 0.02])
    found = pld.gather(np.linspace(-0.75, 1.0, 8), masses, 0.25, -5, 6)
    assert found == pytest.approx(np.pad(masses, 2), rel=1e-12)


@pytest.mark.parametrize("moved", [-0.1, -0.03, 0.0, 0.03, 0.1])
def test_of_many_atoms_nothing_is_cut(moved: float) -> None:
    """Both masses are kept, on whichever side of its node the middle lies."""
    losses = np.linspace(-2.0, 2.0, 401) + moved
    masses = np.exp(-2.0 * (losses - moved) ** 2)
    found = pld.gather(losses, masses, 0.25, -12, 12)
    for sign in (1, -1):
        kept = np.sum(found * np.exp(sign * 0.25 * np.arange(-12, 13) / 2))
        assert kept == pytest.approx(np.sum(masses * np.exp(sign * losses / 2)), rel=1e-9)
