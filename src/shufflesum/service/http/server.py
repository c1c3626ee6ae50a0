"""A server's life: it listens, says so, works in the background, and ends after the requests under way.

A connection is bounded in the size and time of everything but a request's body.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import httptools
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from shufflesum.errors import ParameterError
from shufflesum.service.http.messages import MEDIA_TYPE, PROBLEMS, is_loopback, load_key_pair, trust
from shufflesum.service.logs import log, where_of

CONNECTION = "connection"  # in the state of a request: the `Connection` that it came by

_ASIDE_BYTES = 64 * 1024
_HEAD_SECONDS = 30.0
_REFUSED_SECONDS = 1.0  # a connection too many has so long to hear why


class Connection(asyncio.Protocol):
    """Stands between a client and uvicorn's protocol, and hands on what is within bounds.

    It ends a connection whose request line and headers, or what else is no body, grow too large or take too long:
    uvicorn keeps whatever it is sent, so that a few connections could fill the memory. A parser of its own tells where
    requests begin and end, and what uvicorn would not understand is refused here.
    """

    def __init__(self, inner: Callable[..., asyncio.Protocol], app: Starlette, **given: Any) -> None:
        self._inner: asyncio.Protocol = inner(**given | {"app_state": {**given["app_state"], CONNECTION: self}})
        self._limits, self._refused = app.state.limits, app.state.refused
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does, which ignores it
        self._url = b""
        self._aside = 0  # bytes since the last that was of a body, or since a request began or ended
        self._unanswered = 0  # requests whose head is complete
        self._since = self._loop.time()  # when it began, or when the last answer was given
        self._upgraded = False
        self.complete = False  # whether the last request has arrived to its end
        self.peer_names: frozenset[str] = frozenset()  # in the certificate that the client has shown

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here: its request is expected."""
        self._transport = cast(asyncio.Transport, transport)
        if certificate := transport.get_extra_info("peercert"):
            # Only of what was signed by an authority that we were given: anything else ended the handshake.
            self.peer_names = frozenset(name.lower() for _, name in certificate.get("subjectAltName", ()))
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        self._allowed = self._limits.connect(self._address)  # false for one of too many from one address
        self._inner.connection_made(transport)
        if self._allowed:
            self._watch = self._loop.call_later(_HEAD_SECONDS, self._look)
        else:
            self._watch = self._loop.call_later(_REFUSED_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._watch.cancel()
        if self._allowed:
            self._limits.disconnect(self._address)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came; refuse headers, trailers or the likes that go on and on."""
        if not self._allowed:
            self._refuse("address-limit", "too many connections from one address (--connections-per-address)")
        elif not self._upgraded:  # the parsers stop there, and would take a body for the next request
            self._aside += len(data)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._upgraded = True
                data = data[: upgrade.args[0]]
            except httptools.HttpParserError:
                self._refuse("bad-request", "this is no HTTP")
                return
            if self._aside > _ASIDE_BYTES:
                self._refuse("bad-request", f"more than {_ASIDE_BYTES} bytes that are no part of a body")
            elif not self._transport.is_closing():
                self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client will say no more."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """The client is slow to read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has read."""
        self._inner.resume_writing()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url, self._aside = b"", 0

    def on_url(self, url: bytes) -> None:
        """A piece of what is asked for."""
        self._url += url

    def on_headers_complete(self) -> None:
        """The head is complete; the body is bounded by whoever reads it."""
        httptools.parse_url(self._url).path.decode("ascii")  # fails where it names no path
        self._unanswered += 1
        self.complete = False

    def on_body(self, _: bytes) -> None:
        """A piece of the body came, which whoever reads it counts."""
        self._aside = 0

    def on_message_complete(self) -> None:
        """The body is complete: nobody needs to watch the clock while reading it."""
        self._aside, self.complete = 0, True

    def answered(self) -> None:
        """A request was answered: the next one is expected."""
        self._unanswered -= 1
        self._since = self._loop.time()
        if self._upgraded:
            self._transport.close()

    def _look(self) -> None:
        """End a wait that was too long; one timer for a whole connection, since one for each request costs time."""
        left = _HEAD_SECONDS if self._unanswered else self._since + _HEAD_SECONDS - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look)
        else:
            self._transport.close()

    def _refuse(self, name: str, detail: str) -> None:
        if self._transport.is_closing():
            return
        self._refused.labels(problem=name).inc()
        problem = PROBLEMS[name]
        body = problem.encode(detail)
        head = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(body)}",
            *(["retry-after: 2"] if problem.retry == "not-yet" else []),
            "connection: close",
        ]
        self._transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self._transport.close()


_STOP_SECONDS = 20
_SWITCH_SECONDS = 0.0005
_STARTING_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens, and its TLS certificate and key (both or neither).

    Clients may show a certificate that `peer_ca` has signed; they need none, and one of anybody else ends the
    connection.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    peer_ca: Path | None = None

    def __post_init__(self) -> None:
        """Refuse half of a TLS configuration."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ParameterError(
                "missing-argument", "TLS needs a certificate and a key; give both tls_cert and tls_key, or neither"
            )
        if self.peer_ca is not None and self.tls_cert is None:
            raise ParameterError(
                "missing-argument",
                "peer_ca needs TLS, where certificates are shown; give tls_cert and tls_key, or share a secret "
                "(secret_file) behind a proxy that ends TLS",
            )


def run_server(app: Starlette, options: ServerOptions, *, role: str) -> None:
    """Serve until SIGTERM or an interrupt; requests under way are finished first. Logs `listening` with its port."""
    # The store's thread asks for the interpreter many times in a transaction, and would wait so long each time.
    sys.setswitchinterval(_SWITCH_SECONDS)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                scope["state"][CONNECTION].answered()

    config = uvicorn.Config(
        answer,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=str(options.tls_key) if options.tls_key else None,
        ssl_ca_certs=None if options.peer_ca is None else str(options.peer_ca),
        ssl_cert_reqs=ssl.CERT_NONE if options.peer_ca is None else ssl.CERT_OPTIONAL,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    _check_tls(options)
    config.load()
    config.http_protocol_class = cast(Any, partial(Connection, config.http_protocol_class, app))
    server = uvicorn.Server(config)
    if options.tls_cert is None and not is_loopback(options.host):
        log.warning("plain http on an address that others can reach; give --tls-cert, or put a proxy with TLS before")
    with _listen(options) as listener:
        scheme = "https" if options.tls_cert else "http"
        known = {"role": role, "scheme": scheme, "port": listener.getsockname()[1]}

        def stop(*_: object) -> None:
            server.should_exit = True

        # While it serves, uvicorn handles them; then it raises them anew, and a polite kill would end as an error.
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            uvloop.run(_serve(server, listener, known))
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    log.info("stopped", role=role)


async def _serve(server: uvicorn.Server, listener: socket.socket, known: dict[str, Any]) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not (server.started or serving.done()):
        await asyncio.sleep(_STARTING_SECONDS)
    if server.started:
        log.info("listening", **known)
    await serving


def _check_tls(options: ServerOptions) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if options.tls_cert is not None and options.tls_key is not None:
        load_key_pair(context, options.tls_cert, options.tls_key)
    if options.peer_ca is not None:
        trust(options.peer_ca)


def _listen(options: ServerOptions) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        return socket.create_server((options.host, options.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ParameterError(
            "address-taken",
            f"cannot listen on {options.host} port {options.port}: {error}; choose another host= or port=",
        ) from error


def _stop_after(task: asyncio.Future[None]) -> None:
    """A server that does only half of its work must not go on as if nothing had happened."""
    if not task.cancelled():
        known = {} if (error := task.exception()) is None else {"error": type(error).__name__, "where": where_of(error)}
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
