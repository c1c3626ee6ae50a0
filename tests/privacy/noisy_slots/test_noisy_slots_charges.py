"""Tails and cuts of noise in slots, each made large enough to matter, against exact values."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.oracles.noisy_counts import binomial, weights_of
from tests.uncompiled_kernels import uncompiled

from shufflesum.privacy import noisy_slots
from shufflesum.privacy.engine.laws import evaluate_lower, evaluate_upper

EPSILONS = [0.0, 0.1, 0.4, 1.0, 2.0]
SETTINGS = [(6, "1/2", 3), (40, "1/4", 4), (40, "1", 10), (24, "1/2", 2)]


@cache
def exact_delta(trials: int, chance: Fraction, cells: int, weight: Fraction) -> Fraction:
    """sum over s of P[S = s - 1] (2/s) E (a - w b)+, as it is written."""
    total = Fraction(0)
    for hits, share in enumerate(binomial(trials, 2 * chance / cells)):
        s = hits + 1
        fair = binomial(s, Fraction(1, 2))
        mean = sum((max(Fraction(0), a - weight * (s - a)) * part for a, part in enumerate(fair)), Fraction(0))
        total += share * Fraction(2, s) * mean
    return total


@pytest.mark.long
@pytest.mark.parametrize(("outside", "width"), [(1e-24, 5e-5), (0.2, 5e-5), (1e-2, 5e-5), (1e-24, 0.3), (0.1, 0.3)])
@pytest.mark.parametrize(("trials", "chance", "cells"), SETTINGS)
def test_a_cut_and_coarse_mixture_still_bounds_from_both_sides(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: str, cells: int, outside: float, width: float
) -> None:
    monkeypatch.setattr(noisy_slots, "_OUTSIDE", outside)
    monkeypatch.setattr(noisy_slots, "_CELL", width)
    monkeypatch.setattr(noisy_slots, "_COARSE_CELL", width)
    p = Fraction(chance)
    above = evaluate_upper(noisy_slots._slots_mixture(trials, float(p), cells, upper=True), np.array(EPSILONS))
    below = evaluate_lower(noisy_slots._slots_mixture(trials, float(p), cells, upper=False), np.array(EPSILONS))
    pair = noisy_slots.pld_below(trials, float(p), cells, 0.01)
    for epsilon, weight, most, least in zip(EPSILONS, weights_of(EPSILONS), above, below, strict=True):
        exact = exact_delta(trials, p, cells, weight)
        nearby = exact_delta(trials, p, cells, weight * (1 - Fraction(1, 2**45)))  # weights are rounded up
        assert exact <= Fraction(most) <= exact + Fraction(3 * outside + width) + Fraction(1, 10**9)
        for lower in (float(least), pair.delta_lower(epsilon)):
            assert Fraction(lower) <= nearby * (1 + Fraction(1, 10**9))
            assert lower >= float(exact) - 3 * outside - width - 0.02


@pytest.mark.parametrize("outside", [0.2, 1e-2])
def test_outcomes_that_are_cut_inside_a_cell_are_only_forgotten(
    monkeypatch: pytest.MonkeyPatch, outside: float
) -> None:
    """The window of a given s is cut too, in compiled code."""
    uncompiled(monkeypatch, noisy_slots, _OUTSIDE=outside)
    pair = noisy_slots.pld_below(40, 0.25, 4, 0.01)
    for epsilon, weight in zip(EPSILONS, weights_of(EPSILONS), strict=True):
        exact = float(exact_delta(40, Fraction(1, 4), 4, weight))
        assert exact - 6 * outside - 0.02 <= pair.delta_lower(epsilon) <= exact * (1 + 1e-9)
    assert pair.infinity_mass <= float((1 - Fraction(1, 16)) ** 40)


@pytest.mark.parametrize(("trials", "chance", "cells"), [(6, 0.3, 3), (10**6, 0.7, 1000), (50, 2**-30, 7)])
def test_odds_of_a_hit_are_rounded_to_the_safe_side(
    monkeypatch: pytest.MonkeyPatch, trials: int, chance: float, cells: int
) -> None:
    seen: list[float] = []

    def window(trials: int, probability: float, odds: float, cut: float) -> Any:
        seen.append(odds)
        return 0, np.ones(1), 1.0, 0.0

    monkeypatch.setattr(noisy_slots, "binomial_window", window)
    noisy_slots._hits(trials, chance, cells, upper=True)
    noisy_slots._hits(trials, chance, cells, upper=False)
    exact = 2 * Fraction(chance) / (cells - 2 * Fraction(chance))
    low, high = map(Fraction, seen)
    assert exact * (1 - Fraction(1, 2**48)) < low <= exact <= high < exact * (1 + Fraction(1, 2**48))


@pytest.mark.parametrize(("trials", "chance", "cells"), SETTINGS)
def test_the_largest_finite_loss_and_the_chance_of_an_infinite_one(trials: int, chance: str, cells: int) -> None:
    """a <= T reports of noise beside none but one, and a cell that stays empty."""
    p = Fraction(chance)
    assert trials < Fraction(math.exp(noisy_slots.highest_loss(trials))) < trials * (1 + Fraction(1, 10**8))
    empty = (1 - p / cells) ** trials
    assert empty <= Fraction(noisy_slots.infinity_mass(trials, float(p), cells)) <= empty * (1 + Fraction(1, 10**11))


def test_what_a_lower_bound_may_be_off_by_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = noisy_slots._hits(40, 0.25, 4, upper=False)[1].size
    before = noisy_slots.pld_below(40, 0.25, 4, 0.05)
    monkeypatch.setattr(noisy_slots, "slack", lambda steps: 1e-7 * steps)
    after = noisy_slots.pld_below(40, 0.25, 4, 0.05)
    assert after.error >= 1e-7 * terms
    assert after.infinity_mass <= before.infinity_mass * (1 - 2e-7 * terms)


def test_a_chance_too_small_for_double_precision_is_not_nothing() -> None:
    assert noisy_slots.infinity_mass(10**6, 0.5, 3) > 0.0
