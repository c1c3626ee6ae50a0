"""Counts of independent events with known chances, added up as they are seen."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from shufflesum.mechanisms import ExpectedCounts

__all__ = ["Sums"]


class Sums:
    """Of each kind, under each name: how often something happened, of how many times, and how often it should have.

    Events of one name may have different chances: as many events at their mean chance are no less likely to stray.
    """

    def __init__(self) -> None:
        self._sums: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0, 0, 0.0]))

    def add(self, kind: str, name: str, happened: int, trials: int, expected: float) -> None:
        """Add independent events: `expected` is the sum of their chances."""
        if trials:
            sums = self._sums[kind][name]
            for place, more in enumerate((int(happened), int(trials), float(expected))):
                sums[place] += more

    def counts(self) -> dict[str, list[ExpectedCounts]]:
        """By kind, all counts beside their mean chances."""
        return {
            kind: [
                ExpectedCounts(
                    name, np.array([happened], dtype=np.int64), int(trials), np.array([min(1.0, expected / trials)])
                )
                for name, (happened, trials, expected) in sums.items()
            ]
            for kind, sums in self._sums.items()
        }
