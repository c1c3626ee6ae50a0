"""The shuffler: a uniform permutation of all reports of a batch, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import ParameterError, ReportsError
from shufflesum.randomness import RandomSource, SecureSource, words
from shufflesum.randomness.draws import shuffle_in_place
from shufflesum.reports import Reports

__all__ = ["permutation", "shuffle"]

_BLOCK = 1 << 16  # words drawn at a time: 256 KiB, within a core's cache


def shuffle(reports: Reports, *, source: RandomSource | None = None) -> Reports:
    """The same reports in a uniformly random order.

    Single reports are permuted, never a user's reports as a group: the privacy proof needs them unlinked. Whoever runs
    a shuffler hands on nothing before a batch holds the reports of `plan.users` users; this function only permutes.
    """
    if not isinstance(reports, Reports):
        raise ReportsError(
            "wrong-type", f"reports from Randomizer.randomize are expected, not {type(reports).__name__}"
        )
    _check_count(len(reports))
    cells = reports.cells.copy()
    _shuffle(cells, source or SecureSource())
    return replace(reports, cells=cells)


def permutation(count: int, source: RandomSource) -> NDArray[np.uint32]:
    """The numbers below `count` in a uniformly random order."""
    _check_count(count)
    order = np.arange(count, dtype=np.uint32)
    _shuffle(order, source)
    return order


def _shuffle(items: NDArray[Any], source: RandomSource) -> None:
    unplaced = len(items)
    while unplaced > 1:
        unplaced = shuffle_in_place(items, words(source, min(unplaced, _BLOCK), np.uint32), unplaced)


def _check_count(count: int) -> None:
    if count >= 1 << 32:
        raise ParameterError(
            "too-many-reports",
            f"{count} reports at once; at most 2**32 - 1 can be permuted in memory: make smaller batches",
        )
