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
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shufflesum.errors import ParameterError
from shufflesum.service.http.messages import MEDIA_TYPE, PROBLEMS, is_loopback, load_key_pair, trust
from shufflesum.service.logs import log, where_of

COMPLETE = "complete"  # true in the state of a request that has arrived to its end
PEER_NAMES = "peer_names"  # in the state of a request: the names in the certificate that the client has shown

_ASIDE_BYTES = 64 * 1024
_HEAD_SECONDS = 30.0
_REFUSED_SECONDS = 1.0  # a connection too many has so long to hear why


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose request line and headers, or what else is no body, grow too large or take too long.

    The parser beneath keeps whatever it is sent, so without this a few connections could fill the memory.
    """

    _watch: asyncio.TimerHandle
    _peer_names: frozenset[str] = frozenset()
    _address: str = ""
    _allowed: bool = True  # false for one of too many connections from one address
    _since: float | None = None  # when a request's head was first expected; None while there is no such wait
    _begun: bool = False  # a request that has not come to its end yet
    _body_came: bool = False
    _ended: bool = False  # the bytes that came last were in part of a request that has come to its end
    _aside: int = 0  # bytes of that request since it began, or since a piece of its body came

    def connection_made(self, transport: Any) -> None:
        """A client is here: its request is expected."""
        super().connection_made(transport)
        if certificate := transport.get_extra_info("peercert"):
            # Only of what was signed by an authority that we were given: anything else ended the handshake.
            self._peer_names = frozenset(name.lower() for _, name in certificate.get("subjectAltName", ()))
        self._address = self.client[0] if self.client else ""
        self._allowed = self.app.limits.connect(self._address)
        self._expect_head()
        if self._allowed:
            self._watch = self.loop.call_later(_HEAD_SECONDS, self._look)
        else:
            self._watch = self.loop.call_later(_REFUSED_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self._watch.cancel()
        if self._allowed:
            self.app.limits.disconnect(self._address)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["state"][PEER_NAMES] = self._peer_names
        self._expect_head()
        self._begun, self._aside = True, 0

    def on_headers_complete(self) -> None:
        """The head is complete; the body is bounded by whoever reads it."""
        self._since = None
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The parser stops here and would take the body for the next request.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A piece of the body came, which whoever reads it counts."""
        self._body_came = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is complete: nobody needs to watch the clock while reading it."""
        self._begun, self._ended = False, True
        self.scope["state"][COMPLETE] = True
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Bytes came; refuse headers, trailers or the likes that go on and on."""
        if not self._allowed:
            self._refuse("address-limit", "too many connections from one address (--connections-per-address)")
            return
        self._body_came = self._ended = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        counts = self._begun and not self._body_came and not self._ended
        self._aside = self._aside + len(data) if counts else 0
        if self._aside > _ASIDE_BYTES:
            self.send_400_response(f"more than {_ASIDE_BYTES} bytes that are no part of a body")
        elif self._since is None and (self.cycle is None or self.cycle.response_complete):
            # The rest of a refused body, or an empty line: it ended the wait for a next request, and begins none.
            self._expect_head()

    def _expect_head(self) -> None:
        self._since = self.loop.time()

    def _look(self) -> None:
        """End a wait that was too long; one timer for a whole connection, since one for each request costs time."""
        left = _HEAD_SECONDS if self._since is None else self._since + _HEAD_SECONDS - self.loop.time()
        if left > 0:
            self._watch = self.loop.call_later(left, self._look)
        elif not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP as everything else is refused."""
        self._refuse("bad-request", msg)

    def _refuse(self, name: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        self.app.refused.labels(problem=name).inc()
        problem = PROBLEMS[name]
        body = problem.encode(detail)
        head = [
            f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
            f"content-type: {MEDIA_TYPE}",
            f"content-length: {len(body)}",
            *(["retry-after: 2"] if problem.retry == "not-yet" else []),
            "connection: close",
        ]
        self.transport.write("\r\n".join([*head, "", ""]).encode() + body)
        self.transport.close()


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
                "missing-argument", "TLS needs a certificate and a key; give both --tls-cert and --tls-key, or neither"
            )
        if self.peer_ca is not None and self.tls_cert is None:
            raise ParameterError(
                "missing-argument",
                "--peer-ca needs TLS, where certificates are shown; give --tls-cert and --tls-key, or share a secret "
                "(--secret-file) behind a proxy that ends TLS",
            )


def run_server(app: Starlette, options: ServerOptions, *, role: str) -> None:
    """Serve until SIGTERM or an interrupt; requests under way are finished first. Logs `listening` with its port."""
    # The store's thread asks for the interpreter many times in a transaction, and would wait so long each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
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
            f"cannot listen on {options.host} port {options.port}: {error}; choose another --host or --port",
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
