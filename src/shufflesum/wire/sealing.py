"""Reports sealed one by one for the analyzer.

HPKE base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM. What a seal is for (wire version, roles, task,
round) goes into `info`: under any other a sealed report cannot be opened. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from shufflesum.cells import REPORT_BYTES
from shufflesum.errors import ReportsError
from shufflesum.plans import SEAL_BYTES

__all__ = ["SEALED_BYTES", "WIRE_VERSION", "Opened", "open_many", "seal_info", "seal_many", "whole_reports"]

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
