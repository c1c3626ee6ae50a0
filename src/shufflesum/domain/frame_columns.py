"""One column of a table, of pandas, Polars or PyArrow, as numbers or equally long lists of numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import DataError

__all__ = [
    "Column",
    "arrow_column",
    "arrow_floats",
    "arrow_lists",
    "held_column",
    "is_arrow_list",
    "is_arrow_number",
    "pandas_column",
    "polars_column",
]

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
            _refuse(f"{where}, {_row(row)}", _described(values[row]))
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
            _refuse(f"{where}, {_row(row)}", f"{_described(values[row])} of other things than numbers")
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
        _refuse(f"{where}, {_row(rows[bad * len(rows) // len(values)])}", _described(values[bad]))
    floats = np.full(len(values), np.nan)
    try:
        floats[present] = values[present].astype(np.float64)
    except (OverflowError, ValueError, TypeError) as problem:
        raise DataError(
            "not-numbers", f"arrays: {where} holds a number that no float can hold; scale it", value=str(problem)
        ) from None
    return floats


def _described(item: object) -> str:
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
