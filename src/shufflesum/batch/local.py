"""Randomizing and analyzing files on one machine, with all its cores and little memory."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shufflesum._checks import check_size
from shufflesum._clock import SYSTEM_CLOCK
from shufflesum._machine import cores
from shufflesum.batch.datasets import (
    Dataset,
    Format,
    ReportFile,
    StagedFolder,
    describe_inputs,
    open_dataset,
    read_batches,
    write_part,
)
from shufflesum.batch.identity import Identity
from shufflesum.batch.inputs import Piece, Users
from shufflesum.batch.scatter import DEFAULT_MEMORY
from shufflesum.batch.state import refuse_repeated_files
from shufflesum.batch.steps import count_batch, count_sealed_batch, randomize_batch, randomize_rows, seal_batch
from shufflesum.contract import Plan
from shufflesum.domain import Missing
from shufflesum.errors import DataError, FileError, ParameterError, ReportsError
from shufflesum.protocol import Counts, Randomizer, RandomSource
from shufflesum.tables import check_shape
from shufflesum.wire import Opener, Sealer, Task, TaskError, seal_info

__all__ = ["check_target", "count", "file_digests", "plan_of", "randomize"]

Progress = Callable[[int], None]


_PART_REPORTS = {False: 1 << 21, True: 1 << 18}  # plain, sealed: what an interruption loses at most, for each worker
_PART_VALUES = 1 << 29  # the same for wide rows with few reports
_PIECE_REPORTS = {False: 1 << 40, True: 1 << 13}  # sealing is slow: about a second of work, which nothing can interrupt
_RANDOMIZE_BYTES = 95 << 20  # for each worker: batches of rows on their way in, and a part on its way out
_COUNT_BYTES = 32 << 20  # for each worker: a row group, as it is on disk and as columns
_COUNT_ROWS = {False: 1 << 17, True: 1 << 16}
_UNIT_ROWS = 1 << 22


def plan_of(target: Plan | Task) -> Plan:
    """The plan itself, or a task's."""
    return target.plan if isinstance(target, Task) else target


def randomize(
    users: Users,
    output: str | os.PathLike[str],
    target: Plan | Task,
    *,
    round_number: int | None = None,
    clip: bool = False,
    missing: Missing = "refuse",
    format: Format = "parquet",
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
    source: RandomSource | None = None,
) -> Dataset:
    """Write the reports of all users into a new folder: plain ones under a plan, sealed ones for a task's round.

    Either every row is randomized or an error names the first that cannot be, and there is no folder. After an
    interruption the same call keeps the parts that were finished: each has all reports of its range of users.
    `progress` is called with the number of rows done so far.
    """
    plan = plan_of(target)
    check_shape(users.path, users.shape, plan)
    if isinstance(target, Task) and target.expired_at(SYSTEM_CLOCK.now()):
        raise TaskError(f"task {target.name!r} ran out at {target.expires}; make a new task")
    sealed = isinstance(target, Task)
    number = 1 if round_number is None else round_number
    if isinstance(target, Task):
        identity = Identity.for_task(target, number, users.names)
    elif round_number is not None:
        raise ParameterError(f"round_number is {round_number} (--round), but plain reports have no round; give a task")
    else:
        identity = Identity.for_plan(plan, users.names)
    # A batch has at least one row; six of them are on their way at a time, for each worker.
    workers = _workers(workers, memory, _RANDOMIZE_BYTES + 48 * max(0, plan.dimension - (1 << 20)))
    rows_per_part = max(1, min(_PART_REPORTS[sealed] // plan.reports, _PART_VALUES // plan.dimension))
    inputs = describe_inputs(users.paths)
    work = {
        "step": "randomize",
        "inputs": inputs,
        "selection": users.selection,
        "clip": clip,
        "missing": missing,
        "format": format,
        "rows_per_part": rows_per_part,
    }
    sealer = (
        Sealer(target.public_key, seal_info(target.id, number), processes=workers)
        if isinstance(target, Task)
        else nullcontext()
    )
    with StagedFolder(output, work, identity, restart=restart) as folder, sealer as sealing:
        idle: SimpleQueue[Randomizer] = SimpleQueue()
        for _ in range(workers):
            idle.put(Randomizer(plan, clip=clip, missing=missing, source=source))

        def make(piece: Piece) -> Any:
            rows = piece.rows.reshape(len(piece.rows), *plan.shape)
            randomizer = idle.get()
            try:
                if not isinstance(target, Task):
                    return randomize_batch(rows, randomizer, folder.identity, first_row=piece.row_in_file)
                reports = randomize_rows(rows, randomizer, piece.row_in_file)
            except DataError as error:
                raise DataError(f"{piece.path}: {error}") from error
            finally:
                idle.put(randomizer)
            return seal_batch(reports, target, number, sealing=sealing)

        most = max(1, _PIECE_REPORTS[sealed] // plan.reports)
        _write_parts(
            folder,
            users.pieces(rows_per_part, most),
            users.rows,
            make,
            rows_per_part,
            plan.reports,
            format,
            workers,
            progress,
        )
        if describe_inputs(users.paths) != inputs:
            raise FileError(f"{users.path}: was changed while it was read; work on a copy")
    return open_dataset(output, stage="reports")


def _write_parts(
    folder: StagedFolder,
    pieces: Iterator[Piece],
    rows: int,
    make: Callable[[Piece], Any],
    rows_per_part: int,
    reports: int,
    format: Format,
    workers: int,
    progress: Progress | None,
) -> None:
    """Make the record batches of all pieces and write them in parts, leaving out the parts that are there already."""
    finished = folder.parts
    made: deque[tuple[Piece, Future[Any]]] = deque()
    writing: deque[Future[int]] = deque()
    part: list[Any] = []

    def collect(waiting: int) -> None:
        """Take the oldest results until so many are waiting; hand on a part when its last one has come."""
        while len(made) > waiting:
            piece, future = made.popleft()
            part.append(future.result())
            end = piece.row + len(piece.rows)
            if end % rows_per_part == 0 or end == rows:
                while len(writing) >= workers:
                    writing.popleft().result()
                name = _part_name(piece.row // rows_per_part)
                writing.append(pool.submit(write_part, folder.path, name, part.copy(), folder.identity, format))
                part.clear()
            if progress:
                progress(end)

    with _pool(workers) as pool:
        for piece in pieces:
            index = piece.row // rows_per_part
            part_rows = min(rows_per_part, rows - index * rows_per_part)
            if finished.get(_part_name(index)) != part_rows * reports:
                made.append((piece, pool.submit(make, piece)))
                collect(2 * workers)
            elif progress:
                progress(piece.row + len(piece.rows))
        collect(0)
        for future in writing:
            future.result()


def _part_name(index: int) -> str:
    return f"part-{index:06d}"


def check_target(identity: Identity, target: Plan | Task) -> None:
    """Refuse reports that were not made for this plan, or for this task."""
    plan = plan_of(target)
    if identity.plan_id != plan.id:
        raise ReportsError(
            f"these reports belong to plan {identity.plan_id[:12]}, not to plan {plan.id[:12]}; "
            "analyze reports with the plan they were made under"
        )
    if (identity.users, identity.reports) != (plan.users, plan.reports):
        raise ReportsError("these reports name the plan, but with other users or reports; the files were changed")
    if not isinstance(target, Task):
        if identity.sealed:
            raise ReportsError("these reports are sealed; give the task and the analyzer's private key (--task, --key)")
    elif not identity.sealed:
        raise ReportsError("these reports are not sealed, so they belong to no task; give the plan (--plan)")
    elif identity.task_id != target.id:
        raise ReportsError(
            f"these reports are sealed for task {str(identity.task_id)[:12]}, not for task {target.id[:12]}; "
            "give the task they were made for"
        )


def count(
    dataset: Dataset,
    target: Plan | Task,
    *,
    private_key: X25519PrivateKey | None = None,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Counts, dict[Path, str]]:
    """The table of counts of all reports of a dataset, and its files' SHA-256; two equal files are refused.

    `private_key`, the analyzer's, opens sealed reports. `progress` is called with the number of reports done so far.
    """
    plan, identity = plan_of(target), dataset.identity
    check_target(identity, target)
    workers = _workers(workers, memory, _COUNT_BYTES + 8 * plan.dimension * (plan.levels + 1))
    idle: SimpleQueue[Counts] = SimpleQueue()
    crew = [Counts(plan) for _ in range(workers)]
    for counts in crew:
        idle.put(counts)
    opener = _opener(target, private_key, workers)

    def take(file: ReportFile, pieces: range) -> int:
        counts, rows = idle.get(), 0
        try:
            for batch in read_batches(file, _COUNT_ROWS[identity.sealed], pieces):
                rows += len(batch)
                if isinstance(target, Task):
                    assert opener is not None
                    assert identity.round_number is not None
                    count_sealed_batch(batch, counts, target, identity.round_number, opener)
                else:
                    count_batch(batch, counts)
        finally:
            idle.put(counts)
        return rows

    done = 0
    with opener or nullcontext(), _pool(workers) as pool:
        hashing = {path: pool.submit(_digest, path) for path in _filled(dataset)}
        counting = [pool.submit(take, file, pieces) for file in dataset.files for pieces in _units(file)]
        for future in as_completed(counting):
            done += future.result()
            if progress:
                progress(done)
        digests = {path: future.result() for path, future in hashing.items()}
    if done != dataset.rows:
        raise FileError(f"{dataset.path}: {dataset.rows} reports were announced and {done} read; copy the files again")
    refuse_repeated_files(digests)
    total = crew[0]
    for counts in crew[1:]:
        total.merge(counts)
    return total, digests


def file_digests(dataset: Dataset, workers: int | None = None) -> dict[Path, str]:
    """Each file's SHA-256, for an engine that counts by other means; two equal files are refused."""
    with _pool(workers or cores()) as pool:
        paths = _filled(dataset)
        digests = dict(zip(paths, pool.map(_digest, paths), strict=True))
    refuse_repeated_files(digests)
    return digests


def _opener(target: Plan | Task, private_key: X25519PrivateKey | None, workers: int) -> Opener | None:
    if not isinstance(target, Task):
        return None
    if private_key is None:
        raise ParameterError("sealed reports are opened with the analyzer's private key; give it (--key)")
    return Opener(private_key, processes=workers)


def _filled(dataset: Dataset) -> list[Path]:
    """The files with reports in them; of those without, as Spark writes them, several may be equal."""
    return [file.path for file in dataset.files if file.rows]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _units(file: ReportFile) -> Iterator[range]:
    """Pieces of a file that are worth a thread's while."""
    step = max(1, -(-_UNIT_ROWS * file.pieces // max(1, file.rows)))
    for start in range(0, file.pieces, step):
        yield range(start, min(start + step, file.pieces))


def _workers(asked: int | None, memory: int, bytes_each: int) -> int:
    """As many as asked for, or as there are cores, and as the memory allows."""
    if asked is not None:
        check_size("workers", asked, 1, 1 << 10)
    if memory < bytes_each:
        raise ParameterError(
            f"memory is {memory / 1e6:.3g} MB, but one worker needs {bytes_each / 1e6:.0f} MB; raise it (--memory)"
        )
    return min(asked or cores(), memory // bytes_each)


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads; after an error, work that has not begun is dropped."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
