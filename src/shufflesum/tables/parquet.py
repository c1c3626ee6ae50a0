"""Parquet and Arrow IPC files: what columns they have, and record batches of some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains.frames import PANDAS_INDEX, arrow_floats, arrow_lists, is_arrow_list, is_arrow_number
from shufflesum.errors import FileError
from shufflesum.tables.columns import (
    ColumnChoice,
    LabelColumn,
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


def describe(path: PathOrUrl) -> tuple[Any, int]:
    """The Arrow schema of a file, and how many rows it has; at most one column is read."""
    with _opened(path) as file:
        if not _is_ipc(path):
            return file.schema_arrow, file.metadata.num_rows
        schema = file.schema
    with _opened(path, schema.names[:1]) as file:
        return schema, sum(file.get_batch(index).num_rows for index in range(file.num_record_batches))


def stream(path: PathOrUrl, names: Sequence[str], rows_at_once: int, coded: Sequence[str] = ()) -> Iterator[Any]:
    """Record batches of these columns, at most so many rows each.

    `coded` columns of text in Parquet come as the dictionaries that they are in the file.
    """
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
            chosen = None if names is None else _places(pa.ipc.open_file(source).schema, names)
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


def _places(schema: Any, names: Sequence[str]) -> list[int]:
    wanted = set(names)
    return [place for place, name in enumerate(schema.names) if name in wanted]


_BATCH_BYTES = 8 << 20
_USERS_PER_BATCH = 1 << 16
_LABELS_PER_BATCH = 1 << 18


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """Numeric columns, one row per user; nulls are NaN."""

    path: PathOrUrl
    names: tuple[str, ...]
    rows: int
    dtype: np.dtype[Any]
    user_column: str | None = None
    label_name: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array: one value per chosen column."""
        return (len(self.names),)

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return self.names

    @property
    def rows_per_batch(self) -> int:
        """How many rows at once are not too much."""
        return max(1, _BATCH_BYTES // (8 * len(self.names)))

    def batches(self) -> Iterator[NDArray[Any]]:
        """Read the file from its start."""
        return map(self.block, stream(self.path, self.names, self.rows_per_batch))

    def block(self, batch: Any, first_row: int = 0) -> NDArray[Any]:
        """The numbers in a record batch."""
        block = np.empty((len(batch), len(self.names)), self.dtype)
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))  # by name, each is searched for among all
        for index, name in enumerate(self.names):
            block[:, index] = arrow_floats(columns[name])
        return block

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text."""
        return map(as_text, _users(self.path, self.user_column))


@dataclass(frozen=True, slots=True)
class LabelTable:
    """A column of labels, and the numbers beside it where there are some."""

    path: PathOrUrl
    label_name: str
    rows: int
    lists: bool = False
    numbers: ParquetTable | ListTable | None = None
    user_column: str | None = None
    coded: tuple[str, ...] = ()
    """The column of labels where it is text, which files keep as dictionaries: only different labels are looked at."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the numbers beside a label."""
        return () if self.numbers is None else self.numbers.shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers."""
        return () if self.numbers is None else self.numbers.names

    def batches(self) -> Iterator[Any]:
        """Read the file from its start."""
        if self.numbers is None:
            for batch in stream(self.path, (self.label_name,), _LABELS_PER_BATCH, self.coded):
                yield as_labels(batch.column(0), lists=self.lists)
            return
        first_row = 0
        columns = (self.label_name, *self.numbers.columns)
        for batch in stream(self.path, columns, self.numbers.rows_per_batch, self.coded):
            yield batch.column(self.label_name), self.numbers.block(batch, first_row)
            first_row += len(batch)

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text."""
        return map(as_text, _users(self.path, self.user_column))


@dataclass(frozen=True, slots=True)
class ListTable:
    """One column of lists of equal length, one list per user; nulls are NaN."""

    path: PathOrUrl
    column: str
    rows: int
    length: int
    user_column: str | None = None
    names: None = None
    label_name: None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array: the length of every list."""
        return (self.length,)

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (self.column,)

    @property
    def rows_per_batch(self) -> int:
        """How many rows at once are not too much."""
        return max(1, _BATCH_BYTES // (8 * self.length))

    def batches(self) -> Iterator[NDArray[Any]]:
        """Read the file from its start; refuses a list of another length."""
        rows = 0
        for batch in stream(self.path, self.columns, self.rows_per_batch):
            yield self.block(batch, rows)
            rows += len(batch)

    def block(self, batch: Any, first_row: int = 0) -> NDArray[Any]:
        """The lists in a record batch, whose first row is this one of the file."""
        from pyarrow import compute

        lists = batch.column(self.column)
        lengths = compute.list_value_length(lists).fill_null(self.length).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.length)
        if wrong.size:
            raise FileError(
                "wrong-shape",
                f"{self.path}, column {self.column!r}: row {first_row + wrong[0]} (counted from 0) has "
                f"{lengths[wrong[0]]} values, earlier rows have {self.length}; all must be equally long",
            )
        return np.require(arrow_lists(lists, self.length), requirements="W")  # as kernels are compiled

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text."""
        return map(as_text, _users(self.path, self.user_column))


def open_parquet(
    path: PathOrUrl,
    columns: Sequence[str] | None,
    user_column: str | None,
    labels: LabelColumn | None = None,
    planned: Sequence[str] | None = None,
) -> ParquetTable | ListTable | LabelTable:
    """Choose the columns from the file's schema, and check the users if their column is named."""
    schema, rows = describe(path)
    if rows == 0:
        raise FileError("no-rows", f"{path}: has no rows; it must hold one row per user")
    choice = choose_columns(str(path), schema.names, columns, user_column, labels, planned)
    if user_column is not None:
        refuse_repeated_users(str(path), user_column, _users(path, user_column))
    if labels is None or choice.label is None:
        return _numbers(path, schema, rows, choice, columns, user_column)
    name = schema.names[choice.label]
    _refuse_ambiguous(path, schema, [name])
    check_label_type(f"{path}: column {name!r}", schema.field(name).type, lists=labels.lists)
    numbers = _numbers(path, schema, rows, choice, columns, user_column) if labels.numbers else None
    coded = (name,) if is_text(schema.field(name).type) else ()
    return LabelTable(path, name, rows, labels.lists, numbers, user_column, coded)


def _numbers(
    path: PathOrUrl,
    schema: Any,
    rows: int,
    choice: ColumnChoice,
    columns: Sequence[str] | None,
    user_column: str | None,
) -> ParquetTable | ListTable:
    """Columns of numbers, or one of lists of numbers."""
    import pyarrow as pa

    types = pa.types
    # pandas keeps its row labels under such names; they are data only if asked for.
    fields = [schema.field(position) for position in choice.data]
    if columns is None:
        fields = [field for field in fields if not PANDAS_INDEX.fullmatch(field.name)]
    _refuse_ambiguous(path, schema, [field.name for field in fields])
    for field in fields:
        if not (is_arrow_number(field.type) or is_arrow_list(field.type)):
            raise FileError(
                "not-numbers",
                f"{path}: column {field.name!r} has type {field.type}; allowed are numbers and lists "
                "of numbers: convert it, or choose other columns with --columns",
            )
    lists = [field for field in fields if is_arrow_list(field.type)]
    if not fields:
        raise FileError(
            "no-columns", f"{path}: has no data column; it must hold columns of numbers, or one of lists of numbers"
        )
    if lists and len(fields) > 1:
        raise FileError(
            "wrong-shape",
            f"{path}: column {lists[0].name!r} holds lists and there are {len(fields) - 1} other data "
            f"columns; choose it alone with --columns {lists[0].name}, or leave it out",
        )
    if lists:
        return ListTable(path, lists[0].name, rows, _list_length(path, lists[0]), user_column)
    single = all(types.is_float32(field.type) or types.is_float16(field.type) for field in fields)
    dtype = np.dtype(np.float32 if single else np.float64)
    return ParquetTable(path, tuple(field.name for field in fields), rows, dtype, user_column)


def _refuse_ambiguous(path: PathOrUrl, schema: Any, names: Sequence[str]) -> None:
    counts = Counter(schema.names)
    if (twice := next((name for name in names if counts[name] > 1), None)) is not None:
        raise FileError("ambiguous-column", f"{path}: several columns are named {twice!r}; rename all but one of them")


def _users(path: PathOrUrl, user_column: str | None) -> Iterator[Any]:
    if user_column is not None:
        for batch in stream(path, (user_column,), _USERS_PER_BATCH):
            yield batch.column(0)


def _list_length(path: PathOrUrl, field: Any) -> int:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_fixed_size_list(field.type):
        length = int(field.type.list_size)
    else:
        lengths = (
            compute.list_value_length(batch.column(field.name)).drop_null()
            for batch in stream(path, (field.name,), 1024)
        )
        length = next((found[0].as_py() for found in lengths if len(found)), 0)
    if length == 0:
        raise FileError(
            "wrong-shape", f"{path}, column {field.name!r}: its lists are empty; each must hold one user's numbers"
        )
    return length
