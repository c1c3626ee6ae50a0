"""The same call in processes that are copies of each other: what they draw must not be."""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Copies", "in_forks"]

Copies = list[NDArray[np.uint32]]
_SECONDS = 20.0


def in_forks(work: Callable[[], NDArray[np.uint32]], children: int = 2) -> Copies:
    """The cells that this process and its forked copies make; empty where forks are not to be had.

    A copy that cannot do the work, or takes too long for it, is ended and left out.
    """
    if not hasattr(os, "fork"):
        return []
    pipes = [_forked(work) for _ in range(children)]
    made = [work()]
    for child, pipe in pipes:
        cells = _read(child, pipe)
        made += [cells] if cells.size else []
    return made if len(made) > 1 else []


def _forked(work: Callable[[], NDArray[np.uint32]]) -> tuple[int, int]:
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which this child does without
        child = os.fork()
    if child:
        os.close(writable)
        return child, readable
    try:
        os.close(readable)
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(np.ascontiguousarray(work(), dtype=np.uint32).tobytes())
    finally:
        os._exit(0)  # nothing of the parent's is flushed or closed twice


def _read(child: int, pipe: int) -> NDArray[np.uint32]:
    """What a child writes until it ends; nothing where it stalls."""
    pieces: list[bytes] = []
    try:
        while True:
            if not select.select([pipe], [], [], _SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
                pieces = []
                break
            piece = os.read(pipe, 1 << 20)
            if not piece:
                break
            pieces.append(piece)
    finally:
        os.close(pipe)
        os.waitpid(child, 0)
    whole = b"".join(pieces)
    return np.frombuffer(whole[: len(whole) // 4 * 4], dtype=np.uint32)
