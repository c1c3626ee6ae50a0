"""What an audit attacks under `noisy-counts`: a victim who reports all that one can, or none of it, among users of the
latter.

Crowds of users of whom all is known show how much noise each class of cells gets: what is reported beyond what is true.
Where noise is binomial, as many trials for a user as the plan says, at whatever chance, the chances in an enclosure of
the observed ones tell what the running randomizer reveals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import BLANK
from shufflesum.encodings import MultiHot, Scale
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import CellGroup, Events, ExpectedCounts, Revealed, Variant
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy import NoisyCountsAccountant
from shufflesum.randomness import PROBABILITY_BITS

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_counts.mechanism import NoisyCounts


_POINTS = 5  # of an enclosure, at which epsilon is looked at: it falls with more noise but for single counts' steps

_Held = tuple[Any, NDArray[np.int64]]
"""What the users of a crowd hold, and how often each of them truly reports each cell: once or not at all."""


@dataclass(frozen=True)
class NoisyCountsAttack(auditing.Attack):
    """The victim's two rows, and one whose coordinates or groups differ, so that these are told apart."""

    mechanism: NoisyCounts
    encoding: MultiHot

    @cached_property
    def _held(self) -> list[_Held]:
        """x, x', and a mixture."""
        encoding = self.encoding
        if encoding.scale is None:
            codes, size = np.arange(encoding.coordinates), encoding.most_true
            return [self._choice(codes[first : first + size]) for first in (0, size, size // 2)]
        if encoding.counted:
            last = encoding.groups - 1
            return [self._numbers(0, 1.0), self._numbers(last, 1.0), self._numbers(last // 2, None)]
        return [self._numbers(0, part) for part in (1.0, 0.0, None)]

    @cached_property
    def _varied(self) -> list[tuple[Variant, Floats]]:
        """Each label or group, or each value in all coordinates, and rows off the levels; with the chances of cells.

        These are the chances that a user truly reports each cell: 0, 1, or between where rounding decides it.
        """
        encoding, top = self.encoding, self.mechanism.levels
        if encoding.scale is None:
            tried = auditing.variants_of(encoding.coordinates, 1)
            kind, held = "one label", [self._choice(np.array([label])) for label in tried]
        elif encoding.counted:
            tried = auditing.variants_of(encoding.groups, encoding.coordinates)
            kind, held = "one group", [self._numbers(int(group), None) for group in tried]
        else:
            tried = auditing.variants_of(top + 1, encoding.coordinates)
            kind, held = "one value everywhere", [self._numbers(0, level / top) for level in tried]
        off = [] if encoding.scale is None else auditing.off_levels(encoding.scale, top)
        return [
            *((Variant(kind, row), true.astype(np.float64)) for row, true in held),
            *(self._off(*row) for row in off),
        ]

    def _off(self, kind: str, values: Floats) -> tuple[Variant, Floats]:
        """A row off the levels, in the last group where there are some."""
        positions = auditing.positions_of(self._scale, values, self.mechanism.levels)
        below = np.floor(positions).astype(np.int64)
        part = (positions - below)[:, None]
        low, high = (self._digits(levels) for levels in (below, np.minimum(below + 1, self.mechanism.levels)))
        chances = np.where(low == high, low, np.where(low < high, part, 1 - part))
        group = self.encoding.groups - 1
        return Variant(kind, self._row(group, values)), self._in_group(group, chances)

    @property
    def _scale(self) -> Scale:
        assert self.encoding.scale is not None  # numbers have one
        return self.encoding.scale

    def _digits(self, levels: NDArray[np.int64]) -> NDArray[np.int64]:
        """(coordinates, digits) of whole numbers."""
        return (levels[:, None] >> np.arange(self.mechanism.digits)) & 1

    def _choice(self, codes: NDArray[np.int64]) -> _Held:
        true = np.zeros(self.encoding.coordinates, dtype=np.int64)
        true[codes] = 1
        return self.held.example(cells=codes), true

    def _row(self, group: int, values: Floats) -> Any:
        return self.held.example(cells=(group,) if self.encoding.counted else (), values=values)

    def _in_group(self, group: int, digits: NDArray[Any]) -> NDArray[Any]:
        """What is true of all cells, where a user is in this group and these digits are true of their numbers."""
        true = np.zeros((self.encoding.groups, digits.size + self.encoding.counted), dtype=digits.dtype)
        true[group] = [*digits.reshape(-1), *[1] * self.encoding.counted]
        return true.reshape(-1)

    def _numbers(self, group: int, part: float | None) -> _Held:
        """All at this part of the scale, or all over it; and their digits."""
        top, dimension = self.mechanism.levels, self.encoding.coordinates
        alike = None if part is None else np.full(dimension, round(part * top))
        levels = auditing.mixed_levels(top, dimension) if alike is None else alike
        values = auditing.values_at(self._scale, levels, top)
        return self._row(group, values), self._in_group(group, self._digits(levels))

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What each crowd holds."""
        return tuple(row for row, _ in self._held)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Rows with each value, label or group, and of numbers rows off the levels."""
        return tuple(variant for variant, _ in self._varied)

    @property
    def others(self) -> Any:
        """x' for all."""
        return self.crowds[1]

    @property
    def samples(self) -> int:
        """Enough users to see the noise of each class often, times what they send."""
        sizes = np.array(self.mechanism.layout(self.encoding).sizes)
        rarest = float(np.min(sizes * self.mechanism.noise_means))
        return int(3 * auditing.NOISY_REPORTS / rarest + 1) * self.mechanism.reports(self.encoding)

    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """The dummy reports of each class, of all crowds together, and the trials behind them."""
        noise = sum(self._noise(tables, users))
        seen = [int(np.asarray(noise)[cells].sum()) for cells in self._classes]
        trials = [sum(users) * len(c) * q for c, q in zip(self._classes, self.mechanism.trials, strict=True)]
        return np.maximum(np.array([seen]), 0), np.array([trials])

    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """What a batch shows at least at any chances in the enclosure: all of them low, all high, or between."""
        lows, highs = lower[0], upper[0]
        delta = self.delta
        found = []
        for part in np.linspace(0.0, 1.0, _POINTS):
            at = np.clip((1 - part) * lows + part * highs, 1e-12, 1 - 2.0**-53)
            seen = replace(
                self.mechanism,
                probabilities=tuple(math.floor(p * 2.0**PROBABILITY_BITS) * 2.0**-PROBABILITY_BITS for p in at),
            )
            changed = seen.changed_counts(self.encoding, self.guarantee)
            found.append(NoisyCountsAccountant(changed).epsilon_lower(delta))
        return Revealed(float(np.max(highs / np.array(self.mechanism.probabilities))), min(found))

    def score(self, table: CountTable) -> float:
        """How much likelier a table is with the victim at x: the sum of log(y (1 - p) / ((M - y + 1) p)) over cells.

        Over those that only x reports, less the same over those that only x' does; y is what the others leave.
        """
        (_, x), (_, other) = self._held[0], self._held[1]
        counts = (table - (self.guarantee.honest_users - 1) * other).astype(np.float64)
        total, tiny = 0.0, np.finfo(np.float64).tiny  # an empty cell must not stop the attack
        for cells, q, p in zip(self._classes, self.mechanism.trials, self.mechanism.probabilities, strict=True):
            y = np.maximum(counts[cells], 0)
            trials = float(self.guarantee.honest_users * q)
            ratios = np.maximum(y * (1 - p), tiny) / np.maximum((trials - y + 1) * p, tiny)
            total += float(np.dot((x - other)[cells], np.log(ratios)))
        return total

    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Noise of each class, of each cell, and of each coordinate (all its digits), beyond what is true."""
        classes, coordinates, every = [], [], []
        layout = self.mechanism.layout(self.encoding)
        q, p = np.array(self.mechanism.trials), np.array(self.mechanism.probabilities)
        for noise, count in zip(self._noise(tables, users), users, strict=True):
            for number, cells in enumerate(self._classes):
                what = "the count" if number == layout.digits else f"digit {number}"
                chances_each = np.full(len(cells), p[number])
                every.append(
                    ExpectedCounts(
                        f"noise in {what} of coordinate {{}}", noise[cells], count * int(q[number]), chances_each
                    )
                )
                total, trials = np.array([noise[cells].sum()]), count * len(cells) * int(q[number])
                classes.append(ExpectedCounts(f"noise in {what}", total, trials, p[number : number + 1]))
            digits = noise[np.stack(self._classes[: layout.digits], axis=1)].sum(axis=1)
            # trials of several chances vary less than as many of their mean chance
            trials = int(q[: layout.digits].sum())
            mean = np.full(len(digits), float(q[: layout.digits] @ p[: layout.digits]) / trials)
            coordinates.append(ExpectedCounts("noise in coordinate {}", digits, count * trials, mean))
        return [classes, coordinates, every]

    def cell_groups(self, number: int) -> list[CellGroup]:
        """Noise in every cell, and the lowest digits of values between levels, whose rounding is one trial more.

        Other digits that this rounding decides depend on those, and are left out. That a user whose noise exceeds the
        cap draws again makes no outcome likelier than by 1/(1 - P[noise > cap]).
        """
        known = number < len(self._held)
        held = self._held[number][1] if known else self._varied[number - len(self._held)][1]
        true, size = np.floor(held).astype(np.int64), len(held)
        trials, chances = np.zeros(size, dtype=np.int64), np.zeros(size)
        for cells, q, p in zip(self._classes, self.mechanism.trials, self.mechanism.probabilities, strict=True):
            trials[cells], chances[cells] = q, p
        certain = auditing.evenly_spaced(size)
        certain = certain[held[certain] == true[certain]]
        found = [
            CellGroup(
                "noise in a cell", auditing.index_among(size, certain), true[certain], trials[certain], chances[certain]
            )
        ]
        lowest = self._classes[0][held[self._classes[0]] > true[self._classes[0]]]
        if lowest.size:
            chosen = lowest[auditing.evenly_spaced(len(lowest))].astype(np.int64)
            more = trials[chosen] + 1
            means = (trials[chosen] * chances[chosen] + held[chosen]) / more
            name = "the lowest digit of a value between levels, or noise there"
            found.append(CellGroup(name, auditing.index_among(size, chosen), true[chosen], more, means))
        return found

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """That nobody leaves out what is true."""
        true = self._held[number][1]
        few = np.count_nonzero(cells != BLANK, axis=1) < int(true.sum())
        return [Events("fewer reports than are true", few[:, None], np.zeros(1))]

    @cached_property
    def _classes(self) -> list[NDArray[np.uint32]]:
        layout = self.mechanism.layout(self.encoding)
        return [layout.cells_of(number) for number in range(layout.classes)]

    def _noise(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[CountTable]:
        """What was reported beyond what is true of these users."""
        return [table - count * true for table, count, (_, true) in zip(tables, users, self._held, strict=True)]
