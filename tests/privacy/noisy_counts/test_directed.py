"""Certified bounds where neighbours move at most so many counts up and as many down, against full enumeration."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest
from tests.oracles.directed import choice_rows, group_rows, worst_choices_delta, worst_groups_delta
from tests.oracles.noisy_counts import Law, divergence, independent_noise, one_direction_delta
from tests.refusals import refusal

from shufflesum.errors import ParameterError
from shufflesum.privacy.noisy_counts import ChangedCounts, NoisyCountsAccountant

EPSILONS = [0.0, 0.2, 0.5, 1.0, 1.5, 2.5, 4.0]

Bound = Callable[[float], float]
Numbers = tuple[int, int, int, int, Fraction]  # users, labels, most, trials, probability


def weights_of(epsilons: Sequence[float]) -> list[Fraction]:
    """Weights certainly above e^epsilon: exp may be rounded down."""
    return [Fraction(math.nextafter(math.exp(epsilon), math.inf)) if epsilon else Fraction(1) for epsilon in epsilons]


def exceeded(upper: Bound, truth: Sequence[Fraction], epsilons: Sequence[float] = EPSILONS) -> list[float]:
    """Where the truth lies above what claims to be an upper bound."""
    return [epsilon for epsilon, delta in zip(epsilons, truth, strict=True) if delta > Fraction(upper(epsilon))]


def missed(lower: Bound, truth: Sequence[Fraction], epsilons: Sequence[float] = EPSILONS) -> list[float]:
    """Where the truth lies below what claims to be a lower bound."""
    slack = Fraction(1 + 1e-9)
    return [epsilon for epsilon, delta in zip(epsilons, truth, strict=True) if delta * slack < Fraction(lower(epsilon))]


def test_rows_are_what_a_user_may_add() -> None:
    assert choice_rows(3, 1) == [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert group_rows(2, 1, 1) == [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 1, 0), (0, 0, 1, 1)]
    assert len(group_rows(3, 2, 2)) == 3 * 16


# Several choices

CHOICES: list[Numbers] = [
    (1, 2, 1, 3, Fraction(1, 2)),
    (2, 2, 1, 3, Fraction(1, 4)),
    (3, 3, 1, 2, Fraction(1, 4)),
    (2, 4, 1, 1, Fraction(3, 8)),
    (1, 4, 2, 3, Fraction(1, 4)),
    (2, 4, 2, 1, Fraction(7, 16)),
    (1, 5, 2, 2, Fraction(1, 8)),
    (2, 3, 2, 2, Fraction(1, 4)),  # two sets of two out of three labels share one
    (1, 4, 3, 3, Fraction(7, 16)),
    (2, 2, 2, 3, Fraction(7, 16)),  # any set: directions are free
    (1, 3, 5, 3, Fraction(1, 4)),
]


@cache
def enumerated(numbers: Numbers) -> list[Fraction]:
    users, labels, most, trials, probability = numbers
    return worst_choices_delta(
        users=users,
        labels=labels,
        max_choices=most,
        trials=trials,
        probability=probability,
        weights=weights_of(EPSILONS),
    )


def bounds_of(numbers: Numbers) -> NoisyCountsAccountant:
    users, labels, most, trials, probability = numbers
    return NoisyCountsAccountant(
        ChangedCounts.of_choices(trials=users * trials, probability=float(probability), labels=labels, max_choices=most)
    )


@pytest.mark.parametrize("numbers", CHOICES)
def test_the_enumerated_delta_of_choices_lies_between_the_bounds(numbers: Numbers) -> None:
    truth, bounds = enumerated(numbers), bounds_of(numbers)
    assert not exceeded(bounds.delta_upper, truth)
    assert not missed(bounds.delta_lower, truth)


@pytest.mark.parametrize("numbers", [numbers for numbers in CHOICES if numbers[1] >= 2 * numbers[2]])
def test_the_bounds_of_choices_are_near_the_enumerated_delta(numbers: Numbers) -> None:
    bounds = bounds_of(numbers)
    for epsilon, delta in zip(EPSILONS, enumerated(numbers), strict=True):
        assert bounds.delta_upper(epsilon) <= 1.02 * float(delta)
        assert bounds.delta_lower(epsilon) >= 0.95 * float(delta)


@pytest.mark.parametrize("numbers", CHOICES[:7])
def test_a_bound_that_forgets_the_counts_that_go_down_would_be_caught(numbers: Numbers) -> None:
    users, _, most, trials, probability = numbers
    up_only = NoisyCountsAccountant((ChangedCounts(users * trials, float(probability), most),))
    assert exceeded(up_only.delta_upper, enumerated(numbers))


def test_a_bound_from_one_direction_for_all_counts_would_be_caught() -> None:
    """One choice of two labels: one count up and one down show 4.4 % more than both up, or both down."""
    users, trials, p, epsilon = 3, 1, Fraction(7, 16), math.log(15 / 8)
    weights = weights_of([epsilon])
    truth = worst_choices_delta(users=users, labels=2, max_choices=1, trials=trials, probability=p, weights=weights)
    one_way = one_direction_delta(users=users, dimension=2, trials=(trials,), probabilities=(p,), weights=weights)
    assert exceeded(lambda _: 1.04 * float(one_way[0]), truth, [epsilon])
    assert exceeded(
        NoisyCountsAccountant((ChangedCounts(users * trials, float(p), 2),)).delta_lower, truth, [epsilon]
    )  # the same, on a grid
    assert not exceeded(bounds_of((users, 2, 1, trials, p)).delta_upper, truth, [epsilon])


def test_the_larger_profile_in_every_cell_asks_for_more_than_there_is() -> None:
    numbers = CHOICES[6]
    users, _, most, trials, probability = numbers
    assert not exceeded(
        NoisyCountsAccountant((ChangedCounts(users * trials, float(probability), 2 * most),)).delta_upper,
        enumerated(numbers),
    )
    free, paired = (
        NoisyCountsAccountant((ChangedCounts(720, 1 / 16, 2),)),
        NoisyCountsAccountant((ChangedCounts(720, 1 / 16, 1, "paired"),)),
    )
    assert free.delta_upper(1.0) > 3.0 * paired.delta_upper(1.0)


def test_choices_with_a_label_less_or_more_noise_would_be_caught() -> None:
    for numbers in CHOICES[4:7]:
        users, labels, most, trials, probability = numbers
        truth = enumerated(numbers)
        assert exceeded(bounds_of((users, labels, most - 1, trials, probability)).delta_upper, truth)
        assert exceeded(bounds_of((users + 1, labels, most, trials, probability)).delta_upper, truth)


def test_rounds_of_choices_multiply() -> None:
    epsilons, p = EPSILONS[::2], Fraction(1, 4)
    truth = worst_choices_delta(
        users=1, labels=2, max_choices=1, trials=2, probability=p, weights=weights_of(epsilons), rounds=2
    )
    twice = NoisyCountsAccountant(
        ChangedCounts.of_choices(trials=2, probability=0.25, labels=2, max_choices=1, rounds=2)
    )
    assert not exceeded(twice.delta_upper, truth, epsilons)
    assert not missed(twice.delta_lower, truth, epsilons)
    assert exceeded(
        NoisyCountsAccountant(
            ChangedCounts.of_choices(trials=2, probability=0.25, labels=2, max_choices=1)
        ).delta_upper,
        truth,
        epsilons,
    )


def test_choices_say_which_directions_are_free() -> None:
    def shape(labels: int, most: int) -> list[tuple[str, int]]:
        return [
            (group.directions, group.copies)
            for group in ChangedCounts.of_choices(trials=10, probability=0.5, labels=labels, max_choices=most, rounds=3)
        ]

    assert shape(10, 2) == [("paired", 6)]
    assert shape(4, 2) == [("paired", 6)]
    assert shape(5, 3) == [("paired", 6), ("free", 3)]
    assert shape(3, 3) == shape(3, 9) == [("free", 9)]


def test_the_cap_is_charged_for_pairs_too() -> None:
    group = ChangedCounts(200, 0.25, 3, "paired")
    free, charged = NoisyCountsAccountant((group,)), NoisyCountsAccountant((group,), overflow=1e-8)
    assert charged.delta_upper(1.0) == pytest.approx(free.delta_upper(1.0) + (1 + math.e) * 1e-8, rel=1e-6)
    assert charged.delta_lower(1.0) <= free.delta_lower(1.0)
    assert charged.epsilon_upper(1e-5) > free.epsilon_upper(1e-5) >= free.epsilon_lower(1e-5)
    assert charged.epsilon_upper(1e-11) == math.inf


# GroupBy

GROUPS = [  # users, groups, dimension, trials and probability of the count and of each digit
    (2, 2, 1, (2, 1), (Fraction(1, 4), Fraction(1, 4))),
    (1, 2, 1, (3, 2, 1), (Fraction(1, 2), Fraction(1, 4), Fraction(3, 8))),
    (2, 2, 1, (1, 1, 1), (Fraction(1, 4), Fraction(3, 8), Fraction(1, 2))),
    (1, 2, 2, (2, 2), (Fraction(1, 4), Fraction(1, 8))),
    (1, 3, 1, (1, 2), (Fraction(1, 4), Fraction(1, 4))),
    (1, 2, 2, (1, 1, 1), (Fraction(1, 4), Fraction(3, 8), Fraction(1, 4))),
]


@pytest.mark.long
@pytest.mark.parametrize(("users", "groups", "dimension", "trials", "probabilities"), GROUPS)
def test_the_enumerated_delta_of_groups_lies_between_the_bounds(
    users: int, groups: int, dimension: int, trials: tuple[int, ...], probabilities: tuple[Fraction, ...]
) -> None:
    epsilons = EPSILONS[::2]
    truth = worst_groups_delta(
        users=users,
        groups=groups,
        dimension=dimension,
        trials=trials,
        probabilities=probabilities,
        weights=weights_of(epsilons),
    )

    def parts(down: int) -> tuple[ChangedCounts, ...]:
        noise = list(zip(trials, probabilities, strict=True))
        return tuple(
            ChangedCounts(users * q, float(p), 1 if place == 0 else down, "paired")
            for place, (q, p) in enumerate(noise)
        )

    bounds = NoisyCountsAccountant(parts(dimension))
    assert not exceeded(bounds.delta_upper, truth, epsilons)
    assert not missed(bounds.delta_lower, truth, epsilons)
    for epsilon, delta in zip(epsilons, truth, strict=True):  # all digits 1 in both groups reach it
        assert bounds.delta_upper(epsilon) <= 1.02 * float(delta)
    without_count = NoisyCountsAccountant(bounds.groups[1:])
    one_group = NoisyCountsAccountant(
        tuple(ChangedCounts(group.trials, group.probability, group.copies) for group in bounds.groups)
    )
    for sabotaged in (without_count, one_group):
        assert exceeded(sabotaged.delta_upper, truth, epsilons)
    if dimension > 1:
        assert exceeded(NoisyCountsAccountant(parts(dimension - 1)).delta_upper, truth, epsilons)


# Numbers


@pytest.mark.parametrize("probability", [1 / 64, 1 / 16, 1 / 4, 1 / 2, 7 / 8])
def test_one_pair_embraces_the_exact_product(probability: float) -> None:
    trials, p = 30, Fraction(probability)
    noise = independent_noise(1, 2, (trials,), (p,))
    first: Law = {(up + 1, down): share for (up, down), share in noise.items()}
    second: Law = {(up, down + 1): share for (up, down), share in noise.items()}
    bounds = NoisyCountsAccountant((ChangedCounts(trials, probability, 1, "paired"),))
    for epsilon, weight in zip(EPSILONS, weights_of(EPSILONS), strict=True):
        truth = divergence(first, second, [weight])[0]
        assert Fraction(bounds.delta_lower(epsilon)) <= truth * Fraction(1 + 1e-9)
        assert truth <= Fraction(bounds.delta_upper(epsilon)) <= truth * Fraction(1.01)


def trials_near(bound: Callable[[int], float], delta: float, low: int, high: int) -> int:
    """Trials with about that delta, from above; what is compared there is exact, whatever this finds."""
    assert bound(low) > delta >= bound(high)
    while high > 1.05 * low + 1:
        middle = round(math.sqrt(low * high))
        low, high = (low, middle) if bound(middle) <= delta else (middle, high)
    return high


@pytest.mark.long
@pytest.mark.parametrize(
    ("pairs", "epsilon", "delta"),
    [
        (1, 4.0, 1e-6),
        (1, 1.0, 1e-6),
        (1, 0.01, 1e-9),
        (1, 2e-4, 1e-9),
        (3, 1.0, 1e-3),
        (10, 1.0, 1e-6),
        (10, 4.0, 1e-6),
        (100, 0.5, 1e-8),
        (3137, 1.0, 1e-6),
    ],
)
@pytest.mark.parametrize("probability", [1 / 16, pytest.param(1 / 2, marks=pytest.mark.slow)])
def test_upper_and_lower_bounds_ask_for_nearly_the_same_noise(
    pairs: int, epsilon: float, delta: float, probability: float
) -> None:
    def cells(trials: int) -> NoisyCountsAccountant:
        return NoisyCountsAccountant((ChangedCounts(trials, probability, pairs, "paired"),))

    variance = max(4 * pairs * math.log(1 / delta) * (1 / epsilon + 1 / epsilon**2), 4 * math.log(1 / delta))
    reach = 1, math.ceil(variance / (probability * (1 - probability)))
    enough = trials_near(lambda trials: cells(trials).delta_upper(epsilon), delta, *reach)
    least = cells(math.floor(enough / 1.015)).delta_lower(epsilon)
    assert cells(enough).delta_lower(epsilon) <= cells(enough).delta_upper(epsilon) < least


@pytest.mark.long
@pytest.mark.parametrize(("dimension", "digits", "epsilon"), [(1, 4, 1.0), (100, 3, 1.0), (784, 4, 1.0), (20, 2, 4.0)])
def test_groups_of_arrays_ask_for_nearly_the_same_noise_from_both_sides(
    dimension: int, digits: int, epsilon: float
) -> None:
    """Variances that halve from digit to digit, and a count with as much noise as the lowest digit."""

    def cells(scale: int) -> NoisyCountsAccountant:
        noise = ((scale >> j, dimension) for j in range(digits))
        return NoisyCountsAccountant(
            (
                ChangedCounts(scale, 1 / 16, 1, "paired"),
                *(ChangedCounts(trials, 1 / 16, copies, "paired") for trials, copies in noise),
            )
        )

    reach = 2**digits, 2**26
    enough = trials_near(lambda scale: cells(scale).delta_upper(epsilon), 1e-6, *reach)
    least = cells(math.floor(enough / 1.015)).delta_lower(epsilon)
    assert cells(enough).delta_lower(epsilon) <= cells(enough).delta_upper(epsilon) < least


@pytest.mark.parametrize(("trials", "probability"), [(1, 2**-53), (1, 0.5), (2, 1 - 2**-53)])
def test_next_to_no_noise_hides_nothing(trials: int, probability: float) -> None:
    cells = NoisyCountsAccountant((ChangedCounts(trials, probability, 1, "paired"),))
    assert cells.delta_lower(1.0) <= cells.delta_upper(1.0)
    assert cells.delta_upper(1.0) >= 0.74  # an empty cell, or a full one


def test_the_loudest_noise_is_certified_too() -> None:
    group = ChangedCounts(2**53 - 1, 1e-7, 2, "paired")  # variance 9e8
    cells = NoisyCountsAccountant((group,))
    epsilon = cells.epsilon_upper(1e-6)
    assert 0.99 * epsilon < cells.epsilon_lower(1e-6) <= epsilon < 1e-3


def test_more_pairs_and_less_noise_are_never_better() -> None:
    more = [
        NoisyCountsAccountant((ChangedCounts(300, 0.25, copies, "paired"),)).delta_upper(1.0) for copies in range(1, 12)
    ]
    less = [
        NoisyCountsAccountant((ChangedCounts(trials, 0.25, 3, "paired"),)).delta_upper(1.0)
        for trials in range(600, 60, -60)
    ]
    for deltas in (more, less):
        assert all(earlier < later for earlier, later in pairwise(deltas))


def test_pairs_export_to_dp_accounting() -> None:
    pytest.importorskip("dp_accounting")
    theirs = NoisyCountsAccountant((ChangedCounts(5000, 1 / 16, 1, "paired"),)).to_dp_accounting().self_compose(5)
    ours = NoisyCountsAccountant((ChangedCounts(5000, 1 / 16, 5, "paired"),))
    for epsilon in (0.3, 0.8):
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(ours.delta_upper(epsilon), rel=0.02)
        assert theirs.get_delta_for_epsilon(epsilon) >= ours.delta_lower(epsilon)


def test_unknown_directions_are_refused() -> None:
    with refusal("unknown-choice", "paired", error=ParameterError):
        ChangedCounts(10, 0.5, 1, "up")  # type: ignore[arg-type]
