"""How far a collection is, as far as its shuffler says so."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import httpx

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.errors import ShufflesumError
from shufflesum.service.http.addresses import check_url, trust
from shufflesum.wire import Task

__all__ = ["Progress", "ShufflerProgress"]

_KEPT_SECONDS = 10.0
_ANSWER_SECONDS = 1.0
_MOST_BYTES = 4096
_MOST_USERS = 10**12


@dataclass(frozen=True, slots=True)
class Progress:
    """The open round (None after the last), and at least how many users it has (None: the shuffler does not say)."""

    open_round: int | None
    users_at_least: int | None


class ShufflerProgress:
    """Asks a task's shuffler, at most once in ten seconds and only while somebody looks; None for no answer.

    The analyzer asks, not the page: a reader's browser then tells the shuffler nothing about who reads.
    """

    def __init__(self, task: Task, clock: Clock = SYSTEM_CLOCK) -> None:
        self._task = task
        self._clock = clock
        self._asking = asyncio.Lock()
        self._until = -1.0
        self._known: Progress | None = None

    async def latest(self) -> Progress | None:
        """What the shuffler said last."""
        async with self._asking:
            if self._clock.monotonic() >= self._until:
                self._known = await self._ask()
                self._until = self._clock.monotonic() + _KEPT_SECONDS
        return self._known

    async def _ask(self) -> Progress | None:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                url = check_url(self._task.shuffler, allow_plain_http=False)
                client = httpx.AsyncClient(trust_env=False, verify=await asyncio.to_thread(trust, None))
                async with client, client.stream("GET", f"{url}/tasks/{self._task.id}/round") as answer:
                    body = b""
                    async for piece in answer.aiter_bytes(_MOST_BYTES):
                        body += piece
                        if len(body) > _MOST_BYTES:
                            return None
            return self._read(body) if answer.status_code == 200 else None
        except (TimeoutError, httpx.HTTPError, ShufflesumError):
            return None

    def _read(self, body: bytes) -> Progress | None:
        """What the shuffler says, or None where it is not the answer of this task's shuffler."""
        try:
            found = json.loads(body)
            number, users = found["open_round"], found.get("users_at_least")
            known = found["task"] == self._task.id and _within(number, 1, self._task.rounds)
            return Progress(number, users) if known and _within(users, 0, _MOST_USERS) else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


def _within(value: object, least: int, most: int) -> bool:
    return value is None or (type(value) is int and least <= value <= most)
