"""Columns of a table: which are asked for, text as labels or lists of labels, and users who must not come twice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shufflesum.domains import ColumnLayout
from shufflesum.domains.frames import PANDAS_INDEX, is_list
from shufflesum.errors import DataError, FileError, ParameterError

_POSITION = re.compile(r"\d+")
_RANGE = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Positions in the file: numbers in the order asked for, and the columns of users and of labels where there are."""

    data: tuple[int, ...]
    user: int | None
    label: int | None = None


PLAIN = ColumnLayout(numbers=())
"""Columns of numbers, however many, that no plan has names for."""


def is_position(text: str) -> bool:
    """Whether the text is a 0-based column position such as ``3``."""
    return _POSITION.fullmatch(text) is not None


def choose_columns(
    where: str,
    available: Sequence[str] | int,
    columns: Sequence[str] | None,
    user_column: str | None,
    layout: ColumnLayout = PLAIN,
    column: str | None = None,
) -> ColumnChoice:
    """Find the columns asked for among the available ones: their names, or their number if they have none.

    Named columns are chosen by name, nameless ones by position, both also by a range of positions such as
    ``0:100``. All columns but those of users and labels are numbers unless ``columns`` says otherwise; ``column`` is
    that of labels. What a plan calls its columns (in its ``layout``) is taken unasked, and no other is; files without
    names pass.
    """
    file = _File(where, available if isinstance(available, int) else tuple(available))
    names, width, planned = file.names, file.width, layout.names
    user = None if user_column is None else _find(file, user_column, "--user-column")
    label = _label_position(file, layout, column, user) if layout.labels else None
    if layout.labels and not layout.grouped:
        if columns is not None:
            raise ParameterError(
                "conflicting-arguments", f"--columns is for numbers; name the column of labels with {layout.option}"
            )
        return ColumnChoice((), user, label)
    if columns is None and planned is not None and names is not None:
        _refuse_others(where, planned, names)
        columns = planned
    if columns is None:
        data = tuple(position for position in range(width) if position not in (user, label))
        if not data:
            beside = user_column if user is not None else names[label or 0] if names else label
            raise FileError("no-columns", f"{where}: no data column is left beside column {beside!r}")
        return ColumnChoice(data, user, label)
    if not columns:
        raise ParameterError(
            "missing-argument", "--columns is empty; name at least one column, or leave it out to take all of them"
        )
    chosen = _numbers(file, columns, {user: "user", label: "label"})
    if planned is not None and names is not None and tuple(names[position] for position in chosen) != tuple(planned):
        raise DataError(
            "columns-mismatch",
            f"{where}: --columns are not those of the plan, in its order: {_some(tuple(planned))}; "
            "leave it out, or give another plan",
        )
    return ColumnChoice(chosen, user, label)


class _File:
    """The columns of a file; where they have names, each is found at once, however many there are."""

    def __init__(self, where: str, available: tuple[str, ...] | int) -> None:
        self.where = where
        self.names = None if isinstance(available, int) else available
        self.width = available if isinstance(available, int) else len(available)
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(self.names or ()):
            self.places.setdefault(name, []).append(place)


def _numbers(file: _File, columns: Sequence[str], taken: dict[int | None, str]) -> tuple[int, ...]:
    """The positions of columns of numbers, each once, none of them taken for something else."""
    names = file.names
    chosen: list[int] = []
    for text in columns:
        chosen.extend(_find_range(file, text))
    for position in chosen:
        if position in taken:
            column = repr(names[position]) if names else str(position)
            raise ParameterError(
                "conflicting-arguments",
                f"--columns includes the {taken[position]} column {column}, which holds no numbers; leave it out",
            )
    if len(set(chosen)) < len(chosen):
        twice = next(position for position in chosen if chosen.count(position) > 1)
        label = repr(names[twice]) if names else str(twice)
        raise ParameterError("conflicting-arguments", f"--columns names column {label} twice; name each column once")
    return tuple(chosen)


def _label_position(file: _File, layout: ColumnLayout, name: str | None, user: int | None) -> int:
    where, names, option = file.where, file.names, str(layout.option)
    if layout.column is not None and names is not None:
        _refuse_others(where, [layout.column], names if name is None else [name])
        name = layout.column
    if name is not None:
        position = _find(file, name, option)
        if position == user:
            raise ParameterError("conflicting-arguments", f"{option} names the user column {name!r}, which is not data")
        return position
    hidden = {} if names is None else {place for place, text in enumerate(names) if PANDAS_INDEX.fullmatch(text)}
    others = [position for position in range(file.width) if position != user and position not in hidden]
    if len(others) != 1 or layout.grouped:
        raise ParameterError(
            "missing-argument",
            f"{where}: has {len(others)} columns"
            + (f" ({_some(names)})" if names else "")
            + f"; say which one holds the labels: {option} COLUMN",
        )
    return others[0]


def _refuse_others(where: str, planned: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    lacking = next((name for name in planned if name not in known), None)
    if lacking is not None:
        raise DataError(
            "columns-mismatch",
            f"{where}: the plan is for column {lacking!r}, but there is {_some(tuple(names))}; give the right file, or "
            "a plan for these columns",
        )


def _find_range(file: _File, text: str) -> Sequence[int]:
    match, width = _RANGE.fullmatch(text), file.width
    if match is None or text in file.places:
        return (_find(file, text, "--columns"),)
    start, stop = int(match[1] or 0), int(match[2] or width)
    if not 0 <= start < stop <= width:
        raise FileError(
            "unknown-column",
            f"{file.where}: --columns {text} is no range of its {width} columns; "
            f"give first:last+1 with 0 <= first < last+1 <= {width}",
        )
    return range(start, stop)


def _find(file: _File, text: str, option: str) -> int:
    where, width = file.where, file.width
    if file.names is None:
        if not is_position(text):
            raise FileError(
                "unknown-column",
                f"{where}: {option} {text!r} is a name, but the file has no header; "
                f"give a position from 0 to {width - 1}, or say that the first line is a header (--header)",
            )
        if int(text) >= width:
            raise FileError(
                "unknown-column",
                f"{where}: {option} {text} is past its last column; positions go from 0 to {width - 1}",
            )
        return int(text)
    places = file.places.get(text, ())
    if not places:
        hint = f", or {text}:{int(text) + 1} for a position" if is_position(text) and option == "--columns" else ""
        raise FileError(
            "unknown-column", f"{where}: no column is named {text!r}; {option} may be {_some(file.names)}{hint}"
        )
    if len(places) > 1:
        raise FileError(
            "ambiguous-column",
            f"{where}: {len(places)} columns are named {text!r}; rename all but one, "
            "or choose data columns by a range of positions such as --columns 0:3",
        )
    return places[0]


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


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


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is plain text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def as_text(chunk: Any) -> Any:
    """A piece of a user column as text: what is text in one file may be numbers in another."""
    import pyarrow as pa

    return _tidied(chunk).cast(pa.string())


def _tidied(chunk: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    array = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # " 7" and "7" are the same person typed twice, and a blank is nobody.
        array = compute.utf8_trim_whitespace(array)
        array = compute.if_else(compute.equal(array, ""), None, array)
    return array


def refuse_repeated_users(where: str, column: str, chunks: Iterable[Any]) -> int:
    """Read a user column (Arrow arrays) to its end and return its number of rows.

    Refuses a row without a user and a user with more than one row. Keeps the whole column in memory.
    """
    import pyarrow as pa
    from pyarrow import compute

    kept: list[Any] = []
    rows = 0
    for chunk in chunks:
        array = _tidied(chunk)
        if array.null_count:
            row = rows + compute.index(compute.is_null(array), True).as_py()
            raise DataError(
                "missing-value",
                f"{where}: data row {row} (counted from 0) has no user in column {column!r}; "
                "fill it in or remove the row: one row is one user",
                row=row,
            )
        kept.append(array)
        rows += len(array)
    if not kept:
        return 0
    users = pa.chunked_array(kept)
    try:
        counts = compute.value_counts(users)
    except pa.ArrowNotImplementedError as error:
        raise FileError(
            "not-comparable",
            f"{where}: user column {column!r} has type {users.type}, which cannot be compared; "
            "--user-column needs text or numbers",
        ) from error
    if len(counts) < rows:
        repeated = counts.filter(compute.greater(counts.field("counts"), 1))[0]
        raise DataError(
            "repeated-user",
            f"{where}: a user has {repeated['counts'].as_py()} rows; with "
            f"--user-column {column} each user has one. Combine each user's rows first, by their average or "
            f"sum (a group-by on {column!r}); leave --user-column out only if you want a guarantee per row",
            value=repr(repeated["values"].as_py()),
        )
    return rows
