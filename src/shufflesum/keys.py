"""Key files: the analyzer's keys, for all rounds or one for each, and a server's key of its noise.

A file of a secret is for its owner only, and refused where others could have read it. None is written over another;
only keys of rounds give way to those of later rounds. Byte by byte in docs/wire.md.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from shufflesum._checks import check_size
from shufflesum._machine import replace_file, writing
from shufflesum.errors import FileError, ParameterError, ReportsError

_KEY_BYTES = 32
_ROUNDS = "rounds' private"
_LABELS = {
    "public": "shufflesum-public-key-1",
    "private": "shufflesum-private-key-1",
    _ROUNDS: "shufflesum-round-private-keys-1",
    "noise": "shufflesum-noise-key-1",
}
_ENDINGS = {"public": ".pub", "private": ".key", _ROUNDS: ".key", "noise": ".noise"}
MOST_KEYED_ROUNDS = 1 << 14
_MAX_KEY_FILE = 1024 + 2 * _KEY_BYTES * MOST_KEYED_ROUNDS


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
    return _write_pair(
        name, "private", private_key.private_bytes_raw().hex(), private_key.public_key().public_bytes_raw()
    )


def _write_pair(name: str | Path, kind: str, secret: str, public_keys: bytes) -> tuple[Path, Path]:
    private, public = Path(f"{name}.key"), Path(f"{name}.pub")
    _refuse_existing(private, public)
    _write_new(private, f"{_LABELS[kind]} {secret}\n", 0o600)
    try:
        _write_new(public, f"{_LABELS['public']} {public_keys.hex()}\n", 0o666)
    except BaseException:
        private.unlink()
        raise
    return private, public


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise FileError(
                "exists", f"{path} exists and keys are never overwritten; choose another name, or move it away"
            )


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
    return X25519PrivateKey.from_private_bytes(_one_key(Path(path), "private"))


def load_public_keys(path: str | Path) -> bytes:
    """Read a public key file: the 32 bytes of the key of all rounds, or of one key for each round."""
    raw = _bytes_of(Path(path), "public", _read_key(Path(path), "public"))
    try:
        check_public_keys(raw)
    except ParameterError as error:
        raise FileError(error.problem, f"{path}: {error}") from error
    return raw


def check_public_keys(raw: bytes) -> list[X25519PublicKey]:
    """One public key after another."""
    if not raw or len(raw) % _KEY_BYTES or len(raw) > _KEY_BYTES * MOST_KEYED_ROUNDS:
        raise ParameterError("malformed-key", f"public keys of {len(raw)} bytes; an X25519 key has {_KEY_BYTES}")
    return [check_public_key(raw[start : start + _KEY_BYTES]) for start in range(0, len(raw), _KEY_BYTES)]


class RoundKeys:
    """A private key for each round, in a file from which no key of a round that was released can be had any more.

    The file has a round's number and a seed. The round's key and the next round's seed follow from it by HMAC, and
    nothing leads back: a file of the third round opens nothing of the first two. The object reads the file once.
    """

    def __init__(self, path: Path, first_round: int, seed: bytes) -> None:
        self.path = path
        self.first_round = first_round
        """The first round whose key was not destroyed."""
        self._seed = seed

    @staticmethod
    def write(name: str | Path, rounds: int) -> tuple[Path, Path]:
        """Write NAME.key, which starts with the key of round 1, and NAME.pub with the public keys of so many rounds."""
        check_size("rounds", rounds, 1, MOST_KEYED_ROUNDS)
        keys = RoundKeys(Path(f"{name}.key"), 1, secrets.token_bytes(_KEY_BYTES))
        return _write_pair(name, _ROUNDS, keys._content(), b"".join(keys.public_keys(rounds)))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file; refuses one that others than its owner can get at."""
        number, _, digits = _read_key(Path(path), _ROUNDS).partition(" ")
        seed = _bytes_of(Path(path), _ROUNDS, digits)
        if not number.isascii() or not number.isdecimal() or len(seed) != _KEY_BYTES:
            raise FileError("malformed-key", f"{path}: holds no keys of rounds; the file was changed")
        return cls(Path(path), int(number), seed)

    def private_key(self, round_number: int) -> X25519PrivateKey:
        """The key of a round; refused where it was destroyed."""
        if round_number < self.first_round:
            raise ReportsError(
                "released-before",
                f"{self.path}: the key of round {round_number} was destroyed when that round was released, so that "
                "nobody can open its reports any more",
            )
        return X25519PrivateKey.from_private_bytes(_following(self._seed_of(round_number), b"shufflesum-round-key-1"))

    def public_keys(self, rounds: int) -> list[bytes]:
        """The public keys of the rounds up to this one whose keys were not destroyed."""
        numbers = range(self.first_round, rounds + 1)
        return [self.private_key(number).public_key().public_bytes_raw() for number in numbers]

    def destroy(self, round_number: int) -> None:
        """Put the next round's seed in the place of this round's and of all before; nothing to do where that was done.

        The file is replaced, whole and on the disk when this returns. What the disk may keep of the old one is said in
        docs/deploy.md.
        """
        if round_number < self.first_round:
            return
        self._seed, self.first_round = self._seed_of(round_number + 1), round_number + 1
        advice = "the keys of released rounds are still there; make room, and start the analyzer again"
        with writing(self.path, advice, "keys cannot be destroyed"):
            replace_file(self.path, f"{_LABELS[_ROUNDS]} {self._content()}\n", 0o600)

    def _seed_of(self, round_number: int) -> bytes:
        seed = self._seed
        for _ in range(self.first_round, round_number):
            seed = _following(seed, b"shufflesum-next-round-1")
        return seed

    def _content(self) -> str:
        return f"{self.first_round} {self._seed.hex()}"


def _following(seed: bytes, label: bytes) -> bytes:
    return hmac.digest(seed, label, "sha256")


def load_analyzer_keys(path: str | Path) -> X25519PrivateKey | RoundKeys:
    """Read what an analyzer opens reports with: one private key for all rounds, or one for each."""
    label = _read_file(Path(path), "private")[1].partition(" ")[0]
    return RoundKeys.load(path) if label == _LABELS[_ROUNDS] else load_private_key(path)


def write_noise_key(path: Path) -> None:
    """Write a new noise key, for its owner only; never over a file that exists."""
    _refuse_existing(path)
    _write_new(path, f"{_LABELS['noise']} {secrets.token_hex(_KEY_BYTES)}\n", 0o600)


def load_noise_key(path: str | Path) -> bytes:
    """Read a noise key file: 32 secret bytes; refuses one that others than its owner can get at."""
    return _one_key(Path(path), "noise")


def _one_key(path: Path, kind: str) -> bytes:
    raw = _bytes_of(path, kind, _read_key(path, kind))
    if len(raw) != _KEY_BYTES:
        raise FileError("malformed-key", f"{path}: a {kind} key of {len(raw)} bytes; it must have {_KEY_BYTES}")
    return raw


def _bytes_of(path: Path, kind: str, digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise FileError(
            "malformed-key", f"{path}: the {kind} key is not written in hexadecimal; the file was changed"
        ) from error


def _read_file(path: Path, kind: str) -> tuple[int, str]:
    """The file's mode and text."""
    try:
        with open(path, "rb") as file:
            return os.fstat(file.fileno()).st_mode, file.read(_MAX_KEY_FILE).decode("ascii", "replace").strip()
    except OSError as error:
        raise FileError("unreadable", f"cannot read the {kind} key {path}: {error.strerror or error}") from error


def _read_key(path: Path, kind: str) -> str:
    """What stands behind the label, which must be that of this kind of key."""
    mode, text = _read_file(path, kind)
    label, _, content = text.partition(" ")
    if label != _LABELS[kind]:
        other = next((name for name, known in _LABELS.items() if known == label), None)
        found = f"it holds a {other} key" if other else "it is no key file of shufflesum keygen"
        raise FileError("malformed-key", f"{path}: {found}; give the {kind} key, NAME{_ENDINGS[kind]}")
    if kind != "public" and mode & 0o077:
        raise FileError(
            "insecure-permissions",
            f"{path}: others than the owner may use this {kind} key (mode {stat.S_IMODE(mode):04o}); "
            f"it must be 0600: chmod 600 {path}, and make a new key if somebody may have read it",
        )
    return content
