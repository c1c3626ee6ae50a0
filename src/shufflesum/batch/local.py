"""Users' rows in files to a folder of reports, and shuffled reports to a table of counts, on one machine.

Both use all its cores and little memory. The users' data are one file or a folder of files, read as one sequence.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from shufflesum._machine import Workers
from shufflesum.batch import files as folders
from shufflesum.batch.once import refuse_same_files
from shufflesum.batch.targets import DEFAULT_MEMORY, Target, count_records, randomize_rows, workers_within
from shufflesum.domains import Domain, Missing, Rows
from shufflesum.errors import DataError, FileError
from shufflesum.protocol import Randomizer, check_rows
from shufflesum.randomness import RandomSource
from shufflesum.reports import Counts
from shufflesum.tables.delimited import suffix_of
from shufflesum.tables.paths import Address, PathOrUrl, local_path, place, reading, unread, visible
from shufflesum.tables.readers import READABLE, check_shape, located, open_table, rows_of
from shufflesum.tables.sources import AUTOMATIC, DataSource, ReadOptions, refuse_repeated_users

_PART_VALUES = 1 << 29  # the most values of users in a part, for wide rows with few reports
_WORKER_BYTES = 95 << 20  # for each worker: pieces of rows on their way in, and a part on its way out


def randomize(
    users: Users,
    output: str | os.PathLike[str],
    target: Target,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    format: folders.Format = "parquet",
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    restart: bool = False,
    progress: Callable[[int], None] | None = None,
    begin: Callable[[str], None] | None = None,
    source: RandomSource | None = None,
) -> folders.Dataset:
    """Write the reports of all users into a new folder: plain ones for a plan's round, sealed ones for a task's.

    Either every row is randomized or an error names the first that cannot be, and there is no folder. After an
    interruption the same call keeps the parts that were finished: each has all reports of its range of users. Repeated
    after it has finished, it draws nothing and returns what is there. `progress` is called with the number of rows done
    so far, `begin` with the name of the run before it draws anything: the same one where a run is taken up, or found
    finished. It may cost something, so all rows are gone through once before, and what is refused is refused then.
    """
    plan, kind = target.plan, target.kind
    check_shape(users.path, users.shape, plan.domain)
    identity = target.identity(users.names)
    # A piece has at least one row; six of them are on their way at a time, for each worker.
    workers = workers_within(workers, memory, _WORKER_BYTES + 48 * max(0, plan.domain.entries - (1 << 20)))
    rows_per_part = max(1, min(kind.part_reports // plan.reports, _PART_VALUES // plan.domain.entries))
    inputs = folders.describe_inputs(users.paths)
    work = {
        "step": "randomize",
        "output": str(local_path(output).absolute()),  # a copy of an interrupted run would draw the rest once more
        "inputs": inputs,
        "selection": users.selection,
        "clip": clip,
        "missing": missing,
        "format": format,
        "rows_per_part": rows_per_part,
    }
    if (finished_before := folders.finished_reports(output, work, identity, restart=restart)) is not None:
        if begin is not None:
            begin(*finished_before.identity.contribution_ids)
        return finished_before
    tables = dict(users.tables)

    def pieces() -> Iterator[Piece]:
        return users.pieces(plan.domain, rows_per_part, max(1, kind.piece_reports // plan.reports))

    def check_piece(_: int, piece: Piece) -> None:
        try:
            check_rows(plan, piece.rows, first_row=piece.row_in_file, clip=clip, missing=missing)
        except DataError as error:
            raise located(error, piece.path, tables[piece.path]) from None

    @cache
    def check() -> None:
        plan.check_round(target.round_number)
        plan.domain.check_options(clip=clip, missing=missing)
        with Workers(range(workers)) as pool:
            for _ in pool.map(check_piece, pieces()):
                pass

    def begin_checked(run: str) -> None:
        if begin is not None:
            check()
            begin(run)

    with (
        folders.StagedFolder(output, work, identity, restart=restart, noted=True, begin=begin_checked) as folder,
        target.encoding(workers) as encode,
        Workers(
            Randomizer(plan, clip=clip, missing=missing, source=source, round_number=target.round_number)
            for _ in range(workers)
        ) as pool,
    ):
        begin_checked(*folder.identity.contribution_ids)
        finished = folder.parts

        def make(randomizer: Randomizer, piece: Piece) -> tuple[Piece, Any]:
            """The piece's reports as a record batch; None where its part was finished before."""
            part = piece.row // rows_per_part
            whole = min(rows_per_part, users.rows - part * rows_per_part) * plan.reports
            if finished.get(_part_name(part)) == whole:
                return piece, None
            try:
                return piece, encode(randomize_rows(piece.rows, randomizer, piece.row_in_file))
            except DataError as error:
                raise located(error, piece.path, tables[piece.path]) from None

        def write(_: Randomizer, part: tuple[str, list[Any]]) -> int:
            name, records = part
            return folders.write_part(folder.path, name, records, folder.identity, format)

        made = _with_progress(pool.map(make, pieces()), progress)
        for _ in pool.map(write, _parts(made, rows_per_part, users.rows), ahead=workers - 1):
            pass
        if folders.describe_inputs(users.paths) != inputs:
            raise FileError("changed-meanwhile", f"{users.path}: was changed while it was read; work on a copy")
    return folders.open_dataset(output, stage="reports")


def _with_progress(
    made: Iterable[tuple[Piece, Any]], progress: Callable[[int], None] | None
) -> Iterator[tuple[Piece, Any]]:
    for piece, records in made:
        yield piece, records
        if progress:
            progress(piece.row + len(piece.rows))


def _parts(made: Iterable[tuple[Piece, Any]], rows_per_part: int, rows: int) -> Iterator[tuple[str, list[Any]]]:
    """Record batches put together to parts, each with its name; those that were finished before are left out."""
    waiting: list[Any] = []
    for piece, records in made:
        if records is not None:
            waiting.append(records)
        end = piece.row + len(piece.rows)
        if waiting and (end % rows_per_part == 0 or end == rows):
            yield _part_name(piece.row // rows_per_part), waiting
            waiting = []


def _part_name(index: int) -> str:
    return f"part-{index:06d}"


# ---- The users' data.


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Rows that follow each other in one file, and where they stand: in the file, and in all."""

    path: PathOrUrl
    row_in_file: int
    row: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Users:
    """Tables of the same shape, one after another; one row is one user."""

    path: PathOrUrl
    tables: tuple[tuple[PathOrUrl, DataSource], ...]
    selection: Mapping[str, Any]  # what of its options says which columns and rows

    @property
    def rows(self) -> int:
        """How many users there are."""
        return sum(table.rows for _, table in self.tables)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array of numbers."""
        return self.tables[0][1].shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, that of labels first, where the files have some."""
        return self.tables[0][1].column_names

    @property
    def paths(self) -> list[PathOrUrl]:
        """The files, in order."""
        return [path for path, _ in self.tables]

    def pieces(self, domain: Domain, multiple: int, most: int) -> Iterator[Piece]:
        """All rows in order, as a domain takes them, at most so many at a time; see `check_shape`.

        No piece goes beyond a multiple of so many rows.
        """
        row = 0
        for path, table in self.tables:
            row_in_file = 0
            for batch in _named(path, rows_of(table, domain)):
                start = 0
                while start < len(batch):
                    stop = min(len(batch), start + most, start + multiple - row % multiple)
                    yield Piece(path, row_in_file, row, batch[start:stop])
                    row, row_in_file, start = row + stop - start, row_in_file + stop - start, stop


def open_users(path: str | os.PathLike[str] | Address, options: ReadOptions = AUTOMATIC) -> Users:
    """Open a file that `open_table` reads, or a folder of such files of one kind, in the order of their names.

    Files of a folder without any row are skipped, with a warning that names them. A user with two rows is refused where
    `user_column` is given, in whichever files they are; that keeps the whole column in memory.
    """
    path = place(path)
    if not path.exists():
        raise FileError(
            unread(path), f"{path}: does not exist; give a {', '.join(READABLE)} file, or a folder of such files"
        )

    def opened(file: PathOrUrl) -> DataSource:
        return open_table(file, options, keep=False)

    tables = _filled(path, opened) if path.is_dir() else ((path, opened(path)),)
    refuse_same_files(file for file, _ in tables)
    first_path, first = tables[0]
    for other_path, other in tables[1:]:
        if other.shape != first.shape:
            raise FileError(
                "wrong-shape",
                f"{other_path}: its rows have shape {other.shape}, those of {first_path.name} {first.shape}; all files "
                "of a folder must have the same",
            )
        if other.column_names != first.column_names:
            raise FileError(
                "mixed-files", f"{other_path}: its columns are not named, or ordered, as those of {first_path.name}"
            )
    if options.user_column is not None and len(tables) > 1:
        refuse_repeated_users(str(path), options.user_column, (chunk for _, table in tables for chunk in table.users()))
    names = ("columns", "header", "user_column", "array", "separator", "decimal", "encoding", "column")
    return Users(path, tables, {name: getattr(options, name) for name in names})


def _filled(folder: PathOrUrl, opened: Callable[[PathOrUrl], DataSource]) -> tuple[tuple[PathOrUrl, DataSource], ...]:
    """The tables of a folder; a day on which nobody came may well have left an empty file."""
    tables, skipped = [], []
    for file in _visible(folder):
        try:
            tables.append((file, opened(file)))
        except FileError as error:
            if error.problem != "no-rows":
                raise
            skipped.append(file.name)
    if not tables:
        raise FileError("no-rows", f"{folder}: none of its {len(skipped)} files has a row; one row is one user")
    if skipped:
        named = ", ".join(skipped[:5]) + (f" and {len(skipped) - 5} more" if len(skipped) > 5 else "")
        warnings.warn(f"{folder}: skipped what has no rows: {named}", stacklevel=3)
    return tuple(tables)


def _named(path: PathOrUrl, batches: Iterator[Rows]) -> Iterator[Rows]:
    """The batches; what is wrong with a whole one is said with the file's name."""
    try:
        yield from batches
    except DataError as error:
        raise error.at(path) from None


def _visible(folder: PathOrUrl) -> list[PathOrUrl]:
    with reading(folder):
        files = visible(folder)
    if not files:
        raise FileError(
            "no-rows", f"{folder}: is an empty folder; it must hold {', '.join(READABLE)} files of one kind"
        )
    if inner := next((file for file in files if file.is_dir()), None):
        raise FileError(
            "unknown-file-type", f"{inner}: is a folder inside a folder, which is not read; put all files into one"
        )
    kinds = sorted({suffix_of(file) for file in files})
    if len(kinds) > 1:
        raise FileError(
            "mixed-files", f"{folder}: holds files of several kinds ({', '.join(kinds)}); one kind is needed"
        )
    return files


# ---- Counting.

_COUNT_BYTES = 32 << 20  # for each worker: a row group, as it is on disk and as columns
_UNIT_ROWS = 1 << 22


def count(
    dataset: folders.Dataset,
    target: Target,
    *,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Counts, dict[PathOrUrl, str]]:
    """The table of counts of all reports of a dataset, and its files' SHA-256.

    `progress` is called with the number of reports done so far.
    """
    plan, identity = target.plan, dataset.identity
    target.check(identity)
    workers = workers_within(workers, memory, _COUNT_BYTES + 8 * plan.cells)
    units = ((file, groups) for file in dataset.files for groups in _units(file))
    done = 0
    with (
        target.opening(identity, workers) as open_records,
        Workers(Counts(plan, identity.round_number) for _ in range(workers)) as pool,
    ):

        def take(counts: Counts, unit: tuple[folders.ReportFile, range]) -> int:
            file, groups = unit
            rows = 0
            for records in folders.read_records(file, identity.kind.rows_at_once, groups):
                rows += len(records)
                count_records(records, counts, open_records)
            return rows

        digests = folders.file_digests(dataset, workers)
        for rows in pool.map(take, units):
            done += rows
            if progress:
                progress(done)
    if done != dataset.rows:
        raise FileError(
            "changed-meanwhile",
            f"{dataset.path}: {dataset.rows} reports were announced and {done} read; copy the files again",
        )
    total, *others = pool.states
    for counts in others:
        total.merge(counts)
    return total, digests


def _units(file: folders.ReportFile) -> Iterator[range]:
    """Groups of a file that are worth a thread's while."""
    step = max(1, -(-_UNIT_ROWS * file.groups // max(1, file.rows)))
    for start in range(0, file.groups, step):
        yield range(start, min(start + step, file.groups))
