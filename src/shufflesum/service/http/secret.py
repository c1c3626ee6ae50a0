"""Secrets in files: the one that shuffler and analyzer share, and the operator's own."""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from shufflesum.errors import FileError
from shufflesum.service.http.problems import Refusal
from shufflesum.service.logs import log

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["SecretFile", "check_bearer", "valid_secrets"]

_MIN_SECRET = 16
_MAX_SECRET = 1024
_MOST_SECRETS = 2


class SecretFile:
    """A secret in a file that only its owner may read: one line, or two while it is being replaced.

    Both lines are valid, and the first is the one to send. The file is read again when it has changed; where it then
    holds no secret, what was valid stays valid.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._version: tuple[int, ...] | None = None
        self._valid: tuple[str, ...] = ()
        self.valid()

    def valid(self) -> tuple[str, ...]:
        """The secrets that are valid now."""
        version = _version(self._path)
        if version != self._version:
            try:
                read = _read(self._path)
            except FileError as error:
                if not self._valid:
                    raise
                log.warning("secret not replaced, the former one stays valid", problem=error.problem, error=str(error))
            else:
                if self._valid and read != self._valid:
                    log.info("secret replaced", file=self._path.name, valid=len(read))
                self._valid = read
            self._version = version
        return self._valid


def valid_secrets(secret: str | SecretFile | None) -> tuple[str, ...]:
    """The secrets that are valid now: those of a file, the one that was given, or none."""
    if secret is None:
        return ()
    return (secret,) if isinstance(secret, str) else secret.valid()


def _version(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _read(path: Path) -> tuple[str, ...]:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MOST_SECRETS * (_MAX_SECRET + 2) + 1)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the secret {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise FileError(
            "open-to-others",
            f"{path}: others than the owner may read this secret (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}",
        )
    lines = [line.strip() for line in text.strip().splitlines()]
    if not 1 <= len(lines) <= _MOST_SECRETS or not all(map(_is_secret, lines)):
        raise FileError(
            "malformed",
            f"{path}: a secret is one line of {_MIN_SECRET} to {_MAX_SECRET} printable ASCII characters, and two such "
            f"lines are valid together while it is being replaced; make one with: (umask 077; openssl rand -hex 32 > "
            f"{path})",
        )
    return tuple(line.decode() for line in lines)


def _is_secret(line: bytes) -> bool:
    return _MIN_SECRET <= len(line) <= _MAX_SECRET and line.isascii() and line.decode().isprintable()


def check_bearer(request: Request, secrets: Iterable[str], detail: str) -> None:
    """Refuse a request that carries none of these secrets; the comparison takes the same time for every guess."""
    given = request.headers.get("authorization", "").encode("latin-1")
    if not any(hmac.compare_digest(given, f"Bearer {secret}".encode()) for secret in secrets):
        raise Refusal("wrong-secret", detail, headers={"WWW-Authenticate": "Bearer"})
