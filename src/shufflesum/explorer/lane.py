"""A process beside the page that computes one thing after another; what nobody waits for any more is not begun."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

__all__ = ["Job", "Lane"]


@dataclass(frozen=True, slots=True)
class Job:
    """A function and its arguments, both of which another process can be sent, and who is told how it ended."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    done: Callable[[Any], None]
    failed: Callable[[BaseException], None]


class Lane:
    """One process, which starts at once and begins with `ready`."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._pool = multiprocessing.get_context("spawn").Pool(1, ready)
        self._lock = Lock()
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._closed = False

    def want(self, jobs: Iterable[Job]) -> None:
        """Have these computed, in this order, and not what still waits; what is under way is finished."""
        with self._lock:
            self._waiting = deque(job for job in jobs if not _same(job, self._running))
            if self._running is None:
                self._next()

    def _next(self) -> None:
        self._running = self._waiting.popleft() if self._waiting and not self._closed else None
        if self._running is not None:
            job = self._running
            self._pool.apply_async(
                job.work,
                job.arguments,
                callback=partial(self._end, job.done),
                error_callback=partial(self._end, job.failed),
            )

    def _end(self, tell: Callable[[Any], None], found: Any) -> None:
        tell(found)
        with self._lock:
            self._next()

    def close(self) -> None:
        """Stop the process, whatever it does."""
        with self._lock:
            self._closed = True
        self._pool.terminate()
        self._pool.join()


def _same(one: Job, other: Job | None) -> bool:
    return other is not None and (one.work, one.arguments) == (other.work, other.arguments)
