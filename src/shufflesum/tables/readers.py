"""Files of users' arrays, read in batches: CSV, Parquet, .npy and .npz behind one interface."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from shufflesum.errors import DataError, FileError, MissingExtraError, ParameterError
from shufflesum.plans import Plan
from shufflesum.tables.arrays import open_npy, open_npz
from shufflesum.tables.delimited import open_csv
from shufflesum.tables.parquet import open_parquet

__all__ = ["READABLE", "Table", "check_shape", "open_table"]

READABLE = (".csv", ".parquet", ".npy", ".npz")


class Table(Protocol):
    """The users' arrays in a file: one row is one user."""

    @property
    def rows(self) -> int:
        """How many users there are."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, where the file has some."""

    def batches(self) -> Iterator[NDArray[Any]]:
        """Arrays (m, *shape) of float32 or float64, in the file's order; each call starts from the first row.

        Missing values are NaN. Values are not checked here: that is the domain's work.
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
) -> Table:
    """Open a file of users' arrays by its suffix: .csv, .parquet, .npy or .npz.

    ``columns`` chooses data columns of a CSV or Parquet file (names, positions where there are no names,
    ranges of positions such as ``0:100``). ``header`` overrides the guess that a first CSV line of numbers is
    data. ``user_column`` names the column that tells users apart: it is no data, and a user with two rows is
    refused. ``array`` chooses one of several arrays in an .npz file. An option that means nothing for
    the format is refused.
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
            raise FileError("no-rows", f"{path}: is empty; it must hold one row of numbers per user")
        if kind == ".npy":
            return open_npy(path)
        if kind == ".npz":
            return open_npz(path, array)
        _require_arrow(kind)
        if kind == ".csv":
            return open_csv(path, columns, header, user_column)
        return open_parquet(path, columns, user_column)
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            "unreadable", f"{path}: cannot be read: {error.strerror or error}; check its permissions"
        ) from error


def check_shape(where: str | os.PathLike[str], shape: tuple[int, ...], plan: Plan) -> None:
    """Refuse rows that are neither arrays of the plan nor, as long as one, its entries in a row."""
    entries = math.prod(plan.shape)
    if shape not in (plan.shape, (entries,)):
        raise DataError(
            "wrong-shape",
            f"{where}: a row has shape {shape}, but the plan is for {plan.shape} ({entries} values); "
            "choose --columns, or the right --plan or --task",
        )


def _require_arrow(kind: str) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("missing-extra", f"reading {kind} files needs pyarrow: pip install 'shufflesum[files]'")
