"""Reports as bytes, and their seals.

A report is four bytes: its cell, big-endian, the same size whatever it says. It is sealed by itself for the analyzer,
by HPKE base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM. What a seal is for (wire version, roles, task,
round, position) goes into `info`: under any other a sealed report cannot be opened. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import hmac
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum._machine import cores, process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.keys import RoundKeys
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


WIRE_VERSION = 3
SEALED_BYTES = REPORT_BYTES + SEAL_BYTES
KEY_BYTES = 32  # of an ephemeral key, which a sealed report begins with

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = struct.Struct(">10sHBB32sI")
_RANDOMIZER, _ANALYZER = 1, 3  # roles, as in docs/wire.md; 2 is the shuffler

Positions = int | Sequence[int] | NDArray[np.integer[Any]]
"""The position that each report is for, in their order; one number where it is that of all."""


def seal_info(task_id: str, round_number: int) -> bytes:
    """What all seals of a round are bound to: wire version, both roles, task and round; a report's position follows."""
    return _INFO.pack(b"shufflesum", WIRE_VERSION, _RANDOMIZER, _ANALYZER, bytes.fromhex(task_id), round_number)


def seal_many(
    encoded: NDArray[np.uint8], public_key: X25519PublicKey, info: bytes, positions: Positions = 0
) -> NDArray[np.uint8]:
    """Each encoded report, one a row, sealed by itself under a key of its own, in the same order."""
    rows = encoded.tobytes()
    sealed = b"".join(
        _SUITE.encrypt(rows[start : start + REPORT_BYTES], public_key, info + position)
        for start, position in zip(range(0, len(rows), REPORT_BYTES), _encoded(positions, len(encoded)), strict=True)
    )
    return np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)


def _encoded(positions: Positions, count: int) -> Iterator[bytes]:
    """The end of each report's `info`."""
    data = np.broadcast_to(np.asarray(positions).astype(_LAYOUT), (count,)).tobytes()
    return (data[start : start + 4] for start in range(0, len(data), 4))


# HPKE's base mode once more, because the library draws the ephemeral key and lets nobody give it.
_KEM = b"HPKE-v1KEM" + struct.pack(">H", 0x0020)
_HPKE = b"HPKE-v1HPKE" + struct.pack(">HHH", 0x0020, 0x0001, 0x0001)
_NO_PSK = b"\x00" + hmac.digest(b"", _HPKE + b"psk_id_hash", "sha256")


def seal_with_keys(
    encoded: NDArray[np.uint8],
    keys: NDArray[np.uint8],
    public_key: X25519PublicKey,
    info: bytes,
    positions: Positions = 0,
) -> NDArray[np.uint8]:
    """What `seal_many` makes of reports when these ephemeral private keys, (reports, 32), are drawn.

    The same reports, keys and positions always give the same bytes, so that what a shuffler adds to a batch can be made
    again. A key must be used for one report only, and be secret and as good as random: whoever knows it can read the
    report.
    """
    rows, secret_keys, sealed = encoded.tobytes(), keys.tobytes(), []
    for number, position in enumerate(_encoded(positions, len(encoded))):
        private = X25519PrivateKey.from_private_bytes(secret_keys[KEY_BYTES * number : KEY_BYTES * (number + 1)])
        ephemeral, key, nonce = _encapsulated(private, public_key, info + position)
        report = rows[REPORT_BYTES * number : REPORT_BYTES * (number + 1)]
        sealed.append(ephemeral + AESGCM(key).encrypt(nonce, report, None))
    return np.frombuffer(b"".join(sealed), dtype=np.uint8).reshape(-1, SEALED_BYTES)


def _encapsulated(private: X25519PrivateKey, recipient: X25519PublicKey, info: bytes) -> tuple[bytes, bytes, bytes]:
    """The encapsulated key, and key and nonce of the one message (RFC 9180, sections 4.1 and 5.1)."""
    ephemeral = private.public_key().public_bytes_raw()
    exchanged = _hmac(b"", _KEM + b"eae_prk" + private.exchange(recipient))
    # every expansion fits into one block, the one that ends with 1
    both = ephemeral + recipient.public_bytes_raw()
    shared = _hmac(exchanged, b"\x00\x20" + _KEM + b"shared_secret" + both + b"\x01")
    context = _NO_PSK + _hmac(b"", _HPKE + b"info_hash" + info) + b"\x01"
    secret = _hmac(shared, _HPKE + b"secret")
    key = _hmac(secret, b"\x00\x10" + _HPKE + b"key" + context)
    return ephemeral, key[:16], _hmac(secret, b"\x00\x0c" + _HPKE + b"base_nonce" + context)[:12]


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What came out of sealed reports: the readable ones, encoded, in order, and which ones they are."""

    encoded: NDArray[np.uint8]
    readable: NDArray[np.bool_]

    @property
    def rejected(self) -> int:
        """How many could not be opened."""
        return int(np.count_nonzero(~self.readable))


def open_many(
    sealed: bytes | NDArray[np.uint8], private_key: X25519PrivateKey, info: bytes, positions: Positions = 0
) -> Opened:
    """Open sealed reports in this process; what cannot be opened is rejected and counted, never an error."""
    data = whole_reports(sealed)
    count = len(data) // SEALED_BYTES
    opened, readable = [], np.zeros(count, dtype=np.bool_)
    for number, position in enumerate(_encoded(positions, count)):
        report = data[SEALED_BYTES * number : SEALED_BYTES * (number + 1)]
        try:
            opened.append(_SUITE.decrypt(report, private_key, info + position))
        except (InvalidTag, ValueError):
            continue
        readable[number] = True
    return Opened(np.frombuffer(b"".join(opened), dtype=np.uint8).reshape(-1, REPORT_BYTES), readable)


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

    def _map(self, work: Callable[..., _R], *columns: NDArray[Any]) -> list[_R]:
        """`work` on blocks of rows, in their order; a few are done in this process."""
        rows = len(columns[0])
        if self._processes == 1 or rows <= _BLOCK:
            return [work(*columns)]
        with self._lock:
            pool = self._pool = self._pool or process_pool(self._processes)
        try:
            blocks = [[column[start : start + _BLOCK] for start in range(0, rows, _BLOCK)] for column in columns]
            return list(pool.map(work, *blocks))
        except BrokenProcessPool:  # a process was killed; the rows are still here, so nothing is lost
            with self._lock:
                self._pool = None if self._pool is pool else self._pool
            pool.shutdown(wait=False, cancel_futures=True)
            return [work(*columns)]

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
        self._given = public_key.public_bytes_raw(), info

    def __call__(self, encoded: NDArray[np.uint8], positions: Positions = 0, /) -> NDArray[np.uint8]:
        """Encoded reports, one a row, each sealed by itself, in the same order."""
        return np.concatenate(self._map(partial(_seal, *self._given), encoded, _listed(positions, len(encoded))))

    def with_keys(
        self, encoded: NDArray[np.uint8], keys: NDArray[np.uint8], positions: Positions = 0
    ) -> NDArray[np.uint8]:
        """The same with ephemeral keys that are given; see `seal_with_keys`."""
        work = partial(_seal_with_keys, *self._given)
        return np.concatenate(self._map(work, encoded, keys, _listed(positions, len(encoded))))


class Opener(_Workers):
    """Opens sealed reports with one private key, or with that of their round."""

    def __init__(self, keys: X25519PrivateKey | RoundKeys, *, processes: int | None = None) -> None:
        super().__init__(processes)
        self.keys = keys

    def private_key(self, round_number: int = 1) -> X25519PrivateKey:
        """The private key of a round; refused where it was destroyed."""
        return self.keys.private_key(round_number) if isinstance(self.keys, RoundKeys) else self.keys

    def public_key(self, round_number: int = 1) -> bytes:
        """The public key that reports of a round must be sealed to."""
        return self.private_key(round_number).public_key().public_bytes_raw()

    def open_many(
        self, sealed: bytes | NDArray[np.uint8], info: bytes, positions: Positions = 0, *, round_number: int = 1
    ) -> Opened:
        """Open sealed reports; what cannot be opened is rejected and counted, never an error."""
        work = partial(_open, self.private_key(round_number).private_bytes_raw(), info)
        rows = np.frombuffer(whole_reports(sealed), dtype=np.uint8).reshape(-1, SEALED_BYTES)
        opened = self._map(work, rows, _listed(positions, len(rows)))
        return Opened(
            np.concatenate([part.encoded for part in opened]), np.concatenate([part.readable for part in opened])
        )


def _listed(positions: Positions, count: int) -> NDArray[np.integer[Any]]:
    return np.broadcast_to(np.asarray(positions), (count,))


# What a process does: with keys as bytes, because other forms cannot be handed to it.


def _seal(
    public_key: bytes, info: bytes, encoded: NDArray[np.uint8], positions: NDArray[np.uint32]
) -> NDArray[np.uint8]:
    return seal_many(encoded, X25519PublicKey.from_public_bytes(public_key), info, positions)


def _seal_with_keys(
    public_key: bytes,
    info: bytes,
    encoded: NDArray[np.uint8],
    keys: NDArray[np.uint8],
    positions: NDArray[np.uint32],
) -> NDArray[np.uint8]:
    return seal_with_keys(encoded, keys, X25519PublicKey.from_public_bytes(public_key), info, positions)


def _open(private_key: bytes, info: bytes, sealed: NDArray[np.uint8], positions: NDArray[np.uint32]) -> Opened:
    return open_many(sealed, X25519PrivateKey.from_private_bytes(private_key), info, positions)
