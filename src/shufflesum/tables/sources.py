"""Files as Arrow batches: Parquet and Arrow IPC as they are, text as `delimited` reads it, behind one table of rows."""

from __future__ import annotations

import codecs
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from shufflesum.domains import ColumnLayout, Domain
from shufflesum.domains.base import AnswerColumn
from shufflesum.domains.frames import PANDAS_INDEX, FrameRows, is_arrow_number, is_list, number_column
from shufflesum.domains.labels import Labels
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.tables.paths import PathOrUrl

ARROW_FILES = (".arrow", ".feather")
"""How files of Arrow's IPC format end; the second version of Feather is the same."""

_BATCH_BYTES = 8 << 20
_LABELS_PER_BATCH = 1 << 18

_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|"}

PLAIN = ColumnLayout(numbers=())
"""Columns of numbers, however many, that no plan has names for."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is read of a file, and how the file is written: the same for one table, a folder of them, and Spark.

    What is None is as the plan calls it, or found out; letters are UTF-8.
    """

    columns: Sequence[str] | None = None
    """Data columns: names, positions where there are no names, ranges of positions such as ``0:100``."""
    user_column: str | None = None
    """The column that tells users apart: it is no data, and a user with two rows is refused."""
    header: bool | None = None
    """Whether the first line of a text file has the names of the columns."""
    separator: str | None = None
    """What is between the columns of a text file, as it is or by its name."""
    decimal: str | None = None
    encoding: str | None = None
    array: str | None = None
    """One of several arrays in an .npz file."""
    column: str | None = None
    """The column of labels, or of numbers in bins."""
    layout: ColumnLayout = PLAIN
    """What a plan's domain reads."""

    def __post_init__(self) -> None:
        """Check how a text file is said to be written."""
        if self.separator is not None:
            separator = _SEPARATORS.get(self.separator, self.separator)
            if len(separator) != 1 or not separator.isascii() or separator.isalnum() or separator in "\"'\r\n.+-":
                raise ParameterError(
                    "unknown-choice",
                    f"separator={self.separator!r} is not allowed; give one character that is in no number: ',' or ';' "
                    "or '|' or tab",
                )
            object.__setattr__(self, "separator", separator)
        if self.decimal not in (None, ".", ","):
            raise ParameterError("unknown-choice", f"decimal={self.decimal!r} is not allowed; allowed are '.' and ','")
        if self.encoding is not None:
            try:
                name = codecs.lookup(self.encoding).name
                "".encode(name)
            except LookupError:  # also of codecs that are not for text
                raise ParameterError(
                    "unknown-choice", f"encoding={self.encoding!r} is not known; give one such as latin-1 or utf-16"
                ) from None
            object.__setattr__(self, "encoding", name)

    def for_domain(self, domain: Domain) -> Self:
        """What is read for a plan of this domain."""
        columns, column, layout = self.columns, self.column, domain.column_layout
        if layout.answers is not None:
            if columns is not None or column is not None:
                raise ParameterError(
                    "conflicting-arguments", "columns of a survey have the names of its questions: leave out columns="
                )
        elif column is not None and not layout.named:
            raise ParameterError(
                "conflicting-arguments", f"the plan is for numbers, so no column holds labels: leave out {column!r}"
            )
        elif layout.single:
            if columns is not None:
                raise ParameterError("conflicting-arguments", "the numbers in bins are one column: column='NAME'")
            columns, column = None if column is None else [column], None
            layout = replace(layout, names=None if layout.column is None else (layout.column,))
        listed = getattr(domain, "labels", None)
        if isinstance(listed, Labels):
            layout = replace(layout, gaps=tuple(gap for gap in layout.gaps if listed.code(gap) < 0))
        return replace(self, columns=columns, column=column, layout=layout)


AUTOMATIC = ReadOptions()
"""All columns are data, and how the file is written is found out."""


@dataclass(frozen=True, slots=True)
class DataSource:
    """The users' data in a file, one row for each: numbers, labels, or both."""

    rows: int
    shape: tuple[int, ...]
    """Of one user's array of numbers; () where there are only labels."""
    batches: Callable[[], Iterator[Any]]
    """Rows in the file's order; each call starts from the first row.

    Numbers are arrays (m, *shape) of float32 or float64, missing values NaN. Labels are columns (m,) of Arrow or NumPy,
    lists of labels Arrow columns of lists or arrays of two axes. Both together are a pair of the two. Of a survey
    they are tables of Arrow. Values are not checked here: that is the domain's work.
    """
    names: tuple[str, ...] | None = None
    """Of the columns of numbers, where the file has some."""
    label_name: str | None = None
    """Of the column of labels, where it has one."""
    users: Callable[[], Iterator[Any]] = lambda: iter(())
    """Who each row is of, as text (Arrow arrays), in the file's order; nothing without a user column."""
    line_of: Callable[[int], int | None] = lambda _: None
    """On which line of a file of text a row stands; None elsewhere."""
    detected: Mapping[str, str] = field(default_factory=dict)
    """How a file of text is written, as it was read, by the options that say otherwise."""
    left_out: int | None = None
    """How many rows lack a value and are not among these; None where none were to be left out."""
    optional: frozenset[str] = frozenset()
    """Columns of a survey in which a missing value is an answer."""

    @property
    def column_names(self) -> tuple[str, ...] | None:
        """The names of all columns that are read, that of labels first, where the file has some."""
        if self.names is None and self.label_name is None:
            return None
        return (*(() if self.label_name is None else (self.label_name,)), *(self.names or ()))


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """A file of columns, read as Arrow batches."""

    path: PathOrUrl
    names: tuple[str, ...] | None
    """What all of its columns are called, if they have names."""
    rows: int
    read: Callable[[Sequence[int], int], Iterator[Any]]
    """Record batches of the columns at these positions, in this order, so many rows at once, from the first row."""
    line_of: Callable[[int], int | None] = lambda _: None
    detected: Mapping[str, str] = field(default_factory=dict)


def arrow_source(file: ArrowFile, choice: ColumnChoice, options: ReadOptions, width: int | None = None) -> DataSource:
    """The chosen columns of a file; a user with two rows is refused.

    `width` says how long the lists in the one column of numbers are.
    """
    label, data, user, answers = choice.label, choice.data, choice.user, options.layout.answers
    shape: tuple[int, ...] = (len(data) if width is None else width,) if data and answers is None else ()
    rows_at_once = (
        max(1, _BATCH_BYTES // (8 * len(data) if width is None else 8 * width)) if data else _LABELS_PER_BATCH
    )
    names = file.names or ()
    where = f"column {names[data[0]]!r}" if width is not None else "a column"

    def batches() -> Iterator[Any]:
        first_row = 0
        for batch in file.read(choice.read, rows_at_once):
            if answers is not None:
                yield _answers(batch, answers)
                continue
            labels = None if label is None else as_labels(batch.column(0), lists=options.layout.lists)
            if data:
                columns = batch.columns[-len(data) :]
                read = tuple(number_column(column, where, width, first_row) for column in columns)
                numbers = FrameRows(read, (len(batch), *shape))[:]
            first_row += len(batch)
            yield labels if not data else numbers if labels is None else (labels, numbers)

    def users() -> Iterator[Any]:
        return iter(()) if user is None else (batch.column(0) for batch in file.read((user,), 1 << 16))

    try:
        refuse_repeated_users(str(file.path), str(options.user_column), users())
    except DataError as error:
        line = None if error.row is None else file.line_of(error.row)
        raise (error if line is None else error.at(f"line {line}")) from None
    return DataSource(
        file.rows,
        shape,
        batches,
        tuple(names[place] for place in data) if names and width is None else None,
        names[label] if names and label is not None else None,
        lambda: map(as_text, users()),
        file.line_of,
        file.detected,
        optional=frozenset(each.name for each in answers or () if each.optional),
    )


def _answers(batch: Any, answers: Sequence[AnswerColumn]) -> Any:
    """Columns of answers by the names of their questions."""
    import pyarrow as pa

    columns = [
        as_labels(column, lists=True) if answer.lists else column
        for column, answer in zip(batch.columns, answers, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, [answer.name for answer in answers])


def open_columnar(path: PathOrUrl, options: ReadOptions) -> DataSource:
    """Choose the columns of a Parquet or an Arrow IPC file by its schema, and check the users if they are named."""
    schema, rows, _ = describe(path)
    if rows == 0:
        raise FileError("no-rows", f"{path}: has no rows; it must hold one row per user")
    names = tuple(schema.names)  # asked for once: the list is made anew each time
    choice, layout = choose_columns(str(path), names, options), options.layout
    counts = Counter(names)
    for place in choice.read:
        if counts[name := names[place]] > 1:
            raise FileError(
                "ambiguous-column", f"{path}: several columns are named {name!r}; rename all but one of them"
            )
    coded: list[str] = []
    if choice.label is not None:
        label = schema.field(choice.label)
        coded = [label.name] if is_text(label.type) else []  # Parquet has dictionaries of it already
        check_label_type(f"{path}: column {label.name!r}", label.type, lists=layout.lists)

    def read(positions: Sequence[int], rows_at_once: int) -> Iterator[Any]:
        import pyarrow as pa

        wanted = [names[position] for position in positions]
        for batch in stream(path, rows_at_once, wanted, memory_map=True, read_dictionary=coded):
            found = dict(zip(batch.schema.names, batch.columns, strict=True))  # by name, each is searched among all
            yield pa.RecordBatch.from_arrays([found[name] for name in wanted], wanted)

    file = ArrowFile(path, names, rows, read)
    for answer, place in zip(layout.answers or (), choice.data, strict=False):
        kind = schema.field(place).type
        if not answer.numbers:
            check_label_type(f"{path}: column {answer.name!r}", kind, lists=answer.lists)
        elif not is_arrow_number(kind):
            raise FileError(
                "not-numbers", f"{path}: column {answer.name!r} has type {kind}; this question is about numbers"
            )
    width = None if layout.numbers is None else _list_length(file, schema, choice.data)
    return arrow_source(file, choice, options, width)


def _list_length(file: ArrowFile, schema: Any, data: Sequence[int]) -> int | None:
    """The length of the lists in the one column that holds such; refused is what holds no numbers at all."""
    path, fields = file.path, [schema.field(place) for place in data]
    for each in fields:
        if not is_arrow_number(each.type.value_type if is_list(each.type) else each.type):
            raise FileError(
                "not-numbers",
                f"{path}: column {each.name!r} has type {each.type}; allowed are numbers and lists of numbers: "
                "convert it, choose other columns (columns=), or count what it holds (`Categories`)",
            )
    found = next((each for each in fields if is_list(each.type)), None)
    if found is None:
        return None
    if len(fields) > 1:
        raise FileError(
            "wrong-shape",
            f"{path}: column {found.name!r} holds lists and there are {len(fields) - 1} other data "
            f"columns; choose it alone with columns={found.name!r}, or leave it out",
        )
    lists = (batch.column(0).drop_null() for batch in file.read(data, 1024))
    fixed = getattr(found.type, "list_size", None)
    length = next((len(part[0]) for part in lists if len(part)), 0) if fixed is None else int(fixed)
    if length == 0:
        raise FileError(
            "wrong-shape", f"{path}, column {found.name!r}: its lists are empty; each must hold one user's numbers"
        )
    return length


def describe(path: PathOrUrl) -> tuple[Any, int, int]:
    """The Arrow schema of a file, its rows, and how many groups of them can be read apart; at most a column is read."""
    with _opened(path) as file:
        if not _is_ipc(path):
            return file.schema_arrow, file.metadata.num_rows, file.num_row_groups
        schema = file.schema
    with _opened(path, schema.names[:1], mapped=True) as file:
        groups = file.num_record_batches
        return schema, sum(file.get_batch(index).num_rows for index in range(groups)), groups


def stream(
    path: PathOrUrl,
    rows_at_once: int,
    names: Sequence[str] | None = None,
    groups: Iterable[int] | None = None,
    *,
    threads: bool = True,
    **parquet: Any,
) -> Iterator[Any]:
    """Record batches of at most so many rows, of these columns and groups; `parquet` says how Parquet is read."""
    with _opened(path, names, **parquet) as file:
        if not _is_ipc(path):
            chosen = {"row_groups": None if groups is None else list(groups), "columns": names}
            yield from file.iter_batches(rows_at_once, use_threads=threads, **chosen)
            return
        for index in range(file.num_record_batches) if groups is None else groups:
            batch = file.get_batch(index)
            batch.validate(full=True)
            for start in range(0, len(batch), rows_at_once):
                yield batch.slice(start, rows_at_once)


def _is_ipc(path: PathOrUrl) -> bool:
    return path.suffix.lower() in ARROW_FILES


@contextmanager
def _opened(
    path: PathOrUrl, names: Sequence[str] | None = None, *, mapped: bool = False, **parquet: Any
) -> Iterator[Any]:
    """A file to read these columns from; whatever is wrong with it is said with its name.

    A file that is mapped is only to be looked at: cut short while its columns are read, it would be a crash instead of
    an error.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        if not _is_ipc(path):
            with ParquetFile(path if isinstance(path, Path) else path.native(), **parquet) as file:
                yield file
            return
        local = pa.memory_map if mapped else pa.OSFile
        with local(str(path)) if isinstance(path, Path) else path.native() as source:
            wanted = None if names is None else set(names)
            schema = pa.ipc.open_file(source).schema
            chosen = None if wanted is None else [i for i, name in enumerate(schema.names) if name in wanted]
            with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=chosen)) as file:
                yield file
    except (FileError, MemoryError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        kind = "an Arrow IPC file" if _is_ipc(path) else "Parquet"
        raise FileError(
            "damaged",
            f"{path}: cannot be read as {kind} ({error}); it may be cut short, damaged or of another format: copy or "
            "write it again",
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

    @property
    def read(self) -> tuple[int, ...]:
        """The columns of users' data, that of labels first."""
        return self.data if self.label is None else (self.label, *self.data)


def is_position(text: str) -> bool:
    """Whether the text is a 0-based column position such as ``3``."""
    return _POSITION.fullmatch(text) is not None


def choose_columns(where: str, available: Sequence[str] | int, options: ReadOptions) -> ColumnChoice:
    """Find the columns asked for among the available ones: their names, or their number if they have none.

    Named columns are chosen by name, nameless ones by position, both also by a range of positions. All columns but
    those of users and labels are numbers unless ``columns`` says otherwise. What a plan calls its columns is taken
    unasked, and no other is; files without names pass.
    """
    columns, user_column, layout = options.columns, options.user_column, options.layout
    file = _File(where, available if isinstance(available, int) else tuple(available))
    names, planned = file.names, layout.names
    user = None if user_column is None else file.find(user_column, "user_column=")
    if layout.answers is not None:
        return ColumnChoice(tuple(file.find(answer.name, "the question ") for answer in layout.answers), user)
    label = _label_position(file, layout, options.column, user) if layout.labels else None
    if layout.labels and not layout.grouped:
        if columns is not None:
            raise ParameterError(
                "conflicting-arguments", "columns= is for numbers; name the column of labels with column="
            )
        return ColumnChoice((), user, label)
    if columns is None and planned is not None and names is not None:
        _refuse_others(where, planned, names)
        columns = planned
    if columns is None:
        data = tuple(position for position in file.visible if position not in (user, label))
        if not data:
            beside = "".join(f" beside column {file.named(place)}" for place in (user, label) if place is not None)
            raise FileError("no-columns", f"{where}: no data column is left{beside}")
        return ColumnChoice(data, user, label)
    if not columns:
        raise ParameterError(
            "missing-argument", "columns= is empty; name at least one column, or leave it out to take all of them"
        )
    chosen = tuple(position for text in columns for position in file.find_range(text))
    for position, times in Counter(chosen).items():
        if position in (user, label):
            kind = "user" if position == user else "label"
            raise ParameterError(
                "conflicting-arguments",
                f"columns= includes the {kind} column {file.named(position)}, which holds no numbers; leave it out",
            )
        if times > 1:
            raise ParameterError(
                "conflicting-arguments", f"columns= names column {file.named(position)} twice; name each column once"
            )
    if planned is not None and names is not None and tuple(names[position] for position in chosen) != tuple(planned):
        raise DataError(
            "columns-mismatch",
            f"{where}: columns= are not those of the plan, in its order: {_some(tuple(planned))}; "
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

    @property
    def visible(self) -> list[int]:
        """All columns but those where pandas keeps its row labels, which are data only if asked for."""
        return [p for p in range(self.width) if self.names is None or not PANDAS_INDEX.fullmatch(self.names[p])]

    def named(self, place: int) -> str:
        """A column as messages name it."""
        return repr(self.names[place]) if self.names else str(place)

    def find_range(self, text: str) -> Sequence[int]:
        """The columns of a range, or the one of a name or at a position."""
        match, width = _RANGE.fullmatch(text), self.width
        if match is None or text in self.places:
            return (self.find(text, "columns="),)
        start, stop = int(match[1] or 0), int(match[2] or width)
        if not 0 <= start < stop <= width:
            raise FileError(
                "unknown-column",
                f"{self.where}: columns={text} is no range of its {width} columns; "
                f"give first:last+1 with 0 <= first < last+1 <= {width}",
            )
        return range(start, stop)

    def find(self, text: str, argument: str) -> int:
        """The one column of a name, or at a position where there are no names; `argument` begins what is said of it."""
        where, last = self.where, self.width - 1
        if self.names is None:
            if not is_position(text):
                raise FileError(
                    "unknown-column",
                    f"{where}: {argument}{text!r} is a name, but the file has no header; "
                    f"give a position from 0 to {last}, or say that the first line is a header (header=True)",
                )
            if int(text) > last:
                raise FileError(
                    "unknown-column",
                    f"{where}: {argument}{text} is past its last column; positions go from 0 to {last}",
                )
            return int(text)
        places = self.places.get(text, ())
        if not places:
            hint = f", or {text}:{int(text) + 1} for a position" if is_position(text) and argument == "columns=" else ""
            known = {name.casefold(): name for name in self.names}
            near = difflib.get_close_matches(text.casefold(), known, n=1)
            meant = f"did you mean {known[near[0]]!r}? " if near else ""
            if len(self.names) == 1:
                hint += "; if the header is not the first line, remove what is above it"
            raise FileError(
                "unknown-column",
                f"{where}: no column is named {text!r}; {meant}{argument} may be {_some(self.names)}{hint}",
            )
        if len(places) > 1:
            raise FileError(
                "ambiguous-column",
                f"{where}: {len(places)} columns are named {text!r}; rename all but one, "
                "or choose data columns by a range of positions such as columns=0:3",
            )
        return places[0]


def _label_position(file: _File, layout: ColumnLayout, name: str | None, user: int | None) -> int:
    where, names = file.where, file.names
    if layout.column is not None and names is not None:
        _refuse_others(where, [layout.column], names if name is None else [name])
        name = layout.column
    if name is not None:
        position = file.find(name, "column=")
        if position == user:
            raise ParameterError("conflicting-arguments", f"column= names the user column {name!r}, which is not data")
        return position
    others = [position for position in file.visible if position != user]
    if len(others) != 1 or layout.grouped:
        raise ParameterError(
            "missing-argument",
            f"{where}: has {len(others)} columns"
            + (f" ({_some(names)})" if names else "")
            + "; say which one holds the labels: column='NAME'",
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

    held = kind.value_type if lists and is_list(kind) else kind
    if pa.types.is_dictionary(held):
        held = held.value_type
    if lists and not is_list(kind) and not is_text(held):
        raise FileError(
            "wrong-type",
            f"{where} has type {kind}; several labels of a user are a list, or text with {SEPARATOR!r} between them",
        )
    if not (is_text(held) or is_arrow_number(held)):
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
    split = compute.split_pattern_regex(texts, _BETWEEN)
    return compute.if_else(compute.equal(texts, ""), pa.scalar([], split.type), split)


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
    if not is_text(array.type):
        return array
    # " 7" and "7" are the same person typed twice, and a blank is nobody.
    array = compute.utf8_trim_whitespace(array.cast(pa.large_string()))
    return compute.if_else(compute.equal(array, ""), None, array)


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
            "user_column= needs text or numbers",
        ) from error
    if len(counts) < rows:
        repeated = counts.filter(compute.greater(counts.field("counts"), 1))[0]
        raise DataError(
            "repeated-user",
            f"{where}: a user has {repeated['counts'].as_py()} rows; with "
            f"user_column={column!r} each user has one. Combine each user's rows first, by their average or "
            f"sum (a group-by on {column!r}); leave user_column= out only if you want a guarantee per row",
            value=repr(repeated["values"].as_py()),
        )
    return rows
