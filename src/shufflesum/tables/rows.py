"""The rows of a file that lack nothing: whoever has a missing value is left out, as if they had not taken part."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains import Domain, Rows
from shufflesum.domains.frames import is_list
from shufflesum.domains.labels import Labels, label_rows, present
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.tables.paths import Address, PathOrUrl
from shufflesum.tables.readers import DataSource


@dataclass(frozen=True, slots=True)
class CompleteTable:
    """A table without the rows that lack a value."""

    table: DataSource
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

    def line_of(self, row: int) -> int | None:
        """On which line of a file of text a row stands."""
        return self.table.line_of(self.row_in_file(row))


def complete_table(where: PathOrUrl, table: DataSource) -> CompleteTable:
    """The rows that lack nothing, counted in one pass."""
    rows = sum(int(_complete(batch).sum()) for batch in table.batches())
    if rows == 0:
        raise FileError("no-rows", f"{where}: every row has a missing value, and nobody is left; fill some in")
    return CompleteTable(table, rows)


def _complete(batch: Any) -> NDArray[np.bool_]:
    """Whose rows lack nothing; `batch` is of `DataSource.batches`."""
    if isinstance(batch, tuple):
        labels, arrays = batch
        return _complete(labels) & _complete(arrays)
    if isinstance(batch, np.ndarray) and (batch.dtype.kind in "biuf" or batch.ndim > 1):
        return present(batch)
    if not isinstance(batch, np.ndarray) and is_list(batch.type):  # one of none is there
        return np.asarray(batch.is_valid())
    return present(label_rows(batch))


def _taken(batch: Any, kept: NDArray[np.bool_]) -> Any:
    if isinstance(batch, tuple):
        return tuple(_taken(part, kept) for part in batch)
    if isinstance(batch, np.ndarray):
        return batch[kept]
    import pyarrow as pa

    return batch.filter(pa.array(kept))


def _length(batch: Any) -> int:
    return len(batch[0] if isinstance(batch, tuple) else batch)


def table_selection(
    domain: Domain, *, column: str | None = None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """What `open_table` must know to read a domain's data: the column of labels, and the columns of numbers.

    What is None is as the plan calls it, if it does.
    """
    layout = domain.column_layout
    if layout.option is None and column is not None:
        raise ParameterError(
            "conflicting-arguments", f"the plan is for numbers, so no column holds labels: leave out {column!r}"
        )
    if layout.option is not None and not layout.labels:
        if columns is not None:
            raise ParameterError("conflicting-arguments", f"the numbers in bins are one column: {layout.option} COLUMN")
        columns, column = None if column is None else [column], None
        layout = replace(layout, names=None if layout.column is None else (layout.column,))
    listed = getattr(domain, "labels", None)
    if isinstance(listed, Labels):
        layout = replace(layout, gaps=tuple(gap for gap in layout.gaps if listed.code(gap) < 0))
    return {"columns": columns, "column": column, "layout": layout}


def detected(table: DataSource) -> dict[str, str]:
    """How a file of text is written, as it was read, by the options that say otherwise; nothing of other files."""
    source = table.table if isinstance(table, CompleteTable) else table
    layout = getattr(getattr(source, "file", None), "layout", None)
    return {} if layout is None else dict(layout.detected)


def check_shape(where: str | os.PathLike[str] | Address, shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse rows of numbers that are neither arrays of the domain nor, as long as one, its entries in a row."""
    layout = domain.column_layout
    wanted = layout.numbers
    if wanted is None:
        return
    entries = math.prod(wanted)
    if shape not in (wanted, (entries,)):
        one_column = layout.option is not None and not layout.labels
        raise DataError(
            "wrong-shape",
            f"{where}: a row has shape {shape}, but the plan is for {wanted} ({entries} values); "
            f"choose {layout.option if one_column else '--columns'}, or the right --plan or --task",
        )


def rows_of(table: DataSource, domain: Domain) -> Iterator[Rows]:
    """The batches of a table as the domain takes them, each with a length and slices; see `check_shape`."""
    layout = domain.column_layout
    return (domain.rows(layout.fit(batch)) for batch in table.batches())


def located(error: DataError, where: str | os.PathLike[str] | Address, table: DataSource) -> DataError:
    """The error with the file's name, and of a file of text the line."""
    counted = " (rows that were left out are not counted)" if isinstance(table, CompleteTable) else ""
    line = None if error.row is None else table.line_of(error.row)
    return error.at(f"{where}{counted}" if line is None else f"{where}, line {line}{counted}")
