"""Where reports to be shuffled come from: folders of report files, or of uploads."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from shufflesum.batch.files import (
    Dataset,
    Format,
    ReportFile,
    describe_inputs,
    file_digests,
    join_datasets,
    open_dataset,
    read_records,
)
from shufflesum.batch.files.report_file import report_paths
from shufflesum.batch.identity import Identity
from shufflesum.batch.kinds import SEALED, Items, sealed_rows
from shufflesum.batch.once import Members, Released, refuse_same_reports
from shufflesum.batch.once.copies import SealedReports
from shufflesum.batch.shuffle.uploads import holds_uploads, open_uploads
from shufflesum.errors import FileError, ParameterError, ReportsError, ShufflesumError
from shufflesum.tables import Address, Place, place
from shufflesum.wire import Task

__all__ = [
    "FileSource",
    "ReportSource",
    "Unit",
    "folders_of",
    "open_source",
    "refuse_changed",
    "refuse_copied_reports",
    "shuffled_before",
]

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
    def paths(self) -> Sequence[Place]:
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
    def paths(self) -> list[Place]:
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
            "other-task",
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


def folders_of(source: ReportSource) -> set[Place]:
    """Where the files are, and where they really are if they are links."""
    return {folder for path in source.paths for folder in (path.parent, path.resolve().parent)}
