"""What an audit attacks under `noisy-counts` with slots: a victim with one label or another, among users with a third.

Crowds of users with known labels show how much noise there is: what is reported beyond the labels. Where slots are
noise at whatever chance, each in a uniform cell, the chances in an enclosure of the observed one tell what the running
randomizer reveals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import BLANK
from shufflesum.encodings import OneHot
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import CellGroup, Events, ExpectedCounts, Revealed, Variant
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy.engine.laws import binomial_window

if TYPE_CHECKING:
    from shufflesum.mechanisms.noisy_slots.mechanism import NoisySlots


_MOST_CROWDS = 6  # a label of each; in all of them every cell's noise is looked at
_EASY_USERS = 50_000_000
_WORDS = 4096  # among which words are looked for that share few buckets


@dataclass(frozen=True)
class NoisySlotsAttack(auditing.Attack):
    """Crowds that hold one label each."""

    mechanism: NoisySlots
    encoding: OneHot

    @cached_property
    def _labels(self) -> list[Any]:
        """x, x', v, and a few others; of words, those that share the fewest buckets. Of two buckets there is no v."""
        if self.encoding.names_cells:
            return self._examples(auditing.evenly_spaced(self.encoding.size, _MOST_CROWDS))
        words = self._examples(range(_WORDS))
        buckets, shared, found = self._tables(words), np.zeros(_WORDS, dtype=np.int64), [0]
        for _ in range(min(2, self.encoding.layout[1] - 1)):
            shared += (buckets == buckets[found[-1]]).sum(axis=1)  # a word shares all with itself
            found.append(int(shared.argmin()))
        return [words[number] for number in found]

    @cached_property
    def _own(self) -> list[NDArray[np.int64]]:
        """The cells where each crowd's own reports may lie: one for a label, one of each function for a word."""
        return self._cells_of(self._labels)

    def _cells_of(self, labels: list[Any]) -> list[NDArray[np.int64]]:
        return list(self._tables(labels))

    @cached_property
    def _varied(self) -> list[Any]:
        """Labels all over the domain, or words."""
        if self.encoding.names_cells:
            return self._examples(auditing.variants_of(self.encoding.size, 1))
        return self._examples(range(_WORDS, _WORDS + len(auditing.variants_of(1 << 20, 1))))

    def _examples(self, cells: Iterable[int]) -> list[Any]:
        return [self.held.example(cells=[int(cell)]) for cell in cells]

    def _tables(self, labels: list[Any]) -> NDArray[np.int64]:
        """The cell of each label in every table."""
        tables: NDArray[np.int64] = self.held.block(self.held.rows(labels)).of_all_tables()
        return tables

    @cached_property
    def _own_of_all(self) -> list[NDArray[np.int64]]:
        return [*self._own, *self._cells_of(self._varied)]

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What each crowd holds."""
        return tuple(self._labels)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Other labels."""
        return tuple(Variant("one label", label) for label in self._varied)

    @property
    def others(self) -> Any:
        """v; of two labels, x."""
        return self._labels[2 % len(self._labels)]

    @property
    def samples(self) -> int:
        """Enough users to see noise often, times what they send."""
        users = min(_EASY_USERS, int(auditing.NOISY_REPORTS / self.mechanism.noise) + 1)
        return users * self.mechanism.reports(self.encoding)

    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """The dummy reports of all crowds together, and the slots behind them."""
        seen = sum(int(table.sum()) for table in tables) - sum(users)
        return np.array([[max(0, seen)]]), np.array([[sum(users) * self.mechanism.slots]])

    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """What a batch shows at least: at the largest chance, because noise hides the more the more there is."""
        chance = min(float(upper[0, 0]), 1.0)
        certified = self.mechanism.accountant(self.encoding, self.guarantee)
        shown = replace(certified, chance=max(chance, 2.0**-53))
        return Revealed(chance / self.mechanism.chance, shown.epsilon_lower(self.delta))

    def score(self, table: CountTable) -> float:
        """How much likelier a table is with the victim at x: log of its reports there over those at x'."""
        other = self._labels.index(self.others)
        honest = self.guarantee.honest_users - 1
        x, second = (
            float(table[own].sum()) - honest * (number == other)
            for number, own in zip(range(2), self._own, strict=False)
        )
        return float(np.log(max(x, 0.5) / max(second, 0.5)))

    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Noise in all and in each cell beyond the users' own, and how own reports are spread over functions."""
        noise, cells, functions = [], [], []
        chance, size = self.mechanism.chance, self.encoding.size
        for table, own, held, whose in zip(tables, self._own, users, self._labels, strict=True):
            label = repr(whose).replace("{", "{{").replace("}", "}}")  # names have braces where indices go
            slots = held * self.mechanism.slots
            noise.append(
                ExpectedCounts(f"noise beside {label}", np.array([int(table.sum()) - held]), slots, np.array([chance]))
            )
            others = np.ones(size, dtype=bool)
            others[own] = False
            name = f"noise beside {label} in cell {{}} of the others"
            cells.append(ExpectedCounts(name, table[others], slots, np.full(int(others.sum()), chance / size)))
            if len(own) == 1:
                seen, law = table[own] - held, np.array([chance / size])
                cells.append(ExpectedCounts(f"noise in the cell of {label}", seen, slots, law))
            else:
                # own reports and noise have chances of their own; as trials of their mean they vary no less
                trials = held + slots
                law = np.full(len(own), (held / len(own) + slots * chance / size) / trials)
                functions.append(ExpectedCounts(f"reports of {label} by function {{}}", table[own], trials, law))
        return [noise, cells, *([functions] if functions else [])]

    def cell_groups(self, number: int) -> list[CellGroup]:
        """Noise in all, and in half of the cells that are nobody's own."""
        own, size, slots = self._own_of_all[number], self.encoding.size, self.mechanism.slots
        half = np.zeros(size, dtype=np.int64)
        half[size // 2 :] = half[own] = -1
        part = int(np.count_nonzero(half == 0)) / size

        def noise(name: str, place: NDArray[np.int64], true: int, chance: float) -> CellGroup:
            return CellGroup(name, place, np.array([true]), np.array([slots]), np.array([chance]))

        return [
            noise("noise", np.zeros(size, dtype=np.int64), 1, self.mechanism.chance),
            noise("noise in the first half of the cells", half, 0, self.mechanism.chance * part),
        ]

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """An own report of everybody, the same cell twice by one user, and of words, which functions they take.

        m dummy reports are in m cells, none of them the own one, with chance (1 - 1/D) ... (1 - m/D).
        """
        own, size, slots = self._own_of_all[number], self.encoding.size, self.mechanism.slots
        chance = self.mechanism.chance
        ordered = np.sort(cells, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != BLANK)).any(axis=1)
        lowest, terms, total, _ = binomial_window(slots, chance, chance / (1 - chance), 1e-15)
        distinct = np.cumprod(np.append(1.0, np.maximum(0.0, 1 - np.arange(1, lowest + len(terms)) / size)))
        apart = float(terms @ distinct[lowest:]) / total
        missing = ~_among(cells, own)
        found = [
            Events("no report that may be the own one", missing[:, None], np.zeros(1)),
            Events("a cell twice", twice[:, None], np.array([max(0.0, 1 - apart)])),
        ]
        if len(own) > 1:
            first = own[: len(own) // 2]
            early = _among(cells, first)
            none = (1 - len(first) / len(own)) * (1 - chance * len(first) / size) ** slots
            found.append(Events("one of the first functions", early[:, None], np.array([1 - none])))
        return found


def _among(cells: NDArray[np.uint32], some: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which users report one of some cells."""
    return np.asarray(np.isin(cells, some.astype(np.uint32)).any(axis=1))
