"""Reports as bytes, and their seals.

A report is four bytes: its cell, big-endian, the same size whatever it says. It is sealed by itself for the analyzer,
by HPKE base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM. What a seal is for (wire version, roles, task,
round, position) goes into `info`: under any other a sealed report cannot be opened. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Self, TypeVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum._machine import cores, process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.plans import SEAL_BYTES
from shufflesum.reports import Reports

_LAYOUT = np.dtype(">u4")


def encode_reports(reports: Reports) -> NDArray[np.uint8]:
    """The reports as rows of bytes, shape (reports, 4), in the same order."""
    return reports.cells.astype(_LAYOUT).view(np.uint8).reshape(len(reports), REPORT_BYTES)


def decode_reports(encoded: NDArray[np.uint8], plan_id: str, round_number: int = 1) -> Reports:
    """Rows of bytes as reports of a round of a plan.

    Any four bytes are a report; whether the plan has such a cell is decided where reports are counted.
    """
    if encoded.dtype != np.uint8 or encoded.ndim != 2 or encoded.shape[1] != REPORT_BYTES:
        raise ReportsError(
            "wrong-type",
            f"encoded reports are a {encoded.dtype} array of shape {encoded.shape}; "
            f"they must be bytes of shape (reports, {REPORT_BYTES})",
        )
    cells = np.ascontiguousarray(encoded).reshape(-1).view(_LAYOUT).astype(np.uint32)
    return Reports(plan_id, cells, round_number)


WIRE_VERSION = 2
SEALED_BYTES = REPORT_BYTES + SEAL_BYTES

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = struct.Struct(">10sHBB32sI")
_RANDOMIZER, _ANALYZER = 1, 3  # roles, as in docs/wire.md; 2 is the shuffler, who neither seals nor opens


def seal_info(task_id: str, round_number: int) -> bytes:
    """What a seal is bound to: wire version, both roles, task and round."""
    return _INFO.pack(b"shufflesum", WIRE_VERSION, _RANDOMIZER, _ANALYZER, bytes.fromhex(task_id), round_number)


def seal_many(encoded: NDArray[np.uint8], public_key: X25519PublicKey, info: bytes) -> NDArray[np.uint8]:
    """Each encoded report, one a row, sealed by itself under a key of its own, in the same order."""
    rows = encoded.tobytes()
    sealed = b"".join(
        _SUITE.encrypt(rows[start : start + REPORT_BYTES], public_key, info)
        for start in range(0, len(rows), REPORT_BYTES)
    )
    return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What came out of sealed reports: the readable ones, encoded, in order, and how many were not."""

    encoded: NDArray[np.uint8]
    rejected: int


def open_many(sealed: bytes | NDArray[np.uint8], private_key: X25519PrivateKey, info: bytes) -> Opened:
    """Open sealed reports in this process; what cannot be opened is rejected and counted, never an error."""
    data = whole_reports(sealed)
    opened = []
    for start in range(0, len(data), SEALED_BYTES):
        try:
            opened.append(_SUITE.decrypt(data[start : start + SEALED_BYTES], private_key, info))
        except (InvalidTag, ValueError):
            continue
    encoded = np.frombuffer(b"".join(opened), dtype=np.uint8).reshape(-1, REPORT_BYTES)
    return Opened(encoded, len(data) // SEALED_BYTES - len(opened))


def whole_reports(sealed: bytes | NDArray[np.uint8]) -> bytes:
    """Sealed reports one after another; refuses what is no whole number of them."""
    data = sealed if isinstance(sealed, bytes) else sealed.tobytes()
    if len(data) % SEALED_BYTES:
        raise ReportsError(
            "wrong-length", f"{len(data)} bytes of sealed reports; they come in whole reports of {SEALED_BYTES} bytes"
        )
    return data


_BLOCK = 512  # reports handed to a process at a time, some tens of milliseconds of work
_R = TypeVar("_R")


class _Workers:
    """Processes, one per core unless said, that end with `close`, the `with` block, or this process, however it ends.

    They start with the first large piece of work. A script that uses them needs the usual
    `if __name__ == "__main__":` around its work.
    """

    def __init__(self, processes: int | None) -> None:
        self._processes = cores() if processes is None else processes
        check_size("processes", self._processes, 1, 1 << 10)
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def _map(self, work: Callable[[bytes], _R], rows: bytes, row_bytes: int) -> list[_R]:
        """`work` on blocks of whole rows, in their order; a few are done in this process."""
        size = _BLOCK * row_bytes
        if self._processes == 1 or len(rows) <= size:
            return [work(rows)]
        with self._lock:
            pool = self._pool = self._pool or process_pool(self._processes)
        try:
            return list(pool.map(work, [rows[start : start + size] for start in range(0, len(rows), size)]))
        except BrokenProcessPool:  # a process was killed; the rows are still here, so nothing is lost
            with self._lock:
                self._pool = None if self._pool is pool else self._pool
            pool.shutdown(wait=False, cancel_futures=True)
            return [work(rows)]

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
