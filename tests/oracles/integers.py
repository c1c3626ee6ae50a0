"""Bounded integers from uniform words, in Python's unlimited integers."""

from __future__ import annotations

__all__ = ["bounded"]


def bounded(word: int, bound: int, bits: int = 32) -> int | None:
    """Lemire's multiply-and-reject: a uniform integer below `bound`, or None where the word must be rejected."""
    high, low = divmod(word * bound, 1 << bits)
    return None if low < (1 << bits) % bound else high
