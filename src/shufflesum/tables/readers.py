"""Files of users' data, read in batches: CSV, Parquet, Arrow, .npy and .npz behind one interface."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from shufflesum.domains import ColumnLayout
from shufflesum.errors import FileError, MissingExtraError, ParameterError
from shufflesum.tables.arrays import open_npy, open_npz
from shufflesum.tables.columns import PLAIN
from shufflesum.tables.delimited import TEXT, Dialect, open_csv, suffix_of
from shufflesum.tables.paths import Address, PathOrUrl, place, reading, unread
from shufflesum.tables.sources import ARROW_FILES, open_columnar

READABLE = (*TEXT, ".parquet", *ARROW_FILES, ".npy", ".npz")
"""How the names of files end; those of text may be compressed, as .csv.gz."""


class DataSource(Protocol):
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

    def line_of(self, row: int) -> int | None:
        """On which line of a file of text a row stands; None elsewhere."""


def open_table(
    path: str | os.PathLike[str] | Address,
    *,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
    user_column: str | None = None,
    array: str | None = None,
    layout: ColumnLayout = PLAIN,
    column: str | None = None,
    dialect: Dialect | None = None,
    keep: bool = True,
) -> DataSource:
    """Open a file of users' data by its suffix: .csv or .tsv (also compressed), .parquet, .arrow or .feather (Arrow
    IPC), .npy or .npz.

    ``columns`` chooses data columns of a CSV, Parquet or Arrow file (names, positions where there are no names,
    ranges of positions such as ``0:100``). ``header`` overrides the guess that a first CSV line of numbers is
    data. ``user_column`` names the column that tells users apart: it is no data, and a user with two rows is
    refused. ``array`` chooses one of several arrays in an .npz file. ``layout`` says what a plan's domain reads, and
    ``column`` which column holds labels. ``dialect`` says how a text file is written, where that is not to be found
    out. An option that means nothing for the format is refused. A text file that is not too large is read here, once,
    unless it is not to be kept. The file may be at an address such as s3://bucket/users.csv, see `tables.paths`.
    """
    path = place(path)
    if path.is_dir():
        raise FileError(
            "unreadable",
            f"{path}: is not a regular file but a folder; give the path of a {', '.join(READABLE)} file "
            "(folders are for shufflesum randomize)",
        )
    kind = suffix_of(path)
    if kind not in READABLE:
        raise FileError(
            "unknown-file-type", f"{path}: files ending in {kind!r} cannot be read; allowed are {', '.join(READABLE)}"
        )
    given = {"--columns": columns, "--header": header, "--user-column": user_column, "--array": array}
    given |= (dialect or Dialect()).given
    if layout.labels and kind in (".npy", ".npz"):
        given[str(layout.option)] = column
        if layout.grouped:
            raise ParameterError(
                "impossible-combination",
                f"{path}: {layout.option} needs columns, which {kind} files have not: use CSV, Parquet or Arrow",
            )
    text = {"--columns", "--header", "--user-column", *Dialect().given}
    useful = {
        ".csv": text,
        ".tsv": text,
        ".npy": set[str](),
        ".npz": {"--array"},
    }.get(kind, {"--columns", "--user-column"})
    for option, value in given.items():
        if value is not None and option not in useful:
            formats = "CSV, Parquet and Arrow" if option in ("--columns", "--user-column") else "CSV"
            formats = ".npz" if option == "--array" else formats
            raise ParameterError(
                "impossible-combination", f"{path}: {option} is for {formats} files; leave it out for {kind}"
            )
    with reading(path):
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise FileError(unread(path), f"{path}: {problem}; give the path of a {', '.join(READABLE)} file")
        if path.stat().st_size == 0:
            raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
        if kind == ".npy":
            return open_npy(_here(path), as_labels=layout.labels)
        if kind == ".npz":
            return open_npz(_here(path), array, as_labels=layout.labels)
        _require_arrow(kind)
        if kind in TEXT:
            return open_csv(path, columns, header, user_column, layout, column, dialect, keep)
        return open_columnar(path, columns, user_column, layout, column)


def column_names(table: DataSource) -> tuple[str, ...] | None:
    """The names of all columns that are read, that of labels first, where the file has some."""
    if table.names is None and table.label_name is None:
        return None
    return (*(() if table.label_name is None else (table.label_name,)), *(table.names or ()))


def _here(path: PathOrUrl) -> Path:
    if isinstance(path, Path):
        return path
    raise ParameterError(
        "impossible-combination",
        f"{path}: {path.suffix} files are read on this machine only; copy it, or keep it there as Parquet",
    )


def _require_arrow(kind: str) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("missing-extra", f"reading {kind} files needs pyarrow: pip install 'shufflesum[files]'")
