"""A folder of shuffled reports to a table of counts, on one machine, with all its cores and little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shufflesum._machine import Workers
from shufflesum.batch.files import Dataset, ReportFile, file_digests, read_records
from shufflesum.batch.targets import DEFAULT_MEMORY, Target, count_records, workers_within
from shufflesum.errors import FileError
from shufflesum.reports import Counts
from shufflesum.tables import PathOrUrl

_WORKER_BYTES = 32 << 20  # for each worker: a row group, as it is on disk and as columns
_UNIT_ROWS = 1 << 22


def count(
    dataset: Dataset,
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
    workers = workers_within(workers, memory, _WORKER_BYTES + 8 * plan.cells)
    units = ((file, groups) for file in dataset.files for groups in _units(file))
    done = 0
    with (
        target.opening(identity, workers) as open_records,
        Workers(Counts(plan, identity.round_number) for _ in range(workers)) as pool,
    ):

        def take(counts: Counts, unit: tuple[ReportFile, range]) -> int:
            file, groups = unit
            rows = 0
            for records in read_records(file, identity.kind.rows_at_once, groups):
                rows += len(records)
                count_records(records, counts, open_records)
            return rows

        digests = file_digests(dataset, workers)
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


def _units(file: ReportFile) -> Iterator[range]:
    """Groups of a file that are worth a thread's while."""
    step = max(1, -(-_UNIT_ROWS * file.groups // max(1, file.rows)))
    for start in range(0, file.groups, step):
        yield range(start, min(start + step, file.groups))
