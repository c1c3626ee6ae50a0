"""What reports must look like, one small statistic each: counts of independent events whose chances the plan gives.

First what observed counts prove about the chances behind them, and how likely counts are odd, equal, above their usual
number, or far from their mean under the plan. Then which counts deviate by more than chance allows,
at an error that is shared out among all of them; how much less noise shows among so many users; and the one event that
shows a user in a thousand who adds no noise.

Everything is counted in sets of cells whose counts the plan makes independent binomials (`CellGroup`), and in
the events that a mechanism adds (`Events`). An event of two users, or of two sets, has the product of their chances.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._search import bisect
from shufflesum.mechanisms.auditing import Attack, CellGroup, Events, ExpectedCounts
from shufflesum.privacy.engine.laws import binomial_window


def deviation(successes: ArrayLike, trials: ArrayLike, chance: ArrayLike) -> NDArray[np.float64]:
    """n KL(successes/n, chance): so far out, on one side, a binomial count lies with chance e^-that or less."""
    s, n, p = (np.asarray(part, dtype=np.float64) for part in (successes, trials, chance))
    with np.errstate(divide="ignore", invalid="ignore"):
        hits = np.where(s > 0, s * np.log(s / (n * p)), 0.0)
        misses = np.where(s < n, (n - s) * np.log((n - s) / (n * (1 - p))), 0.0)
    return np.where(s > n, np.inf, np.maximum(hits + misses, 0.0))


def chances(successes: int, trials: int, chance_of_error: float) -> tuple[float, float]:
    """Bounds that the chance of success keeps, each but for `chance_of_error`: Chernoff's bound turned round."""
    above, below = (_upper_chance(count, trials, chance_of_error) for count in (successes, trials - successes))
    return 1 - below, above


def _upper_chance(successes: int, trials: int, chance_of_error: float) -> float:
    def excluded(chance: float) -> bool:
        return float(deviation(successes, trials, chance)) > -math.log(chance_of_error)

    return min(1.0, bisect(excluded, successes / trials if trials else 1.0, 1.0)[1])


@dataclass(frozen=True, slots=True)
class Tested:
    """One kind of finding: how many counts were compared with the plan, and how many events are in them."""

    kind: str
    counts: int
    events: int


class Judged(NamedTuple):
    """What was found, and what was looked at."""

    findings: tuple[str, ...]
    tested: tuple[Tested, ...]


def judged(kinds: Sequence[tuple[str, Sequence[ExpectedCounts]]], chance_of_error: float) -> Judged:
    """The worst count of each kind that lies too far out.

    Kinds share the chance of error evenly, and so do both sides of each count within a kind: where all counts follow
    the plan, Chernoff's bound and the union bound make any finding at all less likely than that.
    """
    found, tested = [], dict[str, Tested]()
    present = [(kind, counts) for kind, counts in kinds if counts]
    for kind, counts in present:
        size = sum(each.observed.size for each in counts)
        worst, text = math.log(2 * size * len(present) / chance_of_error), None
        for name, observed, trials, chances in counts:
            deviations = deviation(observed, trials, chances)
            index = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
            if deviations[index] > worst:
                expected = f"{trials * chances[index]:,.0f} of {trials:,}"
                text = f"{name.format(*index)} {observed[index]:,} times; the plan expects {expected}"
                worst = deviations[index]
        found += [text] if text else []
        before = tested.get(kind, Tested(kind, 0, 0))
        events = sum(each.observed.size * each.trials for each in counts)
        tested[kind] = Tested(kind, before.counts + size, before.events + events)
    return Judged(tuple(found), tuple(tested.values()))


Floats = NDArray[np.float64]
_CUT = 1e-15  # what is left out of a distribution on either side, relative to its largest term
_MOST_CHANCES = 64  # different ones, that a sum is worked out for


class Band(NamedTuple):
    """Counts from `low` to `high` are within so many deviations; all others have a chance of `outside` or less."""

    low: Floats
    high: Floats
    outside: Floats


class Pmf(NamedTuple):
    """The chances of `lowest` and the counts that follow it; all others have `beyond` or less together."""

    lowest: int
    terms: Floats
    beyond: float


def pmf_of_sum(trials: NDArray[np.int64], chances: Floats) -> Pmf | None:
    """The distribution of all counts together; None where they have too many different chances."""
    distinct, inverse = np.unique(chances, return_inverse=True)
    if len(distinct) > _MOST_CHANCES:
        return None
    totals = np.bincount(inverse, weights=trials).astype(np.int64)
    pmf = Pmf(0, np.ones(1), 0.0)
    for total, chance in zip(totals, distinct, strict=True):
        other = _pmf(int(total), float(chance))
        pmf = Pmf(pmf.lowest + other.lowest, np.convolve(pmf.terms, other.terms), pmf.beyond + other.beyond)
    return pmf


def _each(
    trials: NDArray[np.int64], chances: Floats, answer: Callable[[int, float], float | tuple[float, ...]]
) -> Floats:
    pairs, inverse = np.unique(np.stack([trials, chances]), axis=1, return_inverse=True)
    answers = np.array([answer(int(trial), float(chance)) for trial, chance in pairs.T])
    return answers[np.reshape(inverse, -1)]


@lru_cache(maxsize=1 << 13)
def _pmf(trials: int, chance: float) -> Pmf:
    if trials == 0 or chance in (0.0, 1.0):
        return Pmf(int(trials * chance), np.ones(1), 0.0)
    lowest, terms, total, beyond = binomial_window(trials, chance, chance / (1 - chance), _CUT)
    return Pmf(lowest, terms / total, beyond / total)


def _above(trials: int, chance: float) -> float:
    """How likely a count exceeds its usual number."""
    pmf = _pmf(trials, chance)
    return float(pmf.terms[max(0, int(_usual(np.array(trials), np.array(chance))) + 1 - pmf.lowest) :].sum())


def _equal(trials: int, chance: float) -> float:
    """How likely two independent counts are the same number: their collision probability, or a bit more."""
    pmf = _pmf(trials, chance)
    return min(1.0, float(pmf.terms @ pmf.terms) + pmf.beyond)


def _usual(trials: NDArray[np.int64], chances: Floats) -> NDArray[np.int64]:
    """What a count hardly exceeds in half of all cases: its mean, rounded down."""
    return np.minimum(np.floor(trials * chances).astype(np.int64), trials - 1)


def _band(pmf: Pmf, deviations: float) -> tuple[float, float, float]:
    values = pmf.lowest + np.arange(len(pmf.terms))
    mean = float(values @ pmf.terms)
    reach = deviations * float(np.sqrt(np.maximum((values - mean) ** 2 @ pmf.terms, 0.0)))
    low, high = mean - reach, mean + reach
    outside = float(pmf.terms[(values < low) | (values > high)].sum()) + pmf.beyond
    return low, high, min(1.0, outside)


EVIDENCE = 50.0  # deviation of the mean, beside some 25 that the confidence asks for: missed hardly ever


def less_noise_shown(group: CellGroup, silent: Floats | None, users: int) -> float | None:
    """The least part of their noise that so many users cannot lack unseen; None where they may lack all of it.

    A user lacks a part x of it whose counts have the chances (1 - x) p + x s, with s those of who adds none: `silent`,
    or 0 where noise is beside what is held.
    """
    found = bisect(lambda part: _evidence(group, silent, part) * users >= EVIDENCE, 0.0, 1.0, tolerance=1e-3)[1]
    return found if math.isfinite(found) else None


def users_to_show(group: CellGroup, silent: Floats | None, part: float) -> float:
    """How many users are enough for such a part; infinitely many where it makes no difference."""
    evidence = _evidence(group, silent, part)
    return EVIDENCE / evidence if evidence > 0 else math.inf


def _evidence(group: CellGroup, silent: Floats | None, part: float) -> float:
    """What one user adds to the deviation of the number of all counts."""
    trials = group.trials.astype(np.float64)
    planned, quiet = float(trials @ group.chances), 0.0 if silent is None else float(trials @ silent)
    return float(deviation((1 - part) * planned + part * quiet, trials.sum(), planned / trials.sum()))


_SILENT = 1e-3  # the part of all users


class RareEventTest(NamedTuple):
    """That a user's reports in all cells together are so few, or so many: its chance, and who is enough to see it."""

    name: str
    counted: NDArray[np.float32]  # of each cell, and of one more for all that are none: 1 where a set holds it
    edge: int
    few: bool
    chance: float
    users: float

    def happened(self, cells: NDArray[np.uint32]) -> int:
        """How many of these users, (users, reports), did it."""
        found = self.counted[np.minimum(cells, len(self.counted) - 1)]
        totals = found @ np.ones(found.shape[1], dtype=np.float32)
        return int(np.count_nonzero(totals <= self.edge if self.few else totals >= self.edge))


def rare_event(group: CellGroup, silent: Floats) -> RareEventTest | None:
    """The event that tells users whose counts have the chances `silent` from the others soonest; None where none does.

    Counts of sets of cells are added up: of two distributions of a sum, the ratio is largest at an end.
    """
    usual, quiet = pmf_of_sum(group.trials, group.chances), pmf_of_sum(group.trials, silent)
    if usual is None or quiet is None or group.true.any():
        return None
    size = int(group.trials.sum()) + 1
    terms = np.zeros((2, size))
    for row, pmf in zip(terms, (usual, quiet), strict=True):
        row[pmf.lowest : pmf.lowest + len(pmf.terms)] = pmf.terms
    means = terms @ np.arange(size)
    few = bool(means[1] < means[0])
    chances, hits = np.cumsum(terms if few else terms[:, ::-1], axis=1)
    chances = np.minimum(1.0, chances + usual.beyond)
    seen = chances + _SILENT * np.maximum(0.0, hits - chances)
    evidence = np.where(seen > chances, deviation(seen, 1.0, chances), 0.0)
    best = int(np.argmax(evidence))
    if not evidence[best] > 0:
        return None
    edge = best if few else size - 1 - best
    name = f"{group.name}, by one user, {'at most' if few else 'at least'} {edge} times,"
    counted = np.append(group.set_of_cell >= 0, False).astype(np.float32)
    users = max(EVIDENCE / float(evidence[best]), EVIDENCE / _SILENT)
    return RareEventTest(name, counted, edge, few, float(chances[best]), users)


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
            for index, more in enumerate((int(happened), int(trials), float(expected))):
                sums[index] += more

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


_MOST_COUNTS = 1 << 21  # users x sets that are counted at once
_FAR, _VERY_FAR = 1.0, 6.0  # deviations: how much counts vary; single users who are unlike all others
_SMALL_BATCHES = (8, 64)


class Watch:
    """Adds up what is seen of one path, the many-row one or another, for `judged` to compare with the plan."""

    def __init__(self, attack: Attack, sums: Sums, path: str, honest_users: int) -> None:
        self._attack, self._sums, self._path = attack, sums, path
        self._batches = (*_SMALL_BATCHES, honest_users)
        self._known: dict[int, list[_CellSets]] = {}

    def users(self, number: int, cells: NDArray[np.uint32]) -> None:
        """See reports of neighbours who all hold what crowd `number` does, (users, reports) in their order."""
        for sets in self._sets_of(number):
            size = max(2, _MOST_COUNTS // len(sets.group.true))
            for start in range(0, len(cells), size):
                counts = sets.counted(cells[start : start + size])
                self._total("noise of all users", self._of_like(number, sets), sets, counts, 1)
                self._far("single users", f"{sets.name}, by one user,", sets, counts, 1, (_FAR, _VERY_FAR))
                for batch in sorted({min(b, len(counts)) for b in (*self._batches, len(counts))}):
                    whole = len(counts) // batch
                    together = counts[: whole * batch].reshape(whole, batch, -1).sum(axis=1)
                    self._batch(sets, together, batch)
                self._neighbours(sets.exceeding(counts))
                self._within(sets.exceeding(counts))
        for events in self._attack.events(number, cells):
            self._add("single users", events.name, events.happened, events.chances)
            self._neighbours(events)

    def calls(self, kind: str, number: int, first: NDArray[np.uint32], second: NDArray[np.uint32]) -> None:
        """See what two calls, or two processes, gave for the same rows: nothing in common but what is held."""
        pairs = [
            tuple(sets.exceeding(sets.counted(cells)) for cells in (first, second)) for sets in self._sets_of(number)
        ]
        pairs += zip(self._attack.events(number, first), self._attack.events(number, second), strict=True)
        for one, other in pairs:
            both = one.happened & other.happened
            self._add(kind, f"{one.name}, by the same user both times,", both, one.chances**2)

    def tables(self, number: int, tables: Sequence[NDArray[np.int64]], users: int) -> None:
        """See tables of counts of whole batches of so many users, where single users' reports are not to be had."""
        for sets in self._sets_of(number):
            counts = sets.summed(tables) - users * sets.group.true
            self._total("noise in whole batches", self._of_like(number, sets), sets, counts, users)
            self._batch(sets, counts, users)
            self._neighbours(sets.exceeding(counts, users), "neighbouring batches")
            self._equal(sets, counts, users)

    def held(self, variant: int, cells: NDArray[np.uint32]) -> None:
        """See reports of users who hold a variant: noise must be the same whatever is held."""
        for name, sets in self._of_variant(variant):
            self._total("what is held", name, sets, sets.counted(cells), 1)

    def held_by_all(self, variant: int, tables: Sequence[NDArray[np.int64]], users: int) -> None:
        """The same of whole batches of so many users, who all hold it."""
        for name, sets in self._of_variant(variant):
            self._total("what is held", name, sets, sets.summed(tables) - users * sets.group.true, users)

    def like_first(self, number: int) -> bool:
        """Whether noise beside what this crowd holds is distributed as the first crowd's: then they are added up."""
        return all(self._like(number, sets) == 0 for sets in self._sets_of(number))

    def _like(self, number: int, sets: _CellSets) -> int:
        """The first crowd with the same distribution of noise."""
        found = ((before, other) for before in range(number + 1) for other in self._sets_of(before))
        return next(before for before, other in found if other.same_noise(sets))

    def _of_like(self, number: int, sets: _CellSets) -> str:
        return f"{sets.name}, by crowd {self._like(number, sets)} and those like it,"

    def _of_variant(self, variant: int) -> list[tuple[str, _CellSets]]:
        """By itself, and with all variants of its kind, which few users of each are enough for."""
        kind = self._attack.variants[variant].kind
        names = f"where users hold variant {variant} ({kind}),", f"where users hold {kind},"
        found = self._sets_of(len(self._attack.crowds) + variant)
        return [(f"{sets.name}, {name}", sets) for sets in found for name in names]

    def _total(self, kind: str, name: str, sets: _CellSets, counts: NDArray[np.int64], users: int) -> None:
        """All counts of all sets, over so many users each, as one number."""
        trials = len(counts) * users * sets.group.trials
        happened = int(np.clip(counts, 0, None).sum())
        self._sums.add(kind, self._named(name), happened, int(trials.sum()), float(trials @ sets.group.chances))

    def _batch(self, sets: _CellSets, counts: NDArray[np.int64], users: int) -> None:
        """Counts, (batches, sets of cells), over so many users each: their variance, and whether they are odd."""
        name = f"{sets.name}, over {users:,} users,"
        band, odd = sets.band(users), sets.odd(users)
        far = (counts < band.low) | (counts > band.high)
        self._add("variance across batches", f"{name} a deviation or more from the mean", far, band.outside)
        self._add("parity", f"{name} an odd number", counts % 2 == 1, odd)
        if len(sets.group.true) > 1:
            chance = (1 - np.prod(1 - 2 * odd, keepdims=True)) / 2
            odd_total = counts.sum(axis=1, keepdims=True) % 2 == 1
            self._add("parity", f"{name} an odd number in all cells together", odd_total, chance)
            self._far("variance across batches", f"{name} in all cells together", sets, counts, users)

    def _far(
        self,
        kind: str,
        name: str,
        sets: _CellSets,
        counts: NDArray[np.int64],
        users: int,
        deviations: Sequence[float] = (_FAR,),
    ) -> None:
        """How much users, or batches, report beyond what is true, in all cells together."""
        total = counts.sum(axis=1, keepdims=True)
        for far in deviations:
            band = sets.band_of_sum(users, far)
            if band is not None:
                outside = (total < band.low) | (total > band.high)
                self._add(kind, f"{name} {far:g} deviations or more from the mean", outside, band.outside)

    def _neighbours(self, events: Events, kind: str = "neighbouring users") -> None:
        """The same of two neighbours; pairs that share nobody are independent."""
        name, happened, chances = events
        for which, one, other in _neighbouring(happened):
            self._add(kind, f"{name}, by both of two neighbours ({which}),", one & other, chances**2)

    def _equal(self, sets: _CellSets, counts: NDArray[np.int64], users: int) -> None:
        """The same count in two batches of so many users each.

        Repeated draws show here in a few batches: the larger these are, the less often two counts agree by chance.
        """
        for which, one, other in _neighbouring(counts):
            name = f"{sets.name}, equally often in two neighbouring batches ({which}),"
            self._add("neighbouring batches", name, one == other, sets.equal(users))

    def _within(self, events: Events) -> None:
        """Two sets of cells of one user."""
        name, happened, chances = events
        for start, which in enumerate(("even", "odd")):
            one, other = _paired(happened.T, start)
            first, second = _paired(chances, start)
            kind = "pairs of one user's reports"
            self._add(kind, f"{name}, in both of two sets of cells ({which}),", (one & other).T, first * second)

    def _sets_of(self, number: int) -> list[_CellSets]:
        if number not in self._known:
            self._known[number] = [_CellSets(group) for group in self._attack.cell_groups(number)]
        return self._known[number]

    def _add(self, kind: str, name: str, happened: NDArray[np.bool_], chances: Floats) -> None:
        """Add (users or batches, events); each row has these chances."""
        expected = len(happened) * float(np.sum(chances))
        self._sums.add(kind, self._named(name), int(happened.sum()), happened.size, expected)

    def _named(self, name: str) -> str:
        return f"{self._path}: {name} happened"


class _CellSets:
    """Sets of cells, and the distributions of their counts over so many users, each worked out once."""

    def __init__(self, group: CellGroup) -> None:
        self.group, self.name = group, group.name
        trials, p = group.trials, group.chances
        self.band = cache(lambda users: Band(*_each(users * trials, p, lambda n, q: _band(_pmf(n, q), _FAR)).T))
        self.odd = cache(lambda users: (1 - (1 - 2 * p) ** (users * trials)) / 2)
        self.equal = cache(lambda users: _each(users * trials, p, _equal))
        self.above = cache(lambda users: _each(users * trials, p, _above))
        self._pmf_of_sum = cache(lambda users: pmf_of_sum(users * trials, p))

    def band_of_sum(self, users: int, far: float) -> Band | None:
        """The band of all counts together; None where they have too many different chances."""
        pmf = self._pmf_of_sum(users)
        return None if pmf is None else Band(*(np.array([part]) for part in _band(pmf, far)))

    def same_noise(self, other: _CellSets) -> bool:
        """Whether the same may be counted as often, and as likely."""
        mine, its = self.group, other.group
        return self.name == other.name and all(
            map(np.array_equal, (mine.trials, mine.chances), (its.trials, its.chances))
        )

    def exceeding(self, counts: NDArray[np.int64], users: int = 1) -> Events:
        """Which counts are above their usual number."""
        limit = _usual(users * self.group.trials, self.group.chances)
        return Events(self.name, counts > limit, self.above(users))

    def counted(self, cells: NDArray[np.uint32]) -> NDArray[np.int64]:
        """(users, sets): how often each user reported each set beyond what is true."""
        users, size, sets = len(cells), len(self.group.true), self.group.set_of_cell
        known = cells < len(sets)
        found = np.where(known, sets[np.where(known, cells, 0)], -1)
        flat = (np.arange(users)[:, None] * size + found)[found >= 0]
        return np.bincount(flat, minlength=users * size).reshape(users, size) - self.group.true

    def summed(self, tables: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """(tables, sets): the counts of sets."""
        seen, size = self.group.set_of_cell >= 0, len(self.group.true)
        sums = [np.bincount(self.group.set_of_cell[seen], weights=table[seen], minlength=size) for table in tables]
        return np.array(sums).astype(np.int64)


def _neighbouring(items: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    """Pairs of neighbours, and of items half of all apart; those of one name share none."""
    half = len(items) // 2
    for start, which in enumerate(("even", "odd")):
        yield which, *_paired(items, start)
    yield "half of all apart", items[:half], items[half : 2 * half]


def _paired(items: NDArray[Any], start: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Each second item from `start` on, and those that follow them."""
    end = start + (len(items) - start) // 2 * 2
    return items[start:end:2], items[start + 1 : end : 2]
