"""The explorer's page on this machine alone: nobody else, and no other site's page, can ask it anything.

Pictures are drawn beside the page: it shows the newest that is there, and never waits for one.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from shufflesum._format import upwards
from shufflesum.errors import ShufflesumError
from shufflesum.explorer.explorer import Answer, Explorer
from shufflesum.explorer.questions import DEFAULTS, LINES, Question, error_of
from shufflesum.pages import asset, markdown, page, picture, render
from shufflesum.plans import Plan
from shufflesum.plots import lines_chart, rendered_svg

if TYPE_CHECKING:
    from markupsafe import Markup


_KEPT = 64
_WARM_UP = ((LINES[0], 1.0, 1.0), (LINES[0], 2.0, 0.5))


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture of an error: rows of line, place on the axis and error, None where the line has nothing to offer.

    `here` is where the plan stands, by the same axis and its error.
    """

    rows: tuple[tuple[str, float, float | None], ...]
    axis: str
    error: str
    subtitle: str
    here: tuple[float, float] | None = None

    def svg(self) -> str:
        """Drawn."""
        chart = lines_chart(
            [{"line": line, "x": x, "y": y} for line, x, y in self.rows],
            lines=LINES,
            x=self.axis,
            y=self.error,
            title=f"{self.error} against {self.axis.lower()}",
            subtitle=self.subtitle,
            here=None if self.here is None else ("this plan", *self.here),
        )
        return rendered_svg(chart)


class Pictures:
    """The pictures that were drawn last, and the newest of each kind; one thread draws. Use it in a `with` block."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._drawn: OrderedDict[Drawing, str] = OrderedDict()
        self._newest: OrderedDict[Hashable, str] = OrderedDict()
        self._busy: set[Hashable] = set()
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(Drawing(_WARM_UP, "", "", "").svg)  # the first takes seconds

    def newest(self, kind: Hashable, wanted: Drawing) -> tuple[str, bool]:
        """The last picture of this kind, empty before the first, and whether it is the one that is wanted now."""
        with self._lock:
            if wanted in self._drawn:
                self._drawn.move_to_end(wanted)
                return self._drawn[wanted], True
            if kind not in self._busy:
                self._busy.add(kind)
                self._thread.submit(self._draw, kind, wanted)
            return self._newest.get(kind, ""), False

    def _draw(self, kind: Hashable, wanted: Drawing) -> None:
        svg = wanted.svg()
        with self._lock:
            self._drawn[wanted] = self._newest[kind] = svg
            self._busy.remove(kind)
            for kept in (self._drawn, self._newest):
                if len(kept) > _KEPT:
                    kept.popitem(last=False)

    def __enter__(self) -> Self:
        """The thread starts by itself."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Wait for the picture under way."""
        self._thread.shutdown(cancel_futures=True)


_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_ASSETS = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


_PATIENCE = 0.8  # seconds that a page waits for a first answer, before it says how far it is


def explorer_app(
    explorer: Explorer, pictures: Pictures, *, token: str, port: int, patience: float = _PATIENCE
) -> Starlette:
    """The page at /TOKEN/ of this machine's port."""
    made = _Page(explorer, pictures, patience)

    async def show(request: Request) -> Response:
        form = {name: request.query_params.get(name, default) for name, default in DEFAULTS.items()}
        asked = "users" in request.query_params
        text = await asyncio.to_thread(made.shown, form, asked)
        return Response(text, media_type="text/html")

    async def save(request: Request) -> Response:
        try:
            answer = await asyncio.to_thread(explorer.ask, Question.of(dict(request.query_params)))
        except ShufflesumError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if answer.planned is None or answer.first:
            return PlainTextResponse("this plan is not ready\n", 409)
        return Response(
            answer.planned.plan.to_json() + "\n",
            media_type="application/json",
            headers={"Content-Disposition": 'attachment; filename="plan.json"'},
        )

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return PlainTextResponse("nothing is here\n", 404)
        return Response(asset(name), media_type=_ASSETS[name])

    async def icon(_: Request) -> Response:
        return Response(asset("icon.svg"), media_type=_ASSETS["icon.svg"])

    return Starlette(
        routes=[
            Route("/favicon.ico", icon),
            Route("/{token}/", show),
            Route("/{token}/plan.json", save),
            Route("/{token}/{name}", static),
        ],
        middleware=[Middleware(_Guard, token=token, port=port)],
    )


class _Guard(BaseHTTPMiddleware):
    """Lets through what this page itself asks, by its own address and token.

    A page of another site can make a browser ask this server, too: by this machine's address, or by a name of its own
    that it points here. The first lacks the token, the second has another Host.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        super().__init__(app)
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        headers = request.headers
        origin = headers.get("origin")
        given = request.url.path.split("/")[1] if request.url.path.count("/") > 1 else ""
        refused = (
            headers.get("host") not in self._hosts
            or (origin is not None and origin.removeprefix("http://") != headers["host"])
            or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            or request.method not in ("GET", "HEAD")
            or not (request.url.path == "/favicon.ico" or hmac.compare_digest(given.encode(), self._token.encode()))
        )
        answer = PlainTextResponse("not allowed\n", 403) if refused else await call_next(request)
        answer.headers.update(_HEADERS)
        return answer


class _Page:
    """The page, as far as the answer to its question is known."""

    def __init__(self, explorer: Explorer, pictures: Pictures, patience: float) -> None:
        self._explorer = explorer
        self._pictures = pictures
        self._patience = patience

    def shown(self, form: Mapping[str, str], asked: bool) -> str:
        """The page for a form; before anything is asked, the form alone."""
        problem, found = "", None
        if asked:
            try:
                question = Question.of(form)
                answer = self._explorer.ask(question, self._patience)
                problem, found = answer.problem, None if answer.problem else self._answer(question, answer, form)
            except ShufflesumError as error:
                problem = str(error)
        body = render("explorer.html", form=form, problem=problem, answer=found)
        return page("shufflesum: plan a collection", body, stylesheet="style.css")

    def _answer(self, question: Question, answer: Answer, form: Mapping[str, str]) -> dict[str, object]:
        planned = answer.planned
        labelled = question.domain.counts_users
        error = "Error of each label’s share" if labelled else "Error of each mean"
        at = f"delta {upwards(question.delta)}"
        epsilon = "" if planned is None else f"epsilon {upwards(planned.plan.epsilon)}, "
        sweeps = {
            "epsilon": (answer.by_epsilon, f"{question.users:,} users, {at}"),
            "users": (answer.by_users, f"{epsilon}{at}"),
        }
        pictures = []
        for symbol, (points, subtitle) in sweeps.items():
            here = None if planned is None else (float(getattr(planned.plan, symbol)), _each(planned.plan))
            rows = tuple((one.line, float(getattr(one, symbol)), one.error) for one in points)
            drawing = Drawing(rows, symbol.capitalize(), error, subtitle, here)
            pictures.append(self._picture((question, symbol), drawing))
        return {
            "planned": planned,
            "first": answer.first,
            "soon": planned is None or any(drawn is None and not current for drawn, current in pictures),
            "finished": answer.finished and all(current for _, current in pictures),
            "done": answer.done,
            "total": answer.total,
            "pictures": [drawn for drawn, _ in pictures if drawn is not None],
            "figures": [] if planned is None else _figures(planned.plan, labelled),
            "statement": None if planned is None else markdown(_below(planned.statement)),
            "query": urlencode({name: form[name] for name in DEFAULTS}),
        }

    def _picture(self, kind: Hashable, wanted: Drawing) -> tuple[Markup | None, bool]:
        if not any(error is not None for *_, error in wanted.rows):
            return None, True
        svg, current = self._pictures.newest(kind, wanted)
        alt = f"{wanted.error} against {wanted.axis.lower()}: {_in_words(wanted)}"
        return picture(svg, alt) if svg else None, current


def _each(plan: Plan) -> float:
    return error_of(plan.expected_error.total, plan.dimension)


def _figures(plan: Plan, labelled: bool) -> list[tuple[str, str]]:
    """What a reader looks for first; errors are rounded up, as everything that could be in our favour."""
    each = _each(plan)
    what = "share of a label" if labelled else "mean"
    found = [
        (upwards(plan.epsilon), "epsilon"),
        (upwards(each), f"error of each {what}"),
        (f"{plan.reports:,}", "reports of each user"),
        (plan.mechanism.family, "mechanism"),
        (upwards(plan.times_curator), "times a trusted curator's squared error"),
    ]
    if labelled:
        found.insert(2, (upwards(each * plan.users), "users, error of each count"))
    return found


def _below(statement: str) -> str:
    """The statement without its title, its headings one level down."""
    return statement.partition("\n")[2].replace("\n## ", "\n### ")


def _in_words(drawing: Drawing) -> str:
    """The plan and the ends of each line, for whoever does not see it."""
    said = [] if drawing.here is None else [_at("this plan", [drawing.here])]
    for line in LINES:
        there = [(x, error) for name, x, error in drawing.rows if name == line and error is not None]
        if there:
            said.append(_at(line, there[:1] if len(there) == 1 else [there[0], there[-1]]))
    return "; ".join(said)


def _at(name: str, places: Sequence[tuple[float, float]]) -> str:
    return f"{name} " + ", ".join(f"{upwards(error)} at {x:,g}" for x, error in places)
