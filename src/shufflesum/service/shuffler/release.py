"""A batch on its way to the analyzer: permuted with secure randomness, delivered at least once, then deleted.

The batch's id makes "at least once" count once: the analyzer counts a batch id a single time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ParameterError, ReportsError, ShufflesumError
from shufflesum.noise_keys import NoiseKey
from shufflesum.noisy_batch import forget_batches, write_batch
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.http import messages as web
from shufflesum.service.http.app import SecretFile, valid_secrets
from shufflesum.service.logs import log
from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.store import Batch, Store
from shufflesum.shuffling import shuffled
from shufflesum.wire import Task

_ITEM = np.dtype([("sealed", np.uint8, (SEALED_BYTES,))])
_MEMORY = 256 << 20  # for permuting; of what is larger, the rest waits in a file
_SENT = 1 << 14  # reports sent at a time
_PAUSES = (0.2, 5.0)  # first and longest wait between two attempts, seconds
_IDLE_SECONDS = 5.0
_SURE_SECONDS = 3600.0  # the clock must say so for as long before anything is deleted: it may be wrong for a while
_GRACE = timedelta(days=7)  # after expiry, for a batch that the analyzer does not take


def permuted(sealed: Iterable[bytes], reports: int, folder: Path | None = None) -> Generator[bytes]:
    """All sealed reports in a uniformly random order, drawn now, some at a time."""
    items = (np.frombuffer(chunk, dtype=_ITEM) for chunk in sealed)
    for found in shuffled(items, reports, _ITEM, memory=_MEMORY, folder=folder):
        for start in range(0, len(found), _SENT):
            yield found[start : start + _SENT].tobytes()


@dataclass(frozen=True, slots=True)
class AnalyzerAddress:
    """Where batches go: the analyzer's URL, a private certificate authority, if any, and how it knows us.

    It knows us by the shared secret, by a certificate with its key, or by both.
    """

    url: str
    secret: str | SecretFile | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None

    def check(self) -> None:
        """Refuse what the analyzer could not know us by, and files that cannot be used."""
        if self.secret is None and self.client_cert is None:
            raise ParameterError(
                "missing-argument",
                "the analyzer must know its shuffler by something; give secret_file, or client_cert and client_key",
            )
        if (self.client_cert is None) != (self.client_key is None):
            raise ParameterError(
                "missing-argument", "a certificate needs its key; give both client_cert and client_key, or neither"
            )
        if self.client_cert is not None and not self.url.startswith("https:"):
            raise ParameterError(
                "conflicting-arguments",
                f"client_cert needs an analyzer that speaks TLS, and analyzer= is {self.url}; write https://",
            )
        self._trust()

    def client(self, seconds: float) -> httpx.AsyncClient:
        """A client for one delivery, with certificates as they are now; proxies of the environment are not used.

        The analyzer may take so many seconds to answer.
        """
        timeout = httpx.Timeout(30.0, read=seconds)
        return httpx.AsyncClient(
            verify=self._trust(), trust_env=False, timeout=timeout, headers={"Accept-Encoding": "identity"}
        )

    def _trust(self) -> ssl.SSLContext:
        context = web.trust(self.ca_file)
        if self.client_cert is not None and self.client_key is not None:
            web.load_key_pair(context, self.client_cert, self.client_key)
        return context


class Releaser:
    """Closes rounds that are full, delivers their batches and deletes what was taken; for ever, through every failure.

    A round is closed at `release_at` users (by default as many as were planned for), or once asked to, or once the task
    has expired; never below the smallest batch.
    """

    def __init__(
        self,
        store: Store,
        task: Task,
        analyzer: AnalyzerAddress,
        *,
        release_at: int | None,
        released: Callable[[Batch], None],
        failed: Callable[[], None],
        noise_key: NoiseKey | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._store = store
        self._task = task
        self._analyzer = analyzer
        self._release_at = release_at or task.plan.users
        self._released = released
        self._failed = failed
        self._noise_key = noise_key
        self._clock = clock
        self._wanted = asyncio.Event()
        self._deleted = False
        self._deleted_rest = False
        self._next_deletion = 0.0
        self._since: dict[timedelta, float] = {}  # since when, in monotonic time, the clock says that all is over

    def wake(self) -> None:
        """Uploads were taken: see whether the round is full."""
        self._wanted.set()

    async def close_now(self) -> Batch | None:
        """Close the round at the smallest batch, without waiting for `release_at`; None where there are fewer users."""
        batch = await asyncio.to_thread(self._store.close_round, self._task.smallest_batch)
        self._wanted.set()
        return batch

    async def run(self) -> None:
        """Release batches for as long as the server runs."""
        pause = _PAUSES[0]
        while True:
            try:
                delivered = await self._step()
            except (StoreError, httpx.HTTPError, TimeoutError, web.BadAnswerError, _NotTaken, ReportsError) as error:
                self._failed()
                reason = web.why_unreachable(error) if isinstance(error, httpx.HTTPError | TimeoutError) else str(error)
                log.warning("release failed, will be tried again", error=reason)
                await self._clock.pause(pause)
                pause = min(2 * pause, _PAUSES[1])
            except Exception as error:
                self._failed()
                reason = str(error) if isinstance(error, ShufflesumError) else type(error).__name__
                log.error("release failed, will be tried again", error=reason)
                await self._clock.pause(_PAUSES[1])
            else:
                pause = _PAUSES[0]
                if not delivered:
                    await self._idle()

    async def _idle(self) -> None:
        await self._clock.pause(_IDLE_SECONDS, self._wanted)
        await self._clock.pause(0.05)  # a busy server looks twenty times a second, not after each upload
        self._wanted.clear()

    async def _step(self) -> bool:
        for grace in (timedelta(), _GRACE):
            self._surely_over(grace)  # seen at every step, so that a clock put right in between is noticed
        batch = await asyncio.to_thread(self._store.pending)
        await self._finish_deletion()
        if batch is None:
            smallest = self._task.smallest_batch
            threshold = smallest if self._task.expired_at(self._clock.now()) else max(smallest, self._release_at)
            batch = await asyncio.to_thread(self._store.close_round, threshold)
        if batch is None:
            if not self._deleted and self._surely_over():
                await asyncio.to_thread(self._store.delete_all)
                self._deleted = True
                log.info("task expired, everything left of it is deleted")
            return False
        try:
            await self._deliver(batch)
        except Exception:
            await self._delete_expired(batch)
            raise
        await asyncio.to_thread(self._store.mark_released, batch)
        self._released(batch)
        log.info("batch released", round=batch.round_number, users=batch.users)
        return True

    def _surely_over(self, grace: timedelta = timedelta()) -> bool:
        """Whether the task, and so much time beyond, has been over by the clock whenever we looked, for an hour."""
        if not self._task.expired_at(self._clock.now() - grace):
            self._since.pop(grace, None)
            return False
        now = self._clock.monotonic()
        return now - self._since.setdefault(grace, now) >= _SURE_SECONDS

    async def _finish_deletion(self) -> None:
        """Finish deletions; where that fails, the rest goes on, because a release makes room."""
        now = self._clock.monotonic()
        if now >= self._next_deletion:
            try:
                await asyncio.to_thread(self._store.finish_deletion)
            except StoreError as error:
                log.warning("deletion unfinished, will be tried again", error=str(error))
                self._next_deletion = now + _PAUSES[1]

    async def _delete_expired(self, batch: Batch) -> None:
        """After expiry, delete what can never be released though a batch waits, and that too when its grace is over."""
        if self._surely_over(_GRACE):
            await asyncio.to_thread(self._store.delete_all, pending=True)
            await asyncio.to_thread(self._forget_batches)
            log.error("batch not taken in time, deleted with everything", round=batch.round_number, users=batch.users)
        elif not self._deleted_rest and self._surely_over():
            rounds = await asyncio.to_thread(self._store.rounds)
            if rounds.users < self._task.smallest_batch:
                await asyncio.to_thread(self._store.delete_all)
                log.info("task expired, everything is deleted but the batch that waits", round=batch.round_number)
                self._deleted_rest = True

    async def _deliver(self, batch: Batch) -> None:
        if self._task.plan.positions is not None:
            if self._noise_key is None:  # never the truth alone
                raise ReportsError("no-guarantee", "the plan's noise is the shuffler's, which has no noise key")
            await self._deliver_noisy(batch, self._noise_key)
            return
        reports = batch.users * self._task.plan.reports
        await self._hand_over(batch, reports, reports * SEALED_BYTES, lambda: self._body(batch, reports))

    async def _deliver_noisy(self, batch: Batch, noise_key: NoiseKey) -> None:
        """Write the batch with our noise in it to a file beside the noise key, then hand over what is in the file."""
        partner = None
        if self._task.plan.noise_by == "servers":
            partner = await self._partner()
        written = await asyncio.to_thread(
            write_batch,
            noise_key.path.resolve().parent,
            self._task,
            batch.round_number,
            lambda: self._store.sealed(batch),
            noise_key,
            partner=partner,
        )
        header = written.header
        await self._hand_over(
            batch, header.reports, header.size, lambda: _file(written.path), digest=written.digest.hex()
        )
        await asyncio.to_thread(self._forget_batches)

    def _forget_batches(self) -> None:
        if self._noise_key is not None:
            forget_batches(self._noise_key.path.resolve().parent, self._task)

    async def _partner(self) -> str:
        """The fingerprint of the analyzer's noise key."""
        async with self._analyzer.client(30.0) as client:
            for secret in valid_secrets(self._analyzer.secret) or (None,):
                url = f"{self._analyzer.url}/tasks/{self._task.id}/noise-key"
                answer = await web.ask(client, "GET", url, headers=_bearer(secret), seconds=30.0)
                found = web.read_answer(answer.body, web.NoiseKeyAnswer) if answer.status == 200 else None
                if found is not None:
                    return found.fingerprint
        raise _NotTaken(f"the analyzer does not say which noise key it draws with, status {answer.status}")

    async def _hand_over(
        self, batch: Batch, reports: int, size: int, body: Callable[[], AsyncIterator[bytes]], **announced: str
    ) -> None:
        # The analyzer answers when it has opened everything, some thousands of reports a second.
        seconds = 120.0 + reports / 500
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        async with self._analyzer.client(seconds) as client:
            # The second secret counts where the analyzer has not heard of the first yet.
            for secret in valid_secrets(self._analyzer.secret) or (None,):
                answer = await web.ask(
                    client,
                    "POST",
                    f"{self._analyzer.url}/tasks/{self._task.id}/batches/{batch.batch_id}",
                    params={"round": batch.round_number, "users": batch.users, **announced},
                    body=body(),
                    headers=headers | _bearer(secret),
                    seconds=2 * seconds,
                )
                if _taken(answer, batch):
                    return
                name, _, _ = web.parse_problem(answer.body)
                if name != "wrong-secret":
                    break
        raise _NotTaken(name or f"no answer of an analyzer's, status {answer.status}")

    async def _body(self, batch: Batch, reports: int) -> AsyncIterator[bytes]:
        pieces = permuted(self._store.sealed(batch), reports, self._store.folder)
        try:
            while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
                yield piece
        finally:
            # An open reading would keep the store from cutting its log. Where a thread still reads, it ends with that.
            with contextlib.suppress(ValueError):
                pieces.close()


async def _file(path: Path) -> AsyncIterator[bytes]:
    with open(path, "rb") as file:
        while piece := await asyncio.to_thread(file.read, _SENT * SEALED_BYTES):
            yield piece


def _bearer(secret: str | None) -> dict[str, str]:
    return {} if secret is None else {"Authorization": f"Bearer {secret}"}


def _taken(answer: web.Answer, batch: Batch) -> bool:
    """Whether the analyzer itself has said that it has the batch; anybody can answer 200."""
    found = web.read_answer(answer.body, web.BatchAnswer)
    return answer.status in (200, 201) and found is not None and found.batch == batch.batch_id


class _NotTaken(Exception):
    """The analyzer answered, but did not take the batch."""
