"""Public lists of labels: every kind of column leads to the same codes, and what is no label is named with its row."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domains.text_columns import TEXT, TEXT_COLUMNS, halves, labels
from tests.refusals import refusal

from shufflesum.cells import MOST_CELLS
from shufflesum.domains import Categories, Label, Labels
from shufflesum.domains.labels import MISSING, UNKNOWN, DictionaryColumn, label_rows, text_of
from shufflesum.errors import DataError, ParameterError, PlanError

TEXT_CODES = [1, 0, MISSING, UNKNOWN, 2, 0]


@pytest.mark.parametrize("kind", TEXT_COLUMNS)
def test_text_has_the_same_codes_however_it_comes(kind: str) -> None:
    column = TEXT_COLUMNS[kind](TEXT)
    listed = Labels(["a", "b", "c"])
    assert listed.codes(column).tolist() == TEXT_CODES
    rows = label_rows(column)
    assert len(rows) == len(TEXT)
    parts = [listed.codes(rows[start : start + 2]).tolist() for start in (0, 2, 4)]
    assert sum(parts, []) == TEXT_CODES  # noqa: RUF017


NUMBERS = [404, 200, 7, 200, 500]
NUMBER_CODES = [1, 0, UNKNOWN, 0, 2]
NUMBER_COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "range-like": tuple,
    "text": lambda v: [str(x) for x in v],
    "floats": lambda v: [float(x) for x in v],
    "decimals": lambda v: [Decimal(x) for x in v],
    "numpy scalars": lambda v: [np.int16(x) for x in v],
    **{kind: partial(np.array, dtype=kind) for kind in ("i2", "u2", "i4", ">i4", "u8", "f4", "f8", "U4")},
    "strided": lambda v: np.repeat(np.array(v), 2)[::2],
    "pandas": pd.Series,
    "pandas nullable": lambda v: pd.Series(v, dtype="Int64"),
    "pandas arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.int32())),
    "pandas categorical": lambda v: pd.Series(v, dtype="category"),
    "polars": pl.Series,
    "polars decimal": lambda v: pl.Series([Decimal(x) for x in v]),
    "arrow": pa.array,
    "arrow chunks": lambda v: halves(pa.array(v)),
    "arrow dictionary": lambda v: pa.array(v).dictionary_encode(),
    "arrow decimal": lambda v: pa.array([Decimal(x) for x in v]),
}


@pytest.mark.parametrize("kind", NUMBER_COLUMNS)
@pytest.mark.parametrize("listed", [[200, 404, 500], ["200", "404", "500"]], ids=["numbers", "text"])
def test_whole_numbers_have_the_same_codes_however_they_come(kind: str, listed: list[Label]) -> None:
    assert Labels(listed).codes(NUMBER_COLUMNS[kind](NUMBERS)).tolist() == NUMBER_CODES


@pytest.mark.parametrize("kind", NUMBER_COLUMNS)
def test_a_number_of_labels_means_the_whole_numbers_below_it(kind: str) -> None:
    column = NUMBER_COLUMNS[kind]([2, 0, 3, 1])
    assert Labels(3).codes(column).tolist() == [2, 0, UNKNOWN, 1]


@pytest.mark.parametrize(
    "column",
    [
        [2, None, 0],
        [2.0, float("nan"), 0.0],
        ["2", "", "0"],
        ["2", "  ", "0"],
        np.array([2.0, np.nan, 0.0]),
        np.array([2.0, np.nan, 0.0], np.float32),
        pd.Series([2, None, 0]),
        pd.Series([2, None, 0], dtype="Int64"),
        pd.Series([2, pd.NA, 0], dtype=object),
        pd.Series([2, pd.NaT, 0], dtype=object),
        pd.Series([2, None, 0], dtype=pd.ArrowDtype(pa.int8())),
        pl.Series([2, None, 0]),
        pl.Series([2.0, None, 0.0]),
        pa.array([2, None, 0]),
        pa.array([2.0, None, 0.0]),
        pa.array([2, None, 0]).dictionary_encode(),
    ],
    ids=lambda column: type(column).__module__ + "-" + type(column).__name__,
)
def test_what_is_missing_is_told_apart_from_what_is_unknown(column: Any) -> None:
    assert Labels(3).codes(column).tolist() == [2, MISSING, 0]
    assert Labels([0, 2]).codes(column).tolist() == [1, MISSING, 0]
    with refusal("missing-value", "row 11", error=DataError):
        Labels(3).known(column, 10)


@pytest.mark.parametrize("column", [pl.Series([None, None]), pa.nulls(2), [None, None], np.array([None, None])])
def test_a_column_of_nothing_is_missing(column: Any) -> None:
    assert Labels(["a", "b"]).codes(column).tolist() == [MISSING, MISSING]


BOOLEANS: dict[str, Any] = {
    "list": [True, False],
    "array": np.array([True, False]),
    "objects": np.array([True, False], dtype=object),
    "numpy scalars": [np.True_, np.False_],
    "text": ["True", "FALSE"],
    "pandas": pd.Series([True, False]),
    "pandas nullable": pd.Series([True, False], dtype="boolean"),
    "polars": pl.Series([True, False]),
    "arrow": pa.array([True, False]),
    "arrow chunks": halves(pa.array([True, False])),
}


@pytest.mark.parametrize("kind", BOOLEANS)
def test_true_and_false_are_labels(kind: str) -> None:
    assert Labels([False, True]).codes(BOOLEANS[kind]).tolist() == [1, 0]


def test_true_is_the_label_true_and_not_one() -> None:
    assert Labels(["true", "1"]).codes([True, 1, "1", 1.0, "true"]).tolist() == [0, 1, 1, 1, 0]
    assert Labels(2).codes([True, 1]).tolist() == [UNKNOWN, 1]
    assert Labels(2).codes(np.array([True])).tolist() == [UNKNOWN]
    # Only labels that are booleans are also taken in other letters.
    assert Labels(["true", "no"]).codes(["True"]).tolist() == [UNKNOWN]
    assert Labels([False, True]) != Labels([0, 1])
    assert Labels([0, True]) != Labels([0, 1])
    assert Labels([0, 1]) == Labels(2)
    assert Labels(["0", "1"]) != Labels(2)


def test_one_word_typed_in_two_ways_is_one_label() -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    assert Labels([apart, "tea"]) == Labels([composed, "tea"])
    for column in ([composed, apart], pa.array([composed, apart]), pl.Series([composed, apart])):
        assert Labels([composed, "tea"]).codes(column).tolist() == [0, 0]


def test_numbers_that_no_other_number_may_be_taken_for() -> None:
    large = 2**53 - 1
    listed = Labels([large, str(2**63 + 5), "1e300", "0.1", "-3"])
    assert listed.codes(np.array([2**63 + 5, large, 2**64 - 1], np.uint64)).tolist() == [1, 0, UNKNOWN]
    assert listed.codes(np.array([-3, large + 1])).tolist() == [4, UNKNOWN]
    assert listed.codes(np.array([0.1, -3.0, np.inf])).tolist() == [3, 4, UNKNOWN]
    assert listed.codes(np.array([0.1], np.float32)).tolist() == [3]
    assert listed.codes([Decimal(large), Decimal("0.10")]).tolist() == [0, 3]
    assert Labels(3).codes(np.array([-1, 2**62, 2])).tolist() == [UNKNOWN, UNKNOWN, 2]
    assert Labels(3).codes(np.array([2**64 - 1, 2], np.uint64)).tolist() == [UNKNOWN, 2]
    assert Labels(3).codes(["01", "1.0", "-0", "\u0661", "1" * 5000]).tolist() == [UNKNOWN] * 5


@given(
    listed=st.lists(st.integers(-40, 40) | st.sampled_from([2**53 - 1, 1 - 2**53]), min_size=1, unique=True),
    column=st.lists(st.integers(-60, 60) | st.sampled_from([2**63 - 1, -(2**63), 2**53 - 1]), min_size=1, max_size=300),
    repeats=st.sampled_from([1, 100]),
)
def test_tables_and_searches_agree_with_looking_up_one_by_one(
    listed: list[int], column: list[int], repeats: int
) -> None:
    expected = [listed.index(value) if value in listed else UNKNOWN for value in column * repeats]
    assert Labels(listed).codes(np.array(column * repeats)).tolist() == expected


def test_codes_of_numbers_below_a_number_are_the_numbers_themselves_uncopied() -> None:
    values = np.arange(5)
    assert np.shares_memory(Labels(5).codes(values), values)


@given(listed=labels, data=st.data())
def test_labels_come_back_from_their_codes(listed: list[Label], data: st.DataObject) -> None:
    known = Labels(listed)
    column = data.draw(st.lists(st.sampled_from(listed), min_size=1))
    codes = known.codes(column)
    assert [known.text(code) for code in codes] == [text_of(value) for value in column]
    assert known.texts == tuple(map(text_of, listed))


@given(listed=labels)
def test_labels_come_back_from_json_each_in_its_type(listed: list[Label]) -> None:
    known = Labels(listed)
    again = Labels.from_json(json.loads(json.dumps(known.to_json())))
    assert again == known
    assert hash(again) == hash(known)
    assert [type(label) for label in again.values] == [type(label) for label in known.values]
    for copied in (pickle.loads(pickle.dumps(known)), copy.deepcopy(known)):
        assert copied == known
        assert copied.codes(listed).tolist() == list(range(len(listed)))


def test_a_number_of_labels_is_never_listed() -> None:
    assert Labels(10**9).to_json() == 10**9
    assert Labels(range(4)).to_json() == 4
    assert Labels(np.arange(4)).to_json() == 4
    assert Labels(10**9).text(999_999_999) == "999999999"


@pytest.mark.parametrize(
    "given_labels",
    [
        ["a", "b"],
        ("a", "b"),
        (label for label in "ab"),
        np.array(["a", "b"]),
        pd.Series(["a", "b"]),
        pd.Index(["a", "b"]),
        pl.Series(["a", "b"]),
        pa.array(["a", "b"]),
        [" a", "b\n"],
    ],
)
def test_labels_are_listed_in_any_way_that_has_an_order(given_labels: Any) -> None:
    assert Labels(given_labels) == Labels(["a", "b"])
    assert Labels(given_labels if not hasattr(given_labels, "send") else ["a", "b"]).values == ("a", "b")


@pytest.mark.parametrize(
    ("listed", "problem", "fact"),
    [
        ([], "out-of-range", "0 labels"),
        (0, "out-of-range", "0 labels"),
        (-3, "out-of-range", "0 labels"),
        (MOST_CELLS + 1, "too-many-cells", str(MOST_CELLS)),
        ("yes", "wrong-type", "'yes'"),
        ({"yes", "no"}, "wrong-type", "yes"),
        (True, "wrong-type", "True"),
        (2.5, "wrong-type", "2.5"),
        (None, "wrong-type", "None"),
        (["a", ""], "wrong-type", "''"),
        (["a", "  "], "wrong-type", "'  '"),
        (["a", None], "wrong-type", "None"),
        (["a", b"b"], "wrong-type", "b'b'"),
        ([1, 1.5], "wrong-type", "1.5"),
        ([1, float("inf")], "wrong-type", "inf"),
        ([1, 2**53], "out-of-range", str(2**53)),
        ([1, [2]], "wrong-type", "[2]"),
        ([1, date(2020, 1, 1)], "wrong-type", "2020"),
        (["a", "b", "a"], "conflicting-arguments", "'a'"),
        (["a", " a"], "conflicting-arguments", "'a'"),
        ([1, "1"], "conflicting-arguments", "'1'"),
        ([True, "true"], "conflicting-arguments", "'true'"),
        (["caf\u00e9", "cafe\u0301"], "conflicting-arguments", "caf"),
    ],
)
def test_what_cannot_be_a_list_of_labels_is_refused(listed: Any, problem: str, fact: str) -> None:
    with refusal(problem, fact, error=ParameterError):
        Labels(listed)


@pytest.mark.parametrize("value", [True, 2.0, "ab", None, {}, [1.5, 2], [None], [["a"]]])
def test_json_that_is_no_list_of_labels_is_refused(value: Any) -> None:
    with refusal("malformed", error=PlanError):
        Labels.from_json(value)


@pytest.mark.parametrize(
    ("column", "problem", "fact"),
    [
        ([], "no-rows", "labels"),
        (np.array([]), "no-rows", "labels"),
        (pd.Series([], dtype=object), "no-rows", "labels"),
        (pl.Series([], dtype=pl.Categorical), "no-rows", "labels"),
        (pa.chunked_array([], pa.string()), "no-rows", "labels"),
        (pa.chunked_array([], pa.dictionary(pa.int8(), pa.string())), "no-rows", "labels"),
        ("abc", "wrong-type", "'abc'"),
        ({"a": 1}, "wrong-type", "a"),
        (7, "wrong-type", "7"),
        (np.zeros((2, 2)), "wrong-shape", "(2, 2)"),
        (np.ma.masked_array([1, 2], [True, False]), "wrong-type", "mask"),
        (np.array(["2020-01-01"], "M8[D]"), "wrong-type", "datetime64"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), "wrong-type", "datetime64"),
        (pd.Series(pd.period_range("2020", periods=2)), "wrong-type", ""),
        (pl.Series([date(2020, 1, 1)]), "wrong-type", "Date"),
        (pa.array([date(2020, 1, 1)]), "wrong-type", "date32"),
        (pa.array([{"a": 1}]), "wrong-type", "struct"),
        (pd.DataFrame({"a": [1], "b": [2]}), "wrong-shape", "2 columns"),
        (pl.DataFrame({"a": [1], "b": [2]}), "wrong-shape", "2 columns"),
        (pa.table({"a": [1], "b": [2]}), "wrong-shape", "2 columns"),
        (pl.LazyFrame({"a": [1]}), "no-rows", "LazyFrame"),
    ],
)
def test_what_is_no_column_of_labels_is_refused(column: Any, problem: str, fact: str) -> None:
    with refusal(problem, fact, error=DataError):
        Labels(["a", "b"]).codes(column)


@pytest.mark.parametrize("bad", [["x"], {"x": 1}, date(2020, 1, 1), 1j, b"\xff", np.array([1, 2])], ids=str)
def test_something_that_can_be_no_label_is_refused_with_its_row(bad: Any) -> None:
    column = ["a", "b", "a", bad, bad]
    rows = label_rows(column)
    with refusal("wrong-type", "row 103", error=DataError):
        Labels(["a", "b"]).codes(rows, 100)
    with refusal("wrong-type", "row 101", error=DataError):
        Labels(["a", "b"]).codes(rows[2:], 100)
    assert Labels(["a", "b"]).codes(rows[:3]).tolist() == [0, 1, 0]


def test_a_label_outside_is_refused_with_its_row_and_told_to_be_public() -> None:
    with refusal("unknown-label", "row 1001", "'maybe'", "'yes', 'no'", "public", error=DataError):
        Labels(["yes", "no"]).known(["yes", "maybe"], 1000)
    with refusal("unknown-label", "row 0", "12 labels", "(0, 1, 2, 3, 4, ...)", error=DataError):
        Labels(12).known([12])
    with pytest.raises(DataError) as caught:
        Labels(["a", "b"]).known(["q" * 1000])
    assert caught.value.value is not None
    assert 50 <= caught.value.value.count("q") < 60
    assert caught.value.row == 0
    assert "qq" not in str(caught.value)


def test_different_values_are_looked_up_once_for_all_slices() -> None:
    rows = label_rows(["a", "b"] * 10)
    assert isinstance(rows, DictionaryColumn)
    domain = Categories(["a", "b"])
    assert domain.block(rows[:10]).cells.tolist() == [0, 1] * 5
    (first,) = rows.tables.values()
    assert domain.block(rows[10:]).cells.tolist() == [0, 1] * 5
    assert list(rows.tables.values()) == [first]
    # Other labels are not mistaken for those of the first.
    assert Categories(["b", "a"]).block(rows[10:]).cells.tolist() == [1, 0] * 5
