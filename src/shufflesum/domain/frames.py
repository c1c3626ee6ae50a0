"""Tables of pandas, Polars and PyArrow as rows of numbers.

None of the three is imported unless the table comes from it. Rows are converted as they are read, in blocks that stay
in cache, so that a table is never held a second time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain.frame_columns import Column, arrow_column, held_column, pandas_column, polars_column
from shufflesum.errors import DataError

__all__ = [
    "PANDAS_INDEX",
    "FrameRows",
    "batches_of",
    "entry_names",
    "frame_rows",
    "library_of",
    "split_column",
    "table_columns",
]

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""pandas keeps its row labels under such names in Arrow tables; they are no data."""

_BATCH_VALUES = 1 << 22
_BLOCK_VALUES = 1 << 17
_FEW_COLUMNS = 64  # more are converted at once: small blocks of many columns cost more calls than copying
_FEWEST_ROWS = 1 << 10


@dataclass(frozen=True, slots=True)
class FrameRows:
    """The rows of a table as an array of `shape`, converted when they are read; like a memory-mapped array."""

    columns: tuple[Column, ...]
    shape: tuple[int, ...]
    first: int = 0
    names: tuple[str, ...] | None = None
    """What the columns are called; None for lists, whose entries have no names, and where nobody named them."""

    @property
    def ndim(self) -> int:
        """Number of axes, users included."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Single precision where every column is, double otherwise."""
        return np.dtype(np.float32 if all(column.single for column in self.columns) else np.float64)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("rows of a table are read in order: give start:stop")
        width = math.prod(self.shape[1:])
        block: NDArray[Any] = np.empty((max(0, stop - start), width), self.dtype)
        # In cache where that does not take too many calls; never more than a small part of the whole.
        rows_at_once = max(1, min(len(block), _BLOCK_VALUES // width), min(_FEWEST_ROWS, len(block) // 16))
        # Columns are gathered first and turned then, which is twice as fast as writing each into its place.
        columns: NDArray[Any] = np.empty((len(self.columns), rows_at_once), self.dtype)
        with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
            for low in range(start, stop, rows_at_once):
                high = min(stop, low + rows_at_once)
                here = block[low - start : high - start]
                for column, values in zip(self.columns, columns[:, : len(here)], strict=True):
                    target = values if column.width is None else here
                    target[...] = column.read(self.first + low, self.first + high)
                if self.columns[0].width is None:
                    here[...] = columns[:, : len(here)].T
        return block.reshape(-1, *self.shape[1:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def part(self, start: int, stop: int) -> FrameRows:
        """Some of the rows, not converted yet."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return replace(self, shape=(stop - start, *self.shape[1:]), first=self.first + start)

    def fitted(self, shape: tuple[int, ...]) -> FrameRows:
        """Each row in the order of its entries as an array of `shape`, if it has as many numbers; else unchanged."""
        if math.prod(shape) != math.prod(self.shape[1:]):
            return self
        return replace(self, shape=(len(self), *shape))


def batches_of(rows: Any, entries: int) -> Iterator[tuple[int, Any]]:
    """Rows of so many entries in batches, each after the number of its first row; of a table not converted yet."""
    size = max(1, _BATCH_VALUES // max(1, entries))
    for start in range(0, len(rows), size):
        yield start, rows.part(start, start + size) if isinstance(rows, FrameRows) else rows[start : start + size]


def frame_rows(values: object) -> FrameRows | None:
    """The rows of a table or column of pandas, Polars or PyArrow; None for anything else.

    A table holds columns of numbers, or one column of equally long lists. Nulls are NaN, a null list is a row of them.
    """
    library = library_of(values)
    opened = None if library is None else _LIBRARIES[library](values)
    if opened is None:
        return None
    named, as_column, is_table = opened
    if not named or len(named[0][1]) == 0:
        raise DataError(
            "no-rows",
            f"arrays: the {type(values).__name__} has no {'rows' if named else 'columns'}; one row of numbers for each "
            "of at least one user is expected",
        )
    rows = len(named[0][1])
    columns = tuple(as_column(column, _described(name, column)) for name, column in named)
    lists = [column for column in columns if column.width is not None]
    if lists and len(columns) > 1:
        raise DataError(
            "wrong-shape",
            f"arrays: {lists[0].where} holds lists and there are {len(columns) - 1} other columns; "
            "pass it alone, or leave it out",
        )
    shape = (rows, lists[0].width or 0) if lists else (rows, len(columns)) if is_table else (rows,)
    table = FrameRows(columns, shape, names=None if lists else _names(values, [name for name, _ in named]))
    return table if len(columns) <= _FEW_COLUMNS else replace(table, columns=(held_column(table[:], "all columns"),))


def library_of(values: object) -> Literal["pandas", "polars", "pyarrow"] | None:
    """Which of the three libraries a value comes from, if any."""
    names = (base.__module__.partition(".")[0] for base in type(values).__mro__)
    return next((library for name in names for library in _LIBRARIES if library == name), None)


def entry_names(row: object) -> tuple[str, ...] | None:
    """What the entries of one user's row are called, if it says so: a row of a pandas table, or a named tuple."""
    named = getattr(row, "_fields", None)
    if named is None and library_of(row) == "pandas":
        named = getattr(row, "index", None)
    names = () if named is None else tuple(named)
    return names if names and all(isinstance(name, str) for name in names) else None


def table_columns(values: object) -> tuple[tuple[str, ...] | None, list[Any]] | None:
    """The names and columns of a table of one of the three libraries, None for all else, single columns among it."""
    library = library_of(values)
    opened = None if library is None else _LIBRARIES[library](values)
    if opened is None or not opened[2]:
        return None
    names, columns = [name for name, _ in opened[0]], [column for _, column in opened[0]]
    return _names(values, names), columns


def split_column(values: Any, name: str) -> tuple[Any, Any]:
    """One column of a table, and the table without it."""
    library = library_of(values)
    found = table_columns(values)
    if library is None or found is None or found[0] is None or name not in found[0]:
        raise DataError(
            "unknown-column",
            f"arrays: there is no column {name!r} to group by; pass a table that has one, or one label for each row",
        )
    column = values.column(name) if library == "pyarrow" else values[name]
    if library == "pandas":
        return column, values.drop(columns=[name])
    return column, values.drop(name) if library == "polars" else values.drop_columns([name])


_Opened = tuple[list[tuple[object, Any]], Callable[[Any, str], Column], bool]
"""Columns with their names, how to read one, and whether they are a table rather than a column by itself."""


def _open_pandas(values: Any) -> _Opened | None:
    import pandas

    if isinstance(values, pandas.DataFrame):
        # By position, because names may be there twice.
        return [(name, values.iloc[:, j]) for j, name in enumerate(values.columns)], pandas_column, True
    return ([(values.name, values)], pandas_column, False) if isinstance(values, pandas.Series) else None


def _open_polars(values: Any) -> _Opened:
    import polars

    if isinstance(values, polars.LazyFrame):
        raise DataError("no-rows", "arrays: a LazyFrame has no rows yet; pass frame.collect()")
    if isinstance(values, polars.DataFrame):
        return _data(zip(values.columns, values.get_columns(), strict=True)), polars_column, True
    if isinstance(values, polars.Series):
        return [(values.name, values)], polars_column, False
    raise DataError("no-rows", f"arrays: a Polars {type(values).__name__} holds no rows; pass a DataFrame or a Series")


def _open_arrow(values: Any) -> _Opened:
    import pyarrow as pa

    if isinstance(values, pa.Table | pa.RecordBatch):
        return _data(zip(values.schema.names, values.columns, strict=True)), arrow_column, True
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return [(None, values)], arrow_column, False
    raise DataError(
        "wrong-type",
        f"arrays: a PyArrow {type(values).__name__} is not read; pass a Table (reader.read_all(), dataset.to_table()), "
        "a RecordBatch, an Array or a ChunkedArray",
    )


_LIBRARIES: dict[Literal["pandas", "polars", "pyarrow"], Callable[[Any], _Opened | None]] = {
    "pandas": _open_pandas,
    "polars": _open_polars,
    "pyarrow": _open_arrow,
}


def _data(columns: Iterable[tuple[str, Any]]) -> list[tuple[object, Any]]:
    return [(name, column) for name, column in columns if not PANDAS_INDEX.fullmatch(name)]


def _described(name: object, column: Any) -> str:
    return f"the {type(column).__name__}" if name in (None, "") else f"column {name!r}"


def _names(values: Any, names: list[object]) -> tuple[str, ...] | None:
    """As text; a column by itself may have none, and columns that pandas numbered have none."""
    numbered = hasattr(getattr(values, "columns", None), "start")
    return None if numbered or any(name in (None, "") for name in names) else tuple(map(str, names))
