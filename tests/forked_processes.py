"""Processes that start in a moment: forked from one that has imported everything."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from shufflesum.ledger import Change

__all__ = ["Work", "forked", "killed_at", "killed_everywhere", "start_forked", "unlock_ledgers", "wait_until"]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.forked_processes", "tests.service.processes", "tests.service.preload_imports"])

Work = Callable[[], None]
_TRACEME, _NEXT_CALL = 0, 24  # of ptrace
_MOST_KILLS = 250


def start_forked(log: Path, work: Work) -> multiprocessing.process.BaseProcess:
    """Begin something in a process of its own, with what it says in the log."""
    process = _FORKS.Process(target=_in_log, args=(log, work))
    process.start()
    return process


def forked(log: Path, work: Work) -> int:
    """Do something in a process of its own; its exit code, and what it says is in the log."""
    process = start_forked(log, work)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def killed_at(call: int) -> None:
    """From here on a child of this process does its work, which is killed at its next system call after so many.

    System calls are all that changes the disk, or a lock, whoever makes them: SQLite's are not Python's. This process
    waits, and ends as the child does.
    """
    trace = ctypes.CDLL(None).ptrace
    trace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    child = os.fork()
    if child == 0:
        assert trace(_TRACEME, 0, None, None) == 0
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    stops, status = 0, os.waitpid(child, 0)[1]
    while os.WIFSTOPPED(status):
        if stops == 2 * call:  # it stops before each and after it
            os.kill(child, signal.SIGKILL)
        stops += 1
        trace(_NEXT_CALL, child, None, None)
        status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def killed_everywhere(log: Path, work: Callable[[int], None], *, step: int = 2) -> int:
    """How many processes were killed, each so many calls later than the one before, until one came to its end."""
    killed = forked(log, partial(_kill_everywhere, work, step))
    assert 0 <= killed < _MOST_KILLS, log.read_text()
    return killed


def _kill_everywhere(work: Callable[[int], None], step: int) -> None:
    """One process that forks all others: it has imported everything."""
    for killed in range(_MOST_KILLS):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(step * killed)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            os._exit(killed if status == 0 else _MOST_KILLS)
        assert os.WTERMSIG(status) == signal.SIGKILL
    os._exit(_MOST_KILLS)


def unlock_ledgers() -> None:
    """From here on SQLite opens files as if no lock were taken, and is slow enough for others to come between."""

    def connect(address: str, real: Any = sqlite3.connect, **named: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = real(address + "&vfs=unix-none" * named.get("uri", False), **named)
        return connection

    def append(change: Change, content: Any, real: Any = Change.append) -> None:
        time.sleep(0.02)
        real(change, content)

    vars(sqlite3).update(connect=connect)
    setattr(Change, "append", append)  # noqa: B010


def _in_log(log: Path, work: Work) -> None:
    _end_with_parent()
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    work()


def _end_with_parent() -> None:
    """A test run that is killed must not leave servers behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
