"""What is written down of a budget: entries with their charges, a checksum, replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from shufflesum._documents import OtherFormatError, decode_checked, encode_checked
from shufflesum._machine import replace_file
from shufflesum._rounding import upwards
from shufflesum.errors import FileError, ShufflesumError
from shufflesum.privacy.engine.renyi import Charge, Filter

__all__ = ["Content", "Entry", "read_budget", "write_budget"]

_FORMAT = "shufflesum-budget-1"


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
    moment: float
    apart: float
    entered: str

    @property
    def charge(self) -> Charge:
        """What it costs."""
        return Charge(self.moment, self.apart)

    @property
    def in_words(self) -> tuple[str, ...]:
        """Day, plan, what for, epsilon, delta and rounds, for people."""
        what = self.entered[:10], self.plan[:8], (self.collection or "run")[:13]
        return *what, upwards(self.epsilon), upwards(self.delta), f"{self.begun} of {self.rounds}"


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A budget as it is written down. `closed`: its plans were fixed in advance, and composed exactly."""

    epsilon: float
    delta: float
    order: float
    closed: bool
    entries: tuple[Entry, ...]

    @property
    def filter(self) -> Filter:
        """The limits of all charges together."""
        return Filter(self.epsilon, self.delta, self.order)

    def admits(self, cost: Charge) -> bool:
        """Whether so much more may be spent."""
        return self.filter.admits([*(entry.charge for entry in self.entries), cost])

    def changed(self, place: int, **changes: Any) -> tuple[Content, Entry]:
        """With one entry changed, and that entry."""
        entry = msgspec.structs.replace(self.entries[place], **changes)
        entries = (*self.entries[:place], entry, *self.entries[place + 1 :])
        return msgspec.structs.replace(self, entries=entries), entry


def write_budget(path: Path, content: Content) -> None:
    """Put this in the place of what there was; whoever returns from it has it on the disk."""
    try:
        replace_file(path.resolve(), encode_checked(_FORMAT, msgspec.to_builtins(content)))
    except OSError as error:
        raise FileError(
            "unwritable",
            f"{path}: the entry could not be made ({error.strerror or error}); nothing of it may be released: mend the "
            "disk, and begin again",
        ) from error


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
        _ = content.filter  # refuses what is no guarantee
        if not all(
            len(set(entry.runs)) == len(entry.runs) <= entry.begun <= entry.rounds
            and min(entry.moment, entry.apart) >= 0
            for entry in content.entries
        ):
            raise ValueError("an entry is impossible")
    except (ValueError, ShufflesumError) as error:
        raise FileError(
            "other-format" if isinstance(error, OtherFormatError) else "damaged",
            f"{path}: is no budget that can be used ({error}); as long as nobody knows what was spent, nothing can be: "
            "take all of it for spent",
        ) from error
    return content
