from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from tests.plan_builders import coordinates_of, values_of
from tests.refusals import refusal

from shufflesum import Randomizer, Span, Symmetric
from shufflesum.errors import DataError, ParameterError
from shufflesum.testing import SeededSource, unprotected_plan


def test_one_user_is_the_same_code_with_one_row() -> None:
    plan = unprotected_plan(users=1, shape=(2, 2), coordinates=4, levels=4)
    reports = Randomizer(plan).randomize(np.array([[[0.0, 0.25], [0.5, 1.0]]]))
    assert values_of(plan, reports).tolist() == [0, 1, 2, 4]


def test_seeded_runs_repeat_and_default_runs_do_not() -> None:
    plan = unprotected_plan(users=1, shape=100, coordinates=10, levels=9, noise_probability=0.5)
    rows = np.random.default_rng(0).random((30, 100))
    seeded = [Randomizer(plan, source=SeededSource(s)).randomize(rows) for s in (1, 1, 2)]
    np.testing.assert_array_equal(seeded[0].cells, seeded[1].cells)
    assert seeded[0].cells.tolist() != seeded[2].cells.tolist()
    np.random.seed(0)
    first = Randomizer(plan).randomize(rows)
    np.random.seed(0)
    second = Randomizer(plan).randomize(rows)
    assert coordinates_of(plan, first).tolist() != coordinates_of(plan, second).tolist()
    assert values_of(plan, first).tolist() != values_of(plan, second).tolist()


def test_a_pickled_randomizer_draws_anew() -> None:
    plan = unprotected_plan(users=1, shape=100, coordinates=10, levels=9, noise_probability=0.5)
    randomizer = Randomizer(plan)
    twin = pickle.loads(pickle.dumps(randomizer))
    rows = np.zeros((30, 100))
    assert twin.randomize(rows).plan_id == plan.id
    assert twin.randomize(rows).cells.tolist() != randomizer.randomize(rows).cells.tolist()


def test_blocks_hold_the_reports_of_all_rows_in_order() -> None:
    plan = unprotected_plan(users=1, shape=2, coordinates=2, levels=1000)
    rows = np.linspace(0, 1, 2 * 100_001).reshape(-1, 2)
    blocks = list(Randomizer(plan).blocks(rows))
    assert len(blocks) > 1
    values = np.concatenate([values_of(plan, block) for block in blocks])
    assert (np.abs(values - rows.reshape(-1) * 1000) < 1 + 1e-9).all()


def test_every_kind_of_real_numbers_and_layout_gives_the_same_reports() -> None:
    plan = unprotected_plan(users=1, shape=(2, 3), coordinates=6, levels=4, bounds=(0, 4))
    whole = np.arange(24).reshape(4, 2, 3) % 5
    expected = whole.reshape(-1).tolist()
    for dtype in (np.int8, np.uint64, np.float16, np.float32, np.float64, np.longdouble, ">f8", ">i2"):
        assert values_of(plan, Randomizer(plan).randomize(whole.astype(dtype))).tolist() == expected
    layouts = (whole.tolist(), np.asfortranarray(whole.astype(float)), np.repeat(whole.astype(float), 2, axis=0)[::2])
    for layout in layouts:
        assert values_of(plan, Randomizer(plan).randomize(layout)).tolist() == expected


@pytest.mark.parametrize("coordinates", [1, 6])
@pytest.mark.parametrize(
    ("bad", "refused"),
    [
        (np.nan, ("missing-value", "row 70000", "entry [1, 2]")),
        (np.inf, ("out-of-bounds", "row 70000", "entry [1, 2]", "inf")),
        (-np.inf, ("out-of-bounds", "row 70000", "entry [1, 2]", "-inf")),
        (1.0001, ("out-of-bounds", "row 70000", "entry [1, 2]", "1.0001", "[0.0, 1.0]")),
        (-1e-9, ("out-of-bounds", "row 70000", "entry [1, 2]", "-1e-09")),
    ],
)
def test_a_bad_value_is_named_with_its_row_and_entry_even_where_it_is_not_sampled(
    bad: float, refused: tuple[str, ...], coordinates: int
) -> None:
    plan = unprotected_plan(users=1, shape=(2, 3), coordinates=coordinates)
    rows = np.full((70_010, 2, 3), 0.5)
    rows[70_000, 1, 2] = bad
    with refusal(*refused, error=DataError):
        Randomizer(plan).randomize(rows)


@pytest.mark.parametrize(
    ("arrays", "refused"),
    [
        (np.zeros((5, 4)), ("wrong-shape", "(5, 4)", "(m, 3)")),
        (np.zeros(3), ("wrong-shape", "array[None]")),
        (np.zeros((0, 3)), ("no-rows",)),
        ([[1.0, 2.0, 3.0], [1.0]], ("not-numbers",)),
        ([["a", "b", "c"]], ("not-numbers",)),
        (np.zeros((2, 3), dtype=complex), ("not-numbers",)),
        (np.zeros((2, 3), dtype=object), ("not-numbers",)),
        (np.ma.masked_array(np.zeros((2, 3)), mask=True), ("not-numbers", "values.filled(np.nan)")),
    ],
)
def test_what_is_no_stack_of_arrays_is_refused(arrays: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=DataError):
        Randomizer(unprotected_plan(users=1, shape=3)).randomize(arrays)


def test_clipping_and_midpoints_are_done_where_asked_for() -> None:
    plan = unprotected_plan(users=1, shape=4, coordinates=4, levels=2, bounds=(0, 2))
    row = np.array([[-np.inf, 7.0, np.nan, 2.0]])
    reports = Randomizer(plan, clip=True, missing="midpoint").randomize(row)
    assert values_of(plan, reports).tolist() == [0, 2, 1, 2]
    with refusal("missing-value", error=DataError):
        Randomizer(plan, clip=True).randomize(row)
    with refusal("out-of-bounds", error=DataError):
        Randomizer(plan, missing="midpoint").randomize(row)
    with refusal("unknown-choice", "missing=", "'zero'", error=ParameterError):
        Randomizer(plan, missing="zero")  # type: ignore[arg-type]


def test_structures_report_their_own_coordinates() -> None:
    symmetric = unprotected_plan(users=1, shape=Symmetric(2), coordinates=3, levels=4)
    matrix = np.array([[[0.0, 0.25], [0.25, 1.0]]])
    assert values_of(symmetric, Randomizer(symmetric).randomize(matrix)).tolist() == [0, 1, 4]
    with refusal("not-symmetric", "row 0", "1", error=DataError):
        Randomizer(symmetric).randomize(matrix + np.array([[0, 0.1], [0, 0]]))
    span = unprotected_plan(users=1, shape=Span([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), coordinates=2, levels=4)
    assert values_of(span, Randomizer(span).randomize([[0.25, 1.0, 0.75]])).tolist() == [1, 3]
    with refusal("outside-span", error=DataError):
        Randomizer(span).randomize([[1.0, 0.0, 0.0]])
