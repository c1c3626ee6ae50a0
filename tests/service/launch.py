"""Runs a server of the command line on tasks without a guarantee: `python launch.py shuffler|analyzer OPTIONS`."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from shufflesum.cli.serve import command
from shufflesum.service.stores import sql as sql_store
from shufflesum.wire import Task


def end_with_parent() -> None:
    """A test run that is killed must not leave servers behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


if __name__ == "__main__":
    end_with_parent()
    Task._verify_plan = lambda self: None  # type: ignore[method-assign]
    if "LAUNCH_EXPIRED_ONCE" in os.environ:  # the task has expired once this file exists
        over = Path(os.environ["LAUNCH_EXPIRED_ONCE"])
        Task.expired_at = lambda self, moment: over.exists()  # type: ignore[method-assign]
    if "LAUNCH_MAX_ARRIVALS" in os.environ:  # uploads are put away that often
        sql_store._MAX_ARRIVALS = int(os.environ["LAUNCH_MAX_ARRIVALS"])
    command(prog_name="serve")
