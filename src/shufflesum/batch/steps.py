"""The one implementation of the batch steps: rows to record batches of reports, and those to tables of counts.

The local engine and Spark both call these, so they cannot disagree.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.batch.identity import Identity
from shufflesum.contract import Plan
from shufflesum.errors import ReportsError
from shufflesum.protocol import Counts, Randomizer, Reports, shuffle
from shufflesum.wire import SEALED_BYTES, Opener, Task, encode_reports, seal_info, seal_many

__all__ = [
    "Sealing",
    "check_target",
    "count_batch",
    "count_sealed_batch",
    "plan_of",
    "randomize_batch",
    "randomize_rows",
    "record_batch",
    "reports_of",
    "seal_batch",
    "sealed_bytes",
]

_LARGEST_COORDINATE, _LARGEST_VALUE = (1 << 32) - 1, (1 << 16) - 1


class Sealing(Protocol):
    """Seals encoded reports for one task and round: here, or in other processes."""

    def __call__(self, encoded: NDArray[np.uint8], /) -> NDArray[np.uint8]:
        """Encoded reports, shape (reports, 6), each sealed by itself: shape (reports, 54)."""


def plan_of(target: Plan | Task) -> Plan:
    """The plan itself, or a task's."""
    return target.plan if isinstance(target, Task) else target


def randomize_rows(rows: NDArray[Any], randomizer: Randomizer, first_row: int = 0) -> Reports:
    """Users' arrays, shape (users, *shape), as reports, user after user; errors count rows from `first_row`."""
    return Reports.concatenate(randomizer.blocks(rows, first_row=first_row))


def randomize_batch(rows: NDArray[Any], randomizer: Randomizer, identity: Identity, *, first_row: int = 0) -> Any:
    """Users' arrays, shape (users, *shape), as a record batch of plain reports, user after user."""
    if identity.sealed:
        raise ReportsError("these reports are to be sealed; use seal_batch on those of randomize_rows")
    if randomizer.plan.id != identity.plan_id:
        raise ReportsError(
            f"a randomizer of plan {randomizer.plan.id[:12]} for a batch of plan {identity.plan_id[:12]}; "
            "both must be of one plan"
        )
    reports = randomize_rows(rows, randomizer, first_row)
    return record_batch(identity, reports.coordinates, reports.values)


def record_batch(identity: Identity, *columns: NDArray[Any]) -> Any:
    """A record batch of an identity's columns, without a copy."""
    import pyarrow as pa

    schema = identity.arrow_schema()
    # Not pa.array, which loads pandas where it is installed.
    arrays = [
        pa.Array.from_buffers(field.type, len(column), [None, pa.py_buffer(np.ascontiguousarray(column))])
        for field, column in zip(schema, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def seal_batch(reports: Reports, task: Task, round_number: int, *, sealing: Sealing | None = None) -> Any:
    """The reports of one or many users as a record batch of sealed ones, in a random order.

    The order in which they were drawn would tell the shuffler each report's block of coordinates. The batch's schema
    has no metadata: a file's identity is put in where it is written.
    """
    import pyarrow as pa

    task.check_round(round_number)
    if reports.plan_id != task.plan.id:
        raise ReportsError(
            f"these reports belong to plan {reports.plan_id[:12]}, the task to plan {task.plan.id[:12]}; "
            "randomize with the task's plan"
        )
    encoded = encode_reports(shuffle(reports))
    if sealing is None:
        sealed = seal_many(encoded, task.public_key, seal_info(task.id, round_number))
    else:
        sealed = sealing(encoded)
    kind = pa.binary(SEALED_BYTES)
    column = pa.FixedSizeBinaryArray.from_buffers(kind, len(sealed), [None, pa.py_buffer(sealed)])
    return pa.RecordBatch.from_arrays([column], schema=pa.schema([pa.field("sealed", kind, nullable=False)]))


def reports_of(batch: Any, plan_id: str) -> tuple[Reports, int]:
    """The plain reports in a record batch, and how many rows were rejected: nulls, and numbers that no report has.

    Any integer columns will do; those of our own files are not copied.
    """
    import pyarrow as pa

    coordinates, values = batch.column("coordinate"), batch.column("value")
    exact = (coordinates.type, values.type) == (pa.uint32(), pa.uint16())
    if exact and not coordinates.null_count and not values.null_count:
        return Reports(plan_id, _numbers(coordinates, np.uint32), _numbers(values, np.uint16)), 0
    valid = _whole(coordinates, _LARGEST_COORDINATE) & _whole(values, _LARGEST_VALUE)
    reports = Reports(plan_id, _kept(coordinates, valid, np.uint32), _kept(values, valid, np.uint16))
    return reports, len(valid) - len(reports)


def _numbers(column: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """A column without nulls as it lies in memory; its own to_numpy would load pandas where it is installed."""
    found: NDArray[Any] = np.frombuffer(column.buffers()[1] or b"", dtype=dtype)[
        column.offset : column.offset + len(column)
    ]
    return found


def _whole(column: Any, largest: int) -> NDArray[np.bool_]:
    """Which entries are numbers from 0 to the largest."""
    from pyarrow import compute

    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    fitting: NDArray[np.bool_] = (numbers >= 0) & (numbers <= largest)
    if column.null_count:
        fitting &= compute.is_valid(column).to_numpy(zero_copy_only=False)
    return fitting


def _kept(column: Any, valid: NDArray[np.bool_], dtype: type[np.generic]) -> NDArray[Any]:
    numbers: NDArray[Any] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return (numbers if valid.all() else numbers[valid]).astype(dtype)


def count_batch(batch: Any, counts: Counts) -> None:
    """Count a record batch of plain reports; what lies outside the plan's domain is rejected and counted as such."""
    reports, rejected = reports_of(batch, counts.plan.id)
    counts.add(reports)
    counts.rejected += rejected


def count_sealed_batch(batch: Any, counts: Counts, task: Task, round_number: int, opener: Opener) -> None:
    """Open and count a record batch of sealed reports; what cannot be opened is rejected and counted as such."""
    sealed, damaged = sealed_bytes(batch.column("sealed"))
    reports, unreadable = task.open_reports(sealed, round_number, opener)
    counts.add(reports)
    counts.rejected += damaged + unreadable


def sealed_bytes(column: Any) -> tuple[bytes, int]:
    """The sealed reports one after another, and how many rows are none by their size."""
    import pyarrow as pa

    if column.type == pa.binary(SEALED_BYTES) and not column.null_count:
        start = column.offset * SEALED_BYTES
        return bytes(memoryview(column.buffers()[1])[start : start + len(column) * SEALED_BYTES]), 0
    rows = [row for row in column.to_pylist() if row is not None and len(row) == SEALED_BYTES]
    return b"".join(rows), len(column) - len(rows)


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
