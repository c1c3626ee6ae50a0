"""Users' rows in files to a folder of reports, on one machine, with all its cores and little memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from shufflesum._machine import Workers
from shufflesum.batch.files import (
    Dataset,
    Format,
    StagedFolder,
    describe_inputs,
    finished_reports,
    open_dataset,
    write_part,
)
from shufflesum.batch.targets import DEFAULT_MEMORY, Target, randomize_rows, workers_within
from shufflesum.batch.users import Piece, Users
from shufflesum.domains import Missing
from shufflesum.errors import DataError, FileError
from shufflesum.protocol import Randomizer, check_rows
from shufflesum.randomness import RandomSource
from shufflesum.tables import check_shape, local_path, located

_PART_VALUES = 1 << 29  # the most values of users in a part, for wide rows with few reports
_WORKER_BYTES = 95 << 20  # for each worker: pieces of rows on their way in, and a part on its way out


def randomize(
    users: Users,
    output: str | os.PathLike[str],
    target: Target,
    *,
    clip: bool = False,
    missing: Missing = "refuse",
    format: Format = "parquet",
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    restart: bool = False,
    progress: Callable[[int], None] | None = None,
    begin: Callable[[str], None] | None = None,
    source: RandomSource | None = None,
) -> Dataset:
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
    inputs = describe_inputs(users.paths)
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
    if (finished_before := finished_reports(output, work, identity, restart=restart)) is not None:
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
        StagedFolder(output, work, identity, restart=restart, noted=True, begin=begin_checked) as folder,
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
            return write_part(folder.path, name, records, folder.identity, format)

        made = _with_progress(pool.map(make, pieces()), progress)
        for _ in pool.map(write, _parts(made, rows_per_part, users.rows), ahead=workers - 1):
            pass
        if describe_inputs(users.paths) != inputs:
            raise FileError("changed-meanwhile", f"{users.path}: was changed while it was read; work on a copy")
    return open_dataset(output, stage="reports")


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
