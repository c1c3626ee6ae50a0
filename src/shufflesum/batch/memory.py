"""How many workers share the work within the memory allowed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from shufflesum._checks import check_size
from shufflesum._machine import cores
from shufflesum.errors import ParameterError

__all__ = ["DEFAULT_MEMORY", "thread_pool", "workers_within"]

DEFAULT_MEMORY = 10**9


def workers_within(asked: int | None, memory: int, bytes_each: int) -> int:
    """As many as asked for, or as there are cores, and as the memory allows."""
    if asked is not None:
        check_size("workers", asked, 1, 1 << 10)
    if memory < bytes_each:
        raise ParameterError(
            f"memory is {memory / 1e6:.3g} MB, but one worker needs {bytes_each / 1e6:.0f} MB; raise it (--memory)"
        )
    return min(asked or cores(), memory // bytes_each)


@contextmanager
def thread_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads; after an error, work that has not begun is dropped."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
