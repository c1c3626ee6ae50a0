"""Public lists of labels, and the way from the users' values to their places in the list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.cells import MOST_CELLS
from shufflesum.domain._arrays import LEFT_OUT
from shufflesum.domain.label_columns import (
    LabelRows,
    Words,
    is_missing,
    no_label,
    object_rows,
    text_of,
    value_at,
)
from shufflesum.domain.label_frames import label_rows
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["MISSING", "UNKNOWN", "Label", "LabelRows", "Labels"]

Label: TypeAlias = str | int | bool

UNKNOWN = -1
"""The code of a value that is no label of the list."""

MISSING = -2
"""The code of a value that is missing: None, NaN, null, empty text."""

_NO_LABEL = -3
_EXACT = 2**53 - 1  # whole numbers that every reader of JSON keeps
_INT64 = 2**63 - 1
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DENSE = 1 << 16  # labels this close together are looked up in a table, five times as fast as by search
_NAMED = 5


@dataclass(frozen=True, slots=True, init=False)
class Labels:
    """Different labels in order: a list of them, or a number D for the whole numbers 0 to D - 1.

    They are public: part of the plan, written down before anybody looks at the data. Labels are compared by their
    text (`text_of`).
    """

    values: tuple[Label, ...] | range
    """As given; 0 to D - 1 are a range, however they were given."""
    _texts: tuple[str, ...] = field(repr=False)  # tells True from 1, which Python takes for equal
    _places: dict[str, int] = field(repr=False, compare=False)
    _integers: tuple[NDArray[np.int64], NDArray[np.int64]] | None = field(repr=False, compare=False)

    def __init__(self, labels: int | Iterable[Label]) -> None:
        values = _given(labels)
        texts = () if isinstance(values, range) else tuple(text_of(value) or "" for value in values)
        places = {text: place for place, text in enumerate(texts)}
        if len(places) < len(texts):
            again = next(place for place, text in enumerate(texts) if places[text] != place)
            raise ParameterError(
                "conflicting-arguments",
                f"labels: {shown(values[again])} and {shown(values[places[texts[again]]])} are one label, since labels "
                "are compared by their text; give each once",
            )
        if not 1 <= len(values) <= MOST_CELLS:
            raise ParameterError(
                "out-of-range" if not len(values) else "too-many-cells",
                f"{len(values)} labels are given; allowed are 1 to {MOST_CELLS}",
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "_texts", texts)
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_integers", None if isinstance(values, range) else _integers(places))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def plain(self) -> bool:
        """Whether the labels are 0 to D - 1, so that integers are their own codes."""
        return isinstance(self.values, range)

    @property
    def texts(self) -> tuple[str, ...]:
        """All labels as text."""
        return tuple(map(str, self.values)) if self.plain else self._texts

    def text(self, code: int) -> str:
        """One label as text."""
        return str(self.values[code]) if self.plain else self._texts[code]

    def code(self, value: object) -> int:
        """The place of a value, `UNKNOWN` or `MISSING`; TypeError for what can be no label."""
        text = text_of(value)
        if text is None:
            return MISSING
        if self.plain:
            return int(text) if _WHOLE.fullmatch(text) and 0 <= int(text) < len(self) else UNKNOWN
        place = self._places.get(text)
        if place is None and text.lower() in ("true", "false"):
            place = self._places.get(text.lower())
            return place if place is not None and isinstance(self.values[place], bool) else UNKNOWN
        return UNKNOWN if place is None else place

    def codes(self, values: object, first_row: int = 0, what: str = "labels") -> NDArray[np.int64]:
        """The place of each value, `UNKNOWN` or `MISSING`, whatever the values come as (see `label_rows`)."""
        rows = label_rows(values, what)
        if isinstance(rows, Words):
            return self._word_codes(rows, first_row, what)
        if rows.dtype.kind == "b":
            table = np.array([self.code(False), self.code(True)], dtype=np.int64)
            return table[rows.astype(np.int8)]
        if rows.dtype.kind == "f":
            return self._float_codes(rows)
        return self._integer_codes(rows)

    def known(self, values: object, first_row: int = 0, *, what: str = "labels", remedy: str = "") -> NDArray[np.int64]:
        """As `codes`, but an unknown or missing label is a `DataError`, whose message ends with the remedy."""
        rows = label_rows(values, what)
        codes = self.codes(rows, first_row, what)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            self.refuse(value_at(rows, row), first_row + row, remedy)
        return codes

    def refuse(self, value: object, row: int, remedy: str = "") -> NoReturn:
        """Raise the `DataError` for a value that is no label of the list."""
        if is_missing(value):
            raise DataError("missing-value", f"row {row}: the label is missing; {LEFT_OUT}{remedy}", row=row)
        named = ", ".join(shown(self.values[i]) for i in range(min(_NAMED, len(self))))
        raise DataError(
            "unknown-label",
            f"row {row}: the label is not among the {len(self)} labels of the plan ({named}"
            f"{', ...' if len(self) > _NAMED else ''}); labels are public, part of the plan and never read off the "
            f"data: plan with all that can occur (labels=, --labels){remedy}",
            value=shown(value),
            row=row,
        )

    def to_json(self) -> int | list[Label]:
        """The number D for 0 to D - 1, else the list, each label in its own type."""
        return len(self) if self.plain else list(self.values)

    @classmethod
    def from_json(cls, value: object) -> Labels:
        """Undo `to_json`; raises `PlanError` or `ParameterError` for anything else."""
        if isinstance(value, bool) or not isinstance(value, int | list):
            raise PlanError("malformed", f"labels must be a number or a list, not {shown(value)}")
        if isinstance(value, list) and not all(isinstance(label, str | int) for label in value):
            raise PlanError("malformed", f"labels must be text, whole numbers, or true and false, not {shown(value)}")
        return cls(value)

    def _word_codes(self, words: Words, first_row: int, what: str) -> NDArray[np.int64]:
        found = words.tables.get(id(self))
        if found is None or found[0] is not self:  # ids come again
            # The last is what place -1 leads to.
            found = self, np.array([*map(self._code_or_none, words.values), MISSING], dtype=np.int64)
            words.tables[id(self)] = found
        codes = np.asarray(found[1][words.places])
        if (found[1] == _NO_LABEL).any() and (codes == _NO_LABEL).any():
            row = int(np.flatnonzero(codes == _NO_LABEL)[0])
            raise no_label(value_at(words, row), first_row + row, what)
        return codes

    def _code_or_none(self, value: object) -> int:
        try:
            return self.code(value)
        except TypeError:
            return _NO_LABEL

    def _integer_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        if self.plain:
            outside = (values < 0) | (values >= len(self))
            codes = values.astype(np.int64, copy=False)
            return np.where(outside, UNKNOWN, codes) if outside.any() else codes
        if self._integers is None:
            return np.full(len(values), UNKNOWN, np.int64)
        if values.dtype == np.uint64 and (values > _INT64).any():
            return self._word_codes(object_rows([values.tolist()], len(values)), 0, "labels")
        sorted_labels, places = self._integers
        first, span = sorted_labels[0], int(sorted_labels[-1]) - int(sorted_labels[0]) + 1
        if span <= max(_DENSE, 4 * len(sorted_labels)) and len(values) > span:
            table = np.full(span + 1, UNKNOWN, np.int64)
            table[sorted_labels - first] = places
            # Negative differences, and those that overflow, are large without their sign.
            beyond = (values.astype(np.int64) - first).view(np.uint64)
            return np.asarray(table[np.minimum(beyond, np.uint64(span))])
        nearest = np.minimum(np.searchsorted(sorted_labels, values), len(sorted_labels) - 1)
        return np.where(sorted_labels[nearest] == values, places[nearest], UNKNOWN)

    def _float_codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        with np.errstate(invalid="ignore"):
            whole = (np.floor(values) == values) & (np.abs(values) <= _EXACT)
        codes = np.full(len(values), UNKNOWN, np.int64)
        codes[np.isnan(values)] = MISSING
        codes[whole] = self._integer_codes(values[whole].astype(np.int64))
        rest = ~whole & (codes != MISSING)
        if not self.plain and rest.any():
            different, inverse = np.unique(values[rest], return_inverse=True)
            codes[rest] = np.array([self.code(value) for value in different], dtype=np.int64)[inverse]
        return codes


def _given(labels: Any) -> tuple[Label, ...] | range:
    if isinstance(labels, int | np.integer) and not isinstance(labels, bool):
        return range(max(0, int(labels)))
    if isinstance(labels, str | bytes | dict | set | frozenset) or not hasattr(labels, "__iter__"):
        raise ParameterError(
            "wrong-type", f"labels is {shown(labels)}; give a list of labels in their order, or a number of them"
        )
    listed = next(
        (getattr(labels, name)() for name in ("to_pylist", "tolist", "to_list") if hasattr(labels, name)), None
    )
    values = tuple(map(_label, labels if listed is None else listed))
    if all(type(value) is int and value == place for place, value in enumerate(values)):
        return range(len(values))
    return values


def _label(value: object) -> Label:
    """A plain label, from what tables and arrays give."""
    try:
        text = text_of(value)
    except TypeError:
        text = None
    if text is None or isinstance(value, bytes):
        raise ParameterError(
            "wrong-type", f"labels: {shown(value)} is no label; labels are text that is not empty, or whole numbers"
        )
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str):
        return text
    if not _WHOLE.fullmatch(text):
        raise ParameterError("wrong-type", f"labels: {shown(value)} is not a whole number; write it as text")
    if abs(int(text)) > _EXACT:
        raise ParameterError("out-of-range", f"labels: {text} is not exact in every reader of JSON; write it as text")
    return int(text)


def _integers(places: dict[str, int]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The labels that whole numbers can be equal to, sorted, and their places."""
    found = sorted(
        (int(text), place) for text, place in places.items() if _WHOLE.fullmatch(text) and abs(int(text)) <= _INT64
    )
    if not found:
        return None
    numbers, codes = zip(*found, strict=True)
    return np.array(numbers, dtype=np.int64), np.array(codes, dtype=np.int64)
