"""Asking a server, bounded in bytes and time: whoever answers, or is in between, may be anybody.

A body is read as it came, and one that is compressed is refused: of a few bytes it would make many. `ask` is for
programs that have an event loop; others have a `WebClient`, whose loop runs in a thread of its own, because only a loop
can end a question whose answer drips in byte by byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from shufflesum.service import require_client
from shufflesum.service.http.messages import check_url, is_loopback, trust

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 1 << 16  # of an answer that is no estimate: a problem, a round, a status

_T = TypeVar("_T")


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
        self,
        url: str,
        *,
        allow_plain_http: bool = False,
        ca_file: str | Path | None = None,
        timeout: float = 30.0,
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
