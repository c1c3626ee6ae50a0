"""The users' data in one file or in a folder of files, as one sequence of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shufflesum.batch.once import refuse_same_files
from shufflesum.domain import Domain, Rows
from shufflesum.errors import DataError, FileError
from shufflesum.tables import READABLE, LabelColumn, Table, column_names, open_table, rows_of
from shufflesum.tables.users import refuse_repeated_users

__all__ = ["Piece", "Users", "open_users"]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that follow each other in one file, and where they stand: in the file, and in all."""

    path: Path
    row_in_file: int
    row: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Users:
    """Tables of the same shape, one after another; one row is one user."""

    path: Path
    tables: tuple[tuple[Path, Table], ...]
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
    def paths(self) -> list[Path]:
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
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    user_column: str | None = None,
    array: str | None = None,
    labels: LabelColumn | None = None,
    planned: Sequence[str] | None = None,
) -> Users:
    """Open a file that `tables.open_table` reads, or a folder of such files of one kind, in the order of their names.

    A user with two rows is refused where `user_column` is given, in whichever files they are; that keeps the whole
    column in memory.
    """
    path = Path(path)
    if not path.exists():
        raise FileError(
            "unreadable", f"{path}: does not exist; give a {', '.join(READABLE)} file, or a folder of such files"
        )
    files = _visible(path) if path.is_dir() else [path]
    refuse_same_files(files)
    asked: dict[str, Any] = {"columns": columns, "header": header, "user_column": user_column, "array": array}
    tables = tuple((file, open_table(file, labels=labels, planned=planned, **asked)) for file in files)
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
    return Users(path, tables, asked | {"labels": None if labels is None else labels.column})


def _named(path: Path, batches: Iterator[Rows]) -> Iterator[Rows]:
    """The batches; what is wrong with a whole one is said with the file's name."""
    try:
        yield from batches
    except DataError as error:
        raise DataError(error.problem, f"{path}: {error}") from error


def _visible(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in folder.iterdir() if not file.name.startswith(("_", ".")))
    except OSError as error:
        raise FileError(
            "unreadable", f"{folder}: cannot be read: {error.strerror or error}; check its permissions"
        ) from error
    if not files:
        raise FileError(
            "no-rows", f"{folder}: is an empty folder; it must hold {', '.join(READABLE)} files of one kind"
        )
    if inner := next((file for file in files if file.is_dir()), None):
        raise FileError(
            "unknown-file-type", f"{inner}: is a folder inside a folder, which is not read; put all files into one"
        )
    kinds = sorted({file.suffix.lower() for file in files})
    if len(kinds) > 1:
        raise FileError(
            "mixed-files", f"{folder}: holds files of several kinds ({', '.join(kinds)}); one kind is needed"
        )
    return files
