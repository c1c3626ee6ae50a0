"""Users' rows in files to a folder of reports, on one machine, with all its cores and little memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

from shufflesum.batch.files import Dataset, Format, StagedFolder, describe_inputs, open_dataset, write_part
from shufflesum.batch.files.users import Piece, Users
from shufflesum.batch.identity import Identity
from shufflesum.batch.memory import DEFAULT_MEMORY, thread_pool, workers_within
from shufflesum.batch.sealer import Sealer
from shufflesum.batch.steps import plan_of, randomize_batch, randomize_rows, seal_batch
from shufflesum.contract import Plan
from shufflesum.domain import Missing
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.protocol import Randomizer, RandomSource
from shufflesum.tables import check_shape
from shufflesum.wire import Task, TaskError

__all__ = ["randomize"]

_PART_REPORTS = {False: 1 << 21, True: 1 << 18}  # plain, sealed: what an interruption loses at most, for each worker
_PART_VALUES = 1 << 29  # the same for wide rows with few reports
_PIECE_REPORTS = {False: 1 << 40, True: 1 << 13}  # sealing is slow: about a second of work, which nothing can interrupt
_RANDOMIZE_BYTES = 95 << 20  # for each worker: batches of rows on their way in, and a part on its way out


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
    progress: Callable[[int], None] | None = None,
    source: RandomSource | None = None,
) -> Dataset:
    """Write the reports of all users into a new folder: plain ones under a plan, sealed ones for a task's round.

    Either every row is randomized or an error names the first that cannot be, and there is no folder. After an
    interruption the same call keeps the parts that were finished: each has all reports of its range of users.
    `progress` is called with the number of rows done so far.
    """
    plan = plan_of(target)
    check_shape(users.path, users.shape, plan)
    if isinstance(target, Task) and target.expired:
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
    workers = workers_within(workers, memory, _RANDOMIZE_BYTES + 48 * max(0, plan.dimension - (1 << 20)))
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
    sealer = Sealer(target, number, workers) if isinstance(target, Task) else nullcontext()
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
    progress: Callable[[int], None] | None,
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

    with thread_pool(workers) as pool:
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
