"""Which web pages may send to a server: their origins, and what a browser must be told before it does (CORS).

A browser lets a page read answers of another server, and send what is no plain form, only where that server allows the
page's origin. Plain forms it sends unasked, so a request from another page is refused here as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.types import Message, Scope, Send

from shufflesum.errors import ParameterError
from shufflesum.service.http.addresses import is_loopback

__all__ = ["Origins", "check_origin"]

_PREFLIGHT_SECONDS = 7200  # the longest that browsers remember
_EXPOSED = b"retry-after"


def check_origin(origin: str) -> str:
    """An origin as browsers write it; anything else is refused, since it would never match."""
    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    written = f"[{host}]" if ":" in host else host
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    plain = f"{parts.scheme}://{written}" + ("" if port in (None, usual) else f":{port}")
    if not host or usual is None or origin != plain or not origin.isascii() or set(origin) & set(' *"<>\\'):
        raise ParameterError(
            "malformed-address",
            f"the origin (--allow-origin) is {origin!r}; write it as browsers do: https://survey.example.org or "
            "https://survey.example.org:8443, in small letters, without a path or a slash at the end; each by itself, "
            "since * would let any page make its visitors take part",
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise ParameterError(
            "untrusted",
            f"the origin {origin} (--allow-origin) is plain HTTP: whoever is in between could change the page, and "
            "browsers give such a page no cryptography; serve it by https",
        )
    return origin


class Origins:
    """The origins that are allowed, and the paths that they may ask for: {path: its one method}."""

    def __init__(self, allowed: Iterable[str], paths: Mapping[str, str]) -> None:
        self._allowed = frozenset(map(check_origin, allowed))
        self._paths = dict(paths)

    def refuses(self, origin: str, site: str) -> bool:
        """Whether a request comes from a page that is not allowed; `site` is what the browser says of it."""
        return origin not in self._allowed and site != "same-origin"

    def preflight(self, scope: Scope, origin: str, asked: str) -> list[tuple[bytes, bytes]] | None:
        """The headers that say yes to a browser which asks whether it may send, or None."""
        method = self._paths.get(scope["path"])
        if origin not in self._allowed or method is None or method != asked:
            return None
        return [
            *_headers(origin),
            (b"access-control-allow-methods", method.encode()),
            (b"access-control-allow-headers", b"authorization, content-type"),
            (b"access-control-max-age", str(_PREFLIGHT_SECONDS).encode()),
        ]

    def answering(self, scope: Scope, origin: str, send: Send) -> Send:
        """Answers that an allowed page may read, problems and all; the others as they are."""
        if origin not in self._allowed or scope["path"] not in self._paths:
            return send

        async def readable(message: Message) -> None:
            if message["type"] == "http.response.start":
                exposed = (b"access-control-expose-headers", _EXPOSED)
                message = {**message, "headers": [*message.get("headers", []), *_headers(origin), exposed]}
            await send(message)

        return readable


def _headers(origin: str) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin.encode()), (b"vary", b"origin")]
