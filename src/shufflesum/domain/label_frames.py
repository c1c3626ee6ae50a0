"""Columns of labels as callers hold them: plain lists, NumPy, and columns of pandas, Polars and PyArrow.

None of the three is imported unless the column comes from it. Dictionaries and categories stay such: only their
different values are ever looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.domain.frames import library_of, table_columns
from shufflesum.domain.label_columns import LabelRows, Words, array_rows, list_rows, object_blocks, object_rows
from shufflesum.errors import DataError

__all__ = ["Lists", "frame_lists", "label_rows"]

Lists: TypeAlias = tuple[NDArray[np.int64], LabelRows]
"""How many labels each row has, -1 where the list is missing, and the labels of all rows one after the other."""


def label_rows(values: object, what: str = "labels") -> LabelRows:
    """One label for each of at least one user; arrays of numbers are not copied."""
    rows = _column(values, what)
    if len(rows) == 0:
        raise DataError("no-rows", f"{what}: no rows; pass one label for each of at least one user")
    return rows


def frame_lists(column: Any, what: str) -> Lists | None:
    """The lists in a column of Polars or PyArrow, or of Arrow data in pandas; None for all else."""
    library = library_of(column)
    if library == "pandas" and hasattr(column.dtype, "pyarrow_dtype"):
        return _arrow_lists(column.array.__arrow_array__(), what)
    if library == "polars":
        return _polars_lists(column, what)
    return _arrow_lists(column, what) if library == "pyarrow" else None


def _column(values: object, what: str) -> LabelRows:
    if isinstance(values, Words):
        return values
    if isinstance(values, np.ndarray):
        return array_rows(values, what)
    if isinstance(values, list | tuple | range):
        return list_rows(values, what)
    table = table_columns(values)
    if table is not None:
        if len(table[1]) != 1:
            raise DataError(
                "wrong-shape", f"{what}: a table of {len(table[1])} columns; pass the one that holds labels"
            )
        return _column(table[1][0], what)
    library = library_of(values)
    if library is None:
        raise DataError(
            "wrong-type",
            f"{what}: {type(values).__name__} is no column of labels; pass a list, an array or a table's column",
            value=shown(values),
        )
    return _LIBRARIES[library](values, what)


def _pandas_labels(column: Any, what: str) -> LabelRows:
    import pandas

    kind = column.dtype
    if isinstance(kind, pandas.CategoricalDtype):
        codes = column.cat.codes if isinstance(column, pandas.Series) else column.codes
        return Words(np.asarray(codes), tuple(kind.categories.tolist()))
    if isinstance(kind, np.dtype):
        return array_rows(column.to_numpy(), what)
    array = column if isinstance(column, pandas.api.extensions.ExtensionArray) else column.array
    if hasattr(kind, "pyarrow_dtype") or getattr(kind, "storage", "") == "pyarrow":
        return _arrow_labels(array.__arrow_array__(), what)
    if kind.kind in "biuf" and not array.isna().any():
        return array_rows(array.to_numpy(dtype=kind.numpy_dtype), what)
    if kind.kind not in "biufO":
        _refuse(kind, what)
    return array_rows(array.to_numpy(dtype=object), what)


def _polars_labels(column: Any, what: str) -> LabelRows:
    import polars

    kind = column.dtype
    if isinstance(kind, polars.Categorical | polars.Enum):
        different = column.drop_nulls().unique()
        physical = different.to_physical().to_numpy().astype(np.int64)
        places = np.full(int(physical.max(initial=-1)) + 2, -1)  # the last is where -1 leads to
        places[physical] = np.arange(len(physical))
        codes = column.to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        return Words(places[codes], tuple(different.cast(polars.String).to_list()))
    if kind.is_float() or ((kind.is_integer() or kind == polars.Boolean) and not column.null_count()):
        return array_rows(column.to_numpy(), what)
    if not (kind.is_integer() or kind.is_decimal() or kind in (polars.Boolean, polars.String, polars.Null)):
        _refuse(kind, what)
    return object_rows(object_blocks(len(column), lambda a, b: column.slice(a, b - a).to_list()), len(column))


def _arrow_labels(column: Any, what: str) -> LabelRows:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_null(kind):
        return Words(np.full(len(column), -1), ())
    if pa.types.is_dictionary(kind):
        return _arrow_words(column)
    if pa.types.is_floating(kind):
        return array_rows(_to_numpy(column), what)
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if whole and not column.null_count:
        return array_rows(_to_numpy(column), what)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        column = column.cast(pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary())
    text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if not (whole or pa.types.is_decimal(kind) or any(test(column.type) for test in text)):
        _refuse(kind, what)
    return _arrow_words(column.dictionary_encode())


def _arrow_words(column: Any) -> Words:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of no chunks, or too large for one array
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(-1)
    values = column.dictionary.to_pylist()
    return Words(indices.to_numpy(zero_copy_only=False), tuple(values))


def _to_numpy(column: Any) -> NDArray[Any]:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return np.asarray(
            column.chunk(0).to_numpy(zero_copy_only=False) if column.num_chunks == 1 else column.to_numpy()
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _arrow_lists(column: Any, what: str) -> Lists | None:
    import pyarrow as pa
    from pyarrow import compute

    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(column.type) for test in tests):
        return None
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    sizes = compute.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = column.drop_null().flatten() if column.null_count else column.flatten()
    return sizes, _arrow_labels(flat, what)


def _polars_lists(column: Any, what: str) -> Lists | None:
    import polars

    if isinstance(column.dtype, polars.Array):
        column = column.arr.to_list()
    if not isinstance(column.dtype, polars.List):
        return None
    sizes = column.list.len().cast(polars.Int64).fill_null(-1)
    return sizes.to_numpy(), _polars_labels(column.filter(sizes > 0).explode(), what)


def _refuse(kind: object, what: str) -> NoReturn:
    raise DataError("wrong-type", f"{what}: {kind} values are no labels; convert them to text or whole numbers")


_LIBRARIES: dict[str, Callable[[Any, str], LabelRows]] = {
    "pandas": _pandas_labels,
    "polars": _polars_labels,
    "pyarrow": _arrow_labels,
}
