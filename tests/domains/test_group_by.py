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

from shufflesum.domains import Arrays, Bounds, GroupBy, Labels, Span, Symmetric, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
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
    domain = GroupBy(["x", "y"], 2)
    rows = domain.rows((groups, arrays))
    assert len(rows) == 3
    grouped = domain.block(rows)
    assert grouped.groups.dtype == np.uint32
    assert grouped.groups.tolist() == [1, 0, 1]
    np.testing.assert_array_equal(grouped.numbers.values, ARRAYS)
    part = domain.block(rows[1:])
    assert part.groups.tolist() == [0, 1]
    np.testing.assert_array_equal(part.numbers.values, ARRAYS[1:])


def test_arrays_are_not_copied() -> None:
    numbers = np.array([0, 1, 1])
    rows = GroupBy(2, 2).rows((numbers, ARRAYS))
    assert rows.labels is numbers
    assert rows.arrays is ARRAYS
    assert np.shares_memory(GroupBy(2, 2).block(rows).numbers.values, ARRAYS)


def test_one_number_each() -> None:
    domain = GroupBy(["x", "y"], Arrays((), bounds=(0, 100)))
    assert domain.shape == (2,)
    assert domain.block((["x", "y"], [3, 100])).numbers.values.tolist() == [[3.0], [100.0]]


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), Symmetric(3), Span(np.eye(4)[:2])], ids=str)
def test_groups_come_back_from_json(shape: Any) -> None:
    for labels in (Labels(4), Labels(["x", 7, True])):
        domain = GroupBy(labels, Arrays(shape, (-1, 2)))
        assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
        assert domain.shape == (len(domain.labels), *domain.values.shape)
        assert domain.dimension == len(domain.labels) * domain.values.dimension
        groups, size = len(domain.labels), domain.values.dimension
        (encoding,) = domain.encodings()
        digit = ChangedCells(groups * size, 2 * size, paired=True)
        assert encoding.sensitivity == Sensitivity((digit, ChangedCells(groups, 2, paired=True)))
        assert domain.names == domain.labels.texts


def test_a_curators_error_is_that_of_the_means_of_equally_large_groups() -> None:
    domain = GroupBy(3, Arrays(2, ([0, 0], [1, 8])))
    assert domain.central_sensitivity == pytest.approx((27 * 2 * 81, 27 * 4 * 125))
    assert domain.values.central_sensitivity == pytest.approx((81, 125))


def test_bounds_can_be_put_in_afterwards() -> None:
    bare = GroupBy(["x", "y"], Arrays(2, columns=["a", "b"]))
    assert bare.values == Arrays(2, (0, 1), ["a", "b"])
    bounded = bare.with_bounds(([0, 0], [1, 5]))
    assert bounded == GroupBy(["x", "y"], Arrays(2, ([0, 0], [1, 5]), columns=["a", "b"]))
    assert bounded.with_bounds(Bounds(0, 1)) == bare
    with refusal("bad-bounds", error=ParameterError):
        bare.with_bounds((1, 0))


def test_named_columns_are_checked() -> None:
    domain = GroupBy(["x", "y"], Arrays(2, columns=["a", "b"]))
    with refusal("columns-mismatch", "['b', 'a']", "['a', 'b']", error=DataError):
        domain.rows((["x"], pd.DataFrame({"b": [0.1], "a": [0.2]})))


def test_refusals_name_the_row() -> None:
    domain = GroupBy(["x", "y"], 2)
    with refusal("unknown-label", "row 21", "'z'", "public", error=DataError):
        domain.block((["x", "z", "y"], ARRAYS), 20)
    with refusal("missing-value", "row 22", error=DataError):
        domain.block((["x", "x", None], ARRAYS), 20)
    with refusal("missing-value", "row 22", error=DataError):
        domain.block((["x", "x", None], ARRAYS), 20, missing="midpoint")
    with refusal("unknown-label", "row 20", "5", error=DataError):
        GroupBy(2, 2).block(([5, 0, 1], ARRAYS), 20)


def test_arrays_are_prepared_as_in_a_box() -> None:
    domain = GroupBy(["x", "y"], 2)
    wild = np.array([[np.nan, 3.0]])
    assert domain.block((["x"], wild), clip=True, missing="midpoint").numbers.values.tolist() == [[0.5, 1.0]]
    grouped = domain.block((["x"], np.array([[0.0, 3.0]])))
    with refusal("out-of-bounds", "row 4", error=DataError):
        domain.values.refuse(grouped.numbers.values, 4)
    with refusal("impossible-combination", error=ParameterError):
        GroupBy(2, Span(np.eye(2))).check_options(clip=False, missing="midpoint")


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
        GroupBy(["x", "y"], 2).rows(values)


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
        GroupBy(labels, shape)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "group-by", "labels": 3}, "malformed"),
        ({"kind": "group-by", "labels": 3, "values": 3}, "malformed"),
        ({"kind": "group-by", "labels": 3, "values": GroupBy(2, 2).to_json()}, "malformed"),
        ({"kind": "group-by", "labels": 3, "values": Arrays(2, (0, 1)).to_json(), "more": 1}, "malformed"),
        ({"kind": "group-by", "labels": 1, "values": Arrays(2, (0, 1)).to_json()}, "out-of-range"),
    ],
)
def test_other_json_is_refused(value: object, problem: str) -> None:
    with refusal(problem, error=PlanError):
        domain_from_json(value)
