"""The servers' HTTP interface described (OpenAPI 3.1): the pieces of both descriptions, and the figures in them.

A description holds for every task, as in docs/; the one that a server answers with has the task's own id and sizes, in
`components` only. Which problem has which status is not said again: it comes from `messages`. Figures say where a
server stands: for `shufflesum status` as JSON, for Prometheus as gauges.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from shufflesum.errors import ShufflesumError
from shufflesum.service.http.messages import MEDIA_TYPE, PREFIX, PROBLEMS
from shufflesum.wire import WIRE_VERSION, Task

GAUGES = {
    "rounds": "Rounds that the task's plan covers",
    "released_rounds": "Rounds whose batch the analyzer has taken",
    "counted_rounds": "Rounds whose batch was counted",
    "open_round": "The open round; 0 after the last",
    "users": "Users in the open round",
    "smallest_batch": "Users below which nothing is released",
    "release_at": "Users at which a round is released",
    "waiting_round": "The round whose batch the analyzer has not taken yet; 0 for none",
    "waiting_users": "Users in that batch",
    "expires": "When the task expires, in seconds since 1970",
    "store_bytes": "Bytes that the store takes",
    "free_bytes": "Bytes that are free where the store lies; NaN where that cannot be seen",
}
"""Every figure of a status: `shufflesum_status_NAME` is its gauge."""

_READ_SECONDS = 5.0
_UNKNOWN = float("nan")


class StatusGauges:
    """Gauges of a server's status, which `read` returns; it blocks, and may fail where the store is out of reach."""

    def __init__(self, registry: CollectorRegistry, names: tuple[str, ...], read: Callable[[], dict[str, Any]]) -> None:
        self._read = read
        self._gauges = {name: Gauge(f"shufflesum_status_{name}", GAUGES[name], registry=registry) for name in names}

    async def refresh(self) -> None:
        """Set the gauges to what is so now; NaN where nobody knows."""
        try:
            status = await asyncio.wait_for(asyncio.to_thread(self._read), _READ_SECONDS)
        except (ShufflesumError, TimeoutError):
            status = dict.fromkeys(self._gauges, _UNKNOWN)
        for name, gauge in self._gauges.items():
            gauge.set(_figure(name, status[name]))


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
_NOT_ALWAYS = ("open_round", "waiting_round", "waiting_users", "free_bytes")
_EVERYWHERE = ("bad-request", "address-limit", "internal")
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


TASK_ID = reference("task_id", "parameters")


def parameter(name: str, place: str, schema: Json, description: str, *, required: bool = True) -> Json:
    """A parameter of an operation."""
    return {"name": name, "in": place, "required": required, "schema": schema, "description": description}


def content(media_type: str, schema: Json, description: str, headers: Mapping[str, Json] | None = None) -> Json:
    """An answer with content."""
    answer: Json = {"description": description, "content": {media_type: {"schema": schema}}}
    return answer | ({"headers": dict(headers)} if headers else {})


def answer(name: str, description: str, headers: Mapping[str, Json] | None = None) -> Json:
    """An answer in JSON, of a schema by its name."""
    return content("application/json", reference(name), description, headers)


def record(properties: Mapping[str, Json], required: Iterable[str] | None = None, **said: str) -> Json:
    """An object of these properties and no others; all are `required`, unless it is said which."""
    names = list(properties if required is None else required)
    return {"type": "object", **said, "required": names, "properties": properties, "additionalProperties": False}


def operation(
    name: str,
    summary: str,
    answers: Mapping[int, Json],
    problems: Iterable[str] = (),
    *,
    parameters: Iterable[Json] = (),
    body: Json | None = None,
    security: list[Json] | None = None,
) -> Json:
    """An operation: its answers, and the problems that it can be refused with by their names."""
    by_status: dict[int, list[str]] = {}
    for problem in (*problems, *_EVERYWHERE):
        by_status.setdefault(PROBLEMS[problem].status, []).append(problem)
    refusals = {status: _refusal(names) for status, names in by_status.items()}
    parts: Json = {"operationId": name, "summary": summary, "parameters": list(parameters), "requestBody": body}
    parts |= {"security": security}
    parts = {key: value for key, value in parts.items() if value}
    return parts | {"responses": {str(status): found for status, found in sorted({**answers, **refusals}.items())}}


def _refusal(names: list[str]) -> Json:
    schema = {"allOf": [reference("Problem")], "properties": {"type": {"enum": [PREFIX + name for name in names]}}}
    titles = "; ".join(f"`{name}` ({PROBLEMS[name].retry}): {PROBLEMS[name].title}" for name in names)
    headers = {_OF_PROBLEMS[name] for name in names if name in _OF_PROBLEMS}
    return content(MEDIA_TYPE, schema, titles, {name: reference(name, "headers") for name in sorted(headers)})


def described(
    title: str,
    about: str,
    paths: Mapping[str, Json],
    components: Mapping[str, Json],
    task: Task | None,
    problems: tuple[str, ...] = (),
    *,
    secret_metrics: bool = False,
) -> Json:
    """The whole description, of one task or of any; `problems` can come from every path.

    `secret_metrics` says that metrics may be for whoever has the `secret` alone.
    """
    task_id = {"type": "string", "pattern": _HEX_64} | ({} if task is None else {"const": task.id})
    last = {"maximum": 2**32 - 1 if task is None else task.rounds}
    known: dict[str, Json] = {
        "parameters": {"task_id": parameter("task_id", "path", reference("TaskId"), "The task that the server runs.")},
        "headers": _HEADERS,
        "schemas": {
            "TaskId": task_id,
            "Round": {"type": "integer", "minimum": 1, "description": "From 1 to the plan's `rounds`."} | last,
            "Problem": _problem_schema(),
        },
    }
    for kind, named in components.items():
        known[kind] = {**known.get(kind, {}), **named}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": str(WIRE_VERSION), "description": about + _ABOUT},
        "paths": {**paths, **_common(problems, secret_metrics)},
        "components": known,
    }


def body_of(name: str) -> Json:
    """A request's body: bytes of a schema."""
    return {"required": True, "content": {"application/octet-stream": {"schema": reference(name)}}}


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


def status_schema(names: Iterable[str]) -> Json:
    """Figures of a status, by their names; those that there may not be are null."""
    properties: dict[str, Json] = {"task": reference("TaskId")}
    for name in names:
        kind = ["integer", "null"] if name in _NOT_ALWAYS else "integer"
        properties[name] = {"type": kind, "minimum": 0, "description": GAUGES[name]}
    properties["expires"] = {"type": "string", "format": "date-time"}
    return record(properties)


def _common(problems: tuple[str, ...], secret_metrics: bool) -> dict[str, Json]:
    def said(words: str) -> Json:
        return content("text/plain", {"type": "string"}, words)

    asked: tuple[tuple[str, ...], list[Json] | None] = (), None
    if secret_metrics:
        asked = ("wrong-secret",), [{}, {"secret": []}]
    described_here = content("application/json", {"type": "object"}, "OpenAPI 3.1, with the task's own sizes.")
    return {
        path: {"get": operation(name, summary, {200: answer}, (*problems, *refused), security=security)}
        for path, name, summary, answer, refused, security in (
            ("/healthz", "isAlive", "Whether the process lives", said("It does."), (), None),
            ("/readyz", "isReady", "Whether the store can be written to", said("It can."), ("not-ready",), None),
            ("/metrics", "getMetrics", "Figures for Prometheus", said("In Prometheus' text format."), *asked),
            ("/openapi.json", "getInterface", "This description", described_here, (), None),
        )
    }
