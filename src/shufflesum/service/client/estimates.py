"""Asking an analyzer for its estimates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.estimate import Released
from shufflesum.service.client.web import RefusedError, UnreachableError, problem_of, unreachable, web_client
from shufflesum.service.http.rounds import round_from_json
from shufflesum.wire import Task

if TYPE_CHECKING:
    import httpx

__all__ = ["estimates_in", "fetch_estimate"]

_PAUSE = 0.5  # seconds between two questions


def fetch_estimate(
    task: Task,
    url: str,
    *,
    round_number: int | None = None,
    wait: float = 0.0,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """The analyzer's answer for a task: every released round's estimate, or that of one round.

    Where there is none yet, or no answer, it is asked again for `wait` seconds; then `RefusedError` or
    `UnreachableError` tells why, and at once where waiting would not help. Tables of counts are asked for, and the rest
    is checked by them; `estimates_in` makes estimates of it, as the library's, which can be asked for more.
    """
    end = clock.monotonic() + wait
    with web_client(url, allow_plain_http=allow_plain_http, ca_file=ca_file) as http:
        while True:
            try:
                return _answer(task, url, http, round_number)
            except (RefusedError, UnreachableError) as error:
                passing = error.problem == "unreachable" if isinstance(error, UnreachableError) else not error.final
                if not passing or clock.monotonic() + _PAUSE > end:
                    raise
            clock.wait(_PAUSE)


def _answer(task: Task, url: str, http: httpx.Client, round_number: int | None) -> dict[str, Any]:
    import httpx

    query = {"table": 1} | ({} if round_number is None else {"round": round_number})
    try:
        answer = http.get(f"{url.rstrip('/')}/tasks/{task.id}/estimate", params=query)
    except httpx.RequestError as error:
        raise unreachable(url, error) from error
    if answer.status_code != 200:
        refused = problem_of(answer)
        if refused.problem == "not-found":
            raise RefusedError(
                "not-found", f"{url} is no analyzer's address (a shuffler's?); ask the analyzer", final=True
            )
        raise refused
    try:
        document: dict[str, Any] = answer.json(parse_constant=_refuse_constant)
        rounds = document["rounds"]
        known = document["task"] == task.id and rounds and all(_is_round(found, task) for found in rounds)
        known = known and (round_number is None or [found["round"] for found in rounds] == [round_number])
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise RefusedError("bad-answer", f"{url} did not answer as an analyzer of task {task.id[:12]}", final=True)
    return document


def estimates_in(task: Task, document: dict[str, Any]) -> dict[int, Released]:
    """The estimate of each round, from an answer of `fetch_estimate`."""
    return {found["round"]: round_from_json(task.plan, found) for found in document["rounds"]}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _is_round(found: dict[str, Any], task: Task) -> bool:
    """Whether a round of an answer has all that is shown of it, and all of it follows from its table."""
    round_from_json(task.plan, found)
    return type(found["round"]) is int and isinstance(found["guarantee"]["holds"], bool)
