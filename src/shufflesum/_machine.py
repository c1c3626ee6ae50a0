"""The machine beneath: its cores, its disk, processes that share the work."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

__all__ = ["cores", "lock_file", "process_pool", "replace_file", "sync", "try_lock"]


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


def replace_file(path: Path, text: str, mode: int = 0o666) -> None:
    """Put a file at `path`, whole and on the disk when this returns; where that fails, what was there stays."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "w", encoding="utf-8") as file:
            file.write(text)
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
