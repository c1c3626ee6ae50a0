"""A process beside the page that computes one thing after another; what nobody waits for any more is not begun."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from threading import Condition, Thread
from typing import Any

from shufflesum.errors import ShufflesumError

__all__ = ["Job", "Lane"]

_TRIES = 2  # so that work which ends its process, as for want of memory, does not do so for ever


@dataclass(frozen=True, slots=True)
class Job:
    """A function and its arguments, both of which another process can be sent, and who is told how it ended."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


class Lane:
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

    def want(self, jobs: Iterable[Job]) -> None:
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
