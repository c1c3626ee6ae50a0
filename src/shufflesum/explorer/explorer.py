"""Questions and what is known of their answers; a process beside the page computes the rest, one thing after another.

What nobody waits for any more is not begun.
"""

from __future__ import annotations

import math
import multiprocessing
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from threading import Condition, Thread
from types import TracebackType
from typing import Any, Self

from shufflesum.errors import ShufflesumError
from shufflesum.explorer.questions import (
    FORMULAS,
    LINES,
    PAPER,
    Card,
    Planned,
    Question,
    begin,
    begin_behind,
    full_plan,
    near_plan,
    point,
    warm_up,
)
from shufflesum.plans import Plan

_TRIES = 2  # so that work which ends its process, as for want of memory, does not do so for ever


@dataclass(frozen=True, slots=True)
class Job:
    """A function and its arguments, both of which another process can be sent, and who is told how it ended."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


class Worker:
    """One process, which starts at once and begins with `ready`; where it is killed, another takes over its work."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self._changed = Condition()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False
        self._start()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def replace_queue(self, jobs: Iterable[Job]) -> None:
        """Have these computed, in this order, and not what still waits; what is under way is finished."""
        with self._changed:
            self._waiting = deque(job for job in jobs if not _same(job, self._running))
            self._changed.notify()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        pipe, its_end = context.Pipe()
        with its_end:  # so that the process alone has it, and its end is noticed
            process = context.Process(target=_serve, args=(its_end, self._ready), daemon=True)
            try:
                process.start()
            except OSError:
                pipe.close()
                raise
        self._pipe, self._process = pipe, process

    def _work(self) -> None:
        while (job := self._next()) is not None:
            done, found = self._ask(job)
            if not self._closed:
                (job.done if done else job.failed)(found)

    def _next(self) -> Job | None:
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._running = None if self._closed else self._waiting.popleft()
            return self._running

    def _ask(self, job: Job) -> tuple[bool, Any]:
        """Whether the process could do it, and what came of it."""
        for _ in range(_TRIES):
            try:
                self._pipe.send((job.work, job.arguments))
                answer: tuple[bool, Any] = self._pipe.recv()
                return answer
            except (EOFError, OSError):  # it was killed, perhaps long before
                try:
                    self._replace()
                except OSError as error:  # the next job finds no process either, and tries again
                    return False, _stopped(f"cannot be started again ({error.strerror or error})")
        return False, _stopped("was ended twice, by the system or by somebody")

    def _replace(self) -> None:
        with self._changed:
            if not self._closed:
                self._pipe.close()
                self._process.join()
                self._start()

    def close(self) -> None:
        """Stop the process, whatever it does."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            self._process.terminate()
        self._thread.join()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, ready: Callable[[], None]) -> None:
    """What the process does, until nobody is there to ask it."""
    ready()
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = True, work(*arguments)
        except Exception as error:
            answer = False, error
        pipe.send(answer)


def _stopped(how: str) -> ShufflesumError:
    return ShufflesumError(
        "stopped",
        f"the process that worked on this {how}; it may have needed more memory than there is: ask for less, or close "
        "other programs",
    )


def _same(one: Job, other: Job | None) -> bool:
    return other is not None and (one.work, one.arguments) == (other.work, other.arguments)


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
        self._first, self._search, self._lines = Worker(begin), Worker(begin_behind), Worker(begin_behind)
        self._first.replace_queue([Job(warm_up, (card,), _ignore, _ignore)])

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
                self._search.replace_queue([self._plan(question, known)])
            epsilon = known.planned.plan.epsilon if known.planned is not None else question.epsilon
            sweeps: list[list[_Key]] = [[], []]
            if epsilon is not None and not known.problem:
                lines = [line for line in LINES if line != PAPER or not question.domain.counts_users]
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
            if question.domain.counts_users:  # the search is as quick as any first answer
                job = self._plan(question, known)
            else:
                tell = partial(self._near_found, known)
                job = Job(near_plan, (question, self._card, near), tell, tell)
            self._first.replace_queue([job])
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
        self._lines.replace_queue(
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
        for worker in (self._first, self._search, self._lines):
            worker.close()


def _ignore(_: object) -> None:
    """Nobody waits for it."""


def _spread(keys: list[_Key]) -> list[_Key]:
    """Both ends and the middle of every line, then the rest: a picture soon has its shape."""
    every = 3 * 2  # two mechanisms: each third point of their lines first
    first = [key for number, key in enumerate(keys) if number % every < 2]
    return first + [key for key in keys if key not in set(first)]
