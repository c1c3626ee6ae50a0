"""The pool of all reports: below the truth, hardly below it, and close to what is certified."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from tests.oracles.pools import pooled

from shufflesum.privacy.randomized_response import direct
from shufflesum.privacy.randomized_response.direct import pooled_delta_lower, pooled_epsilon_lower
from shufflesum.privacy.randomized_response.schemes import Blocks, Subsets

SMALL = [
    (users, values, reports, gamma, epsilon)
    for users, values, reports in ((1, 2, 3), (2, 2, 4), (4, 2, 2), (2, 3, 3), (3, 4, 2), (6, 3, 1), (3, 9, 3))
    for gamma in (Fraction(1, 8), Fraction(1, 2), Fraction(7, 8))
    for epsilon in (0.0, 0.5, 2.0)
]


@pytest.mark.parametrize(("users", "values", "reports", "gamma", "epsilon"), SMALL)
def test_it_is_the_exact_sum_from_below(users: int, values: int, reports: int, gamma: Fraction, epsilon: float) -> None:
    growth = Fraction(math.exp(epsilon))
    found = pooled_delta_lower(users, values, reports, float(gamma), epsilon)
    exact = float(pooled(users, values, reports, gamma, growth))
    assert found <= exact * (1 + 1e-15)
    if values == 2 or float(gamma) / values < 0.25:
        assert found >= exact * (1 - 1e-9) - 1e-12


def test_less_noise_than_said_would_show() -> None:
    """The twin: the bound at a tenth less noise lies above the truth."""
    exact = float(pooled(4, 3, 2, Fraction(1, 2), Fraction(math.exp(0.5))))
    assert pooled_delta_lower(4, 3, 2, 0.45, 0.5) > exact >= pooled_delta_lower(4, 3, 2, 0.5, 0.5)


def test_keeping_only_a_part_of_the_reports_shows_less(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = pooled_delta_lower(200, 4, 20, 0.3, 0.5)
    monkeypatch.setattr(direct, "_MOST_HITS", 100.0)
    part = pooled_delta_lower(200, 4, 20, 0.3, 0.5)
    assert 0.0 < part < 0.9 * whole


@pytest.mark.parametrize("levels", [1, 3])
def test_many_reports_in_one_pool_show_what_block_by_block_is_certified(levels: int) -> None:
    blocks = Blocks(2_000, levels, 100, single_coordinate=True)
    enough = blocks.smallest_noise_probability(1.0, 1e-6)
    assert pooled_delta_lower(2_000, levels + 1, 100, 0.97 * enough, 1.0) > 1e-6


@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("users", [2, 5, 9])
def test_small_crowds_with_many_reports_are_known_closely(users: int, levels: int) -> None:
    blocks = Blocks(users, levels, 50, single_coordinate=True)
    upper, lower = blocks.delta_upper(0.5, 1.0), blocks.delta_lower(0.5, 1.0)
    assert 0.85 * upper < lower <= upper


def test_uniform_sampling_lies_between_its_bounds() -> None:
    subsets = Subsets(2_000, 3, 50, 100)
    for epsilon in (0.0, 0.5, 2.0):
        assert 0.0 <= subsets.delta_lower(0.3, epsilon) <= subsets.delta_upper(0.3, epsilon)
    low, high = subsets.epsilon_lower(0.3, 1e-6), subsets.epsilon_upper(0.3, 1e-6)
    assert 0.0 < low < high
    assert subsets.delta_lower(0.3, low) > 1e-6
    assert subsets.delta_lower(1.0, 0.0) == 0.0


def test_an_epsilon_is_given_only_where_it_was_seen_to_fail() -> None:
    assert pooled_epsilon_lower(10**6, 4, 1, 0.9, 1e-3) == 0.0
    for users, reports in ((100, 10), (5_000, 3)):  # above 1, and far below
        found = pooled_epsilon_lower(users, 4, reports, 0.5, 1e-4)
        assert (
            pooled_delta_lower(users, 4, reports, 0.5, found)
            > 1e-4
            > pooled_delta_lower(users, 4, reports, 0.5, 1.01 * found)
        )
