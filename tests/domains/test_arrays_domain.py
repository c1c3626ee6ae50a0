from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tests.refusals import refusal

from shufflesum.domains import Arrays, Bounds, Dense, Span, Symmetric, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
from shufflesum.errors import DataError, ParameterError, PlanError

anything = st.floats(allow_nan=True, allow_infinity=True)


def refuse(domain: Arrays, arrays: Any, first_row: int = 0) -> NoReturn:
    domain.refuse(domain.block(arrays, first_row).values, first_row)


@st.composite
def domains(draw: st.DrawFn) -> Arrays:
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=3))
    lower = draw(hnp.arrays(np.float64, shape, elements=st.floats(-1e6, 1e6)))
    width = draw(hnp.arrays(np.float64, shape, elements=st.floats(1e-3, 1e6)))
    return Arrays(shape, (lower, lower + width))


@given(domain=domains(), data=st.data())
def test_unit_coordinates_come_back_in_the_users_units_and_shape(domain: Arrays, data: st.DataObject) -> None:
    unit = data.draw(hnp.arrays(np.float64, domain.dimension, elements=st.floats(0, 1)))
    mean = domain.to_user_mean(unit)
    assert mean.shape == domain.shape
    scale = np.abs(domain.lower) + domain.width
    assert (np.abs((mean.ravel() - domain.lower) - unit * domain.width) <= 1e-15 * 4 * scale).all()
    variance = domain.to_user_variance(unit)
    assert variance.shape == domain.shape
    np.testing.assert_allclose(variance.ravel(), unit * domain.width**2, rtol=1e-12)


@given(domain=domains(), data=st.data())
def test_clipping_and_midpoints_leave_nothing_outside_and_never_touch_the_callers_data(
    domain: Arrays, data: st.DataObject
) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    elements = st.floats(width=32) if dtype is np.float32 else st.floats()
    arrays: NDArray[Any] = data.draw(hnp.arrays(dtype, (3, *domain.shape), elements=elements))
    before = arrays.copy()
    coordinates = domain.block(arrays, clip=True, missing="midpoint").values
    lower, upper = domain.limits(dtype)
    assert coordinates.dtype == lower.dtype == dtype
    assert coordinates.flags.c_contiguous
    assert ((lower <= coordinates) & (coordinates <= upper)).all()
    flat = before.reshape(3, -1)
    inside = (lower <= flat) & (flat <= upper)
    np.testing.assert_array_equal(coordinates[inside], flat[inside])
    np.testing.assert_array_equal(arrays, before)


@given(domain=domains(), data=st.data())
def test_refuse_names_the_first_value_outside(domain: Arrays, data: st.DataObject) -> None:
    arrays = data.draw(hnp.arrays(np.float64, (3, *domain.shape), elements=anything))
    lower, upper = domain.lower, domain.upper
    for row in range(3):
        for coordinate, value in enumerate(arrays[row].ravel()):
            if not lower[coordinate] <= value <= upper[coordinate]:
                with pytest.raises(DataError) as caught:
                    refuse(domain, arrays, first_row=10)
                expected = f"row {10 + row}, {domain.structure.describe(coordinate)}: the value "
                assert str(caught.value).startswith(expected)
                return
    with refusal("out-of-bounds", "rows 10", "to 12", error=DataError):
        refuse(domain, arrays, first_row=10)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_good_dense_data_is_not_copied(shape: tuple[int, ...], dtype: type) -> None:
    arrays: NDArray[Any] = np.full((4, *shape), 0.5, dtype=dtype)
    assert np.shares_memory(Arrays(shape, (0, 1)).block(arrays).values, arrays)


def test_views_and_memory_maps_are_accepted(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(4, 6)
    np.save(tmp_path / "rows.npy", values)
    domain = Arrays(3, (0, 5))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = np.minimum(values[:, ::2], 5)
    np.testing.assert_array_equal(domain.block(mapped[:, ::2], clip=True).values, expected)
    np.testing.assert_array_equal(domain.block(values.T[::2].T, clip=True).values, expected)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.5, ["the value is out of bounds", "[0.0, 1.0]", "clip=True", "bounds="]),
        (np.inf, ["infinite", "clip=True"]),
        (-np.inf, ["infinite", "clip=True"]),
        (np.nan, ["NaN", 'missing="midpoint"']),
    ],
)
def test_refusals_tell_the_cases_apart_and_name_the_knob(value: float, words: list[str]) -> None:
    arrays = np.zeros((5, 2, 3))
    arrays[3, 1, 2] = value
    with pytest.raises(DataError) as caught:
        refuse(Arrays((2, 3), (0, 1)), arrays, first_row=1000)
    for word in ["row 1003", "entry [1, 2]", *words]:
        assert word in str(caught.value)


def test_each_coordinate_has_its_own_bounds() -> None:
    domain = Arrays(3, ([0, 10, 20], [1, 12, 24]))
    assert domain.width.tolist() == [1.0, 2.0, 4.0]
    np.testing.assert_array_equal(domain.block([[5.0, 5.0, 5.0]], clip=True).values, [[1.0, 10.0, 20.0]])
    np.testing.assert_array_equal(domain.block([[np.nan] * 3], missing="midpoint").values, [[0.5, 11.0, 22.0]])
    with refusal("out-of-bounds", "coordinate 1", "5.0", "10.0", "12.0", error=DataError):
        refuse(domain, [[1.0, 5.0, 5.0]])


def test_a_missing_value_survives_clipping_and_is_refused() -> None:
    domain = Arrays(2, (0, 1))
    coordinates = domain.block([[7.0, np.nan]], clip=True).values
    with refusal("missing-value", "coordinate 1", error=DataError):
        domain.refuse(coordinates)


def test_the_midpoint_bias_is_the_missing_fraction_of_the_way_to_the_middle() -> None:
    domain = Arrays((), (0, 10))
    complete, fraction = 8.0, 0.25
    arrays = np.array([complete, complete, complete, np.nan])
    mean = domain.block(arrays, missing="midpoint").values.mean()
    assert mean == complete + fraction * (5.0 - complete)


def test_single_precision_data_at_a_decimal_bound_is_inside() -> None:
    domain = Arrays(1, (0.7, 0.8))
    data = np.array([[0.7], [0.8]], dtype=np.float32)
    lower, upper = domain.limits(np.float32)
    assert ((lower <= data) & (data <= upper)).all()
    exact = data.astype(np.float64)
    assert exact[0] < domain.lower
    assert exact[1] > domain.upper
    beyond = np.nextafter(data[1:], np.float32(1))
    with refusal("out-of-bounds", error=DataError):
        refuse(domain, beyond)


def test_bounds_beyond_single_precision_do_not_let_infinity_in() -> None:
    domain = Arrays(1, (-1e100, 1e100))
    with refusal("out-of-bounds", error=DataError):
        refuse(domain, np.array([[np.inf]], dtype=np.float32))
    assert np.isfinite(domain.block(np.array([[np.inf]], dtype=np.float32), clip=True).values).all()
    assert domain.block(np.array([[np.nan]], dtype=np.float32), missing="midpoint").values == 0.0


def test_unknown_policies_are_refused() -> None:
    with refusal("unknown-choice", "'refuse' or", "or 'midpoint'", error=ParameterError):
        Arrays(1, (0, 1)).check_options(clip=False, missing="zero")  # type: ignore[arg-type]
    with refusal("impossible-combination", error=ParameterError):
        Arrays(Span([[1.0]]), (0, 1)).check_options(clip=False, missing="midpoint")


def test_symmetric_matrices_take_part_with_each_pair_once() -> None:
    domain = Arrays(Symmetric(2), (0, [[1, 2], [2, 4]]))
    array = np.array([[1.0, np.nan], [np.nan, 9.0]])
    coordinates = domain.block(array[None], clip=True, missing="midpoint").values
    np.testing.assert_array_equal(coordinates, [[1.0, 1.0, 4.0]])
    mean = domain.to_user_mean(np.array([0.5, 0.5, np.nan]))
    np.testing.assert_array_equal(mean, [[0.5, 1.0], [1.0, np.nan]])
    np.testing.assert_array_equal(domain.to_user_variance(np.ones(3)), [[1.0, 4.0], [4.0, 16.0]])
    with refusal("out-of-bounds", "0", "1", "3.0", error=DataError):
        refuse(domain, [[[1.0, 3.0], [3.0, 1.0]]])


@given(data=st.data())
def test_span_coefficients_at_their_bounds_survive_rounding(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    vectors = np.random.default_rng(seed).normal(size=(3, 8))
    domain = Arrays(Span(vectors), ([0, -1, 2], [1, 1, 5]))
    unit = data.draw(hnp.arrays(np.float64, (4, 3), elements=st.sampled_from([0.0, 0.5, 1.0])))
    coefficients = domain.lower + unit * domain.width
    coordinates = domain.block(coefficients @ vectors).values
    assert ((domain.lower <= coordinates) & (coordinates <= domain.upper)).all()
    np.testing.assert_allclose(coordinates, coefficients, atol=1e-9)
    np.testing.assert_allclose(domain.to_user_mean(unit[0]), coefficients[0] @ vectors, atol=1e-9)


def test_span_coefficients_out_of_bounds_are_refused_or_clipped() -> None:
    domain = Arrays(Span([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), (0, 1))
    with refusal("out-of-bounds", "row 4", "coefficient 1", "vector 2", "1.01", error=DataError):
        refuse(domain, [[1.0, 1.01]], first_row=4)
    np.testing.assert_array_equal(domain.block([[1.0, 1.01]], clip=True).values, [[0.5, 1.0]])


@pytest.mark.long
def test_span_variance_is_what_simulation_finds() -> None:
    """Sample variances of 40,000 normal draws stray by 5.5 standard deviations with probability below 1e-6.

    Three entries, two sides: 6 * P[Z > 5.5] = 1.2e-7, and the sample variance's standard deviation is
    sqrt(2 / draws) of the variance. The twin forgets to square the weights and must be rejected.
    """
    span = Span([[1.0, 2.0, 0.0], [0.0, 3.0, 0.5]])
    domain = Arrays(span, ([0, 0], [2, 4]))
    unit_variance, draws = np.array([0.01, 0.02]), 40_000
    unit = np.random.default_rng(5).normal(size=(draws, 2)) * np.sqrt(unit_variance)
    observed = np.array([domain.to_user_mean(row) for row in unit]).var(axis=0)
    tolerance = 5.5 * math.sqrt(2 / draws)
    predicted = domain.to_user_variance(unit_variance)
    assert (np.abs(observed / predicted - 1) <= tolerance).all()
    twin = domain.structure.restore(domain.width**2 * unit_variance)
    assert not (np.abs(observed / twin - 1) <= tolerance).all()


@pytest.mark.parametrize(
    "domain",
    [
        Arrays((), (0.1, 0.3)),
        Arrays((2, 3), (np.zeros((2, 3)), 1 / np.arange(1.0, 4.0))),
        Arrays(Symmetric(3), (-1e-5, 1)),
        Arrays(Span([[0.1, 0.2], [0.1, 0.2], [1 / 3, 0.0]]), ([0.1, 0.2], [1 / 3, 2 / 3])),
    ],
)
def test_domains_round_trip_through_json_exactly(domain: Arrays) -> None:
    text = json.dumps(domain.to_json())
    again = domain_from_json(json.loads(text))
    assert again == domain
    assert hash(again) == hash(domain)
    assert json.dumps(again.to_json()) == text


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (None, ("malformed", "domain")),
        ({}, ("malformed", "domain")),
        ({"kind": "arrays", "structure": {"kind": "dense", "shape": [2]}}, ("malformed", "domain")),
        ({"structure": {"kind": "dense", "shape": [2]}, "bounds": [0, 1]}, ("malformed", "domain")),
        ({"kind": "sphere", "structure": {"kind": "dense", "shape": [2]}, "bounds": [0, 1]}, ("malformed", "domain")),
        (
            {"kind": "arrays", "structure": {"kind": "dense", "shape": [2]}, "bounds": [0, 1], "more": 1},
            ("malformed", "domain"),
        ),
        (
            {"kind": "arrays", "structure": {"kind": "dense", "shape": [0]}, "bounds": [0, 1]},
            ("out-of-range", "shape (0,)"),
        ),
        (
            {"kind": "arrays", "structure": {"kind": "dense", "shape": [2]}, "bounds": [1, 0]},
            ("bad-bounds", "(1.0, 0.0)"),
        ),
        (
            {"kind": "arrays", "structure": {"kind": "dense", "shape": [2]}, "bounds": [[0, 0, 0], [1, 2, 3]]},
            ("bad-bounds", "3 pairs"),
        ),
    ],
)
def test_json_that_is_no_domain_is_a_plan_error(value: object, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=PlanError):
        domain_from_json(value)


def test_neighbours_may_differ_in_every_coordinate() -> None:
    """Coordinates, not entries: what a structure makes equal or dependent is one."""
    for shape, dimension in (((2, 3), 6), (Symmetric(3), 6), (Span([[1.0, 2.0], [2.0, 4.0]]), 1)):
        for encoding in Arrays(shape, (0, 1)).encodings():
            assert encoding.sensitivity == Sensitivity((ChangedCells(dimension, dimension, paired=False),))


def test_structure_and_bounds_must_belong_together() -> None:
    with refusal("bad-bounds", "2 pairs", error=ParameterError):
        Arrays(Dense((3,)), Bounds((0.0, 0.0), (1.0, 2.0)))
