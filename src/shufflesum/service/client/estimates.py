"""Asking an analyzer for its estimates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shufflesum.service.client.web import RefusedError, UnreachableError, problem_of, web_client
from shufflesum.service.http.addresses import why_unreachable
from shufflesum.wire import Task

__all__ = ["fetch_estimate"]


def fetch_estimate(
    task: Task,
    url: str,
    *,
    round_number: int | None = None,
    allow_plain_http: bool = False,
    ca_file: str | Path | None = None,
) -> dict[str, Any]:
    """The analyzer's answer for a task: every released round's estimate, or that of one round.

    `RefusedError` tells why there is none.
    """
    query = {} if round_number is None else {"round": round_number}
    with web_client(url, allow_plain_http=allow_plain_http, ca_file=ca_file) as http:
        import httpx

        try:
            answer = http.get(f"{url.rstrip('/')}/tasks/{task.id}/estimate", params=query)
        except httpx.RequestError as error:
            raise UnreachableError(
                "unreachable", f"the analyzer {url} did not answer ({why_unreachable(error)}); see that it runs"
            ) from error
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
        known = document["task"] == task.id and rounds and all(_is_estimate(found, task) for found in rounds)
        known = known and (round_number is None or [found["round"] for found in rounds] == [round_number])
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise RefusedError("bad-answer", f"{url} did not answer as an analyzer of task {task.id[:12]}", final=True)
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _is_estimate(found: dict[str, Any], task: Task) -> bool:
    """Whether a round of an answer has all that is shown of it."""
    arrays = [found["mean"], found["sum"], found["standard_error"], *found["confidence_interval"]]
    numbers = [found["round"], found["users"], found["rejected_reports"], found["confidence_level"]]
    return (
        len(arrays) == 5
        and all(np.array(array, dtype=np.float64).shape == task.plan.shape for array in arrays)
        and all(isinstance(number, int | float) for number in numbers)
        and isinstance(found["guarantee"]["holds"], bool)
    )
