from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from tests.refusals import refusal

from shufflesum.domains import Dense, Span, Structure, Symmetric, structure_of
from shufflesum.domains.structure import structure_from_json
from shufflesum.errors import DataError, ParameterError, PlanError

SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3, 4)]
shapes = hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
finite = st.floats(-1e6, 1e6)


def through_json(structure: Structure) -> Structure:
    return structure_from_json(json.loads(json.dumps(structure.to_json())))


@st.composite
def spans(draw: st.DrawFn) -> tuple[Span, int, NDArray[np.float64]]:
    """A spanning set of known rank: a unit triangle and integer combinations of its rows."""
    shape = draw(shapes)
    entries = math.prod(shape)
    rank = draw(st.integers(1, min(entries, 4)))
    independent = np.eye(rank, entries) + np.triu(
        draw(hnp.arrays(np.float64, (rank, entries), elements=st.integers(-2, 2))), 1
    )
    extra = draw(st.integers(0, 3))
    mixing = draw(hnp.arrays(np.float64, (extra, rank), elements=st.integers(-2, 2)))
    order = draw(st.permutations(range(rank + extra)))
    vectors = np.concatenate([independent, mixing @ independent])[order].reshape(rank + extra, *shape)
    return Span(vectors), rank, vectors


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_reads_contiguous_floats_without_copying(shape: tuple[int, ...], dtype: type) -> None:
    arrays: NDArray[Any] = np.arange(5 * math.prod(shape), dtype=dtype).reshape(5, *shape)
    coordinates = Dense(shape).coordinates(arrays)
    assert coordinates.shape == (5, Dense(shape).dimension)
    assert coordinates.dtype == dtype
    assert np.shares_memory(coordinates, arrays)
    np.testing.assert_array_equal(Dense(shape).restore(coordinates[2].astype(np.float64)), arrays[2])


@given(shape=shapes, data=st.data())
def test_dense_round_trips_any_shape(shape: tuple[int, ...], data: st.DataObject) -> None:
    arrays = data.draw(hnp.arrays(np.float64, (2, *shape), elements=finite))
    structure = structure_of(shape)
    restored = structure.restore(structure.coordinates(arrays)[1])
    assert restored.shape == shape
    np.testing.assert_array_equal(restored, arrays[1])
    assert through_json(structure) == structure


@pytest.mark.parametrize(
    "arrays",
    [
        np.arange(6).reshape(3, 2),
        np.arange(6, dtype=np.uint8).reshape(3, 2),
        np.arange(6, dtype=">f4").reshape(3, 2),
        np.arange(6, dtype=np.float16).reshape(3, 2),
        np.arange(6, dtype=np.longdouble).reshape(3, 2),
        np.arange(6.0).reshape(2, 3)[::-1].T[:, ::-1],
        np.frombuffer(b"x" + np.arange(6.0).tobytes(), np.float64, offset=1).reshape(3, 2),
        [[True, False]],
        [[0, 1.5]],
    ],
)
def test_other_real_layouts_become_native_aligned_contiguous_floats(arrays: Any) -> None:
    coordinates = Dense((2,)).coordinates(arrays)
    assert coordinates.dtype in (np.float32, np.float64)
    assert coordinates.dtype.isnative
    assert coordinates.flags.c_contiguous
    assert coordinates.flags.aligned
    np.testing.assert_array_equal(coordinates, np.asarray(arrays, dtype=np.float64))


def test_a_memory_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(12.0, dtype=np.float32).reshape(4, 3))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    coordinates = Dense((3,)).coordinates(rows)
    assert np.shares_memory(coordinates, rows)
    assert type(coordinates) is np.ndarray


@pytest.mark.parametrize(
    "arrays",
    [
        np.array([["a", "b"]]),
        np.array([[1 + 2j, 0]]),
        np.array([[1, None]], dtype=object),
        [[1.0], [2.0, 3.0]],
        np.ma.masked_invalid([[np.nan, 1.0]]),
        np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[D]"),
    ],
)
def test_what_is_not_real_numbers_is_refused(arrays: Any) -> None:
    with refusal("not-numbers", error=DataError):
        Dense((2,)).coordinates(arrays)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_users_array_gets_a_hint(shape: tuple[int, ...]) -> None:
    with refusal("wrong-shape", error=DataError):
        Dense(shape).coordinates(np.zeros(shape))
    assert Dense(shape).coordinates(np.zeros(shape)[None]).shape == (1, Dense(shape).dimension)


def test_a_wrong_shape_says_what_came_and_what_is_expected() -> None:
    with refusal("wrong-shape", "5", "3", "2", error=DataError) as caught:
        Dense((2, 3)).coordinates(np.zeros((5, 3, 2)))
    assert "[None]" not in str(caught.value)
    assert Dense(()).coordinates(np.zeros((5, 1))).shape == (5, 1)  # one number for each user, with one axis or two
    with refusal("no-rows", "0", "3", error=DataError):
        Dense((3,)).coordinates(np.zeros((0, 3)))


def test_places_are_named_as_the_user_sees_them() -> None:
    assert Dense(()).describe(0) == "the value"
    assert Dense((9,)).describe(7) == "coordinate 7"
    assert Dense((3, 4)).describe(11) == "entry [2, 3]"
    assert Symmetric(3).describe(4) == "entry [1, 2]"
    assert Span([[1, 0], [0, 1]]).describe(1) == "coefficient 1"
    assert Span([[1.0, 0.0], [0.5, 0.0], [0.0, 1.0]]).describe(1) == "coefficient 1 (of vector 2)"


@pytest.mark.parametrize(
    ("problem", "shapes"),
    [
        ("out-of-range", [0, -1, (2, 0)]),
        ("wrong-type", [True, "3", 2.0, None, (2, 1.5)]),
        ("too-many-cells", [(2**16, 2**15)]),
    ],
)
def test_shapes_that_mean_nothing_are_refused(problem: str, shapes: list[Any]) -> None:
    for shape in shapes:
        with refusal(problem, f"shape {shape!r}", error=ParameterError):
            structure_of(shape)


def test_structure_of_takes_what_plan_takes() -> None:
    symmetric = Symmetric(3)
    assert structure_of(5) == structure_of(np.int64(5)) == structure_of([5]) == Dense((5,))  # type: ignore[arg-type]
    assert structure_of(()) == Dense(())
    assert structure_of(symmetric) is symmetric


@given(size=st.integers(1, 6), data=st.data())
def test_symmetric_matrices_round_trip(size: int, data: st.DataObject) -> None:
    square = data.draw(hnp.arrays(np.float64, (3, size, size), elements=finite))
    arrays = square + square.transpose(0, 2, 1)
    structure = Symmetric(size)
    coordinates = structure.coordinates(arrays)
    assert coordinates.shape == (3, size * (size + 1) // 2)
    assert coordinates.flags.c_contiguous
    for row, array in zip(coordinates, arrays, strict=True):
        np.testing.assert_array_equal(structure.restore(row), array)
        np.testing.assert_array_equal(structure.restore_variance(row), array)
    assert through_json(structure) == structure


def test_an_asymmetric_matrix_is_refused_with_row_and_pair() -> None:
    arrays = np.ones((3, 4, 4))
    arrays[1, 3, 2] = 1.01
    with refusal("not-symmetric", "row 101", "2", "3", "1.0 and", "1.01", error=DataError):
        Symmetric(4).coordinates(arrays, first_row=100)


@pytest.mark.parametrize(
    ("mirrored", "accepted"),
    [
        ((1.0, 1.0 + 1e-7), True),
        ((1.0, 1.0 + 1e-5), False),
        ((0.0, 1e-12), False),
        ((np.nan, np.nan), True),
        ((np.nan, 1.0), False),
        ((np.inf, np.inf), True),
        ((np.inf, 1.0), False),
        ((np.inf, -np.inf), False),
        ((1e308, -1e308), False),
    ],
)
def test_symmetry_allows_rounding_and_nothing_else(mirrored: tuple[float, float], accepted: bool) -> None:
    matrix = np.eye(2)
    matrix[0, 1], matrix[1, 0] = mirrored
    if accepted:
        np.testing.assert_array_equal(Symmetric(2).coordinates(matrix[None])[0, 1], mirrored[0])
    else:
        with refusal("not-symmetric", error=DataError):
            Symmetric(2).coordinates(matrix[None])


@pytest.mark.parametrize("size", [0, True, 2.0, (3, 4), 2**17])
def test_symmetric_sizes_that_mean_nothing_are_refused(size: Any) -> None:
    with pytest.raises(ParameterError):
        Symmetric(size)


@given(drawn=spans(), data=st.data())
def test_span_reduces_to_its_rank_and_round_trips(
    drawn: tuple[Span, int, NDArray[np.float64]], data: st.DataObject
) -> None:
    span, rank, vectors = drawn
    assert span.dimension == rank == len(span.kept)
    assert list(span.kept) == sorted(span.kept)
    np.testing.assert_array_equal(span.vectors, vectors[list(span.kept)])
    weights = data.draw(hnp.arrays(np.float64, (2, len(vectors)), elements=st.floats(-10, 10, width=16)))
    arrays = np.tensordot(weights, vectors, axes=1)
    coordinates = span.coordinates(arrays)
    assert coordinates.flags.c_contiguous
    for row, array in zip(coordinates, arrays, strict=True):
        np.testing.assert_allclose(span.restore(row), array, atol=1e-9)
    again = through_json(span)
    assert again == span
    assert hash(again) == hash(span)
    assert again.to_json() == span.to_json()
    np.testing.assert_array_equal(again.coordinates(arrays), coordinates)


@pytest.mark.parametrize("scale", [1e-80, 1e80])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_span_coefficients_do_not_depend_on_units(scale: float, size: float) -> None:
    span = Span(scale * np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]))
    arrays = size * np.array([[2.0, 7.0, 3.0]])
    np.testing.assert_allclose(span.coordinates(arrays) * scale, [[2 * size, 3 * size]], rtol=1e-9)
    with refusal("outside-span", error=DataError):
        span.coordinates(size * np.array([[2.0, 7.0, 3.1]]))


def test_span_refuses_an_array_outside_and_says_how_far() -> None:
    span = Span([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    arrays = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    with refusal("outside-span", "row 8", "residual of 0.8", error=DataError):
        span.coordinates(arrays, first_row=7)
    arrays[1] = [3.0, 0.0, 1e-7]
    assert span.coordinates(arrays).shape == (2, 2)
    np.testing.assert_array_equal(span.coordinates(np.zeros((1, 3))), [[0.0, 0.0]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_span_refuses_missing_and_infinite_entries(value: float) -> None:
    arrays = np.zeros((2, 2, 2))
    arrays[1, 0, 1] = value
    with refusal("missing-value", "row 1", "0", error=DataError):
        Span(np.eye(4).reshape(4, 2, 2)).coordinates(arrays)


@pytest.mark.parametrize(
    ("vectors", "refused"),
    [
        ([], ("bad-span", "(r, *shape)")),
        (3.0, ("bad-span", "(r, *shape)")),
        (np.zeros((2, 0)), ("bad-span", "(r, *shape)")),
        (np.zeros((2, 3)), ("bad-span", "1e-100 to 1e+100")),
        ([[1.0, np.nan]], ("bad-span", "vector 0")),
        ([[1.0, 2.0], [np.inf, 0.0]], ("bad-span", "vector 1")),
        ([[1e200, 0.0]], ("bad-span", "1e+200")),
        ([[1.0, 0.0], [1.0, 1e-9]], ("bad-span", "2e+09", "1e+08")),
        ([["a"]], ("not-numbers",)),
        ([[1.0], [2.0, 3.0]], ("not-numbers",)),
    ],
)
def test_span_refuses_sets_that_span_nothing_reliable(vectors: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        Span(vectors)


def test_span_drops_what_is_dependent_up_to_rounding() -> None:
    generator = np.random.default_rng(3)
    independent = generator.normal(size=(6, 20))
    vectors = np.concatenate([independent, generator.normal(size=(30, 6)) @ independent])
    assert Span(vectors).dimension == np.linalg.matrix_rank(vectors) == 6
    assert Span([[1.0, 0.0], [1.0, 1e-7]]).dimension == 2
    assert Span([[1.0, 0.0], [1.0, 1e-11]]).dimension == 1


def test_span_keeps_the_earliest_of_equally_long_vectors() -> None:
    pauli = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) / np.sqrt(2)
    assert Span(pauli).kept == (0, 1)


def test_span_is_a_value() -> None:
    vectors = np.array([[1.0, -0.0], [0.0, 2.0]])
    span, twin = Span(vectors), Span(np.abs(vectors))
    assert span == twin
    assert json.dumps(span.to_json()) == json.dumps(twin.to_json())
    assert span != Span([[1.0, 0.0], [0.0, 3.0]])
    assert span != Span(vectors[:, None])
    assert pickle.loads(pickle.dumps(span)) == copy.deepcopy(span) == span
    vectors[0] = 7.0
    np.testing.assert_array_equal(span.vectors, [[1.0, 0.0], [0.0, 2.0]])
    with pytest.raises(ValueError, match="read-only"):
        span.vectors[0] = 7.0
    assert "2 independent vectors" in repr(span)


def test_span_variances_go_through_the_squared_weights() -> None:
    span = Span([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    variances = np.array([0.5, 0.25])
    expected = [0.5, 4 * 0.5 + 9 * 0.25, 0.25]
    np.testing.assert_allclose(span.restore_variance(variances), expected)
    covariance = span.vectors.T @ np.diag(variances) @ span.vectors
    np.testing.assert_allclose(span.restore_variance(variances), np.diag(covariance))


def test_span_spreads_nan_only_where_it_matters() -> None:
    span = Span([[1.0, 2.0, 0.0], [0.0, 3.0, 1.0]])
    for restore in (span.restore, span.restore_variance):
        assert np.isnan(restore(np.array([np.nan, 1.0]))).tolist() == [True, True, False]
        assert np.isnan(restore(np.array([1.0, np.nan]))).tolist() == [False, True, True]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"kind": "dense"},
        {"kind": "dense", "shape": 3},
        {"kind": "dense", "shape": [3], "size": 3},
        {"kind": "dense", "shape": [3.0]},
        {"kind": "dense", "shape": [True]},
        {"kind": "symmetric", "size": 2.0},
        {"kind": "symmetric", "size": True},
        {"kind": "cube", "size": 2},
        {"kind": "span", "shape": [2], "kept": [0], "vectors": []},
        {"kind": "span", "shape": [2], "kept": [0], "vectors": [[1.0]]},
        {"kind": "span", "shape": [2], "kept": [0], "vectors": [["1", "2"]]},
        {"kind": "span", "shape": [2], "kept": [-1], "vectors": [[1.0, 2.0]]},
        {"kind": "span", "shape": [2], "kept": [True], "vectors": [[1.0, 2.0]]},
        {"kind": "span", "shape": [2], "kept": [1, 0], "vectors": [[1.0, 2.0], [0.0, 1.0]]},
        {"kind": "span", "shape": [2], "kept": [0, 0], "vectors": [[1.0, 2.0], [0.0, 1.0]]},
        {"kind": "span", "shape": [2], "kept": [0, 1], "vectors": [[1.0, 2.0], [2.0, 4.0]]},
    ],
)
def test_json_that_is_no_structure_is_refused(value: object) -> None:
    with pytest.raises((PlanError, ParameterError)):
        structure_from_json(value)
