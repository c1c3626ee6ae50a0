"""Randomness that is not uniform, for the twins of statistical tests."""

from __future__ import annotations

import numpy as np

from shufflesum.randomness import UInts
from shufflesum.testing import SeededSource

__all__ = ["WordsBelow"]


class WordsBelow:
    """A broken source, whose words never have their highest or lowest bit set."""

    def __init__(self, seed: int) -> None:
        self._source = SeededSource(seed)

    def fill(self, out: UInts) -> None:
        self._source.fill(out)
        out &= out.dtype.type(np.iinfo(out.dtype).max // 2 - 1)
