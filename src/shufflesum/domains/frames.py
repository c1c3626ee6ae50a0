"""Tables of pandas, Polars and PyArrow as rows of numbers, and their columns.

None of the three is imported unless the table comes from it. Rows are converted as they are read, in blocks that stay
in cache, so that a table is never held a second time.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import DataError

_OBJECTS_AT_ONCE = 1 << 12
_NUMBERS = (Real, Decimal, np.bool_)


@dataclass(frozen=True, slots=True)
class Column:
    """One number a row, or a list of `width` of them; `read(start, stop)` gives those rows, nulls as NaN."""

    where: str
    read: Callable[[int, int], NDArray[Any]]
    single: bool
    width: int | None = None


def is_arrow_number(kind: Any) -> bool:
    """Whether an Arrow type is read as numbers; all nulls are NaN."""
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_arrow_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of numbers."""
    from pyarrow import types

    tests = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    return any(test(kind) for test in tests) and is_arrow_number(kind.value_type)


def arrow_floats(values: Any) -> NDArray[Any]:
    """An Arrow array of numbers in single precision where it comes so, double otherwise."""
    import pyarrow as pa

    if not pa.types.is_float32(values.type):
        # Unsafe only in that integers beyond 2**53 are rounded to the nearest float.
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False))


def arrow_lists(lists: Any, width: int) -> NDArray[Any]:
    """An Arrow array of lists of `width` numbers as (rows, width); a null list is a row of NaN."""
    if not lists.null_count:
        return arrow_floats(lists.flatten()).reshape(-1, width)
    present = arrow_floats(lists.drop_null().flatten()).reshape(-1, width)
    return _spread(present, lists.is_valid().to_numpy(zero_copy_only=False))


def arrow_column(column: Any, where: str) -> Column:
    """A PyArrow Array or ChunkedArray."""
    import pyarrow as pa
    from pyarrow import compute

    def is_single(kind: Any) -> bool:
        return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))

    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        column = column.chunk(0)
    if is_arrow_number(column.type):
        with contextlib.suppress(pa.ArrowException, ValueError):  # several chunks, nulls, or no numbers to NumPy
            return held_column(column.to_numpy(zero_copy_only=True), where)
        return Column(where, lambda a, b: arrow_floats(column.slice(a, b - a)), is_single(column.type))
    if not is_arrow_list(column.type):
        _refuse(where, column.type)
    if pa.types.is_fixed_size_list(column.type):
        lengths = np.array([column.type.list_size])
    else:
        lengths = compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False)
    width = _common_length(where, lengths)

    def read(start: int, stop: int) -> NDArray[Any]:
        lists = column.slice(start, stop - start)
        return arrow_lists(lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists, width)

    return Column(where, read, is_single(column.type.value_type), width)


def polars_column(column: Any, where: str) -> Column:
    """A Polars Series."""
    import polars

    lists = isinstance(column.dtype, polars.List | polars.Array)
    kind = column.dtype.inner if lists else column.dtype
    if not (kind.is_numeric() or kind in (polars.Boolean, polars.Null)):
        _refuse(where, column.dtype)
    single = kind in (polars.Float32, getattr(polars, "Float16", polars.Float32))
    floats = polars.Float32 if single else polars.Float64
    width = None
    if isinstance(column.dtype, polars.Array):
        width = _common_length(where, np.array([column.dtype.size]))
    elif lists:
        width = _common_length(where, column.list.len().cast(polars.Int64).fill_null(-1).to_numpy())
    with contextlib.suppress(RuntimeError):  # several chunks, nulls, or no array to NumPy
        if not isinstance(column.dtype, polars.List):
            return held_column(column.to_numpy(allow_copy=False), where)
    if width is None:
        return Column(where, lambda a, b: column.slice(a, b - a).cast(floats).to_numpy(), single)

    def read(start: int, stop: int) -> NDArray[Any]:
        part = column.slice(start, stop - start)
        present = part.drop_nulls().explode().cast(floats).to_numpy().reshape(-1, width)
        return present if not part.null_count() else _spread(present, part.is_not_null().to_numpy())

    return Column(where, read, single, width)


def pandas_column(column: Any, where: str) -> Column:
    """A pandas Series."""
    kind = column.dtype
    if hasattr(kind, "pyarrow_dtype"):
        return arrow_column(column.array.__arrow_array__(), where)
    single = kind.kind == "f" and getattr(kind, "itemsize", 8) <= 4
    if isinstance(kind, np.dtype) and kind.kind in "biufO":
        return (_object_column if kind.kind == "O" else held_column)(column.to_numpy(), where)
    if kind.kind not in "biuf":  # categories are O, dates M
        _refuse(where, kind)
    nullable = column.array
    floats = np.float32 if single else np.float64
    return Column(where, lambda a, b: nullable[a:b].to_numpy(dtype=floats, na_value=np.nan), single)


def _object_column(values: NDArray[Any], where: str) -> Column:
    """Any Python objects, looked at one by one: numbers, or lists, tuples or arrays of them."""
    import pandas

    rows = np.flatnonzero(~pandas.isna(values))
    if not rows.size or not isinstance(values[rows[0]], list | tuple | np.ndarray):
        return held_column(_object_numbers(values, where, np.arange(len(values))), where)
    for row in rows:
        if not isinstance(values[row], list | tuple | np.ndarray) or getattr(values[row], "ndim", 1) != 1:
            _refuse(f"{where}, {_row(row)}", _kind_of(values[row]))
    lengths = np.full(len(values), -1)
    lengths[rows] = np.fromiter(map(len, values[rows]), np.int64, rows.size)
    width = _common_length(where, lengths)
    single = all(isinstance(item, np.ndarray) and item.dtype in (np.float16, np.float32) for item in values[rows])
    held = np.full((len(values), width), np.nan, np.float32 if single else np.float64)
    for start in range(0, rows.size, _OBJECTS_AT_ONCE):
        here = rows[start : start + _OBJECTS_AT_ONCE]
        block = _as_block(values[here].tolist(), 2)
        if block is None:
            row = next((row for row in here if _as_block(values[row], 1) is None), here[0])
            _refuse(f"{where}, {_row(row)}", f"{_kind_of(values[row])} of other things than numbers")
        if block.dtype.kind == "O":
            block = _object_numbers(block.reshape(-1), where, here).reshape(block.shape)
        held[here] = block
    return held_column(held, where)


def _as_block(items: Any, axes: int) -> NDArray[Any] | None:
    """Numbers, or objects that may be numbers; None where there are more lists inside, text or dates."""
    try:
        block = np.array(items)
    except (ValueError, TypeError):
        return None
    return block if block.ndim == axes and block.dtype.kind in "biufO" else None


def _object_numbers(values: NDArray[Any], where: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Python's numbers as floats, what stands for missing as NaN; text that looks like a number is none."""
    import pandas

    present = np.flatnonzero(~pandas.isna(values))
    if not all(issubclass(kind, _NUMBERS) for kind in set(map(type, values[present]))):
        bad = next(i for i in present if not isinstance(values[i], _NUMBERS))
        _refuse(f"{where}, {_row(rows[bad * len(rows) // len(values)])}", _kind_of(values[bad]))
    floats = np.full(len(values), np.nan)
    try:
        floats[present] = values[present].astype(np.float64)
    except (OverflowError, ValueError, TypeError) as problem:
        raise DataError(
            "not-numbers", f"arrays: {where} holds a number that no float can hold; scale it", value=str(problem)
        ) from None
    return floats


def _kind_of(item: object) -> str:
    return f"{item.ndim}-dimensional {item.dtype} array" if isinstance(item, np.ndarray) else type(item).__name__


def _row(row: object) -> str:
    return f"row {row} (counted from 0)"


def held_column(values: NDArray[Any], where: str) -> Column:
    """What is an array already."""
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return Column(where, lambda a, b: values[a:b], single, None if values.ndim == 1 else values.shape[1])


def _spread(present: NDArray[Any], valid: NDArray[np.bool_]) -> NDArray[Any]:
    block: NDArray[Any] = np.full((len(valid), present.shape[1]), np.nan, present.dtype)
    block[valid] = present
    return block


def _common_length(where: str, lengths: NDArray[np.integer[Any]]) -> int:
    """The length all lists share; -1 stands for a null."""
    present = np.flatnonzero(lengths >= 0)
    if not present.size:
        raise DataError(
            "missing-value", f"arrays: {where} holds nothing but nulls, so nobody can say how long its lists are"
        )
    length = int(lengths[present[0]])
    wrong = present[lengths[present] != length]
    if wrong.size:
        raise DataError(
            "wrong-shape",
            f"arrays: {where}, {_row(wrong[0])} has {lengths[wrong[0]]} values, row {present[0]} has {length}; "
            "all lists must be equally long",
        )
    if length == 0:
        raise DataError("wrong-shape", f"arrays: {where} holds empty lists; each must hold one user's numbers")
    return length


def _refuse(where: str, kind: object) -> NoReturn:
    raise DataError(
        "not-numbers",
        f"arrays: {where} has type {kind}; allowed are numbers and lists of numbers: convert it, "
        "or pass only the columns that are to be aggregated",
    )


PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""pandas keeps its row labels under such names in Arrow tables; they are no data."""

BATCH_VALUES = 1 << 22
"""How many numbers are read at a time."""

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
    size = max(1, BATCH_VALUES // max(1, entries))
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
