"""What both servers share: an application that answers in problem documents, its logs, its metrics, its life.

Nothing here ever writes down who asked: no access log, no address, no header, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import signal
import socket
import ssl
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shufflesum.errors import FileError, MissingExtraError, ParameterError
from shufflesum.service.addresses import is_loopback
from shufflesum.service.problems import MEDIA_TYPE, PROBLEMS, Refusal

try:
    import uvicorn
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        disable_created_metrics,
        generate_latest,
    )
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import BaseRoute, Route
    from starlette.types import Receive, Scope, Send

    from shufflesum.service.connections import COMPLETE, BoundedProtocol
    from shufflesum.service.logs import configure_logging, log, place
except ImportError as error:
    raise MissingExtraError(
        f"the servers need {error.name}, which is not installed: pip install 'shufflesum[service]'"
    ) from error

__all__ = [
    "ServerOptions",
    "background",
    "check_bearer",
    "configure_logging",
    "create_app",
    "header",
    "load_secret",
    "log",
    "problem_response",
    "read_body",
    "run_server",
]

disable_created_metrics()  # type: ignore[no-untyped-call]  # metrics are counts, not times

_BODY_SECONDS = 30.0
_STOP_SECONDS = 20
_SWITCH_SECONDS = 0.0005
_MIN_SECRET = 16
_MAX_SECRET = 1024

ExactHandler = Callable[[Scope, Receive], Awaitable[int]]
Ready = Callable[[], Awaitable[bool]]
Lifespan = Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens, and its TLS certificate and key (both or neither)."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        """Refuse half of a TLS configuration."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ParameterError("TLS needs a certificate and a key; give both --tls-cert and --tls-key, or neither")


def create_app(
    routes: Sequence[BaseRoute],
    *,
    registry: CollectorRegistry,
    ready: Ready,
    lifespan: Lifespan | None = None,
    exact: Mapping[tuple[str, str], ExactHandler] | None = None,
) -> Starlette:
    """An application with these routes and /healthz, /readyz and /metrics; every error is a problem document.

    `exact` maps (method, path) to handlers that return the status of an answer without content.
    """
    refused = Counter("shufflesum_refused", "Requests refused, by problem", ["problem"], registry=registry)

    def answer(name: str, detail: str, headers: dict[str, str] | None = None) -> Response:
        refused.labels(problem=name).inc()
        return problem_response(name, detail, headers)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refusal)
        return answer(error.problem.name, error.detail, error.headers)

    async def refuse_by_router(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = {404: "not-found", 405: "wrong-method"}.get(error.status_code, "bad-request")
        return answer(name, "see docs/deploy.md for what this server answers", dict(error.headers or {}))

    async def gone(_: Request, __: Exception) -> Response:
        return answer("bad-request", "the connection ended before the request did")

    async def fail(_: Request, error: Exception) -> Response:
        log.error("request failed", error=type(error).__name__, where=place(error))
        return answer("internal", "the server's log says where")

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if await ready():
            return PlainTextResponse("ready\n")
        return problem_response("not-ready", "the store is out of reach, or the server is stopping")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    application = _Application(
        routes=[*routes, Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)],
        exception_handlers={
            Refusal: refuse,
            HTTPException: refuse_by_router,
            ClientDisconnect: gone,
            Exception: fail,
        },
        lifespan=lifespan,
    )
    application.router.redirect_slashes = False  # it would answer with an address that the client made up
    application.exact = dict(exact or {})
    application.refused = refused
    application.failures = {Refusal: refuse, ClientDisconnect: gone, Exception: fail}
    return application


class _Application(Starlette):
    """Starlette, with a short way to the few handlers that must be quick: router and middleware cost half the rate."""

    exact: dict[tuple[str, str], ExactHandler]
    refused: Counter
    failures: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


def header(scope: Scope, name: bytes) -> str:
    """A header of a request, by its name in lower case; empty where there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The body, refused as too large while it streams in: never much more than `most` bytes are held."""
    announced = header(scope, b"content-length")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise Refusal("too-large", f"a body of {announced[:20]} bytes; at most {most} are taken")
    body = b""
    try:
        async with asyncio.timeout(None if scope.get("state", {}).get(COMPLETE) else _BODY_SECONDS):
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


def load_secret(path: str | Path) -> str:
    """The secret that shuffler and analyzer share, from a file that only its owner may read."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_MAX_SECRET + 1)
    except OSError as error:
        raise FileError(f"cannot read the secret {path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise FileError(
            f"{path}: others than the owner may read this secret (mode {stat.S_IMODE(mode):04o}); chmod 600 {path}"
        )
    secret = text.strip()
    if not _MIN_SECRET <= len(secret) <= _MAX_SECRET or not secret.isascii() or not secret.decode().isprintable():
        raise FileError(
            f"{path}: a secret is one line of {_MIN_SECRET} to {_MAX_SECRET} printable ASCII characters; "
            f"make one with: (umask 077; openssl rand -hex 32 > {path})"
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


class _Server(uvicorn.Server):
    """Says where it listens once it does, and ends without an error after a polite kill."""

    listening: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.listening()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        handlers = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def run_server(app: Starlette, options: ServerOptions, *, role: str) -> None:
    """Serve until SIGTERM or an interrupt; requests under way are finished first. Logs `listening` with its port."""
    # The store's thread asks for the interpreter many times in a transaction, and would wait so long each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=str(options.tls_key) if options.tls_key else None,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    _check_tls(options)
    config.load()
    server = _Server(config)
    if options.tls_cert is None and not is_loopback(options.host):
        log.warning("plain http on an address that others can reach; give --tls-cert, or put a proxy with TLS before")
    with _listen(options) as listener:
        port = listener.getsockname()[1]
        scheme = "https" if options.tls_cert else "http"
        server.listening = lambda: log.info("listening", role=role, scheme=scheme, port=port)
        server.run(sockets=[listener])
    log.info("stopped", role=role)


def _check_tls(options: ServerOptions) -> None:
    if options.tls_cert is None or options.tls_key is None:
        return

    def no_password() -> str:
        raise FileError(f"the TLS key {options.tls_key} is encrypted, and nobody is there to type its pass phrase")

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key, no_password)
        mode = options.tls_key.stat().st_mode
    except FileError:
        raise
    except (OSError, ssl.SSLError) as error:
        raise FileError(f"the TLS certificate {options.tls_cert} and key cannot be used: {error}") from error
    if mode & 0o007:
        raise FileError(
            f"{options.tls_key}: everybody may use this TLS key (mode {stat.S_IMODE(mode):04o}); "
            f"chmod o= {options.tls_key}"
        )


def _listen(options: ServerOptions) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ParameterError(
            f"cannot listen on {options.host} port {options.port}: {error}; choose another --host or --port"
        ) from error


def _stop_after(task: asyncio.Future[None]) -> None:
    """A server that does only half of its work must not go on as if nothing had happened."""
    if not task.cancelled():
        known = {} if (error := task.exception()) is None else {"error": type(error).__name__, "where": place(error)}
        log.error("work ended, so the server stops", **known)
        signal.raise_signal(signal.SIGTERM)


@contextlib.asynccontextmanager
async def background(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Run endless works beside the server; they are cancelled when it stops, and it stops where one of them ends."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    for task in tasks:
        task.add_done_callback(_stop_after)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
