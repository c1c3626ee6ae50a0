"""Arrow IPC files, Feather among them; and that opening a file of many columns takes time in proportion to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from tests.refusals import refusal

from shufflesum.domains import Categories, ColumnLayout
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions

TABLE = pa.table({"id": ["x", "y", "z"], "a": [1, 2, None], "b": pa.array([0.5, 1.5, 2.5], pa.float32())})


def write_ipc(table: pa.Table, path: Path, rows: int = 2) -> Path:
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, max_chunksize=rows)
    return path


def write_feather(table: pa.Table, path: Path) -> Path:
    feather.write_feather(table, str(path), compression="zstd", chunksize=2)
    return path


@pytest.mark.parametrize(("write", "name"), [(write_ipc, "x.arrow"), (write_feather, "x.FEATHER")])
def test_columns_of_numbers_come_in_the_order_asked_for(
    write: Callable[[pa.Table, Path], Path], name: str, tmp_path: Path
) -> None:
    table = open_table(write(TABLE, tmp_path / name), ReadOptions(["b", "a"], "id"))
    assert (table.rows, table.shape, table.names) == (3, (2,), ("b", "a"))
    found = np.concatenate(list(table.batches()))
    assert np.array_equal(found, [[0.5, 1], [1.5, 2], [2.5, np.nan]], equal_nan=True)
    assert [name for chunk in table.users() for name in chunk.to_pylist()] == ["x", "y", "z"]


def test_lists_and_labels_are_read_from_arrow_files_too(tmp_path: Path) -> None:
    answers = pa.array(["yes", "no", "yes"]).dictionary_encode()
    both = pa.table({"answer": answers, "x": pa.array([[1, 2], [3, 4], None], pa.list_(pa.int8()))})
    path = write_ipc(both, tmp_path / "x.arrow")
    lists = np.concatenate(list(open_table(path, ReadOptions(["x"])).batches()))
    assert np.array_equal(lists, np.array([[1, 2], [3, 4], [np.nan, np.nan]]), equal_nan=True)
    labels = open_table(path, ReadOptions(column="answer", layout=Categories(["yes", "no"]).column_layout))
    assert [label for batch in labels.batches() for label in batch.to_pylist()] == ["yes", "no", "yes"]


def test_what_is_wrong_with_an_arrow_file_is_said(tmp_path: Path) -> None:
    path = write_ipc(TABLE, tmp_path / "x.arrow")
    with refusal("impossible-combination", "header=", error=ParameterError):
        open_table(path, ReadOptions(header=True))
    with refusal("not-numbers", "'id'", error=FileError):
        open_table(path)
    with refusal("repeated-user", error=DataError):
        open_table(write_ipc(pa.concat_tables([TABLE, TABLE]), tmp_path / "twice.arrow"), ReadOptions(user_column="id"))
    with refusal("no-rows", error=FileError):
        open_table(write_ipc(TABLE.slice(0, 0), tmp_path / "none.arrow"))
    path.write_bytes(path.read_bytes()[:-40])
    with refusal("damaged", "x.arrow", error=FileError):
        open_table(path)
    with pa.ipc.new_stream(tmp_path / "stream.arrow", TABLE.schema) as stream:
        stream.write_table(TABLE)
    with refusal("damaged", "stream.arrow", error=FileError):
        open_table(tmp_path / "stream.arrow")


@pytest.mark.long
@pytest.mark.parametrize("asked", ["nothing", "columns", "planned"])
def test_opening_takes_time_in_proportion_to_the_columns(asked: str, tmp_path: Path) -> None:
    """Four times the columns: about four times the processor time, where quadratic work took sixteen times."""
    times = {}
    for width in (2000, 8000):
        names = [f"c{number}" for number in range(width)]
        path = tmp_path / f"{width}.parquet"
        parquet.write_table(pa.table(dict.fromkeys(names, pa.array([0.5]))), path)
        given: dict[str, Any] = {"columns": names} if asked == "columns" else {}
        if asked == "planned":
            given = {"layout": ColumnLayout(numbers=(width,), names=tuple(names))}
        times[width] = min(time_to_open(path, given) for _ in range(5))
    assert times[8000] < 12 * times[2000]


def time_to_open(path: Path, given: dict[str, Any]) -> float:
    start = time.process_time()
    open_table(path, ReadOptions(**given))
    return time.process_time() - start
