"""A server's life: it listens, says so, works in the background, and ends after the requests under way."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from shufflesum.errors import ParameterError
from shufflesum.service.http.addresses import is_loopback, load_key_pair, trust
from shufflesum.service.http.connections import BoundedProtocol
from shufflesum.service.logs import log, where_of

__all__ = ["ServerOptions", "background", "run_server"]

_STOP_SECONDS = 20
_SWITCH_SECONDS = 0.0005


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
        ssl_ca_certs=None if options.peer_ca is None else str(options.peer_ca),
        ssl_cert_reqs=ssl.CERT_NONE if options.peer_ca is None else ssl.CERT_OPTIONAL,
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
