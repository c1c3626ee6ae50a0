"""How many workers share the work within the memory allowed."""

from __future__ import annotations

from shufflesum._checks import check_size
from shufflesum._machine import cores
from shufflesum.errors import ParameterError

__all__ = ["DEFAULT_MEMORY", "workers_within"]

DEFAULT_MEMORY = 10**9


def workers_within(asked: int | None, memory: int, bytes_each: int) -> int:
    """As many as asked for, or as there are cores, and as the memory allows."""
    if asked is not None:
        check_size("workers", asked, 1, 1 << 10)
    if memory < bytes_each:
        raise ParameterError(
            "out-of-range",
            f"memory is {memory / 1e6:.3g} MB, but one worker needs {bytes_each / 1e6:.0f} MB; raise it (--memory)",
        )
    return min(asked or cores(), memory // bytes_each)
