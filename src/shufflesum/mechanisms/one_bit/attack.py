"""What an audit attacks in random bits: a victim at one end of an axis or the other, among users at the centre.

After the rotation the ends of an axis lie in every coordinate, 1/tau from the middle, with known signs: a bit agrees
with its sign with probability (1 + a/tau)/2 at one end, and with (1 - a/tau)/2 at the other. What agrees more often
reveals more: bits can be flipped at random to agree less, so that the least chance in an enclosure bounds what the
running randomizer reveals. A coin that is fixed, shared, or rounds to the nearest bit shows in the counts of
coordinates: in single ones, or in how many of them lie far from what is expected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.encodings import SignBits
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import CellGroup, Events, ExpectedCounts, Revealed, Variant
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.mechanisms.one_bit.randomize import AMPLITUDE_BITS, Rotation, chances_of
from shufflesum.privacy.engine.laws import binomial_window

if TYPE_CHECKING:
    from shufflesum.mechanisms.one_bit.mechanism import OneBit


_MOST_SAMPLES = 100_000_000
_LEAST_AMPLITUDE = 2.0**-40


@dataclass(frozen=True)
class OneBitAttack(auditing.Attack):
    """Crowds at both ends of an axis, at a vector with entries of all sizes, and at the centre."""

    mechanism: OneBit
    encoding: SignBits

    @cached_property
    def _vectors(self) -> list[Floats]:
        """Differences to the centre."""
        size, inside = self.encoding.dimension, self.encoding.clipping_norm * (1.0 - 2.0**-20)
        end = np.zeros(size)
        end[0] = inside
        mixed = np.cos(np.arange(1, size + 1, dtype=np.float64))
        return [end, -end, mixed * (inside / float(np.linalg.norm(mixed))), np.zeros(size)]

    @cached_property
    def _varied(self) -> list[tuple[str, Floats]]:
        """Waves of several lengths, which have full norm; and of at least half that, random vectors and single entries.

        A short vector shows nothing: its bits are fair coins, with noise or without.
        """
        size, inside = self.encoding.dimension, self.encoding.clipping_norm * (1.0 - 2.0**-20)
        waves = [np.cos(number * np.arange(1, size + 1)) for number in 2 + auditing.variants_of(1 << 20, size)]
        random, few = np.random.default_rng(), auditing.few_of(size)
        norms = inside * random.uniform(0.5, 1.0, (2, few))
        entries = np.zeros((few, size))
        entries[np.arange(few), np.resize(random.permutation(size), few)] = random.choice([-1.0, 1.0], few) * norms[0]
        vectors = random.normal(size=(few, size))
        vectors *= (norms[1] / np.linalg.norm(vectors, axis=1))[:, None]
        return [
            *(("a wave", wave * (inside / float(np.linalg.norm(wave)))) for wave in waves),
            *(("a random vector", vector) for vector in vectors),
            *((auditing.SINGLE, vector) for vector in entries),
        ]

    def _rotated(self, vectors: list[Floats]) -> list[NDArray[np.int64]]:
        """What vectors are after the rotation."""
        rotation = Rotation(self.encoding, self.mechanism.tau)
        return [rotation.of(vector[None])[0].astype(np.int64) for vector in vectors]

    @cached_property
    def _levels(self) -> list[NDArray[np.int64]]:
        return self._rotated(self._vectors)

    @cached_property
    def _levels_of_all(self) -> list[NDArray[np.int64]]:
        return [*self._levels, *self._rotated([vector for _, vector in self._varied])]

    def _rows(self, vectors: list[Floats]) -> tuple[Any, ...]:
        return tuple(self.held.example(values=vector) for vector in vectors)

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What each crowd holds."""
        return self._rows(self._vectors)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Other vectors."""
        kinds, vectors = zip(*self._varied, strict=True)
        return tuple(map(Variant, kinds, self._rows(list(vectors))))

    @property
    def others(self) -> Any:
        """The centre."""
        return self.crowds[3]

    @property
    def samples(self) -> int:
        """Enough to know within a few per cent how much more often than not a bit agrees."""
        return min(_MOST_SAMPLES, math.ceil(1e5 / (self.mechanism.amplitude / self.mechanism.tau) ** 2))

    @property
    def silent(self) -> Floats:
        """Bits that are never replaced: only rounded."""
        levels = self._levels[0]
        return chances_of(np.abs(levels[auditing.evenly_spaced(len(levels))]), 1 << AMPLITUDE_BITS)

    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """How often bits agreed with what the crowds at both ends hold, and how many there were of each crowd."""
        agreed = [self._agreeing(table, levels).sum() for table, levels in zip(tables[:2], self._levels, strict=False)]
        totals = [int(table.sum()) for table in tables[:2]]
        return np.array([agreed]), np.array([totals])

    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """What neighbours at both ends show, with the others there as well, if bits agree as seldom as is possible."""
        least = float(lower.min())
        planned = float(chances_of(np.abs(self._levels[0][:1]), self.mechanism.numerator)[0])
        noise = (1.0 - least) / (1.0 - planned) if planned < 1 else math.inf
        excess = min(2.0 * least - 1.0, 1.0 - _LEAST_AMPLITUDE)
        if excess < _LEAST_AMPLITUDE:
            return Revealed(noise, 0.0)
        shown = replace(self.mechanism.accountant(self.encoding, self.guarantee), amplitude=excess, tau=1.0)
        return Revealed(noise, shown.epsilon_lower(self.delta))

    def score(self, table: CountTable) -> float:
        """How many more bits agree with the one end than with the other."""
        zeros, ones = table.reshape(-1, 2).T
        return float(np.sum(np.sign(self._levels[0]) * (ones - zeros)))

    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Ones in all and of each coordinate, how many coordinates stray, and that each has all its reports."""
        totals, coordinates, strays, sent = [], [], [], []
        for number, (table, levels, held) in enumerate(zip(tables, self._levels, users, strict=True)):
            trials, chances = held * self.mechanism.bits, chances_of(levels, self.mechanism.numerator)
            each = table.reshape(-1, 2)
            coordinates.append(ExpectedCounts(f"crowd {number}, coordinate {{}}: a one", each[:, 1], trials, chances))
            sent.append(ExpectedCounts("coordinate {}", each.sum(axis=1), trials, np.ones(len(each))))
            if number == 2:
                continue  # there each coordinate has a chance of its own
            agreeing = self._agreeing(table, levels)
            agrees = chances_of(np.abs(levels[:1]), self.mechanism.numerator)
            name = f"crowd {number}: a bit that agrees with what is held"
            totals.append(ExpectedCounts(name, np.array([agreeing.sum()]), trials * len(each), agrees))
            far, chance = _strays(agreeing, trials, float(agrees[0]))
            name = f"crowd {number}: a coordinate with more or fewer ones than usual"
            strays.append(ExpectedCounts(name, np.array([far]), len(each), np.array([chance])))
        return [totals, coordinates, strays, sent]

    def cell_groups(self, number: int) -> list[CellGroup]:
        """In every coordinate, bits that agree with the sign of what is held."""
        levels = self._levels_of_all[number]
        chosen = auditing.evenly_spaced(len(levels))
        set_of_cell = np.full((len(levels), 2), -1, dtype=np.int64)
        set_of_cell[np.arange(len(levels)), (levels >= 0).astype(np.int64)] = auditing.index_among(len(levels), chosen)
        chances = chances_of(np.abs(levels[chosen]), self.mechanism.numerator)
        trials, nothing = np.full(len(chosen), self.mechanism.bits), np.zeros(len(chosen), dtype=np.int64)
        return [CellGroup("a bit that agrees with what is held", set_of_cell.reshape(-1), nothing, trials, chances)]

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """That everybody sends as many bits of each coordinate."""
        coordinates = np.repeat(np.arange(self.encoding.coordinates, dtype=np.uint32), self.mechanism.bits)
        wrong = (np.sort(cells // 2, axis=1) != coordinates).any(axis=1)
        return [Events("other than all bits of each coordinate", wrong[:, None], np.zeros(1))]

    def _agreeing(self, table: CountTable, levels: NDArray[np.int64]) -> CountTable:
        """Of each coordinate, the bits that agree with the sign of what is held; ones at 0."""
        each = table.reshape(-1, 2)
        return each[np.arange(len(each)), (levels >= 0).astype(np.int64)]


def _strays(counts: CountTable, trials: int, chance: float) -> tuple[int, float]:
    """How many counts lie a deviation or more from their mean, and how likely that is for each: binomial, exactly."""
    if chance in (0.0, 1.0):
        return int(np.sum(counts != trials * chance)), 0.0
    mean, deviation = trials * chance, math.sqrt(trials * chance * (1 - chance))
    lowest, terms, total, _ = binomial_window(trials, chance, chance / (1 - chance), 1e-12)
    values = lowest + np.arange(len(terms))
    far = float(terms[np.abs(values - mean) >= deviation].sum() / total)
    return int(np.sum(np.abs(counts - mean) >= deviation)), far
