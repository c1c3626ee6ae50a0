"""Where reports to be shuffled come from: folders of report files, or files of uploads, whose seals stay closed."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.batch.files import (
    Dataset,
    Format,
    ReportFile,
    describe_inputs,
    file_digests,
    join_datasets,
    open_dataset,
    read_records,
    report_paths,
)
from shufflesum.batch.identity import SEALED, Identity, Items, sealed_rows
from shufflesum.batch.once import Members, Released, SealedReports, refuse_same_reports
from shufflesum.errors import FileError, ParameterError, ReportsError, ShufflesumError
from shufflesum.tables import Address, PathOrUrl, place, reading
from shufflesum.wire import SEALED_BYTES, Task, Upload, UploadError

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
    inputs = describe_inputs(paths)
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


def _paths(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(entry for entry in path.iterdir() if not entry.name.startswith(("_", ".")))
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
        try:
            with paths[place].open("rb", buffering=0) as file:
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
        except OSError as error:
            raise FileError("unreadable", f"{paths[place]}: cannot be read: {error.strerror or error}") from error


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


Unit = Any  # a piece of the input, in the words of its source


class ReportSource(Protocol):
    """Reports to be shuffled, as items, in units that can be read apart from each other."""

    @property
    def identity(self) -> Identity:
        """Whose reports they are."""

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def paths(self) -> Sequence[PathOrUrl]:
        """The files that they are in."""

    @property
    def inputs(self) -> list[list[Any]]:
        """What these files were before the first was read; see `describe_inputs`."""

    @property
    def repeated(self) -> int:
        """How many uploads came twice and count once."""

    def members(self) -> Members:
        """Who is in the batch."""

    def sealed(self) -> SealedReports:
        """All of them where they are sealed, and where each is."""

    def units(self, rows: int) -> list[Unit]:
        """The input cut into units of about so many reports; the same for the same files."""

    def read(self, unit: Unit, rows: int) -> Iterator[Items]:
        """A unit's reports, so many at a time."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Folders of report files, plain or sealed."""

    dataset: Dataset
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
        digests = sorted(file_digests(self.dataset).values())
        return Members.of("".join(self.identity.contribution_ids), sha256("".join(digests).encode()).hexdigest())

    def units(self, rows: int) -> list[list[tuple[ReportFile, list[int]]]]:
        """Groups of files' rows, put together until there are about so many reports."""
        found: list[list[tuple[ReportFile, list[int]]]] = [[]]
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

    def read(self, unit: list[tuple[ReportFile, list[int]]], rows: int) -> Iterator[Items]:
        """A unit's reports, so many at a time."""
        for file, groups in unit:
            for records in read_records(file, rows, groups):
                yield self.identity.kind.items(records)

    def sealed(self) -> SealedReports:
        """All sealed reports, and the files they are in."""
        for file in self.dataset.files:
            for records in read_records(file, SEALED.rows_at_once):
                yield partial(_name, file), sealed_rows(records)[0]


def _name(file: ReportFile, _: int) -> str:
    return str(file.path)


def open_source(*paths: str | os.PathLike[str] | Address, task: Task | None = None) -> ReportSource:
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
                "missing-argument",
                f"{with_uploads[0]}: holds uploads of a task's clients; say which task with --task task.json",
            )
        return open_uploads([folder for folder in folders if isinstance(folder, Path)], task)
    inputs = describe_inputs([path for folder in folders for path in report_paths(folder)])
    dataset = join_datasets([open_dataset(folder, stage="reports") for folder in folders])
    if task is not None and dataset.identity.task_id != task.id:
        found = f"sealed for task {dataset.identity.task_id[:12]}" if dataset.identity.task_id else "not sealed"
        raise ReportsError(
            "task-mismatch",
            f"{folders[0]}: these reports are {found}, not for task {task.id[:12]}; leave out --task, or mend it",
        )
    return FileSource(dataset, inputs)


def refuse_copied_reports(source: ReportSource, memory: int) -> None:
    """Refuse a sealed report that is there twice; of plain ones, two that are equal are no copies."""
    if source.identity.kind is SEALED:
        refuse_same_reports(source.sealed, source.rows, memory)


def refuse_changed(source: ReportSource) -> None:
    """Refuse files that are no longer what they were before the first was read."""
    for before, now in zip(source.inputs, describe_inputs(source.paths), strict=True):
        if before != now:
            raise FileError("changed-meanwhile", f"{before[0]}: was changed while it was read; work on a copy")


def shuffled_before(output: str | os.PathLike[str], releases: Released, format: Format) -> Dataset | None:
    """What an earlier shuffle of exactly this batch has written here, whole; None where none has."""
    if not os.path.lexists(output):
        return None
    try:
        dataset = open_dataset(output, stage="shuffled")
    except ShufflesumError:
        return None
    same_format = all(file.path.suffix == f".{format}" for file in dataset.files)
    return dataset if same_format and dataset.whole and releases.knows(dataset.identity.shuffle_id) else None


def folders_of(source: ReportSource) -> set[PathOrUrl]:
    """Where the files are, and where they really are if they are links."""
    return {folder for path in source.paths for folder in (path.parent, path.resolve().parent)}
