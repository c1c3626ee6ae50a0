"""What a shuffler answers: its endpoints, and where it stands.

Where it stands is for its operator alone, since a live count tells when somebody takes part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec

from shufflesum.sealing import SEALED_BYTES, WIRE_VERSION
from shufflesum.service.http import openapi as api
from shufflesum.service.http.messages import Count, OpenRound, RoundNumber, TaskId
from shufflesum.service.http.openapi import COMMON, METRICS, Answer, Endpoint, Json, reference, sent
from shufflesum.service.stores.store import Store
from shufflesum.wire import UPLOAD_HEADER_BYTES, Task


class ShufflerStatus(msgspec.Struct, frozen=True):
    """Where a shuffler stands, to the single user."""

    task: TaskId
    rounds: api.Rounds
    released_rounds: Annotated[Count, msgspec.Meta(description="Rounds whose batch the analyzer has taken")]
    open_round: Annotated[Count | None, msgspec.Meta(description="The open round; 0 after the last")]
    users: Annotated[Count, msgspec.Meta(description="Users in the open round")]
    smallest_batch: Annotated[Count, msgspec.Meta(description="Users below which nothing is released")]
    release_at: Annotated[Count, msgspec.Meta(description="Users at which a round is released")]
    waiting_round: Annotated[
        Count | None,
        msgspec.Meta(description="The round whose batch the analyzer has not taken yet; 0 for none"),
    ]
    waiting_users: Annotated[Count | None, msgspec.Meta(description="Users in that batch")]
    expires: api.Expires
    store_bytes: api.StoreBytes
    free_bytes: api.FreeBytes


def shuffler_status(task: Task, store: Store, release_at: int | None) -> ShufflerStatus:
    """All figures, as of now; blocks."""
    rounds, waiting, usage = store.rounds(), store.pending(), store.usage()
    return ShufflerStatus(
        task=task.id,
        rounds=task.rounds,
        released_rounds=rounds.released,
        open_round=rounds.open_round,
        users=rounds.users,
        smallest_batch=task.smallest_batch,
        release_at=max(task.smallest_batch, release_at or task.plan.users),
        waiting_round=None if waiting is None else waiting.round_number,
        waiting_users=None if waiting is None else waiting.users,
        expires=task.expires.isoformat(),
        store_bytes=usage.used,
        free_bytes=usage.free,
    )


class Closed(msgspec.Struct, frozen=True):
    """A round that was closed."""

    round: RoundNumber
    users: Annotated[int, msgspec.Meta(ge=1)]


_CROSS_ORIGIN = {
    "Access-Control-Allow-Origin": sent("The page's origin, where it is allowed.", always=False),
    "Access-Control-Expose-Headers": sent("For allowed pages: `retry-after`.", always=False),
    "Access-Control-Allow-Methods": sent("The method of this path."),
    "Access-Control-Allow-Headers": sent("What a page may send."),
    "Access-Control-Max-Age": sent("How many seconds a browser may remember it."),
}
_READABLE = ("Access-Control-Allow-Origin", "Access-Control-Expose-Headers")
_PREFLIGHT = tuple(name for name in _CROSS_ORIGIN if name != "Access-Control-Expose-Headers")

UPLOADS = Endpoint(
    "POST /tasks/{task_id}/uploads",
    "upload",
    "One user's part in one round",
    body="Upload",
    answers={201: Answer("Taken, durably; it counts once.", headers=_READABLE)},
    problems=(
        *("wrong-version", "wrong-length", "wrong-round", "token-missing", "token-unknown", "token-spent", "too-slow"),
        *("repeated", "duplicate-report", "round-closed", "round-not-open", "expired", "too-large", "overloaded"),
        "store-unavailable",
    ),
    security=({}, {"token": []}),
)
FOR_PAGES = (
    Endpoint(
        "GET /tasks/{task_id}",
        "getTask",
        "The task file",
        answers={200: Answer("To be verified, not believed.", reference("Task"), _READABLE)},
    ),
    Endpoint(
        "GET /tasks/{task_id}/round",
        "getRound",
        "Which round is open",
        answers={200: Answer("The open round.", OpenRound, _READABLE)},
        problems=("store-unavailable",),
    ),
    UPLOADS,
)
"""What web pages of allowed origins may ask for."""


def _preflight(asked: Endpoint) -> Endpoint:
    return Endpoint(
        f"OPTIONS {asked.path}",
        f"mayPages{asked.name[0].upper()}{asked.name[1:]}",
        "A browser's question whether a page of another origin may send",
        answers={204: Answer("The page may send.", headers=_PREFLIGHT)},
        problems=("wrong-method", "not-found"),
        parameters=(
            api.parameter("Origin", "header", {"type": "string", "minLength": 1}, "The page's origin."),
            api.parameter("Access-Control-Request-Method", "header", {"const": asked.method}, "What it wants to send."),
        ),
    )


_OPERATOR: tuple[Json, ...] = ({"secret": []},)
ENDPOINTS = (
    *FOR_PAGES,
    *map(_preflight, FOR_PAGES),
    Endpoint(
        "POST /tasks/{task_id}/release",
        "release",
        "Close the open round now, if it has the smallest batch",
        answers={202: Answer("This batch is on its way to the analyzer.", Closed)},
        problems=("wrong-secret", "batch-too-small", "round-closed", "store-unavailable"),
        security=_OPERATOR,
    ),
    Endpoint(
        "GET /tasks/{task_id}/status",
        "getStatus",
        "Where the shuffler stands",
        answers={200: Answer("To the single user: for the operator alone.", ShufflerStatus)},
        problems=("wrong-secret", "store-unavailable"),
        security=_OPERATOR,
    ),
)
"""What a shuffler answers, beside what both servers do."""


def shuffler_interface(task: Task | None = None) -> Json:
    """The description (OpenAPI 3.1) for any task, or of the shuffler of one."""
    components = {
        "headers": _CROSS_ORIGIN,
        "schemas": {"Upload": _upload_schema(task), **_SCHEMAS},
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
    # Metrics may be for whoever has the operator's secret alone.
    metrics = replace(METRICS, problems=("wrong-secret",), security=({}, *_OPERATOR))
    endpoints = (*ENDPOINTS, *(metrics if each is METRICS else each for each in COMMON))
    return api.described("shufflesum shuffler", about, endpoints, components, task, everywhere=("origin-refused",))


def _upload_schema(task: Task | None) -> Json:
    about = f"Exactly {UPLOAD_HEADER_BYTES} + {SEALED_BYTES} r bytes, r the plan's `reports`; docs/wire.md, Upload."
    if task is None:
        return api.bytes_schema(about, UPLOAD_HEADER_BYTES + SEALED_BYTES)
    return api.bytes_schema(about, task.upload_bytes, task.upload_bytes)


_SCHEMAS: dict[str, Json] = {
    "Task": api.record(
        {
            "format": {"const": "shufflesum-task-2"},
            "wire_version": {"const": WIRE_VERSION},
            "name": {"type": "string", "minLength": 1, "maxLength": 200},
            "shuffler": {"type": "string", "format": "uri"},
            "analyzer_key": {"type": "string", "pattern": "^([0-9a-f]{64})+$"},
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
