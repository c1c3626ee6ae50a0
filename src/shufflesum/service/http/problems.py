"""What the servers answer when they refuse: RFC 9457 problem documents with stable names.

Each problem says with `retry` whether the same request can succeed later ("not-yet") or not at all ("never").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from shufflesum.errors import ShufflesumError

__all__ = ["MEDIA_TYPE", "PREFIX", "PROBLEMS", "Problem", "Refusal", "parse_problem"]

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:shufflesum:problem:"

Retry = Literal["not-yet", "never"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A kind of refusal; `name` never changes its meaning."""

    name: str
    status: int
    title: str
    retry: Retry

    @property
    def type(self) -> str:
        """The URN that stands for this problem."""
        return PREFIX + self.name

    def document(self, detail: str) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": detail,
            "retry": self.retry,
        }

    def encode(self, detail: str) -> bytes:
        """The problem as JSON bytes."""
        return json.dumps(self.document(detail)).encode()


_ALL = (
    # about an upload
    Problem("wrong-version", 400, "Another version of the wire format", "never"),
    Problem("wrong-task", 404, "Another task", "never"),
    Problem("wrong-length", 400, "Not the size that this task fixes", "never"),
    Problem("wrong-round", 400, "A round that this task does not cover", "never"),
    Problem("too-large", 413, "More bytes than this task allows", "never"),
    Problem("repeated", 409, "This upload was taken before", "never"),
    Problem("copied", 409, "Reports of this upload are in another upload already", "never"),
    Problem("too-slow", 408, "The request did not arrive in time", "not-yet"),
    Problem("expired", 410, "The task has expired", "never"),
    Problem("round-closed", 409, "The round is closed", "never"),
    Problem("round-not-open", 409, "The round is not open yet", "not-yet"),
    Problem("token-missing", 401, "An upload token is needed", "never"),
    Problem("token-unknown", 403, "Not a token of this task", "never"),
    Problem("token-spent", 403, "The token was used in this round", "never"),
    # about a batch, or about what comes of it
    Problem("wrong-secret", 401, "Not the secret that both servers share", "never"),
    Problem("wrong-certificate", 403, "Not the certificate of the other server", "never"),
    Problem("wrong-batch", 409, "This batch contradicts what is known of it", "never"),
    Problem("batch-too-small", 409, "Fewer users than the smallest batch", "not-yet"),
    Problem("no-estimate-yet", 404, "No batch has been released yet", "not-yet"),
    Problem("wrong-key", 409, "Nothing could be opened with this key", "never"),
    Problem("guarantee-broken", 409, "The privacy guarantee does not hold", "never"),
    # about the server
    Problem("origin-refused", 403, "A web page that may not send here", "never"),
    Problem("overloaded", 429, "Too many requests at this moment", "not-yet"),
    Problem("address-limit", 429, "Too much from one address at this moment", "not-yet"),
    Problem("store-unavailable", 503, "Nothing can be stored at this moment", "not-yet"),
    Problem("not-ready", 503, "The server is not ready", "not-yet"),
    Problem("bad-request", 400, "The request is malformed", "never"),
    Problem("not-found", 404, "Nothing is here", "never"),
    Problem("wrong-method", 405, "Not with this method", "never"),
    Problem("internal", 500, "A mistake in the server", "not-yet"),
)

PROBLEMS = {problem.name: problem for problem in _ALL}


class Refusal(ShufflesumError):
    """Raised by a request's handler to answer with a problem; `detail` says what was given and what to do."""

    def __init__(self, name: str, detail: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(PROBLEMS[name].name, detail)
        self.detail = detail
        self.headers = headers or {}


def parse_problem(body: bytes) -> tuple[str | None, str, Retry | None]:
    """What an answer says went wrong: the problem's name, the detail, and whether to retry.

    Name and retry are None where the body is no problem document of ours: something between the two parties answered.
    """
    try:
        document = json.loads(body)
        name = document["type"].removeprefix(PREFIX)
        problem = PROBLEMS[name]
        return name, str(document.get("detail", problem.title)), problem.retry
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "the answer is not a problem document of shufflesum", None
