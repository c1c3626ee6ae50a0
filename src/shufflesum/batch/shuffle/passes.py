"""The shuffler on files: a uniform permutation of all reports of a folder, however much larger than memory it is.

Every report goes to a bucket of its own independent, exactly uniform choice; later each bucket is permuted uniformly,
and the buckets follow one another. That is a uniform permutation of all reports: given the buckets' sizes, which are
multinomial whatever the input was, every way to deal the reports out to them is equally likely, and so is every order
within each, hence every order of the whole. (Sandelius and Rao shuffled cards like this.)

A report is moved as an item of a fixed number of bytes that nobody looks into. Until their bucket's turn comes, reports
wait in memory, or in checksummed files. What the output looks like (names, number and sizes of files, row groups)
follows from the number of reports and the memory allowed; nothing in it comes from how the input was cut into files or
in which order it came.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import secrets
import shutil
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum._compiled import kernel
from shufflesum._machine import Workers, cores, writing
from shufflesum.batch.files import Format, StagedFolder, write_part
from shufflesum.batch.identity import Identity, Items
from shufflesum.batch.once import Released
from shufflesum.batch.shuffle.sources import (
    ReportSource,
    Unit,
    folders_of,
    open_source,
    refuse_changed,
    refuse_copied_reports,
    shuffled_before,
)
from shufflesum.batch.targets import DEFAULT_MEMORY
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.protocol import permutation
from shufflesum.randomness import RandomSource, SecureSource
from shufflesum.tables import Address
from shufflesum.wire import Task

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
    ends = np.zeros(buckets + 1, dtype=np.uint32)
    draws, out = room(len(items), np.dtype(np.uint16)), room(len(items), items.dtype)
    source.fill(draws)
    _scatter(items, draws, buckets, ends, out)
    return out, ends


def permute(items: Items, source: RandomSource) -> Items:
    """The items in a uniformly random order: Fisher and Yates's shuffle of their places."""
    out = np.empty_like(items)
    _gather(items, permutation(len(items), source), out)
    return out


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


_SPILL, _BOOT = "_spill", "boot"
_NO_ROOM = "make room on the disk and run the same again, or say --restart to begin anew"


@dataclass(frozen=True, slots=True)
class Shuffled:
    """What a shuffle wrote."""

    path: Path
    identity: Identity
    reports: int
    parts: int
    repeated: int


def shuffle(
    path: str | os.PathLike[str] | Address | Sequence[str | os.PathLike[str] | Address],
    output: str | os.PathLike[str],
    *,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    format: Format = "parquet",
    task: Task | None = None,
    restart: bool = False,
    released: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Shuffled:
    """Write all reports of a folder to a new folder, in a uniformly random order; see `shuffle_source`.

    `path` is a folder of report files, or one of a task's uploads, or several of either: one batch of all of them.
    """
    paths = [path] if isinstance(path, str | os.PathLike | Address) else path
    return shuffle_source(
        open_source(*paths, task=task),
        output,
        memory=memory,
        workers=workers,
        format=format,
        restart=restart,
        released=released,
        progress=progress,
    )


def shuffle_source(
    source: ReportSource,
    output: str | os.PathLike[str],
    *,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    format: Format = "parquet",
    restart: bool = False,
    released: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Shuffled:
    """Write all reports of a source to a new folder, in a uniformly random order.

    At most `memory` bytes are held at a time (a little more for how Arrow reads and writes), by `workers` threads, by
    default one for each core. What does not fit is spilled beside the output, in arrival order as far as that goes:
    only the owner can read it, and it is gone in the end. The same call takes up what an interrupted one left.
    `progress` is called with how many reports are done, from any thread. What was released is remembered in the file
    `released`, by default `_released.json` in each input folder: see `once.Released` for what it refuses. Repeated
    after it has finished, it does nothing and returns what is there.
    """
    identity = source.identity
    identity.check_enough(source.rows)
    refuse_copied_reports(source, memory)
    workers = cores() if workers is None else workers
    layout = Layout.plan(source.rows, identity.kind.item.itemsize, memory=memory, workers=workers)
    return run(source, output, layout, format=format, restart=restart, released=released, progress=progress)


def run(
    source: ReportSource,
    output: str | os.PathLike[str],
    layout: Layout,
    *,
    format: Format = "parquet",
    restart: bool = False,
    released: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
    randomness: Callable[[], RandomSource] = SecureSource,
) -> Shuffled:
    """Shuffle by a given layout; `randomness` makes a source of random bits for each worker."""
    check_choice("format", format, get_args(Format))
    releases = Released(source.members(), folders_of(source), released)
    releases.check()
    if (before := shuffled_before(output, releases, format)) is not None:
        return Shuffled(Path(output), before.identity, before.rows, len(before.files), source.repeated)
    work = {
        "step": "shuffle",
        "inputs": source.inputs,
        "format": format,
        "cut": [layout.buckets, layout.parts, layout.run_rows, layout.in_memory],
    }
    with (
        StagedFolder(output, work, source.identity.shuffled(layout.rows), restart=restart) as folder,
        writing(folder.path, _NO_ROOM, "cannot be written or read"),
        Workers(randomness() for _ in range(layout.workers)) as pool,
    ):
        step = _Step(source, layout, folder, format, progress, pool)
        if layout.in_memory:
            step.write(step.scatter_in_memory())
        else:
            with step.scatter_to_files() as runs:
                step.write(runs)
            # First of all what vouches for the rest: half of it must never be taken for the whole.
            (folder.path / _SPILL / _BOOT).unlink()
            shutil.rmtree(folder.path / _SPILL)
        refuse_changed(source)
        releases.record(folder.identity.shuffle_id)
    return Shuffled(Path(output), folder.identity, layout.rows, layout.parts, source.repeated)


class _Step:
    """One run of the shuffler."""

    def __init__(
        self,
        source: ReportSource,
        layout: Layout,
        folder: StagedFolder,
        format: Format,
        progress: Callable[[int], None] | None,
        pool: Workers[RandomSource],
    ) -> None:
        self._source, self._layout, self._folder = source, layout, folder
        self._format, self._progress, self._pool = format, progress, pool
        self._kind = source.identity.kind
        self._lock, self._moved = threading.Lock(), 0

    def scatter_in_memory(self) -> MemoryRuns:
        """The first pass, kept in memory; parts that an interrupted run wrote are of other buckets, and thrown away."""
        self._forget()
        runs = MemoryRuns(self._kind.item)
        units = self._source.units(self._layout.unit_rows)
        for found in self._pool.map(lambda randomness, unit: list(self._runs(unit, randomness)), units):
            for items, ends in found:
                runs.add(items, ends)
        return runs

    def scatter_to_files(self) -> FileRuns:
        """The first pass, spilled to files; units that an interrupted run finished are kept.

        Spill files are not forced onto the disk, so they are believed only until the machine starts anew. A unit
        that is missing though parts were written is dealt out anew only with all others: its reports may be in them.
        """
        spilled = self._folder.path / _SPILL
        boot = spilled / _BOOT
        units = self._source.units(self._layout.unit_rows)
        done = {}
        if boot.exists() and boot.read_bytes() == _boot_id().encode():
            found = {unit: spilled_rows(spilled, unit, self._layout.buckets) for unit in range(len(units))}
            done = {unit: rows for unit, rows in found.items() if rows is not None}
        if not done or (len(done) < len(units) and self._folder.parts):
            done = {}
            self._forget()
            spilled.mkdir(mode=0o700)
            boot.write_bytes(_boot_id().encode())
        self._count(sum(done.values()))

        def scatter_unit(randomness: RandomSource, number: int) -> int:
            return spill(spilled, number, self._runs(units[number], randomness), self._layout.buckets)

        for _ in self._pool.map(scatter_unit, [unit for unit in range(len(units)) if unit not in done]):
            pass
        return FileRuns(spilled, len(units), self._kind.item, self._layout.buckets)

    def write(self, runs: Runs) -> None:
        """The second pass: every part that is not there yet."""
        if runs.rows != self._layout.rows:
            raise ReportsError(
                "changed-meanwhile",
                f"{runs.rows} reports were read where {self._layout.rows} were announced; the input was changed",
            )
        finished = self._folder.parts
        self._count(sum(finished.values()))

        def write(randomness: RandomSource, part: int) -> int:
            records = self._permuted(runs, self._layout.buckets_of(part), randomness)
            return write_part(self._folder.path, _part_name(part), records, self._folder.identity, self._format)

        todo = [part for part in range(self._layout.parts) if _part_name(part) not in finished]
        rows = sum(finished.values()) + sum(self._pool.map(write, todo))
        if rows != self._layout.rows:
            raise ReportsError(
                "changed-meanwhile", f"{rows} reports were written where {self._layout.rows} were read; say --restart"
            )

    def _forget(self) -> None:
        shutil.rmtree(self._folder.path / _SPILL, ignore_errors=True)
        for path in self._folder.path.glob("part-*"):
            path.unlink()

    def _runs(self, unit: Unit, randomness: RandomSource) -> Iterator[tuple[Items, NDArray[np.uint32]]]:
        """A unit's reports, a run at a time, sorted into random buckets."""
        size = self._layout.run_rows
        waiting, filled = room(size, self._kind.item), 0
        for items in self._source.read(unit, min(size, self._kind.rows_at_once)):
            taken = 0
            while taken < len(items):
                fitting = min(len(items) - taken, size - filled)
                as_bytes(waiting[filled : filled + fitting])[:] = as_bytes(items[taken : taken + fitting])
                taken, filled = taken + fitting, filled + fitting
                if filled == size:
                    yield scatter(waiting, self._layout.buckets, randomness)
                    self._count(filled)
                    filled = 0
        if filled:
            yield scatter(waiting[:filled], self._layout.buckets, randomness)
            self._count(filled)

    def _permuted(self, runs: Runs, buckets: Iterable[int], randomness: RandomSource) -> Iterator[Any]:
        for bucket in buckets:
            items = permute(runs.bucket(bucket), randomness)
            yield self._kind.records(items)
            self._count(len(items))

    def _count(self, rows: int) -> None:
        with self._lock:
            self._moved += rows
            if self._progress:
                self._progress(self._moved // 2)  # every report moves twice


def _part_name(part: int) -> str:
    return f"part-{part:05d}"


def _boot_id() -> str:
    """The same until the machine starts anew; where that cannot be known, never the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)
