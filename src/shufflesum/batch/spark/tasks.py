"""What runs inside Spark's tasks, on the executors: record batches in, record batches out, by the batch steps.

Each function takes one partition. Those that draw make their own secure source, here, so that no key ever travels and
no two tasks share one. None of them is given anything but public parameters.
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
from shufflesum.batch.identity import Identity
from shufflesum.batch.shuffle.scatter import PLAIN, SEALED, Items, permute, scatter
from shufflesum.batch.shuffle.sources import items_of
from shufflesum.batch.steps import count_batch, randomize_batch
from shufflesum.contract import Plan
from shufflesum.domain import Missing
from shufflesum.errors import DataError, FileError, ReportsError, ShufflesumError
from shufflesum.protocol import Counts, Randomizer, SecureSource

__all__ = [
    "REJECTED",
    "count_partition",
    "error_in",
    "item_type",
    "permute_partition",
    "randomize_partition",
    "reports_of_files",
    "scatter_partition",
]

Batches = Iterator[Any]

REJECTED = -1  # the cell under which a partition tells how many reports it rejected

_OUTPUT_ROWS = 1 << 16
_RANDOMIZED_AT_ONCE = 1 << 20
_READ_ROWS = 1 << 17
_RUN_BYTES = 8 << 20
_PACKED_BYTES = 8 << 10  # Spark reads 4096 rows of a Parquet file at a time, however long they are
_MARKED = re.compile(r"\[shufflesum:(\w+)\] (.*?) \[/shufflesum\]", re.DOTALL)


def error_in(text: str) -> ShufflesumError | None:
    """The error that a task raised on purpose, found in what Spark says about the failed job."""
    found = _MARKED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], ShufflesumError)
    error: ShufflesumError = kind(found[2])
    return error


@contextmanager
def _marked_errors() -> Iterator[None]:
    """Mark errors raised on purpose, so that the driver finds them again among Spark's own words."""
    try:
        yield
    except ShufflesumError as error:
        kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
        raise kind(f"[shufflesum:{kind.__name__}] {error} [/shufflesum]") from None


def item_type(identity: Identity) -> np.dtype[Any]:
    """How a report is packed on its way through the shuffle."""
    return SEALED if identity.sealed else PLAIN


def randomize_partition(batches: Batches, *, plan: Plan, identity: Identity, clip: bool, missing: Missing) -> Batches:
    """Users' rows to reports."""
    from pyspark import TaskContext

    context = TaskContext.get()
    where = f"partition {context.partitionId() if context else 0}"
    with _marked_errors():
        randomizer = Randomizer(plan, clip=clip, missing=missing)
        rows_at_once = max(1, _RANDOMIZED_AT_ONCE // plan.reports)
        row = 0
        for batch in batches:
            for start in range(0, len(batch), rows_at_once):
                part = batch.slice(start, rows_at_once)
                try:
                    reports = randomize_batch(part, randomizer, identity, first_row=row)
                except DataError as error:
                    raise DataError(f"{where}: {error}") from error
                row += len(part)
                yield from _spark_batches(reports.columns, reports.schema.names)


def reports_of_files(function: Callable[[Batches], Batches], identity: Identity) -> Callable[[Batches], Batches]:
    """The function, for partitions of report files (their addresses, or their bytes) instead of reports.

    Spark hands reports to Python row by row, whatever it calls the result; Arrow decodes a file's columns many times
    as fast.
    """

    def on_files(batches: Batches) -> Batches:
        return function(_decoded(batches, identity))

    return on_files


def _decoded(batches: Batches, identity: Identity) -> Batches:
    from pyarrow import parquet

    for batch in batches:
        for index, address in enumerate(batch.column("path").to_pylist()):
            if "content" in batch.schema.names:
                source: Any = pa.BufferReader(batch.column("content")[index].as_buffer())
            else:
                source = "/" + address.removeprefix("file:").lstrip("/")  # Spark writes one slash or three
            try:
                with parquet.ParquetFile(source, page_checksum_verification=True) as file:
                    found = Identity.from_arrow(file.schema_arrow, address)
                    if identity.merge(found) != identity:
                        raise ReportsError(f"{address}: the file was replaced by one of another batch")
                    yield from file.iter_batches(_READ_ROWS, use_threads=False)
            except (pa.ArrowException, OSError) as error:
                if isinstance(error, ShufflesumError):
                    raise
                raise FileError(
                    f"{address}: cannot be read as a file of reports ({error}); it may be cut short or damaged, or "
                    "not be where the executors can read it"
                ) from error


def scatter_partition(batches: Batches, *, identity: Identity, buckets: int) -> Batches:
    """Reports to random buckets, packed: a row holds some reports of one bucket."""
    item_bytes = item_type(identity).itemsize
    most = _PACKED_BYTES // item_bytes
    with _marked_errors():
        source = SecureSource()
        for run in _runs(batches, identity, max(1, _RUN_BYTES // item_bytes)):
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


def _runs(batches: Batches, identity: Identity, rows: int) -> Iterator[Items]:
    """All reports, about so many at a time."""
    waiting: list[Items] = []
    for batch in batches:
        if len(batch):
            waiting.append(items_of(batch, identity))
        if sum(map(len, waiting)) >= rows:
            yield np.concatenate(waiting)
            waiting = []
    if waiting:
        yield np.concatenate(waiting)


def permute_partition(batches: Batches, *, identity: Identity) -> Batches:
    """All packed reports of the partition in a uniformly random order."""
    kind = item_type(identity)
    with _marked_errors():
        pieces = [_packed_items(batch.column("reports"), kind) for batch in batches if len(batch)]
        if not pieces:
            return
        items = permute(np.concatenate(pieces), SecureSource())
        for start in range(0, len(items), _OUTPUT_ROWS):
            part = items[start : start + _OUTPUT_ROWS]
            if identity.sealed:
                data = pa.py_buffer(np.ascontiguousarray(part["sealed"]))
                columns = [pa.Array.from_buffers(pa.binary(SEALED.itemsize), len(part), [None, data])]
            else:
                columns = [pa.array(np.ascontiguousarray(part[name])) for name in identity.columns]
            yield from _spark_batches(columns, identity.columns)


def _packed_items(column: Any, kind: np.dtype[Any]) -> Items:
    """The bytes of all rows, which lie one after another."""
    _, offsets, data = column.buffers()
    ends: NDArray[np.int32] = np.frombuffer(offsets, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]].view(kind)


def count_partition(batches: Batches, *, plan: Plan) -> Batches:
    """Reports to the filled cells of one table of counts, and how many were rejected."""
    with _marked_errors():
        counts = Counts(plan)
        for batch in batches:
            count_batch(batch, counts)
        table = counts.table.reshape(-1)
        cells = np.flatnonzero(table)
        columns = [np.append(cells, REJECTED), np.append(table[cells], counts.rejected)]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["cell", "count"])


def _spark_batches(columns: Any, names: Any) -> Batches:
    """Reports in the types that Spark has, which are all signed, a manageable number at a time."""
    kinds = {"coordinate": pa.int64(), "value": pa.int32(), "sealed": pa.binary()}
    whole = pa.RecordBatch.from_arrays(list(columns), names=list(names))
    for start in range(0, len(whole), _OUTPUT_ROWS):
        part = whole.slice(start, _OUTPUT_ROWS)
        yield pa.RecordBatch.from_arrays([part.column(n).cast(kinds[n]) for n in names], names=list(names))
