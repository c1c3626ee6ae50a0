"""The rounds of a plan that were begun, counted in a file, so that no restart and no second process forgets one.

A plan's guarantee covers so many rounds and not one more. Whoever runs several enters each in the file before anything
of it is released; the service's stores do the same on their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from shufflesum.errors import FileError, PrivacyError, ReportsError
from shufflesum.ledger import Ledger, Records
from shufflesum.plans import Plan, check_plan

_FORMAT = "shufflesum-rounds-2"


class RoundCounter:
    """How many rounds of a plan were begun, in a file such as rounds.db.

    `begin` gives the next round's number once it is on the disk: whatever happens afterwards, that round is spent. A
    file that is damaged, or of another plan, refuses everything. Where there is none, no round was begun: it must not
    be deleted, nor an older copy put in its place, as long as data of these users is collected under the plan.
    """

    def __init__(self, path: str | os.PathLike[str], plan: Plan) -> None:
        check_plan(plan)
        advice = "as long as nobody knows how many rounds were begun, none can be: take them all for spent"
        self._ledger = Ledger(path, _FORMAT, "count of rounds", advice)
        self.path = self._ledger.path
        self.plan = plan
        self._count(self._ledger.read())

    @property
    def used(self) -> int:
        """How many rounds were begun, by anybody."""
        return self._count(self._ledger.read())

    @property
    def left(self) -> int:
        """How many rounds can still be begun."""
        return self.plan.rounds - self.used

    def begin(self, enter: Callable[[], object] | None = None) -> int:
        """Enter the next round and give its number; refused after the plan's last.

        `enter` is what else must be entered before, such as a budget. It is called when a round is left, while nobody
        else can take it; where it raises, no round is begun. Others wait for it, and are refused after half a minute.
        """
        check_plan(self.plan)
        with self._ledger.change() as change:
            begun = self._count(change.records) + 1
            if begun > self.plan.rounds:
                raise PrivacyError(
                    "rounds-spent",
                    f"{self.path}: all {self.plan.rounds} rounds that the guarantee of plan {self.plan.id[:12]} covers "
                    "were begun; plan for more rounds before the first",
                )
            if enter is not None:
                enter()
            change.append({"plan": self.plan.id, "rounds": self.plan.rounds, "round": begun})
        return begun

    def _count(self, records: Records) -> int:
        """How many records there are, each of a round of this plan."""
        for begun, record in enumerate(records, start=1):
            if record.get("plan") != self.plan.id:
                raise ReportsError(
                    "plan-mismatch",
                    f"{self.path}: counts the rounds of plan {str(record.get('plan'))[:12]}, not of plan "
                    f"{self.plan.id[:12]}; each plan needs a file of its own",
                )
            if record != {"plan": self.plan.id, "rounds": self.plan.rounds, "round": begun} or begun > self.plan.rounds:
                raise FileError("damaged", f"{self.path}: record {begun} of its rounds says what cannot be")
        return len(records)
