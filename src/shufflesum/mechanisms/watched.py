"""Which places, and which rows, an audit looks at where there are too many for all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum._rounding import evenly

__all__ = ["numbered", "places_of", "variants_of"]

_MOST_PLACES = 1024
_MOST_VARIANTS = 64
_MOST_ENTRIES = 1 << 22


def places_of(count: int, most: int = _MOST_PLACES) -> NDArray[np.int64]:
    """The numbers below `count`, or so many of them."""
    return np.array(evenly(count, most), dtype=np.int64)


def numbered(count: int, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each number below `count` its place among the chosen, or -1."""
    places = np.full(count, -1, dtype=np.int64)
    places[chosen] = np.arange(len(chosen))
    return places


def variants_of(count: int, entries: int) -> NDArray[np.int64]:
    """Which of `count` rows of so many entries are tried."""
    return places_of(count, max(2, min(_MOST_VARIANTS, _MOST_ENTRIES // entries)))
