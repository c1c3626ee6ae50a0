"""Labels: public lists of them, and columns of them in two forms.

Numbers stay the arrays they are. Everything else becomes a `DictionaryColumn`: the different values, and for each row
which of them it holds. None of pandas, Polars and PyArrow is imported unless the column comes from it.
"""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import set_fields, shown
from shufflesum.cells import MOST_CELLS
from shufflesum.domains.frames import columns_of, is_list, library_of, plain
from shufflesum.domains.structure import LEFT_OUT
from shufflesum.errors import DataError, ParameterError, PlanError

LABEL_GAPS = ("", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "null", "NULL", "None", "NaN", "nan")
"""What stands for a missing label in files of text, as it does for pandas, unless a plan lists it as a label."""

_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class DictionaryColumn:
    """A column in few different values: row i holds `values[places[i]]`, or nothing where the place is -1."""

    places: NDArray[Any]
    values: tuple[Any, ...]
    tables: dict[int | str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out once for all `values`, shared by all slices."""

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, rows: slice) -> DictionaryColumn:
        return DictionaryColumn(self.places[rows], self.values, self.tables)


LabelRows: TypeAlias = NDArray[Any] | DictionaryColumn
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
    if isinstance(rows, DictionaryColumn):
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


def object_rows(blocks: Iterable[Sequence[Any]], size: int) -> DictionaryColumn:
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
    return DictionaryColumn(places, tuple(seen))


def checked_column(column: object) -> str | None:
    """The name of the column that labels come from, if it has one."""
    if column is not None and not (isinstance(column, str) and column):
        raise ParameterError("wrong-type", f"column is {shown(column)}; give the name of the column of labels")
    return None if column is None else str(column)  # not NumPy's: what a plan's file gives back is Python's own


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


Lists: TypeAlias = tuple[NDArray[np.int64], LabelRows]
"""How many labels each row has, -1 where the list is missing, and the labels of all rows one after the other."""


def label_rows(values: object, what: str = "labels") -> LabelRows:
    """One label for each of at least one user; arrays of numbers are not copied."""
    rows = _column(values, what)
    if len(rows) == 0:
        raise DataError("no-rows", f"{what}: no rows; pass one label for each of at least one user")
    return rows


def _column(values: object, what: str) -> LabelRows:
    if isinstance(values, DictionaryColumn):
        return values
    if isinstance(values, np.ndarray):
        return array_rows(values, what)
    if isinstance(values, list | tuple | range):
        return list_rows(values, what)
    if library_of(values) == "pandas" and hasattr(values, "dtype"):  # an index, or an array of pandas
        return _column_labels(values, what)
    found = columns_of(values)
    if found is None:
        raise DataError(
            "wrong-type",
            f"{what}: {type(values).__name__} is no column of labels; pass a list, an array or a table's column",
            value=shown(values),
        )
    if len(found.columns) != 1:
        raise DataError(
            "wrong-shape", f"{what}: a table of {len(found.columns)} columns; pass the one that holds labels"
        )
    return _column_labels(found.columns[0], what)


def _column_labels(column: Any, what: str) -> LabelRows:
    """A column of some library; only what pandas keeps as Python objects does not become Arrow."""
    kind: Any = getattr(column, "dtype", None)
    if library_of(column) == "pandas":
        if hasattr(kind, "categories"):
            codes = column.cat.codes if hasattr(column, "cat") else column.codes
            return DictionaryColumn(np.asarray(codes), tuple(kind.categories.tolist()))
        if isinstance(kind, np.dtype):
            return array_rows(column.to_numpy(), what)
    try:
        arrow = plain(column)
    except (ValueError, TypeError, NotImplementedError):  # types of pandas that Arrow has none for
        _refuse(kind, what)
    return array_rows(arrow, what) if isinstance(arrow, np.ndarray) else _arrow_labels(arrow, what, kind)


def _arrow_labels(column: Any, what: str, kind: object = None) -> LabelRows:
    import pyarrow as pa

    types, held = pa.types, column.type
    if types.is_dictionary(held):
        return _arrow_words(column)
    whole = types.is_integer(held) or types.is_boolean(held)
    if types.is_floating(held) or (whole and not column.null_count):
        chunked = isinstance(column, pa.ChunkedArray)
        return array_rows(np.asarray(column.to_numpy(**({} if chunked else {"zero_copy_only": False}))), what)
    if types.is_string_view(held) or types.is_binary_view(held):
        column = column.cast(pa.large_string() if types.is_string_view(held) else pa.large_binary())
    text = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if not (whole or types.is_decimal(held) or types.is_null(held) or any(test(column.type) for test in text)):
        _refuse(kind or held, what)
    return _arrow_words(column.dictionary_encode())


def _arrow_words(column: Any) -> DictionaryColumn:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # of no chunks, or too large for one array
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(-1)
    return DictionaryColumn(indices.to_numpy(zero_copy_only=False), tuple(column.dictionary.to_pylist()))


def present(rows: Any) -> NDArray[np.bool_]:
    """Which rows lack nothing, whatever domain they are of: numbers, labels, lists of labels, or several of these."""
    if hasattr(rows, "questions"):
        return np.asarray(rows.present())
    if hasattr(rows, "arrays"):
        return present(rows.labels) & present(rows.arrays)
    if hasattr(rows, "starts"):
        return np.ones(len(rows), np.bool_) if rows.missing is None else ~rows.missing
    if isinstance(rows, DictionaryColumn):
        there = np.array([*(not is_missing(value) for value in rows.values), False])  # place -1 leads to the last
        return np.asarray(there[rows.places])
    if rows.dtype.kind != "f":
        return np.ones(len(rows), np.bool_)
    parts = [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
    return np.concatenate([~np.isnan(part.reshape(len(part), -1)).any(axis=1) for part in parts])


def taken(rows: Any, kept: NDArray[np.bool_]) -> Any:
    """The rows of `present` that are kept; lists that are left out must be missing."""
    if hasattr(rows, "questions"):
        return rows.taken(kept)
    if hasattr(rows, "arrays"):
        return replace(rows, labels=taken(rows.labels, kept), arrays=taken(rows.arrays, kept))
    if hasattr(rows, "starts"):  # missing lists are empty, so that none of the labels go
        return replace(rows, starts=np.append(rows.starts[:-1][kept], rows.starts[-1]), missing=None)
    if isinstance(rows, DictionaryColumn):
        return DictionaryColumn(rows.places[kept], rows.values, rows.tables)
    return np.asarray(rows)[kept]


def frame_lists(column: Any, what: str) -> Lists | None:
    """The lists in a column of some library; None for all else, Python's lists in pandas among it."""
    if isinstance(getattr(column, "dtype", None), np.dtype):
        return None
    from pyarrow import compute

    arrow = plain(column)
    if isinstance(arrow, np.ndarray) or not is_list(arrow.type):
        return None
    if hasattr(arrow, "combine_chunks"):
        arrow = arrow.combine_chunks()
    sizes = compute.list_value_length(arrow).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = arrow.drop_null().flatten() if arrow.null_count else arrow.flatten()
    return sizes, _arrow_labels(flat, what, getattr(column, "dtype", None))


def _refuse(kind: object, what: str) -> NoReturn:
    raise DataError("wrong-type", f"{what}: {kind} values are no labels; convert them to text or whole numbers")


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
_NAMED, _COMPARED = 5, 1000


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
        whole = None if isinstance(values, range) else _integers(places)
        set_fields(self, values=values, _texts=texts, _places=places, _integers=whole)

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
        if isinstance(rows, DictionaryColumn):
            return self._word_codes(rows, first_row, what)
        if rows.dtype.kind == "b":
            table = np.array([self.code(False), self.code(True)], dtype=np.int64)
            return table[rows.astype(np.int8)]
        if rows.dtype.kind == "f":
            return self._float_codes(rows)
        return self._integer_codes(rows)

    def known(self, values: object, first_row: int = 0, *, what: str = "labels", remedy: str = "") -> NDArray[np.int64]:
        """As `codes`, but an unknown or missing label is a `DataError`, whose message ends with the remedy."""
        codes = self.codes(values, first_row, what)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            self.refuse(value_at(label_rows(values, what), row), first_row + row, remedy)
        return codes

    def refuse(self, value: object, row: int, remedy: str = "") -> NoReturn:
        """Raise the `DataError` for a value that is no label of the list."""
        if is_missing(value):
            raise DataError("missing-value", f"row {row}: the label is missing; {LEFT_OUT}{remedy}", row=row)
        named = ", ".join(shown(self.values[i]) for i in range(min(_NAMED, len(self))))
        more = ", ..." if len(self) > _NAMED else ""
        raise DataError(
            "unknown-label",
            f"row {row}: unknown label; the plan has {len(self)} labels ({named}{more}). "
            "Labels are case-sensitive (unless ignore_case=True), and public: they are never read off the data. Add "
            f"the label to the plan (labels=){remedy}",
            value=f"{shown(value)}{self._suggestion(value)}",
            row=row,
        )

    def _suggestion(self, value: object) -> str:
        """The label that is meant, perhaps; it stands with the value, since it says what somebody holds."""
        text = (text_of(value) or "").casefold()
        known = {label.casefold(): label for label in self.texts[:_COMPARED]}
        near = difflib.get_close_matches(text, known, n=1, cutoff=0.8)
        return f" (did you mean {known[near[0]]!r}?)" if near else ""

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

    def _word_codes(self, words: DictionaryColumn, first_row: int, what: str) -> NDArray[np.int64]:
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


def without_case(labels: object) -> Callable[[Any], Any]:
    """What writes rows of labels as this list has them, whatever their capitals; what is not on it stays as it is."""
    if not isinstance(labels, Labels) or labels.plain:
        raise ParameterError(
            "impossible-combination", "ignore_case is for a list of labels that are text; leave it out"
        )
    listed = {text.casefold(): text for text in labels.texts}
    if len(listed) < len(labels):
        lost = next(text for text in labels.texts if listed[text.casefold()] != text)
        raise ParameterError(
            "conflicting-arguments",
            f"labels {lost!r} and {listed[lost.casefold()]!r} differ in capitals only, which are to be ignored "
            "(ignore_case=True); list one of them, or leave it out",
        )

    def recased(rows: Any) -> Any:
        if hasattr(rows, "arrays") or hasattr(rows, "starts"):
            return replace(rows, labels=recased(rows.labels))
        if not isinstance(rows, DictionaryColumn):
            return rows
        texts = (listed.get((text_of(v) or "").casefold(), v) if isinstance(v, str) else v for v in rows.values)
        return DictionaryColumn(rows.places, tuple(texts))

    return recased
