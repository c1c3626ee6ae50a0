"""A report is one cell: a 32-bit number whose meaning is the affair of the plan's mechanism alone."""

from __future__ import annotations

__all__ = ["BLANK", "MOST_CELLS", "REPORT_BYTES"]

BLANK = 4294967295
"""The report that says nothing: it pads, so that every user sends the same number of reports."""

MOST_CELLS = BLANK - 1
"""Cells are numbered from 0 and stay below the blank; the number beside it is nobody's cell."""

REPORT_BYTES = 4
"""What one report takes, in memory, in files and inside its seal."""
