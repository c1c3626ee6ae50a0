"""The analyst's page over HTTP: its addresses, and what a browser is told not to do with them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.pages import asset
from shufflesum.service.analyzer.estimates import Estimates
from shufflesum.service.analyzer.page import DOWNLOADS, AnalystPage
from shufflesum.service.analyzer.progress import ShufflerProgress
from shufflesum.service.http.problems import Refusal
from shufflesum.service.stores.store import StoreError
from shufflesum.wire import Task

__all__ = ["page_routes"]

_T = TypeVar("_T")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
# A picture or a saved page that is opened by itself may do nothing but look as it does.
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


def page_routes(task: Task, estimates: Estimates, clock: Clock = SYSTEM_CLOCK) -> list[Route]:
    """The routes of a task's page, to be served by its analyzer."""
    made = AnalystPage(task, estimates)
    progress = ShufflerProgress(task, clock)
    working = asyncio.Semaphore(1)  # pages wait for each other, so that readers never take all threads

    async def in_thread(work: Callable[[], _T]) -> _T:
        try:
            async with working:
                return await asyncio.to_thread(work)
        except StoreError as error:
            raise Refusal("store-unavailable", str(error), headers={"Retry-After": "1"}) from error

    def check(request: Request) -> None:
        if request.path_params.get("task_id", task.id) != task.id:
            raise Refusal("wrong-task", f"this analyzer serves task {task.id[:12]}; see its page at /")

    async def show(request: Request) -> Response:
        check(request)
        newest = _round(request.query_params.get("round"))
        known = await progress.latest()
        root = "../" if "task_id" in request.path_params else ""
        text = await in_thread(lambda: made.live(clock.now(), known, root=root, newest=newest))
        return _answer(request, text.encode(), "text/html; charset=utf-8")

    async def save(request: Request) -> Response:
        check(request)
        text = await in_thread(lambda: made.alone(clock.now()))
        return _answer(request, text.encode(), "text/html; charset=utf-8", f"shufflesum-{task.id[:12]}.html")

    async def download(request: Request) -> Response:
        check(request)
        number, kind = _round(request.path_params["round"]), request.path_params["kind"]
        if number is None or kind not in DOWNLOADS:
            raise Refusal("not-found", f"a round is to be had as {', '.join(DOWNLOADS)}")
        content = await in_thread(lambda: made.file(number, kind))
        return _answer(request, content, DOWNLOADS[kind], f"shufflesum-{task.id[:12]}-round-{number}.{kind}")

    def static(path: str, name: str, media_type: str) -> Route:
        content = asset(name).encode()

        async def serve(request: Request) -> Response:
            return _answer(request, content, media_type)

        return Route(path, serve)

    return [
        Route("/", show),
        Route("/tasks/{task_id}", show),
        Route("/tasks/{task_id}/page.html", save),
        Route("/tasks/{task_id}/rounds/{round}/estimate.{kind}", download),
        static("/style.css", "style.css", "text/css; charset=utf-8"),
        static("/live.js", "live.js", "text/javascript; charset=utf-8"),
        static("/favicon.ico", "icon.svg", "image/svg+xml"),
    ]


def _answer(request: Request, content: bytes, media_type: str, filename: str | None = None) -> Response:
    headers = _HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}  # tells two versions apart
    if filename is not None:
        headers |= {
            "Content-Disposition": f'attachment; filename="{filename}"',
            "Content-Security-Policy": _FILE_POLICY,
        }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _round(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 12):
        raise Refusal("bad-request", "a round is a whole number")
    return int(given)
