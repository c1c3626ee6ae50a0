"""Rows of the tables behind the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["Row", "columns", "least", "number"]

Row: TypeAlias = dict[str, float | int | str | bool | None]


def columns(rows: Sequence[Row]) -> list[str]:
    """All columns that any row has, in the order they come."""
    return list(dict.fromkeys(column for row in rows for column in row))


def number(row: Row, column: str) -> float:
    """The number in a column that holds numbers; 0 where it is empty."""
    return float(row[column] or 0)


def least(rows: Sequence[Row], column: str) -> Row:
    """The row with the least number in that column."""
    return min(rows, key=lambda row: number(row, column))
