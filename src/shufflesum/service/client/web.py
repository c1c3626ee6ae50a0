"""How a client reads what servers answer: a refusal, an analyzer's estimates, and where both servers stand."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import BaseEstimate
from shufflesum.service.http.asking import Answer, BadAnswerError, WebClient
from shufflesum.service.http.messages import NOT_TRUSTED, parse_problem, round_from_json, why_unreachable
from shufflesum.wire import Task


class RefusedError(ShufflesumError):
    """The server said no; `problem` is its stable name for the reason, `final` whether it will never say yes."""

    def __init__(
        self, problem: str, message: str, *, final: bool = True, value: str | None = None, row: int | None = None
    ) -> None:
        super().__init__(problem, message, value=value, row=row)
        self.final = final

    def __reduce__(self) -> tuple[Any, ...]:
        """Whether it is final travels along."""
        return partial(RefusedError, final=self.final), (self.problem, str(self))


class UnreachableError(ShufflesumError, ConnectionError):
    """No answer came in time; uploads stay among the contributions, and the same bytes can be sent again."""


def unreachable(url: str, error: Exception) -> UnreachableError:
    """Why a server that was asked something has not answered, as an error."""
    reason = why_unreachable(error)
    if reason == NOT_TRUSTED:
        return UnreachableError(
            "untrusted", f"{url} cannot be trusted ({error}); give its certificate authority (ca_file=)"
        )
    return UnreachableError("unreachable", f"{url} did not answer ({reason}); see that the server runs")


def problem_of(url: str, answer: Answer | BadAnswerError) -> RefusedError:
    """A server's refusal as an error; of what is no problem document only the status counts."""
    if isinstance(answer, BadAnswerError) or answer.status < 400:
        found = f"status {answer.status}" if isinstance(answer, Answer) else str(answer)
        return RefusedError(
            "bad-answer",
            f"{url} did not answer as our servers do ({found}): something else is at this address, or in between; see "
            "the address, or try from another network",
            final=True,
        )
    name, detail, retry = parse_problem(answer.body)
    if name is None:
        # A gateway in between may be having a bad moment; a plain 4xx will not change its mind.
        passing = answer.status >= 500 or answer.status in (408, 425, 429)
        name, detail = f"http-{answer.status}", f"{detail} (status {answer.status})"
    else:
        passing = retry == "not-yet"
    hint = "try again later" if passing else "sending the same again will not help"
    return RefusedError(name, f"{url} refused: {detail[:500]}; {hint}", final=not passing)


_PAUSE = 0.5  # seconds between two questions
_SECONDS = 10.0  # for a short answer


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
    with WebClient(url, allow_plain_http=allow_plain_http, ca_file=ca_file) as web:
        while True:
            try:
                return _estimates(task, web, round_number)
            except (RefusedError, UnreachableError) as error:
                passing = error.problem == "unreachable" if isinstance(error, UnreachableError) else not error.final
                if not passing or clock.monotonic() + _PAUSE > end:
                    raise
            clock.wait(_PAUSE)


def _estimates(task: Task, web: WebClient, round_number: int | None) -> dict[str, Any]:
    query = {"table": 1} | ({} if round_number is None else {"round": round_number})
    most = _most_bytes(task, round_number)
    try:
        document = _document(
            task, web, "estimate", "an analyzer", params=query, most=most, seconds=3 * _SECONDS + most / 1e6
        )
        rounds = document["rounds"]
        known = rounds and all(_is_round(found, task) for found in rounds)
        known = known and (round_number is None or [found["round"] for found in rounds] == [round_number])
    except RefusedError as refused:
        if refused.problem != "not-found":
            raise
        raise RefusedError(
            "not-found", f"{web.url} is no analyzer's address (a shuffler's?); ask the analyzer", final=True
        ) from refused
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
    if not known:
        raise _no_answer_of(web, "an analyzer", task)
    return document


def _most_bytes(task: Task, round_number: int | None) -> int:
    """More than any answer with estimates has: of each round its table, figures of every entry, names and labels."""
    plan = task.plan
    figures = 12 * plan.cells + 512 * plan.dimension + 2 * len(plan.to_json())
    return (1 << 20) + (task.rounds if round_number is None else 1) * (figures + (1 << 16))


def _document(task: Task, web: WebClient, path: str, whose: str, **request: Any) -> dict[str, Any]:
    """What a server answers for a task, as JSON of that task."""
    import httpx

    try:
        answer = web.ask("GET", f"/tasks/{task.id}/{path}", **request)
    except (httpx.RequestError, TimeoutError) as error:
        raise unreachable(web.url, error) from error
    except BadAnswerError as error:
        raise problem_of(web.url, error) from error
    if answer.status != 200:
        raise problem_of(web.url, answer)
    try:
        document: dict[str, Any] = json.loads(answer.body, parse_constant=_refuse_constant)
        known = document["task"] == task.id
    except (ValueError, KeyError, TypeError, RecursionError):
        known = False
    if not known:
        raise _no_answer_of(web, whose, task)
    return document


def _no_answer_of(web: WebClient, whose: str, task: Task) -> RefusedError:
    return RefusedError("bad-answer", f"{web.url} did not answer as {whose} of task {task.id[:12]}", final=True)


def estimates_in(task: Task, document: dict[str, Any]) -> dict[int, BaseEstimate]:
    """The estimate of each round, from an answer of `fetch_estimate`."""
    return {found["round"]: round_from_json(task.plan, found) for found in document["rounds"]}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _is_round(found: dict[str, Any], task: Task) -> bool:
    """Whether a round of an answer has all that is shown of it, and all of it follows from its table."""
    round_from_json(task.plan, found)
    return type(found["round"]) is int and isinstance(found["guarantee"]["holds"], bool)


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
    with WebClient(url, allow_plain_http=allow_plain_http, ca_file=ca_file, timeout=_SECONDS) as web:
        return _document(task, web, path, "a server", headers=headers, seconds=_SECONDS)
