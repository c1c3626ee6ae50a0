from __future__ import annotations

import math
import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.chances import FALSE_ALARM, chi_square, report_law

from shufflesum import Plan, Randomizer, Span, Symmetric
from shufflesum.errors import DataError, ParameterError
from shufflesum.testing import SeededSource, unprotected_plan


def observed_values(plan: Plan, row: Any, users: int, seed: int) -> Any:
    """How often each value was reported for each coordinate, by users who all hold the same row."""
    table = np.zeros((plan.dimension, plan.levels + 1), dtype=np.int64)
    rows = np.broadcast_to(np.asarray(row, dtype=np.float64), (users, *plan.shape))
    for reports in Randomizer(plan, source=SeededSource(seed)).blocks(rows):
        np.add.at(table, (reports.coordinates, reports.values), 1)
    return table


@pytest.mark.parametrize(
    ("levels", "noise_probability"),
    [(1, 0.1), (2, 1 / 3), (3, 0.0123456789), (6, 0.7), (40, 0.5), (10, 1.0), (999, 0.9)],
)
@pytest.mark.parametrize("reports", [1, 3, 4])
def test_reports_follow_their_probability_table(levels: int, noise_probability: float, reports: int) -> None:
    """Two million reports, chi-square at false alarm 1e-6; a noise probability a tenth off is rejected."""
    row = [0.0, 0.137, 0.5, 1.0]
    plan = unprotected_plan(
        users=1, shape=4, reports=reports, levels=levels, noise_probability=noise_probability, sampling="uniform"
    )
    table = observed_values(plan, row, 2_000_000 // reports + 1, seed=levels * 10 + reports)
    assert table.sum() >= 2_000_000

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


def test_stratified_reports_take_one_coordinate_from_each_block() -> None:
    """Uniform inside each block and independent between blocks: chi-square at false alarm 1e-6."""
    plan = unprotected_plan(users=1, shape=(2, 4), reports=3)  # blocks 0-1, 2-4, 5-7
    assert plan.block_starts.tolist() == [0, 2, 5]
    reports = Randomizer(plan, source=SeededSource(2)).randomize(np.zeros((200_000, 2, 4)))
    first, second, third = reports.coordinates.reshape(-1, 3).astype(int).T
    joint = np.zeros((8, 8, 8))
    np.add.at(joint, (first, second, third), 1)
    law = np.zeros((8, 8, 8))
    law[:2, 2:5, 5:] = 1 / 18
    assert chi_square(joint, law) > FALSE_ALARM
    law[0] *= 1.05
    law[1] *= 0.95
    assert chi_square(joint, law) < FALSE_ALARM


@pytest.mark.parametrize("reports", [1, 2, 4])
def test_uniform_reports_take_every_subset_alike(reports: int) -> None:
    """All subsets, chi-square at false alarm 1e-6."""
    plan = unprotected_plan(users=1, shape=5, reports=reports, sampling="uniform")
    drawn = Randomizer(plan, source=SeededSource(3)).randomize(np.zeros((150_000, 5))).coordinates.reshape(-1, reports)
    subsets = list(combinations(range(5), reports))
    masks = (1 << drawn.astype(np.int64)).sum(axis=1)
    observed = np.array([np.count_nonzero(masks == sum(1 << c for c in subset)) for subset in subsets])
    assert observed.sum() == 150_000  # so no coordinate came twice
    assert chi_square(observed, np.full(len(subsets), 1 / len(subsets))) > FALSE_ALARM
    tilted = np.array([1.05 if 0 in subset else 1.0 for subset in subsets])
    assert chi_square(observed, tilted / tilted.sum()) < FALSE_ALARM


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_with_as_many_reports_as_coordinates_each_is_reported_once(sampling: Any) -> None:
    plan = unprotected_plan(users=1, shape=6, reports=6, sampling=sampling)
    reports = Randomizer(plan).randomize(np.zeros((3, 6)))
    assert reports.coordinates.tolist() == [*range(6)] * 3


def test_the_coordinate_does_not_depend_on_the_data() -> None:
    plan = unprotected_plan(users=1, shape=50, reports=3, levels=2, noise_probability=0.5)
    low, high = (Randomizer(plan, source=SeededSource(4)).randomize(np.full((40, 50), x)) for x in (0.0, 1.0))
    assert low.coordinates.tolist() == high.coordinates.tolist()


@given(
    shape=st.sampled_from([(), (1,), (3,), (2, 3, 4)]),
    users=st.integers(1, 5),
    levels=st.sampled_from([1, 2, 10, 999]),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_without_noise_reports_are_the_two_neighbouring_levels_of_the_right_entry(
    shape: tuple[int, ...], users: int, levels: int, seed: int, data: st.DataObject
) -> None:
    dimension = math.prod(shape)
    reports = data.draw(st.integers(1, dimension))
    sampling: Any = data.draw(st.sampled_from(["stratified", "uniform"]))
    plan = unprotected_plan(users=1, shape=shape, reports=reports, levels=levels, bounds=(-3.0, 5.0), sampling=sampling)
    arrays = np.random.default_rng(seed).uniform(-3, 5, (users, *shape))
    sent = Randomizer(plan, source=SeededSource(seed)).randomize(arrays)
    assert len(sent) == users * reports
    assert sent.plan_id == plan.id
    rows = np.repeat(np.arange(users), reports)
    places = (arrays.reshape(users, dimension)[rows, sent.coordinates] + 3) / 8 * levels
    assert (np.abs(sent.values - places) < 1 + 1e-9).all()
    assert (sent.values <= levels).all()


def test_values_at_the_bounds_are_never_rounded_past_them() -> None:
    for levels in (1, 3, 7, 999, 32766):
        plan = unprotected_plan(users=1, shape=3, reports=3, levels=levels, bounds=(0.1, [0.3, 0.7, 1e9]))
        rows = np.broadcast_to([0.3, 0.7, 1e9], (500, 3))
        assert (Randomizer(plan).randomize(rows).values == levels).all()
        assert (Randomizer(plan).randomize(np.full((500, 3), 0.1)).values == 0).all()


@pytest.mark.parametrize("reports", [1, 2])
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
    bounds: tuple[float, float], value: float, expected: int, reports: int
) -> None:
    """A report off the levels would tell the analyzer whose it is."""
    plan = unprotected_plan(users=1, shape=2, reports=reports, levels=10, bounds=bounds)
    rows = np.full((50, 2), value, dtype=np.float32)
    assert set(Randomizer(plan).randomize(rows).values.tolist()) == {expected}


def test_one_user_is_the_same_code_with_one_row() -> None:
    plan = unprotected_plan(users=1, shape=(2, 2), reports=4, levels=4)
    reports = Randomizer(plan).randomize(np.array([[[0.0, 0.25], [0.5, 1.0]]]))
    assert reports.values.tolist() == [0, 1, 2, 4]


def test_seeded_runs_repeat_and_default_runs_do_not() -> None:
    plan = unprotected_plan(users=1, shape=100, reports=10, levels=9, noise_probability=0.5)
    rows = np.random.default_rng(0).random((30, 100))
    seeded = [Randomizer(plan, source=SeededSource(s)).randomize(rows) for s in (1, 1, 2)]
    np.testing.assert_array_equal(seeded[0].coordinates, seeded[1].coordinates)
    np.testing.assert_array_equal(seeded[0].values, seeded[1].values)
    assert seeded[0].coordinates.tolist() != seeded[2].coordinates.tolist()
    np.random.seed(0)
    first = Randomizer(plan).randomize(rows)
    np.random.seed(0)
    second = Randomizer(plan).randomize(rows)
    assert first.coordinates.tolist() != second.coordinates.tolist()
    assert first.values.tolist() != second.values.tolist()


def test_a_pickled_randomizer_draws_anew() -> None:
    plan = unprotected_plan(users=1, shape=100, reports=10, levels=9, noise_probability=0.5)
    randomizer = Randomizer(plan)
    twin = pickle.loads(pickle.dumps(randomizer))
    rows = np.zeros((30, 100))
    assert twin.randomize(rows).plan_id == plan.id
    assert twin.randomize(rows).coordinates.tolist() != randomizer.randomize(rows).coordinates.tolist()


def test_blocks_hold_the_reports_of_all_rows_in_order() -> None:
    plan = unprotected_plan(users=1, shape=2, reports=2, levels=1000)
    rows = np.linspace(0, 1, 2 * 100_001).reshape(-1, 2)
    blocks = list(Randomizer(plan).blocks(rows))
    assert len(blocks) > 1
    values = np.concatenate([block.values for block in blocks])
    assert (np.abs(values - rows.reshape(-1) * 1000) < 1 + 1e-9).all()


def test_every_kind_of_real_numbers_and_layout_gives_the_same_reports() -> None:
    plan = unprotected_plan(users=1, shape=(2, 3), reports=6, levels=4, bounds=(0, 4))
    whole = np.arange(24).reshape(4, 2, 3) % 5
    expected = whole.reshape(-1).tolist()
    for dtype in (np.int8, np.uint64, np.float16, np.float32, np.float64, np.longdouble, ">f8", ">i2"):
        assert Randomizer(plan).randomize(whole.astype(dtype)).values.tolist() == expected
    assert Randomizer(plan).randomize(whole.tolist()).values.tolist() == expected
    assert Randomizer(plan).randomize(np.asfortranarray(whole.astype(float))).values.tolist() == expected
    assert Randomizer(plan).randomize(np.repeat(whole.astype(float), 2, axis=0)[::2]).values.tolist() == expected


@pytest.mark.parametrize("reports", [1, 6])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.nan, r"row 70000, entry \[1, 2\]: the value is NaN"),
        (np.inf, r"row 70000, entry \[1, 2\]: the value inf is infinite"),
        (-np.inf, r"row 70000, entry \[1, 2\]: the value -inf is infinite"),
        (1.0001, r"row 70000, entry \[1, 2\]: the value 1.0001 is out of bounds, allowed is \[0.0, 1.0\]"),
        (-1e-9, r"row 70000, entry \[1, 2\]: the value -1e-09 is out of bounds"),
    ],
)
def test_a_bad_value_is_named_with_its_row_and_entry_even_where_it_is_not_sampled(
    bad: float, message: str, reports: int
) -> None:
    plan = unprotected_plan(users=1, shape=(2, 3), reports=reports)
    rows = np.full((70_010, 2, 3), 0.5)
    rows[70_000, 1, 2] = bad
    with pytest.raises(DataError, match=message):
        Randomizer(plan).randomize(rows)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (np.zeros((5, 4)), r"shape \(5, 4\), but \(m, 3\) is expected"),
        (np.zeros(3), r"for a single user pass array\[None\]"),
        (np.zeros((0, 3)), "no rows"),
        ([[1.0, 2.0, 3.0], [1.0]], "not a rectangular array"),
        ([["a", "b", "c"]], "not real numbers"),
        (np.zeros((2, 3), dtype=complex), "not real numbers"),
        (np.zeros((2, 3), dtype=object), "not real numbers"),
        (np.ma.masked_array(np.zeros((2, 3)), mask=True), "masked array"),
    ],
)
def test_what_is_no_stack_of_arrays_is_refused(arrays: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Randomizer(unprotected_plan(users=1, shape=3)).randomize(arrays)


def test_clipping_and_midpoints_are_done_where_asked_for() -> None:
    plan = unprotected_plan(users=1, shape=4, reports=4, levels=2, bounds=(0, 2))
    row = np.array([[-np.inf, 7.0, np.nan, 2.0]])
    assert Randomizer(plan, clip=True, missing="midpoint").randomize(row).values.tolist() == [0, 2, 1, 2]
    with pytest.raises(DataError, match="NaN"):
        Randomizer(plan, clip=True).randomize(row)
    with pytest.raises(DataError, match="infinite"):
        Randomizer(plan, missing="midpoint").randomize(row)
    with pytest.raises(ParameterError, match="missing='zero'"):
        Randomizer(plan, missing="zero")  # type: ignore[arg-type]


def test_structures_report_their_own_coordinates() -> None:
    symmetric = unprotected_plan(users=1, shape=Symmetric(2), reports=3, levels=4)
    matrix = np.array([[[0.0, 0.25], [0.25, 1.0]]])
    assert Randomizer(symmetric).randomize(matrix).values.tolist() == [0, 1, 4]
    with pytest.raises(DataError, match=r"row 0: entries \[0, 1\]"):
        Randomizer(symmetric).randomize(matrix + np.array([[0, 0.1], [0, 0]]))
    span = unprotected_plan(users=1, shape=Span([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), reports=2, levels=4)
    assert Randomizer(span).randomize([[0.25, 1.0, 0.75]]).values.tolist() == [1, 3]
    with pytest.raises(DataError, match="outside the span"):
        Randomizer(span).randomize([[1.0, 0.0, 0.0]])
