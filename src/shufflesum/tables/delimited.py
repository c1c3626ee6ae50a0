"""CSV files, streamed by Arrow; a second, slow look finds the line and column of what Arrow refused."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shufflesum.errors import FileError, ShufflesumError
from shufflesum.tables.columns import LabelColumn, choose_columns, is_position
from shufflesum.tables.labels import as_labels
from shufflesum.tables.users import as_text, refuse_repeated_users

__all__ = ["DelimitedTable", "open_csv"]

_BLOCK_BYTES = 4 << 20
_LARGEST_BLOCK_BYTES = 1 << 30
_NUMBER = re.compile(
    r"[ \t]*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|nan|inf|infinity)[ \t]*",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the first lines say: where the data starts, how many columns it has and what they are called."""

    path: Path
    lines_before_data: int
    width: int
    header: tuple[str, ...] | None
    block_bytes: int

    def label(self, position: int) -> str:
        if self.header and self.header[position]:
            return repr(self.header[position])
        return f"{position} (counted from 0)"


@dataclass(frozen=True, slots=True)
class DelimitedTable:
    """The chosen columns of a CSV file: rows of float64, empty cells NaN, and labels as text, empty cells null."""

    layout: _Layout
    positions: tuple[int, ...]
    rows: int
    user_position: int | None = None
    label_position: int | None = None
    lists: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array: one value per chosen column of numbers, none of labels alone."""
        return (len(self.positions),) if self.positions else ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers, if the file has a header."""
        header = self.layout.header
        return None if header is None else tuple(header[position] for position in self.positions)

    @property
    def label_name(self) -> str | None:
        """The name of the column of labels, if there is one."""
        header = self.layout.header
        return None if header is None or self.label_position is None else header[self.label_position]

    def batches(self) -> Iterator[Any]:
        """Read the file from its start."""
        import pyarrow as pa

        rows = 0
        types = {} if self.label_position is None else {self.label_position: pa.string()}
        for batch in _stream(self.layout, types | dict.fromkeys(self.positions, pa.float64())):
            rows += len(batch)
            block = np.empty((len(batch), len(self.positions)))
            for index, column in enumerate(batch.columns[len(types) :]):
                block[:, index] = column.to_numpy(zero_copy_only=False)
            if self.label_position is None:
                yield block
                continue
            labels = as_labels(batch.column(0), lists=self.lists)
            yield (labels, block) if self.positions else labels
        if rows != self.rows:
            raise FileError(
                "changed-meanwhile",
                f"{self.layout.path}: had {self.rows} rows when it was opened and now has {rows}; "
                "it must not change while it is read: work on a copy",
            )

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text."""
        return iter(()) if self.user_position is None else map(as_text, _users(self.layout, self.user_position))


def open_csv(
    path: Path,
    columns: Sequence[str] | None,
    header: bool | None,
    user_column: str | None,
    labels: LabelColumn | None = None,
    planned: Sequence[str] | None = None,
) -> DelimitedTable:
    """Find the header and the columns, then count the rows (and check the users) in one pass."""
    import pyarrow as pa

    layout = _find_layout(path, header, user_column, labels)
    available = layout.width if layout.header is None else layout.header
    choice = choose_columns(str(path), available, columns, user_column, labels, planned)
    if columns is None and layout.header is not None:
        nameless = [position for position in choice.data if not layout.header[position].strip()]
        if nameless:
            raise FileError(
                "ambiguous-column",
                f"{path}: column {nameless[0]} (counted from 0) has no name in the header and may be a row "
                "number, not data; choose the data columns with --columns, by name or as a range such as 1:5",
            )
    if choice.user is None:
        first = choice.data[0] if choice.label is None else choice.label
        rows = sum(len(batch) for batch in _stream(layout, {first: pa.binary()}))
    else:
        rows = refuse_repeated_users(str(path), str(user_column), _users(layout, choice.user))
    if rows == 0:
        raise FileError("no-rows", f"{path}: has a header and no data; add at least one row below it")
    return DelimitedTable(layout, choice.data, rows, choice.user, choice.label, labels is not None and labels.lists)


def _users(layout: _Layout, position: int) -> Iterator[Any]:
    import pyarrow as pa

    return (batch.column(0) for batch in _stream(layout, {position: pa.string()}))


def _find_layout(path: Path, header: bool | None, user_column: str | None, labels: LabelColumn | None) -> _Layout:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            first = next((row for row in reader if row), None)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        except csv.Error as error:
            raise FileError("malformed", f"{path}: line {reader.line_num} is no line of a CSV file: {error}") from error
    if first is None:
        raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
    if header is None and labels is not None:
        header = _header_of_labels(path, first, labels)
    if header is None:
        by_position = user_column is not None and is_position(user_column) and user_column not in first
        user = int(user_column or 0) if by_position else None
        filled = [cell for i, cell in enumerate(first) if cell and i != user]
        numbers = sum(_NUMBER.fullmatch(cell) is not None for cell in filled)
        if 0 < numbers < len(filled):
            # Taken for names, somebody's values would be printed as such. Neither are they shown in this message.
            raise FileError(
                "ambiguous-header",
                f"{path}: the first line mixes numbers and other text, so it is not clear whether it is a header; "
                "say --header or --no-header (and choose the data with --columns)",
            )
        if len(filled) > 2 and filled in (_counting(0, len(filled)), _counting(1, len(filled))):
            raise FileError(
                "ambiguous-header",
                f"{path}: the first line counts its columns, as programs write the names of columns without names; "
                "say --header if it is one, or --no-header if it is somebody's data",
            )
        header = numbers < len(filled)
    line_bytes = sum(len(cell.encode()) + 3 for cell in first)
    return _Layout(
        path=path,
        # Blank lines before the data are skipped by Arrow itself.
        lines_before_data=reader.line_num if header else 0,
        width=len(first),
        header=tuple(cell.strip() for cell in first) if header else None,
        # Arrow needs each line to fit a block, and a line of numbers may be far longer than its header.
        block_bytes=min(max(_BLOCK_BYTES, 32 * line_bytes), _LARGEST_BLOCK_BYTES),
    )


def _header_of_labels(path: Path, first: Sequence[str], labels: LabelColumn) -> bool | None:
    """Whether the first line names the column of labels; None where it holds numbers, which say it themselves."""
    named = {name for name in (labels.column, labels.planned) if name is not None and not is_position(name)}
    if named & {cell.strip() for cell in first}:
        return True
    if all(_NUMBER.fullmatch(cell) for cell in first if cell):
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


def _counting(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _stream(layout: _Layout, types: Mapping[int, Any]) -> Iterator[Any]:
    """Record batches of the columns at these positions, each read as its type whatever the rows hold."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [str(position) for position in range(layout.width)]
    rows = 0
    try:
        with arrow_csv.open_csv(
            layout.path,
            read_options=arrow_csv.ReadOptions(
                block_size=layout.block_bytes, skip_rows=layout.lines_before_data, column_names=names
            ),
            # A quoted user name may hold a line break.
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={names[position]: kind for position, kind in types.items()},
                include_columns=[names[position] for position in types],
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:
            for batch in reader:
                yield batch
                rows += len(batch)
    except pa.ArrowInvalid as error:
        _explain(layout, [place for place, kind in types.items() if pa.types.is_floating(kind)], rows, error)
    except OSError as error:
        raise FileError("damaged", f"{layout.path}: cannot be read to its end: {error}") from error


def _explain(layout: _Layout, numbers: Sequence[int], good_rows: int, reason: Exception) -> NoReturn:
    """Say which line, column and text Arrow refused; the rows it had already handed out are skipped."""
    path = layout.path
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            filled = (row for row in reader if row)
            for row in itertools.islice(filled, good_rows + (layout.header is not None), None):
                _check_row(layout, row, numbers, reader.line_num)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        except csv.Error as error:
            raise FileError("malformed", f"{path}: line {reader.line_num} is no line of a CSV file: {error}") from error
    raise FileError("malformed", f"{path}: cannot be read as comma-separated values: {reason}") from reason


def _check_row(layout: _Layout, row: list[str], positions: Sequence[int], line: int) -> None:
    where = f"{layout.path}, line {line}"
    if len(row) != layout.width:
        at = min(len(row), layout.width)
        odd = f"the first one too many is {row[at]!r}" if len(row) > at else f"column {layout.label(at)} is missing"
        raise FileError(
            "wrong-shape",
            f"{where}: has {len(row)} values, the first line has {layout.width}; {odd}. "
            "Every line must have the same number of columns, separated by commas",
        )
    for position in positions:
        text = row[position]
        if text and not _NUMBER.fullmatch(text):
            shown = text if len(text) <= 60 else text[:57] + "..."
            hint = " (columns are separated by commas)" if re.search("[;\t]", text) else ""
            raise FileError(
                "not-numbers",
                f"{where}, column {layout.label(position)}: {shown!r} is not a number{hint}; correct it, "
                "leave the cell empty if the value is missing (see --missing), "
                "or leave the column out with --columns",
            )


def _not_text(path: Path, error: UnicodeDecodeError) -> ShufflesumError:
    bad = error.object[error.start : error.start + 1].hex()
    return FileError(
        "not-text",
        f"{path}: is not UTF-8 text (it holds the byte 0x{bad}); save it again as CSV with the encoding UTF-8",
    )
