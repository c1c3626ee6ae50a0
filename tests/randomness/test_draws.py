from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.chances import FALSE_ALARM, chi_square

from shufflesum.protocol.draws import (
    NOISE_BITS,
    SPARE_WORDS,
    privatize,
    shuffle_in_place,
    stratified_coordinates,
    uniform_coordinates,
)
from shufflesum.protocol.randomness import words
from shufflesum.testing import SeededSource

ALL = np.arange(1 << 16, dtype=np.uint16)
ONE = 1 << NOISE_BITS


def bounded(word: int, bound: int, bits: int = 32) -> int | None:
    """Lemire's multiply-and-reject in unlimited integers."""
    high, low = divmod(word * bound, 1 << bits)
    return None if low < (1 << bits) % bound else high


def reference(
    positions: list[float],
    coins: list[int],
    noise: list[int],
    fresh: list[int],
    spare: list[int],
    levels: int,
    numerator: int,
) -> list[int]:
    """Algorithm 1 with exact fractions: 16 bits of each word first, bits of a spare word where these do not decide."""
    left = iter(spare)
    values = []
    for place, coin, decision, draw in zip(positions, coins, noise, fresh, strict=True):
        floor = int(place)
        scaled = (Fraction(place) - floor) * 65536
        more = Fraction(next(left) >> 11, 1 << 53) if coin == int(scaled) else 0
        up = coin + more < scaled
        if decision == numerator >> 37:
            replace = (decision << 37) + (next(left) >> 27) < numerator
        else:
            replace = decision << 37 < numerator
        value: int | None = min(floor + up, levels)
        if replace:
            value = bounded(draw, levels + 1, 16)
            while value is None:
                value = bounded(next(left) >> 32, levels + 1)
        assert value is not None
        values.append(value)
    return values


def run(
    positions: Any, coins: Any, noise: Any, fresh: Any, spare: Any, levels: int, numerator: int
) -> tuple[NDArray[np.uint16], int]:
    places = np.asarray(positions, dtype=np.float64)
    out = np.full(places.size, 65535, dtype=np.uint16)
    coins, noise, fresh = (np.full(places.shape, w, dtype=np.uint16) for w in (coins, noise, fresh))
    done = privatize(places, coins, noise, fresh, np.asarray(spare, dtype=np.uint64), levels, np.uint64(numerator), out)
    return out, int(done)


@st.composite
def hard_words(draw: st.DrawFn) -> dict[str, Any]:
    """Words among which ties and rejections are common."""
    levels = draw(st.sampled_from([1, 2, 3, 4, 6, 9, 99, 999, 21845, 32766]))
    numerator = draw(
        st.one_of(st.integers(0, ONE), st.sampled_from([0, 1, ONE - 1, ONE, 1 << 37, (1 << 37) - 1, 3 << 36]))
    )
    count = draw(st.integers(1, 12))
    digit = min(numerator >> 37, 65535)
    near_digit = st.sampled_from(sorted({max(digit - 1, 0), digit, min(digit + 1, 65535)}))
    positions, coins, noise, fresh = [], [], [], []
    for _ in range(count):
        place = draw(st.one_of(st.floats(0, levels), st.integers(0, levels).map(float)))
        tie = int((place - int(place)) * 65536)
        positions.append(place)
        coins.append(draw(st.one_of(st.just(tie), st.integers(0, 65535))))
        noise.append(draw(st.one_of(near_digit, st.integers(0, 65535))))
        fresh.append(draw(st.one_of(st.sampled_from([0, 1, 2, 65535]), st.integers(0, 65535))))
    spare = [draw(st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1 << 32]))) for _ in range(4 * count)]
    rest = numerator & ((1 << 37) - 1)
    spare = [draw(st.sampled_from([word, rest << 27, max(rest - 1, 0) << 27])) for word in spare]
    # whatever was rejected before ends here: this word is accepted for every number of cells
    spare += [(1 << 64) - 1] * (SPARE_WORDS + 2 * count)
    return {
        "positions": positions,
        "coins": coins,
        "noise": noise,
        "fresh": fresh,
        "spare": spare,
        "levels": levels,
        "numerator": numerator,
    }


@given(case=hard_words())
def test_privatize_does_what_exact_fractions_say(case: dict[str, Any]) -> None:
    values, done = run(**case)
    assert done == len(case["positions"])
    assert values.tolist() == reference(**case)


@pytest.mark.parametrize("numerator", [1, (1 << 37) - 1, 12345678901234567 % ONE, ONE // 3, ONE - 1], ids=hex)
def test_a_value_is_replaced_with_exactly_the_noise_probability(numerator: int) -> None:
    """All 65,536 noise words, and the spare words just below and at the tie's threshold: the count is exact."""
    digit, rest = numerator >> 37, numerator & ((1 << 37) - 1)
    kept, replaced = 1, 0
    for spare_word, more in (((rest << 27) - 1, 1), (rest << 27, 0)):
        spare = np.full(4 * SPARE_WORDS, spare_word, dtype=np.uint64)
        values, done = run(np.full(ALL.size, 1.0), 1, ALL, 0, spare, 1, numerator)
        assert done == ALL.size
        assert np.count_nonzero(values == replaced) == digit + more
        assert np.count_nonzero(values == kept) == ALL.size - digit - more


def test_noise_probability_one_replaces_everything_and_zero_nothing() -> None:
    spare = np.zeros(4 * SPARE_WORDS, dtype=np.uint64)
    assert (run(np.full(ALL.size, 1.0), 1, ALL, 0, spare, 1, ONE)[0] == 0).all()
    # the tie at noise word 0 must be decided against replacing, whatever the spare word
    for word in (0, 2**64 - 1):
        assert (run(np.full(ALL.size, 1.0), 1, ALL, 0, np.full_like(spare, word), 1, 0)[0] == 1).all()


@pytest.mark.parametrize("levels", [1, 2, 4, 6, 9, 99, 999, 21845, 32766])
def test_replacements_are_uniform_to_the_last_word(levels: int) -> None:
    """Of all 65,536 fresh words each value gets as many, and the 65,536 mod K left over are drawn again."""
    cells = levels + 1
    outcomes = []
    first, last = 0x12345678, 0xFFFFFFFF
    assert None not in (bounded(first, cells), bounded(last, cells))
    for high in (first, last):
        spare = np.full(65536 + SPARE_WORDS, high << 32, dtype=np.uint64)
        values, done = run(np.zeros(ALL.size), 1, 0, ALL, spare, levels, ONE)
        assert done == ALL.size
        outcomes.append(values)
    # the two spare words stand for different values, so only values that were drawn again differ
    assert bounded(first, cells) != bounded(last, cells)
    settled = outcomes[0] == outcomes[1]
    assert np.count_nonzero(~settled) == 65536 % cells
    assert (np.bincount(outcomes[0][settled], minlength=cells) == 65536 // cells).all()


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 2.75, 2.999999, 3.0])
def test_rounding_goes_up_with_exactly_the_fraction(place: float) -> None:
    fraction = Fraction(place) - int(place)
    threshold = int((fraction * 65536 - int(fraction * 65536)) * (1 << 53))
    for spare_word, more in (((threshold - 1) << 11, 1), (threshold << 11, 0)):
        if spare_word < 0:
            continue
        spare = np.full(4 * SPARE_WORDS, spare_word, dtype=np.uint64)
        values, _ = run(np.full(ALL.size, place), ALL, 65535, 0, spare, 3, 0)
        ups = int(np.count_nonzero(values == int(place) + 1))
        assert ups == int(fraction * 65536) + (more if fraction * 65536 != int(fraction * 65536) else 0)
        assert np.count_nonzero(values == int(place)) == ALL.size - ups


def test_where_spare_words_run_low_the_rest_is_settled_from_fresh_ones_alike() -> None:
    """Equal spare words make the outcome independent of which call used them, so pieces must equal the whole."""
    source = SeededSource(3)
    count, levels, numerator = 5000, 21845, ONE // 2 + 12345
    coins, noise, fresh = words(source, 3 * count, np.uint16).reshape(3, -1)
    noise[::7] = numerator >> 37
    positions = np.linspace(0, levels, count)
    spare = np.full(count * 3 + SPARE_WORDS, 0x8765432112345678, dtype=np.uint64)
    whole, done = run(positions, coins, noise, fresh, spare, levels, numerator)
    assert done == count
    pieces = np.full(count, 65535, dtype=np.uint16)
    at = calls = 0
    while at < count:
        short = spare[: SPARE_WORDS + 1]
        step = privatize(
            positions[at:], coins[at:], noise[at:], fresh[at:], short, levels, np.uint64(numerator), pieces[at:]
        )
        assert step > 0
        at += step
        calls += 1
    assert calls > 500
    np.testing.assert_array_equal(pieces, whole)


def test_a_value_is_not_settled_while_all_spare_words_are_rejected() -> None:
    rejected_forever = np.zeros(SPARE_WORDS, dtype=np.uint64)
    assert bounded(0, 3) is None
    assert run([1.0, 1.0], 9, [65535, 0], [5, 0], rejected_forever, 2, ONE // 2)[1] == 1


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
    dimension, reports, users = 7, 3, 300_000  # blocks 0-1, 2-3, 4-6
    out = np.empty((users, reports), dtype=np.uint32)
    drawn = words(SeededSource(11), users * reports + 10_000, np.uint32)
    assert stratified_coordinates(drawn, dimension, reports, out) == users
    observed = np.zeros((dimension, dimension, dimension))
    np.add.at(observed, tuple(out.T), 1)

    def law(edges: list[int]) -> NDArray[np.float64]:
        blocks = [np.isin(np.arange(dimension), range(*pair)) / (pair[1] - pair[0]) for pair in _pairs(edges)]
        return np.asarray(np.einsum("a,b,c->abc", *blocks))

    assert chi_square(observed, law([0, 2, 4, 7])) > FALSE_ALARM
    assert chi_square(observed, law([0, 3, 5, 7])) < FALSE_ALARM


def _pairs(edges: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(edges))


def test_uniform_subsets_are_equally_likely_and_users_independent() -> None:
    """Chi-square over pairs of consecutive users' subsets, at false alarm 1e-6."""
    dimension, reports, users = 5, 2, 400_000
    out = np.empty((users, reports), dtype=np.uint32)
    drawn = words(SeededSource(12), users * reports + 10_000, np.uint32)
    assert uniform_coordinates(drawn, dimension, np.arange(dimension, dtype=np.uint32), out) == users
    subsets = {pair: i for i, pair in enumerate(combinations(range(dimension), reports))}
    which = np.array([subsets[tuple(sorted(row))] for row in out.tolist()])
    joint = np.bincount(which[:-1:2] * 10 + which[1::2], minlength=100)
    assert chi_square(joint, np.full(100, 1 / 100)) > FALSE_ALARM
    # the twin: drawing with replacement and dropping doubles of 0 only would favour pairs without 0
    tilted = np.array([1.1 if 0 in pair else 1.0 for pair in subsets])
    assert chi_square(np.bincount(which), tilted / tilted.sum()) < FALSE_ALARM


@pytest.mark.parametrize("kind", ["stratified", "uniform"])
def test_coordinates_stop_at_a_whole_user_when_words_run_out(kind: str) -> None:
    drawn = words(SeededSource(4), 8, np.uint32)
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
    drawn = words(SeededSource(4), 4, np.uint32) | np.uint32(1 << 20)
    assert shuffle_in_place(items, drawn, 10) == 6
    assert sorted(items.tolist()) == list(range(10))
