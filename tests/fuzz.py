"""Bytes damaged at random."""

from __future__ import annotations

import random

__all__ = ["damaged_bytes"]


def damaged_bytes(source: random.Random, good: bytes, *, within: int | None = None) -> bytes:
    """Bits turned over among the first `within` bytes, or bytes cut off, added or made up; never what was good."""
    while (bad := _damaged_bytes(source, good, within or len(good))) == good:
        pass
    return bad


def _damaged_bytes(source: random.Random, good: bytes, within: int) -> bytes:
    kind = source.randrange(5)
    if kind == 0:
        return source.randbytes(source.randrange(400))
    if kind == 1:
        return good[: source.randrange(len(good))]
    if kind == 2:
        return good + source.randbytes(1 + source.randrange(300))
    body = bytearray(good)
    for _ in range(1 + source.randrange(4)):
        body[source.randrange(within)] ^= 1 << source.randrange(8)
    return bytes(body)
