"""Files of users' data, read in batches: CSV, Parquet, .npy and .npz behind one interface."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from shufflesum.errors import FileError, MissingExtraError, ParameterError
from shufflesum.tables.arrays import open_npy, open_npz
from shufflesum.tables.columns import LabelColumn
from shufflesum.tables.delimited import open_csv
from shufflesum.tables.parquet import open_parquet

__all__ = ["READABLE", "Table", "column_names", "open_table"]

READABLE = (".csv", ".parquet", ".npy", ".npz")


class Table(Protocol):
    """The users' data in a file, one row for each: numbers, labels, or both."""

    @property
    def rows(self) -> int:
        """How many users there are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array of numbers."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers, where the file has some."""

    @property
    def label_name(self) -> str | None:
        """The name of the column of labels, where it has one."""

    def batches(self) -> Iterator[Any]:
        """Rows in the file's order; each call starts from the first row.

        Numbers are arrays (m, *shape) of float32 or float64, missing values NaN. Labels are columns (m,) of Arrow or
        NumPy, lists of labels Arrow columns of lists or arrays of two axes. Both together are a pair of the two. Values
        are not checked here: that is the domain's work.
        """

    def users(self) -> Iterator[Any]:
        """Who each row is of, as text (Arrow arrays), in the file's order; nothing without a user column."""


def open_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    user_column: str | None = None,
    array: str | None = None,
    labels: LabelColumn | None = None,
    planned: Sequence[str] | None = None,
) -> Table:
    """Open a file of users' data by its suffix: .csv, .parquet, .npy or .npz.

    ``columns`` chooses data columns of a CSV or Parquet file (names, positions where there are no names,
    ranges of positions such as ``0:100``). ``header`` overrides the guess that a first CSV line of numbers is
    data. ``user_column`` names the column that tells users apart: it is no data, and a user with two rows is
    refused. ``array`` chooses one of several arrays in an .npz file. ``labels`` says which column holds labels,
    and ``planned`` what a plan calls the columns of numbers. An option that means nothing for the format is refused.
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(
            "unreadable",
            f"{path}: is not a regular file but a folder; give the path of a {', '.join(READABLE)} file "
            "(folders are for shufflesum randomize)",
        )
    kind = path.suffix.lower()
    if kind not in READABLE:
        raise FileError(
            "unknown-file-type", f"{path}: files ending in {kind!r} cannot be read; allowed are {', '.join(READABLE)}"
        )
    given = {"--columns": columns, "--header": header, "--user-column": user_column, "--array": array}
    if labels is not None:
        given[labels.option] = labels.column if kind in (".npy", ".npz") else None
        _refuse_without_columns(path, kind, labels)
    useful = {
        ".csv": {"--columns", "--header", "--user-column"},
        ".parquet": {"--columns", "--user-column"},
        ".npy": set[str](),
        ".npz": {"--array"},
    }[kind]
    for option, value in given.items():
        if value is not None and option not in useful:
            formats = {"--header": "CSV", "--array": ".npz"}.get(option, "CSV and Parquet")
            raise ParameterError(
                "impossible-combination", f"{path}: {option} is for {formats} files; leave it out for {kind}"
            )
    try:
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise FileError("unreadable", f"{path}: {problem}; give the path of a {', '.join(READABLE)} file")
        if path.stat().st_size == 0:
            raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
        if kind == ".npy":
            return open_npy(path, as_labels=labels is not None)
        if kind == ".npz":
            return open_npz(path, array, as_labels=labels is not None)
        _require_arrow(kind)
        if kind == ".csv":
            return open_csv(path, columns, header, user_column, labels, planned)
        return open_parquet(path, columns, user_column, labels, planned)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            "unreadable", f"{path}: cannot be read: {error.strerror or error}; check its permissions"
        ) from error


def column_names(table: Table) -> tuple[str, ...] | None:
    """The names of all columns that are read, that of labels first, where the file has some."""
    if table.names is None and table.label_name is None:
        return None
    return (*(() if table.label_name is None else (table.label_name,)), *(table.names or ()))


def _refuse_without_columns(path: Path, kind: str, labels: LabelColumn) -> None:
    if labels.numbers and kind in (".npy", ".npz"):
        raise ParameterError(
            "impossible-combination",
            f"{path}: {labels.option} needs columns, which {kind} files have not: use CSV or Parquet",
        )


def _require_arrow(kind: str) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("missing-extra", f"reading {kind} files needs pyarrow: pip install 'shufflesum[files]'")
