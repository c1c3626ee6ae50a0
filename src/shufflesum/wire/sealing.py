"""Reports sealed one by one for the analyzer, and the key files that belong to that.

HPKE base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM. What a seal is for (wire version, roles, task,
round) goes into `info`: under any other a sealed report cannot be opened. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import os
import secrets
import stat
import struct
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from shufflesum._machine import cores, process_pool
from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import FileError, ParameterError, ReportsError
from shufflesum.plans import SEAL_BYTES
from shufflesum.wire.hpke import Recipient

__all__ = [
    "KEY_BYTES",
    "SEALED_BYTES",
    "WIRE_VERSION",
    "Opened",
    "Opener",
    "check_public_key",
    "generate_private_key",
    "load_private_key",
    "load_public_key",
    "open_many",
    "seal_info",
    "seal_many",
    "write_key_pair",
]

WIRE_VERSION = 2
KEY_BYTES = 32
SEALED_BYTES = REPORT_BYTES + SEAL_BYTES

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_INFO = struct.Struct(">10sHBB32sI")
_RANDOMIZER, _ANALYZER = 1, 3  # roles, as in docs/wire.md; 2 is the shuffler, who neither seals nor opens

_BLOCK = 512  # reports handed to a process at a time, some thirty milliseconds of work
_LABELS = {"public": "shufflesum-public-key-1", "private": "shufflesum-private-key-1"}
_MAX_KEY_FILE = 1024


def seal_info(task_id: str, round_number: int) -> bytes:
    """What a seal is bound to: wire version, both roles, task and round."""
    return _INFO.pack(b"shufflesum", WIRE_VERSION, _RANDOMIZER, _ANALYZER, bytes.fromhex(task_id), round_number)


def seal_many(encoded: NDArray[np.uint8], public_key: X25519PublicKey, info: bytes) -> NDArray[np.uint8]:
    """Each encoded report, shape (reports, 6), sealed by itself under a key of its own: shape (reports, 54)."""
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
    return _gather([_open_block(_sealed_bytes(sealed), private_key, info)])


class Opener:
    """Opens sealed reports with one private key, on all cores.

    Threads do not speed opening up, so processes do it; they start with the first large batch and end with `close`,
    the `with` block, or this process, however it ends. A script that uses it needs the usual
    `if __name__ == "__main__":` around its work.
    """

    def __init__(self, private_key: X25519PrivateKey, *, processes: int | None = None) -> None:
        self._processes = cores() if processes is None else processes
        if self._processes < 1:
            raise ParameterError(f"processes is {processes}; at least one is needed, or None for one per core")
        self._private_key = private_key
        self._pool: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    @property
    def public_key(self) -> bytes:
        """The public key that reports must be sealed to."""
        return self._private_key.public_key().public_bytes_raw()

    def open_many(self, sealed: bytes | NDArray[np.uint8], info: bytes) -> Opened:
        """Open sealed reports; what cannot be opened is rejected and counted, never an error."""
        data = _sealed_bytes(sealed)
        size = _BLOCK * SEALED_BYTES
        if self._processes == 1 or len(data) <= size:
            return _gather([_open_block(data, self._private_key, info)])
        blocks = [data[start : start + size] for start in range(0, len(data), size)]
        pool = self._running_pool()
        try:
            return _gather(list(pool.map(_open_in_worker, blocks, repeat(info))))
        except BrokenProcessPool:  # a worker was killed; the reports are still here, so nothing is lost
            self._drop(pool)
            return _gather([_open_block(data, self._private_key, info)])

    def _running_pool(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = process_pool(self._processes, _start_worker, self._private_key.private_bytes_raw())
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        with self._lock:
            if self._pool is pool:
                self._pool = None
        pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """End the processes; a later batch starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Opener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sealed_bytes(sealed: bytes | NDArray[np.uint8]) -> bytes:
    data = sealed if isinstance(sealed, bytes) else sealed.tobytes()
    if len(data) % SEALED_BYTES:
        raise ReportsError(f"{len(data)} bytes of sealed reports; they come in whole reports of {SEALED_BYTES} bytes")
    return data


def _open_block(sealed: bytes, private_key: X25519PrivateKey, info: bytes) -> tuple[bytes, int]:
    recipient = Recipient(private_key, info)
    opened = []
    for start in range(0, len(sealed), SEALED_BYTES):
        try:
            opened.append(recipient.open(sealed[start : start + SEALED_BYTES]))
        except (InvalidTag, ValueError):
            continue
    return b"".join(opened), len(sealed) // SEALED_BYTES - len(opened)


def _gather(blocks: list[tuple[bytes, int]]) -> Opened:
    encoded = np.frombuffer(b"".join(opened for opened, _ in blocks), dtype=np.uint8)
    return Opened(encoded.reshape(-1, REPORT_BYTES), sum(rejected for _, rejected in blocks))


_worker_key: X25519PrivateKey  # in the pool's processes only


def _start_worker(private_key: bytes) -> None:
    global _worker_key  # noqa: PLW0603
    _worker_key = X25519PrivateKey.from_private_bytes(private_key)


def _open_in_worker(sealed: bytes, info: bytes) -> tuple[bytes, int]:
    return _open_block(sealed, _worker_key, info)


def generate_private_key() -> X25519PrivateKey:
    """A new key of the operating system's randomness."""
    return X25519PrivateKey.generate()


def check_public_key(raw: bytes) -> X25519PublicKey:
    """The 32 bytes as a public key; refuses those under which nothing would be secret."""
    if len(raw) != KEY_BYTES:
        raise ParameterError(f"a public key of {len(raw)} bytes; an X25519 key has {KEY_BYTES}")
    key = X25519PublicKey.from_public_bytes(raw)
    try:
        X25519PrivateKey.generate().exchange(key)
    except ValueError as error:
        raise ParameterError(
            f"the public key {raw.hex()} is a point of low order, under which nothing is secret; "
            "make a key pair with shufflesum keygen"
        ) from error
    return key


def write_key_pair(name: str | Path, private_key: X25519PrivateKey) -> tuple[Path, Path]:
    """Write NAME.key, for its owner only, and NAME.pub; never over a file that exists. Returns both paths."""
    private, public = Path(f"{name}.key"), Path(f"{name}.pub")
    for path in (private, public):
        if os.path.lexists(path):
            raise FileError(f"{path} exists and keys are never overwritten; choose another name, or move it away")
    _write_new(private, f"{_LABELS['private']} {private_key.private_bytes_raw().hex()}\n", 0o600)
    try:
        _write_new(public, f"{_LABELS['public']} {private_key.public_key().public_bytes_raw().hex()}\n", 0o666)
    except BaseException:
        private.unlink()
        raise
    return private, public


def _write_new(path: Path, text: str, mode: int) -> None:
    """Write a file that appears whole or not at all, and only where none was."""
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        try:
            with open(descriptor, "w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.link(temporary, path)  # unlike a rename, fails where another process was first
        finally:
            temporary.unlink()
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written: {error.strerror}; choose a new name in a folder that you may write to"
        ) from error


def load_private_key(path: str | Path) -> X25519PrivateKey:
    """Read a private key file; refuses one that others than its owner can get at."""
    return X25519PrivateKey.from_private_bytes(_load_key(Path(path), "private"))


def load_public_key(path: str | Path) -> bytes:
    """Read a public key file; the 32 bytes of the key."""
    raw = _load_key(Path(path), "public")
    try:
        check_public_key(raw)
    except ParameterError as error:
        raise FileError(f"{path}: {error}") from error
    return raw


def _load_key(path: Path, kind: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_KEY_FILE)
    except OSError as error:
        raise FileError(f"cannot read the {kind} key {path}: {error.strerror or error}") from error
    label, _, digits = text.decode("ascii", "replace").strip().partition(" ")
    if label != _LABELS[kind]:
        other = next((name for name, known in _LABELS.items() if known == label), None)
        found = f"it holds a {other} key" if other else "it is no key file of shufflesum keygen"
        raise FileError(f"{path}: {found}; give the {kind} key, NAME{'.key' if kind == 'private' else '.pub'}")
    if kind == "private" and mode & 0o077:
        raise FileError(
            f"{path}: others than the owner may use this private key (mode {stat.S_IMODE(mode):04o}); "
            f"it must be 0600: chmod 600 {path}, and make a new key if somebody may have read it"
        )
    try:
        raw = bytes.fromhex(digits)
    except ValueError as error:
        raise FileError(f"{path}: the {kind} key is not written in hexadecimal; the file was changed") from error
    if len(raw) != KEY_BYTES:
        raise FileError(f"{path}: a {kind} key of {len(raw)} bytes; an X25519 key has {KEY_BYTES}")
    return raw
