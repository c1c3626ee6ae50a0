"""Plain or sealed: the one difference between reports in files, in frames and on their way through a shuffle.

Either way a report is one entry of one column, and an item of a fixed number of bytes that a shuffle moves unread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import BLANK
from shufflesum.wire import SEALED_BYTES

__all__ = ["PLAIN", "SEALED", "Items", "ReportKind", "cells_of", "sealed_rows"]

Items = NDArray[Any]

_NO_CELL = BLANK - 1  # below it the number of a cell could be that of any plan


class ReportKind(ABC):
    """How reports of one kind are kept: the column's name and types, and how many are taken at a time."""

    column: ClassVar[str]
    item: ClassVar[np.dtype[Any]]
    spark_type: ClassVar[str]
    encoding: ClassVar[str]  # in Parquet files
    wanted: ClassVar[str]  # of a column, for people
    group_rows: ClassVar[int]  # the least that can be read of a file at once: some megabytes
    rows_at_once: ClassVar[int]  # read of a file
    part_reports: ClassVar[int]  # written at once by the randomizer: what an interruption loses at most, for a worker
    piece_reports: ClassVar[int]  # made at once by the randomizer: what nothing can interrupt

    @property
    @abstractmethod
    def arrow_type(self) -> Any:
        """The type of the column in files."""

    @abstractmethod
    def accepts(self, arrow_type: Any) -> bool:
        """Whether reports can be read from a column of this type."""

    @abstractmethod
    def items(self, records: Any) -> Items:
        """A record batch as items, none lost: what can be no report becomes one that every analyzer rejects."""

    def records(self, items: Items) -> Any:
        """Items as a record batch, without a copy; whose they are is put in where it is written."""
        import pyarrow as pa

        # Not pa.array, which loads pandas where it is installed.
        data = pa.py_buffer(np.ascontiguousarray(items))
        column = pa.Array.from_buffers(self.arrow_type, len(items), [None, data])
        return pa.RecordBatch.from_arrays([column], schema=pa.schema([self.field]))

    @property
    def field(self) -> Any:
        """The column of a file's schema."""
        import pyarrow as pa

        return pa.field(self.column, self.arrow_type, nullable=False)


class _Plain(ReportKind):
    """Cells that anybody can read."""

    column = "cell"
    item = np.dtype("<u4")
    spark_type = "long"
    # Cells have few bits each, which packing finds almost as well as a dictionary does, and writes faster; a compressor
    # would find little more.
    encoding = "DELTA_BINARY_PACKED"
    wanted = "integers"
    group_rows = 1 << 20
    rows_at_once = 1 << 17
    part_reports = 1 << 21
    piece_reports = 1 << 40

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.uint32()

    def accepts(self, arrow_type: Any) -> bool:
        from pyarrow import types

        return bool(types.is_integer(arrow_type))

    def items(self, records: Any) -> Items:
        cells, rejected = cells_of(records)
        return np.append(cells, np.full(rejected, _NO_CELL, np.uint32)) if rejected else cells


class _Sealed(ReportKind):
    """Cells that only the analyzer can read."""

    column = "sealed"
    item = np.dtype([("sealed", np.uint8, (SEALED_BYTES,))])
    spark_type = "binary"
    encoding = "PLAIN"  # random bytes
    wanted = f"binary of {SEALED_BYTES} bytes"
    group_rows = 1 << 16
    rows_at_once = 1 << 14
    part_reports = 1 << 18
    piece_reports = 1 << 13  # sealing is slow: about a second of work

    @property
    def arrow_type(self) -> Any:
        import pyarrow as pa

        return pa.binary(SEALED_BYTES)

    def accepts(self, arrow_type: Any) -> bool:
        from pyarrow import types

        fixed = types.is_fixed_size_binary(arrow_type) and arrow_type.byte_width == SEALED_BYTES
        return bool(fixed or types.is_binary(arrow_type) or types.is_large_binary(arrow_type))

    def items(self, records: Any) -> Items:
        rows, rejected = sealed_rows(records)
        found = np.frombuffer(rows.tobytes() + bytes(rejected * SEALED_BYTES), np.uint8) if rejected else rows
        return found.reshape(-1).view(self.item)


PLAIN, SEALED = _Plain(), _Sealed()


def cells_of(records: Any) -> tuple[NDArray[np.uint32], int]:
    """The cells in a record batch, and how many rows were rejected: nulls, and numbers that no report has.

    Any integer column will do; that of our own files is not copied, and Spark's is looked through once.
    """
    import pyarrow as pa
    from pyarrow import compute

    column = records.column(PLAIN.column)
    if column.type == pa.uint32() and not column.null_count:
        # As it lies in memory; its own to_numpy would load pandas where it is installed.
        data = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint32)
        return data[column.offset : column.offset + len(column)], 0
    if column.type == pa.int64() and not column.null_count:
        wide = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint64)[column.offset : column.offset + len(column)]
        if not len(wide) or wide.max() <= BLANK:  # negative ones are far above
            return wide.astype(np.uint32), 0
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
    valid = (numbers >= 0) & (numbers <= BLANK)
    if column.null_count:
        valid &= compute.is_valid(column).to_numpy(zero_copy_only=False)
    cells = (numbers if valid.all() else numbers[valid]).astype(np.uint32)
    return cells, len(column) - len(cells)


def sealed_rows(records: Any) -> tuple[NDArray[np.uint8], int]:
    """The sealed reports in a record batch, each a row of bytes, and how many rows are none by their size."""
    import pyarrow as pa

    column = records.column(SEALED.column)
    if column.type == pa.binary(SEALED_BYTES) and not column.null_count:
        data = np.frombuffer(column.buffers()[1] or b"", dtype=np.uint8)
        start, stop = column.offset * SEALED_BYTES, (column.offset + len(column)) * SEALED_BYTES
        return data[start:stop].reshape(-1, SEALED_BYTES), 0
    rows = [row for row in column.to_pylist() if row is not None and len(row) == SEALED_BYTES]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, SEALED_BYTES), len(column) - len(rows)
