"""Files as Arrow batches: Parquet and Arrow IPC as they are, text as `delimited` reads it, behind one table of rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains import ColumnLayout
from shufflesum.domains.frames import PANDAS_INDEX, Column, FrameRows, is_arrow_number, is_list, number_column
from shufflesum.errors import DataError, FileError, ParameterError
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


# ---- Columns of a table: which are asked for, text as labels or lists of labels, and users who must not come twice.

_POSITION = re.compile(r"\d+")
_RANGE = re.compile(r"(\d*):(\d*)")


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """Positions in the file: numbers in the order asked for, and the columns of users and of labels where there are."""

    data: tuple[int, ...]
    user: int | None
    label: int | None = None


PLAIN = ColumnLayout(numbers=())
"""Columns of numbers, however many, that no plan has names for."""


def is_position(text: str) -> bool:
    """Whether the text is a 0-based column position such as ``3``."""
    return _POSITION.fullmatch(text) is not None


def choose_columns(
    where: str,
    available: Sequence[str] | int,
    columns: Sequence[str] | None,
    user_column: str | None,
    layout: ColumnLayout = PLAIN,
    column: str | None = None,
) -> ColumnChoice:
    """Find the columns asked for among the available ones: their names, or their number if they have none.

    Named columns are chosen by name, nameless ones by position, both also by a range of positions such as
    ``0:100``. All columns but those of users and labels are numbers unless ``columns`` says otherwise; ``column`` is
    that of labels. What a plan calls its columns (in its ``layout``) is taken unasked, and no other is; files without
    names pass.
    """
    file = _File(where, available if isinstance(available, int) else tuple(available))
    names, width, planned = file.names, file.width, layout.names
    user = None if user_column is None else _find(file, user_column, "--user-column")
    label = _label_position(file, layout, column, user) if layout.labels else None
    if layout.labels and not layout.grouped:
        if columns is not None:
            raise ParameterError(
                "conflicting-arguments", f"--columns is for numbers; name the column of labels with {layout.option}"
            )
        return ColumnChoice((), user, label)
    if columns is None and planned is not None and names is not None:
        _refuse_others(where, planned, names)
        columns = planned
    if columns is None:
        data = tuple(position for position in range(width) if position not in (user, label))
        if not data:
            beside = user_column if user is not None else names[label or 0] if names else label
            raise FileError("no-columns", f"{where}: no data column is left beside column {beside!r}")
        return ColumnChoice(data, user, label)
    if not columns:
        raise ParameterError(
            "missing-argument", "--columns is empty; name at least one column, or leave it out to take all of them"
        )
    chosen = _numbers(file, columns, {user: "user", label: "label"})
    if planned is not None and names is not None and tuple(names[position] for position in chosen) != tuple(planned):
        raise DataError(
            "columns-mismatch",
            f"{where}: --columns are not those of the plan, in its order: {_some(tuple(planned))}; "
            "leave it out, or give another plan",
        )
    return ColumnChoice(chosen, user, label)


class _File:
    """The columns of a file; where they have names, each is found at once, however many there are."""

    def __init__(self, where: str, available: tuple[str, ...] | int) -> None:
        self.where = where
        self.names = None if isinstance(available, int) else available
        self.width = available if isinstance(available, int) else len(available)
        self.places: dict[str, list[int]] = {}
        for place, name in enumerate(self.names or ()):
            self.places.setdefault(name, []).append(place)


def _numbers(file: _File, columns: Sequence[str], taken: dict[int | None, str]) -> tuple[int, ...]:
    """The positions of columns of numbers, each once, none of them taken for something else."""
    names = file.names
    chosen: list[int] = []
    for text in columns:
        chosen.extend(_find_range(file, text))
    for position in chosen:
        if position in taken:
            column = repr(names[position]) if names else str(position)
            raise ParameterError(
                "conflicting-arguments",
                f"--columns includes the {taken[position]} column {column}, which holds no numbers; leave it out",
            )
    if len(set(chosen)) < len(chosen):
        twice = next(position for position in chosen if chosen.count(position) > 1)
        label = repr(names[twice]) if names else str(twice)
        raise ParameterError("conflicting-arguments", f"--columns names column {label} twice; name each column once")
    return tuple(chosen)


def _label_position(file: _File, layout: ColumnLayout, name: str | None, user: int | None) -> int:
    where, names, option = file.where, file.names, str(layout.option)
    if layout.column is not None and names is not None:
        _refuse_others(where, [layout.column], names if name is None else [name])
        name = layout.column
    if name is not None:
        position = _find(file, name, option)
        if position == user:
            raise ParameterError("conflicting-arguments", f"{option} names the user column {name!r}, which is not data")
        return position
    hidden = {} if names is None else {place for place, text in enumerate(names) if PANDAS_INDEX.fullmatch(text)}
    others = [position for position in range(file.width) if position != user and position not in hidden]
    if len(others) != 1 or layout.grouped:
        raise ParameterError(
            "missing-argument",
            f"{where}: has {len(others)} columns"
            + (f" ({_some(names)})" if names else "")
            + f"; say which one holds the labels: {option} COLUMN",
        )
    return others[0]


def _refuse_others(where: str, planned: Sequence[str], names: Sequence[str]) -> None:
    known = set(names)
    lacking = next((name for name in planned if name not in known), None)
    if lacking is not None:
        raise DataError(
            "columns-mismatch",
            f"{where}: the plan is for column {lacking!r}, but there is {_some(tuple(names))}; give the right file, or "
            "a plan for these columns",
        )


def _find_range(file: _File, text: str) -> Sequence[int]:
    match, width = _RANGE.fullmatch(text), file.width
    if match is None or text in file.places:
        return (_find(file, text, "--columns"),)
    start, stop = int(match[1] or 0), int(match[2] or width)
    if not 0 <= start < stop <= width:
        raise FileError(
            "unknown-column",
            f"{file.where}: --columns {text} is no range of its {width} columns; "
            f"give first:last+1 with 0 <= first < last+1 <= {width}",
        )
    return range(start, stop)


def _find(file: _File, text: str, option: str) -> int:
    where, width = file.where, file.width
    if file.names is None:
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
    places = file.places.get(text, ())
    if not places:
        hint = f", or {text}:{int(text) + 1} for a position" if is_position(text) and option == "--columns" else ""
        raise FileError(
            "unknown-column", f"{where}: no column is named {text!r}; {option} may be {_some(file.names)}{hint}"
        )
    if len(places) > 1:
        raise FileError(
            "ambiguous-column",
            f"{where}: {len(places)} columns are named {text!r}; rename all but one, "
            "or choose data columns by a range of positions such as --columns 0:3",
        )
    return places[0]


def _some(names: tuple[str, ...]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


SEPARATOR = ";"
"""What separates the labels in one cell of text."""

_AROUND = f"{SEPARATOR} \t"
_BETWEEN = rf"\s*{SEPARATOR}[\s{SEPARATOR}]*"


def check_label_type(where: str, kind: Any, *, lists: bool) -> None:
    """Refuse a column whose type holds no labels, or lists of them where one is meant."""
    import pyarrow as pa

    held = kind
    if lists and is_list(kind):
        held = kind.value_type
    elif lists and not is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        raise FileError(
            "wrong-type",
            f"{where} has type {kind}; several labels of a user are a list, or text with {SEPARATOR!r} between them",
        )
    if pa.types.is_dictionary(held):
        held = held.value_type
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if not (is_text(held) or any(test(held) for test in tests)):
        raise FileError(
            "wrong-type",
            f"{where} has type {kind}; labels are text, whole numbers, or true and false: convert it, or name another "
            "column",
        )


def as_labels(column: Any, *, lists: bool) -> Any:
    """A column (an Arrow array) as it is, but for cells of text with several labels, which become lists.

    Separators at either end, and several in a row, are no labels; an empty cell is a list of none.
    """
    import pyarrow as pa
    from pyarrow import compute

    if not lists or is_list(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts = compute.utf8_trim(column.cast(pa.large_string()), _AROUND).fill_null("")
    filled = compute.not_equal(texts, "")
    split = compute.split_pattern_regex(texts.filter(filled), _BETWEEN)
    sizes = np.zeros(len(column), np.int64)
    sizes[filled.to_numpy(zero_copy_only=False)] = compute.list_value_length(split).to_numpy(zero_copy_only=False)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return pa.LargeListArray.from_arrays(pa.array(starts, pa.int64()), split.flatten())


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is plain text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def as_text(chunk: Any) -> Any:
    """A piece of a user column as text: what is text in one file may be numbers in another."""
    import pyarrow as pa

    return _tidied(chunk).cast(pa.string())


def _tidied(chunk: Any) -> Any:
    import pyarrow as pa
    from pyarrow import compute

    array = chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        # " 7" and "7" are the same person typed twice, and a blank is nobody.
        array = compute.utf8_trim_whitespace(array)
        array = compute.if_else(compute.equal(array, ""), None, array)
    return array


def refuse_repeated_users(where: str, column: str, chunks: Iterable[Any]) -> int:
    """Read a user column (Arrow arrays) to its end and return its number of rows.

    Refuses a row without a user and a user with more than one row. Keeps the whole column in memory.
    """
    import pyarrow as pa
    from pyarrow import compute

    kept: list[Any] = []
    rows = 0
    for chunk in chunks:
        array = _tidied(chunk)
        if array.null_count:
            row = rows + compute.index(compute.is_null(array), True).as_py()
            raise DataError(
                "missing-value",
                f"{where}: data row {row} (counted from 0) has no user in column {column!r}; "
                "fill it in or remove the row: one row is one user",
                row=row,
            )
        kept.append(array)
        rows += len(array)
    if not kept:
        return 0
    users = pa.chunked_array(kept)
    try:
        counts = compute.value_counts(users)
    except pa.ArrowNotImplementedError as error:
        raise FileError(
            "not-comparable",
            f"{where}: user column {column!r} has type {users.type}, which cannot be compared; "
            "--user-column needs text or numbers",
        ) from error
    if len(counts) < rows:
        repeated = counts.filter(compute.greater(counts.field("counts"), 1))[0]
        raise DataError(
            "repeated-user",
            f"{where}: a user has {repeated['counts'].as_py()} rows; with "
            f"--user-column {column} each user has one. Combine each user's rows first, by their average or "
            f"sum (a group-by on {column!r}); leave --user-column out only if you want a guarantee per row",
            value=repr(repeated["values"].as_py()),
        )
    return rows
