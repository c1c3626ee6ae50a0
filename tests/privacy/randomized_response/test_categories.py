"""One report out of very many values: the same bounds, held against exact numbers at large K."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.categories import worst_categories_delta
from tests.oracles.enumeration import rational_blanket_delta, worst_delta
from tests.refusals import refusal

from shufflesum.privacy import RandomizedResponseAccountant
from shufflesum.privacy.randomized_response import blanket
from shufflesum.privacy.randomized_response.blanket import MOST_VALUES
from shufflesum.privacy.randomized_response.schemes import Blocks

EPSILONS = [0.0, 0.2, 0.5, 1.0, 2.0, 4.0]
MANY = [1000, 1001, 10**6, MOST_VALUES]


def weights_of(epsilons: Sequence[float]) -> list[Fraction]:
    """Weights certainly above e^epsilon: exp may be rounded down, which shows where gamma is almost 1."""
    return [Fraction(math.nextafter(math.exp(epsilon), math.inf)) if epsilon else Fraction(1) for epsilon in epsilons]


@pytest.mark.parametrize(("users", "values"), [(1, 2), (3, 2), (3, 3), (2, 5), (4, 4)])
def test_lumped_values_are_enumerated_as_all_values_are(users: int, values: int) -> None:
    ours = worst_categories_delta(users=users, values=values, gamma=Fraction(1, 4), weights=weights_of(EPSILONS))
    full = worst_delta(users=users, dimension=1, levels=values - 1, noise_probability=0.25, epsilons=EPSILONS)
    assert [float(delta) for delta in ours] == pytest.approx(list(full), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("values", MANY)
@pytest.mark.parametrize("users", [1, 2, 3, 4])
def test_the_enumerated_delta_lies_between_the_bounds(users: int, values: int) -> None:
    for gamma in (0.5, 1 - 2**-10, 1 - 2**-20, 1 - 2**-32):
        numbers = users, values - 1, gamma
        truth = worst_categories_delta(users=users, values=values, gamma=Fraction(gamma), weights=weights_of(EPSILONS))
        for epsilon, delta in zip(EPSILONS, truth, strict=True):
            moved = Fraction(4 * math.exp(epsilon) * 2**-52)  # by the weight's rounding
            assert Fraction(blanket.delta_lower(*numbers, epsilon)) <= delta * Fraction(1 + 1e-12) + moved
            assert delta <= Fraction(blanket.delta_upper(*numbers, epsilon))


@pytest.mark.parametrize(("values", "gamma"), [(10**6, 1 - 2**-20), (MOST_VALUES, 1 - 2**-32)])
def test_a_bound_for_half_as_many_values_would_be_caught(values: int, gamma: float) -> None:
    truth = worst_categories_delta(users=3, values=values, gamma=Fraction(gamma), weights=weights_of([0.5]))[0]
    assert blanket.delta_upper(3, values // 2, gamma, 0.5) < truth <= blanket.delta_upper(3, values - 1, gamma, 0.5)


@settings(max_examples=60)
@given(
    st.integers(1, 14),
    st.sampled_from([10**3, 10**4, 10**6, 10**9, MOST_VALUES]) | st.integers(1000, MOST_VALUES),
    st.integers(1, 63) | st.sampled_from([64 - 2**-10, 64 - 2**-20]),
    st.floats(0.0, 6.0),
)
def test_the_blanket_sum_is_rounded_up_and_hardly(users: int, values: int, part: float, epsilon: float) -> None:
    gamma = part / 64
    exact = rational_blanket_delta(users, values - 1, Fraction(gamma), weights_of([epsilon])[0])
    bound = blanket.delta_upper(users, values - 1, gamma, epsilon)
    assert exact <= Fraction(bound)
    assert bound <= float(exact) * (1 + 1e-3) + 4 * math.exp(epsilon) * 2**-52


@pytest.mark.parametrize(
    ("users", "values"),
    [(10**6, 10**4), (10**6, 10**6), (10**8, 10**6), (10**10, 10**6), (10**10, 10**9), (10**10, MOST_VALUES)],
)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.2, 1e-9), (4.0, 1e-6)])
def test_what_is_enough_and_what_is_too_little_meet(users: int, values: int, epsilon: float, delta: float) -> None:
    enough = blanket.smallest_noise_probability(users, values - 1, epsilon, delta)
    too_little = blanket.noise_probability_lower_bound(users, values - 1, epsilon, delta)
    assert blanket.delta_upper(users, values - 1, enough, epsilon) <= delta
    assert too_little < enough <= (1 + 1e-3) * too_little


@pytest.mark.parametrize(("users", "values", "rounds"), [(10**6, 10**4, 10), (10**6, 10**6, 100), (10**10, 10**9, 5)])
def test_rounds_meet_as_well(users: int, values: int, rounds: int) -> None:
    blocks = Blocks(users, values - 1, rounds)
    enough = blocks.smallest_noise_probability(1.0, 1e-6)
    too_little = blocks.noise_probability_lower_bound(1.0, 1e-6)
    assert too_little < enough <= (1 + 2e-3) * too_little


def test_the_accountant_takes_as_many_values_as_there_are_cells() -> None:
    found = RandomizedResponseAccountant(10**6, MOST_VALUES - 1, 0.99).delta(1.0)
    assert 0.0 <= found.lower <= found.upper <= 0.01
    with refusal("out-of-range", "levels"):
        RandomizedResponseAccountant(10**6, MOST_VALUES, 0.99).delta(1.0)
