"""What a shuffler answers, described (OpenAPI 3.1).

Where it stands is for its operator alone, since a live count tells when somebody takes part.
"""

from __future__ import annotations

from typing import Any

from shufflesum.service.http import openapi as api
from shufflesum.service.http.openapi import TASK_ID, Json, operation, reference, sent
from shufflesum.service.stores.store import Store
from shufflesum.wire import SEALED_BYTES, UPLOAD_HEADER_BYTES, Task

FIGURES = (
    *("rounds", "released_rounds", "open_round", "users", "smallest_batch", "release_at"),
    *("waiting_round", "waiting_users", "expires", "store_bytes", "free_bytes"),
)


def shuffler_status(task: Task, store: Store, release_at: int | None) -> dict[str, Any]:
    """All figures, as of now; blocks."""
    rounds, waiting, usage = store.rounds(), store.pending(), store.usage()
    return {
        "task": task.id,
        "rounds": task.rounds,
        "released_rounds": rounds.released,
        "open_round": rounds.open_round,
        "users": rounds.users,
        "smallest_batch": task.smallest_batch,
        "release_at": max(task.smallest_batch, release_at or 0),
        "waiting_round": None if waiting is None else waiting.round_number,
        "waiting_users": None if waiting is None else waiting.users,
        "expires": task.expires.isoformat(),
        "store_bytes": usage.used,
        "free_bytes": usage.free,
    }


_ELSEWHERE = ("wrong-task", "not-found", "origin-refused")
_UPLOAD_PROBLEMS = (
    *("wrong-version", "wrong-length", "wrong-round", "token-missing", "token-unknown", "token-spent", *_ELSEWHERE),
    *("too-slow", "repeated", "duplicate-report", "round-closed", "round-not-open", "expired"),
    *("too-large", "overloaded", "store-unavailable"),
)
_CROSS_ORIGIN = {
    "Access-Control-Allow-Origin": sent("The page's origin, where it is allowed.", always=False),
    "Access-Control-Expose-Headers": sent("For allowed pages: `retry-after`.", always=False),
    "Access-Control-Allow-Methods": sent("The method of this path."),
    "Access-Control-Allow-Headers": sent("What a page may send."),
    "Access-Control-Max-Age": sent("How many seconds a browser may remember it."),
}


def shuffler_interface(task: Task | None = None) -> Json:
    """The description for any task, or of the shuffler of one."""
    headers = {name: reference(name, "headers") for name in _CROSS_ORIGIN}
    readable = {name: headers[name] for name in list(headers)[:2]}
    preflight = {
        "description": "The page may send.",
        "headers": {name: headers[name] for name in headers if name != "Access-Control-Expose-Headers"},
    }

    def asked(name: str, method: str) -> Json:
        asked_with = [
            TASK_ID,
            api.parameter("Origin", "header", {"type": "string", "minLength": 1}, "The page's origin."),
            api.parameter("Access-Control-Request-Method", "header", {"const": method}, "What it wants to send."),
        ]
        return operation(
            name,
            "A browser's question whether a page of another origin may send",
            {204: preflight},
            ("wrong-method", "not-found", "origin-refused"),
            parameters=asked_with,
        )

    paths = {
        "/tasks/{task_id}": {
            "get": operation(
                "getTask",
                "The task file",
                {200: api.answer("Task", "To be verified, not believed.", readable)},
                _ELSEWHERE,
                parameters=[TASK_ID],
            ),
            "options": asked("mayPagesGetTask", "GET"),
        },
        "/tasks/{task_id}/round": {
            "get": operation(
                "getRound",
                "Which round is open",
                {200: api.answer("OpenRound", "The open round.", readable)},
                (*_ELSEWHERE, "store-unavailable"),
                parameters=[TASK_ID],
            ),
            "options": asked("mayPagesGetRound", "GET"),
        },
        "/tasks/{task_id}/uploads": {
            "post": operation(
                "upload",
                "One user's part in one round",
                {201: {"description": "Taken, durably; it counts once.", "headers": readable}},
                _UPLOAD_PROBLEMS,
                parameters=[TASK_ID],
                body=api.body_of("Upload"),
                security=[{}, {"token": []}],
            ),
            "options": asked("mayPagesUpload", "POST"),
        },
        "/tasks/{task_id}/release": {
            "post": operation(
                "release",
                "Close the open round now, if it has the smallest batch",
                {202: api.answer("Closed", "This batch is on its way to the analyzer.")},
                (*_ELSEWHERE, "wrong-secret", "batch-too-small", "round-closed", "store-unavailable"),
                parameters=[TASK_ID],
                security=[{"secret": []}],
            )
        },
        "/tasks/{task_id}/status": {
            "get": operation(
                "getStatus",
                "Where the shuffler stands",
                {200: api.answer("Status", "To the single user: for the operator alone.")},
                (*_ELSEWHERE, "wrong-secret", "store-unavailable"),
                parameters=[TASK_ID],
                security=[{"secret": []}],
            )
        },
    }
    components = {
        "headers": _CROSS_ORIGIN,
        "schemas": {"Upload": _upload_schema(task), "Status": api.status_schema(FIGURES), **_SCHEMAS},
        "securitySchemes": {
            "token": {
                "type": "apiKey",
                "in": "header",
                "name": "Authorization",
                "description": "`Token` and 32 hexadecimal digits; where the operator hands out tokens, one a person.",
            },
            "secret": {
                "type": "http",
                "scheme": "bearer",
                "description": "The operator's secret, unknown to the analyzer.",
            },
        },
    }
    about = "Takes sealed uploads of one task and hands whole batches, permuted, to the analyzer."
    return api.described(
        "shufflesum shuffler", about, paths, components, task, ("origin-refused",), secret_metrics=True
    )


def _upload_schema(task: Task | None) -> Json:
    about = f"Exactly {UPLOAD_HEADER_BYTES} + {SEALED_BYTES} r bytes, r the plan's `reports`; docs/wire.md, Upload."
    if task is None:
        return api.bytes_schema(about, UPLOAD_HEADER_BYTES + SEALED_BYTES)
    return api.bytes_schema(about, task.upload_bytes, task.upload_bytes)


_SCHEMAS: dict[str, Json] = {
    "OpenRound": api.record(
        {
            "task": reference("TaskId"),
            "open_round": {"anyOf": [reference("Round"), {"type": "null"}], "description": "null after the last."},
            "rounds": {"type": "integer", "minimum": 1},
            "users_at_least": {"type": "integer", "minimum": 0, "description": "Where the operator shows it."},
        },
        required=("task", "open_round", "rounds"),
    ),
    "Closed": api.record({"round": reference("Round"), "users": {"type": "integer", "minimum": 1}}),
    "Task": api.record(
        {
            "format": {"const": "shufflesum-task-2"},
            "wire_version": {"const": 2},
            "name": {"type": "string", "minLength": 1, "maxLength": 200},
            "shuffler": {"type": "string", "format": "uri"},
            "analyzer_key": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "smallest_batch": {"type": "integer", "minimum": 1},
            "rounds": {"type": "integer", "minimum": 1},
            "expires": {"type": "string", "format": "date-time"},
            "id": reference("TaskId"),
            "plan": {
                "type": "object",
                "description": "docs/wire.md, Plan file.",
                "required": ["format", "domain", "mechanism", "guarantee", "id", "cells", "reports"],
                "properties": {
                    "format": {"const": "shufflesum-plan-2"},
                    "domain": {"type": "object", "required": ["kind"]},
                    "mechanism": {"type": "object", "required": ["kind"]},
                    "guarantee": {"type": "object"},
                    "id": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
                    "cells": {"type": "integer", "minimum": 1, "maximum": 4294967295},
                    "reports": {"type": "integer", "minimum": 1},
                },
            },
        }
    ),
}
