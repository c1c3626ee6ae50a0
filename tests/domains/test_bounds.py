from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.refusals import refusal

from shufflesum.domains import Bounds, Dense, Span, Symmetric
from shufflesum.errors import ParameterError, PlanError

finite = st.floats(allow_nan=False, allow_infinity=False)
pairs = st.tuples(finite, finite).filter(lambda pair: 1e-150 <= pair[1] - pair[0] <= 1e150)


def through_json(bounds: Bounds) -> Bounds:
    return Bounds.from_json(json.loads(json.dumps(bounds.to_json())))


@given(pair=pairs, dimension=st.integers(1, 4))
def test_one_pair_holds_for_every_coordinate(pair: tuple[float, float], dimension: int) -> None:
    bounds = Bounds.of(pair, Dense((dimension,)))
    assert (bounds.lower, bounds.upper) == pair
    assert bounds.uniform
    np.testing.assert_array_equal(bounds.lower_array(dimension), [pair[0]] * dimension)
    np.testing.assert_array_equal(bounds.upper_array(dimension), [pair[1]] * dimension)
    assert through_json(bounds) == bounds


@given(each=st.lists(pairs, min_size=1, max_size=5))
def test_one_pair_per_coordinate_round_trips_exactly(each: list[tuple[float, float]]) -> None:
    lower, upper = (list(side) for side in zip(*each, strict=True))
    bounds = Bounds.of((lower, upper), Dense((len(each),)))
    assert bounds.lower_array(len(each)).tolist() == lower
    assert bounds.upper_array(len(each)).tolist() == upper
    assert bounds.uniform == (len(set(each)) == 1)
    again = through_json(bounds)
    assert again == bounds
    assert hash(again) == hash(bounds)
    assert json.dumps(again.to_json()) == json.dumps(bounds.to_json())


@given(low=finite, high=finite)
def test_a_pair_is_taken_exactly_when_its_width_is_usable(low: float, high: float) -> None:
    width = high - low
    if 1e-150 <= width <= 1e150:
        assert Bounds(low, high).upper == high
    else:
        with refusal("bad-bounds", error=ParameterError):
            Bounds(low, high)


@given(shape=hnp.array_shapes(min_dims=0, max_dims=3, max_side=3), data=st.data())
def test_whatever_broadcasts_to_the_shape_is_taken(shape: tuple[int, ...], data: st.DataObject) -> None:
    smaller = data.draw(hnp.broadcastable_shapes(shape, max_dims=len(shape)))
    if np.broadcast_shapes(smaller, shape) != shape:
        with refusal("bad-bounds", error=ParameterError):
            Bounds.of((np.zeros(smaller), 1.0), Dense(shape))
        return
    upper = 1.0 + np.arange(math.prod(smaller)).reshape(smaller)
    bounds = Bounds.of((0, upper), Dense(shape))
    expected = np.broadcast_to(upper, shape).ravel()
    np.testing.assert_array_equal(bounds.upper_array(expected.size), expected)


def test_equal_bounds_compare_equal_however_written() -> None:
    one = Bounds.of((0, 1), Dense((2,)))
    assert one == Bounds.of((-0.0, np.ones(2)), Dense((2,))) == Bounds((0.0, 0.0), (1.0, 1.0))
    assert one == Bounds.of(np.array([[0, 0], [1, 1]]), Dense((2,)))  # type: ignore[arg-type]
    assert json.dumps(Bounds(-0.0, 1.0).to_json()) == "[0.0, 1.0]"
    assert one != Bounds(0.0, 2.0)
    assert Bounds.of(one, Dense((7,))) is one


def test_symmetric_takes_a_symmetric_matrix_or_one_number_per_coordinate() -> None:
    upper = np.array([[1.0, 2.0], [2.0, 3.0]])
    assert Bounds.of((0, upper), Symmetric(2)) == Bounds.of((0, [1, 2, 3]), Symmetric(2))
    with refusal("bad-bounds", error=ParameterError):
        Bounds.of((0, [[1.0, 2.0], [5.0, 3.0]]), Symmetric(2))
    with refusal("bad-bounds", "2", error=ParameterError):
        Bounds.of((0, [1.0, 2.0]), Symmetric(2))


def test_span_takes_one_number_per_coefficient() -> None:
    span = Span([[2.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert Bounds.of(([-1, -2], 3), span).lower == (-1.0, -2.0)
    with refusal("bad-bounds", "3", "2 numbers", error=ParameterError):
        Bounds.of(([-1, -2, -3], 3), span)


@pytest.mark.parametrize(
    ("bounds", "refused"),
    [
        ((1, 1), ("bad-bounds", "(1.0, 1.0)")),
        ((2, 1), ("bad-bounds", "(2.0, 1.0)")),
        ((0, np.inf), ("bad-bounds", "bounds", "inf")),
        ((np.nan, 1), ("bad-bounds", "bounds", "nan")),
        ((-1e308, 1e308), ("bad-bounds", "1e-150 and 1e+150")),
        ((0, 1e-200), ("bad-bounds", "1e-200")),
        ((0, [[1, 1, 1], [1, 1, 0]]), ("bad-bounds", "(0.0, 0.0)", "entry [1, 2]")),
        ((0, [[1, np.nan, 1], [1, 1, 1]]), ("bad-bounds", "entry [0, 1]")),
        ((0, [1, 2]), ("bad-bounds", "(2,)", "(2, 3)")),
        (("0", "1"), ("not-numbers", "lower bound")),
        ((0, None), ("not-numbers", "upper bound")),
        ((0, 1j), ("not-numbers", "upper bound")),
        ((0, 10**400), ("not-numbers", "upper bound")),
        ((False, True), ("bad-bounds", "lower bound")),
        (5, ("bad-bounds", "(lo, hi)")),
        (None, ("bad-bounds", "(lo, hi)")),
        ((0, 1, 2), ("bad-bounds", "(lo, hi)")),
    ],
)
def test_bad_bounds_are_refused_with_place_and_values(bounds: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        Bounds.of(bounds, Dense((2, 3)))


def test_direct_construction_is_checked_too() -> None:
    with refusal("bad-bounds", "coordinate 1", error=ParameterError):
        Bounds((0.0, 2.0), (1.0, 2.0))
    with refusal("bad-bounds", error=ParameterError):
        Bounds((0.0, 2.0), 3.0)
    with refusal("bad-bounds", error=ParameterError):
        Bounds((), ())
    with refusal("bad-bounds", "2 pairs", "have 3", error=ParameterError):
        Bounds.of(Bounds((0.0, 1.0), (2.0, 2.0)), Dense((3,)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        [0.0],
        [0.0, 1.0, 2.0],
        [[0.0], 1.0],
        ["0", "1"],
        [[], []],
        [["0"], ["1"]],
        {"lower": 0},
        [True, 2],
        [1.0, 0.0],
        [0.0, math.nan],
    ],
)
def test_json_that_is_no_bounds_is_refused(value: object) -> None:
    with pytest.raises((PlanError, ParameterError)):
        Bounds.from_json(value)
