"""Addresses of servers: what one looks like, when plain HTTP will do, and whose certificates are believed."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import stat
from pathlib import Path
from urllib.parse import urlsplit

from shufflesum.errors import FileError, ParameterError
from shufflesum.wire import check_address

__all__ = ["NOT_TRUSTED", "check_url", "is_loopback", "load_key_pair", "trust", "why_unreachable"]

NOT_TRUSTED = "its certificate is not trusted"
_REASONS: dict[type[BaseException], str] = {
    ssl.SSLCertVerificationError: NOT_TRUSTED,
    ssl.SSLError: "TLS failed",
    socket.gaierror: "unknown host name",
    ConnectionRefusedError: "connection refused",
    TimeoutError: "no answer in time",
}


def check_url(url: str, *, allow_plain_http: bool) -> str:
    """A server's address without a trailing slash; plain HTTP only to this machine, unless allowed."""
    check_address("the address", url)
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not allow_plain_http:
        raise ParameterError(
            "untrusted",
            f"{url} is plain HTTP to another machine: whoever is in between can read and change it; use https://, or "
            "insist with allow_plain_http=True (--allow-plain-http)",
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def trust(ca_file: str | Path | None) -> ssl.SSLContext:
    """TLS that believes the certificate authorities in a PEM file, or the system's where none is given."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise FileError(
            "malformed", f"{ca_file} holds no certificates: {error}; give a PEM file (--ca, --analyzer-ca)"
        ) from error


def load_key_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Load a certificate and its key; a key that is encrypted, or that everybody may read, is refused."""

    def no_password() -> str:
        raise FileError("malformed", f"the TLS key {key} is encrypted, and nobody is there to type its pass phrase")

    try:
        context.load_cert_chain(cert, key, no_password)
        mode = key.stat().st_mode
    except FileError:
        raise
    except (OSError, ssl.SSLError) as error:
        raise FileError("malformed", f"the TLS certificate {cert} and key cannot be used: {error}") from error
    if mode & 0o007:
        raise FileError(
            "open-to-others",
            f"{key}: everybody may use this TLS key (mode {stat.S_IMODE(mode):04o}); chmod o= {key}",
        )


def why_unreachable(error: BaseException) -> str:
    """Why a server could not be talked to, in words that name nobody; else the error's kind."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    for kind, reason in _REASONS.items():
        if any(isinstance(cause, kind) for cause in causes):
            return reason
    return type(error).__name__
