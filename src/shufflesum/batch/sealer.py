"""Sealing on all cores: it is work for processes, because threads do not speed it up."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from numpy.typing import NDArray

from shufflesum._machine import process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.wire import SEALED_BYTES, Task, seal_info, seal_many

__all__ = ["Sealer"]

_BLOCK = 512  # reports handed to a process at a time, some tens of milliseconds of work


class Sealer:
    """Seals encoded reports for one round of a task in `processes` processes, which end with the `with` block.

    A script that uses it needs the usual `if __name__ == "__main__":` around its work.
    """

    def __init__(self, task: Task, round_number: int, processes: int) -> None:
        self._task = task
        self._info = seal_info(task.id, round_number)
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __call__(self, encoded: NDArray[np.uint8], /) -> NDArray[np.uint8]:
        """Encoded reports, shape (reports, 4), each sealed by itself: shape (reports, 52)."""
        if self._pool is None or len(encoded) <= _BLOCK:
            return seal_many(encoded, self._task.public_key, self._info)
        blocks = [encoded[start : start + _BLOCK].tobytes() for start in range(0, len(encoded), _BLOCK)]
        try:
            sealed = b"".join(self._pool.map(_seal_in_worker, blocks))
        except BrokenProcessPool:  # a process was killed; the reports are still here
            return seal_many(encoded, self._task.public_key, self._info)
        return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)

    def __enter__(self) -> Sealer:
        """Start the processes, unless one is enough."""
        if self._processes > 1:
            self._pool = process_pool(self._processes, _start_worker, self._task.analyzer_key, self._info)
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


_worker: tuple[X25519PublicKey, bytes]  # in the pool's processes only


def _start_worker(public_key: bytes, info: bytes) -> None:
    global _worker  # noqa: PLW0603
    _worker = X25519PublicKey.from_public_bytes(public_key), info


def _seal_in_worker(encoded: bytes) -> bytes:
    rows = np.frombuffer(encoded, dtype=np.uint8).reshape(-1, REPORT_BYTES)
    return seal_many(rows, *_worker).tobytes()
