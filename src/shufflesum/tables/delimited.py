"""CSV files, streamed by Arrow; a second, slow look finds the line and column of what Arrow refused."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import FileError, ShufflesumError
from shufflesum.tables.columns import choose_columns, is_position
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
    """The chosen columns of a CSV file as rows of float64; empty cells are NaN."""

    layout: _Layout
    positions: tuple[int, ...]
    rows: int
    user_position: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array: one value per chosen column."""
        return (len(self.positions),)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The chosen columns' names, if the file has a header."""
        header = self.layout.header
        return None if header is None else tuple(header[position] for position in self.positions)

    def batches(self) -> Iterator[NDArray[Any]]:
        """Read the file from its start."""
        import pyarrow as pa

        rows = 0
        for batch in _stream(self.layout, self.positions, pa.float64()):
            block = np.empty((len(batch), len(self.positions)))
            for index, column in enumerate(batch.columns):
                block[:, index] = column.to_numpy(zero_copy_only=False)
            rows += len(block)
            yield block
        if rows != self.rows:
            raise FileError(
                "changed-meanwhile",
                f"{self.layout.path}: had {self.rows} rows when it was opened and now has {rows}; "
                "it must not change while it is read: work on a copy",
            )

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text."""
        return iter(()) if self.user_position is None else map(as_text, _users(self.layout, self.user_position))


def open_csv(path: Path, columns: Sequence[str] | None, header: bool | None, user_column: str | None) -> DelimitedTable:
    """Find the header and the columns, then count the rows (and check the users) in one pass."""
    import pyarrow as pa

    layout = _find_layout(path, header, user_column)
    available = layout.width if layout.header is None else layout.header
    choice = choose_columns(str(path), available, columns, user_column)
    if columns is None and layout.header is not None:
        nameless = [position for position in choice.data if not layout.header[position].strip()]
        if nameless:
            raise FileError(
                "ambiguous-column",
                f"{path}: column {nameless[0]} (counted from 0) has no name in the header and may be a row "
                "number, not data; choose the data columns with --columns, by name or as a range such as 1:5",
            )
    if choice.user is None:
        rows = sum(len(batch) for batch in _stream(layout, choice.data[:1], pa.binary()))
    else:
        rows = refuse_repeated_users(str(path), str(user_column), _users(layout, choice.user))
    if rows == 0:
        raise FileError("no-rows", f"{path}: has a header and no data; add at least one row of numbers below it")
    return DelimitedTable(layout, choice.data, rows, choice.user)


def _users(layout: _Layout, position: int) -> Iterator[Any]:
    import pyarrow as pa

    return (batch.column(0) for batch in _stream(layout, (position,), pa.string()))


def _find_layout(path: Path, header: bool | None, user_column: str | None) -> _Layout:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            first = next((row for row in reader if row), None)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        except csv.Error as error:
            raise FileError("malformed", f"{path}: line {reader.line_num} is no line of a CSV file: {error}") from error
    if first is None:
        raise FileError("no-rows", f"{path}: is empty; it must hold one row of numbers per user")
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


def _counting(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def _stream(layout: _Layout, positions: Sequence[int], value_type: Any) -> Iterator[Any]:
    """Record batches of the columns at these positions, all read as one type whatever the rows hold."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [str(position) for position in range(layout.width)]
    chosen = [names[position] for position in positions]
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
                column_types=dict.fromkeys(chosen, value_type),
                include_columns=chosen,
                null_values=[""],
                strings_can_be_null=True,
            ),
        ) as reader:
            for batch in reader:
                yield batch
                rows += len(batch)
    except pa.ArrowInvalid as error:
        _explain(layout, positions, rows, error, numeric=pa.types.is_floating(value_type))
    except OSError as error:
        raise FileError("damaged", f"{layout.path}: cannot be read to its end: {error}") from error


def _explain(
    layout: _Layout, positions: Sequence[int], good_rows: int, reason: Exception, *, numeric: bool
) -> NoReturn:
    """Say which line, column and text Arrow refused; the rows it had already handed out are skipped."""
    path = layout.path
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            filled = (row for row in reader if row)
            for row in itertools.islice(filled, good_rows + (layout.header is not None), None):
                _check_row(layout, row, positions if numeric else (), reader.line_num)
        except UnicodeDecodeError as error:
            raise _not_text(path, error) from error
        except csv.Error as error:
            raise FileError("malformed", f"{path}: line {reader.line_num} is no line of a CSV file: {error}") from error
    raise FileError("malformed", f"{path}: cannot be read as comma-separated numbers: {reason}") from reason


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
