"""The rows of a file that lack nothing: whoever has a missing value is left out, as if they had not taken part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain.label_columns import Words, is_missing
from shufflesum.domain.label_frames import label_rows
from shufflesum.errors import FileError
from shufflesum.tables.labels import is_list
from shufflesum.tables.places import Place
from shufflesum.tables.readers import Table

__all__ = ["CompleteTable", "complete_table"]


@dataclass(frozen=True, slots=True)
class CompleteTable:
    """A table without the rows that lack a value."""

    table: Table
    rows: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one user's array of numbers."""
        return self.table.shape

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns of numbers."""
        return self.table.names

    @property
    def label_name(self) -> str | None:
        """The name of the column of labels."""
        return self.table.label_name

    def batches(self) -> Iterator[Any]:
        """What is left of each batch."""
        for batch in self.table.batches():
            kept = _complete(batch)
            if kept.any():
                yield batch if kept.all() else _taken(batch, kept)

    def users(self) -> Iterator[Any]:
        """Who each row is of, those left out as well."""
        return self.table.users()

    def row_in_file(self, row: int) -> int:
        """Which row of the file a row is, found by reading up to it."""
        before = 0
        for batch in self.table.batches():
            places = np.flatnonzero(_complete(batch))
            if row < len(places):
                return before + int(places[row])
            row, before = row - len(places), before + _length(batch)
        raise IndexError(row)


def complete_table(where: Place, table: Table) -> CompleteTable:
    """The rows that lack nothing, counted in one pass."""
    rows = sum(int(_complete(batch).sum()) for batch in table.batches())
    if rows == 0:
        raise FileError("no-rows", f"{where}: every row has a missing value, and nobody is left; fill some in")
    return CompleteTable(table, rows)


def _complete(batch: Any) -> NDArray[np.bool_]:
    """Whose rows lack nothing; `batch` is of `Table.batches`."""
    if isinstance(batch, tuple):
        labels, arrays = batch
        return _complete(labels) & _complete(arrays)
    if isinstance(batch, np.ndarray) and (batch.dtype.kind in "biuf" or batch.ndim > 1):
        if batch.dtype.kind != "f":
            return np.ones(len(batch), dtype=np.bool_)
        return np.asarray(~np.isnan(batch.reshape(len(batch), -1)).any(axis=1))
    if not isinstance(batch, np.ndarray) and is_list(batch.type):  # one of none is there
        return np.asarray(batch.is_valid())
    rows = label_rows(batch)
    if isinstance(rows, Words):
        there = np.array([*(not is_missing(value) for value in rows.values), False])  # place -1 leads to the last
        return np.asarray(there[rows.places])
    return _complete(rows)


def _taken(batch: Any, kept: NDArray[np.bool_]) -> Any:
    if isinstance(batch, tuple):
        return tuple(_taken(part, kept) for part in batch)
    if isinstance(batch, np.ndarray):
        return batch[kept]
    import pyarrow as pa

    return batch.filter(pa.array(kept))


def _length(batch: Any) -> int:
    return len(batch[0] if isinstance(batch, tuple) else batch)
