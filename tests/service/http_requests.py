"""One request to a server of this machine, and its answer."""

from __future__ import annotations

import contextlib
import http.client
import json
from dataclasses import dataclass
from typing import Any

from shufflesum.service.http.messages import parse_problem

__all__ = ["Answer", "request"]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str | None:
        return parse_problem(self.body)[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    source: str | None = None,
    seconds: float = 30.0,
) -> Answer:
    """One request on a connection of its own; `source` is the loopback address it comes from."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=seconds, source_address=(source, 0) if source else None
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
