"""The rounds of a plan that were begun, counted in a file, so that no restart and no second process forgets one.

A plan's guarantee covers so many rounds and not one more. Whoever runs several enters each in the file before anything
of it is released; the service's stores do the same on their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from shufflesum._documents import decode_checked, encode_checked, problem_of
from shufflesum._machine import SYSTEM_CLOCK, Clock, locked, replace_file
from shufflesum.errors import FileError, PrivacyError, ReportsError
from shufflesum.plans import Plan, check_plan

_FORMAT = "shufflesum-rounds-1"


class RoundCounter:
    """How many rounds of a plan were begun, in a file such as rounds.json.

    `begin` gives the next round's number once it is on the disk: whatever happens afterwards, that round is spent. A
    file that is damaged, or of another plan, refuses everything. Where there is none, no round was begun: it must not
    be deleted, nor an older copy put in its place, as long as data of these users is collected under the plan.
    """

    def __init__(self, path: str | os.PathLike[str], plan: Plan, *, clock: Clock = SYSTEM_CLOCK) -> None:
        check_plan(plan)
        self.path = Path(path)
        self.plan = plan
        self._clock = clock
        self._final = self.path.resolve()  # a link keeps pointing to the file that is replaced
        self._read()

    @property
    def used(self) -> int:
        """How many rounds were begun, by anybody."""
        return self._read()

    @property
    def left(self) -> int:
        """How many rounds can still be begun."""
        return self.plan.rounds - self._read()

    def begin(self, enter: Callable[[], object] | None = None) -> int:
        """Enter the next round and give its number; refused after the plan's last.

        `enter` is what else must be entered before, such as a budget. It is called when a round is left, while nobody
        else can take it; where it raises, no round is begun. Others wait for it, and are refused after half a minute.
        """
        check_plan(self.plan)
        with locked(self.path, self._clock):
            used = self._read()
            if used >= self.plan.rounds:
                raise PrivacyError(
                    "rounds-spent",
                    f"{self.path}: all {self.plan.rounds} rounds that the guarantee of plan {self.plan.id[:12]} covers "
                    "were begun; plan for more rounds before the first",
                )
            if enter is not None:
                enter()
            content = {"plan": self.plan.id, "rounds": self.plan.rounds, "used": used + 1}
            try:
                replace_file(self._final, encode_checked(_FORMAT, content))
            except OSError as error:
                raise FileError(
                    "unwritable",
                    f"{self.path}: round {used + 1} could not be entered ({error.strerror or error}); nothing of it "
                    "may be released: mend the disk, and begin again",
                ) from error
            return used + 1

    def _read(self) -> int:
        try:
            data = self._final.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise FileError("unreadable", f"{self.path}: cannot be read: {error.strerror or error}") from error
        try:
            content = decode_checked(data, _FORMAT)
            plan, rounds, used = content["plan"], content["rounds"], content["used"]
        except (ValueError, KeyError) as error:
            raise FileError(
                problem_of(error),
                f"{self.path}: is no count of rounds that can be used ({error}); as long as nobody knows how many were "
                "begun, none can be: take them all for spent",
            ) from error
        if plan != self.plan.id:
            raise ReportsError(
                "plan-mismatch",
                f"{self.path}: counts the rounds of plan {str(plan)[:12]}, not of plan {self.plan.id[:12]}; each plan "
                "needs a file of its own",
            )
        if rounds != self.plan.rounds or type(used) is not int or not 1 <= used <= rounds:
            raise FileError("damaged", f"{self.path}: says {used!r} of {rounds!r} rounds, which cannot be")
        return used
