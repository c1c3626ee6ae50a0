"""NumPy files: .npy through a memory map, .npz as a stream out of its archive."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from shufflesum.errors import FileError, ParameterError

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
