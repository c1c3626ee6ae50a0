"""Single users, neighbours and batches: what the reports of users who hold the same must look like together.

Everything is counted in places, sets of cells whose counts the plan makes independent binomials (`Places`), and in the
events that a mechanism adds (`Events`). An event of two users, or of two places, has the product of their chances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.audit.findings.laws import (
    Floats,
    band_of_each,
    band_of_sum,
    chance_above,
    chance_equal,
    chance_odd,
    usual,
)
from shufflesum.audit.findings.sums import Sums
from shufflesum.mechanisms import Attack, Events, Places

__all__ = ["Watch"]

_MOST_COUNTS = 1 << 21  # users x places that are counted at once
_FAR, _VERY_FAR = 1.0, 6.0  # deviations: how much counts vary; single users who are unlike all others
_SMALL_BATCHES = (8, 64)


class Watch:
    """Adds up what is seen of one path, the many-row one or another, for `judged` to compare with the plan."""

    def __init__(self, attack: Attack, sums: Sums, path: str, honest_users: int) -> None:
        self._attack, self._sums, self._path = attack, sums, path
        self._batches = (*_SMALL_BATCHES, honest_users)
        self._known: dict[int, list[_Law]] = {}

    def users(self, number: int, cells: NDArray[np.uint32]) -> None:
        """See reports of neighbours who all hold what crowd `number` does, (users, reports) in their order."""
        for law in self._laws(number):
            size = max(2, _MOST_COUNTS // len(law.places.true))
            for start in range(0, len(cells), size):
                counts = law.counted(cells[start : start + size])
                self._total("noise of all users", self._of_like(number, law), law, counts, 1)
                self._far("single users", f"{law.name}, by one user,", law, counts, 1, (_FAR, _VERY_FAR))
                for batch in sorted({min(b, len(counts)) for b in (*self._batches, len(counts))}):
                    whole = len(counts) // batch
                    together = counts[: whole * batch].reshape(whole, batch, -1).sum(axis=1)
                    self._batch(law, together, batch)
                self._neighbours(law.exceeding(counts))
                self._within(law.exceeding(counts))
        for events in self._attack.events(number, cells):
            self._add("single users", events.name, events.happened, events.chances)
            self._neighbours(events)

    def calls(self, kind: str, number: int, first: NDArray[np.uint32], second: NDArray[np.uint32]) -> None:
        """See what two calls, or two processes, gave for the same rows: nothing in common but what is held."""
        pairs = [(law.exceeding(law.counted(first)), law.exceeding(law.counted(second))) for law in self._laws(number)]
        pairs += zip(self._attack.events(number, first), self._attack.events(number, second), strict=True)
        for one, other in pairs:
            both = one.happened & other.happened
            self._add(kind, f"{one.name}, by the same user both times,", both, one.chances**2)

    def tables(self, number: int, tables: Sequence[NDArray[np.int64]], users: int) -> None:
        """See tables of counts of whole batches of so many users, where single users' reports are not to be had."""
        for law in self._laws(number):
            counts = law.summed(tables) - users * law.places.true
            self._total("noise in whole batches", self._of_like(number, law), law, counts, users)
            self._batch(law, counts, users)
            self._neighbours(law.exceeding(counts, users), "neighbouring batches")
            self._equal(law, counts, users)

    def held(self, variant: int, cells: NDArray[np.uint32]) -> None:
        """See reports of users who hold a variant: noise must be the same whatever is held."""
        for name, law in self._of_variant(variant):
            self._total("what is held", name, law, law.counted(cells), 1)

    def held_by_all(self, variant: int, tables: Sequence[NDArray[np.int64]], users: int) -> None:
        """The same of whole batches of so many users, who all hold it."""
        for name, law in self._of_variant(variant):
            self._total("what is held", name, law, law.summed(tables) - users * law.places.true, users)

    def like_first(self, number: int) -> bool:
        """Whether noise beside what this crowd holds has the first crowd's law: then they are added up."""
        return all(self._like(number, law) == 0 for law in self._laws(number))

    def _like(self, number: int, law: _Law) -> int:
        """The first crowd with the same law of noise."""
        laws = ((before, other) for before in range(number + 1) for other in self._laws(before))
        return next(before for before, other in laws if other.same_noise(law))

    def _of_like(self, number: int, law: _Law) -> str:
        return f"{law.name}, by crowd {self._like(number, law)} and those like it,"

    def _of_variant(self, variant: int) -> list[tuple[str, _Law]]:
        """By itself, and with all variants of its kind, which few users of each are enough for."""
        kind = self._attack.variants[variant].kind
        names = f"where users hold variant {variant} ({kind}),", f"where users hold {kind},"
        laws = self._laws(len(self._attack.crowds) + variant)
        return [(f"{law.name}, {name}", law) for law in laws for name in names]

    def _total(self, kind: str, name: str, law: _Law, counts: NDArray[np.int64], users: int) -> None:
        """All counts of all places, over so many users each, as one number."""
        trials = len(counts) * users * law.places.trials
        happened = int(np.clip(counts, 0, None).sum())
        self._sums.add(kind, self._named(name), happened, int(trials.sum()), float(trials @ law.places.chances))

    def _batch(self, law: _Law, counts: NDArray[np.int64], users: int) -> None:
        """Counts of places, (batches, places), over so many users each: their spread, and whether they are odd."""
        name = f"{law.name}, over {users:,} users,"
        band, odd = law.band(users), law.odd(users)
        far = (counts < band.low) | (counts > band.high)
        self._add("variance across batches", f"{name} a deviation or more from the mean", far, band.outside)
        self._add("parity", f"{name} an odd number", counts % 2 == 1, odd)
        if len(law.places.true) > 1:
            chance = (1 - np.prod(1 - 2 * odd, keepdims=True)) / 2
            odd_total = counts.sum(axis=1, keepdims=True) % 2 == 1
            self._add("parity", f"{name} an odd number in all places together", odd_total, chance)
            self._far("variance across batches", f"{name} in all places together", law, counts, users)

    def _far(
        self,
        kind: str,
        name: str,
        law: _Law,
        counts: NDArray[np.int64],
        users: int,
        deviations: Sequence[float] = (_FAR,),
    ) -> None:
        """How much users, or batches, report beyond what is true, in all places together."""
        total = counts.sum(axis=1, keepdims=True)
        for far in deviations:
            band = law.band_of_sum(users, far)
            if band is not None:
                outside = (total < band.low) | (total > band.high)
                self._add(kind, f"{name} {far:g} deviations or more from the mean", outside, band.outside)

    def _neighbours(self, events: Events, kind: str = "neighbouring users") -> None:
        """The same of two neighbours; pairs that share nobody are independent."""
        name, happened, chances = events
        for which, one, other in _neighbouring(happened):
            self._add(kind, f"{name}, by both of two neighbours ({which}),", one & other, chances**2)

    def _equal(self, law: _Law, counts: NDArray[np.int64], users: int) -> None:
        """The same count in two batches of so many users each.

        Repeated draws show here in a few batches: the larger these are, the less often two counts agree by chance.
        """
        for which, one, other in _neighbouring(counts):
            name = f"{law.name}, equally often in two neighbouring batches ({which}),"
            self._add("neighbouring batches", name, one == other, law.equal(users))

    def _within(self, events: Events) -> None:
        """Two places of one user."""
        name, happened, chances = events
        for start, which in enumerate(("even", "odd")):
            one, other = _paired(happened.T, start)
            first, second = _paired(chances, start)
            kind = "pairs of one user's reports"
            self._add(kind, f"{name}, in both of two places ({which}),", (one & other).T, first * second)

    def _laws(self, number: int) -> list[_Law]:
        if number not in self._known:
            self._known[number] = [_Law(places) for places in self._attack.places(number)]
        return self._known[number]

    def _add(self, kind: str, name: str, happened: NDArray[np.bool_], chances: Floats) -> None:
        """Add (users or batches, events); each row has these chances."""
        expected = len(happened) * float(np.sum(chances))
        self._sums.add(kind, self._named(name), int(happened.sum()), happened.size, expected)

    def _named(self, name: str) -> str:
        return f"{self._path}: {name} happened"


class _Law:
    """Places, and the laws of their counts over so many users, each worked out once."""

    def __init__(self, places: Places) -> None:
        self.places, self.name = places, places.name
        self.band = cache(lambda users: band_of_each(users * places.trials, places.chances, _FAR))
        self.band_of_sum = cache(lambda users, far: band_of_sum(users * places.trials, places.chances, far))
        self.odd = cache(lambda users: chance_odd(users * places.trials, places.chances))
        self.equal = cache(lambda users: chance_equal(users * places.trials, places.chances))
        self._above = cache(lambda users: chance_above(users * places.trials, places.chances))

    def same_noise(self, other: _Law) -> bool:
        """Whether the same may be counted as often, and as likely."""
        mine, its = self.places, other.places
        return self.name == other.name and all(
            map(np.array_equal, (mine.trials, mine.chances), (its.trials, its.chances))
        )

    def exceeding(self, counts: NDArray[np.int64], users: int = 1) -> Events:
        """Which counts are above their usual number."""
        limit = usual(users * self.places.trials, self.places.chances)
        return Events(self.name, counts > limit, self._above(users))

    def counted(self, cells: NDArray[np.uint32]) -> NDArray[np.int64]:
        """(users, places): how often each user reported each place beyond what is true."""
        users, size, place = len(cells), len(self.places.true), self.places.place
        known = cells < len(place)
        found = np.where(known, place[np.where(known, cells, 0)], -1)
        flat = (np.arange(users)[:, None] * size + found)[found >= 0]
        return np.bincount(flat, minlength=users * size).reshape(users, size) - self.places.true

    def summed(self, tables: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
        """(tables, places): the counts of places."""
        seen, size = self.places.place >= 0, len(self.places.true)
        sums = [np.bincount(self.places.place[seen], weights=table[seen], minlength=size) for table in tables]
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
