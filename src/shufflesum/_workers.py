"""Threads that share work, each job with a state that is its own while it runs.

A state is what is dear to make or cannot be shared: a randomizer, a table of counts, a source of random bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

__all__ = ["Workers"]

_State = TypeVar("_State")
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class Workers(Generic[_State]):
    """A thread for each of the states; after an error, work that has not begun is dropped."""

    def __init__(self, states: Iterable[_State]) -> None:
        self.states = tuple(states)
        self._idle: SimpleQueue[_State] = SimpleQueue()
        for state in self.states:
            self._idle.put(state)
        self._threads = ThreadPoolExecutor(len(self.states))

    def map(
        self, function: Callable[[_State, _Job], _Result], jobs: Iterable[_Job], *, ahead: int | None = None
    ) -> Iterator[_Result]:
        """What the function gives for each job, in order.

        At most `ahead` jobs, by default two for each thread, are taken before the oldest result is asked for: neither
        jobs nor results pile up. Several maps may share the threads, and one may feed another.
        """
        most = 2 * len(self.states) if ahead is None else ahead
        waiting: deque[Future[_Result]] = deque()
        for job in jobs:
            waiting.append(self._threads.submit(self._do, function, job))
            while len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _do(self, function: Callable[[_State, _Job], _Result], job: _Job) -> _Result:
        state = self._idle.get()
        try:
            return function(state, job)
        finally:
            self._idle.put(state)

    def __enter__(self) -> Self:
        """The threads start with their first jobs."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what has begun."""
        self._threads.shutdown(cancel_futures=True)
