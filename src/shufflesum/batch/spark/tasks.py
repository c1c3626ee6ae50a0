"""What runs inside Spark's tasks, on the executors: record batches in, record batches out.

Each function takes one partition. Those that draw make their own secure source, here, so that no key ever travels and
no two tasks share one. None of them is given anything but public parameters. The driver has verified the plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shufflesum import errors
from shufflesum.batch.identity import Identity, Items
from shufflesum.batch.targets import PlainTarget, count_records, randomize_rows
from shufflesum.domains import Domain, Missing
from shufflesum.errors import DataError, FileError, ReportsError, ShufflesumError
from shufflesum.plans import Plan
from shufflesum.protocol import UnverifiedRandomizer
from shufflesum.randomness import SecureSource
from shufflesum.reports import UnverifiedCounts
from shufflesum.shuffling import permute, scatter

RecordBatches = Iterator[Any]
OnPartition = Callable[[RecordBatches], RecordBatches]

BLANKS, REJECTED = -1, -2  # the cells under which a partition says how many reports were blank, or rejected

_OUTPUT_ROWS = 1 << 16
_RANDOMIZED_AT_ONCE = 1 << 20
_RUN_BYTES = 8 << 20
_PACKED_BYTES = 8 << 10  # Spark reads 4096 rows of a Parquet file at a time, however long they are
_MARKED = re.compile(r"\[shufflesum:(\w+):([\w-]+)\] (.*?) \[/shufflesum\]", re.DOTALL)
_ARROW_TYPES = {"long": pa.int64(), "binary": pa.binary()}  # of the types that Spark has, which are all signed


def error_in(text: str) -> ShufflesumError | None:
    """The error that a task raised on purpose, found in what Spark says about the failed job."""
    found = _MARKED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], ShufflesumError)
    error: ShufflesumError = kind(found[2], found[3])
    return error


@contextmanager
def _marked_errors() -> Iterator[None]:
    """Mark errors raised on purpose, so that the driver finds them again among Spark's own words."""
    try:
        yield
    except ShufflesumError as error:
        kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
        raise kind(error.problem, f"[shufflesum:{kind.__name__}:{error.problem}] {error} [/shufflesum]") from None


def randomize_partition(
    partition: RecordBatches, *, plan: Plan, identity: Identity, clip: bool, missing: Missing
) -> RecordBatches:
    """Users' rows to reports."""
    from pyspark import TaskContext

    context = TaskContext.get()
    where = f"partition {context.partitionId() if context else 0}"
    with _marked_errors():
        number = identity.round_number
        target = PlainTarget(plan, number)
        randomizer = UnverifiedRandomizer(plan, clip=clip, missing=missing, round_number=number)
        rows_at_once = max(1, _RANDOMIZED_AT_ONCE // plan.reports)
        row = 0
        for users in partition:
            for start in range(0, len(users), rows_at_once):
                part = users.slice(start, rows_at_once)
                try:
                    reports = randomize_rows(_rows(part, plan.domain), randomizer, row)
                except DataError as error:
                    raise error.at(where) from None
                row += len(part)
                yield from _for_spark(target.encode(reports), identity)


def _rows(records: Any, domain: Domain) -> Any:
    """What a domain takes: all columns, or the first, of labels, and the numbers beside it apart."""
    if not domain.column_layout.grouped:
        return records
    return records.column(0), records.select(records.schema.names[1:])


def reports_of_files(
    function: Callable[[RecordBatches], RecordBatches], identity: Identity
) -> Callable[[RecordBatches], RecordBatches]:
    """The function, for partitions of report files (their addresses, or their bytes) instead of reports.

    Spark hands reports to Python row by row, whatever it calls the result; Arrow decodes a file's columns many times
    as fast.
    """

    def on_files(partition: RecordBatches) -> RecordBatches:
        return function(_decoded(partition, identity))

    return on_files


def _decoded(partition: RecordBatches, identity: Identity) -> RecordBatches:
    from pyarrow import parquet

    for records in partition:
        for index, address in enumerate(records.column("path").to_pylist()):
            if "content" in records.schema.names:
                source: Any = pa.BufferReader(records.column("content")[index].as_buffer())
            else:
                source = "/" + address.removeprefix("file:").lstrip("/")  # Spark writes one slash or three
            try:
                with parquet.ParquetFile(source, page_checksum_verification=True) as file:
                    found = Identity.from_arrow(file.schema_arrow, address)
                    if identity.merge(found) != identity:
                        raise ReportsError(
                            "changed-meanwhile", f"{address}: the file was replaced by one of another batch"
                        )
                    yield from file.iter_batches(identity.kind.rows_at_once, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, ShufflesumError):
                    raise
                raise FileError(
                    "damaged",
                    f"{address}: cannot be read as a file of reports ({error}); it may be cut short or damaged, or "
                    "not be where the executors can read it",
                ) from error


def scatter_partition(partition: RecordBatches, *, identity: Identity, buckets: int) -> RecordBatches:
    """Reports to random buckets, packed: a row holds some reports of one bucket."""
    item_bytes = identity.kind.item.itemsize
    most = _PACKED_BYTES // item_bytes
    with _marked_errors():
        source = SecureSource()
        for run in _runs(partition, identity, max(1, _RUN_BYTES // item_bytes)):
            items, ends = scatter(run, buckets, source)
            sizes: NDArray[np.int64] = np.diff(ends).astype(np.int64)
            rows = -(-sizes // most)  # of each bucket
            number_in_bucket = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
            starts = np.repeat(ends[:-1].astype(np.int64), rows) + most * number_in_bucket
            offsets = (np.append(starts, len(items)) * item_bytes).astype(np.int32)
            packed = pa.Array.from_buffers(
                pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(items.view(np.uint8))]
            )
            which = pa.array(np.repeat(np.arange(buckets, dtype=np.int32), rows))
            yield pa.RecordBatch.from_arrays([which, packed], names=["bucket", "reports"])


def _runs(partition: RecordBatches, identity: Identity, rows: int) -> Iterator[Items]:
    """All reports, about so many at a time."""
    waiting: list[Items] = []
    for records in partition:
        if len(records):
            waiting.append(identity.kind.items(records))
        if sum(map(len, waiting)) >= rows:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def permute_partition(partition: RecordBatches, *, identity: Identity) -> RecordBatches:
    """All packed reports of the partition in a uniformly random order."""
    with _marked_errors():
        pieces = [_packed_items(records.column("reports"), identity.kind.item) for records in partition if len(records)]
        if not pieces:
            return
        items = permute(np.concatenate(pieces), SecureSource())
        for start in range(0, len(items), _OUTPUT_ROWS):
            yield from _for_spark(identity.kind.records(items[start : start + _OUTPUT_ROWS]), identity)


def _packed_items(column: Any, kind: np.dtype[Any]) -> Items:
    """The bytes of all rows, which lie one after another."""
    _, offsets, data = column.buffers()
    ends: NDArray[np.int32] = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]].view(kind)


def count_partition(partition: RecordBatches, *, plan: Plan, round_number: int) -> RecordBatches:
    """Reports to the filled cells of one table of counts, and how many were blank or rejected."""
    with _marked_errors():
        counts, target = UnverifiedCounts(plan, round_number), PlainTarget(plan, round_number)
        for records in partition:
            count_records(records, counts, target.open)
        cells = np.flatnonzero(counts.table)
        numbers = np.append(counts.table[cells], [counts.blanks, counts.rejected])
        columns = [np.append(cells, [BLANKS, REJECTED]), numbers]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["cell", "count"])


def _for_spark(records: Any, identity: Identity) -> RecordBatches:
    """Reports in the type that Spark has, a manageable number at a time."""
    column = records.column(identity.kind.column).cast(_ARROW_TYPES[identity.kind.spark_type])
    for start in range(0, len(column), _OUTPUT_ROWS):
        yield pa.RecordBatch.from_arrays([column.slice(start, _OUTPUT_ROWS)], names=[identity.kind.column])
