"""A file that one process at a time may change, and that a killed one lets go of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shufflesum._clock import Clock
from shufflesum._machine import lock_file
from shufflesum.errors import FileError

__all__ = ["locked"]

# Seconds. What is done under such a lock takes some milliseconds, but for a budget that is entered under that of a file
# of rounds: the charge of a new plan takes up to some seconds, and the budget's own lock as long as this.
_PATIENCE = 30.0
_PAUSE = 0.01


@contextmanager
def locked(path: Path, clock: Clock) -> Iterator[None]:
    """Keep all other processes, and threads, from the file at `path`, by a lock file beside what it points to."""
    final = path.resolve()
    lock_path = final.with_name(f".{final.name}.lock")
    end = clock.monotonic() + _PATIENCE
    while (lock := _try(path, lock_path)) is None:
        if clock.monotonic() > end:
            raise FileError("in-use", f"{path}: another process holds it; see what it waits for")
        clock.wait(_PAUSE)
    try:
        yield
    finally:
        lock_path.unlink(missing_ok=True)
        os.close(lock)


def _try(path: Path, lock_path: Path) -> int | None:
    try:
        return lock_file(lock_path)
    except OSError as error:
        raise FileError(
            "unwritable",
            f"{path}: cannot be used: {error.strerror or error}; name a file in a folder you may write to",
        ) from error
