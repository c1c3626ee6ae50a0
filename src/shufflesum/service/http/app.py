"""A web application that answers in problem documents and counts its refusals.

Nothing here ever writes down who asked: no access log, no address, no header, no body.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, disable_created_metrics, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ShufflesumError
from shufflesum.service.http.access import AddressLimits, Limits, Origins
from shufflesum.service.http.messages import MEDIA_TYPE, PROBLEMS, Refusal
from shufflesum.service.http.openapi import Json, to_bytes
from shufflesum.service.http.server import COMPLETE
from shufflesum.service.logs import log, where_of

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

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if await ready():
            return PlainTextResponse("ready\n")
        return problem_response("not-ready", "the store is out of reach, or the server is stopping")

    async def metrics(request: Request) -> Response:
        if before_metrics is not None:
            await before_metrics(request)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    described = to_bytes(interface)

    async def openapi(_: Request) -> Response:
        return Response(described, media_type="application/json")

    common = {"/healthz": healthz, "/readyz": readyz, "/metrics": metrics, "/openapi.json": openapi}
    application = _Application(
        routes=[*routes, *(Route(path, handler) for path, handler in common.items())],
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
    application.origins = origins
    application.limits = limits or AddressLimits(Limits())
    application.refused = refused
    application.failures = {Refusal: refuse, ClientDisconnect: gone, Exception: fail}
    return application


class _Application(Starlette):
    """Starlette, with a short way to the few handlers that must be quick: router and middleware cost half the rate."""

    exact: dict[tuple[str, str], ExactHandler]
    origins: Origins | None
    limits: AddressLimits
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
