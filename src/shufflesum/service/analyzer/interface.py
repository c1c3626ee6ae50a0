"""What an analyzer answers, described (OpenAPI 3.1), and where it stands.

Its figures are nothing that estimates would not tell, but the room that its store has.
"""

from __future__ import annotations

from typing import Any

from shufflesum.service.analyzer.page import DOWNLOADS
from shufflesum.service.http import openapi as api
from shufflesum.service.http.openapi import TASK_ID, Json, operation, parameter, reference
from shufflesum.service.stores.tables import BatchStore
from shufflesum.wire import SEALED_BYTES, Task

FIGURES = ("rounds", "counted_rounds", "expires", "store_bytes", "free_bytes")


def analyzer_status(task: Task, store: BatchStore) -> dict[str, Any]:
    """All figures, as of now; blocks."""
    usage = store.usage()
    return {
        "task": task.id,
        "rounds": task.rounds,
        "counted_rounds": len(store.batch_ids()),
        "expires": task.expires.isoformat(),
        "store_bytes": usage.used,
        "free_bytes": usage.free,
    }


_ELSEWHERE = ("wrong-task", "not-found")
_NO_ESTIMATE = ("no-estimate-yet", "wrong-key", "guarantee-broken", "batch-too-small", "store-unavailable")
_BATCH_PROBLEMS = (
    *("wrong-secret", "wrong-certificate", *_ELSEWHERE, "wrong-length", "wrong-round", "wrong-batch"),
    *("batch-too-small", "too-slow", "store-unavailable"),
)
_MOST = 10**12 - 1  # a number in an address has twelve digits at most
_TEXT: Json = {"type": "string"}
_PAGE_HEADERS = {
    "ETag": api.sent("Tells two versions apart; `If-None-Match` asks by it."),
    "Content-Security-Policy": api.sent("Nothing is loaded from elsewhere."),
    "Content-Disposition": api.sent("The name of a file."),
}


def analyzer_interface(task: Task | None = None, *, page: bool = True) -> Json:
    """The description for any task, or of the analyzer of one; `page` as the server has it."""
    least = 1 if task is None else task.smallest_batch
    batch = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    paths = {
        "/tasks/{task_id}/batches/{batch_id}": {
            "post": operation(
                "takeBatch",
                "A whole batch from the shuffler",
                {
                    200: api.answer("Repeated", "It was counted before, once."),
                    201: api.answer("Counted", "Counted, durably."),
                },
                _BATCH_PROBLEMS,
                parameters=[
                    TASK_ID,
                    parameter("batch_id", "path", batch, "Drawn once by the shuffler; the same when sent again."),
                    parameter("round", "query", reference("Round"), "The round."),
                    parameter("users", "query", reference("Users"), "How many users' reports these are."),
                ],
                body=api.body_of("Batch"),
                security=[{"secret": []}, {"certificate": []}, {"secret": [], "certificate": []}],
            )
        },
        "/tasks/{task_id}/estimate": {
            "get": operation(
                "getEstimate",
                "The estimates of all released rounds, or of one",
                {200: api.answer("Estimates", "docs/wire.md, Estimates.")},
                (*_ELSEWHERE, *_NO_ESTIMATE),
                parameters=[
                    TASK_ID,
                    parameter("round", "query", reference("Round"), "This round alone.", required=False),
                    parameter("table", "query", {"enum": [0, 1]}, "1: with tables of counts.", required=False),
                ],
            )
        },
        "/tasks/{task_id}/status": {
            "get": operation(
                "getStatus",
                "Where the analyzer stands",
                {200: api.answer("Status", "As of now.")},
                (*_ELSEWHERE, "store-unavailable"),
                parameters=[TASK_ID],
            )
        },
    } | (_page() if page else {})
    components = {
        "headers": _PAGE_HEADERS,
        "schemas": {
            "Users": {"type": "integer", "minimum": least, "maximum": _MOST},
            "Batch": _batch_schema(task),
            "Status": api.status_schema(FIGURES),
            **_SCHEMAS,
        },
        "securitySchemes": {
            "secret": {"type": "http", "scheme": "bearer", "description": "The secret that both servers share."},
            "certificate": {"type": "mutualTLS", "description": "The shuffler's certificate."},
        },
    }
    about = "Takes whole batches of one task from its shuffler and answers with estimates."
    return api.described("shufflesum analyzer", about, paths, components, task)


def _batch_schema(task: Task | None) -> Json:
    about = f"Exactly {SEALED_BYTES} r x users bytes, r the plan's `reports`: sealed reports, permuted."
    return api.bytes_schema(
        about, SEALED_BYTES if task is None else SEALED_BYTES * task.plan.reports * task.smallest_batch
    )


def _page() -> dict[str, Json]:
    seen = parameter("If-None-Match", "header", _TEXT, "The `ETag` that is known.", required=False)
    any_number = {"type": "integer", "minimum": 0, "maximum": _MOST}
    newest = parameter("round", "query", any_number, "The newest round shown.", required=False)
    number = parameter("round", "path", reference("Round"), "The round.")
    kind = parameter("kind", "path", {"enum": list(DOWNLOADS)}, "As what.")

    def answered(*media_types: str, file: bool = False) -> dict[int, Json]:
        names = [name for name in _PAGE_HEADERS if file or name != "Content-Disposition"]
        headers = {name: reference(name, "headers") for name in names}
        types: Json = {media_type: {"schema": {}} for media_type in media_types}
        return {
            200: {"description": "As it is now.", "headers": headers, "content": types},
            304: {"description": "Nothing has changed.", "headers": headers},
        }

    html = answered("text/html")
    pages = {
        "/": operation("getPage", "The analyst's page", html, ("store-unavailable",), parameters=[newest, seen]),
        "/tasks/{task_id}": operation(
            "getTaskPage",
            "The analyst's page",
            html,
            (*_ELSEWHERE, "store-unavailable"),
            parameters=[TASK_ID, newest, seen],
        ),
        "/tasks/{task_id}/page.html": operation(
            "savePage",
            "The page as one file",
            answered("text/html", file=True),
            (*_ELSEWHERE, "store-unavailable"),
            parameters=[TASK_ID, seen],
        ),
        "/tasks/{task_id}/rounds/{round}/estimate.{kind}": operation(
            "saveRound",
            "A round as a file",
            answered(*(media_type.partition(";")[0] for media_type in DOWNLOADS.values()), file=True),
            (*_ELSEWHERE, *_NO_ESTIMATE),
            parameters=[TASK_ID, number, kind, seen],
        ),
        "/style.css": operation("getStyle", "The page's style", answered("text/css"), parameters=[seen]),
        "/live.js": operation("getScript", "The page's script", answered("text/javascript"), parameters=[seen]),
        "/favicon.ico": operation("getIcon", "The page's icon", answered("image/svg+xml"), parameters=[seen]),
    }
    return {path: {"get": found} for path, found in pages.items()}


def _batch_answer(answer: str) -> Json:
    return api.record({"batch": {"type": "string"}, "answer": {"const": answer}})


def _numbers(description: str) -> Json:
    return {"description": description, "anyOf": [reference("Numbers"), {"type": ["number", "null"]}]}


def _interval(description: str) -> Json:
    ends = {"anyOf": [reference("Numbers"), {"type": ["number", "null"]}]}
    return {"type": "array", "minItems": 2, "maxItems": 2, "items": ends, "description": description}


_COUNT: Json = {"type": "integer", "minimum": 0}
_LABELS: Json = {"type": "array", "items": {"type": ["string", "integer", "boolean"]}}
_SCHEMAS: dict[str, Json] = {
    "Counted": _batch_answer("counted"),
    "Repeated": _batch_answer("repeated"),
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
