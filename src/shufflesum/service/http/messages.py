"""What clients and servers agree on: addresses, refusals, a round's estimate as JSON, and how a server is asked.

A refusal is an RFC 9457 problem document with a stable name. It says with `retry` whether the same request can succeed
later ("not-yet") or not at all ("never").

An estimate holds what people want to read and, on request, the table of counts that all of it follows from: whoever has
the plan can ask it for more, such as the counts of any words. The table is what the guarantee is about; it reveals
nothing beside.

Asking is bounded in bytes and time: whoever answers, or is in between, may be anybody. A body is read as it came, and
one that is compressed is refused: of a few bytes it would make many. `ask` is for programs that have an event loop;
others have a `WebClient`, whose loop runs in a thread of its own, because only a loop can end a question whose answer
drips in byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import socket
import ssl
import stat
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
import numpy as np

from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.estimate import BaseEstimate, estimate_of, table_from_json, table_to_json
from shufflesum.plans import Plan
from shufflesum.service import require_client
from shufflesum.tables.writers import estimate_to_json, warnings_to_json
from shufflesum.wire import check_address

if TYPE_CHECKING:
    import httpx

NOT_TRUSTED = "its certificate is not trusted"
_REASONS: dict[type[BaseException], str] = {
    ssl.SSLCertVerificationError: NOT_TRUSTED,
    ssl.SSLError: "TLS failed",
    socket.gaierror: "unknown host name",
    ConnectionRefusedError: "connection refused",
    TimeoutError: "no answer in time",
}


def check_url(url: str, *, allow_plain_http: bool) -> str:
    """A server's address without a trailing slash; plain HTTP only to this machine, unless allowed."""
    check_address("the address", url)
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or "") and not allow_plain_http:
        raise ParameterError(
            "untrusted",
            f"{url} is plain HTTP to another machine: whoever is in between can read and change it; use https://, or "
            "insist with allow_plain_http=True",
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def trust(ca_file: str | Path | None) -> ssl.SSLContext:
    """TLS that believes the certificate authorities in a PEM file, or the system's where none is given."""
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise FileError("malformed", f"{ca_file} holds no certificates: {error}; give a PEM file") from error


def load_key_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Load a certificate and its key; a key that is encrypted, or that everybody may read, is refused."""

    def no_password() -> str:
        raise FileError("malformed", f"the TLS key {key} is encrypted, and nobody is there to type its pass phrase")

    try:
        context.load_cert_chain(cert, key, no_password)
        mode = key.stat().st_mode
    except FileError:
        raise
    except (OSError, ssl.SSLError) as error:
        raise FileError("malformed", f"the TLS certificate {cert} and key cannot be used: {error}") from error
    if mode & 0o007:
        raise FileError(
            "insecure-permissions",
            f"{key}: everybody may use this TLS key (mode {stat.S_IMODE(mode):04o}); chmod o= {key}",
        )


def why_unreachable(error: BaseException) -> str:
    """Why a server could not be talked to, in words that name nobody; else the error's kind."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    for kind, reason in _REASONS.items():
        if any(isinstance(cause, kind) for cause in causes):
            return reason
    return type(error).__name__


# Components of a description, which a task narrows.
TaskId = Annotated[str, msgspec.Meta(extra_json_schema={"$ref": "#/components/schemas/TaskId"})]
RoundNumber = Annotated[int, msgspec.Meta(ge=1, extra_json_schema={"$ref": "#/components/schemas/Round"})]
Count = Annotated[int, msgspec.Meta(ge=0)]


class OpenRound(msgspec.Struct, frozen=True, omit_defaults=True):
    """What everybody may know of a shuffler."""

    task: TaskId
    open_round: Annotated[RoundNumber | None, msgspec.Meta(description="null after the last.")]
    rounds: Annotated[int, msgspec.Meta(ge=1)]
    users_at_least: Annotated[Count | None, msgspec.Meta(description="Where the operator shows it.")] = None


class BatchAnswer(msgspec.Struct, frozen=True):
    """What an analyzer has done with a batch."""

    batch: str
    answer: Literal["counted", "repeated"]


class NoiseKeyAnswer(msgspec.Struct, frozen=True):
    """Which noise key an analyzer draws with."""

    fingerprint: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$", description="It tells nothing about the key.")]


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
        return {"type": self.type, "title": self.title, "status": self.status, "detail": detail, "retry": self.retry}

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
    Problem("duplicate-report", 409, "Reports of this upload are in another upload already", "never"),
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, "the answer is not a problem document of shufflesum", None


MOST_CELLS_ANSWERED = 1 << 26
"""The largest table an answer carries: 256 MiB before it is compressed."""


def round_to_json(estimate: BaseEstimate, level: float) -> dict[str, Any]:
    """The estimate and its table; of words, which nobody has asked for yet, the table alone."""
    return _figures(estimate, level) | {"warnings": warnings_to_json(estimate), "table": table_to_json(estimate.table)}


def round_from_json(plan: Plan, found: dict[str, Any]) -> BaseEstimate:
    """The estimate whose `round_to_json` this is; what it lists must follow from its table.

    ValueError, KeyError or TypeError for anything else.
    """
    users, rejected, level = found["users"], found["rejected_reports"], found["confidence_level"]
    broken = found.get("why_broken")
    if (
        type(users) is not int
        or type(rejected) is not int
        or not isinstance(level, float)
        or not isinstance(broken, str | None)
        or not (users >= 1 and rejected >= 0 and 0 < level < 1)
    ):
        raise ValueError("users, rejected reports or level are none")
    if plan.cells > MOST_CELLS_ANSWERED:
        raise ValueError("no answer carries a table that large")
    table, number = table_from_json(found["table"], plan.cells), found["round"]
    if type(number) is not int or not 1 <= number <= plan.rounds:
        raise ValueError("the round is none of the plan's")
    estimate: BaseEstimate = estimate_of(plan, users, rejected, table, broken, number)
    for name, figures in _figures(estimate, level).items():
        if not _same(found[name], figures):
            raise ValueError(f"{name} does not follow from the table")
    return estimate


def _figures(estimate: BaseEstimate, level: float) -> dict[str, Any]:
    if estimate.prompt is not None:
        whole = {
            "confidence_level": level,
            "users": int(estimate.users),
            "rejected_reports": int(estimate.rejected),
            "guarantee_holds": estimate.guarantee_holds,
        }
        return whole if estimate.broken is None else whole | {"why_broken": estimate.broken}
    figures = estimate_to_json(estimate, level)
    del figures["warnings"]  # sentences: whoever has the estimate has their own
    return figures


def _same(stated: Any, true: Any) -> bool:
    """Equal but for the last digits of figures, which may differ between machines; null is not a number."""
    if stated == true:
        return True
    ours = np.array(true, dtype=np.float64)
    theirs = np.array(stated, dtype=np.float64)
    scale = float(np.nanmax(np.abs(ours), initial=0.0))
    return ours.shape == theirs.shape and np.allclose(theirs, ours, rtol=1e-6, atol=1e-9 * scale, equal_nan=True)


# ---- Asking a server.

MOST_BYTES = 1 << 16  # of an answer that is no estimate: a problem, a round, a status

_T = TypeVar("_T")


def read_answer(body: bytes, kind: type[_T]) -> _T | None:
    """An answer as its struct; None for anything else. Fields that are not known are passed over."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class BadAnswerError(Exception):
    """What came is no answer of our servers: too long, or compressed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, no larger than allowed; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def ask(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    seconds: float,
    most: int = MOST_BYTES,
    body: bytes | AsyncIterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> Answer:
    """The answer to a request, of at most `most` bytes and within `seconds`, from connecting to its last byte.

    `BadAnswerError` for any other; httpx's errors or `TimeoutError` where none came in time.
    """
    async with (
        asyncio.timeout(seconds),
        client.stream(method, url, content=body, headers=headers, params=params) as response,
    ):
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.strip().lower() != "identity":
            raise BadAnswerError(f"a compressed answer, {encoding[:20]!r}")
        held = bytearray()
        async for piece in response.aiter_raw():
            held += piece
            if len(held) > most:
                raise BadAnswerError(f"an answer of more than {most:,} bytes")
        return Answer(response.status_code, response.headers, bytes(held))


class WebClient:
    """Asks one server, from any thread, and tells nothing about its user.

    Plain HTTP is for this machine only, unless allowed. `timeout` is how many seconds the server may be silent.
    """

    def __init__(
        self, url: str, *, allow_plain_http: bool = False, ca_file: str | Path | None = None, timeout: float = 30.0
    ) -> None:
        require_client()
        import httpx

        self.url = check_url(url, allow_plain_http=allow_plain_http)
        self._client = httpx.AsyncClient(
            timeout=timeout,
            verify=trust(ca_file),
            # The same for everybody: no version, no platform.
            headers={"User-Agent": "shufflesum", "Accept-Encoding": "identity"},
            trust_env=not is_loopback(urlsplit(url).hostname or ""),  # no proxy between two programs of one machine
        )
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a client that nobody closed does not keep the program from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def ask(self, method: str, path: str, *, seconds: float, **request: Any) -> Answer:
        """The answer to a request for a path; see `ask`."""
        return self._wait_for(ask(self._client, method, self.url + path, seconds=seconds, **request))

    def _wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # where an interrupt has ended the waiting

    def close(self) -> None:
        """Close all connections."""
        if not self._loop.is_closed():
            with contextlib.suppress(OSError):
                self._wait_for(self._client.aclose())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> WebClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
