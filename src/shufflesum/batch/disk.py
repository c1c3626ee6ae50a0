"""Disks that are full or failing: nothing is wrong with the input, and the work can be taken up again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shufflesum.errors import FileError, ShufflesumError

__all__ = ["WriteError", "is_interruption", "writing"]


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
