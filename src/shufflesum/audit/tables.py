"""Looks at noise that is drawn once for each cell: by one process, or by a shuffler and an analyzer in memory.

Single known users go through all roles again and again, so that all but the truth is noise. Its histogram is compared
with the plan's distribution, each server's by itself; draws that come again with each other, in the next batch or in
the next cell; how many reports each position has; and whether orders of positions have to do with each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import BLANK
from shufflesum.mechanisms.auditing import ExpectedCounts
from shufflesum.mechanisms.noisy_table import NoisyTable
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer, Tally, shuffle
from shufflesum.randomness import SecureSource
from shufflesum.reports import Counts, Reports

_PARTS = 40  # of a distribution, about equally likely
_PAIRS = 64  # of positions whose orders are compared
_NEVER = 1e3  # what an outcome that is impossible in one world says, as a logarithm

Draws = NDArray[np.int64]


class Seen(NamedTuple):
    """What was counted, by kind; and the score of each batch, by which of two rows its user held."""

    counts: list[tuple[str, list[ExpectedCounts]]]
    scores: tuple[list[float], list[float]]


class _Law:
    """One class of cells: the chances of its outcomes, and parts of them that are about equally likely."""

    def __init__(self, mechanism: NoisyTable, number: int) -> None:
        noise = mechanism.noise[number]
        self.chances = np.array([weight / 2.0**128 for weight in noise.weights])
        ends = np.searchsorted(np.cumsum(self.chances), np.arange(1, _PARTS) / _PARTS)
        self.part = np.zeros(len(self.chances), dtype=np.int64)
        np.add.at(self.part, np.unique(ends) + 1, 1)
        self.part = np.cumsum(self.part)
        self.parts = np.append(np.bincount(self.part, weights=self.chances), 0.0)  # and one for what cannot be
        self.same = float(self.chances @ self.chances)

    def histogram(self, draws: Draws) -> Draws:
        outside = (draws < 0) | (draws >= len(self.chances))
        found = np.bincount(self.part[draws[~outside]], minlength=len(self.parts))
        found[-1] = np.count_nonzero(outside)
        return found


class TableNoiseWatch:
    """Adds up what is seen of the noise of cells under a plan."""

    def __init__(self, plan: Plan) -> None:
        assert isinstance(plan.mechanism, NoisyTable)
        assert plan.positions is not None
        self._plan, self._mechanism, self._positions = plan, plan.mechanism, plan.positions
        self._classes = plan.positions.class_of_cells
        self._laws = [_Law(plan.mechanism, number) for number in range(len(plan.mechanism.noise))]
        self._rows = plan.mechanism.victims(plan.encoding, plan.domain)
        self._truths = [self._truth(row) for row in self._rows]
        self._last: dict[str, Draws] = {}
        self._histograms: dict[tuple[str, int], Draws] = {}
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
        self._scores: tuple[list[float], list[float]] = ([], [])
        self._batches = 0

    def look(self, over: Callable[[], bool], trials: int) -> Seen:
        """Let one user after another through, each in a batch of their own."""
        while self._batches < trials and not (self._batches >= 4 and over()):
            which = self._batches % 2
            if self._plan.noise_by == "curator":
                self._one_process(which)
            else:
                self._servers(which)
            self._batches += 1
        return self._seen()

    def _truth(self, row: Any) -> Draws:
        table: Draws = np.zeros(self._plan.cells, dtype=np.int64)
        domain = self._plan.domain
        block: Any = domain.block(domain.rows(row))
        self._mechanism.tally(self._plan.encoding, SecureSource()).add(block, table)
        return table

    def _one_process(self, which: int) -> None:
        tally = Tally(self._plan)
        tally.add(self._rows[which])
        self._drawn("one process", which, tally.counts().table)

    def _servers(self, which: int) -> None:
        shuffled = shuffle(Randomizer(self._plan).randomize(self._rows[which]), plan=self._plan)
        cells = shuffled.cells[shuffled.cells != BLANK]
        table = np.bincount(cells, minlength=self._plan.cells).astype(np.int64)
        own = self._drawn("the shuffler", which, table)
        self._count("a position with another number of reports happened", int(self._wrong_sizes(shuffled)), 1, 0.0)
        self._orders(shuffled)
        if self._plan.noise_by == "servers":
            drawn = Counts(self._plan).table
            self._drawn("the analyzer", which, drawn, scored=False)
            self._equal("both servers' draws of one cell are equal", own, drawn)

    def _drawn(self, who: str, which: int, table: Draws, *, scored: bool = True) -> Draws:
        """One draw of all cells: of a batch of one user, or, not `scored`, of an analyzer that has seen nothing."""
        draws = table - self._truths[which] if scored else table
        for number, law in enumerate(self._laws):
            mine = draws[self._classes == number]
            found = law.histogram(mine)
            self._histograms[who, number] = self._histograms.get((who, number), 0) + found
        if who in self._last:
            self._equal(f"{who}: the draw of a cell came again in the next batch", self._last.pop(who), draws)
        else:
            self._last[who] = draws
        for number in range(len(self._laws)):
            mine = draws[self._classes == number]
            half = len(mine) // 2
            one, other = mine[: 2 * half : 2], mine[1 : 2 * half : 2]
            name = f"{who}: two cells of class {number} have the same draw"
            self._count(name, int(np.count_nonzero(one == other)), half, half * self._laws[number].same)
        if scored:
            self._scores[which].append(self._score(table))
        return draws

    def _equal(self, name: str, one: Draws, other: Draws) -> None:
        expected = sum(
            law.same * float(np.count_nonzero(self._classes == number)) for number, law in enumerate(self._laws)
        )
        self._count(name, int(np.count_nonzero(one == other)), len(one), expected)

    def _wrong_sizes(self, shuffled: Reports) -> bool:
        """Positions with blanks have a public number of reports; others at least those of users."""
        counts = Counts(self._plan, draw=np.zeros(self._plan.cells, dtype=np.int64))
        counts.add(shuffled)
        return counts.missing() is not None

    def _orders(self, shuffled: Reports) -> None:
        """Where reports that are not blank stand in two positions of one size: a hypergeometric number together."""
        assert shuffled.by_position is not None
        ends = np.concatenate([[0], np.cumsum(shuffled.by_position)])
        filled = [shuffled.cells[start:stop] != BLANK for start, stop in pairwise(ends[: _PAIRS + 1].tolist())]
        for first, second in zip(filled[::2], filled[1::2], strict=False):
            if len(first) == len(second) and not first.all() and not second.all():
                one, other = int(first.sum()), int(second.sum())
                together = int(np.count_nonzero(first & second))
                self._count("orders of two positions agree", together, one, one * other / len(first))

    def _score(self, table: Draws) -> float:
        """How much likelier the table is with the first row than with the second, as a logarithm."""
        total = 0.0
        for number, law in enumerate(self._laws):
            mine = (self._classes == number) & (self._truths[0] != self._truths[1])
            logs = [self._log(law, table[mine] - truth[mine]) for truth in self._truths]
            total += float(np.sum(logs[0] - logs[1]))
        return total

    @staticmethod
    def _log(law: _Law, draws: Draws) -> NDArray[np.float64]:
        inside = (draws >= 0) & (draws < len(law.chances))
        logs = np.log(np.maximum(law.chances[np.clip(draws, 0, len(law.chances) - 1)], 1e-300))
        return np.where(inside, logs, -_NEVER)

    def _count(self, name: str, happened: int, trials: int, expected: float) -> None:
        for index, more in enumerate((happened, trials, expected)):
            self._sums[name][index] += more

    def _seen(self) -> Seen:
        histograms = [
            ExpectedCounts(
                f"{who}: draws of class {number}, part {{}},", found, int(found.sum()), self._laws[number].parts
            )
            for (who, number), found in self._histograms.items()
        ]
        events = [
            ExpectedCounts(name, np.array([int(happened)]), int(trials), np.array([min(1.0, expected / trials)]))
            for name, (happened, trials, expected) in self._sums.items()
            if trials
        ]
        kinds = [("draws", histograms), ("draws, positions and orders", events)]
        return Seen(kinds, self._scores)
