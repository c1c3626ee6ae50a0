from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as arrow_parquet
from tests.refusals import refusal

from shufflesum.errors import DataError, FileError
from shufflesum.tables import sources
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import DataSource, ReadOptions


def opened(
    folder: Path, columns: dict[str, Any], choose: list[str] | None = None, user_column: str | None = None
) -> DataSource:
    arrow_parquet.write_table(pa.table(columns), folder / "x.parquet")
    return open_table(folder / "x.parquet", ReadOptions(choose, user_column))


def values(table: DataSource) -> np.ndarray:
    batches = list(table.batches())
    assert all(batch.shape[1:] == table.shape for batch in batches)
    joined = np.concatenate(batches)
    assert len(joined) == table.rows
    return joined


def test_numeric_columns_of_every_type_are_read_and_nulls_are_nan(tmp_path: Path) -> None:
    table = opened(
        tmp_path,
        {
            "i": pa.array([1, None], pa.int64()),
            "u": pa.array([2**63, 3], pa.uint64()),
            "f": pa.array([0.5, None], pa.float32()),
            "h": pa.array(np.array([0.25, 2], np.float16)),
            "b": pa.array([True, None]),
            "d": pa.array([Decimal("1.25"), None]),
        },
    )
    assert (table.rows, table.shape, table.names) == (2, (6,), ("i", "u", "f", "h", "b", "d"))
    nan = np.nan
    expected = [[1, 2.0**63, 0.5, 0.25, 1, 1.25], [nan, 3, nan, 2, nan, nan]]
    assert np.array_equal(values(table), expected, equal_nan=True)
    assert np.array_equal(values(table), expected, equal_nan=True)


def test_single_precision_stays_single(tmp_path: Path) -> None:
    table = opened(tmp_path, {"a": pa.array([0.1, None], pa.float32()), "b": pa.array([1, 2], pa.float32())})
    assert values(table).dtype == np.float32
    assert np.isnan(values(table)[1, 0])


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    table = opened(tmp_path, {"name": ["x", "y"], "a": [1, 2], "b": [3, 4]}, ["b", "a"])
    assert table.names == ("b", "a")
    assert values(table).tolist() == [[3, 1], [4, 2]]


def test_a_dotted_column_name_is_one_column(tmp_path: Path) -> None:
    assert values(opened(tmp_path, {"a.b": [1, 2], "a": [3, 4]}, ["a.b"])).tolist() == [[1], [2]]


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.float32()), pa.list_(pa.float64(), 3)])
def test_a_column_of_lists_is_one_array_per_user(tmp_path: Path, kind: pa.DataType) -> None:
    table = opened(tmp_path, {"x": pa.array([None, [1, 2, 3], [4, None, 6], None], kind)})
    assert (table.rows, table.shape, table.names) == (4, (3,), None)
    nan = np.nan
    expected = np.array([[nan, nan, nan], [1, 2, 3], [4, nan, 6], [nan, nan, nan]])
    assert np.array_equal(values(table), expected, equal_nan=True)


def test_ragged_lists_are_refused_with_their_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BATCH_BYTES", 8 * 2 * 4)
    table = opened(tmp_path, {"x": [[1, 2]] * 9 + [[1, 2, 3]] + [[1, 2]] * 5})
    with refusal("wrong-shape", "column 'x'", "row 9", "has 3", "have 2", error=DataError):
        list(table.batches())


def test_batches_stay_small_and_join_to_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BATCH_BYTES", 800)
    table = opened(tmp_path, {"a": np.arange(1000.0), "b": -np.arange(1000.0)})
    assert max(batch.nbytes for batch in table.batches()) <= 800
    assert np.array_equal(values(table), np.stack([np.arange(1000.0), -np.arange(1000.0)], axis=1))


@pytest.mark.parametrize(
    ("columns", "refused"),
    [
        ({"a": [1], "s": ["x"]}, ("not-numbers", "column 's'", "string", "columns=")),
        ({"a": [1], "s": [["x"]]}, ("not-numbers", "column 's'", "list", "columns=")),
        ({"a": [1], "s": [{"x": 1}]}, ("not-numbers", "column 's'", "struct", "columns=")),
        ({"a": [1], "x": [[1, 2]]}, ("wrong-shape", "'x'", "columns=")),
        ({"x": pa.array([[], []], pa.list_(pa.int8()))}, ("wrong-shape",)),
        ({"x": pa.array([None, None], pa.list_(pa.int8()))}, ("wrong-shape",)),
        ({"a": pa.array([], pa.float64())}, ("no-rows",)),
        ({}, ("no-rows",)),
    ],
)
def test_what_is_not_numbers_is_refused(tmp_path: Path, columns: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=FileError):
        opened(tmp_path, columns)


def test_the_row_labels_of_pandas_are_not_data_unless_asked_for(tmp_path: Path) -> None:
    columns = {"a": [1, 2], "__index_level_0__": [10, 20]}
    assert opened(tmp_path, columns).names == ("a",)
    assert values(opened(tmp_path, columns, ["__index_level_0__"])).tolist() == [[10], [20]]


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    arrow_parquet.write_table(table, tmp_path / "x.parquet")
    with refusal("ambiguous-column", "named 'a'", error=FileError):
        open_table(tmp_path / "x.parquet")


def test_the_user_column_is_checked_and_is_no_data(tmp_path: Path) -> None:
    table = opened(tmp_path, {"who": ["ann", "bob"], "a": [1.0, 2.0]}, user_column="who")
    assert table.names == ("a",)
    with refusal("repeated-user", "7", "has 2", error=DataError):
        opened(tmp_path, {"who": [7, 8, 7], "a": [1.0, 2.0, 3.0]}, user_column="who")
    with refusal("missing-value", "row 1", error=DataError):
        opened(tmp_path, {"who": [7, None], "a": [1.0, 2.0]}, user_column="who")


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_file_cut_short_or_of_another_format_is_refused(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "x.parquet"
    opened(tmp_path, {"a": np.arange(1000.0)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))] or b"a,b\n1,2\n")
    with refusal("damaged", error=FileError):
        open_table(path)
