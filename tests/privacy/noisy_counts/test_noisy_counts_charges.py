"""Tails and cuts of noisy counts, each made large enough to matter, against exact values."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.oracles.noisy_counts import binomial, weights_of
from tests.refusals import refusal

from shufflesum.errors import PrivacyError
from shufflesum.privacy import noisy_counts as counts
from shufflesum.privacy.engine.pld import dominating
from shufflesum.privacy.noisy_counts import (
    Block,
    ChangedCounts,
    NoisyCountsAccountant,
    OneWay,
    _charge,
    _with_charge,
    listed,
    overflow_upper,
    smallest_cap,
)

EPSILONS = [0.0, 0.1, 0.4, 1.0, 2.0, 3.0]
COUNTS = [(1, "1/2"), (6, "1/4"), (20, "1/2"), (24, "1/16"), (24, "15/16")]
Pair = list[tuple[Fraction, Fraction]]


def up(trials: int, p: Fraction) -> Pair:
    """N + 1 against N, outcome by outcome."""
    law = binomial(trials, p)
    return list(zip([Fraction(0), *law], [*law, Fraction(0)], strict=True))


def down(trials: int, p: Fraction) -> Pair:
    return [(second, first) for first, second in up(trials, p)]


def times(first: Pair, second: Pair) -> Pair:
    return [(p * r, q * s) for p, q in first for r, s in second]


def height(pair: Pair, weight: Fraction) -> Fraction:
    return sum((max(Fraction(0), p - weight * q) for p, q in pair), Fraction(0))


@cache
def both_heights(trials: int, p: Fraction, weight: Fraction) -> tuple[Fraction, Fraction]:
    """Of one count, up and down."""
    return height(up(trials, p), weight), height(down(trials, p), weight)


@pytest.mark.parametrize("outside", [0.2, 1e-2, 1e-24])
@pytest.mark.parametrize(("trials", "chance"), COUNTS)
def test_a_cut_law_of_noise_still_bounds_one_count_from_both_sides(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: str, outside: float
) -> None:
    monkeypatch.setattr(counts, "_OUTSIDE", outside)
    p = Fraction(chance)
    above = counts.profile_upper(trials, float(p), np.array(EPSILONS))
    rising, falling = (counts.pld_below(trials, float(chance), 0.01) for chance in (p, 1 - p))
    for epsilon, weight, most in zip(EPSILONS, weights_of(EPSILONS), above, strict=True):
        exact = both_heights(trials, p, weight)
        assert max(exact) <= Fraction(most) <= max(exact) + Fraction(4 * outside) + Fraction(1, 10**9)
        for below, truth in zip((rising, falling), exact, strict=True):
            assert below.delta_lower(epsilon) <= truth * (1 + Fraction(1, 10**9))
            assert below.delta_lower(epsilon) >= float(truth) - 4 * outside - 0.02


def test_beyond_the_largest_loss_a_profile_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "_LARGEST_LOSS", 1.0)
    far, near = (float(counts.profile_upper(24, 0.25, np.array([epsilon]))[0]) for epsilon in (2.0, 1.0))
    assert far == near


@pytest.mark.parametrize(("trials", "chance"), COUNTS)
def test_the_largest_finite_loss_and_the_chance_of_an_infinite_one(trials: int, chance: str) -> None:
    p = Fraction(chance)
    pairs = up(trials, p) + down(trials, p)
    largest = max(first / second for first, second in pairs if second)
    assert largest < Fraction(math.exp(counts.highest_loss(trials, float(p)))) < largest * (1 + Fraction(1, 10**8))
    infinite = max(p**trials, (1 - p) ** trials)
    assert infinite <= Fraction(counts.infinity_mass(trials, float(p))) <= infinite * (1 + Fraction(1, 10**11))


@pytest.mark.parametrize("outside", [0.2, 1e-2, 1e-24])
@pytest.mark.parametrize("step", [0.9, 0.05])
@pytest.mark.parametrize(("trials", "chance"), COUNTS)
def test_outcomes_on_a_grid_dominate_in_both_readings_whatever_is_cut(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: str, step: float, outside: float
) -> None:
    monkeypatch.setattr(counts, "_OUTSIDE", outside)
    p = Fraction(chance)
    laid = listed(trials, float(p)).on_grid(step)
    for pair, exact in ((laid, up(trials, p)), (laid.mirrored, down(trials, p))):
        for trimmed in (pair, pair.trimmed(1e-3), pair.trimmed(0.2)):
            heights = trimmed.heights()
            weights = weights_of([step * node for node in range(heights.size)])
            for most, weight in zip(heights, weights, strict=True):
                # a node's loss is rounded: at a weight a little smaller the profile is larger by no more than that
                assert height(exact, weight * (1 + Fraction(1, 2**48))) <= Fraction(most)
        slack = 0.8 * step + 4 * outside
        assert pair.heights()[0] <= float(height(exact, Fraction(1))) + slack
        assert pair.trimmed(0.2).heights()[0] <= pair.heights()[0] + 0.2 + 1e-9


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_what_is_no_noise_is_refused(probability: float) -> None:
    with refusal("out-of-range", "probability"):
        ChangedCounts(100, probability, 1)


def test_folded_ends_keep_their_mass_above_and_below() -> None:
    """What lies above keeps its Q, what lies below its P; what else P or Q had there is at infinite loss."""
    pair = OneWay(0.5, -4, np.array([0.01, 0.02, 0.1, 0.2, 0.3, 0.2, 0.1, 0.02, 0.01]), 0.01, 0.02, 0.0)
    found = pair.trimmed(0.08)
    assert found.symmetrised.size < pair.symmetrised.size - 2

    def masses(of: OneWay, sign: int) -> float:
        return math.fsum(of.symmetrised * np.exp(sign * of._losses() / 2)) + (of.rising if sign > 0 else of.falling)

    for sign in (1, -1):
        assert masses(found, sign) == pytest.approx(masses(pair, sign))


def test_masses_that_may_be_too_small_are_made_up_for() -> None:
    exact = OneWay(0.5, -2, np.array([0.1, 0.2, 0.3, 0.2, 0.1]), 0.01, 0.02, 0.0)
    for error in (0.001, 0.1):
        short = OneWay(0.5, -2, exact.symmetrised / (1 + error), 0.01 / (1 + error), 0.02 / (1 + error), error)
        assert np.all(short.heights() >= exact.heights() * (1 - 1e-12))
        assert np.all(short.mirrored.heights() >= exact.mirrored.heights() * (1 - 1e-12))
    both = short.times(short)
    assert both.error >= 2 * short.error
    assert both.rising == pytest.approx(1 - (1 - short.rising) ** 2)
    assert both.falling == pytest.approx(1 - (1 - short.falling) ** 2)


@pytest.mark.parametrize("charge", [0.3, 1e-2, 1e-16])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(("trials", "chance"), [(4, "1/4"), (6, "1/16"), (5, "7/8")])
def test_a_block_dominates_every_way_its_counts_can_go_whatever_is_cut(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: str, size: int, charge: float
) -> None:
    monkeypatch.setattr(counts, "_CHARGE", charge)
    p, step = Fraction(chance), 0.05
    (single,) = ChangedCounts(trials, float(p), size).factors
    pair = Block(trials, float(p), size, 1, single).pld(step, 30.0)  # type: ignore[arg-type]
    for ups in range(size + 1):
        exact: Pair = [(Fraction(1), Fraction(1))]
        for count in range(size):
            exact = times(exact, up(trials, p) if count < ups else down(trials, p))
        for epsilon, weight in zip(EPSILONS, weights_of(EPSILONS), strict=True):
            assert height(exact, weight) <= Fraction(pair.delta_upper(epsilon))
    assert pair.delta_upper(0.0) <= 1.0
    assert pair.infinity_mass <= float(max(p**trials, (1 - p) ** trials)) * size + charge + 1e-9


@pytest.mark.parametrize(("outside", "dropped"), [(1e-24, 1e-20), (0.1, 1e-20), (1e-24, 0.05), (0.1, 0.05)])
@pytest.mark.parametrize(("trials", "chance"), [(6, "1/4"), (3, "1/2"), (5, "15/16")])
def test_sums_of_scores_stay_below_whatever_is_cut(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: str, outside: float, dropped: float
) -> None:
    monkeypatch.setattr(counts, "_OUTSIDE", outside)
    monkeypatch.setattr(counts, "_DROPPED", dropped)
    p = Fraction(chance)
    exact = times(up(trials, p), up(trials, p))
    below = counts.summed_pld_below(trials, float(p), 2, 0.02)
    for epsilon, weight in zip(EPSILONS, weights_of(EPSILONS), strict=True):
        truth = height(exact, weight)
        assert below.delta_lower(epsilon) <= truth * (1 + Fraction(1, 10**9))
        assert below.delta_lower(epsilon) >= float(truth) - 6 * (outside + 20 * dropped) - 0.05


@pytest.mark.parametrize("overflow", [1e-9, 0.01])
def test_the_cap_costs_as_much_in_either_world(overflow: float) -> None:
    for epsilon in (0.0, 0.7, 3.0, 30.0):
        exact = Fraction(overflow) * (1 + Fraction(math.exp(epsilon)))
        assert exact <= Fraction(_charge(epsilon, overflow)) <= exact * (1 + Fraction(1, 10**11))
    assert _charge(1.0, 0.0) == 0.0


def test_a_bound_with_the_charge_is_a_chance_and_never_rises() -> None:
    capped = NoisyCountsAccountant((ChangedCounts(30, 0.25, 2),), overflow=0.4)
    found = [capped.delta_upper(epsilon) for epsilon in (0.0, 0.5, 1.0, 50.0, 900.0)]
    assert found[0] == 1.0
    assert found == sorted(found, reverse=True)
    assert capped.delta_lower(900.0) == 0.0  # where exponentials end


def test_a_pair_with_the_charge_lies_above_the_charged_profile_where_that_falls() -> None:
    free = NoisyCountsAccountant((ChangedCounts(30, 0.25, 2),)).upper().pld
    charged = _with_charge(free, 1e-3)
    for epsilon in (0.0, 0.2, 0.9):
        assert charged.delta_upper(epsilon) >= free.hockey_stick_divergence(epsilon) + (1 + math.exp(epsilon)) * 1e-3
    assert _with_charge(free, 0.0) is free
    assert dominating(0.1, np.array([0.5, 0.4]), 1e-5).error >= 1e-5


@pytest.mark.parametrize("cap", [3, 5, 9])
def test_the_bound_of_a_tail_is_rounded_up(cap: int) -> None:
    """Chernoff's bound at the best tilt, in exact numbers: what is returned lies above it, by its rounding."""
    noise = [(12, 0.125), (6, 0.25)]
    least = min(
        math.prod((1 + p * math.expm1(tilt)) ** n for n, p in noise) * math.exp(-tilt * (cap + 1))
        for tilt in np.linspace(0.001, 8, 8000)
    )
    assert least * (1 - 1e-6) <= overflow_upper(noise, cap) <= least * (1 + 1e-6)
    assert overflow_upper(noise, cap) > 0


@pytest.mark.parametrize("noise", [[(12, 0.125), (6, 0.25)], [(3, 0.5)], [(40, 0.01), (1, 0.9)]])
def test_the_smallest_cap_is_the_first_that_is_exceeded_rarely_enough(noise: list[tuple[int, float]]) -> None:
    most = sum(trials for trials, _ in noise)
    for chance in (1.0, 0.3, 1e-2, 1e-6, 1e-30):
        assert smallest_cap(noise, chance) == next(
            cap for cap in range(most + 1) if overflow_upper(noise, cap) <= chance
        )


def test_noise_that_is_nearly_certain_varies_little_and_is_accepted() -> None:
    assert ChangedCounts(9 * 10**14, 0.999, 1).probability == 0.999
    with refusal("not-certified", error=PrivacyError):
        ChangedCounts(11 * 10**14, 0.999, 1)


@pytest.mark.parametrize("probability", [2.0**-53, 1.0 - 2.0**-53])
def test_no_more_than_all_of_a_count_gives_itself_away(probability: float) -> None:
    found = listed(1, probability)
    assert max(found.rising, found.falling) == 1.0
