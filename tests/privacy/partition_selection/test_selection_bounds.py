"""The accountant of partition selection against full enumeration of tiny data, and sabotaged twins that must show."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.oracles import partition_selection as oracle
from tests.oracles.partition_selection import Twin, Users
from tests.refusals import refusal

from shufflesum.privacy import NoiseDistribution, PartitionSelectionAccountant
from shufflesum.privacy.engine.composition import compose_dominating
from shufflesum.privacy.partition_selection import selection_noise

LABELS, REST = NoiseDistribution(1.0, 1.3, 1), NoiseDistribution(1.0, 2.5, 1)
LONGER, LONGER_REST = NoiseDistribution(1.5, 1.2, 2), NoiseDistribution(1.0, 2.0, 1)
WEIGHTS = [Fraction(*pair) for pair in ((1, 1), (3, 2), (5, 2), (4, 1), (10, 1), (1000, 1))]


def twin_of(labels: NoiseDistribution, rest: NoiseDistribution, max_items: int) -> Twin:
    return Twin(labels.weights, rest.weights, 2 * labels.half_length, max_items)


def largest(twin: Twin, pairs: list[tuple[Users, Users]], weight: Fraction) -> Fraction:
    """The largest delta of all these neighbours."""
    return max(oracle.delta(oracle.law(one, twin), oracle.law(other, twin), weight) for one, other in pairs)


def certified(labels: NoiseDistribution, rest: NoiseDistribution, max_items: int, weight: Fraction) -> Fraction:
    return Fraction(PartitionSelectionAccountant(labels, rest, max_items).delta_upper(math.log(weight)))


def holds(twin: Twin, pairs: list[tuple[Users, Users]], bound: list[Fraction]) -> bool:
    return all(
        largest(twin, pairs, weight * (1 + Fraction(1, 2**45))) <= most
        for weight, most in zip(WEIGHTS, bound, strict=True)
    )


ONE_EACH = list(oracle.neighbours(oracle.data_sets(2, "abc", 1)))
SEVERAL = list(oracle.neighbours(oracle.data_sets(2, "abc", 2)))
SOLE: list[tuple[Users, Users]] = [
    ((("a",),), (("b",),)),
    ((("a",), ("a",)), (("a",), ("b",))),
    ((("a",),) * 4, (("a",),) * 3 + (("b",),)),
    ((("b",),) + (("a",),) * 3, (("a",),) * 4),
    ((("a",),) * 3 + (("b",),) * 3, (("a",),) * 2 + (("b",),) * 4),
    ((("a",),) + (("b",),) * 3 + (("a",),) * 3, (("b",),) * 4 + (("a",),) * 3),
]


@pytest.mark.parametrize(("labels", "rest"), [(LABELS, REST), (LONGER, LONGER_REST)], ids=["short", "longer"])
def test_no_neighbours_with_one_label_each_exceed_the_bound(labels: NoiseDistribution, rest: NoiseDistribution) -> None:
    bound = [certified(labels, rest, 1, weight) for weight in WEIGHTS]
    assert holds(twin_of(labels, rest, 1), ONE_EACH + SOLE, bound)


@pytest.mark.parametrize("max_items", [1, 2])
def test_no_neighbours_with_lists_exceed_the_bound_of_those_that_count(max_items: int) -> None:
    bound = [certified(LABELS, REST, max_items, weight) for weight in WEIGHTS]
    assert holds(twin_of(LABELS, REST, max_items), SEVERAL, bound)


def test_what_a_label_that_only_one_user_holds_costs_is_the_end_of_the_noise() -> None:
    twin, (one, other) = twin_of(LABELS, REST, 1), SOLE[0]
    found = oracle.delta(oracle.law(one, twin), oracle.law(other, twin), Fraction(10**9))
    end = Fraction(LABELS.weights[-1], sum(LABELS.weights))
    assert found == end
    assert found <= certified(LABELS, REST, 1, Fraction(10**9))


def test_every_label_that_all_noise_lists_is_listed_and_none_that_nobody_holds() -> None:
    twin = twin_of(LABELS, REST, 1)
    for users in oracle.data_sets(3, "ab", 1):
        outcomes: list[Any] = list(oracle.law(users, twin))
        for listed, _ in outcomes:
            names = {label for label, _ in listed}
            assert names <= {label for held in users for label in held}
            assert {label for label in "ab" if users.count((label,)) >= 2 * LABELS.half_length + 1} <= names


SABOTAGED = {
    "a threshold lower by one": lambda twin: replace(twin, threshold=twin.threshold - 1),
    "noise of a longer table": lambda twin: replace(twin, table=NoiseDistribution(1.0, 1.3, 2).weights),
    "less noise": lambda twin: replace(twin, table=NoiseDistribution(1.0, 0.7, 1).weights),
    "noise after the list is made": lambda twin: replace(twin, early=False, threshold=1),
    "the order in which users had labels": lambda twin: replace(twin, noisy_order=False),
    "a rest without noise": lambda twin: replace(twin, rest=(0, 1, 0)),
    "less noise for the rest": lambda twin: replace(twin, rest=NoiseDistribution(1.0, 0.3, 1).weights),
}


@pytest.mark.parametrize("name", SABOTAGED)
def test_a_sabotaged_twin_exceeds_the_bound(name: str) -> None:
    bound = [certified(LABELS, REST, 1, weight) for weight in WEIGHTS]
    honest = twin_of(LABELS, REST, 1)
    assert holds(honest, ONE_EACH + SOLE, bound)
    assert not holds(SABOTAGED[name](honest), ONE_EACH + SOLE, bound)


def test_counting_all_that_users_hold_exceeds_the_bound_of_those_that_count() -> None:
    many: list[tuple[Users, Users]] = [((("a", "b"),) + (("a", "b"),) * 2, (("c",),) + (("a", "b"),) * 2)]
    bound = [certified(LABELS, REST, 1, weight) for weight in WEIGHTS]
    assert holds(twin_of(LABELS, REST, 1), many, bound)
    assert not holds(replace(twin_of(LABELS, REST, 1), max_items=None), many, bound)


@pytest.mark.parametrize("max_items", [1, 2])
def test_lower_bounds_are_what_neighbours_show(max_items: int) -> None:
    """With so many others that labels which change are listed in any case."""
    heavy = [("a", "b")[:max_items], ("c", "d")[:max_items]]
    others = (heavy[0],) * 3 + (heavy[1],) * 3
    pairs: list[tuple[Users, Users]] = [
        ((heavy[0], *others), (heavy[1], *others)),
        ((heavy[0], *others), ((*heavy[1][:-1], "z"), *others)),
    ]
    twin, accountant = twin_of(LABELS, REST, max_items), PartitionSelectionAccountant(LABELS, REST, max_items)
    for weight in WEIGHTS:
        lower, upper = (Fraction(bound(math.log(weight))) for bound in (accountant.delta_lower, accountant.delta_upper))
        shown = largest(twin, pairs, weight * (1 - Fraction(1, 2**45)))
        assert lower <= shown <= upper


@pytest.mark.parametrize("max_items", [1, 2, 5, 40])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 1e-9), (3.0, 1e-5)])
def test_noise_that_is_found_is_certified_and_less_is_not(epsilon: float, delta: float, max_items: int) -> None:
    labels, rest = selection_noise(epsilon, delta, max_items=max_items)
    assert PartitionSelectionAccountant(labels, rest, max_items).delta_upper(epsilon) <= delta
    shorter = replace(labels, half_length=math.floor(0.95 * labels.half_length))
    less = replace(labels, scale=0.95 * labels.scale)
    for worse in (shorter, less):
        assert PartitionSelectionAccountant(worse, rest, max_items).delta_upper(epsilon) > delta


def test_rounds_and_items_cost_more() -> None:
    one, three, items = (
        PartitionSelectionAccountant(LONGER, REST, most, rounds).delta_upper(1.0)
        for most, rounds in ((1, 1), (1, 3), (3, 1))
    )
    assert one < three
    assert one < items


def test_the_pld_dominates_what_is_stated() -> None:
    accountant = PartitionSelectionAccountant(LABELS, REST, 2)
    composed = compose_dominating([accountant.pld(2.0**-10)])
    for epsilon in (0.5, 1.0, 2.0):
        assert accountant.delta_lower(epsilon) <= composed.delta(epsilon) <= accountant.delta_upper(epsilon) + 1e-3


def test_what_cannot_be_certified_is_refused() -> None:
    with refusal("out-of-range", "max_items"):
        PartitionSelectionAccountant(LABELS, REST, 0)
    with refusal("privacy-out-of-reach", "epsilon"):
        selection_noise(1e-5, 1e-6, max_items=1)
