"""Several labels each: lists and rows of true and false lead to the same cells, at most so many for each user."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.cells import BLANK
from shufflesum.domains import MultiChoice, domain_from_json
from shufflesum.encodings import ChangedCells, Sensitivity
from shufflesum.errors import DataError, ParameterError, PlanError

FRUIT = ["fig", "kiwi", "plum"]
PICKED = [["plum", "fig"], [], ["kiwi"], ["fig", "kiwi"]]
CELLS = [[0, 2], [BLANK, BLANK], [1, BLANK], [0, 1]]
TICKED = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 0]], dtype=bool)

COLUMNS: dict[str, Callable[[list[list[str]]], Any]] = {
    "lists": list,
    "tuples": lambda v: tuple(map(tuple, v)),
    "sets": lambda v: list(map(set, v)),
    "arrays": lambda v: [np.array(x, dtype=object) for x in v],
    "object array": lambda v: pd.Series(v).to_numpy(),
    "ticked": lambda v: TICKED,
    "ticked in lists": lambda v: TICKED.tolist(),
    "ticked frame": lambda v: pd.DataFrame(TICKED, columns=FRUIT),
    "ticked frame without names": lambda v: pd.DataFrame(TICKED),
    "ticked polars": lambda v: pl.DataFrame(TICKED, schema=FRUIT),
    "ticked arrow": lambda v: pa.table(dict(zip(FRUIT, TICKED.T, strict=True))),
    "pandas": pd.Series,
    "pandas arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.list_(pa.string()))),
    "pandas frame": lambda v: pd.DataFrame({"picked": v}),
    "polars": pl.Series,
    "polars categorical": lambda v: pl.Series(v, dtype=pl.List(pl.Categorical)),
    "polars frame": lambda v: pl.DataFrame({"picked": v}),
    "arrow": pa.array,
    "arrow large": lambda v: pa.array(v, pa.large_list(pa.string())),
    "arrow dictionary": lambda v: pa.array(v, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "arrow chunks": lambda v: pa.chunked_array([v[:1], v[1:]], pa.list_(pa.string())),
    "arrow sliced": lambda v: pa.array([["nut"], *v])[1:],
    "arrow table": lambda v: pa.table({"picked": v}),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_choices_lead_to_the_same_cells_however_they_come(kind: str) -> None:
    domain = MultiChoice(FRUIT, max_choices=2)
    rows = domain.rows(COLUMNS[kind](PICKED))
    assert len(rows) == 4
    cells = domain.block(rows).cells
    assert cells.dtype == np.uint32
    assert cells.tolist() == CELLS
    assert domain.block(rows[1:3]).cells.tolist() == CELLS[1:3]
    assert domain.block(rows[1:2]).cells.tolist() == CELLS[1:2]


@pytest.mark.parametrize(
    "column",
    [
        np.array([[2, 0], [1, 1]]),
        np.array([["2", "0"], ["1", "1"]]),
        pl.Series([[2, 0], [1, 1]], dtype=pl.Array(pl.Int64, 2)),
        pa.array([[2, 0], [1, 1]], pa.list_(pa.int8(), 2)),
        [[2, 0], [1]],
        [[2, 0, 2, "0"], ["1"]],
    ],
    ids=lambda column: type(column).__module__ + "-" + type(column).__name__,
)
def test_labels_may_be_numbers_and_one_named_twice_counts_once(column: Any) -> None:
    assert MultiChoice(3, max_choices=2).block(column).cells.tolist() == [[0, 2], [1, BLANK]]


def test_lists_of_true_and_false_are_labels_where_those_are_the_labels() -> None:
    domain = MultiChoice([False, True], max_choices=2)
    assert domain.block([[True, True], [False, True]]).cells.tolist() == [[1, BLANK], [0, 1]]


@given(data=st.data())
def test_cells_are_the_different_labels_of_each_row(data: st.DataObject) -> None:
    labels = data.draw(st.integers(2, 6))
    most = data.draw(st.integers(1, labels))
    picked = data.draw(st.lists(st.lists(st.integers(0, labels - 1), max_size=8), min_size=1, max_size=6))
    domain = MultiChoice(labels, max_choices=most)
    wrong = [row for row, picks in enumerate(picked) if len(set(picks)) > most]
    if wrong:
        with refusal("too-many-labels", f"row {100 + wrong[0]}:", error=DataError):
            domain.block(picked, 100)
        return
    cells = domain.block(picked).cells
    assert cells.tolist() == [[*sorted(set(p)), *[BLANK] * (most - len(set(p)))] for p in picked]


@given(labels=st.integers(2, 10**6), data=st.data())
def test_choices_come_back_from_json(labels: int, data: st.DataObject) -> None:
    most = data.draw(st.integers(1, labels))
    domain = MultiChoice(labels, max_choices=most)
    assert domain_from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert domain.shape == (labels,)
    assert domain.dimension == labels
    (encoding,) = domain.encodings()
    assert encoding.sensitivity == Sensitivity((ChangedCells(labels, 2 * most, paired=True),))
    assert domain.central_sensitivity == pytest.approx((2 * most * labels, 4 * most**2 * labels), rel=1e-14)
    named = MultiChoice(FRUIT, max_choices=1)
    assert domain_from_json(json.loads(json.dumps(named.to_json()))) == named
    assert named.names == named.cell_labels == tuple(FRUIT)


@pytest.mark.parametrize("kind", ["lists", "pandas", "polars", "arrow", "arrow chunks", "pandas arrow"])
def test_refusals_name_the_row(kind: str) -> None:
    domain, column = MultiChoice(FRUIT, max_choices=2), COLUMNS[kind]
    with refusal("unknown-label", "row 12", "'nut'", "public", error=DataError):
        domain.block(column([["fig"], [], ["kiwi", "nut"]]), 10)
    with refusal("too-many-labels", "row 11", "3 labels", "at most 2", error=DataError):
        domain.block(column([["fig"], FRUIT, []]), 10)
    with refusal("missing-value", "row 11", error=DataError):
        domain.block(column([["fig"], None, []]), 10)  # type: ignore[list-item]
    with refusal("missing-value", "row 11", error=DataError):
        domain.block(column([["fig"], ["kiwi", None], []]), 10)  # type: ignore[list-item]
    # A missing list in another part of the column is not in the way.
    rows = domain.rows(column([["fig"], None, ["plum"]]))  # type: ignore[list-item]
    assert domain.block(rows[2:]).cells.tolist() == [[2, BLANK]]
    assert domain.block(column([[], []])).cells.tolist() == [[BLANK, BLANK]] * 2


@pytest.mark.parametrize("kind", ["lists", "pandas", "polars", "arrow chunks"])
def test_empty_text_in_a_list_is_no_label(kind: str) -> None:
    """As in files: what is there of an empty cell after a split."""
    column = COLUMNS[kind]([[""], ["plum", ""], ["", "fig", "kiwi"], []])
    cells = MultiChoice(FRUIT, max_choices=2).block(column).cells
    assert cells.tolist() == [[BLANK, BLANK], [2, BLANK], [0, 1], [BLANK, BLANK]]
    missing = COLUMNS[kind]([["plum", ""], None, ["fig"]])  # type: ignore[list-item]
    with refusal("missing-value", "row 1", error=DataError):
        MultiChoice(FRUIT, max_choices=2).block(missing)


def test_too_many_ticks_are_refused_with_their_row() -> None:
    with refusal("too-many-labels", "row 5", "'fig', 'plum'", error=DataError):
        MultiChoice(FRUIT, max_choices=1).block(TICKED, 5)


@pytest.mark.parametrize(
    ("column", "problem", "fact"),
    [
        ([], "no-rows", ""),
        (np.zeros((0, 3), bool), "no-rows", ""),
        (np.zeros((4, 2), bool), "wrong-shape", "(4, 2)"),
        (np.zeros(4, bool), "wrong-shape", "(4,)"),
        (np.array([1, 2]), "wrong-shape", "(2,)"),
        (["fig", "plum"], "wrong-type", "row 0"),
        ([["fig"], "plum"], "wrong-type", "row 1"),
        ([["fig"], {"plum": 1}], "wrong-type", "row 1"),
        ([["fig"], [["plum"]]], "wrong-type", "plum"),
        (pa.array(["fig"]), "wrong-type", ""),
        (pl.Series(["fig"]), "wrong-type", ""),
        (pd.Series(["fig"]), "wrong-type", "row 0"),
        (7, "wrong-type", "7"),
        (pd.DataFrame(TICKED, columns=["kiwi", "fig", "plum"]), "columns-mismatch", "['kiwi', 'fig', 'plum']"),
        (pl.DataFrame(TICKED[:, :2], schema=FRUIT[:2]), "columns-mismatch", "['fig', 'kiwi', 'plum']"),
        (pd.DataFrame(TICKED.astype(int), columns=FRUIT), "wrong-type", "'fig'"),
        (pd.DataFrame({"fig": [True], "kiwi": [None], "plum": [True]}), "wrong-type", "'kiwi'"),
    ],
)
def test_what_is_no_column_of_choices_is_refused(column: Any, problem: str, fact: str) -> None:
    with refusal(problem, fact, error=DataError):
        MultiChoice(FRUIT, max_choices=2).block(column)


@pytest.mark.parametrize(
    ("labels", "most", "problem"),
    [
        (["a"], 1, "out-of-range"),
        (1, 1, "out-of-range"),
        (3, 0, "out-of-range"),
        (3, 4, "out-of-range"),
        (3, True, "wrong-type"),
        (3, 1.5, "wrong-type"),
        ("abc", 1, "wrong-type"),
        (["a", "a"], 1, "conflicting-arguments"),
    ],
)
def test_what_makes_no_question_is_refused(labels: Any, most: Any, problem: str) -> None:
    with refusal(problem, error=ParameterError):
        MultiChoice(labels, max_choices=most)


def test_labels_have_neither_a_middle_nor_a_nearest() -> None:
    domain = MultiChoice(3, max_choices=1)
    domain.check_options(clip=False, missing="refuse")
    with refusal("impossible-combination", error=ParameterError):
        domain.check_options(clip=False, missing="midpoint")
    with refusal("impossible-combination", error=ParameterError):
        domain.block([[1]], clip=True)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"kind": "multi-choice", "labels": 3}, "malformed"),
        ({"kind": "multi-choice", "labels": 3, "max_choices": "1"}, "malformed"),
        ({"kind": "multi-choice", "labels": 3, "max_choices": 1, "other": False}, "malformed"),
        ({"kind": "multi-choice", "labels": 3, "max_choices": True}, "wrong-type"),
        ({"kind": "multi-choice", "labels": 3, "max_choices": 4}, "out-of-range"),
    ],
)
def test_other_json_is_refused(value: object, problem: str) -> None:
    with refusal(problem, error=PlanError):
        domain_from_json(value)
