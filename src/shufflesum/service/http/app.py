"""A web application that answers in problem documents and counts its refusals; who may ask it for what, and how often.

Nothing here ever writes down who asked: no access log, no address, no header, no body.

Secrets are in files: the one that shuffler and analyzer share, and the operator's own. Addresses are kept in memory
only: as long as they are connected, and until the first upload that comes a minute after their last one.

A browser lets a page read answers of another server, and send what is no plain form, only where that server allows the
page's origin (CORS). Plain forms it sends unasked, so a request from another page is refused here as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import math
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, disable_created_metrics, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.service.http.messages import MEDIA_TYPE, PROBLEMS, Refusal, is_loopback
from shufflesum.service.http.openapi import COMMON, Json, routes_of, to_bytes
from shufflesum.service.http.server import CONNECTION
from shufflesum.service.logs import log, where_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message, Scope, Send

_CHECK_SECONDS = 5
_KEPT_SECONDS = 1  # whoever asks all the time must not keep the disk busy


class StoreReady:
    """Asks `check`, which writes and raises where it cannot; one at a time, and not for a second after it could."""

    def __init__(self, check: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> None:
        self._check = check
        self._clock = clock
        self._asking = asyncio.Lock()
        self._until = -1.0

    async def __call__(self) -> bool:
        """Whether the store could be written to just now."""
        async with self._asking:
            if self._clock.monotonic() >= self._until:
                try:
                    await asyncio.wait_for(asyncio.to_thread(self._check), _CHECK_SECONDS)
                except (ShufflesumError, TimeoutError):
                    return False
                self._until = self._clock.monotonic() + _KEPT_SECONDS
        return True


disable_created_metrics()  # type: ignore[no-untyped-call]  # metrics are counts, not times

_BODY_SECONDS = 30.0

ExactHandler = Callable[[Scope, Receive], Awaitable[int]]
Ready = Callable[[], Awaitable[bool]]
Lifespan = Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]


def create_app(
    routes: Sequence[BaseRoute],
    *,
    registry: CollectorRegistry,
    ready: Ready,
    interface: Json,
    lifespan: Lifespan | None = None,
    exact: Mapping[tuple[str, str], ExactHandler] | None = None,
    origins: Origins | None = None,
    limits: AddressLimits | None = None,
    before_metrics: Callable[[Request], Awaitable[None]] | None = None,
) -> Starlette:
    """An application with these routes, /healthz, /readyz, /metrics and /openapi.json, which says `interface`.

    Every error is a problem document. `exact` maps (method, path) to handlers that return the status of an answer
    without content. With `origins`, web pages of others are refused. `limits` bound the
    connections of one address. `before_metrics` may refuse whoever asks for metrics, and brings them up to date.
    """
    refused = Counter("shufflesum_refused", "Requests refused, by problem", ["problem"], registry=registry)

    def answer(name: str, detail: str, headers: dict[str, str] | None = None) -> Response:
        refused.labels(problem=name).inc()
        return problem_response(name, detail, headers)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return answer(error.problem, error.detail, error.headers)

    async def refuse_by_router(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = {404: "not-found", 405: "wrong-method"}.get(error.status_code, "bad-request")
        return answer(name, "see /openapi.json for what this server answers", dict(error.headers or {}))

    async def gone(_: Request, __: Exception) -> Response:
        return answer("bad-request", "the connection ended before the request did")

    async def fail(_: Request, error: Exception) -> Response:
        log.error("request failed", error=type(error).__name__, where=where_of(error))
        return answer("internal", "the server's log says where")

    common = _Common(registry, ready, to_bytes(interface), before_metrics)
    application = _Application(
        routes=[*routes, *routes_of(COMMON, common)],
        exception_handlers={Refusal: refuse, HTTPException: refuse_by_router, ClientDisconnect: gone, Exception: fail},
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False  # it would answer with an address that the client made up
    application.exact = dict(exact or {})
    application.origins = origins
    application.state.limits = limits or AddressLimits(Limits())
    application.state.refused = application.refused = refused
    application.failures = {Refusal: refuse, ClientDisconnect: gone, Exception: fail}
    return application


@dataclass(frozen=True, slots=True)
class _Common:
    """What both servers answer (`COMMON`)."""

    registry: CollectorRegistry
    ready: Ready
    interface: bytes
    before_metrics: Callable[[Request], Awaitable[None]] | None

    async def is_alive(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def is_ready(self, _: Request) -> Response:
        if await self.ready():
            return PlainTextResponse("ready\n")
        return problem_response("not-ready", "the store is out of reach, or the server is stopping")

    async def get_metrics(self, request: Request) -> Response:
        if self.before_metrics is not None:
            await self.before_metrics(request)
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    async def get_interface(self, _: Request) -> Response:
        return Response(self.interface, media_type="application/json")


class _Application(Starlette):
    """Starlette, with a short way to the few handlers that must be quick: router and middleware cost half the rate."""

    exact: dict[tuple[str, str], ExactHandler]
    origins: Origins | None
    refused: Counter
    failures: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.origins is not None and scope["type"] == "http" and (origin := header(scope, b"origin")):
            await self._answer_page(self.origins, origin, scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer_page(self, origins: Origins, origin: str, scope: Scope, receive: Receive, send: Send) -> None:
        asked = header(scope, b"access-control-request-method") if scope["method"] == "OPTIONS" else ""
        allowed = origins.preflight(scope, origin, asked)
        if allowed is not None:
            await send({"type": "http.response.start", "status": 204, "headers": allowed})
            await send({"type": "http.response.body", "body": b""})
        elif origins.refuses(origin, header(scope, b"sec-fetch-site")):
            self.refused.labels(problem="origin-refused").inc()
            detail = "pages of this origin may not send here; whoever runs this server can allow it (--allow-origin)"
            await problem_response("origin-refused", detail)(scope, receive, send)
        else:
            await self._answer(scope, receive, origins.answering(scope, origin, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self.exact.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if handler is None:
            await super().__call__(scope, receive, send)
            return
        try:
            status = await handler(scope, receive)
        except Exception as error:
            kind = next(kind for kind in self.failures if isinstance(error, kind))
            answer = await self.failures[kind](Request(scope), error)
            await answer(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


def problem_response(name: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    """A problem as an answer."""
    problem = PROBLEMS[name]
    return Response(problem.encode(detail), problem.status, headers=headers, media_type=MEDIA_TYPE)


def json_response(found: msgspec.Struct, status: int = 200) -> Response:
    """A struct as an answer."""
    return Response(msgspec.json.encode(found), status, media_type="application/json")


def header(scope: Scope, name: bytes) -> str:
    """A header of a request, by its name in lower case; empty where there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body, refused as too large while it streams in: never much more than `most` bytes are held."""
    announced = header(scope, b"content-length")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise Refusal("too-large", f"a body of {announced[:20]} bytes; at most {most} are taken")
    body = b""
    connection = scope.get("state", {}).get(CONNECTION)
    whole = connection is not None and connection.complete
    try:
        async with contextlib.nullcontext() if whole else asyncio.timeout(_BODY_SECONDS):
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > most:
                    raise Refusal("too-large", f"a body of more than {most} bytes, the most that is taken")
    except TimeoutError:
        raise Refusal("too-slow", f"the body took more than {_BODY_SECONDS:.0f} seconds; send it again") from None
    return body


# ---- Who may ask a server for what, and how often: secrets, limits by address, and origins of web pages.


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
            "insecure-permissions",
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


_MINUTE = 60.0
_MOST_ADDRESSES = 1 << 16
_NETWORK_BITS = 64  # of an IPv6 address: who has one has all that begin alike


@dataclass(frozen=True, slots=True)
class Limits:
    """What one address may have: open connections, and uploads a minute; 0 sets no limit.

    Behind a proxy `address_header` names the header in which it writes the client's address; its last entry counts.
    """

    connections: int = 0
    uploads: int = 0
    address_header: str | None = None

    def __post_init__(self) -> None:
        """Refuse limits below nothing."""
        for option, value in (("connections", self.connections), ("uploads", self.uploads)):
            if value < 0:
                raise ParameterError(
                    "out-of-range", f"--{option}-per-address is {value}; give a number, or 0 for no limit"
                )


class AddressLimits:
    """Keeps to limits. This machine's own connections have none: they are a proxy's, or tests'."""

    def __init__(self, limits: Limits, clock: Clock = SYSTEM_CLOCK) -> None:
        self._limits = limits
        self._clock = clock
        self._header = None if limits.address_header is None else limits.address_header.lower().encode("latin-1")
        self._open: dict[str, int] = {}
        self._left: dict[str, tuple[float, float]] = {}  # uploads an address has left, and since when

    def connect(self, address: str) -> bool:
        """Whether an address may have one connection more; if so, it has, until `disconnect`."""
        network = _network(address)
        most = 0 if self._header is not None or is_loopback(address) else self._limits.connections
        if most and self._open.get(network, 0) >= most:
            return False
        self._open[network] = self._open.get(network, 0) + 1
        return True

    def disconnect(self, address: str) -> None:
        """A connection that was allowed has ended."""
        network = _network(address)
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]

    def check_upload(self, scope: Scope) -> None:
        """Refuse an upload, for a moment, to an address that sends too many."""
        address = scope["client"][0] if scope.get("client") else ""
        if self._header is not None:
            named = [value.decode("latin-1") for name, value in scope["headers"] if name == self._header]
            address = named[-1].rpartition(",")[2].strip() if named else address
        if not self._limits.uploads or (self._header is None and is_loopback(address)):
            return
        network, now, rate = _network(address), self._clock.monotonic(), self._limits.uploads / _MINUTE
        left, since = self._left.pop(network, (float(self._limits.uploads), now))
        left = min(left + (now - since) * rate, float(self._limits.uploads))
        self._forget(now)
        self._left[network] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if left < 1:
            raise Refusal(
                "address-limit",
                f"more than {self._limits.uploads} uploads a minute from one address (--uploads-per-address); send the "
                "same upload again in a moment",
                headers={"Retry-After": str(math.ceil((1 - left) / rate))},
            )

    def _forget(self, now: float) -> None:
        """Forget addresses that have been silent for a minute, and in a flood of addresses the most silent ones."""
        while self._left:
            first = next(iter(self._left))
            if now - self._left[first][1] < _MINUTE and len(self._left) < _MOST_ADDRESSES:
                return
            del self._left[first]


def _network(address: str) -> str:
    """What counts as one address; whatever is none counts as one together."""
    try:
        found = ipaddress.ip_address(_without_port(address))
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))


def _without_port(address: str) -> str:
    """Some proxies write 192.0.2.1:4711 or [2001:db8::1]:4711."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


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
            f"the origin is {origin!r}; write it as browsers do: https://survey.example.org or "
            "https://survey.example.org:8443, in small letters, without a path or a slash at the end; each by itself, "
            "since * would let any page make its visitors take part",
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise ParameterError(
            "untrusted",
            f"the origin {origin} is plain HTTP: whoever is in between could change the page, and "
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
