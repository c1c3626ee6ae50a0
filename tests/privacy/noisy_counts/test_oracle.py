from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.oracles.noisy_counts import (
    Law,
    Table,
    binomial,
    capped_noise,
    capped_worst_delta,
    divergence,
    independent_noise,
    one_direction_delta,
    overflow,
    rows,
    weights_of,
    worst_delta,
    worst_move,
    worst_over_data_sets,
)
from tests.privacy.noisy_counts.tiny import MIXED, TINY, Mixed, Setting, setting

WEIGHTS = [Fraction(1), Fraction(9, 8), Fraction(3, 2), Fraction(3), Fraction(20)]


def cells(setting: Setting) -> int:
    return setting["dimension"] * len(setting["trials"])


def test_rows_are_the_binary_digits_of_every_vector() -> None:
    assert rows(1, 2) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    values = [tuple(sum(row[3 * c + j] << j for j in range(3)) for c in range(2)) for row in rows(2, 3)]
    assert values == list(itertools.product(range(8), repeat=2))


def test_one_cell_of_one_user_with_one_trial_agrees_with_paper_and_pencil() -> None:
    for p, w in itertools.product([Fraction(1, 8), Fraction(1, 3), Fraction(3, 5)], WEIGHTS):
        up = p + max(Fraction(0), 1 - p - w * p)
        down = 1 - p + max(Fraction(0), p - w * (1 - p))
        assert worst_delta(users=1, dimension=1, trials=(1,), probabilities=(p,), weights=[w]) == [max(up, down)]


def shuffled(values: tuple[int, ...], trials: Table, probabilities: tuple[Fraction, ...], cap: int) -> Law:
    """The law of the table of scalars, from every outcome of every single trial of every user."""
    owners = [(user, j) for user in range(len(values)) for j, q in enumerate(trials) for _ in range(q)]
    law: Law = {}
    for outcome in itertools.product((0, 1), repeat=len(owners)):
        sent = [owner for owner, bit in zip(owners, outcome, strict=True) if bit]
        if any(sum(owner[0] == user for owner in sent) > cap for user in range(len(values))):
            continue
        chance = Fraction(1)
        for (_, j), bit in zip(owners, outcome, strict=True):
            chance *= probabilities[j] if bit else 1 - probabilities[j]
        reports = [j for _, j in sent] + [j for value in values for j in range(len(trials)) if value >> j & 1]
        table = tuple(reports.count(j) for j in range(len(trials)))
        law[table] = law.get(table, Fraction(0)) + chance
    total = sum(law.values())
    return {table: chance / total for table, chance in law.items()}


@pytest.mark.parametrize("cap", [0, 1, 2, 3])
def test_the_worst_delta_is_found_again_from_every_single_trial(cap: int) -> None:
    trials, probabilities = (2, 1), (Fraction(1, 3), Fraction(1, 2))
    laws = {values: shuffled(values, trials, probabilities, cap) for values in itertools.product(range(4), repeat=2)}
    found = [Fraction(0)] * len(WEIGHTS)
    for (first, p), (second, q) in itertools.permutations(laws.items(), 2):
        if first[0] == second[0] or first[1] == second[1]:
            found = [max(pair) for pair in zip(found, divergence(p, q, WEIGHTS), strict=True)]
    numbers = setting(2, 1, trials, "1/3", "1/2")
    assert capped_worst_delta(**numbers, cap=cap, weights=WEIGHTS) == found
    assert (worst_delta(**numbers, weights=WEIGHTS) == found) == (cap == 3)


@pytest.mark.parametrize("numbers", TINY)
def test_only_the_change_of_the_table_matters(numbers: Setting) -> None:
    truth = worst_over_data_sets(
        independent_noise(**numbers), numbers["users"], rows(numbers["dimension"], len(numbers["trials"])), WEIGHTS
    )
    assert worst_delta(**numbers, weights=WEIGHTS) == truth
    assert [worst_move(**numbers, weight=weight)[0] for weight in WEIGHTS] == truth


@pytest.mark.parametrize("numbers", TINY)
def test_noise_is_a_law_and_users_who_never_draw_again_make_it(numbers: Setting) -> None:
    noise = independent_noise(**numbers)
    assert sum(noise.values()) == 1
    assert capped_noise(**numbers, cap=numbers["dimension"] * sum(numbers["trials"])) == noise


def test_a_capped_user_keeps_the_shape_of_the_law_below_the_cap() -> None:
    free = independent_noise(1, 2, (2, 1), (Fraction(1, 4), Fraction(1, 8)))
    capped = capped_noise(1, 2, (2, 1), (Fraction(1, 4), Fraction(1, 8)), cap=2)
    kept = 1 - overflow([(4, Fraction(1, 4)), (2, Fraction(1, 8))], 2)
    assert capped == {table: chance / kept for table, chance in free.items() if sum(table) <= 2}


@pytest.mark.long
def test_two_rounds_without_a_cap_are_twice_the_coordinates() -> None:
    once, twice = setting(2, 1, (1, 1), "1/4", "1/2"), setting(2, 2, (1, 1), "1/4", "1/2")
    weights = WEIGHTS[2:4]
    assert capped_worst_delta(**once, cap=2, weights=weights, rounds=2) == worst_delta(**twice, weights=weights)


@pytest.mark.parametrize("case", MIXED)
def test_one_direction_for_all_cells_is_not_the_worst(case: Mixed) -> None:
    assert worst_delta(**case.setting, weights=[case.weight]) == [case.worst]
    assert one_direction_delta(**case.setting, weights=[case.weight]) == [case.one_direction]
    assert case.worst > case.one_direction
    assert {-1, 1} <= set(case.move)
    worst, move = worst_move(**case.setting, weight=case.weight)
    assert worst == case.worst
    assert sorted(map(abs, move)) == [1] * cells(case.setting)


def test_one_direction_is_the_worst_for_noise_alike_in_both() -> None:
    numbers = setting(2, 3, (2,), "1/2")  # Binomial(m, 1/2) is symmetric, so that every direction is the same
    assert one_direction_delta(**numbers, weights=WEIGHTS) == worst_delta(**numbers, weights=WEIGHTS)


def test_overflow_is_the_tail_of_the_sum() -> None:
    groups = [(3, Fraction(1, 4)), (2, Fraction(1, 3)), (4, Fraction(1, 16))]
    laws = [binomial(*group) for group in groups]
    for cap in range(11):
        tail = Fraction(0)
        for counts in itertools.product(*(range(len(law)) for law in laws)):
            if sum(counts) > cap:
                tail += laws[0][counts[0]] * laws[1][counts[1]] * laws[2][counts[2]]
        assert overflow(groups, cap) == tail
    for cap in (0, 5, 12, 30):
        assert float(overflow([(90, Fraction(1, 16))], cap)) == pytest.approx(binom.sf(cap, 90, 1 / 16), rel=1e-9)


def test_weights_are_the_floats_of_exp() -> None:
    assert weights_of([0.0, 1.0]) == [1, Fraction(2.718281828459045)]


chances = st.sampled_from([Fraction(i, 16) for i in range(1, 9)])
small = st.tuples(st.integers(1, 3), st.lists(st.tuples(st.integers(1, 3), chances), min_size=2, max_size=3))


@pytest.mark.slow
@settings(max_examples=100)
@given(small, st.sampled_from([Fraction(i, 8) for i in range(8, 33)]))
def test_the_worst_change_moves_every_cell(drawn: tuple[int, list[tuple[int, Fraction]]], weight: Fraction) -> None:
    users, digits = drawn
    numbers = Setting(
        users=users,
        dimension=1,
        trials=tuple(q for q, _ in digits),
        probabilities=tuple(p for _, p in digits),
    )
    noise = independent_noise(**numbers)
    worst = max(
        divergence({tuple(a + b for a, b in zip(t, move, strict=True)): p for t, p in noise.items()}, noise, [weight])
        for move in itertools.product((-1, 1), repeat=len(digits))
    )
    assert worst == worst_delta(**numbers, weights=[weight])
    assert worst >= one_direction_delta(**numbers, weights=[weight])
