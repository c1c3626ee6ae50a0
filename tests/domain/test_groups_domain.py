"""A group and an array each: both checked as by themselves, rows counted together."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.refusals import refusal

from shufflesum.domain import Bounds, Box, Groups, Labels, Span, Symmetric, TwoGroups, domain_from_json
from shufflesum.errors import DataError, ParameterError, PlanError

ARRAYS = np.array([[0.5, 1.0], [0.0, 0.25], [1.0, 1.0]])


@pytest.mark.parametrize(
    "groups",
    [
        ["y", "x", "y"],
        np.array(["y", "x", "y"]),
        pd.Series(["y", "x", "y"], dtype="category"),
        pl.Series(["y", "x", "y"]),
        pa.array(["y", "x", "y"]).dictionary_encode(),
    ],
    ids=lambda column: type(column).__module__,
)
@pytest.mark.parametrize(
    "arrays",
    [ARRAYS, ARRAYS.tolist(), pd.DataFrame(ARRAYS, columns=["a", "b"]), pl.DataFrame(ARRAYS, schema=["a", "b"])],
    ids=lambda arrays: type(arrays).__module__,
)
def test_groups_and_arrays_come_in_any_kind(groups: Any, arrays: Any) -> None:
    domain = Groups(["x", "y"], 2)
    rows = domain.rows((groups, arrays))
    assert len(rows) == 3
    grouped = domain.prepare(rows)
    assert grouped.groups.dtype == np.uint32
    assert grouped.groups.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(grouped.coordinates, ARRAYS)
    part = domain.prepare(rows[1:])
    assert part.groups.tolist() == [0, 1]
    np.testing.assert_array_equal(part.coordinates, ARRAYS[1:])


def test_arrays_are_not_copied() -> None:
    numbers = np.array([0, 1, 1])
    rows = Groups(2, 2).rows((numbers, ARRAYS))
    assert rows.labels is numbers
    assert rows.arrays is ARRAYS
    assert np.shares_memory(Groups(2, 2).prepare(rows).coordinates, ARRAYS)


def test_one_number_each() -> None:
    domain = Groups(["x", "y"], (), bounds=(0, 100))
    assert domain.shape == (2,)
    assert domain.prepare((["x", "y"], [3, 100])).coordinates.tolist() == [[3.0], [100.0]]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), Symmetric(3), Span(np.eye(4)[:2])], ids=str)
def test_groups_come_back_from_json(shape: Any) -> None:
    for labels in (Labels(4), Labels(["x", 7, True])):
        domain = Groups(labels, shape, (-1, 2))
        assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
        assert domain.shape == (len(domain.labels), *domain.box.shape)
        assert domain.dimension == len(domain.labels) * domain.box.dimension
        assert domain.neighbours == TwoGroups(len(domain.labels), domain.box.dimension)
        assert domain.names == domain.labels.texts


def test_a_curators_error_is_that_of_the_means_of_equally_large_groups() -> None:
    domain = Groups(3, 2, ([0, 0], [1, 8]))
    assert domain.curator_weights == pytest.approx((27 * 2 * 81, 27 * 4 * 125))
    assert domain.box.curator_weights == pytest.approx((81, 125))


def test_bounds_can_be_put_in_afterwards() -> None:
    bare = Groups(["x", "y"], 2, columns=["a", "b"])
    assert bare.box == Box.of(2, (0, 1), ["a", "b"])
    bounded = bare.with_bounds(([0, 0], [1, 5]))
    assert bounded == Groups(["x", "y"], 2, ([0, 0], [1, 5]), columns=["a", "b"])
    assert bounded.with_bounds(Bounds(0, 1)) == bare
    with refusal("bad-bounds", error=ParameterError):
        bare.with_bounds((1, 0))


def test_named_columns_are_checked() -> None:
    domain = Groups(["x", "y"], 2, columns=["a", "b"])
    with refusal("other-columns", "['b', 'a']", "['a', 'b']", error=DataError):
        domain.rows((["x"], pd.DataFrame({"b": [0.1], "a": [0.2]})))


def test_refusals_name_the_row() -> None:
    domain = Groups(["x", "y"], 2)
    with refusal("unknown-label", "row 21", "'z'", "public", error=DataError):
        domain.prepare((["x", "z", "y"], ARRAYS), 20)
    with refusal("missing-value", "row 22", error=DataError):
        domain.prepare((["x", "x", None], ARRAYS), 20)
    with refusal("missing-value", "row 22", error=DataError):
        domain.prepare((["x", "x", None], ARRAYS), 20, missing="midpoint")
    with refusal("unknown-label", "row 20", "5", error=DataError):
        Groups(2, 2).prepare(([5, 0, 1], ARRAYS), 20)


def test_arrays_are_prepared_as_in_a_box() -> None:
    domain = Groups(["x", "y"], 2)
    wild = np.array([[np.nan, 3.0]])
    assert domain.prepare((["x"], wild), clip=True, missing="midpoint").coordinates.tolist() == [[0.5, 1.0]]
    grouped = domain.prepare((["x"], np.array([[0.0, 3.0]])))
    with refusal("out-of-bounds", "row 4", error=DataError):
        domain.box.refuse(grouped.coordinates, 4)
    with refusal("impossible-combination", error=ParameterError):
        Groups(2, Span(np.eye(2))).check_options(clip=False, missing="midpoint")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (ARRAYS, "wrong-type"),
        ((["x", "y"], ARRAYS, 3), "wrong-type"),
        ((["x", "y"], ARRAYS), "wrong-shape"),
        ((["x", "y", "x"], ARRAYS[:, :1]), "wrong-shape"),
        (([], ARRAYS), "no-rows"),
        ((np.array([[0, 1, 1]]), ARRAYS), "wrong-shape"),
    ],
)
def test_a_label_and_an_array_are_expected_for_each_user(values: Any, problem: str) -> None:
    with refusal(problem, error=DataError):
        Groups(["x", "y"], 2).rows(values)


@pytest.mark.parametrize(
    ("labels", "shape", "problem"),
    [
        (1, 2, "out-of-range"),
        (["x"], 2, "out-of-range"),
        (["x", "x"], 2, "conflicting-arguments"),
        (2, 0, "out-of-range"),
    ],
)
def test_what_makes_no_groups_is_refused(labels: Any, shape: Any, problem: str) -> None:
    with refusal(problem, error=ParameterError):
        Groups(labels, shape)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "groups", "labels": 3}, "malformed"),
        ({"kind": "groups", "labels": 3, "box": 3}, "malformed"),
        ({"kind": "groups", "labels": 3, "box": Groups(2, 2).to_json()}, "malformed"),
        ({"kind": "groups", "labels": 3, "box": Box.of(2, (0, 1)).to_json(), "more": 1}, "malformed"),
        ({"kind": "groups", "labels": 1, "box": Box.of(2, (0, 1)).to_json()}, "out-of-range"),
    ],
)
def test_other_json_is_refused(value: object, problem: str) -> None:
    with refusal(problem, error=PlanError):
        domain_from_json(value)
