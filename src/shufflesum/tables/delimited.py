"""CSV and other files of text, plain or compressed, streamed by Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shufflesum.errors import DataError, FileError
from shufflesum.tables.columns import LabelColumn, choose_columns
from shufflesum.tables.dialect import COMPRESSIONS, FALSE, MISSING_WORDS, TRUE, Dialect, open_bytes
from shufflesum.tables.faults import Expected, explain, line_of
from shufflesum.tables.labels import as_labels
from shufflesum.tables.layout import Layout, find_layout
from shufflesum.tables.places import Place
from shufflesum.tables.users import as_text, refuse_repeated_users

__all__ = ["DelimitedTable", "open_csv"]


@dataclass(frozen=True, slots=True)
class DelimitedTable:
    """The chosen columns of a CSV file: rows of float64, missing values NaN, and labels as text, empty cells null."""

    layout: Layout
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
        from pyarrow import compute

        rows = 0
        types = {} if self.label_position is None else {self.label_position: pa.string()}
        booleans = self.layout.booleans
        numbers = {place: pa.bool_() if place in booleans else pa.float64() for place in self.positions}
        turned = [index for index, place in enumerate(self.positions) if place in booleans]
        for batch in _stream(self.layout, types | numbers):
            rows += len(batch)
            block = np.empty((len(batch), len(self.positions)))
            columns = batch.columns[len(types) :]
            for index in turned:
                columns[index] = columns[index].cast(pa.float64())
            for index, column in enumerate(columns):
                block[:, index] = column.to_numpy(zero_copy_only=False)
            if self.label_position is None:
                yield block
                continue
            texts = batch.column(0)
            labels = as_labels(compute.if_else(compute.equal(texts, ""), None, texts), lists=self.lists)
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

    def line_of(self, row: int) -> int:
        """On which line of the file a row stands, found by reading up to it."""
        return line_of(self.layout, row)


def open_csv(
    path: Place,
    columns: Sequence[str] | None,
    header: bool | None,
    user_column: str | None,
    labels: LabelColumn | None = None,
    planned: Sequence[str] | None = None,
    dialect: Dialect | None = None,
) -> DelimitedTable:
    """Find the header and the columns, then count the rows (and check the users) in one pass."""
    import pyarrow as pa

    try:
        layout = find_layout(path, dialect or Dialect(), header, user_column, labels)
    except OSError as error:
        if error.errno is None and not isinstance(error, FileError):  # said by the decompressor
            raise _damaged(path, error) from None
        raise
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
        try:
            rows = refuse_repeated_users(str(path), str(user_column), _users(layout, choice.user))
        except DataError as error:
            raise (error if error.row is None else error.at(f"line {line_of(layout, error.row)}")) from None
    if rows == 0:
        raise FileError("no-rows", f"{path}: has a header and no data; add at least one row below it")
    return DelimitedTable(layout, choice.data, rows, choice.user, choice.label, labels is not None and labels.lists)


def _users(layout: Layout, position: int) -> Iterator[Any]:
    import pyarrow as pa

    return (batch.column(0) for batch in _stream(layout, {position: pa.string()}))


def _stream(layout: Layout, types: Mapping[int, Any]) -> Iterator[Any]:
    """Record batches of the columns at these positions, each read as its type whatever the rows hold."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    names = [str(position) for position in range(layout.width)]
    plain = isinstance(layout.path, Path) and layout.path.suffix.lower() not in COMPRESSIONS
    rows = 0
    try:
        with arrow_csv.open_csv(
            # Of a plain file Arrow is given the name, and reads it without us.
            layout.path if plain else open_bytes(layout.path),
            read_options=arrow_csv.ReadOptions(
                block_size=layout.block_bytes,
                skip_rows=layout.lines_before_data,
                column_names=names,
                encoding=layout.encoding or "utf8",
            ),
            # A quoted user name may hold a line break.
            parse_options=arrow_csv.ParseOptions(delimiter=layout.separator, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types={names[position]: kind for position, kind in types.items()},
                include_columns=[names[position] for position in types],
                null_values=list(MISSING_WORDS),
                strings_can_be_null=False,  # NA may be a label, or somebody's name
                true_values=[*TRUE, "1"],
                false_values=[*FALSE, "0"],
                decimal_point=layout.decimal,
            ),
        ) as reader:
            for batch in reader:
                yield batch
                rows += len(batch)
    except (pa.ArrowInvalid, UnicodeError):
        # What Arrow says quotes the data, and is not passed on.
        raise explain(layout, _expected(types), rows) from None
    except OSError as error:
        raise _damaged(layout.path, error) from None


def _expected(types: Mapping[int, Any]) -> Expected:
    from pyarrow import types as kinds

    return Expected(
        [place for place, kind in types.items() if kinds.is_floating(kind)],
        [place for place, kind in types.items() if kinds.is_boolean(kind)],
        [place for place, kind in types.items() if kinds.is_string(kind)],
    )


def _damaged(path: Place, error: Exception) -> FileError:
    return FileError("damaged", f"{path}: cannot be read to its end: {error}; it may be cut short: get it again")
