"""Sealing and opening many reports on all cores: work for processes, because threads do not speed it up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Self, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from shufflesum._machine import cores, process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ParameterError
from shufflesum.wire.sealing import SEALED_BYTES, Opened, open_many, seal_many, whole_reports

__all__ = ["Opener", "Sealer"]

_BLOCK = 512  # reports handed to a process at a time, some tens of milliseconds of work
_R = TypeVar("_R")


class _Workers:
    """Processes, one per core unless said, that end with `close`, the `with` block, or this process, however it ends.

    They start with the first large piece of work. A script that uses them needs the usual
    `if __name__ == "__main__":` around its work.
    """

    def __init__(self, processes: int | None) -> None:
        self._processes = cores() if processes is None else processes
        if self._processes < 1:
            raise ParameterError(
                "out-of-range", f"processes is {processes}; at least one is needed, or None for one per core"
            )
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def _map(self, work: Callable[[bytes], _R], rows: bytes, row_bytes: int) -> list[_R]:
        """`work` on blocks of whole rows, in their order; a few are done in this process."""
        size = _BLOCK * row_bytes
        if self._processes == 1 or len(rows) <= size:
            return [work(rows)]
        pool = self._running()
        try:
            return list(pool.map(work, [rows[start : start + size] for start in range(0, len(rows), size)]))
        except BrokenProcessPool:  # a process was killed; the rows are still here, so nothing is lost
            self._drop(pool)
            return [work(rows)]

    def _running(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = process_pool(self._processes)
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the processes; further work starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Sealer(_Workers):
    """Seals encoded reports to one public key under one `info`."""

    def __init__(self, public_key: X25519PublicKey, info: bytes, *, processes: int | None = None) -> None:
        super().__init__(processes)
        self._work = partial(_seal, public_key.public_bytes_raw(), info)

    def __call__(self, encoded: NDArray[np.uint8], /) -> NDArray[np.uint8]:
        """Encoded reports, one a row, each sealed by itself, in the same order."""
        sealed = b"".join(self._map(self._work, encoded.tobytes(), REPORT_BYTES))
        return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)


class Opener(_Workers):
    """Opens sealed reports with one private key."""

    def __init__(self, private_key: X25519PrivateKey, *, processes: int | None = None) -> None:
        super().__init__(processes)
        self._private_key = private_key

    @property
    def public_key(self) -> bytes:
        """The public key that reports must be sealed to."""
        return self._private_key.public_key().public_bytes_raw()

    def open_many(self, sealed: bytes | NDArray[np.uint8], info: bytes) -> Opened:
        """Open sealed reports; what cannot be opened is rejected and counted, never an error."""
        work = partial(_open, self._private_key.private_bytes_raw(), info)
        opened = self._map(work, whole_reports(sealed), SEALED_BYTES)
        return Opened(np.concatenate([part.encoded for part in opened]), sum(part.rejected for part in opened))


# What a process does: with keys as bytes, because other forms cannot be handed to it.


def _seal(public_key: bytes, info: bytes, encoded: bytes) -> bytes:
    rows = np.frombuffer(encoded, dtype=np.uint8).reshape(-1, REPORT_BYTES)
    return seal_many(rows, X25519PublicKey.from_public_bytes(public_key), info).tobytes()


def _open(private_key: bytes, info: bytes, sealed: bytes) -> Opened:
    return open_many(sealed, X25519PrivateKey.from_private_bytes(private_key), info)
