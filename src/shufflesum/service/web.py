"""How a client of our servers behaves on the web: what it tells, whom it trusts, how it reads a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from shufflesum.errors import MissingExtraError, ShufflesumError
from shufflesum.service.addresses import check_url, is_loopback, trust, why_unreachable
from shufflesum.service.problems import parse_problem
from shufflesum.wire import Task

if TYPE_CHECKING:
    import httpx

__all__ = ["RefusedError", "UnreachableError", "fetch_estimate", "problem_of", "web_client"]


class RefusedError(ShufflesumError):
    """The server said no; `problem` is its stable name for the reason, `final` whether it will never say yes."""

    def __init__(self, problem: str, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.problem = problem
        self.final = final


class UnreachableError(ShufflesumError, ConnectionError):
    """No answer came in time; the upload stays in the ledger and the same bytes can be sent again."""


def fetch_estimate(
    task: Task, url: str, *, allow_plain_http: bool = False, authorities: str | Path | None = None
) -> dict[str, Any]:
    """The analyzer's answer for a task: every released round's estimate. `RefusedError` tells why there is none."""
    with web_client(url, allow_plain_http=allow_plain_http, authorities=authorities) as http:
        import httpx

        try:
            answer = http.get(f"{url.rstrip('/')}/tasks/{task.id}/estimate")
        except httpx.RequestError as error:
            raise UnreachableError(
                f"the analyzer {url} did not answer ({why_unreachable(error)}); see that it runs"
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


def web_client(
    url: str, *, allow_plain_http: bool = False, authorities: str | Path | None = None, timeout: float = 30.0
) -> httpx.Client:
    """An HTTP client that tells nothing about its user, and speaks plain HTTP to this machine only unless told."""
    try:
        import httpx
    except ImportError as error:
        raise MissingExtraError("talking to a server needs httpx: pip install 'shufflesum[service]'") from error
    check_url(url, allow_plain_http=allow_plain_http)
    # The same for everybody: no version, no platform.
    headers = {"User-Agent": "shufflesum", "Accept-Encoding": "identity"}
    return httpx.Client(
        timeout=timeout,
        verify=trust(authorities),
        headers=headers,
        trust_env=not is_loopback(urlsplit(url).hostname or ""),  # no proxy between two programs of one machine
    )


def problem_of(answer: httpx.Response) -> RefusedError:
    """A server's refusal as an error; what is no problem document is judged by its status."""
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
    return RefusedError(name, f"{answer.request.url.host} refused ({name}): {detail[:500]}; {hint}", final=not passing)
