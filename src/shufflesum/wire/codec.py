"""A report as six bytes: coordinate (4) and value (2), big-endian, the same size whatever it says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum.contract import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.protocol import Reports

__all__ = ["decode_reports", "encode_reports"]

_LAYOUT = np.dtype([("coordinate", ">u4"), ("value", ">u2")])
assert _LAYOUT.itemsize == REPORT_BYTES


def encode_reports(reports: Reports) -> NDArray[np.uint8]:
    """The reports as rows of bytes, shape (reports, 6), in the same order."""
    encoded = np.empty(len(reports), dtype=_LAYOUT)
    encoded["coordinate"] = reports.coordinates
    encoded["value"] = reports.values
    return encoded.view(np.uint8).reshape(len(reports), REPORT_BYTES)


def decode_reports(encoded: NDArray[np.uint8], plan_id: str) -> Reports:
    """Rows of bytes as reports of a plan.

    Any six bytes are a report; whether it lies in the plan's domain is decided where reports are counted.
    """
    if encoded.dtype != np.uint8 or encoded.ndim != 2 or encoded.shape[1] != REPORT_BYTES:
        raise ReportsError(
            f"encoded reports are a {encoded.dtype} array of shape {encoded.shape}; "
            f"they must be bytes of shape (reports, {REPORT_BYTES})"
        )
    rows = np.ascontiguousarray(encoded).reshape(-1).view(_LAYOUT)
    return Reports(plan_id, rows["coordinate"].astype(np.uint32), rows["value"].astype(np.uint16))
