"""A report as four bytes: its cell, big-endian, the same size whatever it says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.reports import Reports

__all__ = ["decode_reports", "encode_reports"]

_LAYOUT = np.dtype(">u4")


def encode_reports(reports: Reports) -> NDArray[np.uint8]:
    """The reports as rows of bytes, shape (reports, 4), in the same order."""
    return reports.cells.astype(_LAYOUT).view(np.uint8).reshape(len(reports), REPORT_BYTES)


def decode_reports(encoded: NDArray[np.uint8], plan_id: str, round_number: int = 1) -> Reports:
    """Rows of bytes as reports of a round of a plan.

    Any four bytes are a report; whether the plan has such a cell is decided where reports are counted.
    """
    if encoded.dtype != np.uint8 or encoded.ndim != 2 or encoded.shape[1] != REPORT_BYTES:
        raise ReportsError(
            "wrong-type",
            f"encoded reports are a {encoded.dtype} array of shape {encoded.shape}; "
            f"they must be bytes of shape (reports, {REPORT_BYTES})",
        )
    cells = np.ascontiguousarray(encoded).reshape(-1).view(_LAYOUT).astype(np.uint32)
    return Reports(plan_id, cells, round_number)
