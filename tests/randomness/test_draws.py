from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.oracles.integers import bounded
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.randomness import random_uints, shuffle_in_place, stratified_coordinates, uniform_coordinates
from shufflesum.testing import SeededSource


@given(
    bounds=st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=4),
    seed=st.lists(st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**32 - 1])), min_size=1, max_size=12),
)
def test_bounded_integers_reject_what_would_bias_them(bounds: list[int], seed: list[int]) -> None:
    for bound in bounds:
        accepted = [value for value in (bounded(word, bound) for word in seed) if value is not None]
        out = np.full((len(seed), 1), 2**32 - 1, dtype=np.uint32)
        filled = stratified_coordinates(np.array(seed, dtype=np.uint32), bound, 1, out)
        assert out[:filled, 0].tolist() == accepted


def test_stratified_blocks_are_drawn_uniformly_and_independently() -> None:
    """Chi-square over all combinations at false alarm 1e-6; cutting the blocks elsewhere is rejected."""
    dimension, sampled, users = 7, 3, 300_000  # blocks 0-1, 2-3, 4-6
    out = np.empty((users, sampled), dtype=np.uint32)
    drawn = random_uints(SeededSource(11), users * sampled + 10_000, np.uint32)
    assert stratified_coordinates(drawn, dimension, sampled, out) == users
    observed = np.zeros((dimension, dimension, dimension))
    np.add.at(observed, tuple(out.T), 1)

    def law(edges: list[int]) -> NDArray[np.float64]:
        blocks = [np.isin(np.arange(dimension), range(*pair)) / (pair[1] - pair[0]) for pair in _pairs(edges)]
        return np.asarray(np.einsum("a,b,c->abc", *blocks))

    assert chi_square(observed, law([0, 2, 4, 7])) > FALSE_ALARM
    assert chi_square(observed, law([0, 3, 5, 7])) < FALSE_ALARM


def _pairs(edges: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(edges))


@pytest.mark.long
def test_uniform_subsets_are_equally_likely_and_users_independent() -> None:
    """Chi-square over pairs of consecutive users' subsets, at false alarm 1e-6."""
    dimension, sampled, users = 5, 2, 400_000
    out = np.empty((users, sampled), dtype=np.uint32)
    drawn = random_uints(SeededSource(12), users * sampled + 10_000, np.uint32)
    assert uniform_coordinates(drawn, dimension, np.arange(dimension, dtype=np.uint32), out) == users
    subsets = {pair: i for i, pair in enumerate(combinations(range(dimension), sampled))}
    which = np.array([subsets[tuple(sorted(row))] for row in out.tolist()])
    joint = np.bincount(which[:-1:2] * 10 + which[1::2], minlength=100)
    assert chi_square(joint, np.full(100, 1 / 100)) > FALSE_ALARM
    # the twin: drawing with replacement and dropping doubles of 0 only would favour pairs without 0
    tilted = np.array([1.1 if 0 in pair else 1.0 for pair in subsets])
    assert chi_square(np.bincount(which), tilted / tilted.sum()) < FALSE_ALARM


@pytest.mark.parametrize("kind", ["stratified", "uniform"])
def test_coordinates_stop_at_a_whole_user_when_words_run_out(kind: str) -> None:
    drawn = random_uints(SeededSource(4), 8, np.uint32)
    drawn[:] |= 1 << 20  # far from every rejection
    for count, users in ((8, 2), (7, 2), (6, 2), (5, 1), (2, 0), (0, 0)):
        out = np.zeros((2, 3), dtype=np.uint32)
        urn = np.arange(6, dtype=np.uint32)
        if kind == "stratified":
            filled = stratified_coordinates(drawn[:count], 6, 3, out)
        else:
            filled = uniform_coordinates(drawn[:count], 6, urn, out)
            assert sorted(urn) == list(range(6))
        assert filled == users


def test_permutations_place_each_item_by_one_accepted_word() -> None:
    for chosen in product(range(4), range(3), range(2)):
        items = np.arange(4, dtype=np.uint64)
        expected = list(range(4))
        for bound, index in zip((4, 3, 2), chosen, strict=True):
            expected[bound - 1], expected[index] = expected[index], expected[bound - 1]
        drawn = [-(-(index << 32) // bound) + 1 for bound, index in zip((4, 3, 2), chosen, strict=True)]
        drawn.insert(1, 0)  # rejected for a bound of 3
        left = shuffle_in_place(items, np.array(drawn, dtype=np.uint32), 4)
        assert left == 1
        assert items.tolist() == expected


def test_a_shuffle_says_how_many_items_wait_for_more_words() -> None:
    items = np.arange(10, dtype=np.uint64)
    drawn = random_uints(SeededSource(4), 4, np.uint32) | np.uint32(1 << 20)
    assert shuffle_in_place(items, drawn, 10) == 6
    assert sorted(items.tolist()) == list(range(10))
