"""Scattered reports until their bucket's turn comes: in memory, or in checksummed files."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shufflesum.batch.kinds import Items
from shufflesum.batch.shuffle.scatter import as_bytes
from shufflesum.errors import FileError

__all__ = ["FileRuns", "MemoryRuns", "Runs", "spill", "spilled_rows"]


class Runs(Protocol):
    """Scattered reports, to be taken bucket by bucket."""

    rows: int

    def bucket(self, number: int) -> Items:
        """All reports of a bucket."""
        ...


class MemoryRuns:
    """Runs in memory."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.rows = 0
        self._dtype = dtype
        self._runs: list[tuple[Items, NDArray[np.uint32]]] = []

    def add(self, items: Items, ends: NDArray[np.uint32]) -> None:
        """Keep a run; called from one thread."""
        self._runs.append((items, ends))
        self.rows += len(items)

    def bucket(self, number: int) -> Items:
        """All reports of a bucket."""
        pieces = [as_bytes(items[ends[number] : ends[number + 1]]) for items, ends in self._runs]
        return np.concatenate(pieces or [np.empty(0, np.uint8)]).view(self._dtype)


def spill(folder: Path, unit: int, runs: Iterator[tuple[Items, NDArray[np.uint32]]], buckets: int) -> int:
    """Write the runs of a unit to a file of its own; the index, written last, says that it is whole. Returns its rows.

    A file that an interrupted run left without an index is written from the start again, never added to. The index
    has a row for each run: where its buckets begin and end, and a checksum of each. CRC-32 because it is there against
    damage, not against somebody who may write here, and costs a fifth of what a cryptographic digest would.
    """
    path = folder / _unit_name(unit)
    found: list[NDArray[np.uint32]] = []
    with path.open("wb", buffering=0) as file:
        for items, ends in runs:
            whole = view = memoryview(as_bytes(items))  # type: ignore[arg-type]
            bounds = pairwise((ends.astype(np.int64) * items.itemsize).tolist())
            sums = [zlib.crc32(whole[start:stop]) for start, stop in bounds]
            while view:
                view = view[file.write(view) :]
            found.append(np.append(ends, np.array(sums, dtype=np.uint32)))
            del items, whole, view  # before the next run is made
    index = np.array(found, dtype=np.uint32).reshape(len(found), 2 * buckets + 1)
    temporary = folder / f".{path.name}.index"
    temporary.write_bytes(index.tobytes() + hashlib.sha256(index.tobytes()).digest())
    os.replace(temporary, _index_path(folder, unit))
    return _rows(index, buckets)


def spilled_rows(folder: Path, unit: int, buckets: int) -> int | None:
    """How many reports a unit has that was spilled before; None where it was not, or not to the end."""
    return _rows(_index(folder, unit, buckets), buckets) if _index_path(folder, unit).exists() else None


def _unit_name(unit: int) -> str:
    return f"unit-{unit:06d}"


def _index_path(folder: Path, unit: int) -> Path:
    return folder / f"{_unit_name(unit)}.index"


def _index(folder: Path, unit: int, buckets: int) -> NDArray[np.uint32]:
    data = _index_path(folder, unit).read_bytes()
    body, digest = data[:-32], data[-32:]
    if hashlib.sha256(body).digest() != digest or len(body) % (4 * (2 * buckets + 1)):
        raise _damaged(_index_path(folder, unit))
    return np.frombuffer(body, dtype=np.uint32).reshape(-1, 2 * buckets + 1)


def _rows(index: NDArray[np.uint32], buckets: int) -> int:
    return int(index[:, buckets].sum(dtype=np.int64))


def _damaged(path: Path) -> FileError:
    """Not an interruption: nothing of such work is kept."""
    return FileError(
        "damaged",
        f"{path}: is not as it was written; the disk may be failing. Nothing was released: run the same command again, "
        "and it begins anew",
    )


class FileRuns:
    """Runs in the spill files of units; a context manager that holds them open."""

    def __init__(self, folder: Path, units: int, dtype: np.dtype[Any], buckets: int) -> None:
        self.rows = 0
        self._dtype, self._buckets = dtype, buckets
        self._runs: list[tuple[int, Path, int, NDArray[np.uint32]]] = []
        self._files = ExitStack()
        with ExitStack() as opened:
            for unit in range(units):
                path = folder / _unit_name(unit)
                file = opened.enter_context(path.open("rb", buffering=0))
                start = 0
                for row in _index(folder, unit, buckets):
                    self._runs.append((file.fileno(), path, start, row))
                    start += int(row[buckets]) * dtype.itemsize
                self.rows += start // dtype.itemsize
                if os.fstat(file.fileno()).st_size != start:
                    raise _damaged(path)
            self._files = opened.pop_all()

    def __enter__(self) -> Self:
        """The files are open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._files.close()

    def bucket(self, number: int) -> Items:
        """All reports of a bucket, checked: what is not as it was written is refused."""
        sizes = [int(row[number + 1]) - int(row[number]) for *_, row in self._runs]
        out = np.empty(sum(sizes), dtype=self._dtype)
        view = memoryview(as_bytes(out))  # type: ignore[arg-type]
        for (file, path, start, row), size in zip(self._runs, sizes, strict=True):
            piece, view = view[: size * self._dtype.itemsize], view[size * self._dtype.itemsize :]
            _read(file, piece, start + int(row[number]) * self._dtype.itemsize)
            if zlib.crc32(piece) != row[self._buckets + 1 + number]:
                raise _damaged(path)
        return out


def _read(file: int, view: memoryview, offset: int) -> None:
    while view:
        count = os.preadv(file, [view], offset)
        if count == 0:
            raise OSError("a spill file was cut short while it was read")
        view, offset = view[count:], offset + count
