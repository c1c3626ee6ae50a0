"""Processes that start in a moment: forked from one that has imported everything."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["Work", "forked", "killed_at", "killed_everywhere", "start_forked", "wait_until"]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.forked_processes", "tests.service.processes", "tests.service.preload_imports"])

Work = Callable[[], None]
_CALLS = [(os, "open"), (os, "fsync"), (os, "replace"), (os, "unlink"), (os, "close"), (fcntl, "flock")]
"""All that changes the disk, and the lock."""


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
    """This process ends without warning after so many of the calls above."""
    left = call

    def dying(real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)

    for module, name in _CALLS:
        setattr(module, name, partial(dying, getattr(module, name)))


def killed_everywhere(log: Path, work: Callable[[int], None]) -> int:
    """How many processes were killed, each at one call more than the one before, until one came to its end."""
    killed = 0
    while (code := forked(log, partial(work, killed))) != 0:
        assert code == -signal.SIGKILL, log.read_text()
        killed += 1
        assert killed < 50
    return killed


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
