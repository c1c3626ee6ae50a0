"""Columns with names: a box made for some refuses tables of others, and JSON says them only where there are some."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.refusals import refusal

from shufflesum.domains import (
    Arrays,
    Categories,
    Domain,
    GroupBy,
    MultiChoice,
    OpenVocabulary,
    Span,
    Symmetric,
    domain_from_json,
)
from shufflesum.domains.frames import columns_of, frame_rows, library_of
from shufflesum.errors import DataError, ParameterError, PlanError

VALUES = np.array([[0.25, 0.5], [0.75, 1.0]])
BOX = Arrays(2, (0, 1), ["height", "weight"])


def tables(names: list[str]) -> dict[str, Any]:
    return {
        "pandas": pd.DataFrame(VALUES, columns=names),
        "polars": pl.DataFrame(VALUES, schema=names),
        "arrow": pa.table(list(VALUES.T), names=names),
        "arrow batch": pa.record_batch(list(VALUES.T), names=names),
    }


@pytest.mark.parametrize("kind", tables(["a", "b"]))
def test_the_named_columns_pass_and_others_are_refused(kind: str) -> None:
    rows = BOX.rows(tables(["height", "weight"])[kind])
    np.testing.assert_array_equal(BOX.block(rows[0:2]).values, VALUES)
    for others in (["weight", "height"], ["height", "Weight"]):
        with refusal("columns-mismatch", str(others), "['height', 'weight']", error=DataError):
            BOX.rows(tables(others)[kind])
    assert len(Arrays(2, (0, 1)).rows(tables(["x", "y"])[kind])) == 2


@pytest.mark.parametrize(
    "arrays",
    [
        VALUES,
        VALUES.tolist(),
        pd.DataFrame(VALUES),
        pd.Series(VALUES.tolist()),
        pd.DataFrame({"both": VALUES.tolist()}),
        pl.Series(VALUES.tolist()),
        pa.array(VALUES.tolist()),
    ],
    ids=lambda arrays: type(arrays).__module__ + "-" + type(arrays).__name__,
)
def test_what_has_no_names_passes(arrays: Any) -> None:
    np.testing.assert_array_equal(BOX.block(BOX.rows(arrays)).values, VALUES)


def test_many_columns_are_compared_too() -> None:
    names = [f"pixel {i}" for i in range(100)]
    box = Arrays(100, (0, 1), names)
    frame = pd.DataFrame(np.zeros((3, 100)), columns=names)
    assert len(box.rows(frame)) == 3
    with refusal("columns-mismatch", error=DataError):
        box.rows(frame[names[::-1]])


def test_a_table_of_more_columns_is_refused_by_their_names() -> None:
    with refusal("columns-mismatch", "'age'", error=DataError):
        BOX.rows(pd.DataFrame({"height": [0.1], "weight": [0.2], "age": [0.3]}))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_single_column_has_a_name_too(shape: tuple[int, ...]) -> None:
    box = Arrays(shape, (0, 1), ["age"])
    assert len(box.rows(pl.DataFrame({"age": [0.5]}))) == 1
    with refusal("columns-mismatch", "['years']", error=DataError):
        box.rows(pl.DataFrame({"years": [0.5]}))


def test_a_column_by_itself_is_known_by_its_name() -> None:
    box = Arrays((), (0, 1), ["age"])
    for column in (pd.Series([0.5], name="age"), pd.Series([0.5]), pl.Series([0.5]), pa.array([0.5])):
        assert len(box.rows(column)) == 1
    for column in (pd.Series([0.5], name="years"), pl.Series("years", [0.5])):
        with refusal("columns-mismatch", "['years']", error=DataError):
            box.rows(column)


def test_the_row_labels_of_pandas_are_no_column() -> None:
    table = pa.table({"height": [0.1], "weight": [0.2], "__index_level_0__": [0.7]})
    assert BOX.rows(table).shape == (1, 2)


def test_names_are_in_the_json_only_where_there_are_some() -> None:
    plain = Arrays(2, (0, 1))
    assert plain.to_json().keys() == {"kind", "structure", "bounds"}
    assert plain.columns is None
    assert plain != BOX
    assert BOX.to_json()["columns"] == ["height", "weight"]
    for box in (plain, BOX):
        assert domain_from_json(json.loads(json.dumps(box.to_json()))) == box


@pytest.mark.parametrize(
    ("shape", "columns", "problem"),
    [
        (2, ["a"], "wrong-shape"),
        (2, [], "wrong-shape"),
        ((2, 2), ["a", "b", "c", "d"], "wrong-shape"),
        (Symmetric(2), ["a", "b", "c"], "wrong-shape"),
        (Span(np.eye(2)), ["a", "b"], "wrong-shape"),
        (2, ["a", "a"], "ambiguous-column"),
        (2, ["a", ""], "wrong-type"),
        (2, ["a", 1], "wrong-type"),
        (2, "ab", "wrong-type"),
    ],
    ids=str,
)
def test_names_that_do_not_fit_are_refused(shape: Any, columns: Any, problem: str) -> None:
    with refusal(problem, error=ParameterError):
        Arrays(shape, (0, 1), columns)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("ab", "malformed"),
        (None, "malformed"),
        (["a"], "wrong-shape"),
        (["a", 1], "wrong-type"),
        ([[], []], "wrong-type"),
    ],
)
def test_json_with_names_that_do_not_fit_is_refused(columns: Any, problem: str) -> None:
    with refusal(problem, error=PlanError):
        domain_from_json({**Arrays(2, (0, 1)).to_json(), "columns": columns})


def test_a_curators_weights_follow_the_widths() -> None:
    gaussian, laplace = Arrays(3, ([0, 0, 0], [1, 8, 27])).central_sensitivity
    assert gaussian == pytest.approx(36**2)
    assert laplace == pytest.approx(14**3)


@pytest.mark.parametrize("kind", tables(["a", "b"]))
def test_a_table_says_its_columns(kind: str) -> None:
    table = tables(["a", "b"])[kind]
    found = columns_of(table)
    assert found is not None
    assert found.is_table
    assert found.names == ("a", "b")
    assert [np.asarray(column).tolist() for column in found.columns] == VALUES.T.tolist()
    rows = frame_rows(table)
    assert rows is not None
    assert rows.part(1, 2).names == ("a", "b")


def test_what_is_no_table_has_no_columns() -> None:
    assert columns_of(VALUES) is None
    assert columns_of([1, 2]) is None
    for value in (pd.Series([1]), pl.Series([1]), pa.array([1])):
        found = columns_of(value)
        assert found is not None
        assert not found.is_table
    assert [library_of(value) for value in (VALUES, pd.Series([1]), pl.Series([1]), pa.array([1]))] == [
        None,
        "pandas",
        "polars",
        "pyarrow",
    ]


NAMED: list[Domain] = [
    Categories(["a", "b"], column="answer"),
    Categories(bins=[0, 1, 2], other=True, column="age"),
    MultiChoice(3, max_choices=2, column="ticked"),
    GroupBy(["x", "y"], (2,), column="country"),
    OpenVocabulary(100, 4, bytes(16), column="word"),
]


@pytest.mark.parametrize("domain", NAMED, ids=lambda domain: domain.to_json()["column"])
def test_the_name_of_the_column_travels_with_the_domain(domain: Domain) -> None:
    again = domain_from_json(domain.to_json())
    assert again == domain
    assert again.to_json()["column"] in ("answer", "age", "ticked", "country", "word")
    assert {name: value for name, value in domain.to_json().items() if name != "column"} == nameless(domain)
    assert domain_from_json(nameless(domain)) != domain


def test_bounds_and_columns_of_numbers_leave_the_name_of_the_groups_alone() -> None:
    groups = GroupBy(["x", "y"], Arrays((2,), columns=["a", "b"]), column="country").with_bounds((0, 9))
    assert (groups.column, groups.values.columns) == ("country", ("a", "b"))


@pytest.mark.parametrize("column", [7, "", ["a"]])
def test_what_is_no_name_is_refused(column: Any) -> None:
    for make in (lambda: Categories(2, column=column), lambda: OpenVocabulary(column=column)):
        with refusal("wrong-type", "column"):
            make()


@pytest.mark.parametrize("rest", [{"column": 7}, {"column": "a", "more": 1}, {"more": 1}])
def test_json_with_anything_else_is_refused(rest: dict[str, Any]) -> None:
    for domain in NAMED:
        with refusal("malformed"):
            domain_from_json(nameless(domain) | rest)


def nameless(domain: Domain) -> dict[str, Any]:
    return {name: value for name, value in domain.to_json().items() if name != "column"}
