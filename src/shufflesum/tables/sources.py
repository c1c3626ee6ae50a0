"""Files as Arrow batches: Parquet and Arrow IPC as they are, text as `delimited` reads it, behind one table of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains import ColumnLayout
from shufflesum.domains.frames import PANDAS_INDEX, Column, FrameRows, is_arrow_number, is_list, number_column
from shufflesum.errors import FileError
from shufflesum.tables.columns import (
    ColumnChoice,
    as_labels,
    as_text,
    check_label_type,
    choose_columns,
    is_text,
    refuse_repeated_users,
)
from shufflesum.tables.paths import PathOrUrl

ARROW_FILES = (".arrow", ".feather")
"""How files of Arrow's IPC format end; the second version of Feather is the same."""

_BATCH_BYTES = 8 << 20
_LABELS_PER_BATCH = 1 << 18


class ArrowFile(Protocol):
    """A file of columns."""

    @property
    def path(self) -> PathOrUrl:
        """Where it is."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """What all of its columns are called, if they have names."""

    @property
    def rows(self) -> int:
        """How many there are."""

    def read(self, positions: Sequence[int], rows_at_once: int) -> Iterator[Any]:
        """Record batches of these columns, in this order, from the first row."""

    def line_of(self, row: int) -> int | None:
        """On which line of a file of text a row stands; None elsewhere."""


@dataclass(frozen=True, slots=True)
class ArrowSource:
    """The users' data in a file of columns: numbers, one column of lists of them, labels, or labels beside numbers."""

    file: ArrowFile
    choice: ColumnChoice
    lists: bool = False
    """Whether cells hold several labels."""
    width: int | None = None
    """The length of the lists of numbers in the one column that holds such."""

    @property
    def rows(self) -> int:
        """How many users there are."""
        return self.file.rows

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array: one value per chosen column of numbers, none of labels alone."""
        data = self.choice.data
        return (len(data) if self.width is None else self.width,) if data else ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers, if the file has some; entries of lists have none."""
        names = self.file.names
        return None if names is None or self.width is not None else tuple(names[place] for place in self.choice.data)

    @property
    def label_name(self) -> str | None:
        """The name of the column of labels, if there is one."""
        names, label = self.file.names, self.choice.label
        return None if names is None or label is None else names[label]

    def batches(self) -> Iterator[Any]:
        """Rows in the file's order."""
        label, data = self.choice.label, self.choice.data
        first_row = 0
        rows_at_once = max(1, _BATCH_BYTES // (8 * self.shape[0])) if data else _LABELS_PER_BATCH
        for batch in self.file.read(data if label is None else (label, *data), rows_at_once):
            columns = batch.columns
            numbers = self._numbers(columns[-len(data) :], first_row) if data else None
            first_row += len(batch)
            if label is None:
                yield numbers
            else:
                labels = as_labels(columns[0], lists=self.lists)
                yield labels if numbers is None else (labels, numbers)

    def _numbers(self, columns: Sequence[Any], first_row: int) -> NDArray[Any]:
        if self.width is None:
            read = tuple(number_column(column, "a column") for column in columns)
            return FrameRows(read, (len(columns[0]), len(read)))[:]
        from pyarrow import compute

        lengths = compute.list_value_length(columns[0]).fill_null(self.width).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.width)
        if wrong.size:
            raise FileError(
                "wrong-shape",
                f"{self.file.path}, column {(self.file.names or ())[self.choice.data[0]]!r}: row "
                f"{first_row + wrong[0]} (counted from 0) has {lengths[wrong[0]]} values, earlier rows have "
                f"{self.width}; all must be equally long",
            )
        block = Column("a column", columns[0], False, self.width).read(0, len(columns[0]))
        return np.require(block, requirements="W")  # as kernels are compiled

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text; nothing without a user column."""
        return iter(()) if self.choice.user is None else map(as_text, users_in(self.file, self.choice.user))

    def line_of(self, row: int) -> int | None:
        """On which line of a file of text a row stands."""
        return self.file.line_of(row)


def users_in(file: ArrowFile, position: int) -> Iterator[Any]:
    """The user column, piece by piece."""
    return (batch.column(0) for batch in file.read((position,), 1 << 16))


@dataclass(frozen=True, slots=True)
class ColumnarFile:
    """A Parquet or an Arrow IPC file; `coded` columns of text in Parquet come as the dictionaries they are there."""

    path: PathOrUrl
    schema: Any
    rows: int
    coded: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called."""
        return tuple(self.schema.names)

    def read(self, positions: Sequence[int], rows_at_once: int) -> Iterator[Any]:
        """Record batches of these columns, at most so many rows each."""
        import pyarrow as pa

        every = self.names
        names = [every[position] for position in positions]
        for batch in _stream(self.path, names, rows_at_once, self.coded):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))  # by name, each is searched among all
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names)

    def line_of(self, row: int) -> None:
        """Such a file has no lines."""


def open_columnar(
    path: PathOrUrl, columns: Sequence[str] | None, user_column: str | None, layout: ColumnLayout, column: str | None
) -> ArrowSource:
    """Choose the columns from the file's schema, and check the users if their column is named."""
    schema, rows = _describe(path)
    if rows == 0:
        raise FileError("no-rows", f"{path}: has no rows; it must hold one row per user")
    names = schema.names  # asked for once: the list is made anew each time
    choice = choose_columns(str(path), names, columns, user_column, layout, column)
    data = choice.data
    if columns is None:  # pandas keeps its row labels under such names; they are data only if asked for
        data = tuple(place for place in data if not PANDAS_INDEX.fullmatch(names[place]))
    choice = ColumnChoice(data, choice.user, choice.label)
    label = None if choice.label is None else schema.field(choice.label)
    counts = Counter(names)
    for place in (*data, *(() if label is None else (choice.label,))):
        if counts[name := names[place]] > 1:
            raise FileError(
                "ambiguous-column", f"{path}: several columns are named {name!r}; rename all but one of them"
            )
    coded = (label.name,) if label is not None and is_text(label.type) else ()
    file = ColumnarFile(path, schema, rows, coded)
    if choice.user is not None:
        refuse_repeated_users(str(path), str(user_column), users_in(file, choice.user))
    if label is not None:
        check_label_type(f"{path}: column {label.name!r}", label.type, lists=layout.lists)
    width = _check_numbers(file, data) if layout.numbers is not None else None
    return ArrowSource(file, choice, layout.lists, width)


def _check_numbers(file: ColumnarFile, data: Sequence[int]) -> int | None:
    """Refuse columns that are neither numbers nor one of lists of numbers, whose length is found."""
    path, fields = file.path, [file.schema.field(place) for place in data]
    for field in fields:
        if not is_arrow_number(field.type.value_type if is_list(field.type) else field.type):
            raise FileError(
                "not-numbers",
                f"{path}: column {field.name!r} has type {field.type}; allowed are numbers and lists of numbers: "
                "convert it, choose other columns with --columns, or count what it holds with --categories",
            )
    if not fields:
        raise FileError(
            "no-columns", f"{path}: has no data column; it must hold columns of numbers, or one of lists of numbers"
        )
    lists = [(place, field) for place, field in zip(data, fields, strict=True) if is_list(field.type)]
    if not lists:
        return None
    place, field = lists[0]
    if len(fields) > 1:
        raise FileError(
            "wrong-shape",
            f"{path}: column {field.name!r} holds lists and there are {len(fields) - 1} other data "
            f"columns; choose it alone with --columns {field.name}, or leave it out",
        )
    from pyarrow import compute

    lengths = (compute.list_value_length(batch.column(0)).drop_null() for batch in file.read((place,), 1024))
    fixed = getattr(field.type, "list_size", None)
    length = next((found[0].as_py() for found in lengths if len(found)), 0) if fixed is None else fixed
    if length == 0:
        raise FileError(
            "wrong-shape", f"{path}, column {field.name!r}: its lists are empty; each must hold one user's numbers"
        )
    return int(length)


def _describe(path: PathOrUrl) -> tuple[Any, int]:
    """The Arrow schema of a file, and how many rows it has; at most one column is read."""
    with _opened(path) as file:
        if not _is_ipc(path):
            return file.schema_arrow, file.metadata.num_rows
        schema = file.schema
    with _opened(path, schema.names[:1]) as file:
        return schema, sum(file.get_batch(index).num_rows for index in range(file.num_record_batches))


def _stream(path: PathOrUrl, names: Sequence[str], rows_at_once: int, coded: Sequence[str]) -> Iterator[Any]:
    with _opened(path, names, coded) as file:
        if not _is_ipc(path):
            yield from file.iter_batches(batch_size=rows_at_once, columns=list(names))
            return
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            batch.validate(full=True)
            for start in range(0, len(batch), rows_at_once):
                yield batch.slice(start, rows_at_once)


def _is_ipc(path: PathOrUrl) -> bool:
    return path.suffix.lower() in ARROW_FILES


@contextmanager
def _opened(path: PathOrUrl, names: Sequence[str] | None = None, coded: Sequence[str] = ()) -> Iterator[Any]:
    """A file to read these columns from; whatever is wrong with it is said with its name."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if not _is_ipc(path):
            where = path if isinstance(path, Path) else path.native()
            with parquet.ParquetFile(where, memory_map=True, read_dictionary=list(coded)) as file:
                yield file
            return
        with pa.OSFile(str(path)) if isinstance(path, Path) else path.native() as source:
            wanted = None if names is None else set(names)
            schema = pa.ipc.open_file(source).schema
            chosen = None if wanted is None else [i for i, name in enumerate(schema.names) if name in wanted]
            with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=chosen)) as file:
                yield file
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileError):
            raise
        kind = "an Arrow IPC file" if _is_ipc(path) else "Parquet"
        raise FileError(
            "damaged",
            f"{path}: cannot be read as {kind} ({error}); it may be cut short, damaged or of another format: write it "
            "again",
        ) from error
