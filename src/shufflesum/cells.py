"""A report is one cell: a 32-bit number whose meaning is the affair of the plan's mechanism alone."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from shufflesum._compiled import kernel

BLANK = 4294967295
"""The report that says nothing: it pads, so that every user sends the same number of reports."""

MOST_CELLS = BLANK - 1
"""Cells are numbered from 0 and stay below the blank; the number beside it is nobody's cell."""

REPORT_BYTES = 4
"""What one report takes, in memory, in files and inside its seal."""


@kernel
def count_cells(cells: NDArray[Any], table: NDArray[Any]) -> int:
    """Add reports to the table; returns how many named no cell of it and were left out, blanks among them.

    Cells are uint32 or int64; negative ones are none.
    """
    outside = 0
    for cell in cells:
        if 0 <= cell < table.size:
            table[cell] += 1
        else:
            outside += 1
    return outside
