"""The explorer: a local page that answers what a collection would cost, on this machine alone.

A request is answered by the planner itself: the page with the plan, and each picture as an image, or as text. Nobody
else, and no other site's page, can ask it anything.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from shufflesum._format import Z_95, Shown, counted, plain, upwards
from shufflesum.domains import Arrays, Categories, Domain
from shufflesum.errors import ParameterError, PrivacyError, ShufflesumError
from shufflesum.pages import asset, page, render, statement_html
from shufflesum.planning import domain_of, plan, plan_for_error
from shufflesum.plans import Plan
from shufflesum.plots import lines_chart, rendered_svg
from shufflesum.privacy.engine.gaussian import curator_error
from shufflesum.statement import card

Form = Mapping[str, Sequence[str]]
"""What was entered: the fields `column`, `low` and `high` once for each column, all others once."""

DEFAULTS: Form = {
    "users": ["50000"],
    "rounds": ["1"],
    "max_reports": [""],
    "holds": ["columns"],
    "column": ["age", "hours"],
    "low": ["0", "0"],
    "high": ["120", "24"],
    "shape": ["100"],
    "least": ["0"],
    "most": ["1"],
    "labels": ["yes, no, unsure"],
    "by": ["epsilon"],
    "epsilon": ["1"],
    "margin": ["1"],
    "delta": ["1e-6"],
}
"""The form as it is first shown, which is answered as well; every field of it is here."""

_MOST_SIZE = 1_000_000  # of an array, or labels
_LONGEST = 20_000  # letters of a field
_EMPTY_ROWS = 2  # for further columns


@dataclass(frozen=True, slots=True)
class Question:
    """A question that can be asked of the planner; exactly one of epsilon and margin is given.

    `margin` is what is acceptable on either side at 95 %, in per cent of the width of a number's bounds, or of all
    users for a label's count.
    """

    users: int
    domain: Domain
    epsilon: float | None
    margin: float | None
    delta: float
    rounds: int
    max_reports: int | None

    @staticmethod
    def of(form: Form) -> Question:
        """The question of a form; a ParameterError names the field that makes none."""
        long = [name for name in DEFAULTS if sum(map(len, form.get(name, ()))) > _LONGEST]
        if long:
            raise ParameterError("out-of-range", f"{long[0]} has more than {_LONGEST:,} letters; a number will do")
        one = {name: (form.get(name) or [""])[0].strip() for name in DEFAULTS}
        by_margin = _choice(one, "by", ("epsilon", "margin")) == "margin"
        held: dict[str, Callable[[], Domain]] = {
            "columns": lambda: _columns(form),
            "array": lambda: _array(one),
            "labels": lambda: _labels(one),
        }
        return Question(
            users=_whole(one, "users"),
            domain=held[_choice(one, "holds", tuple(held))](),
            epsilon=None if by_margin else _number(one, "epsilon"),
            margin=_number(one, "margin") if by_margin else None,
            delta=_number(one, "delta"),
            rounds=_whole(one, "rounds"),
            max_reports=_whole(one, "max_reports") if one["max_reports"] else None,
        )

    def arguments(self) -> dict[str, Any]:
        """The planner's arguments, without users and epsilon."""
        held: dict[str, Any] = {"domain": self.domain, "delta": self.delta, "rounds": self.rounds}
        return held if self.max_reports is None else held | {"max_reports": self.max_reports}

    def plan(self) -> Plan:
        """The planner's answer."""
        if self.margin is None:
            assert self.epsilon is not None
            return plan(users=self.users, epsilon=self.epsilon, **self.arguments())
        part, numbers = self.margin / 100, self.domain.numbers
        margin: Any = part
        if numbers is not None:
            widths = (part * numbers.width).tolist()
            margin = min(widths) if numbers.columns is None else dict(zip(numbers.columns, widths, strict=True))
        return plan_for_error(margin=margin, users=self.users, **self.arguments())


def _text(form: Mapping[str, str], name: str) -> str:
    if not form[name]:
        raise ParameterError("missing-argument", f"{name} is empty; give one, such as {DEFAULTS[name][0] or 100}")
    return form[name]


def _choice(form: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    text = _text(form, name)
    if text not in allowed:
        raise ParameterError("unknown-choice", f"{name} is {text[:40]!r}; it must be {' or '.join(allowed)}")
    return text


def _whole(form: Mapping[str, str], name: str) -> int:
    text = _text(form, name).replace(",", "").replace("_", "")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value == value // 1 and 1 <= value <= 1e12):
        raise ParameterError("wrong-type", f"{name} is {text[:40]!r}; it must be a whole number, at least 1")
    return int(value)


def _number(form: Mapping[str, str], name: str) -> float:
    return _as_number(_text(form, name), name)


def _as_number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            "wrong-type", f"{name} is {text[:40]!r}; it must be a number such as 0.5 or 1e-6"
        ) from None


def _columns(form: Form) -> Domain:
    """The columns that have a name, each with bounds of its own."""
    bounds: dict[str, tuple[float, float]] = {}
    for name, low, high in zip(form.get("column", ()), form.get("low", ()), form.get("high", ()), strict=False):
        if not (name := name.strip()):
            continue
        if name in bounds:
            raise ParameterError("conflicting-arguments", f"column {name[:40]!r} is given twice; name each column once")
        bounds[name] = (_as_number(low, f"the lower bound of {name}"), _as_number(high, f"the upper bound of {name}"))
    if not bounds:
        raise ParameterError("missing-argument", "column is empty; name at least one, with its bounds")
    return domain_of(None, len(bounds), bounds, list(bounds))


def _array(form: Mapping[str, str]) -> Arrays:
    text = _text(form, "shape")
    try:
        shape = tuple(int(size) for size in text.replace("x", ",").split(","))
    except ValueError:
        raise ParameterError("wrong-type", f"shape is {text[:40]!r}; write 100, or 28, 28") from None
    if min(shape) < 1 or math.prod(shape) > _MOST_SIZE:
        raise ParameterError("out-of-range", f"shape is {text[:40]!r}; it must have 1 to {_MOST_SIZE:,} numbers")
    return Arrays(shape, (_number(form, "least"), _number(form, "most")))


def _labels(form: Mapping[str, str]) -> Categories:
    text = _text(form, "labels")
    if not text.isdecimal():
        return Categories([label.strip() for label in text.split(",") if label.strip()])
    if not 2 <= int(text) <= _MOST_SIZE:
        raise ParameterError("out-of-range", f"labels is {text[:40]}; there may be 2 to {_MOST_SIZE:,} of them")
    return Categories(int(text))


# ---- pictures --------------------------------------------------------------------------------------------------------

PAPER, CURATOR = "the paper's formula", "trusted curator"
LINES = ("noisy-counts", "randomized-response", PAPER, CURATOR)
SWEEPS: Mapping[str, tuple[float, ...]] = {
    "epsilon": (0.1, 0.5, 2.0, 8.0),
    "users": (1_000, 10_000, 100_000, 1_000_000),
}
_drawing = Lock()


def percent_off(total: float, dimension: int) -> float:
    """The margin at 95 %, in per cent, of one of so many numbers, from the squared error of all in their widths."""
    return 100 * Z_95 * math.sqrt(total / dimension)


@lru_cache(maxsize=4096)
def point(question: Question, line: str, users: int, epsilon: float) -> float | None:
    """The margin of a number on one line of the pictures; None where the line has nothing to offer."""
    given = question.arguments()
    try:
        if line == CURATOR:
            weights = question.domain.in_units().central_sensitivity
            total = curator_error(users, weights, epsilon, question.delta, question.rounds)
        elif line == PAPER:
            # The published constants jump at epsilon = 1: above it the formula just below 1 may be better.
            found = [_published(users, target, given) for target in {epsilon, min(epsilon, math.nextafter(1.0, 0.0))}]
            total = min(found)
        else:
            total = plan(users=users, epsilon=epsilon, **given | {"mechanism": line}).error_in_widths.total
    except (ParameterError, PrivacyError):
        return None
    return percent_off(total, question.domain.dimension) if math.isfinite(total) else None


def _published(users: int, epsilon: float, given: Mapping[str, Any]) -> float:
    try:
        return plan(users=users, epsilon=epsilon, **{**given, "accountant": "paper"}).error_in_widths.total
    except (ParameterError, PrivacyError):
        return math.inf


def _lines_of(question: Question, planned: Plan, symbol: str) -> dict[str, list[float | None]]:
    """The margins on each line, for the epsilons or users of the picture."""
    sweep = [(int(x), planned.epsilon) if symbol == "users" else (question.users, float(x)) for x in SWEEPS[symbol]]
    lines = (line for line in LINES if line != PAPER or not question.domain.counts_users)
    return {line: [point(question, line, *where) for where in sweep] for line in lines}


def _said_of(question: Question, planned: Plan, symbol: str) -> tuple[str, str, str]:
    """What is measured, the title and what is fixed."""
    of_what = "users" if question.domain.counts_users else "the bounds' width"
    own = f"epsilon {upwards(planned.epsilon)}" if symbol == "users" else counted(question.users, "user")
    return f"± at 95 %, in % of {of_what}", f"Error against {symbol}", f"{own}, delta {upwards(question.delta)}"


@lru_cache(maxsize=64)
def picture_of(question: Question, symbol: str) -> str:
    """The margin against epsilon or users as SVG, with the plan's own."""
    planned = question.plan()
    measure, title, fixed = _said_of(question, planned, symbol)
    found = _lines_of(question, planned, symbol).items()
    chart = lines_chart(
        [{"line": line, "x": x, "y": y} for line, ys in found for x, y in zip(SWEEPS[symbol], ys, strict=True)],
        lines=LINES,
        x=symbol.capitalize(),
        y=measure,
        title=title,
        subtitle=fixed,
        here=("this plan", float(getattr(planned, symbol)), _own(planned)),
    )
    with _drawing:
        return rendered_svg(chart)


def numbers_of(question: Question, symbol: str) -> str:
    """The same as text, for whoever does not see pictures."""
    planned = question.plan()
    measure, title, fixed = _said_of(question, planned, symbol)
    found = _lines_of(question, planned, symbol)
    rows = [
        [plain(x), *("" if ys[place] is None else upwards(ys[place] or 0.0) for ys in found.values())]
        for place, x in enumerate(SWEEPS[symbol])
    ]
    mine = f"this plan: {upwards(_own(planned))} at {symbol} {plain(getattr(planned, symbol))}"
    return Shown(title, [measure, fixed, mine], ([symbol, *found], rows)).text() + "\n"


_DRAWN: Mapping[str, tuple[Callable[[Question, str], str], str]] = {
    "svg": (picture_of, "image/svg+xml"),
    "txt": (numbers_of, "text/plain"),
}


def _own(planned: Plan) -> float:
    return percent_off(planned.error_in_widths.total, planned.dimension)


# ---- the page --------------------------------------------------------------------------------------------------------

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_ASSETS = {"style.css": "text/css", "icon.svg": "image/svg+xml"}


def explorer_app(*, token: str, port: int) -> Starlette:
    """The page at /TOKEN/ of this machine's port."""

    async def show(request: Request) -> Response:
        return Response(await asyncio.to_thread(_page, _form(request)), media_type="text/html")

    async def save(request: Request) -> Response:
        return await _answered(lambda question: question.plan().to_json() + "\n", "application/json", request)

    async def draw(request: Request) -> Response:
        symbol, form = request.path_params["symbol"], request.path_params["form"]
        if symbol not in SWEEPS or form not in _DRAWN:
            return PlainTextResponse("nothing is here\n", 404)
        answer, media_type = _DRAWN[form]
        return await _answered(lambda question: answer(question, symbol), media_type, request)

    async def static(request: Request) -> Response:
        name = request.path_params.get("name", "icon.svg")
        if name not in _ASSETS:
            return PlainTextResponse("nothing is here\n", 404)
        return Response(asset(name), media_type=_ASSETS[name])

    return Starlette(
        routes=[
            Route("/favicon.ico", static),
            Route("/{token}/", show),
            Route("/{token}/plan.json", save),
            Route("/{token}/against-{symbol}.{form}", draw),
            Route("/{token}/{name}", static),
        ],
        middleware=[Middleware(_Guard, token=token, port=port)],
    )


def _form(request: Request) -> Form:
    """What was entered; where nothing was, the default question."""
    given = request.query_params
    return {name: given.getlist(name) for name in DEFAULTS} if given else DEFAULTS


async def _answered(answer: Callable[[Question], str], media_type: str, request: Request) -> Response:
    try:
        text = await asyncio.to_thread(lambda: answer(Question.of(_form(request))))
    except ShufflesumError as error:
        return PlainTextResponse(f"{error}\n", 400)
    return Response(text, media_type=media_type)


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


def _page(form: Form) -> str:
    """The form with its answer, or with what keeps it from having one."""
    problem, answer = "", None
    try:
        planned = Question.of(form).plan()
        answer = {
            "card": card(planned),
            "details": card(planned, details=True),
            "figures": _figures(planned),
            "statement": statement_html(planned),
            "query": urlencode(form, doseq=True),
            "own": plain(_own(planned)),
        }
    except ShufflesumError as error:
        problem = str(error)
    columns = [*zip(form["column"], form["low"], form["high"], strict=False), *[("", "", "")] * _EMPTY_ROWS]
    one = {name: (values or [""])[0] for name, values in form.items()}
    body = render("explorer.html", form=one, columns=columns, problem=problem, answer=answer)
    return page("shufflesum: plan a collection", body, stylesheet="style.css")


def _figures(planned: Plan) -> list[tuple[str, str]]:
    """What a reader looks for first; errors are rounded up, as everything that could be in our favour."""
    margins = list(planned.domain.wording.margins(planned).items())[:4]
    return [
        (upwards(planned.epsilon), "epsilon"),
        *((f"± {wide}", f"{what}, 95 %") for what, wide in margins),
        (f"{planned.reports:,}", f"report{'' if planned.reports == 1 else 's'} of each user"),
        (upwards(planned.times_curator), "times a trusted curator’s squared error"),
    ]
