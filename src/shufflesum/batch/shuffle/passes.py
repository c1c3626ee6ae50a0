"""The shuffler on files: a uniform permutation of all reports of a folder, however much larger than memory it is.

What the output looks like (names, number and sizes of files, row groups) follows from the number of reports and the
memory allowed; nothing in it comes from how the input was cut into files or in which order it came. Why the permutation
is uniform stands in `shufflesum.shuffling`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum._machine import Workers, cores, writing
from shufflesum.batch.files import Format, StagedFolder, write_part
from shufflesum.batch.identity import Identity
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
from shufflesum.errors import ReportsError
from shufflesum.randomness import RandomSource, SecureSource
from shufflesum.shuffling import FileRuns, Items, Layout, MemoryRuns, Runs, damaged, permute, scattered, write_runs
from shufflesum.tables import Address
from shufflesum.wire import Task


def spill(folder: Path, unit: int, runs: Iterator[tuple[Items, NDArray[np.uint32]]], buckets: int) -> int:
    """Write the runs of a unit to a file of its own; the index, written last, says that it is whole. Returns its rows.

    A file that an interrupted run left without an index is written from the start again, never added to.
    """
    path = folder / _unit_name(unit)
    with path.open("wb", buffering=0) as file:
        index = write_runs(file, runs, buckets)
    temporary = folder / f".{path.name}.index"
    temporary.write_bytes(index.tobytes() + hashlib.sha256(index.tobytes()).digest())
    os.replace(temporary, _index_path(folder, unit))
    return _rows(index, buckets)


def spilled(folder: Path, units: int, dtype: np.dtype[Any], buckets: int) -> FileRuns:
    """The runs of all units."""
    indexes = [_index(folder, unit, buckets) for unit in range(units)]
    files: list[Any] = [(folder / _unit_name(unit)).open("rb", buffering=0) for unit in range(units)]
    return FileRuns(list(zip(files, indexes, strict=True)), dtype, buckets)


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
        raise damaged(_index_path(folder, unit))
    return np.frombuffer(body, dtype=np.uint32).reshape(-1, 2 * buckets + 1)


def _rows(index: NDArray[np.uint32], buckets: int) -> int:
    return int(index[:, buckets].sum(dtype=np.int64))


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
    `released`, by default `_released.db` in each input folder: see `once.Released` for what it refuses. Repeated
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
        folder = self._folder.path / _SPILL
        boot = folder / _BOOT
        units = self._source.units(self._layout.unit_rows)
        done = {}
        if boot.exists() and boot.read_bytes() == _boot_id().encode():
            found = {unit: spilled_rows(folder, unit, self._layout.buckets) for unit in range(len(units))}
            done = {unit: rows for unit, rows in found.items() if rows is not None}
        if not done or (len(done) < len(units) and self._folder.parts):
            done = {}
            self._forget()
            folder.mkdir(mode=0o700)
            boot.write_bytes(_boot_id().encode())
        self._count(sum(done.values()))

        def scatter_unit(randomness: RandomSource, number: int) -> int:
            return spill(folder, number, self._runs(units[number], randomness), self._layout.buckets)

        for _ in self._pool.map(scatter_unit, [unit for unit in range(len(units)) if unit not in done]):
            pass
        return spilled(folder, len(units), self._kind.item, self._layout.buckets)

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
        pieces = self._source.read(unit, min(self._layout.run_rows, self._kind.rows_at_once))
        for items, ends in scattered(pieces, self._kind.item, self._layout, randomness):
            yield items, ends
            self._count(len(items))
            del items

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
