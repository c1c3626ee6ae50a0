"""Folders of report files that belong together, checked as a whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from shufflesum._machine import cores
from shufflesum._workers import Workers
from shufflesum.batch.files.manifest import MANIFEST, check_manifest
from shufflesum.batch.files.report_file import ReportFile, open_report_file, report_paths, require_arrow
from shufflesum.batch.identity import Identity, Stage
from shufflesum.batch.once import refuse_same_files, refuse_same_parts
from shufflesum.errors import FileError, ReportsError
from shufflesum.tables import Address, Place, place, unread

__all__ = ["Dataset", "file_digests", "join_datasets", "open_dataset"]

_WRONG_STAGE: dict[Stage, str] = {
    "shuffled": "these reports were not shuffled; their order may tell whose they are: run shufflesum shuffle first",
    "reports": "these reports are shuffled already; give the output of shufflesum randomize",
}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A folder of report files, or one such file, that belong together.

    `written` is how many reports their run wrote, them included, where a manifest says so.
    """

    path: Place
    files: tuple[ReportFile, ...]
    identity: Identity
    written: int | None = None

    @property
    def rows(self) -> int:
        """How many reports there are (reports, not users)."""
        return sum(file.rows for file in self.files)

    @property
    def whole(self) -> bool:
        """Whether it is known to be all that was written."""
        return (self.identity.written or self.written) == self.rows


def open_dataset(path: str | os.PathLike[str] | Address, *, stage: Stage) -> Dataset:
    """Open a folder of report files, or one file, at the stage expected; of most files only the footers are read.

    Everything visible in the folder must be a readable file of the same plan and stage, and nothing there twice. Where
    a manifest says what was written, exactly that must be there; at an address there must be one, for nothing else
    says of a folder in a store that it is whole.
    """
    require_arrow()
    path = place(path)
    opened = {file: open_report_file(file) for file in report_paths(path)}
    for name, (_, identity) in opened.items():
        if identity.stage != stage:
            raise ReportsError("wrong-stage", f"{name}: {_WRONG_STAGE[stage]}")
    try:
        identity = reduce(Identity.merge, (identity for _, identity in opened.values()))
    except ReportsError as error:
        raise ReportsError(error.problem, f"{path}: {error}") from error
    files = tuple(file for file, _ in opened.values())
    dataset = Dataset(path, files, identity, check_manifest(path, files, identity))
    if isinstance(path, Address) and dataset.written is None:
        raise ReportsError(
            "not-whole",
            f"{path}: has no {MANIFEST} that is about it, so that nobody can tell whether all of it is there; copy the "
            f"folder again as it was written, {MANIFEST} last",
        )
    _refuse_repeats(files)
    if dataset.rows == 0:
        raise ReportsError("no-rows", f"{path}: its files hold no reports; nothing can be done with them")
    return dataset


def join_datasets(datasets: Sequence[Dataset]) -> Dataset:
    """Several folders, each checked by itself, as one; it goes by the path of the first."""
    first, *others = datasets
    identity = first.identity
    for other in others:
        try:
            identity = identity.merge(other.identity)
        except ReportsError as error:
            raise ReportsError(error.problem, f"{first.path} and {other.path}: {error}") from error
    files = tuple(file for dataset in datasets for file in dataset.files)
    _refuse_repeats(files)
    written = [dataset.written for dataset in datasets if dataset.written is not None]
    return Dataset(first.path, files, identity, sum(written) if len(written) == len(datasets) else None)


def file_digests(dataset: Dataset, workers: int | None = None) -> dict[Place, str]:
    """The SHA-256 of each file with reports in it."""
    paths = [file.path for file in dataset.files if file.rows]
    with Workers([None] * (workers or cores())) as pool:
        return dict(zip(paths, pool.map(lambda _, path: _digest(path), paths), strict=True))


def _digest(path: Place) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(unread(path), f"{path}: cannot be read: {error.strerror or error}") from error


def _refuse_repeats(files: Iterable[ReportFile]) -> None:
    """No report twice; of files without any, as Spark writes them, several may be equal."""
    filled = [file for file in files if file.rows]
    refuse_same_parts((file.contribution_ids, file.part, file.path) for file in filled if file.part is not None)
    refuse_same_files(file.path for file in filled)
