"""Single-use upload tokens: the operator hands one to each person, so that one person is one user.

A token works once in every round. The shuffler holds only digests, so its files let nobody upload, and it deletes
which tokens were used in a round as soon as that round is released.
"""

from __future__ import annotations

import bisect
import hashlib
import os
import secrets
from pathlib import Path

from shufflesum.errors import FileError, ParameterError
from shufflesum.service.http.messages import Refusal

TOKEN_BYTES = 16
_DIGEST_BYTES = 32
_MOST_TOKENS = 100_000_000


def token_digest(token: str) -> bytes:
    """What the shuffler knows of a token, given in hexadecimal; ValueError where it is not one."""
    raw = bytes.fromhex(token)
    if len(raw) != TOKEN_BYTES:
        raise ValueError(f"a token has {TOKEN_BYTES} bytes")
    return hashlib.sha256(raw).digest()


def write_tokens(count: int, tokens: Path, digests: Path) -> None:
    """Make tokens, one a line, for their owner to hand out, and the digests for the shuffler, in another order."""
    if not 1 <= count <= _MOST_TOKENS:
        raise ParameterError("out-of-range", f"count is {count}; it must be 1 to {_MOST_TOKENS:,}, one for each person")
    drawn = [secrets.token_hex(TOKEN_BYTES) for _ in range(count)]
    _write_new(tokens, drawn)
    try:
        # Sorted, so that a digest's line does not tell whose token it is.
        _write_new(digests, sorted(token_digest(token).hex() for token in drawn))
    except BaseException:
        tokens.unlink()
        raise


def _write_new(path: Path, lines: list[str]) -> None:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise FileError("exists", f"{path} exists and tokens are never overwritten; choose another name") from None
    except OSError as error:
        raise FileError("unwritable", f"{path} cannot be written: {error.strerror}; choose another folder") from error
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink()
        raise FileError("unwritable", f"{path} cannot be written: {error.strerror}; is the disk full?") from error


class Tokens:
    """The digests of all tokens of a task: 32 bytes each in memory."""

    def __init__(self, digests: list[bytes]) -> None:
        self._sorted = b"".join(sorted(digests))
        self._count = len(digests)

    @staticmethod
    def load(path: str | Path) -> Tokens:
        """Read the file of digests from `shufflesum tokens`."""
        try:
            lines = Path(path).read_text(encoding="ascii").split()
            digests = [bytes.fromhex(line) for line in lines]
        except OSError as error:
            raise FileError("unreadable", f"cannot read the digests {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise FileError(
                "malformed", f"{path} is not a file of digests; give the one from shufflesum tokens --digests"
            ) from error
        if not digests or any(len(digest) != _DIGEST_BYTES for digest in digests):
            raise FileError(
                "malformed", f"{path} is not a file of digests, one or more; give the one from shufflesum tokens"
            )
        return Tokens(digests)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        place = bisect.bisect_left(range(self._count), digest, key=self._at)
        return place < self._count and self._at(place) == digest

    def _at(self, place: int) -> bytes:
        return self._sorted[place * _DIGEST_BYTES : (place + 1) * _DIGEST_BYTES]

    def check(self, authorization: str) -> bytes:
        """The digest of the token in an Authorization header, or the refusal of one that is missing or unknown."""
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "token":
            raise Refusal(
                "token-missing",
                "this task needs an upload token from whoever runs it: send --tokens FILE, token= in Python, or the "
                "header 'Authorization: Token ...'",
                headers={"WWW-Authenticate": "Token"},
            )
        try:
            digest = token_digest(token.strip())
        except ValueError:
            digest = b""
        if digest not in self:
            raise Refusal("token-unknown", "this is no token of this task; ask whoever runs it for one")
        return digest
