"""What is written down of a budget: entries with their costs, a checksum, replaced as a whole."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._format import Shown, upwards
from shufflesum._machine import replace_file
from shufflesum.errors import FileError, ShufflesumError
from shufflesum.privacy.engine.filters import GaussianFilter, PrivacyCost, PrivacyFilter, RenyiFilter, check_guarantee

_FORMAT = "shufflesum-budget-4"
_MARK_BYTES = 4


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
    """A budget as it is written down. `closed`: its plans were fixed in advance, and composed exactly.

    Else the first plan that is entered chooses the limits for all, since no result is known then. `changes` has a
    random mark for each time the file was written: an older copy lacks the last ones.
    """

    epsilon: float
    delta: float
    closed: bool
    limits: Limits | None
    entries: tuple[Entry, ...]
    changes: tuple[str, ...] = ()

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

    def follows(self, earlier: Content) -> bool:
        """Whether this is the earlier content, or was made from it by further changes."""
        return self.changes[: len(earlier.changes)] == earlier.changes

    def changed(self, place: int, **changes: Any) -> tuple[Content, Entry]:
        """With one entry changed, and that entry."""
        entry = msgspec.structs.replace(self.entries[place], **changes)
        entries = (*self.entries[:place], entry, *self.entries[place + 1 :])
        return msgspec.structs.replace(self, entries=entries), entry


def percent(part: float) -> str:
    """In per cent, for people, and never too little."""
    return upwards(100 * part) if part else "0"


def write_budget(path: Path, content: Content) -> Content:
    """Replace the file, and return what is in it: the content with one more mark. It is then on the disk."""
    marked = msgspec.structs.replace(content, changes=(*content.changes, secrets.token_hex(_MARK_BYTES)))
    try:
        replace_file(path.resolve(), encode_checked(_FORMAT, msgspec.to_builtins(marked)))
    except OSError as error:
        raise FileError(
            "unwritable",
            f"{path}: the entry could not be made ({error.strerror or error}); nothing of it may be released: mend the "
            "disk, and begin again",
        ) from error
    return marked


def read_budget(path: Path) -> Content:
    """What a file says, if nothing about it is in doubt."""
    try:
        data, names = path.resolve().read_bytes(), path.resolve().stat().st_nlink
    except OSError as error:
        raise FileError(
            "unreadable",
            f"{path}: no budget can be read: {error.strerror or error}; make one with shufflesum budget create",
        ) from error
    if names > 1:
        raise FileError(
            "in-use",
            f"{path}: has {names} names (hard links), of which an entry would change only one, and the others would be "
            "budgets of their own; delete all names but one (symbolic links may stay)",
        )
    try:
        content = msgspec.convert(decode_checked(data, _FORMAT), Content)
        check_guarantee(content.epsilon, content.delta)
        _ = content.filter  # refuses limits that are none
        if (content.limits is None) != (content.closed or not content.entries):
            raise ValueError("limits are there from the first plan on, unless plans were fixed in advance")
        if not content.changes:
            raise ValueError("every file was written at least once")
        if not all(
            len(set(entry.runs)) == len(entry.runs) <= entry.begun <= entry.rounds
            and entry.loss_cost >= 0
            and entry.delta_cost >= 0
            for entry in content.entries
        ):
            raise ValueError("an entry is impossible")
    except (ValueError, ShufflesumError) as error:
        raise FileError(
            problem_of(error),
            f"{path}: is no budget that can be used ({error}); as long as nobody knows what was spent, nothing can be: "
            "take all of it for spent",
        ) from error
    return content
