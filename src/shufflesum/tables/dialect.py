"""How a text file writes its table: what separates columns, what begins a fraction, how letters become bytes."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from shufflesum.errors import FileError, ParameterError
from shufflesum.tables.places import Place

__all__ = [
    "COMPRESSIONS",
    "FALSE",
    "MISSING_WORDS",
    "TEXT",
    "TRUE",
    "Dialect",
    "find_decimal",
    "find_separator",
    "first_lines",
    "is_number",
    "open_bytes",
    "open_text",
    "rows_in",
    "suffix_of",
]

COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4")
"""How the names of compressed files end."""

TEXT = (".csv", ".tsv")
"""How the names of files of text end, compression aside."""

MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "null", "Null", "NULL", "None", "none", "NaN", "nan", "NAN")
"""What stands for a missing number."""

TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""What is read as 1 and 0 in a column that holds nothing else."""

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|"}
_SOME_BYTES, _SOME_LINES, _MOST_BYTES = 1 << 16, 200, 1 << 22
_NUMBERS = {
    point: re.compile(
        rf"[ \t]*[+-]?(\d+{sign}?\d*([eE][+-]?\d+)?|{sign}\d+([eE][+-]?\d+)?|nan|inf|infinity)[ \t]*",
        re.ASCII | re.IGNORECASE,
    )
    for point, sign in ((".", r"\."), (",", ","))
}
_WITH_COMMA = re.compile(r"[ \t]*[+-]?\d*,\d+([eE][+-]?\d+)?[ \t]*", re.ASCII)
_IN_THOUSANDS = re.compile(r"[ \t]*[+-]?[1-9]\d{0,2}(,\d{3})+[ \t]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What somebody says of a text file; what is None is found out, and letters are UTF-8."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        """Check the three; a separator may be given by its name."""
        if self.separator is not None:
            separator = _NAMED.get(self.separator, self.separator)
            if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in "\"'\r\n.+-":
                raise ParameterError(
                    "unknown-choice",
                    f"--separator is {self.separator!r}; give one character that is in no number: ',' or ';' or '|' or "
                    "tab",
                )
            object.__setattr__(self, "separator", separator)
        if self.decimal not in (None, ".", ","):
            raise ParameterError("unknown-choice", f"--decimal is {self.decimal!r}; allowed are '.' and ','")
        if self.encoding is not None:
            try:
                name = codecs.lookup(self.encoding).name
                "".encode(name)
            except LookupError:  # also of codecs that are not for text
                raise ParameterError(
                    "unknown-choice", f"--encoding {self.encoding!r} is not known; give one such as latin-1 or utf-16"
                ) from None
            object.__setattr__(self, "encoding", None if name in ("utf-8", "utf-8-sig") else name)

    @property
    def given(self) -> dict[str, str | None]:
        """The options and what they are, None where they were not given."""
        return {"--separator": self.separator, "--decimal": self.decimal, "--encoding": self.encoding}


def suffix_of(path: Place) -> str:
    """The end of a file's name that says its format, that of compressed text aside."""
    inner = Path(path.stem).suffix.lower()
    return inner if path.suffix.lower() in COMPRESSIONS and inner in TEXT else path.suffix.lower()


def open_bytes(path: Place) -> Any:
    """The bytes of a file, decompressed."""
    file = path.open("rb")
    if path.suffix.lower() not in COMPRESSIONS:
        return file
    import pyarrow as pa

    return pa.CompressedInputStream(file, pa.Codec.detect(path.name.lower()).name)


def open_text(path: Place, encoding: str | None) -> TextIO:
    """The text of a file, decompressed; a byte that is no letter becomes a lone surrogate."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding or "utf-8-sig", errors="surrogateescape", newline="")


def first_lines(path: Place, encoding: str | None) -> list[str]:
    """The beginning of a file in whole rows: at least two lines, a few more if they are short."""
    lines: list[str] = []
    size = quotes = 0
    with open_text(path, encoding) as file:
        for line in file:
            lines.append(line)
            size, quotes = size + len(line), quotes + line.count('"')
            enough = (size >= _SOME_BYTES and len(lines) > 1) or len(lines) >= _SOME_LINES
            if size >= _MOST_BYTES or (enough and quotes % 2 == 0):  # a line break inside quotes ends no row
                break
    return lines


def rows_in(lines: Sequence[str], separator: str) -> list[list[str]]:
    """The rows of some lines, without empty ones."""
    return [row for row in csv.reader(lines, delimiter=separator) if row]


def find_separator(path: Place, lines: Sequence[str]) -> str:
    """What separates the columns, by the first line; where that leaves a choice, by the rows and numbers it makes."""
    if suffix_of(path) == ".tsv":
        return "\t"
    tables = {separator: rows_in(lines, separator) for separator in _SEPARATORS if any(separator in s for s in lines)}
    found = [separator for separator, rows in tables.items() if len(rows[0]) > 1]
    for tell in (_is_even, _is_numbers):
        if len(found) > 1:
            found = [separator for separator in found if tell(tables[separator])] or found
    if len(found) > 1:
        raise FileError(
            "ambiguous-separator",
            f"{path}: its columns may be separated by {' or '.join(_SEPARATORS[s] for s in found)}; say which: "
            f"{' or '.join(f'--separator {_SEPARATORS[s]}' for s in found)}",
        )
    return found[0] if found else ","


def _is_even(rows: Sequence[Sequence[str]]) -> bool:
    return len({len(row) for row in rows}) == 1


def _is_numbers(rows: Sequence[Sequence[str]]) -> bool:
    return all(is_number(cell) or cell in MISSING_WORDS for row in rows[1:] or rows for cell in row)


def find_decimal(path: Place, rows: Sequence[Sequence[str]]) -> str:
    """What begins a fraction, by the numbers in these rows; commas that may stand for thousands are refused."""
    cells = [cell for row in rows for cell in row if "," in cell and _WITH_COMMA.fullmatch(cell)]
    if not cells:
        return "."
    if all(_IN_THOUSANDS.fullmatch(cell) for cell in cells):
        raise FileError(
            "ambiguous-decimal",
            f"{path}: its numbers have commas that may be decimal points or separate thousands; say --decimal , for "
            "decimal points, or write thousands without a separator",
        )
    return ","


def is_number(text: str, decimal: str | None = None) -> bool:
    """Whether a text is a number, with this decimal point or else with any."""
    return any(_NUMBERS[point].fullmatch(text) is not None for point in ([decimal] if decimal else _NUMBERS))
