"""Uploads on their way into the store: many wait together for one durable write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from shufflesum.service.http.problems import Refusal
from shufflesum.service.logs import log
from shufflesum.service.stores.store import NewUpload, Store, StoreError, UploadAnswer

__all__ = ["UploadQueue"]

_GROUP = 1024  # uploads a transaction
_GROUP_BYTES = 1 << 22  # of their sealed reports
_PENDING_BYTES = 1 << 26
_GATHER_SECONDS = 0.01
_ANSWER_SECONDS = 20.0


class UploadQueue:
    """Gathers uploads that arrive while the store is busy and writes them together.

    Each is answered after its transaction is durable. No more than `max_pending`, of `upload_bytes` each, wait at a
    time, and no more than 64 MB together with those that are still being read; `taken` is called after each transaction
    with the number of uploads that it took.
    """

    def __init__(self, store: Store, *, upload_bytes: int, max_pending: int, taken: Callable[[int], None]) -> None:
        self._store = store
        self._group = max(1, min(_GROUP, _GROUP_BYTES // upload_bytes))
        self._most_held = max(1, _PENDING_BYTES // upload_bytes)
        self._most_pending = min(max_pending, self._most_held)
        self._taken = taken
        self._waiting: list[tuple[NewUpload, asyncio.Future[UploadAnswer]]] = []
        self._pending = 0
        self._expected = 0  # uploads that are being read
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "uploads")
        self._failing = False

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Room for an upload that is about to be read; refused where too many wait already."""
        self._check_room(self._expected)
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    async def take(self, upload: NewUpload) -> UploadAnswer:
        """Take an upload that was read in its `room`; returns when it is durable, or refuses it for a moment."""
        self._check_room(0)
        future: asyncio.Future[UploadAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((upload, future))
        self._pending += 1
        self._arrived.set()
        try:
            return await future
        except StoreError:
            raise Refusal(
                "store-unavailable", "the upload was not acknowledged; send the same upload again", headers=_later()
            ) from None

    def _check_room(self, expected: int) -> None:
        if self._pending >= self._most_pending or self._pending + expected >= self._most_held:
            raise Refusal(
                "overloaded", "too many uploads wait to be stored; send the same upload again", headers=_later()
            )

    async def run(self) -> None:
        """Write groups of uploads for as long as the server runs."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            await self._gather()
            group, self._waiting = self._waiting[: self._group], self._waiting[self._group :]
            if not self._waiting:
                self._arrived.clear()
            writing = loop.run_in_executor(self._thread, self._store.take, [upload for upload, _ in group])
            while not (await asyncio.wait({writing}, timeout=_ANSWER_SECONDS))[0]:
                # The write goes on, and if it succeeds the repetitions of these uploads are recognised.
                self._fail(group + self._waiting, TimeoutError())
            self._pending -= len(group)
            if error := writing.exception():
                self._fail(group, error)
                continue
            self._failing = False
            answers = writing.result()
            for (_, future), answer in zip(group, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
            if taken := answers.count(UploadAnswer.TAKEN):
                self._taken(taken)

    async def _gather(self) -> None:
        """Let those in who are at the door: a thread that writes takes turns with this one, which slows both."""
        end = asyncio.get_running_loop().time() + _GATHER_SECONDS
        seen = 0
        while seen < len(self._waiting) < self._group and asyncio.get_running_loop().time() < end:
            seen = len(self._waiting)
            await asyncio.sleep(0)  # a request is read in one turn of the loop
            await asyncio.sleep(0)  # and handled in the next

    def _fail(self, group: list[tuple[NewUpload, asyncio.Future[UploadAnswer]]], error: BaseException) -> None:
        if not self._failing:
            reason = str(error) if isinstance(error, StoreError) else type(error).__name__
            log.error("store unavailable", error=reason)
        self._failing = True
        for _, future in group:
            if not future.done():
                future.set_exception(StoreError("store-unavailable", "the store cannot be used now"))

    def close(self) -> None:
        """Wait for the write under way."""
        self._thread.shutdown()


def _later() -> dict[str, str]:
    return {"Retry-After": "2"}
