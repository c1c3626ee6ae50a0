from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.domains import Arrays, frames
from shufflesum.domains.frames import FrameRows, frame_rows
from shufflesum.errors import DataError

nan = np.nan
NUMBERS: dict[str, list[Any]] = {"a": [1, 2, 3], "b": [0.5, None, 2.5]}
EXPECTED = [[1, 0.5], [2, nan], [3, 2.5]]
LISTS = [None, [1, 2, 3], [4, None, 6], None]
EXPECTED_LISTS = [[nan, nan, nan], [1, 2, 3], [4, nan, 6], [nan, nan, nan]]


class AnyStream:
    """A table of a library that nobody here has heard of."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, schema: object = None) -> object:
        return self.table.__arrow_c_stream__(schema)


def rows_of(table: object) -> FrameRows:
    rows = frame_rows(table)
    assert rows is not None
    return rows


def check(table: object, expected: Any, dtype: type = np.float64) -> None:
    rows = rows_of(table)
    whole, expected = np.asarray(rows), np.asarray(expected)
    np.testing.assert_array_equal(whole, expected)
    assert whole.dtype == rows.dtype == dtype
    assert whole.shape == rows.shape
    assert whole.flags.c_contiguous
    assert whole.flags.writeable
    assert (len(rows), rows.ndim) == (len(whole), whole.ndim)
    np.testing.assert_array_equal(rows[1:], expected[1:])
    np.testing.assert_array_equal(np.asarray(rows.part(1, 3)), expected[1:3])
    np.testing.assert_array_equal(rows.part(1, 3)[1:2], expected[2:3])


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(NUMBERS),
        pd.DataFrame(NUMBERS).convert_dtypes(),
        pd.DataFrame(NUMBERS).convert_dtypes(dtype_backend="pyarrow"),
        pd.DataFrame(NUMBERS, dtype=object),
        pd.DataFrame(NUMBERS, index=["x", "y", "x"]),
        pd.DataFrame({"a": [1, 2, 3], "b": pd.arrays.SparseArray([0.5, nan, 2.5])}),
        pl.DataFrame(NUMBERS),
        pl.concat([pl.DataFrame(NUMBERS)[:2], pl.DataFrame(NUMBERS)[2:]], rechunk=False),
        pl.concat([pl.DataFrame(NUMBERS)] * 2)[3:],
        pa.table(NUMBERS),
        pa.concat_tables([pa.table(NUMBERS)[:1], pa.table(NUMBERS)[1:]]),
        pa.concat_tables([pa.table(NUMBERS)] * 2)[3:],
        pa.record_batch(NUMBERS),
        pa.Table.from_pandas(pd.DataFrame(NUMBERS, index=[7, 8, 7])),
        pl.from_arrow(pa.Table.from_pandas(pd.DataFrame(NUMBERS, index=[7, 8, 7]))),
        AnyStream(pa.table(NUMBERS)),
    ],
)
def test_columns_of_numbers_are_coordinates_and_nulls_are_nan(table: Any) -> None:
    check(table, EXPECTED)


def test_every_kind_of_number_is_read() -> None:
    arrow = pa.table(
        {
            "i": pa.array([1, None], pa.int8()),
            "u": pa.array([2**63, 3], pa.uint64()),
            "f": pa.array([0.5, None], pa.float32()),
            "h": pa.array(np.array([0.25, 2], np.float16)),
            "b": pa.array([True, False]),
            "c": pa.array([True, None]),
            "d": pa.array([Decimal("1.25"), Decimal("-3")]),
            "e": pa.array([Decimal("1.25"), None]),
            "n": pa.nulls(2),
        }
    )
    expected = [[1, 2.0**63, 0.5, 0.25, 1, 1, 1.25, 1.25, nan], [nan, 3, nan, 2, 0, nan, -3, nan, nan]]
    check(arrow, expected)
    check(pl.from_arrow(arrow), expected)
    check(arrow.to_pandas(types_mapper=pd.ArrowDtype), expected)
    check(arrow.to_pandas(), expected)  # decimals and booleans with nulls become objects
    nullable = pd.DataFrame(
        {
            "i": pd.array([1, None], "Int8"),
            "u": pd.array([2**63, 3], "UInt64"),
            "f": pd.array([0.5, None], "Float32"),
            "b": pd.array([True, None], "boolean"),
            "o": pd.Series([Fraction(1, 4), pd.NA], dtype=object),
            "p": pd.Series([np.True_, pd.NaT], dtype=object),
            "q": pd.Series([None, None], dtype=object),
        }
    )
    check(nullable, [[1, 2.0**63, 0.5, 1, 0.25, 1, nan], [nan, 3, nan, nan, nan, nan, nan]])


@pytest.mark.parametrize(
    "column",
    [
        pa.array(LISTS, pa.list_(pa.int32())),
        pa.array(LISTS, pa.large_list(pa.float64())),
        pa.array(LISTS, pa.list_(pa.decimal128(5, 2))),
        pa.array(LISTS, pa.list_(pa.float64(), 3)),
        pa.array([[9, 9, 9], *LISTS, [9, 9, 9]], pa.list_(pa.float64(), 3))[1:5],
        pa.array([[9], *LISTS, [9]], pa.list_(pa.float64()))[1:5],
        pa.chunked_array([pa.array(part, pa.list_(pa.float64())) for part in (LISTS[:2], [], LISTS[2:])]),
        pl.Series(LISTS, dtype=pl.List(pl.Int16)),
        pl.Series(LISTS, dtype=pl.List(pl.Float64)),
        pl.Series(LISTS, dtype=pl.Array(pl.Float64, 3)),
        pl.Series([[9.0], *LISTS, []], dtype=pl.List(pl.Float64))[1:5],
        pd.Series(LISTS),
        pd.Series([None, (1, 2, 3), np.array([4, nan, 6]), pd.NA]),
        pd.Series([None, [1, 2, 3], [4, pd.NA, Decimal(6)], nan]),
        pd.Series(LISTS, dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    ],
    ids=lambda column: f"{type(column).__module__}: {getattr(column, 'dtype', None) or column.type}",
)
def test_lists_are_rows_and_a_null_list_is_a_row_of_nan(column: Any) -> None:
    check(column, EXPECTED_LISTS)
    tables: dict[str, Any] = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
    check(tables[type(column).__module__.partition(".")[0]]({"x": column}), EXPECTED_LISTS)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2)),
        pl.Series([[1, 2], [3, 4], [5, 6]], dtype=pl.Array(pl.Int8, 2)),
        pl.Series([[True, True], [False, True], [True, False]], dtype=pl.Array(pl.Boolean, 2)),
        pd.Series([[1, 2], [3, 4], [5, 6]]),
    ],
)
def test_lists_without_nulls_are_read_as_they_lie(column: Any) -> None:
    boolean = getattr(column, "dtype", None) == pl.Array(pl.Boolean, 2)
    check(column, [[1, 1], [0, 1], [1, 0]] if boolean else [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, 2, None]),
        pd.Series([1, 2, None], dtype="Int64"),
        pl.Series([1, 2, None]),
        pa.array([1, 2, None]),
        pa.chunked_array([[1], [2, None]]),
    ],
)
def test_a_column_of_numbers_is_one_number_for_each_user(column: Any) -> None:
    check(column, [1, 2, nan])


@pytest.mark.parametrize(
    ("table", "dtype"),
    [
        (pd.DataFrame({"a": [1, 2, 3], "b": [1, 2, 3]}, dtype=np.float32), np.float32),
        (pd.DataFrame({"a": [1, 2, 3], "b": [1, 2, 3]}, dtype="Float32"), np.float32),
        (pa.table({c: pa.array([1, 2, 3], pa.float32()) for c in "ab"}), np.float32),
        (pa.table({"a": pa.array([1, 2, 3], pa.float32()), "b": pa.array([1, 2, 3], pa.int8())}), np.float64),
        (pa.table({"a": pa.array([1, 2, 3], pa.float32()), "b": pa.array([1, 2, 3], pa.float16())}), np.float32),
        (pa.table({"x": pa.array([[i, i] for i in (1, 2, 3)], pa.list_(pa.float32()))}), np.float32),
        (pl.DataFrame({c: pl.Series([1, 2, 3], dtype=pl.Float32) for c in "ab"}), np.float32),
        (pl.DataFrame({"x": pl.Series([[i, i] for i in (1, 2, 3)], dtype=pl.List(pl.Float32))}), np.float32),
        (pl.DataFrame({"x": pl.Series([[i, i] for i in (1, 2, 3)], dtype=pl.Array(pl.Float64, 2))}), np.float64),
        (pd.Series([np.full(2, i, np.float32) for i in (1, 2, 3)]), np.float32),
        (pd.Series([np.full(2, 1, np.float32), np.full(2, 2.0), [3, 3]]), np.float64),
    ],
)
def test_single_precision_stays_single_where_every_column_is(table: Any, dtype: type) -> None:
    check(table, [[1, 1], [2, 2], [3, 3]], dtype)


def test_columns_may_share_a_name() -> None:
    check(pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]), [[1, 2], [3, 4]])
    check(pa.Table.from_arrays([pa.array([1, 3]), pa.array([2, 4])], names=["a", "a"]), [[1, 2], [3, 4]])


@pytest.mark.parametrize("columns", [3, 200])
@pytest.mark.parametrize("block", [1, 7, 10**9])
def test_blocks_join_to_the_whole_in_narrow_and_wide_tables(
    columns: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "_BLOCK_VALUES", block * columns)
    values = np.random.default_rng(0).random((50, columns))
    names = [str(j) for j in range(columns)]
    tables: list[Any] = [pd.DataFrame(values, columns=names), pl.DataFrame(values, schema=names)]
    for table in [*tables, tables[1].to_arrow()]:
        rows = rows_of(table)
        np.testing.assert_array_equal(np.asarray(rows), values)
        np.testing.assert_array_equal(rows[3:48], values[3:48])
        np.testing.assert_array_equal(rows.part(10, 30)[5:15], values[15:25])
        assert rows[50:].shape == rows[7:7].shape == (0, columns)


@given(data=st.data())
def test_whatever_pieces_a_column_of_lists_is_in_its_rows_are_the_same(data: st.DataObject) -> None:
    numbers = st.none() | st.integers(-5, 5)
    lists = data.draw(st.lists(st.none() | st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=12))
    if not any(lists):
        return
    cut = data.draw(st.integers(0, len(lists)))
    expected = [[nan if v is None else v for v in row or [None, None]] for row in lists]
    kind = pa.list_(pa.int64())
    arrow = pa.chunked_array([pa.array(lists[:cut], kind), pa.array(lists[cut:], kind)])
    polars = pl.concat([pl.Series(part, dtype=pl.List(pl.Int64)) for part in (lists[:cut], lists[cut:])], rechunk=False)
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(lists))] * 2)))
    for column in (arrow, polars, pd.Series(lists, dtype=object)):
        np.testing.assert_array_equal(rows_of(column)[start:stop], np.reshape(expected[start:stop], (-1, 2)))


def test_nothing_of_a_table_is_copied_before_it_is_read() -> None:
    values = np.zeros(10)
    for table in (pd.DataFrame({"a": values}, copy=False), pa.table({"a": values})):
        rows = rows_of(table)
        values[3] = 1
        assert rows[3:4].tolist() == [[1.0]]
        values[3] = 0


DAY = date(2020, 1, 1)
TEXT = ["1", "2"]


@pytest.mark.parametrize(
    ("table", "refused"),
    [
        (pd.DataFrame({"a": [1, 2], "t": TEXT}), ("not-numbers", "column 't'", "row 0", "str")),
        (pd.DataFrame({"t": pd.Series(TEXT, dtype="string")}), ("not-numbers", "column 't'", "string")),
        (pd.DataFrame({"t": pd.Categorical([1, 2])}), ("not-numbers", "column 't'", "category")),
        (pd.DataFrame({"t": pd.Categorical([True, False])}), ("not-numbers", "column 't'", "category")),
        (pd.DataFrame({"t": pd.to_datetime([DAY, DAY])}), ("not-numbers", "column 't'", "datetime64")),
        (
            pd.DataFrame({"t": pd.to_datetime([DAY, DAY]).tz_localize("UTC")}),
            ("not-numbers", "column 't'", "datetime64"),
        ),
        (pd.DataFrame({"t": [pd.Timedelta(1), pd.Timedelta(2)]}), ("not-numbers", "column 't'", "timedelta64")),
        (pd.DataFrame({"t": [1j, 2j]}), ("not-numbers", "column 't'", "complex128")),
        (pd.DataFrame({"t": pd.Series([1, 1j], dtype=object)}), ("not-numbers", "row 1", "complex")),
        (pd.DataFrame({"t": pd.Series([1, DAY], dtype=object)}), ("not-numbers", "row 1", "date")),
        (pd.DataFrame({"t": pd.Series([1, [1]], dtype=object)}), ("not-numbers", "row 1", "list")),
        (pd.DataFrame({"t": pd.Series([1, 10**400], dtype=object)}), ("not-numbers", "column 't'")),
        (
            pd.DataFrame({"t": pd.Series(TEXT, dtype=pd.ArrowDtype(pa.string()))}),
            ("not-numbers", "column 't'", "string"),
        ),
        (pd.Series([[1, 2], 3]), ("not-numbers", "the Series", "row 1", "int")),
        (pd.Series([[1, 2], ["1", "2"]], name="x"), ("not-numbers", "column 'x'", "row 1", "list")),
        (pd.Series([[1, 2], [None, "2"]], name="x"), ("not-numbers", "column 'x'", "row 1", "list")),
        (pd.Series([[1, 2], [1, [2]]], name="x"), ("not-numbers", "column 'x'", "row 1", "list")),
        (pd.Series([[[1, 2]], [[3, 4]]], name="x"), ("not-numbers", "column 'x'", "row 0", "list")),
        (pd.Series([np.zeros(2), np.zeros((2, 2))], name="x"), ("not-numbers", "row 1", "2-dimensional float64")),
        (pd.Series([np.zeros(2), np.array(0.0)], name="x"), ("not-numbers", "row 1", "0-dimensional float64")),
        (pd.Series([np.zeros(1), np.array([DAY], "M8[D]")], name="x"), ("not-numbers", "row 1", "date")),
        (pd.Series([np.array([DAY], "M8[D]")] * 2, name="x"), ("not-numbers", "row 0", "1-dimensional datetime64")),
        (pa.table({"a": [1, 2], "t": TEXT}), ("not-numbers", "column 't'", "string")),
        (pa.table({"t": pa.array(TEXT).dictionary_encode()}), ("not-numbers", "column 't'", "dictionary")),
        (pa.table({"t": [DAY, DAY]}), ("not-numbers", "column 't'", "date32")),
        (pa.table({"t": [{"x": 1}]}), ("not-numbers", "column 't'", "struct")),
        (pa.table({"t": [[[1.0]]]}), ("not-numbers", "column 't'", "list<item: list<")),
        (pa.array(TEXT), ("not-numbers", "StringArray", "string")),
        (pa.chunked_array([TEXT]), ("not-numbers", "string")),
        (pl.DataFrame({"a": [1, 2], "t": TEXT}), ("not-numbers", "column 't'", "String")),
        (pl.DataFrame({"t": pl.Series(TEXT, dtype=pl.Categorical)}), ("not-numbers", "column 't'", "Categorical")),
        (pl.DataFrame({"t": [DAY, DAY]}), ("not-numbers", "column 't'", "Date")),
        (pl.DataFrame({"t": [datetime(2020, 1, 1)]}), ("not-numbers", "column 't'", "Datetime")),
        (pl.DataFrame({"t": [{"x": 1}]}), ("not-numbers", "column 't'", "Struct")),
        (pl.DataFrame({"t": [[TEXT]]}), ("not-numbers", "column 't'", "List")),
        (pl.Series([[[1.0]]], dtype=pl.Array(pl.Float64, (1, 1))), ("not-numbers", "the Series", "Array(")),
        (pl.Series([object()], dtype=pl.Object), ("not-numbers", "the Series", "Object")),
    ],
)
def test_what_is_not_numbers_is_refused_by_column_and_row(table: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=DataError):
        frame_rows(table)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_tables_that_hold_no_rows_of_one_length_are_refused(make: Any) -> None:
    with refusal("wrong-shape", "column 'x'", "row 2", "has 3", "row 1", "has 2", error=DataError):
        frame_rows(make({"x": [None, [1, 2], [1, 2, 3], [1]]}))
    with refusal("wrong-shape", "row 1", "has 1", "row 0", "has 0", error=DataError):
        frame_rows(make({"x": [[], [1]]}))
    with refusal("wrong-shape", "'x' holds", "are 1", error=DataError):
        frame_rows(make({"a": [1, 2], "x": [[1, 2], [1, 2]]}))
    with refusal("wrong-shape", "'x' holds", "are 1", error=DataError):
        frame_rows(make({"x": [[1, 2], [1, 2]], "y": [[1, 2], [1, 2]]}))
    with refusal("no-rows", error=DataError):
        frame_rows(make({"x": []}))
    with refusal("no-rows", error=DataError):
        frame_rows(make({}))


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        (pa.array([[], []], pa.list_(pa.int8())), ("wrong-shape",)),
        (pa.array([[], []], pa.list_(pa.int8(), 0)), ("wrong-shape",)),
        (pa.array([None, None], pa.list_(pa.int8())), ("missing-value",)),
        (pl.Series([[], []], dtype=pl.List(pl.Int8)), ("wrong-shape",)),
        (pl.Series([[], []], dtype=pl.Array(pl.Int8, 0)), ("wrong-shape",)),
        (pl.Series([None, None], dtype=pl.List(pl.Int8)), ("missing-value",)),
        (pd.Series([[], []]), ("wrong-shape",)),
        (pa.array([], pa.float64()), ("no-rows",)),
        (pl.LazyFrame({"a": [1]}), ("no-rows", "frame.collect()")),
        (pl.col("a"), ("wrong-type", "Expr of polars")),
        (pa.scalar(1.0), ("wrong-type", "DoubleScalar of pyarrow")),
    ],
)
def test_what_has_no_rows_is_refused_with_what_to_pass(column: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=DataError):
        frame_rows(column)


def test_all_null_lists_of_fixed_size_are_rows_of_nan() -> None:
    check(pa.array([None] * 3, pa.list_(pa.int8(), 2)), np.full((3, 2), nan))
    check(pl.Series([None] * 3, dtype=pl.Array(pl.Float64, 2)), np.full((3, 2), nan))


@pytest.mark.parametrize("value", [[[1.0]], np.zeros((2, 2)), 3.0, "text", None, pd.Index([1, 2]), object()])
def test_anything_else_is_left_to_numpy(value: Any) -> None:
    assert frame_rows(value) is None


def test_subclasses_of_a_table_are_tables() -> None:
    class Mine(pd.DataFrame):  # type: ignore[misc]
        pass

    check(Mine(NUMBERS), EXPECTED)


def test_rows_are_read_in_order_only() -> None:
    with pytest.raises(IndexError, match="start:stop"):
        rows_of(pd.DataFrame(NUMBERS))[::-1]


def test_a_row_is_reshaped_where_its_numbers_are_as_many_as_the_shapes() -> None:
    values = np.arange(24.0).reshape(2, 12)
    for table in (pd.DataFrame(values), pl.Series(values.tolist()), pa.array(values.tolist())):
        domain = Arrays((3, 4), (0, 24))
        rows = domain.rows(table)
        assert rows.shape == (2, 3, 4)
        np.testing.assert_array_equal(rows[1:], values[1:].reshape(1, 3, 4))
        np.testing.assert_array_equal(domain.block(table).values, values)
        with refusal("wrong-shape", "2", "12", "3", "5", error=DataError):
            Arrays((3, 5), (0, 24)).rows(table)
    # An array says its shape itself.
    with refusal("wrong-shape", "2", "12", error=DataError):
        Arrays((3, 4), (0, 24)).rows(values)
    assert Arrays((), (0, 1)).rows(pd.DataFrame({"a": [0.5, 1.0]})).shape == (2,)
    assert Arrays(1, (0, 1)).rows(pd.Series([0.5, 1.0])).shape == (2, 1)


def test_missing_values_are_judged_as_those_of_an_array() -> None:
    domain = Arrays(2, (0, 4))
    table = pa.table({"a": [1.0, None], "b": [3, 4]})
    assert domain.block(table, missing="midpoint").values.tolist() == [[1, 3], [2, 4]]
    with refusal("missing-value", "row 1", "coordinate 0", error=DataError):
        domain.refuse(domain.block(table).values)
