"""From what files hold to what domains take: the shape of a row, and where a plan's labels are found."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed, Rows
from shufflesum.errors import DataError, ParameterError
from shufflesum.tables.columns import LabelColumn
from shufflesum.tables.complete import CompleteTable
from shufflesum.tables.delimited import DelimitedTable
from shufflesum.tables.places import Address
from shufflesum.tables.readers import Table

__all__ = ["check_shape", "located", "option_of", "rows_of", "table_selection"]


def option_of(domain: Domain) -> str:
    """The option that names the column of labels, or of what is counted in bins."""
    match domain:
        case Categories():
            return "--categories"
        case Choices():
            return "--choices"
        case Groups():
            return "--group-by"
        case Hashed():
            return "--words"
    raise ParameterError("impossible-combination", "arrays of numbers have no column of labels")


def table_selection(
    domain: Domain, *, column: str | None = None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """What `open_table` must know to read a domain's data: the column of labels, and the columns of numbers.

    What is None is as the plan calls it, if it does.
    """
    if isinstance(domain, Ball | Box):
        if column is not None:
            raise ParameterError(
                "conflicting-arguments", f"the plan is for numbers, so no column holds labels: leave out {column!r}"
            )
        return {"columns": columns, "planned": domain.columns if isinstance(domain, Box) else None}
    if isinstance(domain, Categories) and domain.bins is not None:
        if columns is not None:
            raise ParameterError("conflicting-arguments", "the numbers in bins are one column: --categories COLUMN")
        planned = None if domain.column is None else (domain.column,)
        return {"columns": None if column is None else [column], "planned": planned}
    labels = LabelColumn(
        option_of(domain),
        column,
        domain.column,
        lists=isinstance(domain, Choices),
        numbers=isinstance(domain, Groups),
    )
    return {"columns": columns, "labels": labels, "planned": domain.box.columns if isinstance(domain, Groups) else None}


def check_shape(where: str | os.PathLike[str] | Address, shape: tuple[int, ...], domain: Domain) -> None:
    """Refuse rows of numbers that are neither arrays of the domain nor, as long as one, its entries in a row."""
    match domain:
        case Ball() | Box():
            wanted = domain.shape
        case Groups():
            wanted = domain.box.shape
        case Categories() if domain.bins is not None:
            wanted = ()
        case _:
            return
    entries = math.prod(wanted)
    if shape not in (wanted, (entries,)):
        choice = "--columns" if isinstance(domain, Ball | Box | Groups) else option_of(domain)
        raise DataError(
            "wrong-shape",
            f"{where}: a row has shape {shape}, but the plan is for {wanted} ({entries} values); "
            f"choose {choice}, or the right --plan or --task",
        )


def rows_of(table: Table, domain: Domain) -> Iterator[Rows]:
    """The batches of a table as the domain takes them, each with a length and slices; see `check_shape`."""
    return (domain.rows(_fitted(batch, domain)) for batch in table.batches())


def located(error: DataError, where: str | os.PathLike[str] | Address, table: Table) -> DataError:
    """The error with the file's name, and of a file of text the line."""
    row, counted = error.row, ""
    if isinstance(table, CompleteTable):
        row = None if row is None else table.row_in_file(row)
        table, counted = table.table, " (rows that were left out are not counted)"
    if row is None or not isinstance(table, DelimitedTable):
        return error.at(f"{where}{counted}")
    return error.at(f"{where}, line {table.line_of(row)}{counted}")


def _fitted(batch: Any, domain: Domain) -> Any:
    match domain:
        case Ball() | Box():
            return batch.reshape(len(batch), *domain.shape)
        case Groups():
            labels, arrays = batch
            return labels, arrays.reshape(len(arrays), *domain.box.shape)
        case Categories() if domain.bins is not None:
            return batch.reshape(len(batch))
    return batch
