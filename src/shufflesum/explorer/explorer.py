"""Questions and what is known of their answers; the planner works on the rest beside."""

from __future__ import annotations

import math
import multiprocessing
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Self

from shufflesum.domain import Categories
from shufflesum.errors import ShufflesumError
from shufflesum.explorer.question import Question
from shufflesum.explorer.work import CURATOR, LINES, PAPER, Card, Planned, full_plan, near_plan, point, quiet
from shufflesum.plans import Plan

__all__ = ["EPSILONS", "USERS", "Answer", "Explorer", "Point"]

EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
USERS = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_WORKERS = 3  # for a first answer, a plan and a point
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
    """The plan of a question, as far as it is known."""

    planned: Planned | None = None
    final: bool = False
    problem: str = ""


class Explorer:
    """Answers questions from what is known, and lets processes compute the rest: plans, and points of lines.

    Points are computed for the question that was asked last; what was computed for others is kept. Use it in a `with`
    block.
    """

    def __init__(self, card: Card, workers: int = _WORKERS) -> None:
        self._card = card
        self._pool = multiprocessing.get_context("spawn").Pool(workers, quiet)
        self._lock = Lock()
        self._plans: OrderedDict[Question, _Known] = OrderedDict()
        self._points: OrderedDict[_Key, float | None] = OrderedDict()
        self._wanted: list[tuple[Question, _Key]] = []
        self._computing = False
        self._closed = False

    def ask(self, question: Question) -> Answer:
        """What is known now; the rest is begun."""
        with self._lock:
            known = self._plans.get(question)
            if known is None:
                known = self._begin(question)
            self._plans.move_to_end(question)
            epsilon = known.planned.plan.epsilon if known.planned is not None else question.epsilon
            sweeps: list[list[_Key]] = [[], []]
            if epsilon is not None and not known.problem:
                lines = [line for line in LINES if line != PAPER or not isinstance(question.shape, Categories)]
                xs = [(question.users, one) for one in EPSILONS], [(users, epsilon) for users in USERS]
                sweeps = [[(question.held, line, *x) for x in sweep for line in lines] for sweep in xs]
            # Nobody waits for lines over users at an epsilon that is still looked for.
            asked = sweeps[0] + (sweeps[1] if known.final or question.epsilon is not None else [])
            self._wanted = [(question, key) for key in _spread(asked) if key not in self._points]
            self._next()
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
        known = self._plans[question] = _Known()
        if len(self._plans) > _PLANS_KEPT:
            self._plans.popitem(last=False)
        near = None if isinstance(question.shape, Categories) else self._near(question)
        if near is not None:
            self._pool.apply_async(near_plan, (question, self._card, near), callback=partial(self._first, known))
        self._pool.apply_async(
            full_plan,
            (question, self._card),
            callback=partial(self._final, known),
            error_callback=partial(self._failed, known),
        )
        return known

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

    def _first(self, known: _Known, found: Planned | None) -> None:
        with self._lock:
            if found is not None and not known.final:
                known.planned = found

    def _final(self, known: _Known, found: Planned) -> None:
        with self._lock:
            known.planned, known.final = found, True

    def _failed(self, known: _Known, error: BaseException) -> None:
        with self._lock:
            known.planned, known.final = None, True
            known.problem = str(error) if isinstance(error, ShufflesumError) else f"a mistake of ours: {error!r}"

    def _next(self) -> None:
        """Have the next point computed; one at a time, so that a worker is left for plans. Call it under the lock."""
        if self._computing or self._closed:
            return
        while self._wanted:
            question, key = self._wanted.pop(0)
            if key not in self._points:
                self._computing = True
                self._pool.apply_async(
                    point,
                    (question, *key[1:]),
                    callback=partial(self._keep, key),
                    error_callback=partial(self._give_up, key),
                )
                return

    def _keep(self, key: _Key, error: float | None) -> None:
        with self._lock:
            self._points[key] = error
            if len(self._points) > _POINTS_KEPT:
                self._points.popitem(last=False)
            self._computing = False
            self._next()

    def _give_up(self, key: _Key, _: BaseException) -> None:
        self._keep(key, None)

    def __enter__(self) -> Self:
        """The workers start by themselves."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop the workers, whatever they do."""
        self._closed = True
        self._pool.terminate()
        self._pool.join()


def _spread(keys: list[_Key]) -> list[_Key]:
    """What is quick first, then both ends and the middle of every line, then the rest: a picture soon has its shape."""
    quick = [key for key in keys if key[1] in (CURATOR, PAPER)]
    slow = [key for key in keys if key[1] not in (CURATOR, PAPER)]
    every = 3 * 2  # two mechanisms: each third point of their lines first
    first = [key for number, key in enumerate(slow) if number % every < 2]
    return quick + first + [key for key in slow if key not in set(first)]
