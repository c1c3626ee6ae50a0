"""Delimited text: which separator, decimal mark, header and encoding a file has, and its rows in batches."""

from __future__ import annotations

import csv
import io
import itertools
import mmap
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias

from shufflesum.domains import ColumnLayout
from shufflesum.domains.base import AnswerColumn
from shufflesum.errors import FileError
from shufflesum.tables.paths import PathOrUrl
from shufflesum.tables.sources import ArrowFile, DataSource, ReadOptions, arrow_source, choose_columns, is_position

COMPRESSIONS = (".gz", ".bz2", ".zst", ".lz4")
"""How the names of compressed files end."""

TEXT = (".csv", ".tsv")
"""How the names of files of text end, compression aside."""

MISSING_WORDS = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "null", "Null", "NULL", "None", "none", "NaN", "nan", "NAN")
"""What stands for a missing number."""

TRUE, FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
"""What is read as 1 and 0 in a column that holds nothing else."""

_SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
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


def suffix_of(path: PathOrUrl) -> str:
    """The end of a file's name that says its format, that of compressed text aside."""
    inner = Path(path.stem).suffix.lower()
    return inner if path.suffix.lower() in COMPRESSIONS and inner in TEXT else path.suffix.lower()


def open_bytes(path: PathOrUrl) -> Any:
    """The bytes of a file, decompressed."""
    file = path.open("rb")
    if not _is_compressed(path):
        return file
    import pyarrow as pa

    return pa.CompressedInputStream(file, pa.Codec.detect(path.name.lower()).name)


def open_text(path: PathOrUrl, encoding: str | None) -> TextIO:
    """The text of a file, decompressed; a byte that is no letter becomes a lone surrogate."""
    return io.TextIOWrapper(open_bytes(path), encoding=encoding or "utf-8-sig", errors="surrogateescape", newline="")


def first_lines(path: PathOrUrl, encoding: str | None) -> list[str]:
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


def find_separator(path: PathOrUrl, lines: Sequence[str]) -> str:
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
            f"{' or '.join(f'separator={_SEPARATORS[s]!r}' for s in found)}",
        )
    return found[0] if found else ","


def _is_even(rows: Sequence[Sequence[str]]) -> bool:
    return len({len(row) for row in rows}) == 1


def _is_numbers(rows: Sequence[Sequence[str]]) -> bool:
    return all(is_number(cell) or cell in MISSING_WORDS for row in rows[1:] or rows for cell in row)


def find_decimal(path: PathOrUrl, rows: Sequence[Sequence[str]]) -> str:
    """What begins a fraction, by the numbers in these rows; commas that may stand for thousands are refused."""
    cells = [cell for row in rows for cell in row if "," in cell and _WITH_COMMA.fullmatch(cell)]
    if not cells:
        return "."
    if all(_IN_THOUSANDS.fullmatch(cell) for cell in cells):
        raise FileError(
            "ambiguous-decimal",
            f"{path}: its numbers have commas that may be decimal points or separate thousands; say decimal=',' for "
            f"decimal points; {_PLAINLY}",
        )
    return ","


def is_number(text: str, decimal: str | None = None) -> bool:
    """Whether a text is a number, with this decimal point or else with any."""
    return any(_NUMBERS[point].fullmatch(text) is not None for point in ([decimal] if decimal else _NUMBERS))


_PLAINLY = (
    "to write thousands plainly, format the column as a number without them in a spreadsheet program, or run "
    "pandas.read_csv(path, thousands=',').to_csv(other, index=False)"
)
KEPT_BYTES = 1 << 29
"""Files of text up to this size are read once and kept in memory; larger ones are read again for each pass."""

_EXPANSION = 8  # of compressed text, about
_BLOCK_BYTES = 1 << 20
_LARGEST_BLOCK_BYTES = 1 << 30
_FOR_OTHERS = re.compile(r"sep=.\s*", re.IGNORECASE)
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
_OTHERS = {
    b"PK\x03\x04": "is a spreadsheet or another archive; save the sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet; save it as CSV",
    b"\xff\xfe": "is UTF-16 text; say encoding='utf-16'",
    b"\xfe\xff": "is UTF-16 text; say encoding='utf-16'",
}
_WORDS = {*TRUE, *FALSE, *MISSING_WORDS} - {""}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the data starts, how many columns it has, what they are called, and how they are written."""

    path: PathOrUrl
    separator: str
    decimal: str
    encoding: str | None
    lines_before_data: int
    width: int
    header: tuple[str, ...] | None
    booleans: frozenset[int]
    block_bytes: int

    @property
    def detected(self) -> dict[str, str]:
        """How the file is written, in words, each with the option that says otherwise."""
        named = "names in the first line" if self.header else "no names, so that the first line is a user"
        return {
            "--separator": f"columns separated by {_SEPARATORS.get(self.separator, repr(self.separator))}",
            "--decimal": "decimal points" if self.decimal == "." else "decimal commas",
            "--no-header" if self.header else "--header": named,
            "--encoding": self.encoding or "UTF-8",
        }

    def label(self, position: int) -> str:
        """A column as messages name it."""
        if self.header and self.header[position]:
            return repr(self.header[position])
        return f"{position} (counted from 0)"


def find_layout(path: PathOrUrl, options: ReadOptions) -> Layout:
    """Look at the beginning of a file."""
    header = options.header
    encoding = None if options.encoding in ("utf-8", "utf-8-sig") else options.encoding
    try:
        lines = first_lines(path, encoding)
    except UnicodeError:
        raise not_text(path, encoding) from None
    if lines and _FOR_OTHERS.fullmatch(lines[0]):
        raise FileError(
            "malformed",
            f"{path}, line 1: says what separates columns, for spreadsheet programs; remove that line: it is found "
            "out, or said with separator=",
        )
    try:
        separator = options.separator or (find_separator(path, lines) if any(map(str.strip, lines)) else ",")
        reader = csv.reader(lines, delimiter=separator)
        first = next((row for row in reader if row), None)
        rows = rows_in(lines, separator)
    except csv.Error as error:
        raise FileError("malformed", f"{path}: its beginning is no table of text: {error}") from None
    if first is None:
        raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
    if any(letter == "\0" or "\udc80" <= letter <= "\udcff" for cell in first for letter in cell):
        raise not_text(path, encoding, f"line {reader.line_num}")
    if options.layout.answers is not None:
        header = _header_of_answers(path, first, options.layout.answers, header)
    if header is None and options.layout.labels:
        header = _header_of_labels(path, first, options.layout, options.column)
    if header is None:
        header = _has_header(path, first, options.user_column)
    if header:
        rows = rows[1:]
    line_bytes = sum(len(cell.encode()) + 3 for cell in first)
    return Layout(
        path=path,
        separator=separator,
        decimal=options.decimal or find_decimal(path, rows),
        encoding=encoding,
        # Blank lines before the data are skipped by Arrow itself.
        lines_before_data=reader.line_num if header else 0,
        width=len(first),
        header=tuple(cell.strip() for cell in first) if header else None,
        booleans=frozenset(_booleans(rows, len(first))),
        # Arrow needs each line to fit a block, and a line of numbers may be far longer than its header.
        block_bytes=min(max(_BLOCK_BYTES, 32 * line_bytes), _LARGEST_BLOCK_BYTES),
    )


def _has_header(path: PathOrUrl, first: Sequence[str], user_column: str | None) -> bool:
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
            "say header=True or header=False (and choose the data with columns=), or remove lines above the header",
        )
    if filled and not numbers and values == len(filled):
        raise FileError(
            "ambiguous-header",
            f"{path}: the first line holds nothing but words such as True or NA, which may be names or data; say "
            "header=True or header=False",
        )
    if len(filled) > 2 and filled in (_counting(0, len(filled)), _counting(1, len(filled))):
        raise FileError(
            "ambiguous-header",
            f"{path}: the first line counts its columns, as programs write the names of columns without names; "
            "say header=True if it is one, or header=False if it is somebody's data",
        )
    return values < len(filled)


def _counting(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _header_of_labels(path: PathOrUrl, first: Sequence[str], columns: ColumnLayout, column: str | None) -> bool | None:
    """Whether the first line names the column of labels; None where it holds numbers, which say it themselves."""
    named = {name for name in (column, columns.column) if name is not None and not is_position(name)}
    if named & {cell.strip() for cell in first}:
        return True
    if all(is_number(cell) for cell in first if cell):
        return None
    # Labels look like names: a first user would be taken for a header. Neither are they shown in these messages.
    if column is not None and column in named:
        raise FileError(
            "unknown-column",
            f"{path}: the first line names no column {column!r}; column= must be a name in it, or a "
            "position with header=False",
        )
    raise FileError(
        "ambiguous-header",
        f"{path}: the first line is text, and it is not clear whether it is a header or somebody's label; say "
        f"header=True or header=False, or name the column of labels: column='NAME'",
    )


def _header_of_answers(
    path: PathOrUrl, first: Sequence[str], answers: Sequence[AnswerColumn], header: bool | None
) -> bool:
    """A survey's columns are found by their names, so the first line has them; what else it holds is not shown."""
    named = {cell.strip() for cell in first}
    lacking = next((answer.name for answer in answers if answer.name not in named), None)
    if lacking is not None or header is False:
        raise FileError(
            "unknown-column",
            f"{path}: columns of a survey are found by the names in the first line, and "
            f"{f'none is named {lacking!r}' if lacking is not None else 'header=False says that there are none'}; name "
            "each column as its question",
        )
    return True


def _booleans(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Columns that hold true and false, 1 and 0 among them, and nothing else but what is missing."""
    words = {*TRUE, *FALSE}
    suspects = {place for row in rows for place, cell in enumerate(row[:width]) if cell in words}
    allowed = {*words, *MISSING_WORDS, "0", "1"}
    return [place for place in suspects if all(row[place] in allowed for row in rows if place < len(row))]


def not_text(path: PathOrUrl, encoding: str | None, where: str = "", value: str | None = None) -> FileError:
    """The refusal of bytes that are no letters."""
    if other := another_kind(path):
        return FileError("not-text", f"{path}: {other}")
    return FileError(
        "not-text",
        f"{path}{', ' if where else ''}{where}: is not {encoding or 'UTF-8'} text; save it again as CSV with the "
        "encoding UTF-8, or say which one it has, such as encoding='latin-1' or 'utf-16'",
        value=value,
    )


def another_kind(path: PathOrUrl) -> str:
    """What a file that is no text seems to be, by its first bytes, and what to do; nothing where they tell nothing."""
    with open_bytes(path) as file:
        start = file.read(8)
    if suffix := suffix_by(start):
        return f"is {_KINDS.get(suffix, 'compressed')}; let its name end in {suffix}"
    return next((said for begin, said in _OTHERS.items() if start.startswith(begin)), "")


def suffix_by(start: bytes) -> str | None:
    """How the name of a file that begins so should end, where its first bytes tell; None for text."""
    return next((suffix for begin, suffix in _SUFFIXES.items() if start.startswith(begin)), None)


_SHOWN = 60
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}([., '\u00a0\u202f]\d{3})+([.,]\d+)?\s*")
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?")


Kinds: TypeAlias = Mapping[int, Literal["number", "boolean", "label", "user", "bytes"]]
"""What the columns at some positions hold; bytes are not looked at."""


def explain(layout: Layout, kinds: Kinds, good_rows: int) -> FileError:
    """What is wrong; the rows that Arrow had already handed out are skipped."""
    try:
        for line, row in itertools.islice(_rows(layout), good_rows, None):
            if fault := _fault(layout, kinds, row, line):
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


def _fault(layout: Layout, kinds: Kinds, row: list[str], line: int) -> FileError | None:
    where = f"{layout.path}, line {line}"
    if len(row) != layout.width:
        at = min(len(row), layout.width)
        odd = "there is more than the last column" if len(row) > at else f"column {layout.label(at)} is missing"
        if len(row) > at and line <= _SOME_LINES:
            odd += f". If line {line} is the header, remove the lines above it"
        return FileError(
            "wrong-shape",
            f"{where}: has {len(row)} values, the first line has {layout.width}; {odd}. Every line must have the same "
            f"number of columns, separated by {layout.separator!r} (see separator=)",
            value=_shown(row[at]) if len(row) > at else None,
        )
    for position, kind in kinds.items():
        text, place = row[position], f"line {line}, column {layout.label(position)}"
        bad = next((letter for letter in text if "\udc80" <= letter <= "\udcff"), None)
        if bad is not None:
            return not_text(layout.path, layout.encoding, place, f"the byte 0x{ord(bad) - 0xDC00:02x}")
        if kind == "number" and not (text in MISSING_WORDS or is_number(text, layout.decimal)):
            if layout.width == 1 and any(separator in text for separator in _SEPARATORS if separator != ","):
                return FileError(
                    "wrong-shape",
                    f"{layout.path}, {place}: seems to hold several columns, and the first line holds one; remove the "
                    "lines above the header, or say separator=",
                    value=_shown(text),
                )
            return _no_number(f"{layout.path}, {place}", text, layout.decimal)
        if kind == "boolean" and text not in (*MISSING_WORDS, *TRUE, *FALSE, "0", "1"):
            return FileError(
                "not-numbers",
                f"{layout.path}, {place}: is neither true nor false, as the rows before; write all as numbers, or "
                "leave the column out with columns=",
                value=_shown(text),
            )
    return None


def _no_number(place: str, text: str, decimal: str) -> FileError:
    return FileError(
        "not-numbers",
        f"{place}: {_looks(text, decimal)}; correct it, leave the cell empty if the value is missing (see missing=), "
        "or leave the column out with columns=",
        value=_shown(text),
    )


def _looks(text: str, decimal: str) -> str:
    """What a text is that is no number, as far as that can be told without showing it."""
    other = "," if decimal == "." else "."
    looks = {
        f"a number with separated thousands is not read, because 1{other}234 may be two numbers; {_PLAINLY}": (
            _THOUSANDS.fullmatch(text)
        ),
        f"a number with {other!r} for its decimal point, unlike those before; say decimal={other!r} if all have it": (
            is_number(text, other)
        ),
        "a date is not a number; turn it into one, such as days or years": _DATE.fullmatch(text),
        "true or false stands among numbers; write 1 and 0": text.strip() in (*TRUE, *FALSE),
        "spaces beside nothing are not a number; leave them out": text.strip() in MISSING_WORDS,
        "a number with something beside it, such as a unit, is not read; leave the number alone": (
            re.match(r"\s*[+-]?\d", text)
        ),
    }
    text = "a text is not a number; count labels as such (`Categories`), and name whose row it is with user_column="
    return next((said for said, found in looks.items() if found), text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")


def _with_gaps(batch: Any, labels: Sequence[int], gaps: Sequence[str]) -> Any:
    """A batch without texts that stand for a missing one in its columns of labels."""
    import pyarrow as pa
    from pyarrow import compute

    for place in labels:
        texts = batch.column(place)
        missing = compute.is_in(texts, value_set=pa.array(gaps))
        batch = batch.set_column(place, batch.schema.names[place], compute.if_else(missing, None, texts))
    return batch


def open_csv(path: PathOrUrl, options: ReadOptions, *, keep: bool = True) -> DataSource:
    """Find the header and the columns, then read the file (or count its rows, where it is not kept)."""
    try:
        found = find_layout(path, options)
    except OSError as error:
        if error.errno is None and not isinstance(error, FileError):  # said by the decompressor
            raise _damaged(path, error) from None
        raise
    available = found.width if found.header is None else found.header
    choice = choose_columns(str(path), available, options)
    if options.columns is None and found.header is not None:
        nameless = [position for position in choice.data if not found.header[position].strip()]
        if nameless:
            raise FileError(
                "ambiguous-column",
                f"{path}: column {nameless[0]} (counted from 0) has no name in the header and may be a row "
                "number, not data; choose the data columns with columns=, by name or as a range such as 1:5, or remove "
                "lines above the header",
            )
    kinds: dict[int, Any] = {place: "boolean" if place in found.booleans else "number" for place in choice.data}
    kinds |= {} if choice.label is None else {choice.label: "label"}
    kinds |= {
        place: "number" if answer.numbers else "label"
        for answer, place in zip(options.layout.answers or (), choice.data, strict=False)
    }
    kinds |= {} if choice.user is None else {choice.user: "user"}
    table = None
    if keep and path.stat().st_size * (_EXPANSION if _is_compressed(path) else 1) <= KEPT_BYTES:
        table = _whole(found, kinds)
        rows = len(table)
    else:
        rows = sum(len(batch) for batch in _stream(found, {choice.read[0]: "bytes"}))

    def read(positions: Sequence[int], rows_at_once: int) -> Iterator[Any]:
        """Numbers are float64 or true and false, labels text."""
        labels = [place for place, position in enumerate(positions) if kinds[position] == "label"]
        if table is not None:
            batches = table.select([str(place) for place in positions]).to_batches(max_chunksize=rows_at_once)
        else:
            batches = _stream(found, {place: kinds[place] for place in positions})
        seen = 0
        for batch in batches:
            seen += len(batch)
            yield _with_gaps(batch, labels, options.layout.gaps)
        if seen != rows:
            raise FileError(
                "changed-meanwhile",
                f"{path}: had {rows} rows when it was opened and now has {seen}; it must not change while it is read: "
                "work on a copy",
            )

    if rows == 0:
        raise FileError("no-rows", f"{path}: has a header and no data; add at least one row below it")
    file = ArrowFile(path, found.header, rows, read, partial(line_of, found), found.detected)
    return arrow_source(file, choice, options)


def _whole(layout: Layout, kinds: Kinds) -> Any:
    """The columns at these positions as one Arrow table, with all cores at work."""
    from pyarrow import csv as arrow_csv

    options = _options(layout, kinds, breaks=_has_quotes(layout))
    with _explained(layout, kinds, [0]), _bytes(layout) as source:
        return arrow_csv.read_csv(source, **options)


def _stream(layout: Layout, kinds: Kinds) -> Iterator[Any]:
    """Record batches of the columns at these positions, each read as its kind whatever the rows hold."""
    from pyarrow import csv as arrow_csv

    rows = [0]
    with (
        _explained(layout, kinds, rows),
        _bytes(layout) as source,
        arrow_csv.open_csv(source, **_options(layout, kinds)) as reader,
    ):
        for batch in reader:
            yield batch
            rows[0] += len(batch)


def _bytes(layout: Layout) -> Any:
    """What Arrow reads; of a plain file it is its own, and read without us."""
    import pyarrow as pa

    return pa.OSFile(str(layout.path)) if _is_plain(layout.path) else open_bytes(layout.path)


def _has_quotes(layout: Layout) -> bool:
    """Whether a quoted cell below the first line may hold a line break; without any, cores share the work better."""
    if not _is_plain(layout.path) or layout.encoding is not None:
        return True
    with layout.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b'"', data.find(b"\n") + 1) >= 0


def _options(layout: Layout, kinds: Kinds, *, breaks: bool = True) -> dict[str, Any]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [str(position) for position in range(layout.width)]
    types = {"number": pa.float64(), "boolean": pa.bool_(), "bytes": pa.binary()}
    return {
        "read_options": arrow_csv.ReadOptions(
            block_size=layout.block_bytes,
            skip_rows=layout.lines_before_data,
            column_names=names,
            encoding=layout.encoding or "utf8",
        ),
        # A quoted user name may hold a line break.
        "parse_options": arrow_csv.ParseOptions(delimiter=layout.separator, newlines_in_values=breaks),
        "convert_options": arrow_csv.ConvertOptions(
            column_types={names[position]: types.get(kind, pa.string()) for position, kind in kinds.items()},
            include_columns=[names[position] for position in kinds],
            null_values=list(MISSING_WORDS),
            strings_can_be_null=False,  # NA may be a label, or somebody's name
            true_values=[*TRUE, "1"],
            false_values=[*FALSE, "0"],
            decimal_point=layout.decimal,
        ),
    }


@contextmanager
def _explained(layout: Layout, kinds: Kinds, good_rows: list[int]) -> Iterator[None]:
    """Say what is wrong with a file by its line: what Arrow says quotes the data, and is not passed on."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, UnicodeError):
        raise explain(layout, kinds, good_rows[0]) from None
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise _damaged(layout.path, error) from None


def _is_plain(path: PathOrUrl) -> bool:
    return isinstance(path, Path) and not _is_compressed(path)


def _is_compressed(path: PathOrUrl) -> bool:
    return path.suffix.lower() in COMPRESSIONS


def _damaged(path: PathOrUrl, error: Exception) -> FileError:
    return FileError("damaged", f"{path}: cannot be read to its end: {error}; it may be cut short: get it again")
