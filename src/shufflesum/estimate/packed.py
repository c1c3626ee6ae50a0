"""A table of counts inside JSON: compressed, and checked when it is read back."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["table_from_json", "table_to_json"]


def table_to_json(table: NDArray[np.int64]) -> dict[str, Any]:
    """Whole numbers of 4 bytes, or of 8 where a count needs them."""
    size = 4 if int(table.max(initial=0)) < 1 << 32 else 8
    packed = zlib.compress(table.astype(f"<u{size}").tobytes(), 1)
    return {"bytes": size, "zlib": base64.b64encode(packed).decode("ascii")}


def table_from_json(value: Any, cells: int) -> NDArray[np.int64]:
    """The table of just so many cells; ValueError, KeyError or TypeError for anything else."""
    size, text = value["bytes"], value["zlib"]
    if size not in (4, 8) or value.keys() != {"bytes", "zlib"}:
        raise ValueError("no table of counts")
    opener = zlib.decompressobj()
    try:
        # One byte more than there should be is enough to see that there is too much.
        counts = opener.decompress(base64.b64decode(text, validate=True), cells * size + 1)
    except (binascii.Error, zlib.error) as error:
        raise ValueError("no table of counts") from error
    if not opener.eof or opener.unused_data or len(counts) != cells * size:
        raise ValueError("a table of another size")
    table = np.frombuffer(counts, f"<u{size}").astype(np.int64)
    if (table < 0).any():
        raise ValueError("counts beyond 2**63")
    table.setflags(write=False)
    return table
