from __future__ import annotations

import itertools
from fractions import Fraction

from tests.oracles.noisy_slots import direct, hashed, noise, worst_delta

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
