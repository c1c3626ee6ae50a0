"""Key files: the analyzer's pair of keys, written once and never over another.

A file of a secret is for its owner only, and refused where others could have read it. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shufflesum.errors import FileError, ParameterError

_KEY_BYTES = 32
_LABELS = {"public": "shufflesum-public-key-1", "private": "shufflesum-private-key-1"}
_MAX_KEY_FILE = 1024


def generate_private_key() -> X25519PrivateKey:
    """A new key of the operating system's randomness."""
    return X25519PrivateKey.generate()


def check_public_key(raw: bytes) -> X25519PublicKey:
    """The 32 bytes as a public key; refuses those under which nothing would be secret."""
    if len(raw) != _KEY_BYTES:
        raise ParameterError("malformed-key", f"a public key of {len(raw)} bytes; an X25519 key has {_KEY_BYTES}")
    key = X25519PublicKey.from_public_bytes(raw)
    try:
        X25519PrivateKey.generate().exchange(key)
    except ValueError as error:
        raise ParameterError(
            "malformed-key",
            f"the public key {raw.hex()} is a point of low order, under which nothing is secret; "
            "make a key pair with shufflesum keygen",
        ) from error
    return key


def write_key_pair(name: str | Path, private_key: X25519PrivateKey) -> tuple[Path, Path]:
    """Write NAME.key, for its owner only, and NAME.pub; never over a file that exists. Returns both paths."""
    private, public = Path(f"{name}.key"), Path(f"{name}.pub")
    for path in (private, public):
        if os.path.lexists(path):
            raise FileError(
                "exists", f"{path} exists and keys are never overwritten; choose another name, or move it away"
            )
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
            "unwritable",
            f"{path}: cannot be written: {error.strerror}; choose a new name in a folder that you may write to",
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
        raise FileError(error.problem, f"{path}: {error}") from error
    return raw


def _load_key(path: Path, kind: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_KEY_FILE)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the {kind} key {path}: {error.strerror or error}") from error
    label, _, digits = text.decode("ascii", "replace").strip().partition(" ")
    if label != _LABELS[kind]:
        other = next((name for name, known in _LABELS.items() if known == label), None)
        found = f"it holds a {other} key" if other else "it is no key file of shufflesum keygen"
        raise FileError(
            "malformed-key", f"{path}: {found}; give the {kind} key, NAME{'.key' if kind == 'private' else '.pub'}"
        )
    if kind == "private" and mode & 0o077:
        raise FileError(
            "insecure-permissions",
            f"{path}: others than the owner may use this private key (mode {stat.S_IMODE(mode):04o}); "
            f"it must be 0600: chmod 600 {path}, and make a new key if somebody may have read it",
        )
    try:
        raw = bytes.fromhex(digits)
    except ValueError as error:
        raise FileError(
            "malformed-key", f"{path}: the {kind} key is not written in hexadecimal; the file was changed"
        ) from error
    if len(raw) != _KEY_BYTES:
        raise FileError("malformed-key", f"{path}: a {kind} key of {len(raw)} bytes; an X25519 key has {_KEY_BYTES}")
    return raw
