"""What an analyzer answers: its endpoints, and where it stands.

Its figures are nothing that estimates would not tell, but the room that its store has.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from shufflesum.noisy_batch import BatchHeader
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.analyzer.page import DOWNLOADS
from shufflesum.service.http import openapi as api
from shufflesum.service.http.messages import BatchAnswer, Count, NoiseKeyAnswer, TaskId
from shufflesum.service.http.openapi import COMMON, Answer, Endpoint, Json, parameter, reference
from shufflesum.service.stores.tables import BatchStore
from shufflesum.wire import Task


class AnalyzerStatus(msgspec.Struct, frozen=True):
    """Where an analyzer stands."""

    task: TaskId
    rounds: api.Rounds
    counted_rounds: Annotated[Count, msgspec.Meta(description="Rounds whose batch was counted")]
    expires: api.Expires
    store_bytes: api.StoreBytes
    free_bytes: api.FreeBytes


def analyzer_status(task: Task, store: BatchStore) -> AnalyzerStatus:
    """All figures, as of now; blocks."""
    usage, counted = store.usage(), len(store.batch_ids())
    return AnalyzerStatus(task.id, task.rounds, counted, task.expires.isoformat(), usage.used, usage.free)


_NO_ESTIMATE = ("no-estimate-yet", "wrong-key", "guarantee-broken", "batch-too-small", "store-unavailable")
_MOST = 10**12 - 1  # a number in an address has twelve digits at most
_TEXT: Json = {"type": "string"}
_ROUND = reference("Round")
_BATCH_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_SHUFFLERS: tuple[Json, ...] = ({"secret": []}, {"certificate": []}, {"secret": [], "certificate": []})

ENDPOINTS = (
    Endpoint(
        "POST /tasks/{task_id}/batches/{batch_id}",
        "takeBatch",
        "A whole batch from the shuffler",
        body="Batch",
        answers={
            200: Answer("It was counted before, once.", BatchAnswer),
            201: Answer("Counted, durably.", BatchAnswer),
        },
        problems=(
            *("wrong-secret", "wrong-certificate", "wrong-length", "wrong-round", "wrong-batch", "batch-too-small"),
            *("too-slow", "store-unavailable"),
        ),
        parameters=(
            parameter("batch_id", "path", _BATCH_ID, "Drawn once by the shuffler; the same when sent again."),
            parameter("round", "query", _ROUND, "The round."),
            parameter("users", "query", reference("Users"), "How many users' reports these are."),
            parameter("digest", "query", _DIGEST, "Of the batch, where servers draw the noise.", required=False),
        ),
        security=_SHUFFLERS,
    ),
    Endpoint(
        "GET /tasks/{task_id}/noise-key",
        "getNoiseKey",
        "Which noise key the analyzer draws with, where it draws",
        answers={200: Answer("The same for good.", NoiseKeyAnswer)},
        problems=("wrong-secret", "wrong-certificate"),
        security=_SHUFFLERS,
    ),
    Endpoint(
        "GET /tasks/{task_id}/estimate",
        "getEstimate",
        "The estimates of all released rounds, or of one",
        answers={200: Answer("docs/wire.md, Estimates.", reference("Estimates"))},
        problems=_NO_ESTIMATE,
        parameters=(
            parameter("round", "query", _ROUND, "This round alone.", required=False),
            parameter("table", "query", {"enum": [0, 1]}, "1: with tables of counts.", required=False),
        ),
    ),
    Endpoint(
        "GET /tasks/{task_id}/status",
        "getStatus",
        "Where the analyzer stands",
        answers={200: Answer("As of now.", AnalyzerStatus)},
        problems=("store-unavailable",),
    ),
)
"""What an analyzer answers to programs, beside what both servers do."""

ASSETS = {
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/favicon.ico": ("icon.svg", "image/svg+xml"),
}
"""Files of the analyst's page, by their paths, and their types."""

_PAGE_HEADERS = {
    "ETag": api.sent("Tells two versions apart; `If-None-Match` asks by it."),
    "Content-Security-Policy": api.sent("Nothing is loaded from elsewhere."),
    "Content-Disposition": api.sent("The name of a file."),
}


_NEWEST = parameter(
    "round", "query", {"type": "integer", "minimum": 0, "maximum": _MOST}, "The newest round shown.", required=False
)
_KNOWN = parameter("If-None-Match", "header", _TEXT, "The `ETag` that is known.", required=False)


def _page(*media_types: str, file: bool = False) -> dict[int, Answer]:
    headers = [name for name in _PAGE_HEADERS if file or name != "Content-Disposition"]
    plain = [media_type.partition(";")[0] for media_type in media_types or ("text/html",)]
    return {200: Answer("As it is now.", {}, headers, plain), 304: Answer("Nothing has changed.", headers=headers)}


def _asset(path: str, name: str, summary: str) -> Endpoint:
    return Endpoint(f"GET {path}", name, summary, _page(ASSETS[path][1]), parameters=(_KNOWN,))


_STORED = ("store-unavailable",)
PAGES = (
    Endpoint("GET /", "getPage", "The analyst's page", _page(), _STORED, (_NEWEST, _KNOWN)),
    Endpoint("GET /tasks/{task_id}", "getTaskPage", "The analyst's page", _page(), _STORED, (_NEWEST, _KNOWN)),
    Endpoint(
        "GET /tasks/{task_id}/page.html", "savePage", "The page as one file", _page(file=True), _STORED, (_KNOWN,)
    ),
    Endpoint(
        "GET /tasks/{task_id}/rounds/{round}/estimate.{kind}",
        "saveRound",
        "A round as a file",
        _page(*DOWNLOADS.values(), file=True),
        _NO_ESTIMATE,
        (
            parameter("round", "path", _ROUND, "The round."),
            parameter("kind", "path", {"enum": list(DOWNLOADS)}, "As what."),
            _KNOWN,
        ),
    ),
    _asset("/style.css", "getStyle", "The page's style"),
    _asset("/live.js", "getScript", "The page's script"),
    _asset("/favicon.ico", "getIcon", "The page's icon"),
)
"""What an analyzer answers to people."""


def analyzer_interface(task: Task | None = None, *, page: bool = True) -> Json:
    """The description (OpenAPI 3.1) for any task, or of the analyzer of one; `page` as the server has it."""
    least = 1 if task is None else task.smallest_batch
    components = {
        "headers": _PAGE_HEADERS,
        "schemas": {
            "Users": {"type": "integer", "minimum": least, "maximum": _MOST},
            "Batch": _batch_schema(task),
            **_SCHEMAS,
        },
        "securitySchemes": {
            "secret": {"type": "http", "scheme": "bearer", "description": "The secret that both servers share."},
            "certificate": {"type": "mutualTLS", "description": "The shuffler's certificate."},
        },
    }
    about = "Takes whole batches of one task from its shuffler and answers with estimates."
    endpoints = (*ENDPOINTS, *(PAGES if page else ()), *COMMON)
    return api.described("shufflesum analyzer", about, endpoints, components, task)


def _batch_schema(task: Task | None) -> Json:
    about = (
        f"Exactly {SEALED_BYTES} r x users bytes, r the plan's `reports`: sealed reports, permuted. Where servers draw "
        "the noise, as in docs/wire.md, with a header and the shuffler's reports."
    )
    if task is None:
        return api.bytes_schema(about, SEALED_BYTES)
    header = 0 if task.plan.positions is None else BatchHeader.bytes_of(task)
    return api.bytes_schema(about, header + SEALED_BYTES * task.plan.reports * task.smallest_batch)


def _numbers(description: str) -> Json:
    return {"description": description, "anyOf": [reference("Numbers"), {"type": ["number", "null"]}]}


def _interval(description: str) -> Json:
    ends = {"anyOf": [reference("Numbers"), {"type": ["number", "null"]}]}
    return {"type": "array", "minItems": 2, "maxItems": 2, "items": ends, "description": description}


_COUNT: Json = {"type": "integer", "minimum": 0}
_LABELS: Json = {"type": "array", "items": {"type": ["string", "integer", "boolean"]}}
_SCHEMAS: dict[str, Json] = {
    "Numbers": {
        "type": "array",
        "items": {"anyOf": [{"type": ["number", "null"]}, reference("Numbers")]},
        "description": "In the shape of what a user holds; null where there is nothing.",
    },
    "Estimates": api.record(
        {"task": reference("TaskId"), "rounds": {"type": "array", "minItems": 1, "items": reference("RoundEstimate")}}
    ),
    "Table": api.record(
        {"bytes": {"enum": [4, 8]}, "zlib": {"type": "string", "contentEncoding": "base64"}},
        description="How often each cell was reported, from cell 0 on: little-endian, zlib, base64.",
    ),
    "RoundEstimate": api.record(
        {
            "round": reference("Round"),
            "uploads": _COUNT,
            "users": _COUNT,
            "rejected_reports": _COUNT,
            "rejected_kinds": api.record({"unreadable": _COUNT, "no_cell": _COUNT}),
            "confidence_level": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "guarantee_holds": {"type": "boolean", "description": "In this round."},
            "why_broken": {"type": "string"},
            "guarantee": api.record(
                {
                    "epsilon": {"type": ["number", "null"], "description": "null: none is claimed."},
                    "delta": {"type": "number"},
                    "unit": {"type": "string"},
                    "holds": {"type": "boolean", "description": "In all rounds."},
                }
            ),
            "warnings": {"type": "array", "items": api.record({"problem": _TEXT, "message": _TEXT})},
            "names": {"type": "array", "items": _TEXT, "description": "Of the entries, where columns have them."},
            "labels": _LABELS,
            "groups": _LABELS,
            "mean": _numbers("In the user's units."),
            "sum": _numbers("Over all users."),
            "standard_error": _numbers("Of the mean, or of the frequencies."),
            "sum_standard_error": _numbers("Of the sum."),
            "confidence_interval": _interval("Lower and upper ends of the mean, or of the frequencies."),
            "counts": _numbers("Unbiased: users of each label or group."),
            "count_standard_error": _numbers("Of the counts."),
            "count_interval": _interval("Lower and upper ends of the counts."),
            "frequencies": _numbers("Unbiased: counts over users."),
            "consistent_counts": _numbers("None below 0, and as many as users where each has one label."),
            "consistent_frequencies": _numbers("The same over users."),
            "report_counts": {"anyOf": [reference("Numbers"), _COUNT], "description": "Accepted, of each coordinate."},
            "too_few": {
                "type": "array",
                "items": {"type": "boolean"},
                "description": "Whether a group is too small for a mean.",
            },
            "table": reference("Table"),
        },
        required=(
            *("round", "uploads", "users", "rejected_reports", "rejected_kinds", "confidence_level"),
            *("guarantee_holds", "guarantee", "warnings"),
        ),
    ),
}
