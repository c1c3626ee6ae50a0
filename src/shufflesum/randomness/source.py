"""Uniform bits for every draw of the protocol.

What needs entropy stops here: a source only fills arrays with uniform bits. Everything that turns bits into
coordinates, coins and permutations is deterministic code over integer arrays (`draws.py`), and can be tested as such.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomSource", "SecureSource", "Words", "words"]

Words = NDArray[Any]

_REKEY_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)

# A forked child inherits a copy of every keystream. The process id tells each source that it is such a copy, even after
# a fork that Python does not see (the C library's own). Counting forks helps where an ancestor's id is used again.
_forks = 0


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class RandomSource(Protocol):
    """Fills arrays of unsigned integers with independent uniform bits."""

    def fill(self, out: Words) -> None:
        """Overwrite `out`, a C-contiguous array of unsigned integers, with fresh uniform bits."""
        ...


class SecureSource:
    """The AES-256 counter-mode keystream under a key from the operating system.

    Safe to share between threads, and after a fork parent and child draw from different keys. It cannot be seeded:
    a seeded source for tests and experiments is `shufflesum.testing.SeededSource`, another class in another module.
    """

    __slots__ = ("_forks", "_keystream", "_left", "_lock", "_process")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rekey()

    def _rekey(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        cipher = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(os.urandom(16)))
        self._keystream = cipher.encryptor()
        self._left = _REKEY_BYTES
        self._forks, self._process = _forks, os.getpid()

    def fill(self, out: Words) -> None:
        """Overwrite `out` with keystream; a new key is drawn after a fork and after every gibibyte."""
        if self._forks != _forks or self._process != os.getpid():
            # A lock held by another thread at the moment of the fork would never be released in the child.
            self._lock = threading.Lock()
            self._rekey()
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        with self._lock:
            for start in range(0, len(view), _CHUNK_BYTES):
                chunk = view[start : start + _CHUNK_BYTES]
                if self._left < len(chunk):
                    self._rekey()
                self._keystream.update_into(memoryview(_ZEROS)[: len(chunk)], chunk)
                self._left -= len(chunk)

    def __reduce__(self) -> tuple[type[SecureSource], tuple[()]]:
        """A pickled source arrives as a new one: a keystream is never copied to another process."""
        return SecureSource, ()


def words(source: RandomSource, count: int, dtype: type[np.unsignedinteger[Any]]) -> Words:
    """`count` fresh uniform words of the given unsigned type."""
    out: Words = np.empty(count, dtype=dtype)
    if count:
        source.fill(out)
    return out
