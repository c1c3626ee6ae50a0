"""What an audit attacks under `randomized-response`: a victim at x or at x', all others at a third value v (for K = 2,
at x).

Where some channel, applied to each report, turns every law in an enclosure of the observed chances into the law of an
honest randomizer at noise probability g, the running randomizer reveals at least what is revealed at g, because
processing outputs reveals nothing new; what concrete data sets show at g is then its epsilon, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._search import bisect
from shufflesum.encodings import Levels
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import CellGroup, Events, ExpectedCounts, Revealed, Variant
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy import Guarantee
from shufflesum.privacy.randomized_response.schemes import Blocks, Subsets

if TYPE_CHECKING:
    from shufflesum.mechanisms.randomized_response.mechanism import RandomizedResponse


_Levels = NDArray[np.int64]
_MARGIN = 1e-14  # for rounding in determinants of numbers below 1


@dataclass(frozen=True)
class RandomizedResponseAttack(auditing.Attack):
    """Crowds at x, at x', at v (unless K = 2), and one whose coordinates differ, so that these can be told apart."""

    mechanism: RandomizedResponse
    encoding: Levels
    values: tuple[int, int, int]  # x, x' and v

    @staticmethod
    def of(
        mechanism: RandomizedResponse,
        encoding: Levels,
        held: auditing.Held,
        guarantee: Guarantee,
        sample_table: Callable[[Any], CountTable],
    ) -> RandomizedResponseAttack:
        """Attack where noise is least by the look of a few reports; honest noise is the same for all values."""

        def reported(level: int) -> CountTable:
            table = sample_table(_row(encoding, held, np.full(encoding.dimension, level), mechanism.levels))
            return np.asarray(table.reshape(-1, mechanism.values).sum(axis=0))

        if mechanism.levels == 1:
            x = int(np.argmax([reported(level)[level] for level in (0, 1)]))
            return RandomizedResponseAttack(mechanism, encoding, held, guarantee, (x, 1 - x, x))
        v = mechanism.levels // 2
        rarest = [int(w) for w in np.argsort(reported(v)) if w != v]
        return RandomizedResponseAttack(mechanism, encoding, held, guarantee, (rarest[0], rarest[1], v))

    @cached_property
    def _held(self) -> list[_Levels]:
        """The level that each crowd holds in each coordinate."""
        dimension = self.encoding.dimension
        alike = [np.full(dimension, value) for value in dict.fromkeys(self.values)]
        return [*alike, auditing.mixed_levels(self.mechanism.levels, dimension)]

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What each crowd holds."""
        return tuple(_row(self.encoding, self.held, levels, self.mechanism.levels) for levels in self._held)

    @cached_property
    def _varied(self) -> list[tuple[Variant, Floats]]:
        """Each value everywhere, and rows off the levels; with the position of each coordinate among the levels."""
        encoding, held, top = self.encoding, self.held, self.mechanism.levels
        everywhere = [
            np.full(encoding.dimension, float(value))
            for value in auditing.variants_of(self.mechanism.values, encoding.dimension)
        ]
        found = [(Variant("one value everywhere", _row(encoding, held, levels, top)), levels) for levels in everywhere]
        if encoding.scale is not None:
            for kind, values in auditing.off_levels(encoding.scale, top):
                row = Variant(kind, held.example(values=values))
                found.append((row, auditing.positions_of(encoding.scale, values, top)))
        return found

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Each value everywhere, and of numbers rows off the levels."""
        return tuple(variant for variant, _ in self._varied)

    @property
    def others(self) -> Any:
        """v everywhere."""
        return self.crowds[list(dict.fromkeys(self.values)).index(self.values[2])]

    @property
    def samples(self) -> int:
        """Enough to see each kind of noise often."""
        return math.ceil(4 * auditing.NOISY_REPORTS * self.mechanism.values / self.mechanism.noise_probability)

    @property
    def silent(self) -> Floats:
        """Never another value than the one held."""
        return np.zeros_like(self.cell_groups(0)[0].chances)

    @property
    def lower_bound_known(self) -> bool:
        """Not for subsets of coordinates that overlap."""
        return isinstance(self._scheme, Blocks)

    @property
    def _scheme(self) -> Blocks | Subsets:
        return self.mechanism.accountant(self.encoding, self.guarantee).scheme

    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """How often x, x' and anything else (columns) was reported by those who hold x, x' and v (rows)."""
        held = list(dict.fromkeys(self.values))
        counts = np.zeros((len(held), len(held)), dtype=np.int64)
        totals = np.zeros(len(held), dtype=np.int64)
        for row, (value, table) in enumerate(zip(held, tables, strict=False)):
            reported = self._values_reported(table, self._held[row], value)
            totals[row] = reported.sum()
            counts[row, :2] = reported[held[0]], reported[held[1]]
            if len(held) == 3:
                counts[row, 2] = totals[row] - counts[row, :2].sum()
        return counts, np.repeat(totals[:, None], len(held), axis=1)

    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """The least noise that a channel can turn every enclosed law into, and what x against x' shows of it.

        The bound looks only at how many reports of a block are x, x' or neither, as the channel does.
        """
        gamma = noise_simulated(self.mechanism.values, lower, upper)
        scheme = self._scheme
        noise = gamma / self.mechanism.noise_probability
        if gamma == 1 or not isinstance(scheme, Blocks):
            return Revealed(noise, 0.0)
        return Revealed(noise, scheme.lower(gamma).epsilon(self.delta))

    def score(self, table: CountTable) -> float:
        """How much likelier the table is with a victim at x than at x', summed over blocks (docs/privacy.md).

        One victim among users at v: the likelihood, relative to n users at v, is the mean over reports of the ratio of
        the two laws. For subsets of coordinates that overlap this is not exact; any score makes a valid attack.
        """
        starts = self.mechanism.block_starts(self.encoding) if self.lower_bound_known else np.zeros(1, dtype=np.int64)
        blocks = np.add.reduceat(table.reshape(-1, self.mechanism.values), starts, axis=0)
        x, other_x, v = (self._chances_of(value) for value in self.values)
        tiny = np.finfo(np.float64).tiny  # a block without reports must not stop the attack
        return float(np.sum(np.log(np.maximum(blocks @ (x / v), tiny) / np.maximum(blocks @ (other_x / v), tiny))))

    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Values by what was held, coordinates, every cell, and that there are no blanks.

        This shows noise that is not uniform, and correlated draws.
        """
        sampled = self.mechanism.sampling_probabilities(self.encoding)
        values, coordinates, cells, kept, accepted = [], [], [], 0, 0
        for flat, held, count in zip(tables, self._held, users, strict=True):
            table = flat.reshape(-1, self.mechanism.values)
            kept, accepted = kept + table[np.arange(len(held)), held].sum(), accepted + int(flat.sum())
            for level in np.unique(held):
                reported = self._values_reported(flat, held, level)
                name = f"where users held {level}, value {{}}"
                values.append(ExpectedCounts(name, reported, int(reported.sum()), self._chances_of(int(level))))
            coordinates.append(ExpectedCounts("coordinate {}", table.sum(axis=1), count, sampled))
            cell_chances = sampled[:, None] * np.stack([self._chances_of(int(level)) for level in held])
            cells.append(ExpectedCounts("coordinate {} with value {}", table, count, cell_chances))
        values.append(ExpectedCounts("the value held", np.array([kept]), accepted, self._chances_of(0)[:1]))
        sent = ExpectedCounts("a cell", np.array([accepted]), self.mechanism.coordinates * sum(users), np.ones(1))
        return [values, coordinates, cells, [sent]]

    def cell_groups(self, number: int) -> list[CellGroup]:
        """Noise, one value of it, and the first coordinates of each block; of subsets that overlap, the first one.

        A value between levels is rounded to either of them: both are no noise, and the farther one comes out with the
        chance gamma/K + (1 - gamma) r where r is how far it is from the nearer one.
        """
        mechanism = self.mechanism
        held = self._held[number] if number < len(self._held) else self._varied[number - len(self._held)][1]
        dimension, values, gamma = len(held), mechanism.values, mechanism.noise_probability
        sampled = mechanism.coordinates
        subsets = mechanism.sampling == "uniform" and sampled < dimension
        starts = np.zeros(1, dtype=np.int64) if subsets else mechanism.block_starts(self.encoding)
        chosen, sizes = auditing.evenly_spaced(len(starts)), np.diff(starts, append=dimension)
        block = np.repeat(auditing.index_among(len(starts), chosen), sizes)
        trials = np.full(len(chosen), sampled if subsets else 1)
        nothing = np.zeros(len(chosen), dtype=np.int64)

        def where(name: str, cells: NDArray[np.bool_], chances: ArrayLike, trials: _Levels = trials) -> CellGroup:
            set_of_cell = np.where(cells, block[:, None], -1).reshape(-1)
            return CellGroup(name, set_of_cell, nothing, trials, np.broadcast_to(np.asarray(chances), len(chosen)))

        def in_blocks(chances: Floats) -> Floats:
            """Of the coordinate that is sampled from each block."""
            return (np.add.reduceat(chances, starts) / sizes)[chosen]

        reported, below = np.arange(values)[None, :], np.floor(held).astype(np.int64)
        above = (below + 1) % values
        if np.array_equal(held, below):
            found = [where("another value than the one held", reported != below[:, None], gamma * (1 - 1 / values))]
            if values > 2:
                found.append(where("the value after the one held", reported == above[:, None], gamma / values))
        else:
            between, part = held > below, held - below
            given = (reported == below[:, None]) | between[:, None] & (reported == above[:, None])
            farther = np.where(part < 0.5, above, below)  # on a level: the one after it
            chances = gamma / values + (1 - gamma) * np.minimum(part, 1 - part)
            found = [
                where("a value that rounding does not give", ~given, in_blocks(gamma * (1 - (1 + between) / values))),
                where("the farther of two levels", reported == farther[:, None], in_blocks(chances)),
            ]
        if sampled == dimension:
            return found
        within, every = np.arange(dimension) - np.repeat(starts, sizes), np.ones((dimension, values), dtype=np.bool_)
        if subsets:
            first = every & (within == 0)[:, None]
            return [*found, where("the first coordinate", first, sampled / dimension, np.ones_like(trials))]
        halves = sizes // 2
        first = every & (within < np.repeat(halves, sizes))[:, None]
        return [*found, where("the first coordinates of a block", first, (halves / sizes)[chosen])]

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """That coordinates are sampled as the plan says: one of each block, or none twice; and two of them together."""
        dimension, sampled = self.encoding.dimension, self.mechanism.coordinates
        coordinates = np.sort(cells // self.mechanism.values, axis=1).astype(np.int64)
        if self.mechanism.sampling == "stratified" or sampled == dimension:
            starts = self.mechanism.block_starts(self.encoding)
            blocks = np.searchsorted(starts, coordinates, side="right") - 1
            wrong = (blocks != np.arange(sampled)).any(axis=1)
            return [Events("other than one report from each block", wrong[:, None], np.zeros(1))]
        twice = (coordinates[:, 1:] == coordinates[:, :-1]).any(axis=1)
        both = (coordinates == 0).any(axis=1) & (coordinates == 1).any(axis=1)
        chance = np.array([sampled * (sampled - 1) / (dimension * (dimension - 1))])
        return [
            Events("a coordinate twice", twice[:, None], np.zeros(1)),
            Events("the first two coordinates", both[:, None], chance),
        ]

    def _chances_of(self, held: int) -> Floats:
        """The chances of each value to be reported by who holds this one."""
        chances = np.full(self.mechanism.values, self.mechanism.noise_probability / self.mechanism.values)
        chances[held] += 1 - self.mechanism.noise_probability
        return chances

    def _values_reported(self, table: CountTable, held: _Levels, level: int) -> CountTable:
        """How often each value came out where `level` went in."""
        return np.asarray(table.reshape(-1, self.mechanism.values)[held == level].sum(axis=0))


def _row(encoding: Levels, held: auditing.Held, levels: ArrayLike, highest: int) -> Any:
    """What a user holds whose coordinates lie on these whole levels."""
    if encoding.scale is None:
        return held.example(cells=[int(np.ravel(levels)[0])])
    return held.example(values=auditing.values_at(encoding.scale, levels, highest))


def noise_simulated(values: int, lower: Floats, upper: Floats) -> float:
    """The least noise probability that a channel can turn every law between `lower` and `upper` into, or 1.

    Laws are square: rows what a user holds, columns what comes out; the diagonal is the rest of its row. The channel is
    law^-1 honest: its rows sum to 1, because those of both laws do. By Cramer's rule its entry (i, j) is a ratio of
    determinants, of the law with column i replaced by column j of honest, and of the law. Both are affine in each row
    of the law, and rows vary independently, so the corners of the enclosure decide whether they are positive.
    """
    size = len(lower)
    rows = []
    for row in range(size):
        ends = [(lower[row, column], upper[row, column]) if column != row else (0.0,) for column in range(size)]
        corners = np.array(list(itertools.product(*ends)))
        corners[:, row] = 1 - corners.sum(axis=1)
        rows.append(corners)
    cell_chances = np.array(list(itertools.product(*rows)))

    def is_channel(noise_probability: float) -> bool:
        honest = honest_channel(values, size, noise_probability)
        replaced = np.tile(cell_chances[:, None, None], (1, size, size, 1, 1))
        for i in range(size):
            replaced[:, i, :, :, i] = honest.T
        return bool(np.all(np.linalg.det(replaced) > _MARGIN))

    if np.any(np.linalg.det(cell_chances) <= _MARGIN):
        return 1.0
    return min(1.0, bisect(is_channel, 0.0, 1.0, steps=60)[1])


def honest_channel(values: int, size: int, noise_probability: float) -> Floats:
    """The law of the plan's randomizer, with all values but the first size - 1 taken together."""
    chances = np.full((size, size), noise_probability / values)
    chances[:, -1] *= values - (size - 1)
    chances[np.diag_indices(size)] += 1 - noise_probability
    return chances
