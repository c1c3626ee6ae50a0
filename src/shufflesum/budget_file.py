"""What is written down of a budget: its guarantee, and then every change of an entry, in a ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from shufflesum._format import Shown, upwards
from shufflesum.errors import FileError, ShufflesumError
from shufflesum.ledger import Change, Ledger, Records
from shufflesum.privacy.engine.filters import GaussianFilter, PrivacyCost, PrivacyFilter, RenyiFilter, check_guarantee

_FORMAT = "shufflesum-budget-5"
_ADVICE = "as long as nobody knows what was spent, nothing can be: take all of the budget for spent"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan that was entered: what it is, what it costs, and how many of its rounds were begun.

    `collection` names what it was entered for, such as a task; it is None for whoever runs the plan. `runs` names those
    that began rounds and may go on with them: a folder of reports, a shuffler's store.
    """

    plan: str
    epsilon: float
    delta: float
    users: int
    rounds: int
    begun: int
    runs: tuple[str, ...]
    collection: str | None
    loss_cost: float
    delta_cost: float
    entered: str

    @property
    def cost(self) -> PrivacyCost:
        """What it costs."""
        return PrivacyCost(self.loss_cost, self.delta_cost)

    def describe(self) -> tuple[str, ...]:
        """Day, plan, what for, epsilon, delta and rounds, for people."""
        what = self.entered[:10], self.plan[:8], (self.collection or "run")[:13]
        return *what, upwards(self.epsilon), upwards(self.delta), f"{self.begun} of {self.rounds}"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of delta is for what may be revealed, and which privacy filter measures losses: Renyi, or Gaussian."""

    delta_share: float
    order: float | None  # of the moments

    @staticmethod
    def of(within: PrivacyFilter) -> Limits:
        """The limits of a filter."""
        return Limits(within.delta_share, within.order if isinstance(within, RenyiFilter) else None)


class PlanCost(NamedTuple):
    """What a plan costs, and under which filter."""

    within: PrivacyFilter
    cost: PrivacyCost


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of a budget. `closed`: its plans were fixed in advance, and composed exactly.

    Else the first plan that is entered chooses the limits for all, since no result is known then.
    """

    epsilon: float
    delta: float
    closed: bool
    limits: Limits | None
    entries: tuple[Entry, ...]

    def __str__(self) -> str:
        """What is spent, and by which plans."""
        limit = f"epsilon {upwards(self.epsilon)}, delta {upwards(self.delta)}"
        limits = () if self.closed else ("privacy loss", "delta spent")
        heads = ("", "day", "plan", "for", "epsilon", "delta", "rounds begun", *limits)
        rows = [
            [str(number), *entry.describe(), *(f"{percent(part)} %" for part in parts[: len(limits)])]
            for number, (entry, parts) in enumerate(zip(self.entries, self.parts, strict=True), start=1)
        ]
        return Shown(f"{limit} for everything that is asked; {self.state}", (), (heads, rows) if rows else None).text()

    @property
    def filter(self) -> PrivacyFilter | None:
        """What sums of costs are compared with, from the first plan on."""
        if self.limits is None:
            return None
        if self.limits.order is None:
            return GaussianFilter(self.epsilon, self.delta, self.limits.delta_share)
        return RenyiFilter(self.epsilon, self.delta, self.limits.delta_share, self.limits.order)

    @property
    def costs(self) -> list[PrivacyCost]:
        """What all entries cost."""
        return [entry.cost for entry in self.entries]

    @property
    def parts(self) -> tuple[tuple[float, float], ...]:
        """Of each entry, the parts of both limits that it spent; zeros where plans were fixed in advance."""
        if (within := self.filter) is None:
            return ((0.0, 0.0),) * len(self.entries)
        return tuple(
            (entry.loss_cost / within.loss_limit, entry.delta_cost / within.delta_limit) for entry in self.entries
        )

    @property
    def spent(self) -> float:
        """The part that is spent, from 0 to 1; all of it where the plans were fixed in advance."""
        if self.closed:
            return 1.0
        return 0.0 if (within := self.filter) is None else within.part_of(self.costs)

    @property
    def state(self) -> str:
        """What is spent, in words; of plans that were fixed in advance, how many of their rounds were begun."""
        if not self.closed:
            return f"{percent(self.spent)} % spent"
        begun, rounds = (sum(getattr(entry, name) for entry in self.entries) for name in ("begun", "rounds"))
        return f"all for plans fixed in advance, and closed: {begun} of {rounds} rounds begun"

    def admits(self, added: PlanCost) -> bool:
        """Whether so much more may be spent."""
        return added.within.admits([*self.costs, added.cost])

    def changed(self, place: int, **changes: Any) -> EntryChange:
        """One entry changed."""
        return EntryChange(place, msgspec.structs.replace(self.entries[place], **changes), self.limits)

    def after(self, *changes: EntryChange) -> Content:
        """The budget after changes of its entries."""
        entries, limits = list(self.entries), self.limits
        for change in changes:
            if not 0 <= change.place <= len(entries):
                raise ValueError(f"there is no entry {change.place} to be changed")
            entries[change.place : change.place + 1] = [change.entry]
            limits = change.limits
        return msgspec.structs.replace(self, entries=tuple(entries), limits=limits)


class EntryChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry that is new, or as it is from now on, and the limits since then."""

    place: int
    entry: Entry
    limits: Limits | None


def percent(part: float) -> str:
    """In per cent, for people, and never too little."""
    return upwards(100 * part) if part else "0"


class BudgetFile:
    """The ledger of a budget. An older copy in its place is refused, as long as this is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._ledger = Ledger(path, _FORMAT, "budget", _ADVICE)
        self.path = self._ledger.path

    def create(self, content: Content) -> None:
        """Make the file; one that exists is refused."""
        self._ledger.create(msgspec.to_builtins(content))

    def read(self) -> Content:
        """What it says, if nothing about it is in doubt."""
        return self._content(self._ledger.read())

    @contextmanager
    def change(self) -> Iterator[tuple[Content, Change]]:
        """What it says, while nobody else changes it, and where changes are written."""
        if not self._ledger.exists():
            self._refuse_missing()
        with self._ledger.change() as change:
            yield self._content(change.records), change

    def _refuse_missing(self) -> None:
        raise FileError("unreadable", f"{self.path}: does not exist; make one with shufflesum budget create")

    def _content(self, records: Records) -> Content:
        if not records and not self._ledger.exists():
            self._refuse_missing()
        try:
            if not records:
                raise ValueError("it says of no epsilon and delta")
            changes = msgspec.convert(records[1:], list[EntryChange])
            content = msgspec.convert(records[0], Content).after(*changes)
            check_guarantee(content.epsilon, content.delta)
            _ = content.filter  # refuses limits that are none
            if (content.limits is None) != (content.closed or not content.entries):
                raise ValueError("limits are there from the first plan on, unless plans were fixed in advance")
            if not all(
                len(set(entry.runs)) == len(entry.runs) <= entry.begun <= entry.rounds
                and entry.loss_cost >= 0
                and entry.delta_cost >= 0
                for entry in content.entries
            ):
                raise ValueError("an entry is impossible")
        except (ValueError, ShufflesumError) as error:
            raise FileError("damaged", f"{self.path}: is no budget that can be used ({error}); {_ADVICE}") from error
        return content
