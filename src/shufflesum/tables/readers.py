"""Files of users' data, read in batches: CSV, Parquet, Arrow, .npy and .npz behind one interface."""

from __future__ import annotations

import importlib.util
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from shufflesum.domains import ColumnLayout, Domain, Rows
from shufflesum.domains.frames import is_list
from shufflesum.domains.labels import Labels, label_rows, present
from shufflesum.errors import DataError, FileError, MissingExtraError, ParameterError
from shufflesum.tables.delimited import TEXT, Dialect, open_csv, suffix_of
from shufflesum.tables.paths import Address, PathOrUrl, place, reading, unread
from shufflesum.tables.sources import ARROW_FILES, PLAIN, open_columnar

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


# ---- The rows of a file that lack nothing: whoever has a missing value is left out, as if they had not taken part.


@dataclass(frozen=True, slots=True)
class CompleteTable:
    """A table without the rows that lack a value."""

    table: DataSource
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array of numbers."""
        return self.table.shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers."""
        return self.table.names

    @property
    def label_name(self) -> str | None:
        """The name of the column of labels."""
        return self.table.label_name

    def batches(self) -> Iterator[Any]:
        """What is left of each batch."""
        for batch in self.table.batches():
            kept = _complete(batch)
            if kept.any():
                yield batch if kept.all() else _taken(batch, kept)

    def users(self) -> Iterator[Any]:
        """Who each row is of, those left out as well."""
        return self.table.users()

    def row_in_file(self, row: int) -> int:
        """Which row of the file a row is, found by reading up to it."""
        before = 0
        for batch in self.table.batches():
            places = np.flatnonzero(_complete(batch))
            if row < len(places):
                return before + int(places[row])
            row, before = row - len(places), before + _length(batch)
        raise IndexError(row)

    def line_of(self, row: int) -> int | None:
        """On which line of a file of text a row stands."""
        return self.table.line_of(self.row_in_file(row))


def complete_table(where: PathOrUrl, table: DataSource) -> CompleteTable:
    """The rows that lack nothing, counted in one pass."""
    rows = sum(int(_complete(batch).sum()) for batch in table.batches())
    if rows == 0:
        raise FileError("no-rows", f"{where}: every row has a missing value, and nobody is left; fill some in")
    return CompleteTable(table, rows)


def _complete(batch: Any) -> NDArray[np.bool_]:
    """Whose rows lack nothing; `batch` is of `DataSource.batches`."""
    if isinstance(batch, tuple):
        labels, arrays = batch
        return _complete(labels) & _complete(arrays)
    if isinstance(batch, np.ndarray) and (batch.dtype.kind in "biuf" or batch.ndim > 1):
        return present(batch)
    if not isinstance(batch, np.ndarray) and is_list(batch.type):  # one of none is there
        return np.asarray(batch.is_valid())
    return present(label_rows(batch))


def _taken(batch: Any, kept: NDArray[np.bool_]) -> Any:
    if isinstance(batch, tuple):
        return tuple(_taken(part, kept) for part in batch)
    if isinstance(batch, np.ndarray):
        return batch[kept]
    import pyarrow as pa

    return batch.filter(pa.array(kept))


def _length(batch: Any) -> int:
    return len(batch[0] if isinstance(batch, tuple) else batch)


def table_selection(
    domain: Domain, *, column: str | None = None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """What `open_table` must know to read a domain's data: the column of labels, and the columns of numbers.

    What is None is as the plan calls it, if it does.
    """
    layout = domain.column_layout
    if layout.option is None and column is not None:
        raise ParameterError(
            "conflicting-arguments", f"the plan is for numbers, so no column holds labels: leave out {column!r}"
        )
    if layout.option is not None and not layout.labels:
        if columns is not None:
            raise ParameterError("conflicting-arguments", f"the numbers in bins are one column: {layout.option} COLUMN")
        columns, column = None if column is None else [column], None
        layout = replace(layout, names=None if layout.column is None else (layout.column,))
    listed = getattr(domain, "labels", None)
    if isinstance(listed, Labels):
        layout = replace(layout, gaps=tuple(gap for gap in layout.gaps if listed.code(gap) < 0))
    return {"columns": columns, "column": column, "layout": layout}


def detected(table: DataSource) -> dict[str, str]:
    """How a file of text is written, as it was read, by the options that say otherwise; nothing of other files."""
    source = table.table if isinstance(table, CompleteTable) else table
    layout = getattr(getattr(source, "file", None), "layout", None)
    return {} if layout is None else dict(layout.detected)


def check_shape(where: str | os.PathLike[str] | Address, shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse rows of numbers that are neither arrays of the domain nor, as long as one, its entries in a row."""
    layout = domain.column_layout
    wanted = layout.numbers
    if wanted is None:
        return
    entries = math.prod(wanted)
    if shape not in (wanted, (entries,)):
        one_column = layout.option is not None and not layout.labels
        raise DataError(
            "wrong-shape",
            f"{where}: a row has shape {shape}, but the plan is for {wanted} ({entries} values); "
            f"choose {layout.option if one_column else '--columns'}, or the right --plan or --task",
        )


def rows_of(table: DataSource, domain: Domain) -> Iterator[Rows]:
    """The batches of a table as the domain takes them, each with a length and slices; see `check_shape`."""
    layout = domain.column_layout
    return (domain.rows(layout.fit(batch)) for batch in table.batches())


def located(error: DataError, where: str | os.PathLike[str] | Address, table: DataSource) -> DataError:
    """The error with the file's name, and of a file of text the line."""
    counted = " (rows that were left out are not counted)" if isinstance(table, CompleteTable) else ""
    line = None if error.row is None else table.line_of(error.row)
    return error.at(f"{where}{counted}" if line is None else f"{where}, line {line}{counted}")


# ---- NumPy files: .npy through a memory map, .npz as a stream out of its archive.

_BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class MappedTable:
    """The rows of one array; of a memory map, only the batch in use needs memory of its own."""

    array: NDArray[Any]
    names: None = None
    label_name: None = None
    as_labels: bool = False

    @property
    def rows(self) -> int:
        """How many users there are."""
        return len(self.array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array."""
        return self.array.shape[1:]

    def batches(self) -> Iterator[NDArray[Any]]:
        """Slices of consecutive rows; already the right type, as labels always are, they are views of the map."""
        step = _rows_per_batch(self.array.shape, self.array.dtype)
        for start in range(0, self.rows, step):
            yield _handed_out(self.array[start : start + step], self.as_labels)

    def users(self) -> Iterator[Any]:
        """Nothing: such files say nothing about whose row it is."""
        return iter(())

    def line_of(self, row: int) -> None:
        """Nothing: such files have no lines."""


@dataclass(frozen=True, slots=True)
class ArchiveTable:
    """The rows of one array in an .npz archive, decompressed batch by batch."""

    path: Path
    member: str
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    names: None = None
    label_name: None = None
    as_labels: bool = False

    def batches(self) -> Iterator[NDArray[Any]]:
        """Read the member from its start; the archive's checksum is verified at its end."""
        step = _rows_per_batch((self.rows, *self.shape), self.dtype)
        row_bytes = self.dtype.itemsize * math.prod(self.shape)
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                _read_header(stream)
                for start in range(0, self.rows, step):
                    count = min(step, self.rows - start)
                    data = stream.read(count * row_bytes)
                    if len(data) < count * row_bytes:
                        raise _damaged(self.path, f"it ends within row {start + len(data) // row_bytes}")
                    block = np.frombuffer(data, self.dtype).reshape(count, *self.shape)
                    yield _handed_out(block, self.as_labels)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise _damaged(self.path, error) from error

    def users(self) -> Iterator[Any]:
        """Nothing: such files say nothing about whose row it is."""
        return iter(())

    def line_of(self, row: int) -> None:
        """Nothing: such files have no lines."""


def open_npy(path: Path, *, as_labels: bool = False) -> MappedTable:
    """Open a .npy file of shape (users, *shape) without reading its data; labels may be text and keep their type."""
    if zipfile.is_zipfile(path):
        raise FileError(
            "format-mismatch", f"{path}: this is an .npz archive under another name; rename it to end in .npz"
        )
    try:
        array = npy_format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # a damaged header is parsed as Python text and can fail in any way
        raise _damaged(path, error) from error
    _check(str(path), array.shape, array.dtype, as_labels)
    return MappedTable(array, as_labels=as_labels)


def open_npz(path: Path, name: str | None, *, as_labels: bool = False) -> ArchiveTable | MappedTable:
    """Open the one array of an .npz file, or the named one of several."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = _choose_member(path, archive.namelist(), name)
            with archive.open(member) as stream:
                shape, fortran_order, dtype = _read_header(stream)
    except (OSError, ParameterError):
        raise
    except Exception as error:  # as for .npy
        raise _damaged(path, error) from error
    _check(f"{path}, array {member.removesuffix('.npy')!r}", shape, dtype, as_labels)
    if fortran_order and len(shape) > 1:
        # Column by column on disk: no row is complete before the last column, so there is nothing to stream.
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return MappedTable(arrays[member.removesuffix(".npy")], as_labels=as_labels)
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
            raise _damaged(path, error) from error
    return ArchiveTable(path, member, shape[0], shape[1:], dtype, as_labels=as_labels)


def _choose_member(path: Path, members: list[str], name: str | None) -> str:
    names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
    if not names:
        raise FileError("malformed", f"{path}: the archive holds no array; write it with numpy.savez(path, name=array)")
    listed = ", ".join(repr(known) for known in names)
    if name is None and len(names) > 1:
        raise ParameterError(
            "missing-argument", f"{path}: holds {len(names)} arrays; choose one with --array: {listed}"
        )
    if name is not None and name not in names:
        raise ParameterError("unknown-choice", f"{path}: holds no array {name!r}; --array may be {listed}")
    return f"{names[0] if name is None else name}.npy"


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(stream)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, fortran_order, dtype = read(stream)
    return shape, fortran_order, dtype


def _check(where: str, shape: tuple[int, ...], dtype: np.dtype[Any], as_labels: bool) -> None:
    if as_labels and dtype.kind not in "biufSU":
        raise FileError(
            "wrong-type", f"{where}: holds values of type {dtype}; labels are text, whole numbers, or true and false"
        )
    if not as_labels and dtype.kind not in "biuf":
        raise FileError(
            "not-numbers",
            f"{where}: holds values of type {dtype}; allowed are floats, integers and booleans: "
            "convert it with array.astype(float)",
        )
    if not shape:
        raise FileError(
            "wrong-shape",
            f"{where}: holds a single number; one row per user is needed: (users, *shape), e.g. (50000, 100)",
        )
    if math.prod(shape) == 0:
        raise FileError(
            "no-rows", f"{where}: is empty, its shape is {shape}; at least one user and one value are needed"
        )


def _rows_per_batch(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    # Counted in the type that is handed out: bytes widened to float64 are eight times as many.
    return max(1, _BATCH_BYTES // (max(_float_type(dtype).itemsize, dtype.itemsize) * math.prod(shape[1:])))


def _handed_out(block: NDArray[Any], as_labels: bool) -> NDArray[Any]:
    if as_labels:
        return np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("=")).view(np.ndarray)
    return _as_float(block)


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def _as_float(block: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(block, dtype=_float_type(block.dtype)).view(np.ndarray)


def _damaged(path: Path, reason: object) -> FileError:
    return FileError(
        "damaged",
        f"{path}: cannot be read as a NumPy file of plain numbers ({reason}); it may be cut short, damaged "
        "or hold Python objects: write it again with numpy.save or numpy.savez",
    )
