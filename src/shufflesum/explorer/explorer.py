"""Questions and what is known of their answers; the planner works on the rest beside."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from threading import Condition
from types import TracebackType
from typing import Self

from shufflesum.domain import Categories
from shufflesum.errors import ShufflesumError
from shufflesum.explorer.lane import Job, Lane
from shufflesum.explorer.question import Question
from shufflesum.explorer.work import (
    FORMULAS,
    LINES,
    PAPER,
    Card,
    Planned,
    begin,
    begin_behind,
    full_plan,
    near_plan,
    point,
    warm_up,
)
from shufflesum.plans import Plan

__all__ = ["EPSILONS", "USERS", "Answer", "Explorer", "Point"]

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
USERS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_PLANS_KEPT, _POINTS_KEPT = 200, 20_000
_NEAR = 1.5  # a factor in users, in epsilon and in error

_Key = tuple[tuple[object, ...], str, int, float]


@dataclass(frozen=True, slots=True)
class Point:
    """An error on a line, at so many users and this epsilon; None where the line has nothing to offer there."""

    line: str
    users: int
    epsilon: float
    error: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known now. `first` marks a plan that may still be improved; `problem` says why there is no plan."""

    planned: Planned | None
    first: bool
    problem: str
    by_epsilon: tuple[Point, ...]
    by_users: tuple[Point, ...]
    done: int
    total: int

    @property
    def finished(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.problem != "" or (self.planned is not None and not self.first and self.done == self.total)


@dataclass(slots=True)
class _Known:
    """The plan of a question, as far as it is known; `expected` while a first answer is on its way."""

    planned: Planned | None = None
    final: bool = False
    problem: str = ""
    expected: bool = False


class Explorer:
    """Answers questions from what is known, and lets processes compute the rest: first answers, plans, points of lines.

    Plans and points are computed for the question that was asked last; what was computed for others is kept. First
    answers have a process of their own, ready for them: they wait for nothing. Use it in a `with` block.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self._changed = Condition()
        self._plans: OrderedDict[Question, _Known] = OrderedDict()
        self._points: OrderedDict[_Key, float | None] = OrderedDict()
        self._first, self._search, self._lines = Lane(begin), Lane(begin_behind), Lane(begin_behind)
        self._first.want([Job(warm_up, (card,), _ignore, _ignore)])

    def ask(self, question: Question, patience: float = 0.0) -> Answer:
        """What is known now; the rest is begun.

        A question near one that was answered is answered at once: its first answer is waited for, at most so many
        seconds.
        """
        with self._changed:
            known = self._plans.get(question)
            if known is None:
                known = self._begin(question)
            self._plans.move_to_end(question)
            self._changed.wait_for(lambda: not known.expected, patience)
            known.expected = False  # who asks again has waited: newer questions may have taken its turn
            if not known.final:
                self._search.want([self._plan(question, known)])
            epsilon = known.planned.plan.epsilon if known.planned is not None else question.epsilon
            sweeps: list[list[_Key]] = [[], []]
            if epsilon is not None and not known.problem:
                lines = [line for line in LINES if line != PAPER or not isinstance(question.shape, Categories)]
                xs = [(question.users, one) for one in EPSILONS], [(users, epsilon) for users in USERS]
                sweeps = [[(question.held, line, *x) for x in sweep for line in lines] for sweep in xs]
            # Nobody waits for lines over users at an epsilon that is still looked for.
            asked = sweeps[0] + (sweeps[1] if known.final or question.epsilon is not None else [])
            self._compute(question, [key for key in asked if key not in self._points])
            by_epsilon, by_users = (
                tuple(Point(*key[1:], self._points[key]) for key in sweep if key in self._points) for sweep in sweeps
            )
            total = sum(map(len, sweeps))
            return Answer(
                known.planned,
                not known.final,
                known.problem,
                by_epsilon,
                by_users,
                len(by_epsilon) + len(by_users),
                total,
            )

    def _begin(self, question: Question) -> _Known:
        """A question that is new; where it is near a known one, a first answer is on its way."""
        known = self._plans[question] = _Known()
        near = self._near(question)
        if len(self._plans) > _PLANS_KEPT:
            self._plans.popitem(last=False)
        if near is not None:
            known.expected = True
            if isinstance(question.shape, Categories):  # the search is as quick as any first answer
                job = self._plan(question, known)
            else:
                tell = partial(self._near_found, known)
                job = Job(near_plan, (question, self._card, near), tell, tell)
            self._first.want([job])
        return known

    def _plan(self, question: Question, known: _Known) -> Job:
        return Job(full_plan, (question, self._card), partial(self._found, known), partial(self._failed, known))

    def _near(self, question: Question) -> Plan | None:
        """The plan of a question about the same collection with nearly the same users, epsilon and error."""

        def distance(other: Question) -> float:
            pairs = (
                (question.users, other.users),
                (question.epsilon or 1, other.epsilon or 1),
                (question.error or 1, other.error or 1),
            )
            return max(abs(math.log(one / another)) if one > 0 < another else math.inf for one, another in pairs)

        same = [
            (distance(other), number, known.planned.plan)
            for number, (other, known) in enumerate(self._plans.items())
            if known.planned is not None
            and other.held == question.held
            and (other.error is None) == (question.error is None)
        ]
        best = min(same, default=None, key=lambda one: one[:2])
        return best[2] if best is not None and best[0] <= math.log(_NEAR) else None

    def _near_found(self, known: _Known, found: Planned | BaseException | None) -> None:
        with self._changed:
            if isinstance(found, Planned) and not known.final:
                known.planned = found
            self._tell(known)

    def _found(self, known: _Known, found: Planned) -> None:
        with self._changed:
            known.planned, known.final = found, True
            self._tell(known)

    def _failed(self, known: _Known, error: BaseException) -> None:
        with self._changed:
            known.planned, known.final = None, True
            known.problem = str(error) if isinstance(error, ShufflesumError) else f"a mistake of ours: {error!r}"
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        known.expected = False
        self._changed.notify_all()

    def _compute(self, question: Question, keys: list[_Key]) -> None:
        """Formulas at once, the planner's points beside. Call it under the lock."""
        for key in keys:
            if key[1] in FORMULAS:
                self._points[key] = point(question, *key[1:])
        self._lines.want(
            Job(point, (question, *key[1:]), partial(self._keep, key), partial(self._give_up, key))
            for key in _spread([key for key in keys if key[1] not in FORMULAS])
        )
        while len(self._points) > _POINTS_KEPT:
            self._points.popitem(last=False)

    def _keep(self, key: _Key, error: float | None) -> None:
        with self._changed:
            self._points[key] = error

    def _give_up(self, key: _Key, _: BaseException) -> None:
        self._keep(key, None)

    def __enter__(self) -> Self:
        """The workers start by themselves."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop the workers, whatever they do."""
        for lane in (self._first, self._search, self._lines):
            lane.close()


def _ignore(_: object) -> None:
    """Nobody waits for it."""


def _spread(keys: list[_Key]) -> list[_Key]:
    """Both ends and the middle of every line, then the rest: a picture soon has its shape."""
    every = 3 * 2  # two mechanisms: each third point of their lines first
    first = [key for number, key in enumerate(keys) if number % every < 2]
    return first + [key for key in keys if key not in set(first)]
