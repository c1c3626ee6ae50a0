"""Certified bounds of noise in slots against their full enumeration, and against each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.noisy_slots import direct, hashed, noise, worst_delta
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cells import MOST_CELLS
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy import noisy_slots
from shufflesum.privacy.noisy_slots import (
    MOST_HITS,
    NoisySlotsAccountant,
    noise_per_cell_guess,
    rough_noise_per_cell,
    smallest_chance,
)

EPSILONS = [0.0, 0.1, 0.3, 0.7, 1.1, 1.6, 2.3, 3.5, 25.0]
CHANCES = [Fraction(1, 8), Fraction(5, 8), Fraction(1)]
TINY = [  # users, labels, slots
    numbers for numbers in itertools.product((1, 2, 3, 4), (1, 2, 3, 4), (1, 2)) if math.prod(numbers) <= 18
]

Bound = Callable[[float], float]


@cache
def enumerated(users: int, labels: int, slots: int, chance: Fraction, rounds: int = 1) -> list[Fraction]:
    return worst_delta(
        users=users,
        reports=direct(labels),
        cells=labels,
        slots=slots,
        chance=chance,
        weights=weights_of(EPSILONS),
        rounds=rounds,
    )


def weights_of(epsilons: Sequence[float]) -> list[Fraction]:
    """Weights certainly above e^epsilon: exp may be rounded down."""
    return [Fraction(math.nextafter(math.exp(epsilon), math.inf)) if epsilon else Fraction(1) for epsilon in epsilons]


def exceeded(upper: Bound, truth: Sequence[Fraction]) -> list[float]:
    """Where the truth lies above what claims to be an upper bound."""
    return [epsilon for epsilon, delta in zip(EPSILONS, truth, strict=True) if delta > Fraction(upper(epsilon))]


def missed(lower: Bound, truth: Sequence[Fraction]) -> list[float]:
    """Where the truth lies below what claims to be a lower bound."""
    return [
        epsilon
        for epsilon, delta in zip(EPSILONS, truth, strict=True)
        if delta * Fraction(1 + 1e-12) < Fraction(lower(epsilon))
    ]


@pytest.mark.long
@pytest.mark.parametrize(("users", "labels", "slots"), TINY)
def test_the_enumerated_delta_lies_between_the_bounds(users: int, labels: int, slots: int) -> None:
    for chance in CHANCES:
        truth = enumerated(users, labels, slots, chance)
        bounds = NoisySlotsAccountant(users * slots, float(chance), labels)
        assert not exceeded(bounds.delta_upper, truth)
        assert not missed(bounds.delta_lower, truth)
        for epsilon, delta in zip(EPSILONS, truth, strict=True):  # the sum is exact
            assert bounds.delta_upper(epsilon) == pytest.approx(float(delta), rel=1e-5, abs=1e-20)
            assert bounds.delta_lower(epsilon) == pytest.approx(float(delta), rel=1e-5, abs=1e-20)


@pytest.mark.long
@pytest.mark.parametrize(("users", "labels", "slots"), [numbers for numbers in TINY if numbers[1] > 1])
def test_a_bound_for_noise_in_one_cell_instead_of_two_would_be_caught(users: int, labels: int, slots: int) -> None:
    for chance in CHANCES[:2]:
        truth = enumerated(users, labels, slots, chance)
        # S ~ Binomial(T, chance/K): too little noise asks for too much, so it is the lower bound that breaks
        assert missed(NoisySlotsAccountant(users * slots, float(chance) / 2, labels).delta_lower, truth)
        # and noise of both cells in each is too much
        assert exceeded(NoisySlotsAccountant(users * slots, min(1.0, 2 * float(chance)), labels).delta_upper, truth)


@pytest.mark.parametrize(("users", "labels", "slots"), [numbers for numbers in TINY if numbers[1] > 1])
def test_a_bound_with_the_noise_of_a_user_more_would_be_caught(users: int, labels: int, slots: int) -> None:
    truth = enumerated(users, labels, slots, CHANCES[1])
    assert exceeded(NoisySlotsAccountant((users + 1) * slots, float(CHANCES[1]), labels).delta_upper, truth)


@pytest.mark.parametrize(("users", "labels", "slots"), [(1, 2, 1), (2, 2, 1), (1, 3, 2), (2, 2, 2)])
@pytest.mark.parametrize("chance", CHANCES)
def test_two_rounds_lie_between_their_bounds(users: int, labels: int, slots: int, chance: Fraction) -> None:
    truth = enumerated(users, labels, slots, chance, rounds=2)
    twice = NoisySlotsAccountant(users * slots, float(chance), labels, rounds=2)
    assert not exceeded(twice.delta_upper, truth)
    assert not missed(twice.delta_lower, truth)
    assert exceeded(NoisySlotsAccountant(users * slots, float(chance), labels).delta_upper, truth)  # a round forgotten
    for epsilon, delta in zip(EPSILONS, truth, strict=True):
        assert twice.delta_upper(epsilon) <= min(1.0, 1.1 * float(delta) + 1e-15)
        assert twice.delta_lower(epsilon) >= 0.8 * float(delta) - 1e-15


# Hash functions

FUNCTIONS = [
    (3, [(0, 1, 2)]),
    (3, [(0, 1, 2), (2, 0, 1)]),
    (3, [(0, 1, 2), (0, 1, 1)]),  # the second and the third label collide in one of two
    (3, [(0, 1, 1), (2, 2, 1)]),
    (2, [(0, 1, 0), (1, 0, 0)]),
    (2, [(0, 1), (1, 0), (0, 1)]),
    (2, [(0, 1), (1, 1), (0, 0)]),
    (1, [(0, 0, 0), (0, 0, 0)]),
]


def hashed_truth(users: int, buckets: int, functions: Sequence[Sequence[int]], chance: Fraction) -> list[Fraction]:
    return worst_delta(
        users=users,
        reports=hashed(functions, buckets),
        cells=buckets * len(functions),
        slots=1,
        chance=chance,
        weights=weights_of(EPSILONS),
    )


def apart(functions: Sequence[Sequence[int]]) -> bool:
    """Whether two labels differ in every function; everybody else may hold one of them."""
    pairs = itertools.combinations(range(len(functions[0])), 2)
    return any(all(table[one] != table[other] for table in functions) for one, other in pairs)


@pytest.mark.parametrize(("buckets", "functions"), FUNCTIONS)
@pytest.mark.parametrize("users", [1, 2, 3])
@pytest.mark.parametrize("chance", CHANCES)
def test_hashed_labels_are_covered_whatever_collides(
    users: int, buckets: int, functions: list[Sequence[int]], chance: Fraction
) -> None:
    if users == 3 and len(functions) * buckets > 4:
        users = 2
    truth = hashed_truth(users, buckets, functions, chance)
    bounds = NoisySlotsAccountant(users, float(chance), buckets)
    assert not exceeded(bounds.delta_upper, truth)
    if apart(functions):  # without collisions nothing is lost: the bound is attained, with two buckets as well
        assert not missed(bounds.delta_lower, truth)
        assert [bounds.delta_upper(epsilon) for epsilon in EPSILONS] == pytest.approx(
            [float(delta) for delta in truth], rel=1e-5, abs=1e-20
        )


@pytest.mark.parametrize(("buckets", "functions"), FUNCTIONS[:2])
def test_a_bound_that_counts_all_cells_of_all_functions_would_be_caught(
    buckets: int, functions: list[Sequence[int]]
) -> None:
    """More cells hold less noise each: taken for K they are no worse than the truth, and no better than it either."""
    truth = hashed_truth(2, buckets, functions, CHANCES[1])
    together = NoisySlotsAccountant(2, float(CHANCES[1]), buckets * len(functions))
    caught = missed(together.delta_lower, truth)
    assert caught if len(functions) > 1 else not caught
    # the noise of all functions in one cell would be too much
    assert exceeded(NoisySlotsAccountant(2 * 2, float(CHANCES[1]), buckets).delta_upper, truth)


# Sizes that nobody enumerates


def exact_sum(trials: int, chance: Fraction, cells: int, weight: Fraction) -> Fraction:
    """The sum over both noisy counts as they are: a Binomial law of hits, evenly split, and the victim's one more."""
    hit = 2 * chance / cells
    delta = Fraction(0)
    for hits in range(trials + 1):
        share = math.comb(trials, hits) * hit**hits * (1 - hit) ** (trials - hits) / 2**hits
        for own in range(hits + 1):
            here, there = math.comb(hits, own), math.comb(hits, own + 1) if own < hits else 0
            delta += share * max(Fraction(0), here - weight * there)
    return delta


sizes = st.tuples(st.integers(1, 60), st.integers(1, 64), st.integers(2, 2**32 - 2) | st.integers(2, 40))


@settings(max_examples=60)
@given(sizes, st.floats(0.0, 8.0))
def test_bounds_embrace_the_exact_sum(drawn: tuple[int, int, int], epsilon: float) -> None:
    trials, chance, cells = drawn
    truth = exact_sum(trials, Fraction(chance, 64), cells, Fraction(math.exp(epsilon)))
    bounds = NoisySlotsAccountant(trials, chance / 64, cells)
    assert Fraction(bounds.delta_lower(epsilon)) * Fraction(1 - 1e-12) <= truth
    assert truth <= Fraction(bounds.delta_upper(epsilon)) * Fraction(1 + 1e-12)
    assert bounds.delta_upper(epsilon) - bounds.delta_lower(epsilon) <= 1e-9 * float(truth) + 1e-20


TABLE = [  # users, labels, epsilon, delta, dummy reports of a user
    (10_000, 10, 1.0, 1e-6, 0.0426),
    (100_000, 100, 1.0, 1e-6, 0.0427),
    (100_000, 10_000, 1.0, 1e-6, 4.265),
    (1_000_000, 10_000, 0.5, 1e-8, 2.039),
]


@pytest.mark.parametrize(("users", "labels", "epsilon", "delta", "expected"), TABLE)
def test_dummy_reports_of_a_user_are_what_was_worked_out_beforehand(
    users: int, labels: int, epsilon: float, delta: float, expected: float
) -> None:
    slots = math.ceil(2 * expected)
    chance = smallest_chance(honest_users=users, slots=slots, cells=labels, epsilon=epsilon, delta=delta)
    assert chance * slots == pytest.approx(expected, rel=0.01)
    assert chance * 2**53 % 1 == 0
    bounds = NoisySlotsAccountant(users * slots, chance, labels)
    assert 0.999 * delta < bounds.delta_lower(epsilon) <= bounds.delta_upper(epsilon) <= delta
    assert NoisySlotsAccountant(users * slots, chance * (1 - 1e-6), labels).delta_lower(epsilon) > delta
    assert users * slots * chance / labels == pytest.approx(noise_per_cell_guess(epsilon, delta), rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cells", "noise_per_cell"),
    [(2, 20.0), (2, 5e4), (10, 1e6), (10, 300.0), (1000, 20.0), (1000, 5e4), (10**6, 300.0), (MOST_CELLS, 5e4)],
)
def test_upper_and_lower_bounds_ask_for_nearly_the_same_noise(cells: int, noise_per_cell: float) -> None:
    trials = min(2**53 - 1, math.ceil(2 * noise_per_cell * cells))
    chance = noise_per_cell * cells / trials
    bounds = NoisySlotsAccountant(trials, chance, cells)
    epsilon = bounds.epsilon_upper(1e-6)
    if math.isinf(epsilon):  # 20 dummy reports leave a cell empty too often
        epsilon = 2.0
    less = NoisySlotsAccountant(trials, chance * (1 - 1e-3), cells)
    assert less.delta_lower(epsilon) > bounds.delta_upper(epsilon) >= bounds.delta_lower(epsilon)


@pytest.mark.parametrize("rounds", [2, 10, 1000])
def test_rounds_ask_for_nearly_the_same_noise_from_both_sides(rounds: int) -> None:
    numbers = {"honest_users": 100_000, "slots": 80, "cells": 100}
    chance = smallest_chance(**numbers, epsilon=1.0, delta=1e-6, rounds=rounds)
    assert NoisySlotsAccountant(8_000_000, chance, 100, rounds).delta_upper(1.0) <= 1e-6
    assert NoisySlotsAccountant(8_000_000, chance * (1 - 5e-3), 100, rounds).delta_lower(1.0) > 1e-6


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_the_epsilon_of_a_delta_lies_between_its_bounds(rounds: int, delta: float) -> None:
    bounds = NoisySlotsAccountant(10**6, 0.01, 100, rounds)
    low, high = bounds.epsilon_lower(delta), bounds.epsilon_upper(delta)
    assert 0.99 * high < low <= high
    assert bounds.delta_upper(high) <= delta < bounds.delta_lower(low * (1 - 1e-9))


def test_an_epsilon_is_infinite_where_empty_cells_are_too_likely() -> None:
    for rounds in (1, 2):
        bounds = NoisySlotsAccountant(1000, 0.1, 10, rounds)  # empty with probability (1 - 0.01)^1000 = 4.3e-5
        assert bounds.epsilon_upper(1e-5) == math.inf
        assert bounds.epsilon_upper(1e-3) < math.inf


def test_one_cell_reveals_nothing() -> None:
    for rounds in (1, 5):
        bounds = NoisySlotsAccountant(100, 0.5, 1, rounds)
        assert bounds.delta_upper(0.0) == bounds.delta_lower(0.0) == 0.0
        assert bounds.epsilon_upper(1e-9) == bounds.epsilon_lower(1e-9) == 0.0
    assert smallest_chance(honest_users=1, slots=1, cells=1, epsilon=0.1, delta=1e-9) == 2**-53


@pytest.mark.parametrize("rounds", [1, 2])
def test_next_to_no_noise_hides_nothing(rounds: int) -> None:
    bounds = NoisySlotsAccountant(1, 2**-53, MOST_CELLS, rounds)
    assert bounds.delta_upper(1.0) == 1.0
    assert 1.0 - 1e-9 < bounds.delta_lower(1.0) <= 1.0
    assert bounds.epsilon_upper(1e-6) == math.inf


def test_more_noise_is_never_worse() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        for rounds in (1, 2):
            louder = [
                NoisySlotsAccountant(100, chance, 5, rounds).delta_upper(epsilon)
                for chance in np.linspace(0.1, 1.0, 10)
            ]
            longer = [
                NoisySlotsAccountant(trials, 0.5, 5, rounds).delta_upper(epsilon) for trials in range(50, 500, 50)
            ]
            for deltas in (louder, longer):
                assert all(later <= earlier * (1 + 1e-9) for earlier, later in itertools.pairwise(deltas))


def test_too_few_slots_have_no_chance() -> None:
    numbers = {"honest_users": 1000, "cells": 10_000, "epsilon": 1.0, "delta": 1e-6}
    assert smallest_chance(slots=400, **numbers) == math.inf  # type: ignore[arg-type]
    assert smallest_chance(slots=430, **numbers) <= 1.0  # type: ignore[arg-type]


def test_the_largest_crowds_are_certified() -> None:
    chance = smallest_chance(honest_users=10**10, slots=4, cells=10**6, epsilon=0.5, delta=1e-9)
    bounds = NoisySlotsAccountant(4 * 10**10, chance, 10**6)
    assert 0.999e-9 < bounds.delta_lower(0.5) <= bounds.delta_upper(0.5) <= 1e-9
    assert NoisySlotsAccountant(10**10, 1.0, 2).epsilon_upper(1e-6) < 1e-4


def test_dp_accounting_composes_the_exported_distribution_to_the_same_delta() -> None:
    pytest.importorskip("dp_accounting")
    theirs = NoisySlotsAccountant(10**6, 0.05, 100).to_dp_accounting().self_compose(10)
    ours = NoisySlotsAccountant(10**6, 0.05, 100, rounds=10)
    for epsilon in (0.2, 0.6, 1.0):
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(ours.delta_upper(epsilon), rel=0.01)
        assert theirs.get_delta_for_epsilon(epsilon) >= ours.delta_lower(epsilon)


@pytest.mark.parametrize(
    "numbers", [(0, 0.5, 2), (2**53, 0.5, 2), (10, 0.0, 2), (10, 1.5, 2), (10, 0.5, 0), (10, 0.5, 2**32 - 1)]
)
def test_what_is_no_noise_in_slots_is_refused(numbers: tuple[int, float, int]) -> None:
    with refusal("out-of-range", error=ParameterError):
        NoisySlotsAccountant(*numbers)


def test_what_cannot_be_certified_is_refused() -> None:
    with refusal("out-of-range"):
        NoisySlotsAccountant(10, 0.5, 2, rounds=0)
    with refusal("not-certified", error=PrivacyError):
        NoisySlotsAccountant(2**52, 1.0, 2)
    with refusal("not-certified"):
        NoisySlotsAccountant(100, 0.5, 2).epsilon_upper(1e-16)
    with refusal("not-certified"):
        NoisySlotsAccountant(100, 0.5, 2, rounds=2).epsilon_upper(1e-13)
    with refusal("out-of-range"):
        smallest_chance(honest_users=10, slots=1, cells=2, epsilon=0.0, delta=1e-6)
    with refusal("out-of-range"):
        smallest_chance(honest_users=10, slots=1, cells=2, epsilon=1.0, delta=1.0)


def test_noise_that_cannot_be_reached_is_refused_at_once() -> None:
    """Where it is beyond what can be certified, no law of that much noise is listed to find that out."""
    asked: Any = {"epsilon": 1e-6, "delta": 1e-7}
    assert noise_per_cell_guess(**asked) == math.inf
    assert smallest_chance(honest_users=10**9, slots=10**6, cells=3, **asked) == math.inf
    with refusal("privacy-out-of-reach", "epsilon", error=PrivacyError):
        ss.plan(users=3_000, domain=ss.Categories(3), **asked)
    # and close to it the quick guess is right
    near = rough_noise_per_cell(0.002, 1e-7)
    assert noise_per_cell_guess(0.002, 1e-7) == pytest.approx(near, rel=0.02)


@pytest.mark.parametrize(("part", "searched"), [(0.49, True), (0.51, False)])
def test_noise_is_searched_for_up_to_half_of_what_can_be_listed(
    monkeypatch: pytest.MonkeyPatch, part: float, searched: bool
) -> None:
    monkeypatch.setattr(noisy_slots, "rough_noise_per_cell", lambda *_: part * MOST_HITS)
    monkeypatch.setattr(noisy_slots, "_least_chance", lambda *_: 0.5)
    assert math.isfinite(noise_per_cell_guess.__wrapped__(0.1, 1e-6)) == searched


WEIGHTS = [Fraction(1), Fraction(9, 8), Fraction(3, 2), Fraction(3), Fraction(20)]


def test_one_user_with_one_slot_and_two_cells_agrees_with_paper_and_pencil() -> None:
    # alone (blank): told apart for certain; its own cell once more: too; the other cell: both look the same
    for chance, w in itertools.product([Fraction(1, 8), Fraction(1, 2), Fraction(1)], WEIGHTS):
        shown = 1 - chance + chance / 2 + max(Fraction(0), (1 - w) * chance / 2)
        assert worst_delta(users=1, reports=direct(2), cells=2, slots=1, chance=chance, weights=[w]) == [shown]


def test_noise_is_found_again_from_every_single_slot() -> None:
    cells, trials, chance = 3, 3, Fraction(3, 4)
    ways = noise(cells, trials, chance)
    found: dict[tuple[int, ...], Fraction] = {}
    for outcome in itertools.product(range(cells + 1), repeat=trials):
        table = tuple(outcome.count(cell) for cell in range(cells))
        blanks = outcome.count(cells)
        probability = (chance / cells) ** (trials - blanks) * (1 - chance) ** blanks
        found[table] = found.get(table, Fraction(0)) + probability
    total = sum(ways.values())
    assert found == {table: Fraction(count, total) for table, count in ways.items()}


def test_a_hash_without_collisions_is_as_good_as_a_label() -> None:
    numbers = {"users": 2, "slots": 1, "chance": Fraction(1, 2), "weights": WEIGHTS}
    label = worst_delta(reports=direct(3), cells=3, **numbers)  # type: ignore[arg-type]
    assert label == worst_delta(reports=hashed([(2, 0, 1)], 3), cells=3, **numbers)  # type: ignore[arg-type]


def test_labels_that_collide_everywhere_are_the_same() -> None:
    reports = hashed([(1, 1), (0, 0)], 2)
    assert worst_delta(users=2, reports=reports, cells=4, slots=1, chance=Fraction(1, 2), weights=WEIGHTS) == [0] * 5


def test_two_rounds_show_what_either_shows_where_losses_are_infinite() -> None:
    once, twice = (
        worst_delta(users=2, reports=direct(2), cells=2, slots=1, chance=Fraction(1), weights=WEIGHTS, rounds=rounds)
        for rounds in (1, 2)
    )
    assert all(single < both for single, both in zip(once, twice, strict=True))
    assert twice[-1] == 1 - (1 - once[-1]) ** 2  # finite losses are log 2 at most
