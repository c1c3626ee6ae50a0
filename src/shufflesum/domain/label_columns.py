"""Columns of labels, of NumPy, pandas, Polars, PyArrow or plain lists, brought to two forms without knowing the labels.

Numbers stay the arrays they are. Everything else becomes `Words`: the different values, and for each row which of them
it holds. None of the three libraries is imported unless the column comes from it.
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

from shufflesum.errors import DataError

__all__ = ["LabelRows", "Words", "label_rows", "no_label", "object_rows", "shown", "text_of", "value_at"]

_AT_ONCE = 1 << 16
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Words:
    """A column in few different values: row i holds `values[places[i]]`, or nothing where the place is -1."""

    places: NDArray[Any]
    values: tuple[Any, ...]
    tables: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)
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
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real | Decimal):
        number = float(value)
        if math.isnan(number):
            return None
        # Beyond 2^63 no whole number of a column can be meant; Python's own text of it then has an exponent.
        return str(int(number)) if number.is_integer() and abs(number) < 2**63 else str(value)
    raise TypeError


def _decoded(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise TypeError from None


def shown(value: object) -> str:
    """A value as messages name it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def value_at(rows: LabelRows, row: int) -> object:
    """The value in a row, None where it is missing."""
    if isinstance(rows, Words):
        place = int(rows.places[row])
        return None if place < 0 else rows.values[place]
    return rows[row].item()


def label_rows(values: object, what: str = "labels") -> LabelRows:
    """One label for each of at least one user; arrays of numbers are not copied."""
    rows = _opened(values, what)
    if len(rows) == 0:
        raise DataError("no-rows", f"{what}: no rows; pass one label for each of at least one user")
    return rows


def _opened(values: object, what: str) -> LabelRows:
    if isinstance(values, Words):
        return values
    if isinstance(values, np.ndarray):
        return _array_rows(values, what)
    if isinstance(values, list | tuple | range):
        return _list_rows(values, what)
    for base in type(values).__mro__:
        library = base.__module__.partition(".")[0]
        if library in _LIBRARIES:
            return _LIBRARIES[library](values, what)
    raise DataError(
        "wrong-type", f"{what}: {shown(values)} is no column of labels; pass a list, an array or a column of a table"
    )


def _array_rows(values: NDArray[Any], what: str) -> LabelRows:
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
    return object_rows((values[a : a + _AT_ONCE].tolist() for a in range(0, len(values), _AT_ONCE)), len(values), what)


def _list_rows(values: Sequence[Any], what: str) -> LabelRows:
    kinds = set(map(type, values))
    if kinds in ({int}, {bool}):
        array = np.asarray(values)
        if array.dtype.kind in "biu":  # beyond 64 bits they are objects
            return array
    return object_rows((values[a : a + _AT_ONCE] for a in range(0, len(values), _AT_ONCE)), len(values), what)


class _Places(dict[Any, int]):
    """Numbers values in the order they are met."""

    def __missing__(self, value: object) -> int:
        self[value] = place = len(self)
        return place


def object_rows(blocks: Iterable[Sequence[Any]], size: int, what: str) -> Words:
    """Any Python objects; each different one is kept once."""
    places: NDArray[Any] = np.empty(size, np.int64)
    seen = _Places()
    start = 0
    for block in blocks:
        values = block
        if not {bool, np.bool_}.isdisjoint(map(type, values)):  # as keys, True and 1 are one
            values = ["true" if v is True else "false" if v is False else v for v in (_plain(v) for v in values)]
        try:
            places[start : start + len(values)] = np.fromiter(
                map(seen.__getitem__, values), np.int64, count=len(values)
            )
        except TypeError:
            row = next(i for i, value in enumerate(values) if value.__hash__ is None)
            raise no_label(values[row], start + row, what) from None
        start += len(values)
    return Words(places, tuple(seen))


def _plain(value: object) -> object:
    return bool(value) if isinstance(value, np.bool_) else value


def no_label(value: object, row: int, what: str) -> DataError:
    """The refusal of what can be no label at all."""
    return DataError(
        "wrong-type",
        f"{what}: row {row}: {shown(value)} of type {type(value).__name__} is no label; labels are text, whole "
        "numbers, or true and false: convert it",
    )


_LIBRARIES: dict[str, Callable[[Any, str], LabelRows]] = {}
