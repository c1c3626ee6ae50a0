"""Any number of items in another order, in bounded memory: what shuffles files, and the batch of a server.

Every item goes to a bucket of its own independent, exactly uniform choice; later each bucket is permuted uniformly,
and the buckets follow one another. That is a uniform permutation of all items: given the buckets' sizes, which are
multinomial whatever the input was, every way to deal the items out to them is equally likely, and so is every order
within each, hence every order of the whole. (Sandelius and Rao shuffled cards like this.)

An item is a fixed number of bytes that nobody looks into. Until their bucket's turn comes, items wait in memory, or in
checksummed files. The same machinery sorts: then an item's bucket follows from its rank.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from shufflesum._compiled import kernel
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.protocol import permutation
from shufflesum.randomness import RandomSource, SecureSource

Items = NDArray[Any]

SMALLEST_MEMORY = 40 << 20

_WORKER_BYTES = 20 << 20  # what reading and writing one file at a time takes, beside the items themselves
_BUCKET_BYTES = 3 << 19  # fits into a core's cache, where a random permutation is cheap
_PART_BYTES = 32 << 20
_RUN_BYTES = 8 << 20
_MOST_CACHED_BUCKETS = 1 << 10  # with more of them, writing to all at once is what misses the cache
_MAX_WIDTH = 1 << 16
_MOST_UNITS = 256  # their spill files are open all at once


@dataclass(frozen=True, slots=True)
class Layout:
    """How a shuffle is cut: a matter of the number and size of the reports and of the memory, never of the input.

    `buckets` and `parts` are powers of two; a part is written from a whole number of buckets that follow one another.
    Runs of `run_rows` reports are scattered at a time.
    """

    rows: int
    buckets: int
    parts: int
    run_rows: int
    in_memory: bool
    workers: int

    @classmethod
    def plan(cls, rows: int, item_bytes: int, *, memory: int, workers: int) -> Self:
        """The layout for so many reports that stays within `memory` bytes."""
        if memory < SMALLEST_MEMORY:
            raise ParameterError(
                "out-of-range",
                f"memory is {memory / 1e6:.3g} MB; a shuffle needs at least {SMALLEST_MEMORY / 1e6:.0f} MB",
            )
        if workers < 1:
            raise ParameterError("out-of-range", f"workers is {workers}; at least one is needed")
        workers = min(workers, memory // (2 * _WORKER_BYTES))
        free = memory - workers * _WORKER_BYTES
        total = rows * item_bytes
        in_memory = total + workers * 4 * min(total, _RUN_BYTES) <= free
        share = (free - total * in_memory) // workers
        # In the first pass a run is there twice, with two random bytes each; in the second a bucket, with four.
        run_bytes = min(share // 3, _RUN_BYTES) if in_memory else share // 3
        wanted = min(_power_of_two(total / _BUCKET_BYTES), _MOST_CACHED_BUCKETS)
        buckets = max(1, wanted)
        while _likely_most(rows / buckets) * item_bytes > share // 4 and buckets <= _MAX_WIDTH:
            buckets *= 2
        if buckets > _MAX_WIDTH:
            raise ParameterError(
                "out-of-range",
                f"{total / 1e9:,.0f} GB of reports cannot be shuffled within {memory / 1e6:,.0f} MB; "
                "give more memory, or fewer workers",
            )
        parts = min(buckets, _power_of_two(total / _PART_BYTES / 2))
        return cls(rows, buckets, parts, max(1, run_bytes // item_bytes), in_memory, workers)

    @property
    def unit_rows(self) -> int:
        """About how many reports are scattered before that is recorded as done."""
        return max(self.run_rows, -(-self.rows // _MOST_UNITS))

    def buckets_of(self, part: int) -> range:
        """The buckets that a part is written from, in order."""
        each = self.buckets // self.parts
        return range(part * each, (part + 1) * each)


def _power_of_two(least: float) -> int:
    """The smallest power of two that is no less."""
    return 1 << max(0, math.ceil(math.log2(least))) if least > 1 else 1


def _likely_most(mean: float) -> float:
    """A bucket is larger than this once in 10**9 times."""
    return mean + 6 * math.sqrt(mean) + 12


@kernel
def _scatter(items: Items, draws: Items, buckets: int, ends: Items, out: Items) -> None:
    mask = np.uint16(buckets - 1)
    places = np.zeros(buckets, dtype=np.int64)
    for i in range(draws.size):
        places[draws[i] & mask] += 1
    start = 0
    for bucket in range(buckets):
        size = places[bucket]
        places[bucket] = start
        start += size
        ends[bucket + 1] = start
    for i in range(items.size):
        bucket = draws[i] & mask
        out[places[bucket]] = items[i]
        places[bucket] += 1


@kernel
def _gather(items: Items, order: Items, out: Items) -> None:
    for i in range(order.size):
        out[i] = items[order[i]]


def as_bytes(items: Items) -> NDArray[np.uint8]:
    """The items' own bytes: copied as such they need a fraction of the time."""
    return items.view(np.uint8)


def room(count: int, dtype: np.dtype[Any]) -> Items:
    """An array of its own pages, given back as soon as it is not needed: the usual heap might keep them."""
    pages = mmap.mmap(-1, max(1, count * dtype.itemsize), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # first use of a page is dear; of a large one, no dearer
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype, count)


def scatter(items: Items, buckets: int, source: RandomSource) -> tuple[Items, NDArray[np.uint32]]:
    """The items sorted into random buckets, and where each bucket begins and ends.

    The number of buckets is a power of two, so the low bits of a random word are an exactly uniform bucket.
    """
    draws = room(len(items), np.dtype(np.uint16))
    source.fill(draws)
    return _dealt(items, draws, buckets)


def _dealt(items: Items, draws: Items, buckets: int) -> tuple[Items, NDArray[np.uint32]]:
    ends, out = np.zeros(buckets + 1, dtype=np.uint32), room(len(items), items.dtype)
    _scatter(items, draws, buckets, ends, out)
    return out, ends


def permute(items: Items, source: RandomSource) -> Items:
    """The items in a uniformly random order: Fisher and Yates's shuffle of their places."""
    out = np.empty_like(items)
    _gather(items, permutation(len(items), source), out)
    return out


def scattered(
    pieces: Iterable[Items], dtype: np.dtype[Any], layout: Layout, source: RandomSource
) -> Iterator[tuple[Items, NDArray[np.uint32]]]:
    """The pieces' items, a run at a time, sorted into random buckets."""
    return _in_runs(pieces, dtype, layout, lambda run: scatter(run, layout.buckets, source))


def _in_runs(
    pieces: Iterable[Items],
    dtype: np.dtype[Any],
    layout: Layout,
    deal: Callable[[Items], tuple[Items, NDArray[np.uint32]]],
) -> Iterator[tuple[Items, NDArray[np.uint32]]]:
    size = layout.run_rows
    waiting, filled = room(size, dtype), 0
    for items in pieces:
        taken = 0
        while taken < len(items):
            fitting = min(len(items) - taken, size - filled)
            as_bytes(waiting[filled : filled + fitting])[:] = as_bytes(items[taken : taken + fitting])
            taken, filled = taken + fitting, filled + fitting
            if filled == size:
                yield deal(waiting)
                filled = 0
    if filled:
        yield deal(waiting[:filled])


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


def write_runs(file: BinaryIO, runs: Iterable[tuple[Items, NDArray[np.uint32]]], buckets: int) -> NDArray[np.uint32]:
    """Write runs to a file, one after another; the index has a row for each: its buckets' ends and their checksums.

    CRC-32 because it is there against damage, not against somebody who may write here, and costs a fifth of what a
    cryptographic digest would.
    """
    found: list[NDArray[np.uint32]] = []
    for items, ends in runs:
        whole = view = memoryview(as_bytes(items))  # type: ignore[arg-type]
        bounds = pairwise((ends.astype(np.int64) * items.itemsize).tolist())
        sums = [zlib.crc32(whole[start:stop]) for start, stop in bounds]
        while view:
            view = view[file.write(view) :]
        found.append(np.append(ends, np.array(sums, dtype=np.uint32)))
        del items, whole, view  # before the next run is made
    return np.array(found, dtype=np.uint32).reshape(len(found), 2 * buckets + 1)


class FileRuns:
    """Runs in open files, each with the index from `write_runs`; a context manager that closes them."""

    def __init__(
        self, files: Sequence[tuple[BinaryIO, NDArray[np.uint32]]], dtype: np.dtype[Any], buckets: int
    ) -> None:
        self.rows = 0
        self._dtype, self._buckets = dtype, buckets
        self._runs: list[tuple[BinaryIO, int, NDArray[np.uint32]]] = []
        self._files = ExitStack()
        with ExitStack() as opened:
            for file, index in files:
                opened.enter_context(file)
                start = 0
                for row in index:
                    self._runs.append((file, start, row))
                    start += int(row[buckets]) * dtype.itemsize
                self.rows += start // dtype.itemsize
                if os.fstat(file.fileno()).st_size != start:
                    raise damaged(file.name)
            self._files = opened.pop_all()

    def __enter__(self) -> Self:
        """The files are open already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._files.close()

    def bucket(self, number: int) -> Items:
        """All items of a bucket, checked: what is not as it was written is refused."""
        sizes = [int(row[number + 1]) - int(row[number]) for *_, row in self._runs]
        out = np.empty(sum(sizes), dtype=self._dtype)
        view = memoryview(as_bytes(out))  # type: ignore[arg-type]
        for (file, start, row), size in zip(self._runs, sizes, strict=True):
            piece, view = view[: size * self._dtype.itemsize], view[size * self._dtype.itemsize :]
            _read(file.fileno(), piece, start + int(row[number]) * self._dtype.itemsize)
            if zlib.crc32(piece) != row[self._buckets + 1 + number]:
                raise damaged(file.name)
        return out


def _read(file: int, view: memoryview, offset: int) -> None:
    while view:
        count = os.preadv(file, [view], offset)
        if count == 0:
            raise OSError("a spill file was cut short while it was read")
        view, offset = view[count:], offset + count


def damaged(path: object) -> FileError:
    """Not an interruption: nothing of such work is kept."""
    return FileError(
        "damaged",
        f"{path}: is not as it was written; the disk may be failing. Nothing was released: run the same command again, "
        "and it begins anew",
    )


def shuffled(
    pieces: Iterable[Items],
    rows: int,
    dtype: np.dtype[Any],
    *,
    memory: int,
    folder: Path | None = None,
    randomness: Callable[[], RandomSource] = SecureSource,
) -> Iterator[Items]:
    """All items in a uniformly random order, some at a time; no more than `memory` bytes are held.

    What does not fit waits in a file in `folder` (by default where temporary files are) that has no name, and so is
    gone with this process however it ends. ReportsError where there are not just so many rows.
    """
    layout, source = Layout.plan(rows, dtype.itemsize, memory=memory, workers=1), randomness()
    found = scattered(pieces, dtype, layout, source)
    return _by_bucket(found, rows, dtype, layout, folder, lambda items: permute(items, source))


def in_order(
    pieces: Iterable[Items],
    rows: int,
    dtype: np.dtype[Any],
    *,
    rank: Callable[[Items], NDArray[np.float64]],
    sort: Callable[[Items], Items],
    memory: int,
    folder: Path | None = None,
) -> Iterator[Items]:
    """All items, sorted, some at a time; no more than `memory` bytes are held, as in `shuffled`.

    `rank` says about where each item belongs, from 0 to 1; it must not fall where the order rises, and ranks must be
    spread evenly. `sort` sorts the items of a bucket.
    """
    layout = Layout.plan(rows, dtype.itemsize, memory=memory, workers=1)

    def deal(items: Items) -> tuple[Items, NDArray[np.uint32]]:
        places = np.minimum(rank(items) * layout.buckets, layout.buckets - 1).astype(np.uint16)
        return _dealt(items, places, layout.buckets)

    return _by_bucket(_in_runs(pieces, dtype, layout, deal), rows, dtype, layout, folder, sort)


def _by_bucket(
    found: Iterable[tuple[Items, NDArray[np.uint32]]],
    rows: int,
    dtype: np.dtype[Any],
    layout: Layout,
    folder: Path | None,
    arrange: Callable[[Items], Items],
) -> Iterator[Items]:
    with ExitStack() as closing:
        runs: MemoryRuns | FileRuns
        if layout.in_memory:
            runs = MemoryRuns(dtype)
            for items, ends in found:
                runs.add(items, ends)
        else:
            file: Any = closing.enter_context(tempfile.TemporaryFile(dir=folder, buffering=0))
            runs = closing.enter_context(
                FileRuns([(file, write_runs(file, found, layout.buckets))], dtype, layout.buckets)
            )
        if runs.rows != rows:
            raise ReportsError("damaged", f"there are {runs.rows} reports, not {rows}; others have changed them")
        for bucket in range(layout.buckets):
            yield arrange(runs.bucket(bucket))
