"""Which columns of a CSV or Parquet file are data, and which one names the user."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from shufflesum.errors import FileError, ParameterError

__all__ = ["ColumnChoice", "choose_columns", "is_position"]

_POSITION = re.compile(r"\d+")
_RANGE = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Positions in the file: the data columns in the order asked for, and the user column if there is one."""

    data: tuple[int, ...]
    user: int | None


def is_position(text: str) -> bool:
    """Whether the text is a 0-based column position such as ``3``."""
    return _POSITION.fullmatch(text) is not None


def choose_columns(
    where: str,
    available: Sequence[str] | int,
    columns: Sequence[str] | None,
    user_column: str | None,
) -> ColumnChoice:
    """Find the columns asked for among the available ones: their names, or their number if they have none.

    Named columns are chosen by name, nameless ones by position, both also by a range of positions such as
    ``0:100``. All columns but the user column are data unless ``columns`` says otherwise.
    """
    names = None if isinstance(available, int) else tuple(available)
    width = available if isinstance(available, int) else len(available)
    user = None if user_column is None else _find(where, names, width, user_column, "--user-column")
    if columns is None:
        data = tuple(position for position in range(width) if position != user)
        if not data:
            raise FileError("no-columns", f"{where}: no data column is left beside the user column {user_column!r}")
        return ColumnChoice(data, user)
    if not columns:
        raise ParameterError(
            "missing-argument", "--columns is empty; name at least one column, or leave it out to take all of them"
        )
    chosen: list[int] = []
    for text in columns:
        chosen.extend(_find_range(where, names, width, text))
    for position in chosen:
        if position == user:
            raise ParameterError(
                "conflicting-arguments",
                f"--columns includes the user column {user_column!r}, which is not data; leave it out",
            )
    if len(set(chosen)) < len(chosen):
        twice = next(position for position in chosen if chosen.count(position) > 1)
        label = repr(names[twice]) if names else str(twice)
        raise ParameterError("conflicting-arguments", f"--columns names column {label} twice; name each column once")
    return ColumnChoice(tuple(chosen), user)


def _find_range(where: str, names: tuple[str, ...] | None, width: int, text: str) -> Sequence[int]:
    match = _RANGE.fullmatch(text)
    if match is None or (names is not None and text in names):
        return (_find(where, names, width, text, "--columns"),)
    start, stop = int(match[1] or 0), int(match[2] or width)
    if not 0 <= start < stop <= width:
        raise FileError(
            "unknown-column",
            f"{where}: --columns {text} is no range of its {width} columns; "
            f"give first:last+1 with 0 <= first < last+1 <= {width}",
        )
    return range(start, stop)


def _find(where: str, names: tuple[str, ...] | None, width: int, text: str, option: str) -> int:
    if names is None:
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
    if text not in names:
        hint = f", or {text}:{int(text) + 1} for a position" if is_position(text) and option == "--columns" else ""
        raise FileError("unknown-column", f"{where}: no column is named {text!r}; {option} may be {_some(names)}{hint}")
    if names.count(text) > 1:
        raise FileError(
            "ambiguous-column",
            f"{where}: {names.count(text)} columns are named {text!r}; rename all but one, "
            "or choose data columns by a range of positions such as --columns 0:3",
        )
    return names.index(text)


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
