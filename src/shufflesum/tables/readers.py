"""Files of users' data, read in batches: CSV, Parquet, Arrow, .npy and .npz behind one interface."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from shufflesum.domains import Domain, Rows
from shufflesum.domains.frames import is_list, require_arrow
from shufflesum.domains.labels import label_rows, present
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.tables.delimited import TEXT, open_csv, suffix_of
from shufflesum.tables.paths import Address, PathOrUrl, place, reading, unread
from shufflesum.tables.sources import ARROW_FILES, AUTOMATIC, DataSource, ReadOptions, open_columnar

READABLE = (*TEXT, ".parquet", *ARROW_FILES, ".npy", ".npz")
"""How the names of files end; those of text may be compressed, as .csv.gz."""


def open_table(
    path: str | os.PathLike[str] | Address, options: ReadOptions = AUTOMATIC, *, keep: bool = True
) -> DataSource:
    """Open a file of users' data by its suffix: .csv or .tsv (also compressed), .parquet, .arrow or .feather (Arrow
    IPC), .npy or .npz.

    An option that means nothing for the format is refused. A text file that is not too large is read here, once, unless
    it is not to be kept. The file may be at an address such as s3://bucket/users.csv, see `tables.paths`.
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
    _refuse_meaningless(path, kind, options)
    with reading(path):
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise FileError(unread(path), f"{path}: {problem}; give the path of a {', '.join(READABLE)} file")
        if path.stat().st_size == 0:
            raise FileError("no-rows", f"{path}: is empty; it must hold one row per user")
        if kind == ".npy":
            return open_npy(_here(path), as_labels=options.layout.labels)
        if kind == ".npz":
            return open_npz(_here(path), options.array, as_labels=options.layout.labels)
        require_arrow(f"reading {kind} files needs PyArrow")
        return open_csv(path, options, keep=keep) if kind in TEXT else open_columnar(path, options)


def _refuse_meaningless(path: PathOrUrl, kind: str, options: ReadOptions) -> None:
    """Refuse an option that means nothing for files of this kind."""
    layout, columnar = options.layout, (*TEXT, ".parquet", *ARROW_FILES)
    if (layout.grouped or layout.answers is not None) and kind not in columnar:
        raise ParameterError(
            "impossible-combination",
            f"{path}: groups and answers need columns, which {kind} files have not: use CSV, Parquet or Arrow",
        )
    allowed: dict[str, Any] = dict.fromkeys(("header", "separator", "decimal", "encoding"), ("CSV", TEXT))
    allowed |= dict.fromkeys(("columns", "user_column", "column"), ("CSV, Parquet and Arrow", columnar))
    allowed["array"] = (".npz", (".npz",))
    for name, (formats, kinds) in allowed.items():
        if getattr(options, name) is not None and kind not in kinds:
            raise ParameterError(
                "impossible-combination", f"{path}: {name}= is for {formats} files; leave it out for {kind}"
            )


def _here(path: PathOrUrl) -> Path:
    if isinstance(path, Path):
        return path
    raise ParameterError(
        "impossible-combination",
        f"{path}: {path.suffix} files are read on this machine only; copy it, or keep it there as Parquet",
    )


# ---- The rows of a file that lack nothing: whoever has a missing value is left out, as if they had not taken part.


def complete_table(where: PathOrUrl, table: DataSource) -> DataSource:
    """A table without the rows that lack a value, which are counted in one pass."""
    rows = sum(int(_complete(batch, table.optional).sum()) for batch in table.batches())
    if rows == 0:
        raise FileError("no-rows", f"{where}: every row has a missing value, and nobody is left; fill some in")

    def batches() -> Iterator[Any]:
        for batch in table.batches():
            kept = _complete(batch, table.optional)
            if kept.any():
                yield batch if kept.all() else _taken(batch, kept)

    def line_of(row: int) -> int | None:
        before = 0
        for batch in table.batches():
            kept = _complete(batch, table.optional)
            places = np.flatnonzero(kept)
            if row < len(places):
                return table.line_of(before + int(places[row]))
            row, before = row - len(places), before + len(kept)
        raise IndexError(row)

    return replace(table, rows=rows, batches=batches, line_of=line_of, left_out=table.rows - rows)


def _complete(batch: Any, optional: Container[str] = ()) -> NDArray[np.bool_]:
    """Whose rows lack nothing; `batch` is of `DataSource.batches`."""
    if hasattr(batch, "schema"):
        found = np.ones(len(batch), np.bool_)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            found &= True if name in optional else _complete(column)
        return found
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


def check_shape(where: str | os.PathLike[str] | Address, shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse rows of numbers that are neither arrays of the domain nor, as long as one, its entries in a row."""
    layout = domain.column_layout
    wanted = layout.numbers
    if wanted is None:
        return
    entries = math.prod(wanted)
    if shape not in (wanted, (entries,)):
        raise DataError(
            "wrong-shape",
            f"{where}: a row has shape {shape}, but the plan is for {wanted} ({entries} values); "
            f"choose {'column=' if layout.single else 'columns='}, or the right plan= or task=",
        )


def rows_of(table: DataSource, domain: Domain) -> Iterator[Rows]:
    """The batches of a table as the domain takes them, each with a length and slices; see `check_shape`."""
    layout = domain.column_layout
    return (domain.rows(layout.fit(batch)) for batch in table.batches())


def located(error: DataError, where: str | os.PathLike[str] | Address, table: DataSource) -> DataError:
    """The error with the file's name, and of a file of text the line."""
    counted = "" if table.left_out is None else " (rows that were left out are not counted)"
    line = None if error.row is None else table.line_of(error.row)
    return error.at(f"{where}{counted}" if line is None else f"{where}, line {line}{counted}")


# ---- NumPy files: .npy through a memory map, .npz as a stream out of its archive.

_BATCH_BYTES = 8 << 20


def open_npy(path: Path, *, as_labels: bool = False) -> DataSource:
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
    return _array_source(array, as_labels)


def _array_source(array: NDArray[Any], as_labels: bool) -> DataSource:
    """The rows of one array; of a memory map, only the batch in use needs memory of its own."""
    step = _rows_per_batch(array.shape, array.dtype)

    def batches() -> Iterator[NDArray[Any]]:
        return (_handed_out(array[start : start + step], as_labels) for start in range(0, len(array), step))

    return DataSource(len(array), array.shape[1:], batches)


def open_npz(path: Path, name: str | None, *, as_labels: bool = False) -> DataSource:
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
                return _array_source(arrays[member.removesuffix(".npy")], as_labels)
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
            raise _damaged(path, error) from error
    row_bytes = dtype.itemsize * math.prod(shape[1:])

    def batches() -> Iterator[NDArray[Any]]:
        """Decompressed batch by batch; the archive's checksum is verified at its end."""
        step = _rows_per_batch(shape, dtype)
        try:
            with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
                _read_header(stream)
                for start in range(0, shape[0], step):
                    count = min(step, shape[0] - start)
                    data = stream.read(count * row_bytes)
                    if len(data) < count * row_bytes:
                        raise _damaged(path, f"it ends within row {start + len(data) // row_bytes}")
                    yield _handed_out(np.frombuffer(data, dtype).reshape(count, *shape[1:]), as_labels)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise _damaged(path, error) from error

    return DataSource(shape[0], shape[1:], batches)


def _choose_member(path: Path, members: list[str], name: str | None) -> str:
    names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
    if not names:
        raise FileError("malformed", f"{path}: the archive holds no array; write it with numpy.savez(path, name=array)")
    listed = ", ".join(repr(known) for known in names)
    if name is None and len(names) > 1:
        raise ParameterError("missing-argument", f"{path}: holds {len(names)} arrays; choose one with array=: {listed}")
    if name is not None and name not in names:
        raise ParameterError("unknown-choice", f"{path}: holds no array {name!r}; array= may be {listed}")
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
    kind = block.dtype.newbyteorder("=") if as_labels else _float_type(block.dtype)
    return np.ascontiguousarray(block, dtype=kind).view(np.ndarray)


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    single = dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


def _damaged(path: Path, reason: object) -> FileError:
    return FileError(
        "damaged",
        f"{path}: cannot be read as a NumPy file of plain numbers ({reason}); it may be cut short, damaged "
        "or hold Python objects: write it again with numpy.save or numpy.savez",
    )
