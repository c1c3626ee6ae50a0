"""Which places, and which rows, an audit looks at where there are too many for all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum._format import evenly
from shufflesum.encodings import Scale

BETWEEN, SINGLE = "values between levels", "a single entry"
"""Kinds of variants."""

_MOST_PLACES = 1024
_MOST_VARIANTS = 64
_MOST_ENTRIES = 1 << 22
_FEW = 4  # of each kind that is chosen at random
_ON_LEVEL = 1e-6  # so near to a level a value is on it: floating point put it there


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


def few_of(entries: int) -> int:
    """How many rows of so many entries are chosen at random, of each kind."""
    return max(1, min(_FEW, _MOST_ENTRIES // entries))


def off_levels(scale: Scale, levels: int) -> list[tuple[str, NDArray[np.float64]]]:
    """Flat arrays, chosen anew each time: random values between levels, and a single entry in a row of zeros.

    Values between levels are one and the same in all coordinates, or another one in each. Zero is the value, or the
    bound next to it; the entry lies at the bound farther from that, on a level within bounds, or between levels.
    """
    lower, upper, width = scale.lower, scale.upper, scale.width
    random, size = np.random.default_rng(), len(lower)
    few = few_of(size)
    parts = [*(np.full(size, (number + random.random()) / few) for number in range(few)), *random.random((few, size))]
    rows = [(BETWEEN, lower + width * part) for part in parts]
    zero = np.clip(np.zeros(size), lower, upper)
    for number, entry in enumerate(np.resize(random.permutation(size), few)):
        row = zero.copy()
        farther = float(zero[entry] - lower[entry] < width[entry] / 2)
        inner = random.integers(1, levels) / levels if levels > 1 else random.random()
        row[entry] = lower[entry] + width[entry] * (farther, inner, *random.random(_FEW))[number]
        rows.append((SINGLE, row))
    return [(kind, np.clip(row, lower, upper)) for kind, row in rows]


def positions_of(scale: Scale, values: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Where values lie on the scale from 0 to `levels` that they are rounded on."""
    positions = np.clip((values - scale.lower) * (levels / scale.width), 0, levels)
    nearest = np.rint(positions)
    return np.where(np.abs(positions - nearest) < _ON_LEVEL, nearest, positions)
