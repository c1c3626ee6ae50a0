"""What the first lines of a text file say: separator, header, width, and which columns are true or false."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from shufflesum.errors import FileError
from shufflesum.tables.columns import LabelColumn, is_position
from shufflesum.tables.dialect import (
    FALSE,
    MISSING_WORDS,
    TRUE,
    Dialect,
    find_decimal,
    find_separator,
    first_lines,
    is_number,
    open_bytes,
    rows_in,
)
from shufflesum.tables.places import Place

__all__ = ["Layout", "another_kind", "find_layout", "not_text", "suffix_by"]

_BLOCK_BYTES = 4 << 20
_LARGEST_BLOCK_BYTES = 1 << 30
_FOR_SPREADSHEETS = re.compile(r"sep=.\s*", re.IGNORECASE)
_SUFFIXES = {
    b"\x1f\x8b": ".csv.gz",
    b"BZh": ".csv.bz2",
    b"\x28\xb5\x2f\xfd": ".csv.zst",
    b"\x04\x22\x4d\x18": ".csv.lz4",
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\x93NUMPY": ".npy",
}
_KINDS = {".parquet": "a Parquet file", ".arrow": "an Arrow file", ".npy": "an array of NumPy"}
_SPREADSHEETS = {
    b"PK\x03\x04": "is a spreadsheet or another archive; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet; save it as CSV",
}
_WORDS = {*TRUE, *FALSE, *MISSING_WORDS} - {""}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the data starts, how many columns it has, what they are called, and how they are written."""

    path: Place
    separator: str
    decimal: str
    encoding: str | None
    lines_before_data: int
    width: int
    header: tuple[str, ...] | None
    booleans: frozenset[int]
    block_bytes: int

    def label(self, position: int) -> str:
        """A column as messages name it."""
        if self.header and self.header[position]:
            return repr(self.header[position])
        return f"{position} (counted from 0)"


def find_layout(
    path: Place, dialect: Dialect, header: bool | None, user_column: str | None, labels: LabelColumn | None
) -> Layout:
    """Look at the beginning of a file."""
    try:
        lines = first_lines(path, dialect.encoding)
    except UnicodeError:
        raise not_text(path, dialect.encoding) from None
    if lines and _FOR_SPREADSHEETS.fullmatch(lines[0]):
        raise FileError(
            "malformed",
            f"{path}, line 1: says what separates columns, for spreadsheet programs; remove that line: it is found "
            "out, or said with --separator",
        )
    try:
        separator = dialect.separator or (find_separator(path, lines) if any(map(str.strip, lines)) else ",")
        reader = csv.reader(lines, delimiter=separator)
        first = next((row for row in reader if row), None)
        rows = rows_in(lines, separator)
    except csv.Error as error:
        raise FileError("malformed", f"{path}: its beginning is no table of text: {error}") from None
    if first is None:
        raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
    if any(letter == "\0" or "\udc80" <= letter <= "\udcff" for cell in first for letter in cell):
        raise not_text(path, dialect.encoding, f"line {reader.line_num}")
    if header is None and labels is not None:
        header = _header_of_labels(path, first, labels)
    if header is None:
        header = _has_header(path, first, user_column)
    if header:
        rows = rows[1:]
    line_bytes = sum(len(cell.encode()) + 3 for cell in first)
    return Layout(
        path=path,
        separator=separator,
        decimal=dialect.decimal or find_decimal(path, rows),
        encoding=dialect.encoding,
        # Blank lines before the data are skipped by Arrow itself.
        lines_before_data=reader.line_num if header else 0,
        width=len(first),
        header=tuple(cell.strip() for cell in first) if header else None,
        booleans=frozenset(_booleans(rows, len(first))),
        # Arrow needs each line to fit a block, and a line of numbers may be far longer than its header.
        block_bytes=min(max(_BLOCK_BYTES, 32 * line_bytes), _LARGEST_BLOCK_BYTES),
    )


def _has_header(path: Place, first: Sequence[str], user_column: str | None) -> bool:
    by_position = user_column is not None and is_position(user_column) and user_column not in first
    user = int(user_column or 0) if by_position else None
    filled = [cell for i, cell in enumerate(first) if cell and i != user]
    numbers = sum(map(is_number, filled))
    values = numbers + sum(cell in _WORDS and not is_number(cell) for cell in filled)
    if numbers > 0 and values < len(filled):
        # Taken for names, somebody's values would be printed as such. Neither are they shown in this message.
        raise FileError(
            "ambiguous-header",
            f"{path}: the first line mixes numbers and other text, so it is not clear whether it is a header; "
            "say --header or --no-header (and choose the data with --columns)",
        )
    if filled and not numbers and values == len(filled):
        raise FileError(
            "ambiguous-header",
            f"{path}: the first line holds nothing but words such as True or NA, which may be names or data; say "
            "--header or --no-header",
        )
    if len(filled) > 2 and filled in (_counting(0, len(filled)), _counting(1, len(filled))):
        raise FileError(
            "ambiguous-header",
            f"{path}: the first line counts its columns, as programs write the names of columns without names; "
            "say --header if it is one, or --no-header if it is somebody's data",
        )
    return values < len(filled)


def _counting(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _header_of_labels(path: Place, first: Sequence[str], labels: LabelColumn) -> bool | None:
    """Whether the first line names the column of labels; None where it holds numbers, which say it themselves."""
    named = {name for name in (labels.column, labels.planned) if name is not None and not is_position(name)}
    if named & {cell.strip() for cell in first}:
        return True
    if all(is_number(cell) for cell in first if cell):
        return None
    # Labels look like names: a first user would be taken for a header. Neither are they shown in these messages.
    if labels.column is not None and labels.column in named:
        raise FileError(
            "unknown-column",
            f"{path}: the first line names no column {labels.column!r}; {labels.option} must be a name in it, or a "
            "position with --no-header",
        )
    raise FileError(
        "ambiguous-header",
        f"{path}: the first line is text, and it is not clear whether it is a header or somebody's label; say --header "
        f"or --no-header, or name the column of labels: {labels.option} COLUMN",
    )


def _booleans(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Columns that hold true and false, 1 and 0 among them, and nothing else but what is missing."""
    words = {*TRUE, *FALSE}
    suspects = {place for row in rows for place, cell in enumerate(row[:width]) if cell in words}
    allowed = {*words, *MISSING_WORDS, "0", "1"}
    return [place for place in suspects if all(row[place] in allowed for row in rows if place < len(row))]


def not_text(path: Place, encoding: str | None, where: str = "", value: str | None = None) -> FileError:
    """The refusal of bytes that are no letters."""
    if other := another_kind(path):
        return FileError("not-text", f"{path}: {other}")
    return FileError(
        "not-text",
        f"{path}{', ' if where else ''}{where}: is not {encoding or 'UTF-8'} text; save it again as CSV with the "
        "encoding UTF-8, or say which one it has, such as --encoding latin-1 or utf-16",
        value=value,
    )


def another_kind(path: Place) -> str:
    """What a file that is no text seems to be, by its first bytes, and what to do; nothing where they tell nothing."""
    with open_bytes(path) as file:
        start = file.read(8)
    if suffix := suffix_by(start):
        return f"is {_KINDS.get(suffix, 'compressed')}; let its name end in {suffix}"
    return next((said for begin, said in _SPREADSHEETS.items() if start.startswith(begin)), "")


def suffix_by(start: bytes) -> str | None:
    """How the name of a file that begins so should end, where its first bytes tell; None for text."""
    return next((suffix for begin, suffix in _SUFFIXES.items() if start.startswith(begin)), None)
