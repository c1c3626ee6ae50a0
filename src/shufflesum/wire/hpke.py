"""The recipient's half of HPKE, for many short messages that share one key and one `info`.

RFC 9180, base mode, DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, one message per seal. `cryptography` opens
each message from the start; deriving once what key and `info` alone decide makes opening a report about an eighth
faster (`make bench`). X25519, AES-GCM and SHA-256 remain the libraries', and so does all of sealing.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["Recipient"]

_KEM = b"HPKE-v1KEM\x00\x20"
_SUITE = b"HPKE-v1HPKE\x00\x20\x00\x01\x00\x01"
_ENCAPSULATED, _SECRET, _KEY, _NONCE = 32, 32, 16, 12  # bytes

_SHA256_BLOCK = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


class Recipient:
    """Opens messages that were sealed to one key under one `info`."""

    def __init__(self, private_key: X25519PrivateKey, info: bytes) -> None:
        self._exchange = private_key.exchange
        self._public_key = private_key.public_key().public_bytes_raw()
        empty = b""  # base mode has neither pre-shared key nor its id
        context = b"\x00" + _hmac(empty, _SUITE + b"psk_id_hash") + _hmac(empty, _SUITE + b"info_hash" + info)
        self._key_input = _expanded(_KEY, _SUITE + b"key", context)
        self._nonce_input = _expanded(_NONCE, _SUITE + b"base_nonce", context)

    def open(self, message: bytes, associated_data: bytes | None = None) -> bytes:
        """What was sealed; `InvalidTag` or `ValueError` if nothing was, for this key, `info` and associated data."""
        encapsulated = message[:_ENCAPSULATED]
        exchanged = self._exchange(X25519PublicKey.from_public_bytes(encapsulated))
        extracted = _hmac(b"", _KEM + b"eae_prk" + exchanged)
        shared = _hmac(extracted, _expanded(_SECRET, _KEM + b"shared_secret", encapsulated + self._public_key))
        secret = _hmac(shared, _SUITE + b"secret")
        key, nonce = _hmac(secret, self._key_input)[:_KEY], _hmac(secret, self._nonce_input)[:_NONCE]
        return AESGCM(key).decrypt(nonce, message[_ENCAPSULATED:], associated_data)


def _expanded(length: int, label: bytes, context: bytes) -> bytes:
    """What HKDF-Expand authenticates for its first block, which is all that is needed up to 32 bytes."""
    return length.to_bytes(2, "big") + label + context + b"\x01"


def _hmac(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 under a key of at most 64 bytes; `hmac.digest` takes twice as long for a message this short."""
    padded = key.ljust(_SHA256_BLOCK, b"\x00")
    return sha256(padded.translate(_OUTER) + sha256(padded.translate(_INNER) + message).digest()).digest()
