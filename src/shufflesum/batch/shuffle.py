"""The shuffler on files: a uniform permutation of all reports of a batch, however much larger than memory it is.

Reports come from folders of report files, or from files of uploads, whose seals stay closed. What the output looks like
(names, number and sizes of files, row groups) follows from the number of reports and the memory allowed; nothing in it
comes from how the input was cut into files or in which order it came. Why the permutation is uniform stands in
`shufflesum.shuffling`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum._machine import Workers, cores, writing
from shufflesum.batch import files as report_files
from shufflesum.batch.identity import SEALED, Identity, sealed_rows
from shufflesum.batch.once import Members, Released, SealedReports, refuse_same_reports
from shufflesum.batch.targets import DEFAULT_MEMORY
from shufflesum.errors import FileError, ParameterError, ReportsError, ShufflesumError
from shufflesum.randomness import RandomSource, SecureSource
from shufflesum.sealing import SEALED_BYTES
from shufflesum.shuffling import FileRuns, Items, Layout, MemoryRuns, Runs, damaged, permute, scattered, write_runs
from shufflesum.tables.paths import Address, PathOrUrl, place, reading, visible
from shufflesum.wire import Task, Upload, UploadError

__all__ = ["FileSource", "ReportSource", "open_source", "shuffle"]

SUFFIX = ".upload"

_READ_BYTES = 1 << 20


def holds_uploads(path: PathOrUrl) -> bool:
    """Whether a path is a file of uploads, or a folder with one."""
    with reading(path):
        return any(entry.suffix == SUFFIX for entry in (path.iterdir() if path.is_dir() else (path,)))


@dataclass(frozen=True)
class UploadSource:
    """Checked uploads of one round of a task, each counted once.

    Uploads are numbered through all files; `dropped` (sorted) are those that came before.
    """

    task: Task
    identity: Identity
    paths: list[Path]
    inputs: list[list[Any]]
    ends: NDArray[np.int64]
    dropped: NDArray[np.int64]
    ids: NDArray[np.uint64]
    content: str

    @property
    def users(self) -> int:
        """How many different uploads there are; each is one user's."""
        return int(self.ends[-1]) - len(self.dropped)

    @property
    def repeated(self) -> int:
        """How many uploads came twice and count once."""
        return len(self.dropped)

    @property
    def rows(self) -> int:
        """How many reports there are."""
        return self.users * self.task.plan.reports

    def members(self) -> Members:
        """The ids of its uploads, and a digest of what is in them."""
        return Members.of(self.ids.tobytes().hex(), self.content)

    def units(self, rows: int) -> list[range]:
        """Ranges of uploads with about so many reports each."""
        each = max(1, rows // self.task.plan.reports)
        total = int(self.ends[-1])
        return [range(start, min(start + each, total)) for start in range(0, total, each)]

    def read(self, unit: range, rows: int) -> Iterator[Items]:
        """The sealed reports of a range of uploads, about so many at a time."""
        for _, kept in self._kept(unit, max(1, rows // self.task.plan.reports)):
            yield np.ascontiguousarray(_sealed(kept, self.task)).reshape(-1).view(SEALED.item)

    def sealed(self) -> SealedReports:
        """All sealed reports, and the uploads they are in."""
        reports = self.task.plan.reports
        for numbers, kept in self._kept(range(int(self.ends[-1])), max(1, _READ_BYTES // self.task.upload_bytes)):

            def where(row: int, numbers: NDArray[np.int64] = numbers) -> str:
                return _place(self.paths, self.ends, int(numbers[row // reports]))

            yield where, _sealed(kept, self.task).reshape(-1, SEALED_BYTES)

    def _kept(self, unit: range, at_once: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
        """A range of uploads without those that came before: their numbers, and their bytes as rows."""
        for first, uploads in _blocks(self.paths, self.ends, self.task.upload_bytes, unit, at_once):
            start, stop = np.searchsorted(self.dropped, [first, first + len(uploads)])
            again = self.dropped[start:stop] - first
            yield np.delete(np.arange(first, first + len(uploads)), again), np.delete(uploads, again, axis=0)


def open_uploads(places: Sequence[Path], task: Task) -> UploadSource:
    """Check every upload in folders of `*.upload` files, or in single ones, and find those that came twice.

    A file holds one or more encoded uploads, one after another. An upload sent again, the same byte for byte, is
    counted once; the same id with other bytes, another round or another task is refused. While this is found out, some
    80 bytes for each user are held in memory.
    """
    paths = [path for place in places for path in _paths(place)]
    inputs = report_files.describe_inputs(paths)
    ends = np.cumsum([_count(file, task) for file in paths])
    ids = np.empty((int(ends[-1]), 2), dtype="<u8")
    digests = np.empty(len(ids), dtype="S32")
    rounds: set[int] = set()
    at_once = max(1, _READ_BYTES // task.upload_bytes)
    for first, uploads in _blocks(paths, ends, task.upload_bytes, range(len(ids)), at_once):
        for number, data in enumerate(uploads, first):
            try:
                upload = Upload.decode(data.tobytes(), task)
            except UploadError as error:
                raise ReportsError(error.problem, f"{_place(paths, ends, number)}: {error}") from error
            ids[number] = np.frombuffer(upload.upload_id, dtype="<u8")
            digests[number] = hashlib.sha256(upload.sealed).hexdigest()[:32]
            rounds.add(upload.round_number)
            if len(rounds) > 1:
                raise ReportsError(
                    "round-mismatch",
                    f"{_place(paths, ends, number)}: is of round {upload.round_number}, others before it are not; a "
                    "batch is of one round: keep each in its folder",
                )
    order = np.lexsort((ids[:, 1], ids[:, 0]))
    again = np.zeros(len(ids), dtype=np.bool_)  # in that order: the same id as the one before
    again[1:] = (ids[order[1:]] == ids[order[:-1]]).all(axis=1)
    dropped = _repeats(paths, ends, task.upload_bytes, order, again)
    different = ids[order[~again]]
    identity = replace(Identity.for_task(task, rounds.pop()), contribution_ids=(_contribution_id(different, task),))
    content = hashlib.sha256(digests[order[~again]].tobytes()).hexdigest()
    return UploadSource(task, identity, paths, inputs, ends, dropped, different, content)


def _contribution_id(ids: NDArray[np.uint64], task: Task) -> str:
    """Made from the upload ids: whoever shuffles the same uploads twice is known to have done so."""
    return hashlib.sha256(bytes.fromhex(task.id) + ids.tobytes()).hexdigest()[:32]


def _paths(path: Path) -> Sequence[Path]:
    if not path.is_dir():
        return [path]
    found = visible(path)
    for file in found:
        if file.suffix != SUFFIX or not file.is_file():
            raise FileError(
                "unknown-file-type", f"{file}: is no file of uploads; a folder of uploads holds {SUFFIX} files only"
            )
    if not found:
        raise FileError(
            "no-rows",
            f"{path}: has no uploads but hidden ones, which do not count; rename them if they are whole, to names that "
            "do not start with . or _",
        )
    return found


def _count(file: Path, task: Task) -> int:
    with reading(file):
        size = file.stat().st_size
    if size == 0 or size % task.upload_bytes:
        raise ReportsError(
            "damaged",
            f"{file}: has {size} bytes; uploads of task {task.id[:12]} have {task.upload_bytes} each, one after "
            "another: it is cut short, damaged or of another task",
        )
    return size // task.upload_bytes


def _blocks(
    paths: list[Path], ends: NDArray[np.int64], size: int, numbers: range, at_once: int
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Uploads by number, some at a time: the number of the first, and their bytes as rows."""
    start = numbers.start
    while start < numbers.stop:
        place = int(np.searchsorted(ends, start, side="right"))
        first = int(ends[place - 1]) if place else 0
        stop = min(numbers.stop, int(ends[place]))
        with reading(paths[place]), paths[place].open("rb", buffering=0) as file:
            file.seek((start - first) * size)
            while start < stop:
                count = min(at_once, stop - start)
                data = file.read(count * size)
                if len(data) != count * size:
                    raise ReportsError(
                        "changed-meanwhile", f"{paths[place]}: was changed while it was read; run the same again"
                    )
                yield start, np.frombuffer(data, dtype=np.uint8).reshape(count, size)
                start += count


def _sealed(uploads: NDArray[np.uint8], task: Task) -> NDArray[np.uint8]:
    """The sealed reports of uploads: upload, report, byte."""
    reports = task.plan.reports
    header = task.upload_bytes - reports * SEALED_BYTES
    return uploads[:, header:].reshape(len(uploads), reports, SEALED_BYTES)


def _place(paths: list[Path], ends: NDArray[np.int64], number: int) -> str:
    """Where an upload is, for a person."""
    position = int(np.searchsorted(ends, number, side="right"))
    return f"{paths[position]}, upload {number - (int(ends[position - 1]) if position else 0) + 1}"


def _repeats(
    paths: list[Path], ends: NDArray[np.int64], size: int, order: NDArray[np.int64], again: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The numbers, sorted, of uploads that are the same as an earlier one."""
    dropped = []
    for position in np.flatnonzero(again).tolist():
        one, other = sorted(order[position - 1 : position + 1].tolist())
        left, right = (next(_blocks(paths, ends, size, range(n, n + 1), 1))[1].tobytes() for n in (one, other))
        if left != right:
            raise ReportsError(
                "counted-twice",
                f"{_place(paths, ends, one)} and {_place(paths, ends, other)}: have one upload id but differ; "
                "one of them is damaged or forged: remove it",
            )
        dropped.append(other)
    return np.array(sorted(dropped), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class FileSource:
    """Folders of report files, plain or sealed; `inputs` are what these were before the first was read."""

    dataset: report_files.Dataset
    inputs: list[list[Any]]
    repeated: int = 0

    @property
    def identity(self) -> Identity:
        """Whose reports they are."""
        return self.dataset.identity

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.dataset.rows

    @property
    def paths(self) -> list[PathOrUrl]:
        """The files that they are in."""
        return [file.path for file in self.dataset.files]

    def members(self) -> Members:
        """The owners' runs; one may be there in part, so the bytes of all files are hashed as well."""
        digests = sorted(report_files.file_digests(self.dataset).values())
        return Members.of("".join(self.identity.contribution_ids), sha256("".join(digests).encode()).hexdigest())

    def units(self, rows: int) -> list[list[tuple[report_files.ReportFile, list[int]]]]:
        """Groups of files' rows, put together until there are about so many reports."""
        found: list[list[tuple[report_files.ReportFile, list[int]]]] = [[]]
        filled = 0.0
        for file in self.dataset.files:
            for group in range(file.groups):
                if filled >= rows:
                    found.append([])
                    filled = 0.0
                if not found[-1] or found[-1][-1][0] is not file:
                    found[-1].append((file, []))
                found[-1][-1][1].append(group)
                filled += file.rows / file.groups
        return found

    def read(self, unit: list[tuple[report_files.ReportFile, list[int]]], rows: int) -> Iterator[Items]:
        """A unit's reports, so many at a time."""
        for file, groups in unit:
            for records in report_files.read_records(file, rows, groups):
                yield self.identity.kind.items(records)

    def sealed(self) -> SealedReports:
        """All sealed reports, and the files they are in."""
        for file in self.dataset.files:
            for records in report_files.read_records(file, SEALED.rows_at_once):
                yield partial(_name, file), sealed_rows(records)[0]


def _name(file: report_files.ReportFile, _: int) -> str:
    return str(file.path)


Unit = Any  # a piece of the input that can be read apart, in the words of its source

ReportSource = FileSource | UploadSource
"""Reports to be shuffled, as items: in report files, or in uploads of clients."""


Place = str | os.PathLike[str] | Address


def each_of(paths: Place | Sequence[Place]) -> Sequence[Place]:
    """The one path, or each of several."""
    return [paths] if isinstance(paths, str | os.PathLike | Address) else paths


def open_source(*paths: Place, task: Task | None = None) -> ReportSource:
    """Open folders of report files, or with a task folders of its clients' uploads (`*.upload`), and check them.

    Each of several folders is checked against its own manifest; together they are one batch.
    """
    folders = sorted(map(place, paths), key=str)
    if not folders:
        raise ParameterError("missing-argument", "no folder of reports is given; name one or more")
    for folder, count in Counter(folder.resolve() for folder in folders).items():
        if count > 1:
            raise ReportsError(
                "counted-twice", f"{folder}: is given {count} times; its reports would count as often: name it once"
            )
    with_uploads = [folder for folder in folders if folder.exists() and holds_uploads(folder)]
    if with_uploads:
        if remote := next((folder for folder in folders if isinstance(folder, Address)), None):
            raise ReportsError(
                "impossible-combination", f"{remote}: uploads are read on this machine only; copy the folder here"
            )
        for folder in folders:
            if folder not in with_uploads:
                raise ReportsError(
                    "mixed-reports", f"{folder}: has no uploads, but {with_uploads[0]} has; shuffle them apart"
                )
        if task is None:
            raise ReportsError(
                "missing-argument", f"{with_uploads[0]}: holds uploads of a task's clients; say which task (task=)"
            )
        return open_uploads([folder for folder in folders if isinstance(folder, Path)], task)
    inputs = report_files.describe_inputs([path for folder in folders for path in report_files.report_paths(folder)])
    dataset = report_files.join_datasets([report_files.open_dataset(folder, stage="reports") for folder in folders])
    if task is not None and dataset.identity.task_id != task.id:
        found = f"sealed for task {dataset.identity.task_id[:12]}" if dataset.identity.task_id else "not sealed"
        raise ReportsError(
            "task-mismatch",
            f"{folders[0]}: these reports are {found}, not for task {task.id[:12]}; leave out task=, or mend it",
        )
    return FileSource(dataset, inputs)


def refuse_copied_reports(source: ReportSource, memory: int) -> None:
    """Refuse a sealed report that is there twice; of plain ones, two that are equal are no copies."""
    if source.identity.kind is SEALED:
        refuse_same_reports(source.sealed, source.rows, memory)


def refuse_changed(source: ReportSource) -> None:
    """Refuse files that are no longer what they were before the first was read."""
    for before, now in zip(source.inputs, report_files.describe_inputs(source.paths), strict=True):
        if before != now:
            raise FileError("changed-meanwhile", f"{before[0]}: was changed while it was read; work on a copy")


def shuffled_before(
    output: str | os.PathLike[str], releases: Released, format: report_files.Format
) -> report_files.Dataset | None:
    """What an earlier shuffle of exactly this batch has written here, whole; None where none has."""
    if not os.path.lexists(output):
        return None
    try:
        dataset = report_files.open_dataset(output, stage="shuffled")
    except ShufflesumError:
        return None
    same_format = all(file.path.suffix == f".{format}" for file in dataset.files)
    return dataset if same_format and dataset.whole and releases.knows(dataset.identity.shuffle_id) else None


def folders_of(source: ReportSource) -> set[PathOrUrl]:
    """Where the files are, and where they really are if they are links."""
    return {folder for path in source.paths for folder in (path.parent, path.resolve().parent)}


# ---- The shuffler on files: a uniform permutation of all reports of a folder, however much larger than memory it is.


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
_NO_ROOM = "make room on the disk and run the same again, or say restart=True to begin anew"


def shuffle(
    reports: ReportSource | Place | Sequence[Place],
    output: str | os.PathLike[str],
    *,
    task: Task | None = None,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    layout: Layout | None = None,
    format: report_files.Format = "parquet",
    restart: bool = False,
    released: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
    randomness: Callable[[], RandomSource] = SecureSource,
) -> report_files.Dataset:
    """Write all reports to a new folder, in a uniformly random order.

    `reports` are what `open_source` gives, or what it takes: a folder of report files, or one of a task's uploads, or
    several of either, which are one batch. At most `memory` bytes are held at a time (a little more for how Arrow reads
    and writes), by `workers` threads, by default one for each core; both follow from a `layout` where one is given.
    What does not fit is spilled beside the output, in arrival order as far as that goes: only the owner can read it,
    and it is gone in the end. The same call takes up what an interrupted one left. `progress` is called with how many
    reports are done, from any thread. What was released is remembered in the file `released`, by default `_released.db`
    in each input folder: see `once.Released` for what it refuses. Repeated after it has finished, it does nothing and
    returns what is there. `randomness` makes a source of random bits for each worker.
    """
    source = reports if isinstance(reports, FileSource | UploadSource) else open_source(*each_of(reports), task=task)
    identity = source.identity
    identity.check_enough(source.rows)
    refuse_copied_reports(source, memory)
    if layout is None:
        size, workers = identity.kind.item.itemsize, cores() if workers is None else workers
        layout = Layout.plan(source.rows, size, memory=memory, workers=workers)
    check_choice("format", format, get_args(report_files.Format))
    releases = Released(source.members(), folders_of(source), released)
    releases.check()
    if (before := shuffled_before(output, releases, format)) is not None:
        return before
    work = {
        "step": "shuffle",
        "inputs": source.inputs,
        "format": format,
        "cut": [layout.buckets, layout.parts, layout.run_rows, layout.in_memory],
    }
    with (
        report_files.StagedFolder(output, work, identity.shuffled(layout.rows), restart=restart) as folder,
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
    return report_files.open_dataset(output, stage="shuffled")


class _Step:
    """One run of the shuffler."""

    def __init__(
        self,
        source: ReportSource,
        layout: Layout,
        folder: report_files.StagedFolder,
        format: report_files.Format,
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
            return report_files.write_part(
                self._folder.path, _part_name(part), records, self._folder.identity, self._format
            )

        todo = [part for part in range(self._layout.parts) if _part_name(part) not in finished]
        rows = sum(finished.values()) + sum(self._pool.map(write, todo))
        if rows != self._layout.rows:
            raise ReportsError(
                "changed-meanwhile",
                f"{rows} reports were written where {self._layout.rows} were read; say restart=True",
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
