"""Columns of labels in files: which types hold some, and cells that hold several."""

from __future__ import annotations

from typing import Any

import numpy as np

from shufflesum.errors import FileError

__all__ = ["SEPARATOR", "as_labels", "check_label_type", "is_list", "is_text"]

SEPARATOR = ";"
"""What separates the labels in one cell of text."""

_AROUND = f"{SEPARATOR} \t"
_BETWEEN = rf"\s*{SEPARATOR}[\s{SEPARATOR}]*"


def check_label_type(where: str, kind: Any, *, lists: bool) -> None:
    """Refuse a column whose type holds no labels, or lists of them where one is meant."""
    import pyarrow as pa

    held = kind
    if lists and is_list(kind):
        held = kind.value_type
    elif lists and not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise FileError(
            "wrong-type",
            f"{where} has type {kind}; several labels of a user are a list, or text with {SEPARATOR!r} between them",
        )
    if pa.types.is_dictionary(held):
        held = held.value_type
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not (is_text(held) or any(test(held) for test in tests)):
        raise FileError(
            "wrong-type",
            f"{where} has type {kind}; labels are text, whole numbers, or true and false: convert it, or name another "
            "column",
        )


def as_labels(column: Any, *, lists: bool) -> Any:
    """A column (an Arrow array) as it is, but for cells of text with several labels, which become lists.

    Separators at either end, and several in a row, are no labels; an empty cell is a list of none.
    """
    import pyarrow as pa
    from pyarrow import compute

    if not lists or is_list(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts = compute.utf8_trim(column.cast(pa.large_string()), _AROUND).fill_null("")
    filled = compute.not_equal(texts, "")
    split = compute.split_pattern_regex(texts.filter(filled), _BETWEEN)
    sizes = np.zeros(len(column), np.int64)
    sizes[filled.to_numpy(zero_copy_only=False)] = compute.list_value_length(split).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return pa.LargeListArray.from_arrays(pa.array(starts, pa.int64()), split.flatten())


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is of lists."""
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is plain text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
