"""How a client of our servers behaves on the web: what it tells, whom it trusts, how it reads a refusal.

It asks an analyzer for estimates, and both servers where they stand.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import BaseEstimate
from shufflesum.service import require_client
from shufflesum.service.http.messages import (
    NOT_TRUSTED,
    check_url,
    is_loopback,
    parse_problem,
    round_from_json,
    trust,
    why_unreachable,
)
from shufflesum.wire import Task

if TYPE_CHECKING:
    import httpx


class RefusedError(ShufflesumError):
    """The server said no; `problem` is its stable name for the reason, `final` whether it will never say yes."""

    def __init__(self, problem: str, message: str, *, final: bool) -> None:
        super().__init__(problem, message)
        self.final = final

    def __reduce__(self) -> tuple[Any, ...]:
        """Whether it is final travels along."""
        return partial(RefusedError, final=self.final), (self.problem, str(self))


class UnreachableError(ShufflesumError, ConnectionError):
    """No answer came in time; uploads stay among the contributions, and the same bytes can be sent again."""


def web_client(
    url: str, *, allow_plain_http: bool = False, ca_file: str | Path | None = None, timeout: float = 30.0
) -> httpx.Client:
    """An HTTP client that tells nothing about its user; plain HTTP is for this machine only, unless allowed."""
    require_client()
    import httpx

    check_url(url, allow_plain_http=allow_plain_http)
    # The same for everybody: no version, no platform.
    headers = {"User-Agent": "shufflesum", "Accept-Encoding": "identity"}
    return httpx.Client(
        timeout=timeout,
        verify=trust(ca_file),
        headers=headers,
        trust_env=not is_loopback(urlsplit(url).hostname or ""),  # no proxy between two programs of one machine
    )


def unreachable(url: str, error: httpx.RequestError) -> UnreachableError:
    """Why a server that was asked something has not answered, as an error."""
    reason = why_unreachable(error)
    if reason == NOT_TRUSTED:
        return UnreachableError(
            "untrusted", f"{url} cannot be trusted ({error}); give its certificate authority (ca_file=, --ca)"
        )
    return UnreachableError("unreachable", f"{url} did not answer ({reason}); see that the server runs")


def problem_of(answer: httpx.Response) -> RefusedError:
    """A server's refusal as an error; of what is no problem document only the status counts."""
    name, detail, retry = parse_problem(answer.content)
    if answer.status_code < 400:
        return RefusedError(
            "bad-answer",
            f"{answer.request.url.host} did not answer as our servers do (status {answer.status_code}): something else "
            "is at this address, or in between; see the address, or try from another network",
            final=True,
        )
    if name is None:
        # A gateway in between may be having a bad moment; a plain 4xx will not change its mind.
        passing = answer.status_code >= 500 or answer.status_code in (408, 425, 429)
        name, detail = f"http-{answer.status_code}", f"{detail} (status {answer.status_code})"
    else:
        passing = retry == "not-yet"
    hint = "try again later" if passing else "sending the same again will not help"
    return RefusedError(name, f"{answer.request.url.host} refused: {detail[:500]}; {hint}", final=not passing)


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
