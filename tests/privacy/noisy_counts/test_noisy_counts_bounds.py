"""Certified bounds of the mechanism `noisy-counts` against its full enumeration."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.oracles.noisy_counts import capped_worst_delta, one_direction_delta, overflow, weights_of, worst_delta
from tests.privacy.noisy_counts.tiny import MIXED, TINY, Mixed, Setting, setting

from shufflesum.privacy.noisy_counts import ChangedCounts, NoisyCountsAccountant, overflow_upper

EPSILONS = [float(epsilon) for epsilon in np.linspace(0.0, 3.5, 8)]

Bound = Callable[[float], float]


def cells_of(numbers: Setting, *, rounds: int = 1, overflow: float = 0.0) -> NoisyCountsAccountant:
    groups = (
        ChangedCounts(
            trials=numbers["users"] * q,
            probability=float(p),
            copies=numbers["dimension"] * rounds,
            at_once=numbers["dimension"],
        )
        for q, p in zip(numbers["trials"], numbers["probabilities"], strict=True)
    )
    return NoisyCountsAccountant(tuple(groups), overflow=overflow)


def one_up(weights: Sequence[Fraction]) -> list[Fraction]:
    """Weights certainly above e^epsilon: exp may be rounded down."""
    return [Fraction(math.nextafter(float(weight), math.inf)) for weight in weights]


def exceeded(upper: Bound, truth: Sequence[Fraction], epsilons: Sequence[float] = EPSILONS) -> list[float]:
    """Where the truth lies above what claims to be an upper bound."""
    return [epsilon for epsilon, delta in zip(epsilons, truth, strict=True) if delta > Fraction(upper(epsilon))]


def enumerated(numbers: Setting, epsilons: Sequence[float] = EPSILONS) -> list[Fraction]:
    return _enumerated(**numbers, epsilons=tuple(epsilons))


@cache
def _enumerated(
    users: int,
    dimension: int,
    trials: tuple[int, ...],
    probabilities: tuple[Fraction, ...],
    epsilons: tuple[float, ...],
) -> list[Fraction]:
    return worst_delta(
        users=users,
        dimension=dimension,
        trials=trials,
        probabilities=probabilities,
        weights=one_up(weights_of(epsilons)),
    )


def check_both_bounds(numbers: Setting) -> None:
    truth, cells = enumerated(numbers), cells_of(numbers)
    assert not exceeded(cells.delta_upper, truth)
    for epsilon, delta in zip(EPSILONS, truth, strict=True):
        assert cells.delta_lower(epsilon) <= delta * Fraction(1 + 1e-9)


@pytest.mark.parametrize("numbers", TINY)
def test_the_enumerated_delta_lies_between_the_bounds(numbers: Setting) -> None:
    check_both_bounds(numbers)


@pytest.mark.parametrize("numbers", TINY)
def test_the_bounds_are_near_the_enumerated_delta(numbers: Setting) -> None:
    cells, weights = cells_of(numbers), weights_of(EPSILONS)
    one_direction = one_direction_delta(**numbers, weights=weights)
    for epsilon, delta, below in zip(EPSILONS, enumerated(numbers), one_direction, strict=True):
        assert cells.delta_upper(epsilon) <= min(1.0, 1.1 * float(delta))
        assert cells.delta_lower(epsilon) >= 0.98 * float(below)


@pytest.mark.parametrize("numbers", TINY)
def test_a_bound_for_more_noise_than_there_is_would_be_caught(numbers: Setting) -> None:
    louder = Setting(
        users=2 * numbers["users"],
        dimension=numbers["dimension"],
        trials=numbers["trials"],
        probabilities=numbers["probabilities"],
    )
    assert exceeded(cells_of(louder).delta_upper, enumerated(numbers))


@pytest.mark.parametrize("numbers", [numbers for numbers in TINY if numbers["dimension"] > 1])
def test_a_bound_that_forgets_a_coordinate_would_be_caught(numbers: Setting) -> None:
    fewer = Setting(
        users=numbers["users"],
        dimension=numbers["dimension"] - 1,
        trials=numbers["trials"],
        probabilities=numbers["probabilities"],
    )
    assert exceeded(cells_of(fewer).delta_upper, enumerated(numbers))


@pytest.mark.parametrize("numbers", [numbers for numbers in TINY if len(numbers["trials"]) > 1])
def test_a_bound_that_forgets_a_digit_would_be_caught(numbers: Setting) -> None:
    fewer = NoisyCountsAccountant(cells_of(numbers).groups[1:])
    assert exceeded(fewer.delta_upper, enumerated(numbers))


def test_rounds_multiply() -> None:
    once, twice = setting(2, 1, (1, 1), "1/4", "1/2"), setting(2, 2, (1, 1), "1/4", "1/2")
    truth = enumerated(twice, EPSILONS[::2])
    assert not exceeded(cells_of(once, rounds=2).delta_upper, truth, EPSILONS[::2])
    assert exceeded(cells_of(once).delta_upper, truth, EPSILONS[::2])


@pytest.mark.parametrize("numbers", [setting(3, 1, (4,), "1/2"), setting(3, 1, (6, 3), "1/2", "1/2")])
@pytest.mark.parametrize("delta", [0.3, 0.1, 0.05])
def test_the_epsilon_of_a_delta_lies_between_its_bounds(numbers: Setting, delta: float) -> None:
    cells = cells_of(numbers)
    low, high = cells.epsilon_lower(delta), cells.epsilon_upper(delta)
    assert 0.0 <= low <= high < math.inf
    weights = weights_of([low * (1 - 1e-9), high * (1 + 1e-12)])
    at_low, at_high = worst_delta(**numbers, weights=weights)
    assert at_high <= Fraction(delta)
    assert low == 0.0 or at_low >= Fraction(delta) * Fraction(1 - 1e-9)


# Directions


@pytest.mark.parametrize("case", MIXED)
def test_the_upper_bound_covers_mixed_directions(case: Mixed) -> None:
    epsilons = [math.log(float(case.weight)), *EPSILONS]
    assert not exceeded(cells_of(case.setting).delta_upper, enumerated(case.setting, epsilons), epsilons)


@pytest.mark.parametrize("case", MIXED)
def test_a_bound_from_one_direction_for_all_cells_would_be_caught(case: Mixed) -> None:
    epsilons = [math.log(float(case.weight))]
    truth = enumerated(case.setting, epsilons)

    def sabotaged(epsilon: float) -> float:
        return float(one_direction_delta(**case.setting, weights=weights_of([epsilon]))[0]) * (1 + 1e-9)

    assert exceeded(sabotaged, truth, epsilons) == epsilons
    # the lower bound is that product: it may not be sold as an upper one
    assert exceeded(cells_of(case.setting).delta_lower, truth, epsilons) == epsilons


digits = st.tuples(st.integers(1, 4), st.sampled_from([Fraction(i, 32) for i in range(1, 32)]))


@st.composite
def small_settings(draw: st.DrawFn) -> Setting:
    users, dimension = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    drawn = draw(st.lists(digits, min_size=1, max_size=3 // dimension))
    assume(math.prod(users * q + 1 for q, _ in drawn) ** dimension <= 400)
    return Setting(
        users=users,
        dimension=dimension,
        trials=tuple(q for q, _ in drawn),
        probabilities=tuple(p for _, p in drawn),
    )


@pytest.mark.slow
@settings(max_examples=150)
@given(small_settings())
def test_the_enumerated_delta_lies_between_the_bounds_of_any_small_setting(numbers: Setting) -> None:
    check_both_bounds(numbers)


# The cap

CAPPED = [
    setting(2, 1, (4, 2), "1/2", "1/2"),
    setting(3, 1, (3,), "1/4"),
    setting(2, 2, (3,), "1/4"),
    setting(2, 1, (4, 2), "1/16", "1/16"),
    setting(3, 1, (2, 1), "1/8", "1/4"),
    setting(2, 1, (1, 1, 1), "1/2", "1/4", "1/4"),
]


def exact_overflow(numbers: Setting, cap: int, rounds: int = 1) -> float:
    """Rounds x users x P[K > cap], rounded up."""
    groups = [(numbers["dimension"] * q, p) for q, p in zip(numbers["trials"], numbers["probabilities"], strict=True)]
    return math.nextafter(float(rounds * numbers["users"] * overflow(groups, cap)), math.inf)


@pytest.mark.parametrize("numbers", CAPPED)
def test_the_charge_covers_a_cap(numbers: Setting) -> None:
    for cap in range(numbers["dimension"] * sum(numbers["trials"])):
        truth = capped_worst_delta(**numbers, cap=cap, weights=one_up(weights_of(EPSILONS)))
        assert not exceeded(cells_of(numbers, overflow=exact_overflow(numbers, cap)).delta_upper, truth)


@pytest.mark.parametrize(("numbers", "cap"), [(CAPPED[0], 4), (CAPPED[0], 5), (CAPPED[2], 2)])
def test_a_cap_without_a_charge_would_be_caught(numbers: Setting, cap: int) -> None:
    truth = capped_worst_delta(**numbers, cap=cap, weights=one_up(weights_of(EPSILONS)))
    assert exceeded(cells_of(numbers).delta_upper, truth)


def test_every_round_is_charged() -> None:
    numbers, epsilons = setting(2, 1, (4,), "1/2"), EPSILONS[::2]
    for cap in range(4):
        truth = capped_worst_delta(**numbers, cap=cap, weights=one_up(weights_of(epsilons)), rounds=2)
        charged = cells_of(numbers, rounds=2, overflow=exact_overflow(numbers, cap, rounds=2))
        assert not exceeded(charged.delta_upper, truth, epsilons)
        assert exceeded(cells_of(numbers, rounds=2).delta_upper, truth, epsilons)


def test_the_charge_is_what_it_is_said_to_be() -> None:
    numbers, more = TINY[5], 1e-3
    free, charged = cells_of(numbers), cells_of(numbers, overflow=more)
    for epsilon in EPSILONS[:3]:
        full = free.delta_upper(epsilon) + (1 + math.exp(epsilon)) * more
        assert charged.delta_upper(epsilon) == pytest.approx(full, rel=1e-9)
    for epsilon in EPSILONS[3:]:  # a delta never rises with epsilon, where the charge alone would
        assert charged.delta_upper(epsilon) <= free.delta_upper(epsilon) + (1 + math.exp(epsilon)) * more * (1 + 1e-9)
    deltas = [charged.delta_upper(epsilon) for epsilon in EPSILONS]
    assert all(later <= earlier for earlier, later in itertools.pairwise(deltas))


@pytest.mark.parametrize(("numbers", "cap"), [(CAPPED[0], 5), (CAPPED[2], 4), (setting(2, 1, (4,), "1/2"), 3)])
def test_what_is_exported_covers_the_cap_and_composes(numbers: Setting, cap: int) -> None:
    """Once, and with itself as two rounds; the export of noise without a cap would be caught."""
    epsilons, weights = EPSILONS[:5], one_up(weights_of(EPSILONS[:5]))
    exported, free = (
        cells_of(numbers, overflow=more).to_dp_accounting(value_discretization_interval=1e-3)
        for more in (exact_overflow(numbers, cap), 0.0)
    )
    once = capped_worst_delta(**numbers, cap=cap, weights=weights)
    assert not exceeded(exported.get_delta_for_epsilon, once, epsilons)
    if len(numbers["trials"]) * numbers["dimension"] == 1:
        twice = capped_worst_delta(**numbers, cap=cap, weights=weights, rounds=2)
        assert not exceeded(exported.compose(exported).get_delta_for_epsilon, twice, epsilons)
    if numbers is CAPPED[0]:
        assert exceeded(free.get_delta_for_epsilon, once, epsilons)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "group", [ChangedCounts(12, 0.09, 20_000), ChangedCounts(4190, 1 - 2.0**-11, 20_000), ChangedCounts(1, 0.5, 10**6)]
)
def test_many_cells_that_give_themselves_away_are_told_apart_for_certain(group: ChangedCounts) -> None:
    cells = NoisyCountsAccountant((group,))
    assert 1 - 1e-9 < cells.delta_lower(1.0) <= cells.delta_upper(1.0) == 1.0


# Room for dummy reports


@pytest.mark.parametrize(
    "groups",
    [
        [(48, Fraction(1, 16)), (24, Fraction(1, 16)), (12, Fraction(1, 16))],
        [(200, Fraction(1, 64))],
        [(30, Fraction(1, 2)), (60, Fraction(1, 8))],
        [(300, Fraction(1, 1024)), (100, Fraction(1, 16))],
    ],
)
def test_the_tail_of_dummy_reports_is_bounded_and_not_by_much_more_than_needed(
    groups: list[tuple[int, Fraction]],
) -> None:
    mean = float(sum(trials * p for trials, p in groups))
    for deviations in range(9):
        cap = math.ceil(mean + deviations * math.sqrt(mean))
        exact, bound = overflow(groups, cap), overflow_upper([(trials, float(p)) for trials, p in groups], cap)
        assert exact <= Fraction(bound) <= 100 * exact


tails = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 63)), min_size=1, max_size=4)


@settings(max_examples=100)
@given(tails, st.integers(0, 80))
def test_the_bounded_tail_is_never_too_small(drawn: list[tuple[int, int]], cap: int) -> None:
    exact = overflow([(trials, Fraction(p, 64)) for trials, p in drawn], cap)
    bound = overflow_upper([(trials, p / 64) for trials, p in drawn], cap)
    assert exact <= Fraction(bound) <= 1


# Tightness


def digit_noise(dimension: int, digits: int, scale: int) -> NoisyCountsAccountant:
    """Noise with variances that halve from digit to digit, the best split."""
    return NoisyCountsAccountant(
        tuple(ChangedCounts(scale >> j, 1 / 16, dimension, at_once=dimension) for j in range(digits))
    )


def scale_near(bound: Callable[[int], float], delta: float) -> int:
    """A scale with about that delta; what is compared there is exact, whatever this finds."""
    scales = [round(128 * 1.05**step) for step in range(228)]
    found = bisect.bisect_left(scales, True, key=lambda scale: bound(scale) <= delta)
    assert 0 < found < len(scales)
    return scales[found]


@pytest.mark.long
@pytest.mark.parametrize(
    ("dimension", "digits", "epsilon", "delta"),
    [
        (1, 1, 1.0, 1e-6),
        (1, 7, 1.0, 1e-6),
        (10, 3, 0.5, 1e-6),
        (100, 4, 1.0, 1e-6),
        (8, 8, 2.0, 1e-8),
        (30, 1, 2.0, 1e-6),
        (16, 2, 4.0, 1e-9),
        (30, 1, 4.0, 1e-6),
        (31, 1, 4.0, 1e-3),
        (3, 10, 2.0, 1e-3),
        (1000, 3, 4.0, 1e-3),
    ],
)
def test_upper_and_lower_bounds_ask_for_nearly_the_same_noise(
    dimension: int, digits: int, epsilon: float, delta: float
) -> None:
    enough = scale_near(lambda scale: digit_noise(dimension, digits, scale).delta_upper(epsilon), delta)
    noise, less_noise = (digit_noise(dimension, digits, scale) for scale in (enough, math.floor(enough / 1.005)))
    assert noise.delta_lower(epsilon) <= noise.delta_upper(epsilon) < less_noise.delta_lower(epsilon)
