"""Tables and columns of any library as Arrow, and rows of numbers read from them.

Whatever offers `__arrow_c_stream__` (Polars, PyArrow, DuckDB, pandas) becomes Arrow here and nowhere else, column by
column and without a copy where its library allows that. Columns of pandas that are NumPy arrays stay such. PyArrow is
imported when it is needed. Rows are converted as they are read, in blocks that stay in cache, so that a table is never
held a second time.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import DataError, MissingExtraError

PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""pandas keeps its row labels under such names in Arrow tables; they are no data."""

BATCH_VALUES = 1 << 22
"""How many numbers are read at a time."""

_BLOCK_VALUES = 1 << 17
_FEW_COLUMNS = 64  # more are converted at once: small blocks of many columns cost more calls than copying
_FEWEST_ROWS = 1 << 10


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table, or one by itself, each as its library has it or as Arrow; `names` where all have one."""

    names: tuple[str, ...] | None
    columns: list[Any]
    is_table: bool
    kind: str
    """What it is called, for messages."""

    def where(self, place: int) -> str:
        """A column as messages name it."""
        name = f"column {self.names[place]!r}" if self.names else f"the {type(self.columns[place]).__name__}"
        return f"arrays: {name}"


def columns_of(values: object) -> Columns | None:
    """The columns of a table or of a column of any library; None for anything else, such as arrays and lists."""
    kind = type(values).__name__
    library = library_of(values)
    if library == "pandas":
        table = hasattr(values, "columns")
        if not table and not hasattr(values, "iloc"):
            return None  # an index, or an array of pandas
        given: Any = values
        # By position, because names may be there twice.
        columns = [given.iloc[:, place] for place in range(given.shape[1])] if table else [given]
        numbered = table and hasattr(given.columns, "start")
        return Columns(None if numbered else _names([each.name for each in columns]), columns, table, kind)
    if hasattr(values, "collect") and library == "polars":
        raise DataError("no-rows", "arrays: a LazyFrame has no rows yet; pass frame.collect()")
    if not (hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__")):
        if library is None:
            return None
        raise DataError("wrong-type", f"arrays: a {kind} of {library} holds no rows; pass a table or a column")
    pa = require_arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "dtype"):
        return Columns(_names([getattr(values, "name", None)]), [values], False, kind)
    frame: Any = values if library == "polars" else pa.table(values)
    names = frame.columns if library == "polars" else frame.schema.names
    data = [place for place, name in enumerate(names) if not PANDAS_INDEX.fullmatch(name)]
    columns = frame.get_columns() if library == "polars" else frame.columns
    return Columns(_names([names[place] for place in data]), [columns[place] for place in data], True, kind)


def library_of(values: object) -> str | None:
    """Which of pandas, Polars and PyArrow a value comes from, if any."""
    names = (base.__module__.partition(".")[0] for base in type(values).__mro__)
    return next((name for name in names if name in ("pandas", "polars", "pyarrow")), None)


def require_arrow(why: str = "tables are read with PyArrow") -> Any:
    """PyArrow, or a refusal that says why it is needed and names the extra."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(
            "missing-extra", f"{why}: pip install 'shufflesum[files]', or use NumPy arrays"
        ) from None
    return pyarrow


def _names(names: Sequence[object]) -> tuple[str, ...] | None:
    return None if any(name in (None, "") for name in names) else tuple(map(str, names))


def plain(column: Any) -> Any:
    """A column as an array of NumPy where it is one already, else as an Array or ChunkedArray of Arrow."""
    if library_of(column) == "pandas":
        kind, held = column.dtype, getattr(column, "array", column)
        if getattr(kind, "kind", "O") in "biufcmM" and isinstance(getattr(kind, "subtype", kind), np.dtype):
            return np.asarray(column)  # sparse columns have a subtype of NumPy's
        return require_arrow().array(held, from_pandas=True)
    pa = require_arrow()
    arrow = column
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        arrow = column.to_arrow() if library_of(column) == "polars" else pa.chunked_array(column)
    return arrow.chunk(0) if isinstance(arrow, pa.ChunkedArray) and arrow.num_chunks == 1 else arrow


def is_arrow_number(kind: Any) -> bool:
    """Whether an Arrow type is read as numbers; all nulls are NaN."""
    from pyarrow import types

    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _floats(values: Any) -> NDArray[Any]:
    """An Arrow array of numbers in single precision where it comes so, double otherwise."""
    import pyarrow as pa

    if not pa.types.is_float32(values.type):
        # Unsafe only in that integers beyond 2**53 are rounded to the nearest float.
        values = values.cast(pa.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy())


@dataclass(frozen=True, slots=True)
class Column:
    """One number a row, or a list of `width` of them; `values` are NumPy's or Arrow's."""

    where: str
    values: Any
    single: bool
    width: int | None = None

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Some of the rows, nulls as NaN; a null list is a row of them."""
        if isinstance(self.values, np.ndarray):
            return self.values[start:stop]
        part = self.values.slice(start, stop - start)
        if self.width is None:
            return _floats(part)
        if hasattr(part, "combine_chunks"):
            part = part.combine_chunks()
        if not part.null_count:
            return _floats(part.flatten()).reshape(-1, self.width)
        present = _floats(part.drop_null().flatten()).reshape(-1, self.width)
        block: NDArray[Any] = np.full((len(part), self.width), np.nan, present.dtype)
        block[part.is_valid().to_numpy(zero_copy_only=False)] = present
        return block


def number_column(column: Any, where: str, length: int | None = None, first_row: int = 0) -> Column:
    """A column of numbers, or of equally long lists of them; anything else is refused.

    `length` is that of lists in rows before `first_row`, where these are.
    """
    try:
        values = plain(column)
    except (ValueError, TypeError, OverflowError, NotImplementedError):  # Python objects that Arrow has no type for
        values = _python_numbers(column, where)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            _refuse(column, where, values.dtype)
        return _held(values, where)
    from pyarrow import types

    inner = values.type.value_type if is_list(values.type) else values.type
    if not is_arrow_number(inner):
        _refuse(column, where, getattr(column, "dtype", values.type))
    width = _common_length(where, values, length, first_row) if is_list(values.type) else None
    if width is None:
        with contextlib.suppress(ValueError, TypeError):  # several chunks, nulls, or no numbers to NumPy
            return _held(values.to_numpy(zero_copy_only=True), where)
    return Column(where, values, bool(types.is_float32(inner) or types.is_float16(inner)), width)


def _held(values: NDArray[Any], where: str) -> Column:
    single = values.dtype.kind == "f" and values.dtype.itemsize <= 4
    return Column(where, values, single, None if values.ndim == 1 else values.shape[1])


def _common_length(where: str, lists: Any, length: int | None = None, first_row: int = 0) -> int:
    """The length that all lists share, with those before the first row if that is known; null ones have any."""
    from pyarrow import compute, types

    if types.is_fixed_size_list(lists.type):
        lengths = np.array([lists.type.list_size])
    else:
        lengths = compute.list_value_length(lists).fill_null(-1).to_numpy(zero_copy_only=False)
    present = np.flatnonzero(lengths >= 0)
    if length is None and not present.size:
        raise DataError("missing-value", f"{where} holds nothing but nulls, so nobody can say how long its lists are")
    others = "those before have"
    if length is None:
        length, others = int(lengths[present[0]]), f"row {present[0]} has"
    wrong = present[lengths[present] != length]
    if wrong.size:
        row = first_row + int(wrong[0])
        raise DataError(
            "wrong-shape",
            f"{where}, row {row} (counted from 0) has {lengths[wrong[0]]} values, {others} {length}; all lists "
            "must be equally long",
            row=row,
        )
    if length == 0:
        raise DataError("wrong-shape", f"{where} holds empty lists; each must hold one user's numbers")
    return length


def _python_numbers(column: Any, where: str) -> NDArray[np.float64]:
    """Python's numbers of several types, such as fractions among integers; text that looks like one is none."""
    if str(getattr(column, "dtype", "")) != "object" or _odd_one(column) is not None:
        _refuse(column, where, getattr(column, "dtype", ""))
    try:
        return np.array([np.nan if _is_gap(item) else float(item) for item in column])
    except (ValueError, TypeError, OverflowError):
        raise DataError("not-numbers", f"{where} holds a number that no float can hold; scale it") from None


def _odd_one(column: Any) -> tuple[int, Any] | None:
    """The first of Python's objects that is no number; where the first is a list, the first that is no list of them."""
    filled = [(row, item) for row, item in enumerate(column) if not _is_gap(item)]
    lists = bool(filled) and isinstance(filled[0][1], _LISTS)

    def fits(item: Any) -> bool:
        if not lists:
            return isinstance(item, _NUMBERS)
        if isinstance(item, np.ndarray):
            return item.ndim == 1 and item.dtype.kind in "biuf"
        return isinstance(item, _LISTS) and all(isinstance(each, _NUMBERS) or _is_gap(each) for each in item)

    return next(((row, item) for row, item in filled if not fits(item)), None)


_NUMBERS, _LISTS = (Real, Decimal, np.bool_), (list, tuple, np.ndarray)


def _is_gap(item: object) -> bool:
    return type(item).__name__ in ("NoneType", "NAType", "NaTType")


def _refuse(column: Any, where: str, kind: object) -> NoReturn:
    """Say what a column is that holds no numbers, and where, if it holds Python's objects."""
    if str(kind) == "object" and (found := _odd_one(column)) is not None:
        row, item = found
        array = isinstance(item, np.ndarray)
        where = f"{where}, row {row} (counted from 0)"
        kind = f"{item.ndim}-dimensional {item.dtype} array" if array else type(item).__name__
    raise DataError(
        "not-numbers",
        f"{where} has type {kind}, and is not all numbers or lists of numbers; leave it out "
        "(columns=[...] names the columns of numbers), convert it, or count what it holds: pass it alone with "
        "domain=shufflesum.Categories([...])",
    )


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
    """The rows of a table or column of any library; None for anything else.

    A table holds columns of numbers, or one column of equally long lists. Nulls are NaN, a null list is a row of them.
    """
    found = columns_of(values)
    if found is None:
        return None
    if not found.columns or len(found.columns[0]) == 0:
        raise DataError(
            "no-rows",
            f"arrays: the {found.kind} has no {'rows' if found.columns else 'columns'}; one row of numbers for each "
            "of at least one user is expected",
        )
    rows = len(found.columns[0])
    columns = tuple(number_column(column, found.where(place)) for place, column in enumerate(found.columns))
    lists = [column for column in columns if column.width is not None]
    if lists and len(columns) > 1:
        raise DataError(
            "wrong-shape",
            f"{lists[0].where} holds lists and there are {len(columns) - 1} other columns; "
            "pass it alone, or leave it out",
        )
    shape = (rows, lists[0].width or 0) if lists else (rows, len(columns)) if found.is_table else (rows,)
    table = FrameRows(columns, shape, names=None if lists else found.names)
    return table if len(columns) <= _FEW_COLUMNS else replace(table, columns=(_held(table[:], "all columns"),))


def entry_names(row: object) -> tuple[str, ...] | None:
    """What the entries of one user's row are called, if it says so: a row of a pandas table, or a named tuple."""
    named = getattr(row, "_fields", None)
    if named is None and library_of(row) == "pandas":
        named = getattr(row, "index", None)
    names = () if named is None else tuple(named)
    return names if names and all(isinstance(name, str) for name in names) else None


def split_column(values: Any, name: str) -> tuple[Any, Any]:
    """One column of a table, and the table without it."""
    found = columns_of(values)
    if found is None or not found.is_table or found.names is None or name not in found.names:
        raise DataError(
            "unknown-column",
            f"arrays: there is no column {name!r} to group by; pass a table that has one, or one label for each row",
        )
    others = [each for each in found.names if each != name]
    return found.columns[found.names.index(name)], select_columns(values, others)


def aligned(series: Any, table: Any, what: str) -> Any:
    """A column of pandas in the order of a table's rows, by their indexes; refused where it has not all of its rows.

    What has no index is taken row by row.
    """
    both = library_of(series) == library_of(table) == "pandas" and hasattr(series, "index") and hasattr(table, "index")
    if not both or series.index.equals(table.index):
        return series
    index, rows = series.index, table.index
    if index.is_unique and rows.is_unique and rows.isin(index).all():
        return series.loc[rows]
    raise DataError(
        "index-mismatch",
        f"{what} has {_described(index)}, the data {_described(rows)}, and not each row of the data is found once in "
        f"{what}; give both the same index, or take the rows in their order: {what}.to_numpy()",
        value=f"{list(index[:3])} and {list(rows[:3])}",
    )


def by_name(values: Any, names: Sequence[str], what: str) -> Any:
    """A column of pandas whose index are names, in the order of these; anything else as it is."""
    index = getattr(values, "index", None) if library_of(values) == "pandas" else None
    if index is None or hasattr(index, "start"):
        return values
    places = {str(name): place for place, name in enumerate(index)}
    if len(places) < len(index) or places.keys() != set(names):
        raise DataError(
            "index-mismatch",
            f"{what} has {_described(index)}, {', '.join(list(places)[:12])}, but the estimate is of "
            f"{', '.join(names[:12])}; give one value for each of these, or a list in their order: {what}.to_list()",
        )
    return values.to_numpy()[[places[name] for name in names]]


def _described(index: Any) -> str:
    named = "" if index.name is None else f" {index.name!r}"
    return f"the index{named} ({type(index).__name__}, {len(index):,} rows)"


def select_columns(values: Any, names: Sequence[str]) -> Any:
    """A table with these of its columns, in this order."""
    if library_of(values) == "pandas":
        return values[list(names)]
    return (values if library_of(values) == "polars" else require_arrow().table(values)).select(list(names))
