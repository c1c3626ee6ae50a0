"""The slow second look at a text file: which line, column and cell Arrow refused."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shufflesum.errors import FileError
from shufflesum.tables.dialect import FALSE, MISSING_WORDS, TRUE, is_number, open_text
from shufflesum.tables.layout import Layout, another_kind, not_text

__all__ = ["Expected", "explain", "line_of"]

_SHOWN = 60
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}([., '\u00a0\u202f]\d{3})+([.,]\d+)?\s*")
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?")


@dataclass(frozen=True, slots=True)
class Expected:
    """Positions of the columns that were read: numbers, true and false, and text."""

    numbers: Sequence[int] = ()
    booleans: Sequence[int] = ()
    texts: Sequence[int] = ()


def explain(layout: Layout, expected: Expected, good_rows: int) -> FileError:
    """What is wrong; the rows that Arrow had already handed out are skipped."""
    try:
        for line, row in itertools.islice(_rows(layout), good_rows, None):
            if fault := _fault(layout, expected, row, line):
                return fault
    except UnicodeError:
        return not_text(layout.path, layout.encoding)
    except csv.Error as error:
        return FileError("malformed", f"{layout.path}: is no table of text: {error}")
    other = another_kind(layout.path) or f"cannot be read as a table of text, separated by {layout.separator!r}"
    return FileError("malformed", f"{layout.path}: {other}")


def line_of(layout: Layout, row: int) -> int:
    """On which line of the file a row of the data ends, both as people count them: lines from 1, rows from 0."""
    return next(itertools.islice((line for line, _ in _rows(layout)), row, None), 0)


def _rows(layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """The rows of the data, each with the line it ends on."""
    with open_text(layout.path, layout.encoding) as file:
        reader = csv.reader(file, delimiter=layout.separator)
        filled = ((reader.line_num, row) for row in reader if row)
        yield from itertools.islice(filled, int(layout.header is not None), None)


def _fault(layout: Layout, expected: Expected, row: list[str], line: int) -> FileError | None:
    where = f"{layout.path}, line {line}"
    if len(row) != layout.width:
        at = min(len(row), layout.width)
        odd = "there is more than the last column" if len(row) > at else f"column {layout.label(at)} is missing"
        return FileError(
            "wrong-shape",
            f"{where}: has {len(row)} values, the first line has {layout.width}; {odd}. Every line must have the same "
            f"number of columns, separated by {layout.separator!r} (see --separator)",
            value=_shown(row[at]) if len(row) > at else None,
        )
    for position in (*expected.numbers, *expected.booleans, *expected.texts):
        text, place = row[position], f"line {line}, column {layout.label(position)}"
        bad = next((letter for letter in text if "\udc80" <= letter <= "\udcff"), None)
        if bad is not None:
            return not_text(layout.path, layout.encoding, place, f"the byte 0x{ord(bad) - 0xDC00:02x}")
        if position in expected.numbers and not (text in MISSING_WORDS or is_number(text, layout.decimal)):
            return _no_number(f"{layout.path}, {place}", text, layout.decimal)
        if position in expected.booleans and text not in (*MISSING_WORDS, *TRUE, *FALSE, "0", "1"):
            return FileError(
                "not-numbers",
                f"{layout.path}, {place}: is neither true nor false, as the rows before; write all as numbers, or "
                "leave the column out with --columns",
                value=_shown(text),
            )
    return None


def _no_number(place: str, text: str, decimal: str) -> FileError:
    return FileError(
        "not-numbers",
        f"{place}: {_looks(text, decimal)}; correct it, leave the cell empty if the value is missing (see --missing), "
        "or leave the column out with --columns",
        value=_shown(text),
    )


def _looks(text: str, decimal: str) -> str:
    """What a text is that is no number, as far as that can be told without showing it."""
    other = "," if decimal == "." else "."
    if _THOUSANDS.fullmatch(text):
        return (
            f"a number with separated thousands is not read, because 1{other}234 may be two numbers; write it plainly"
        )
    if is_number(text, other):
        return (
            f"a number with {other!r} for its decimal point, unlike those before; say --decimal {other} if all have it"
        )
    if _DATE.fullmatch(text):
        return "a date is not a number; turn it into one, such as days or years"
    if text.strip() in (*TRUE, *FALSE):
        return "true or false stands among numbers; write 1 and 0"
    if not text.strip() or text.strip() in MISSING_WORDS:
        return "spaces beside nothing are not a number; leave them out"
    return "a text is not a number; if it says whose row it is, name the column with --user-column"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
