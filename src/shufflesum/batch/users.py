"""The users' data in one file or in a folder of files, as one sequence of rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shufflesum.batch.once import refuse_same_files
from shufflesum.domains import ColumnLayout, Domain, Rows
from shufflesum.errors import DataError, FileError
from shufflesum.tables import (
    READABLE,
    Address,
    DataSource,
    Dialect,
    PathOrUrl,
    column_names,
    open_table,
    place,
    reading,
    rows_of,
    suffix_of,
    unread,
    visible,
)
from shufflesum.tables.columns import PLAIN, refuse_repeated_users


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that follow each other in one file, and where they stand: in the file, and in all."""

    path: PathOrUrl
    row_in_file: int
    row: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Users:
    """Tables of the same shape, one after another; one row is one user."""

    path: PathOrUrl
    tables: tuple[tuple[PathOrUrl, DataSource], ...]
    selection: Mapping[str, Any]  # the arguments of open_users that say which columns and rows

    @property
    def rows(self) -> int:
        """How many users there are."""
        return sum(table.rows for _, table in self.tables)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array of numbers."""
        return self.tables[0][1].shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, that of labels first, where the files have some."""
        return column_names(self.tables[0][1])

    @property
    def paths(self) -> list[PathOrUrl]:
        """The files, in order."""
        return [path for path, _ in self.tables]

    def pieces(self, domain: Domain, multiple: int, most: int) -> Iterator[Piece]:
        """All rows in order, as a domain takes them, at most so many at a time; see `tables.check_shape`.

        No piece goes beyond a multiple of so many rows.
        """
        row = 0
        for path, table in self.tables:
            row_in_file = 0
            for batch in _named(path, rows_of(table, domain)):
                start = 0
                while start < len(batch):
                    stop = min(len(batch), start + most, start + multiple - row % multiple)
                    yield Piece(path, row_in_file, row, batch[start:stop])
                    row, row_in_file, start = row + stop - start, row_in_file + stop - start, stop


def open_users(
    path: str | os.PathLike[str] | Address,
    *,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    user_column: str | None = None,
    array: str | None = None,
    layout: ColumnLayout = PLAIN,
    column: str | None = None,
    dialect: Dialect | None = None,
) -> Users:
    """Open a file that `tables.open_table` reads, or a folder of such files of one kind, in the order of their names.

    Files of a folder without any row are skipped, with a warning that names them. A user with two rows is refused where
    `user_column` is given, in whichever files they are; that keeps the whole column in memory.
    """
    path = place(path)
    if not path.exists():
        raise FileError(
            unread(path), f"{path}: does not exist; give a {', '.join(READABLE)} file, or a folder of such files"
        )
    asked: dict[str, Any] = {"columns": columns, "header": header, "user_column": user_column, "array": array}

    def opened(file: PathOrUrl) -> DataSource:
        return open_table(file, layout=layout, column=column, dialect=dialect, keep=False, **asked)

    tables = _filled(path, opened) if path.is_dir() else ((path, opened(path)),)
    refuse_same_files(file for file, _ in tables)
    first_path, first = tables[0]
    for other_path, other in tables[1:]:
        if other.shape != first.shape:
            raise FileError(
                "wrong-shape",
                f"{other_path}: its rows have shape {other.shape}, those of {first_path.name} {first.shape}; all files "
                "of a folder must have the same",
            )
        if column_names(other) != column_names(first):
            raise FileError(
                "mixed-files", f"{other_path}: its columns are not named, or ordered, as those of {first_path.name}"
            )
    if user_column is not None and len(tables) > 1:
        refuse_repeated_users(str(path), user_column, (chunk for _, table in tables for chunk in table.users()))
    written = {} if dialect is None else {option: said for option, said in dialect.given.items() if said is not None}
    return Users(path, tables, asked | written | {"labels": column if layout.labels else None})


def _filled(folder: PathOrUrl, opened: Callable[[PathOrUrl], DataSource]) -> tuple[tuple[PathOrUrl, DataSource], ...]:
    """The tables of a folder; a day on which nobody came may well have left an empty file."""
    tables, skipped = [], []
    for file in _visible(folder):
        try:
            tables.append((file, opened(file)))
        except FileError as error:
            if error.problem != "no-rows":
                raise
            skipped.append(file.name)
    if not tables:
        raise FileError("no-rows", f"{folder}: none of its {len(skipped)} files has a row; one row is one user")
    if skipped:
        named = ", ".join(skipped[:5]) + (f" and {len(skipped) - 5} more" if len(skipped) > 5 else "")
        warnings.warn(f"{folder}: skipped what has no rows: {named}", stacklevel=3)
    return tuple(tables)


def _named(path: PathOrUrl, batches: Iterator[Rows]) -> Iterator[Rows]:
    """The batches; what is wrong with a whole one is said with the file's name."""
    try:
        yield from batches
    except DataError as error:
        raise error.at(path) from None


def _visible(folder: PathOrUrl) -> list[PathOrUrl]:
    with reading(folder):
        files = visible(folder)
    if not files:
        raise FileError(
            "no-rows", f"{folder}: is an empty folder; it must hold {', '.join(READABLE)} files of one kind"
        )
    if inner := next((file for file in files if file.is_dir()), None):
        raise FileError(
            "unknown-file-type", f"{inner}: is a folder inside a folder, which is not read; put all files into one"
        )
    kinds = sorted({suffix_of(file) for file in files})
    if len(kinds) > 1:
        raise FileError(
            "mixed-files", f"{folder}: holds files of several kinds ({', '.join(kinds)}); one kind is needed"
        )
    return files
