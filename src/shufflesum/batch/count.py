"""A folder of shuffled reports to a table of counts, on one machine, with all its cores and little memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import nullcontext
from pathlib import Path
from queue import SimpleQueue

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shufflesum._machine import cores
from shufflesum.batch.files import Dataset, ReportFile, read_batches
from shufflesum.batch.memory import DEFAULT_MEMORY, thread_pool, workers_within
from shufflesum.batch.steps import check_target, count_batch, count_sealed_batch, plan_of
from shufflesum.contract import Plan
from shufflesum.errors import FileError, ParameterError
from shufflesum.protocol import Counts
from shufflesum.wire import Opener, Task

__all__ = ["count", "file_digests"]

_COUNT_BYTES = 32 << 20  # for each worker: a row group, as it is on disk and as columns
_COUNT_ROWS = {False: 1 << 17, True: 1 << 16}
_UNIT_ROWS = 1 << 22


def count(
    dataset: Dataset,
    target: Plan | Task,
    *,
    private_key: X25519PrivateKey | None = None,
    memory: int = DEFAULT_MEMORY,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Counts, dict[Path, str]]:
    """The table of counts of all reports of a dataset, and its files' SHA-256.

    `private_key`, the analyzer's, opens sealed reports. `progress` is called with the number of reports done so far.
    """
    plan, identity = plan_of(target), dataset.identity
    check_target(identity, target)
    workers = workers_within(workers, memory, _COUNT_BYTES + 8 * plan.dimension * (plan.levels + 1))
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
    with opener or nullcontext(), thread_pool(workers) as pool:
        hashing = {path: pool.submit(_digest, path) for path in _filled(dataset)}
        counting = [pool.submit(take, file, pieces) for file in dataset.files for pieces in _units(file)]
        for future in as_completed(counting):
            done += future.result()
            if progress:
                progress(done)
        digests = {path: future.result() for path, future in hashing.items()}
    if done != dataset.rows:
        raise FileError(f"{dataset.path}: {dataset.rows} reports were announced and {done} read; copy the files again")
    total = crew[0]
    for counts in crew[1:]:
        total.merge(counts)
    return total, digests


def file_digests(dataset: Dataset, workers: int | None = None) -> dict[Path, str]:
    """Each file's SHA-256, for an engine that counts by other means."""
    with thread_pool(workers or cores()) as pool:
        paths = _filled(dataset)
        return dict(zip(paths, pool.map(_digest, paths), strict=True))


def _opener(target: Plan | Task, private_key: X25519PrivateKey | None, workers: int) -> Opener | None:
    if not isinstance(target, Task):
        return None
    if private_key is None:
        raise ParameterError("sealed reports are opened with the analyzer's private key; give it (--key)")
    return Opener(private_key, processes=workers)


def _filled(dataset: Dataset) -> list[Path]:
    """The files with reports in them."""
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
