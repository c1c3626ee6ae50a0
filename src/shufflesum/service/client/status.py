"""Asking both servers of a deployment where they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shufflesum.service.client.web import RefusedError, problem_of, unreachable, web_client
from shufflesum.wire import Task

__all__ = ["fetch_status"]


def fetch_status(
    task: Task,
    url: str,
    role: str,
    *,
    secret: str | None = None,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
) -> dict[str, Any]:
    """What a shuffler or an analyzer says of itself; a shuffler, without its operator's secret, only what all may know.

    `RefusedError` and `UnreachableError` tell why it says nothing.
    """
    path = "round" if role == "shuffler" and secret is None else "status"
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    with web_client(url, allow_plain_http=allow_plain_http, ca_file=ca_file, timeout=10.0) as http:
        import httpx

        try:
            answer = http.get(f"{url.rstrip('/')}/tasks/{task.id}/{path}", headers=headers)
        except httpx.RequestError as error:
            raise unreachable(url, error) from error
    if answer.status_code != 200:
        raise problem_of(answer)
    try:
        document: dict[str, Any] = answer.json()
        known = document["task"] == task.id
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise RefusedError("bad-answer", f"{url} did not answer as a server of task {task.id[:12]}", final=True)
    return document
