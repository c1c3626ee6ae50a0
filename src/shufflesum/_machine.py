"""The machine beneath: its clock, cores and disk, locks, and threads and processes that share work."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, Protocol, Self, TypeVar

from shufflesum.errors import FileError, ShufflesumError


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sync(path: Path) -> None:
    """Make sure that a file, or what a folder lists, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: str | bytes, mode: int = 0o666) -> None:
    """Put a file at `path`, whole and on the disk when this returns; where that fails, what was there stays."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def try_lock(descriptor: int, path: Path) -> bool:
    """Keep an open file or folder to this process until it is closed.

    False where another process has it, or where it is not the one at `path` any more: one that had it just ended.
    """
    import fcntl  # not on every system; all else here is

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except (BlockingIOError, FileNotFoundError):
        return False


def lock_file(path: Path) -> int | None:
    """A file at `path` that is kept to this process until it is closed; None where another process has it."""
    descriptor, locked = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), False
    try:
        locked = try_lock(descriptor, path)
    finally:
        if not locked:
            os.close(descriptor)
    return descriptor if locked else None


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Processes that end with this one, however it ends.

    They are not forked: the caller may have threads, and a fork would copy whatever locks they hold. A script that
    uses them needs the usual `if __name__ == "__main__":` around its work.
    """
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"), initializer=_start)


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt from the keyboard is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed cannot end its pool, and secrets must not live on in orphans."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Clock(Protocol):
    """What time it is, and waiting for it to pass: handed to whatever needs it, so that tests need not wait."""

    def now(self) -> datetime:
        """The time of day in UTC, which decides what has expired."""

    def monotonic(self) -> float:
        """Seconds since some moment, which never jump: for measuring."""

    def wait(self, seconds: float, event: threading.Event | None = None) -> None:
        """Return after so many seconds, or when the event is set."""

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        """The same in an event loop."""


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def wait(self, seconds: float, event: threading.Event | None = None) -> None:
        """Return after so many seconds, or when the event is set."""
        (event or threading.Event()).wait(seconds)

    async def pause(self, seconds: float, event: asyncio.Event | None = None) -> None:
        """The same in an event loop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await (event or asyncio.Event()).wait()


SYSTEM_CLOCK: Clock = SystemClock()


_State = TypeVar("_State")
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class Workers(Generic[_State]):
    """Threads that share work, one for each of the states, which a job has to itself while it runs.

    A state is what is dear to make or cannot be shared: a randomizer, a table of counts, a source of random bits.
    After an error, work that has not begun is dropped.
    """

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


class WriteError(FileError):
    """A disk that is full or failing: the same command can be expected to succeed later."""


@contextmanager
def writing(what: object, advice: str, problem: str = "cannot be written") -> Iterator[None]:
    """Make a `WriteError` of what the system or Arrow says about the disk; our own errors stay as they are."""
    try:
        yield
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise WriteError("unwritable", f"{what}: {problem}: {error.strerror or error}; {advice}") from error


def is_interruption(error: BaseException) -> bool:
    """Whether the same command can be expected to succeed later; what is wrong with the input will stay wrong."""
    if isinstance(error, ShufflesumError):
        return isinstance(error, WriteError)
    return isinstance(error, KeyboardInterrupt | SystemExit | MemoryError | OSError)
