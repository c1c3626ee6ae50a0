"""Possible counts nearest to unbiased ones."""

from __future__ import annotations

import numpy as np

from shufflesum.estimate.base import Floats

__all__ = ["nearest_counts"]


def nearest_counts(counts: Floats, users: int, total: int | None) -> Floats:
    """The point of [0, users]^D nearest to `counts`, with its sum equal to `total` if one is given (users, then).

    With a sum: the projection on a simplex takes the same from every count and stops at 0. What it takes is found by
    sorting: with the m largest kept it is (their sum - total) / m, for the largest m that leaves them all positive.
    """
    if total is None:
        return np.clip(counts, 0, users)
    falling = -np.sort(-counts)
    taken = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    kept = int(np.flatnonzero(falling > taken)[-1])
    nearest: Floats = np.maximum(counts - taken[kept], 0)
    return nearest
