"""A server's endpoints, from which both its routes and its description (OpenAPI 3.1) are made; and its figures.

A description holds for every task, as in docs/; the one that a server answers with has the task's own id and sizes, in
`components` only. Which problem has which status is not said again: it comes from `messages`. Figures say where a
server stands: for `shufflesum status` as JSON, for Prometheus as gauges.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from starlette.routing import Route

from shufflesum.errors import ShufflesumError
from shufflesum.sealing import WIRE_VERSION
from shufflesum.service.http.messages import MEDIA_TYPE, PREFIX, PROBLEMS, Count
from shufflesum.wire import Task

Rounds = Annotated[Count, msgspec.Meta(description="Rounds that the task's plan covers")]
Expires = Annotated[
    str,
    msgspec.Meta(description="When the task expires; in metrics in seconds since 1970"),
    msgspec.Meta(extra_json_schema={"format": "date-time"}),
]
StoreBytes = Annotated[Count, msgspec.Meta(description="Bytes that the store takes")]
FreeBytes = Annotated[
    Count | None,
    msgspec.Meta(description="Bytes that are free where the store lies; NaN or null where that cannot be seen"),
]

_READ_SECONDS = 5.0
_UNKNOWN = float("nan")


class StatusGauges:
    """Gauges of a server's status, which `read` returns; it blocks, and may fail where the store is out of reach."""

    def __init__(self, registry: CollectorRegistry, kind: type[msgspec.Struct], read: Callable[[], Any]) -> None:
        self._read = read
        self._gauges = {
            name: Gauge(f"shufflesum_status_{name}", said, registry=registry) for name, said in figures(kind).items()
        }

    async def refresh(self) -> None:
        """Set the gauges to what is so now; NaN where nobody knows."""
        try:
            status = await asyncio.wait_for(asyncio.to_thread(self._read), _READ_SECONDS)
        except (ShufflesumError, TimeoutError):
            status = None
        for name, gauge in self._gauges.items():
            gauge.set(_UNKNOWN if status is None else _figure(name, getattr(status, name)))


def figures(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The figures of a status, and what each of them is."""
    fields = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return {name: said["description"] for name, said in fields.items() if name != "task"}


def _figure(name: str, value: Any) -> float:
    if isinstance(value, str):
        return datetime.fromisoformat(value).timestamp()
    if value is None:
        return _UNKNOWN if name == "free_bytes" else 0.0
    return float(value)


Json = dict[str, Any]


def sent(description: str, schema: Json | None = None, *, always: bool = True) -> Json:
    """A header of an answer; `always` in those that name it."""
    return {"description": description, "required": always, "schema": schema or {"type": "string"}}


_SECONDS: Json = {"type": "string", "pattern": "^[0-9]+$"}
_HEADERS: dict[str, Json] = {
    "Retry-After": sent("Seconds to wait at least.", _SECONDS),
    "WWW-Authenticate": sent("Which kind of secret is asked for."),
    "Allow": sent("The methods that are allowed here."),
}
_OF_PROBLEMS = {
    "address-limit": "Retry-After",
    "overloaded": "Retry-After",
    "store-unavailable": "Retry-After",
    "token-missing": "WWW-Authenticate",
    "wrong-secret": "WWW-Authenticate",
    "wrong-method": "Allow",
}
_EVERYWHERE = ("bad-request", "address-limit", "internal")
_PREFLIGHT = "OPTIONS"
_HEX_64 = "^[0-9a-f]{64}$"
_ABOUT = (
    " Every refusal is a problem document (RFC 9457); its `type` is stable, and its `retry` says whether the same"
    " request can succeed later. HEAD is answered as GET is, without content; another method with 405 (`wrong-method`),"
    " another path with 404 (`not-found`). What is no HTTP, or has more than 64 KiB of headers, is refused with 400"
    " (`bad-request`). What the bytes mean, and when to send them again, is in docs/wire.md."
)


def reference(name: str, kind: str = "schemas") -> Json:
    """A reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def parameter(name: str, place: str, schema: Json, description: str, *, required: bool = True) -> Json:
    """A parameter of an operation."""
    return {"name": name, "in": place, "required": required, "schema": schema, "description": description}


def record(properties: Mapping[str, Json], required: Iterable[str] | None = None, **said: str) -> Json:
    """An object of these properties and no others; all are `required`, unless it is said which."""
    names = list(properties if required is None else required)
    return {"type": "object", **said, "required": names, "properties": properties, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its content is a struct as JSON, of a schema, or none; `headers` are names of components."""

    description: str
    kind: type[msgspec.Struct] | Json | None = None
    headers: Iterable[str] = ()
    media_types: Iterable[str] = ("application/json",)

    def described(self) -> Json:
        """As OpenAPI says it."""
        found: Json = {"description": self.description}
        if self.headers:
            found["headers"] = {name: reference(name, "headers") for name in self.headers}
        if self.kind is not None:
            schema = reference(self.kind.__name__) if isinstance(self.kind, type) else self.kind
            found["content"] = {media_type: {"schema": schema} for media_type in self.media_types}
        return found


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What can be asked ("GET /healthz"), and how it is described; `problems` are what it can be refused with.

    The method of a server that answers is called as the operation, in snake case. A path of a task can also be refused
    as that of another task. `body` names the schema of the bytes that are sent.
    """

    request: str
    name: str
    summary: str
    answers: Mapping[int, Answer]
    problems: tuple[str, ...] = ()
    parameters: tuple[Json, ...] = ()
    body: str | None = None
    security: tuple[Json, ...] = ()

    @property
    def method(self) -> str:
        """Of HTTP."""
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """As routes and OpenAPI write it."""
        return self.request.partition(" ")[2]

    def described(self, everywhere: tuple[str, ...]) -> Json:
        """As OpenAPI says it; `everywhere` are problems that every endpoint of a server has."""
        of_task = "{task_id}" in self.path
        elsewhere = ("wrong-task", "not-found") if of_task and self.method != _PREFLIGHT else ()
        by_status: dict[int, list[str]] = {}
        for problem in (*self.problems, *elsewhere, *everywhere, *_EVERYWHERE):
            by_status.setdefault(PROBLEMS[problem].status, []).append(problem)
        answers = {**self.answers, **{status: _refusal(names) for status, names in by_status.items()}}
        sent = {"application/octet-stream": {"schema": reference(self.body)}} if self.body else None
        parts: Json = {
            "operationId": self.name,
            "summary": self.summary,
            "parameters": [*([reference("task_id", "parameters")] if of_task else []), *self.parameters],
            "requestBody": sent and {"required": True, "content": sent},
            "security": list(self.security),
            "responses": {str(status): answers[status].described() for status in sorted(answers)},
        }
        return {key: value for key, value in parts.items() if value}


def routes_of(endpoints: Iterable[Endpoint], server: object) -> list[Route]:
    """The routes to a server's methods; a browser's preflights are answered before routes are looked for."""
    return [
        Route(each.path, getattr(server, re.sub("([A-Z])", r"_\1", each.name).lower()), methods=[each.method])
        for each in endpoints
        if each.method != _PREFLIGHT
    ]


def _refusal(names: list[str]) -> Answer:
    schema = {"allOf": [reference("Problem")], "properties": {"type": {"enum": [PREFIX + name for name in names]}}}
    titles = "; ".join(f"`{name}` ({PROBLEMS[name].retry}): {PROBLEMS[name].title}" for name in names)
    headers = sorted({_OF_PROBLEMS[name] for name in names if name in _OF_PROBLEMS})
    return Answer(titles, schema, headers, [MEDIA_TYPE])


def described(
    title: str,
    about: str,
    endpoints: Sequence[Endpoint],
    components: Mapping[str, Json],
    task: Task | None,
    everywhere: tuple[str, ...] = (),
) -> Json:
    """The whole description, of one task or of any; problems of `everywhere` can come from every path."""
    paths: dict[str, Json] = {}
    for each in endpoints:
        paths.setdefault(each.path, {})[each.method.lower()] = each.described(everywhere)
    kinds = [answer.kind for each in endpoints for answer in each.answers.values() if isinstance(answer.kind, type)]
    _, structs = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for schema in structs.values():
        schema["additionalProperties"] = False  # a server sends no others, though a client would take them
    task_id = {"type": "string", "pattern": _HEX_64} | ({} if task is None else {"const": task.id})
    last = {"maximum": 2**32 - 1 if task is None else task.rounds}
    known: dict[str, Json] = {
        "parameters": {"task_id": parameter("task_id", "path", reference("TaskId"), "The task that the server runs.")},
        "headers": _HEADERS,
        "schemas": {
            "TaskId": task_id,
            "Round": {"type": "integer", "minimum": 1, "description": "From 1 to the plan's `rounds`."} | last,
            "Problem": _problem_schema(),
            **structs,
        },
    }
    for kind, named in components.items():
        known[kind] = {**known.get(kind, {}), **named}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": str(WIRE_VERSION), "description": about + _ABOUT},
        "paths": paths,
        "components": known,
    }


def bytes_schema(description: str, least: int = 0, most: int | None = None) -> Json:
    """Plain bytes; lengths count bytes."""
    upper = {} if most is None else {"maxLength": most}
    return {"type": "string", "format": "binary", "description": description, "minLength": least, **upper}


def to_bytes(description: Json) -> bytes:
    """The description as it is served and kept in docs/."""
    return (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode()


def _problem_schema() -> Json:
    return {
        "type": "object",
        "required": ["type", "title", "status", "detail", "retry"],
        "properties": {
            "type": {"type": "string", "enum": [problem.type for problem in PROBLEMS.values()]},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "What was given and what to do, for people."},
            "retry": {"enum": ["not-yet", "never"]},
        },
    }


def _text(description: str) -> Answer:
    return Answer(description, {"type": "string"}, media_types=["text/plain"])


_DESCRIPTION = Answer("OpenAPI 3.1, with the task's own sizes.", {"type": "object"})
_READY = {200: _text("It can.")}
METRICS = Endpoint("GET /metrics", "getMetrics", "Figures for Prometheus", {200: _text("In Prometheus' text format.")})
COMMON = (
    Endpoint("GET /healthz", "isAlive", "Whether the process lives", {200: _text("It does.")}),
    Endpoint("GET /readyz", "isReady", "Whether the store can be written to", _READY, ("not-ready",)),
    METRICS,
    Endpoint("GET /openapi.json", "getInterface", "This description", {200: _DESCRIPTION}),
)
"""What both servers answer."""
