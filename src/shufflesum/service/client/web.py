"""How a client of our servers behaves on the web: what it tells, whom it trusts, how it reads a refusal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shufflesum.errors import ShufflesumError
from shufflesum.service import require_client
from shufflesum.service.http.addresses import NOT_TRUSTED, check_url, is_loopback, trust, why_unreachable
from shufflesum.service.http.problems import parse_problem

if TYPE_CHECKING:
    import httpx

__all__ = ["RefusedError", "UnreachableError", "problem_of", "unreachable", "web_client"]


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
