"""One label each: codes are cells, what is outside is refused or counted as other, bins take numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domains.text_columns import TEXT, TEXT_COLUMNS, labels
from tests.refusals import refusal

from shufflesum.cells import MOST_CELLS
from shufflesum.domains import Categories, Label, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
from shufflesum.errors import DataError, ParameterError, PlanError

rising = st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=8, unique=True).map(sorted)


@given(listed=labels, other=st.booleans())
def test_categories_come_back_from_json(listed: list[Label], other: bool) -> None:
    if len(listed) + other < 2 or (other and "other" in listed):
        return
    domain = Categories(listed, other=other)
    again = domain_from_json(json.loads(json.dumps(domain.to_json())))
    assert again == domain
    assert again.names == domain.names
    assert domain.shape == (len(listed) + other,)
    assert domain.dimension == domain.cells == len(domain.names) == len(domain.cell_labels)
    cells, values = domain.encodings()
    assert cells.sensitivity == Sensitivity((ChangedCells(domain.cells, 2, paired=True),))
    assert values.sensitivity == Sensitivity((ChangedCells(1, 1, paired=False),))
    assert domain.central_sensitivity == (2 * domain.cells, 4 * domain.cells)


@given(edges=rising, other=st.booleans())
def test_bins_come_back_from_json(edges: list[float], other: bool) -> None:
    domain = Categories(bins=edges, other=other)
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert domain.cells == len(edges) - 1 + other
    assert len(set(domain.names)) == domain.cells


def test_json_says_no_more_than_what_is_there() -> None:
    assert Categories(3).to_json() == {"kind": "categories", "labels": 3, "other": False}
    assert Categories([True, 7, "x"]).to_json() == {"kind": "categories", "labels": [True, 7, "x"], "other": False}
    assert Categories(bins=[0, 18.5], other=True).to_json() == {
        "kind": "categories",
        "bins": [0.0, 18.5],
        "other": True,
    }


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_other_takes_in_what_is_unknown_and_what_is_missing(kind: str) -> None:
    domain = Categories(["a", "b", "c"], other=True)
    rows = domain.rows(TEXT_COLUMNS[kind](TEXT))
    codes = domain.block(rows).cells
    assert codes.dtype == np.uint32
    assert codes.tolist() == [1, 0, 3, 3, 2, 0]
    assert domain.names[3] == domain.cell_labels[3] == "other"


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_without_other_the_first_row_outside_is_refused(kind: str) -> None:
    domain = Categories(["a", "b", "c"])
    rows = domain.rows(TEXT_COLUMNS[kind](TEXT))
    with refusal("missing-value", "row 52", "other=True", error=DataError):
        domain.block(rows, 50)
    with refusal("unknown-label", "row 60", "zz", "public", "other=True", error=DataError):
        domain.block(rows[3:], 60)
    codes = domain.block(rows[4:]).cells
    assert codes.dtype == np.uint32
    assert codes.tolist() == [2, 0]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
def test_integers_below_a_number_of_labels_are_handed_through_uncopied(dtype: str) -> None:
    values = np.arange(100, dtype=dtype)
    domain = Categories(50)
    assert domain.block(domain.rows(values)[:50]).cells.base is values
    unchecked = domain.block(values).cells
    assert unchecked is values
    with refusal("unknown-label", "row 1050", "50", "other=True", error=DataError):
        domain.refuse(unchecked, 1000)
    mapped = Categories(50, other=True).block(values).cells
    assert mapped.dtype == np.uint32
    assert mapped.tolist() == [*range(50), *[50] * 50]


def test_a_negative_code_is_refused_as_well() -> None:
    with refusal("unknown-label", "row 2", "-1", error=DataError):
        Categories(3).refuse(np.array([0, 1, -1]))
    assert Categories(3, other=True).block(np.array([0, -1, 2])).cells.tolist() == [0, 3, 2]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", ">i2", ">u4", "i8", "u8"])
@pytest.mark.parametrize("labels", [3, 127, 128, 255, 256, 1000])
def test_other_takes_in_all_integers_outside_whatever_their_type(dtype: str, labels: int) -> None:
    limits = np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 2, 100, 127, *([] if limits.min == 0 else [-1, -100])]
    codes = Categories(labels, other=True).block(np.array(values, dtype)).cells
    assert codes.dtype == np.uint32
    assert codes.tolist() == [value if 0 <= value < labels else labels for value in values]


@pytest.mark.parametrize("values", [np.array([0.0, 2.0, 3.0]), ["0", "2", "3"], pd.Series([0, 2, 3], dtype=object)])
def test_what_is_not_integers_is_checked_at_once(values: Any) -> None:
    with refusal("unknown-label", "row 2", error=DataError):
        Categories(3).block(values)
    assert Categories(4).block(values).cells.tolist() == [0, 2, 3]


AGES = [0.0, 17.5, 18.0, 64.999, 65.0, 120.0]
AGE_CODES = [0, 0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    "column",
    [
        AGES,
        np.array(AGES),
        np.array(AGES, np.float32),
        np.array(AGES)[:, None],
        pd.Series(AGES),
        pd.Series(AGES, dtype="Float64"),
        pd.DataFrame({"age": AGES}),
        pl.Series(AGES),
        pl.DataFrame({"age": AGES}),
        pa.array(AGES),
        pa.chunked_array([pa.array(AGES[:2]), pa.array(AGES[2:])]),
    ],
    ids=lambda column: type(column).__module__ + "-" + type(column).__name__,
)
def test_numbers_fall_into_bins_closed_below_and_the_last_above_too(column: Any) -> None:
    domain = Categories(bins=[0, 18, 30, 65, 120])
    assert domain.names == ("0 to 18", "18 to 30", "30 to 65", "65 to 120")
    rows = domain.rows(column)
    assert domain.block(rows).cells.tolist() == AGE_CODES
    assert domain.block(rows[2:4]).cells.tolist() == AGE_CODES[2:4]


@given(edges=rising, values=st.lists(st.floats(-2e9, 2e9), min_size=1))
def test_bins_agree_with_comparing_one_by_one(edges: list[float], values: list[float]) -> None:
    def bin_of(value: float) -> int:
        inside = [i for i in range(len(edges) - 1) if edges[i] <= value < edges[i + 1]]
        return inside[0] if inside else len(edges) - 2 if value == edges[-1] else len(edges) - 1

    codes = Categories(bins=edges, other=True).block(values).cells
    assert codes.tolist() == [bin_of(value) for value in values]
    clipped = Categories(bins=edges).block(values, clip=True).cells
    assert clipped.tolist() == [bin_of(min(max(value, edges[0]), edges[-1])) for value in values]


def test_a_number_written_for_an_edge_is_in_its_bin_in_single_precision_too() -> None:
    edges = [0, 0.1, 0.7, 1]
    assert Categories(bins=edges).block(np.array([0.1, 0.7], np.float32)).cells.tolist() == [1, 2]


def test_numbers_outside_all_bins_are_refused_clipped_or_other() -> None:
    domain, values = Categories(bins=[0, 18, 65]), np.array([-1.0, 66.0, 18.0, np.inf])
    with refusal("out-of-bounds", "row 7", "-1.0", "[0, 65]", "clip=True", "other=True", error=DataError):
        domain.block(values, 7)
    assert domain.block(values, clip=True).cells.tolist() == [0, 1, 1, 1]
    assert Categories(bins=[0, 18, 65], other=True).block(values).cells.tolist() == [2, 2, 1, 2]
    with refusal("missing-value", "row 8", "other=True", error=DataError):
        domain.block([1.0, np.nan], 7)
    with refusal("missing-value", "row 8", error=DataError):
        domain.block([1.0, np.nan], 7, clip=True)
    assert Categories(bins=[0, 18, 65], other=True).block([np.nan], clip=True).cells.tolist() == [2]


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (["a", "b"], "not-numbers"),
        (pd.Series(["1", "2"]), "not-numbers"),
        (np.zeros((3, 2)), "wrong-shape"),
        (5.0, "wrong-shape"),
        ([], "no-rows"),
        (np.ma.masked_array([1.0], [True]), "not-numbers"),
    ],
)
def test_bins_take_one_number_for_each_user(column: Any, problem: str) -> None:
    with refusal(problem, error=DataError):
        Categories(bins=[0, 1, 2]).block(column)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "missing-argument"),
        ({"labels": 3, "bins": [0, 1, 2]}, "conflicting-arguments"),
        ({"labels": ["a"]}, "out-of-range"),
        ({"labels": 1}, "out-of-range"),
        ({"labels": []}, "out-of-range"),
        ({"labels": MOST_CELLS, "other": True}, "too-many-cells"),
        ({"labels": ["a", "other"], "other": True}, "conflicting-arguments"),
        ({"labels": ["a", " other "], "other": True}, "conflicting-arguments"),
        ({"labels": ["a", "b"], "other": "yes"}, "wrong-type"),
        ({"labels": "ab"}, "wrong-type"),
        ({"bins": [0, 1]}, "out-of-range"),
        ({"bins": [0], "other": True}, "bad-bounds"),
        ({"bins": 3}, "bad-bounds"),
        ({"bins": [0, 2, 1]}, "bad-bounds"),
        ({"bins": [0, 1, 1]}, "bad-bounds"),
        ({"bins": [0, 1, np.inf]}, "bad-bounds"),
        ({"bins": [0, np.nan, 1]}, "bad-bounds"),
        ({"bins": ["0", "1"]}, "not-numbers"),
        ({"bins": [[0, 1], [2, 3]]}, "bad-bounds"),
    ],
    ids=str,
)
def test_what_makes_no_histogram_is_refused(arguments: dict[str, Any], problem: str) -> None:
    with refusal(problem, error=ParameterError):
        Categories(**arguments)


def test_the_smallest_histograms_have_two_cells() -> None:
    for domain in (Categories(2), Categories(["a"], other=True), Categories(bins=[0, 1], other=True)):
        assert domain.cells == 2
    assert Categories(["a", "other"]).cells == 2


def test_labels_have_neither_a_middle_nor_a_nearest() -> None:
    domain = Categories(3)
    domain.check_options(clip=False, missing="refuse")
    for refused in (domain, Categories(bins=[0, 1, 2])):
        with refusal("impossible-combination", "other=True", error=ParameterError):
            refused.check_options(clip=False, missing="midpoint")
    with refusal("unknown-choice", error=ParameterError):
        domain.check_options(clip=False, missing="drop")  # type: ignore[arg-type]
    with refusal("impossible-combination", error=ParameterError):
        domain.block([0], clip=True)
    Categories(bins=[0, 1, 2]).check_options(clip=True, missing="refuse")  # numbers have a nearest bin


@pytest.mark.parametrize(
    "value",
    [
        {"kind": "categories"},
        {"kind": "categories", "labels": 3},
        {"kind": "categories", "labels": 3, "other": 1},
        {"kind": "categories", "labels": 3, "other": False, "more": 1},
        {"kind": "categories", "labels": 3, "bins": [0, 1, 2], "other": False},
        {"kind": "categories", "labels": "ab", "other": False},
        {"kind": "categories", "bins": 3, "other": False},
        {"kind": "crowd", "labels": 3, "other": False},
        [],
        None,
    ],
    ids=str,
)
def test_other_json_is_malformed(value: object) -> None:
    with refusal("malformed", error=PlanError):
        domain_from_json(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "categories", "labels": 1, "other": False}, "out-of-range"),
        ({"kind": "categories", "labels": ["a", "a"], "other": False}, "conflicting-arguments"),
        ({"kind": "categories", "bins": [1, 0, 2], "other": False}, "bad-bounds"),
    ],
)
def test_json_of_categories_that_cannot_be_is_refused(value: object, problem: str) -> None:
    with refusal(problem, error=PlanError):
        domain_from_json(value)
