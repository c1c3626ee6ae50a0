"""Columns of labels in two forms, which need not know the labels.

Numbers stay the arrays they are. Everything else becomes `Words`: the different values, and for each row which of them
it holds.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = [
    "LabelRows",
    "Words",
    "array_rows",
    "checked_column",
    "column_from_json",
    "is_missing",
    "list_rows",
    "no_label",
    "object_blocks",
    "object_rows",
    "text_of",
    "value_at",
]

_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class Words:
    """A column in few different values: row i holds `values[places[i]]`, or nothing where the place is -1."""

    places: NDArray[Any]
    values: tuple[Any, ...]
    tables: dict[int | str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out once for all `values`, shared by all slices."""

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: slice) -> Words:
        return Words(self.places[rows], self.values, self.tables)


LabelRows: TypeAlias = NDArray[Any] | Words
"""One label for each user: an array of numbers, true or false, or `Words`."""


def text_of(value: object) -> str | None:
    """The text that labels are compared by; None for what is missing; TypeError for what is no label.

    1, 1.0 and "1" are one text, and so are True and "true". Whitespace around text is dropped, and accents are composed
    (Unicode NFC), so that one word typed in two ways is one label.
    """
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else _decoded(value)
        return unicodedata.normalize("NFC", text).strip() or None
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, Real | Decimal):
        return _number_text(value)
    raise TypeError


def is_missing(value: object) -> bool:
    """Whether nothing is there: None, NaN, or what pandas has for them; and text of nothing but whitespace."""
    try:
        return text_of(value) is None
    except TypeError:
        return False


def _number_text(value: Real | Decimal) -> str | None:
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Decimal) and value.is_finite():  # not by way of floats, which round
        return str(int(value)) if value == value.to_integral_value() else str(value.normalize())
    number = float(value)
    if math.isnan(number):
        return None
    # Floats beyond 2^63 stand for no whole number in particular.
    return str(int(number)) if number.is_integer() and abs(number) < 2**63 else str(value)


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise TypeError from None


def value_at(rows: LabelRows, row: int) -> object:
    """The value in a row, None where it is missing."""
    if isinstance(rows, Words):
        place = int(rows.places[row])
        return None if place < 0 else rows.values[place]
    return rows[row].item()


def array_rows(values: NDArray[Any], what: str) -> LabelRows:
    """A NumPy array; not copied where it holds numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise DataError("wrong-type", f"{what}: a masked array would lose its mask; pass a list with None instead")
    if values.ndim != 1:
        raise DataError(
            "wrong-shape",
            f"{what} has shape {values.shape}, but (m,) is expected, one label for each of m users; pass one column",
        )
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind not in "OSUT":
        raise DataError("wrong-type", f"{what}: {values.dtype} values are no labels; convert them to text or integers")
    return object_rows(object_blocks(len(values), lambda a, b: values[a:b].tolist()), len(values))


def list_rows(values: Sequence[Any], what: str) -> LabelRows:
    """A plain list."""
    kinds = set(map(type, values))
    if kinds in ({int}, {bool}):
        array = np.asarray(values)
        if array.dtype.kind in "biu":  # beyond 64 bits they are objects
            return array
    return object_rows(object_blocks(len(values), lambda a, b: values[a:b]), len(values))


def object_blocks(size: int, read: Callable[[int, int], Sequence[Any]]) -> Iterable[Sequence[Any]]:
    """All rows as Python objects, a few at a time."""
    return (read(start, min(size, start + _AT_ONCE)) for start in range(0, size, _AT_ONCE))


class _Places(dict[Any, int]):
    """Numbers values in the order they are met."""

    def __missing__(self, value: object) -> int:
        self[value] = place = len(self)
        return place


@dataclass(frozen=True, slots=True, eq=False)
class _Unhashable:
    """Something that can be no label, kept until it is refused with its row."""

    value: object

    def __repr__(self) -> str:
        return repr(self.value)


def object_rows(blocks: Iterable[Sequence[Any]], size: int) -> Words:
    """Any Python objects; each different one is kept once."""
    places: NDArray[Any] = np.empty(size, np.int64)
    seen = _Places()
    start = 0
    for block in blocks:
        values = block
        if not {bool, np.bool_}.isdisjoint(map(type, values)):  # as keys, True and 1 are one
            values = [("true" if v else "false") if isinstance(v, bool | np.bool_) else v for v in values]
        here = places[start : start + len(values)]
        try:
            here[:] = np.fromiter(map(seen.__getitem__, values), np.int64, len(values))
        except TypeError:
            hashable = [_Unhashable(v) if v.__hash__ is None else v for v in values]
            here[:] = np.fromiter(map(seen.__getitem__, hashable), np.int64, len(values))
        start += len(values)
    return Words(places, tuple(seen))


def checked_column(column: object) -> str | None:
    """The name of the column that labels come from, if it has one."""
    if column is not None and not (isinstance(column, str) and column):
        raise ParameterError("wrong-type", f"column is {shown(column)}; give the name of the column of labels")
    return column


def column_from_json(rest: dict[Any, Any]) -> str | None:
    """The name in what is left of a domain's JSON, which may be nothing else."""
    if rest.keys() - {"column"} or (rest and not isinstance(rest["column"], str)):
        raise PlanError("malformed", f"a domain of labels has at most the name of their column left: {shown(rest)}")
    return rest.get("column")


def no_label(value: object, row: int, what: str) -> DataError:
    """The refusal of what can be no label at all."""
    return DataError(
        "wrong-type",
        f"{what}: row {row}: a {type(value).__name__} that is no label; labels are text, whole numbers, or true and "
        "false: convert it",
        value=shown(value),
        row=row,
    )
