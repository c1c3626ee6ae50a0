from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from tests.oracles.integers import bounded
from tests.plan_builders import coordinates_of, replace_of, values_of
from tests.stat_tests import FALSE_ALARM, chi_square, report_law

from shufflesum import Plan, Randomizer
from shufflesum.mechanisms.randomized_response.randomize import privatize
from shufflesum.randomness import PROBABILITY_BITS, SPARE_WORDS, random_uints
from shufflesum.testing import SeededSource, unprotected_plan

ALL = np.arange(1 << 16, dtype=np.uint16)
ONE = 1 << PROBABILITY_BITS

# Algorithm 1: rounding and replacing, word by word ------------------------------------------------------------------


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
    positions: Any, coins: Any, noise: Any, fresh: Any, spare: Any, levels: int, numerator: int, first: int = 0
) -> tuple[NDArray[np.int64], int]:
    """The values, which follow each other's cells from cell `first` on, and how many of them are settled."""
    places = np.asarray(positions, dtype=np.float64)
    first_cells = np.arange(places.size) * (levels + 1) + first
    out = np.full(places.size, 2**32 - 1, dtype=np.uint32)
    coins, noise, fresh = (np.full(places.shape, w, dtype=np.uint16) for w in (coins, noise, fresh))
    spare = np.asarray(spare, dtype=np.uint64)
    done = privatize(
        first_cells.astype(np.uint32), places, coins, noise, fresh, spare, levels, np.uint64(numerator), out
    )
    return out - first_cells, int(done)


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


@pytest.mark.long
@given(case=hard_words(), at_the_end=st.booleans())
def test_privatize_does_what_exact_fractions_say(case: dict[str, Any], at_the_end: bool) -> None:
    """The last cell that any plan can have is 2**32 - 2, just below the blank."""
    count = len(case["positions"])
    values, done = run(**case, first=2**32 - 1 - count * (case["levels"] + 1) if at_the_end else 0)
    assert done == count
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
    coins, noise, fresh = random_uints(source, 3 * count, np.uint16).reshape(3, -1)
    noise[::7] = numerator >> 37
    positions = np.linspace(0, levels, count)
    spare = np.full(count * 3 + SPARE_WORDS, 0x8765432112345678, dtype=np.uint64)
    whole, done = run(positions, coins, noise, fresh, spare, levels, numerator)
    assert done == count
    pieces: list[NDArray[np.int64]] = []
    at = 0
    while at < count:
        short = spare[: SPARE_WORDS + 1]
        values, step = run(positions[at:], coins[at:], noise[at:], fresh[at:], short, levels, numerator)
        assert step > 0
        pieces.append(values[:step])
        at += step
    assert len(pieces) > 500
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_a_value_is_not_settled_while_all_spare_words_are_rejected() -> None:
    rejected_forever = np.zeros(SPARE_WORDS, dtype=np.uint64)
    assert bounded(0, 3) is None
    assert run([1.0, 1.0], 9, [65535, 0], [5, 0], rejected_forever, 2, ONE // 2)[1] == 1


# Algorithms 1 and 2: what users send ---------------------------------------------------------------------------------


def observed_values(plan: Plan, row: Any, users: int, seed: int) -> Any:
    """How often each value was reported for each coordinate, by users who all hold the same row."""
    table = np.zeros(plan.cells, dtype=np.int64)
    rows = np.broadcast_to(np.asarray(row, dtype=np.float64), (users, *plan.shape))
    for reports in Randomizer(plan, source=SeededSource(seed)).blocks(rows):
        np.add.at(table, reports.cells, 1)
    return table.reshape(plan.dimension, -1)


@pytest.mark.parametrize(
    ("levels", "noise_probability"),
    [(1, 0.1), (2, 1 / 3), (3, 0.0123456789), (6, 0.7), (40, 0.5), (10, 1.0), (999, 0.9)],
)
@pytest.mark.parametrize("coordinates", [1, 3, 4])
def test_reports_follow_their_probability_table(
    levels: int, noise_probability: float, coordinates: int, both_kernels: bool
) -> None:
    """Chi-square at false alarm 1e-6; a noise probability a tenth off is rejected, if it is large by fewer reports."""
    reports = 2_000_000 if both_kernels or noise_probability < 0.05 else 400_000
    row = [0.0, 0.137, 0.5, 1.0]
    plan = unprotected_plan(
        users=1,
        shape=4,
        coordinates=coordinates,
        levels=levels,
        noise_probability=noise_probability,
        sampling="uniform",
    )
    table = observed_values(plan, row, reports // coordinates + 1, seed=levels * 10 + coordinates)
    assert table.sum() >= reports

    def p_values(gamma: float) -> list[float]:
        return [
            chi_square(seen[law > 0], law[law > 0]) if not seen[law == 0].any() else 0.0
            for seen, law in ((seen, report_law(x, levels, gamma)) for seen, x in zip(table, row, strict=True))
        ]

    assert min(p_values(noise_probability)) > FALSE_ALARM / 4
    assert min(p_values(noise_probability * 0.9)) < FALSE_ALARM / 4


def test_a_noise_probability_below_two_to_the_minus_16_is_kept_exactly() -> None:
    """Then only ties lead to noise. Counts of replaced values are binomial (two-sided, false alarm 1e-6)."""
    noise_probability, users = 1e-5, 10_000_000
    plan = unprotected_plan(users=1, shape=(), levels=999, noise_probability=noise_probability)
    replaced = users - observed_values(plan, 0.0, users, seed=1)[0, 0]
    law = binom(users, noise_probability * 999 / 1000)
    assert min(law.cdf(replaced), law.sf(replaced - 1)) > FALSE_ALARM / 2
    twice = binom(users, 2 * noise_probability * 999 / 1000)
    assert min(twice.cdf(replaced), twice.sf(replaced - 1)) < FALSE_ALARM / 2


@pytest.mark.usefixtures("both_kernels")
def test_stratified_reports_take_one_coordinate_from_each_block() -> None:
    """Uniform inside each block and independent between blocks: chi-square at false alarm 1e-6."""
    plan = unprotected_plan(users=1, shape=(2, 4), coordinates=3)  # blocks 0-1, 2-4, 5-7
    assert replace_of(plan).block_starts(plan.encoding).tolist() == [0, 2, 5]
    reports = Randomizer(plan, source=SeededSource(2)).randomize(np.zeros((200_000, 2, 4)))
    first, second, third = coordinates_of(plan, reports).reshape(-1, 3).T
    joint = np.zeros((8, 8, 8))
    np.add.at(joint, (first, second, third), 1)
    law = np.zeros((8, 8, 8))
    law[:2, 2:5, 5:] = 1 / 18
    assert chi_square(joint, law) > FALSE_ALARM
    law[0] *= 1.05
    law[1] *= 0.95
    assert chi_square(joint, law) < FALSE_ALARM


@pytest.mark.usefixtures("both_kernels")
@pytest.mark.parametrize("coordinates", [1, 2, 4])
def test_uniform_reports_take_every_subset_alike(coordinates: int) -> None:
    """All subsets, chi-square at false alarm 1e-6."""
    plan = unprotected_plan(users=1, shape=5, coordinates=coordinates, sampling="uniform")
    reports = Randomizer(plan, source=SeededSource(3)).randomize(np.zeros((150_000, 5)))
    subsets = list(combinations(range(5), coordinates))
    masks = (1 << coordinates_of(plan, reports).reshape(-1, coordinates)).sum(axis=1)
    observed = np.array([np.count_nonzero(masks == sum(1 << c for c in subset)) for subset in subsets])
    assert observed.sum() == 150_000  # so no coordinate came twice
    assert chi_square(observed, np.full(len(subsets), 1 / len(subsets))) > FALSE_ALARM
    tilted = np.array([1.05 if 0 in subset else 1.0 for subset in subsets])
    assert chi_square(observed, tilted / tilted.sum()) < FALSE_ALARM


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_where_all_coordinates_are_reported_each_is_reported_once(sampling: Any) -> None:
    plan = unprotected_plan(users=1, shape=6, coordinates=6, sampling=sampling)
    reports = Randomizer(plan).randomize(np.zeros((3, 6)))
    assert coordinates_of(plan, reports).tolist() == [*range(6)] * 3


def test_the_coordinate_does_not_depend_on_the_data() -> None:
    plan = unprotected_plan(users=1, shape=50, coordinates=3, levels=2, noise_probability=0.5)
    low, high = (Randomizer(plan, source=SeededSource(4)).randomize(np.full((40, 50), x)) for x in (0.0, 1.0))
    assert low.cells.tolist() != high.cells.tolist()
    assert coordinates_of(plan, low).tolist() == coordinates_of(plan, high).tolist()


@given(
    shape=st.sampled_from([(), (1,), (3,), (2, 3, 4)]),
    users=st.integers(1, 5),
    levels=st.sampled_from([1, 2, 10, 999]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_without_dummy_reports_are_the_two_neighbouring_levels_of_the_right_entry(
    shape: tuple[int, ...], users: int, levels: int, seed: int, data: st.DataObject
) -> None:
    dimension = math.prod(shape)
    coordinates = data.draw(st.integers(1, dimension))
    sampling: Any = data.draw(st.sampled_from(["stratified", "uniform"]))
    plan = unprotected_plan(
        users=1, shape=shape, coordinates=coordinates, levels=levels, bounds=(-3.0, 5.0), sampling=sampling
    )
    arrays = np.random.default_rng(seed).uniform(-3, 5, (users, *shape))
    sent = Randomizer(plan, source=SeededSource(seed)).randomize(arrays)
    assert len(sent) == users * plan.reports == users * coordinates
    assert sent.plan_id == plan.id
    assert (sent.cells < plan.cells).all()
    rows = np.repeat(np.arange(users), coordinates)
    places = (arrays.reshape(users, dimension)[rows, coordinates_of(plan, sent)] + 3) / 8 * levels
    assert (np.abs(values_of(plan, sent) - places) < 1 + 1e-9).all()


def test_values_at_the_bounds_are_never_rounded_past_them() -> None:
    for levels in (1, 3, 7, 999, 32766):
        plan = unprotected_plan(users=1, shape=3, coordinates=3, levels=levels, bounds=(0.1, [0.3, 0.7, 1e9]))
        rows = np.broadcast_to([0.3, 0.7, 1e9], (500, 3))
        assert (values_of(plan, Randomizer(plan).randomize(rows)) == levels).all()
        assert (values_of(plan, Randomizer(plan).randomize(np.full((500, 3), 0.1))) == 0).all()


@pytest.mark.parametrize("coordinates", [1, 2])
@pytest.mark.parametrize(
    ("bounds", "value", "expected"),
    [
        ((16777217.0, 16777219.0), 16777216.0, 0),
        ((0.7, 0.7000001), 0.7, 0),
        ((1e10 + 500, 1e10 + 500.001), 1e10, 0),
        ((0.0, 0.1), 0.1, 10),
        ((0.09999999, 0.1), 0.1, 10),
    ],
)
def test_single_precision_data_at_a_rounded_bound_stays_on_the_levels(
    bounds: tuple[float, float], value: float, expected: int, coordinates: int
) -> None:
    """A report off the levels would tell the analyzer whose it is."""
    plan = unprotected_plan(users=1, shape=2, coordinates=coordinates, levels=10, bounds=bounds)
    reports = Randomizer(plan).randomize(np.full((50, 2), value, dtype=np.float32))
    assert set(values_of(plan, reports).tolist()) == {expected}
