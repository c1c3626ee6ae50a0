"""The secret that shuffler and analyzer share."""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from shufflesum.errors import FileError
from shufflesum.service.http.problems import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["check_bearer", "load_secret"]

_MIN_SECRET = 16
_MAX_SECRET = 1024


def load_secret(path: str | Path) -> str:
    """The secret that shuffler and analyzer share, from a file that only its owner may read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_SECRET + 1)
    except OSError as error:
        raise FileError("unreadable", f"cannot read the secret {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise FileError(
            "open-to-others",
            f"{path}: others than the owner may read this secret (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}",
        )
    secret = text.strip()
    if not _MIN_SECRET <= len(secret) <= _MAX_SECRET or not secret.isascii() or not secret.decode().isprintable():
        raise FileError(
            "malformed",
            f"{path}: a secret is one line of {_MIN_SECRET} to {_MAX_SECRET} printable ASCII characters; "
            f"make one with: (umask 077; openssl rand -hex 32 > {path})",
        )
    return secret.decode()


def check_bearer(request: Request, secret: str) -> None:
    """Refuse a request that does not carry the shared secret; the comparison takes the same time for every guess."""
    given = request.headers.get("authorization", "").encode("latin-1")
    if not hmac.compare_digest(given, f"Bearer {secret}".encode()):
        raise Refusal(
            "wrong-secret",
            "give the shared secret as 'Authorization: Bearer ...'; both servers need the same --secret-file",
            headers={"WWW-Authenticate": "Bearer"},
        )
