"""The analyzer as a server: takes whole batches from its shuffler, keeps tables of counts, answers with estimates.

Reports are opened on all cores while a batch streams in and are never kept: only their counts are, and those only once
the batch is complete. Before that nothing of it can be seen, here or in the metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import warnings
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimate import Estimate
from shufflesum.release import release
from shufflesum.reports import Counts, Reports
from shufflesum.service.http.app import create_app
from shufflesum.service.http.problems import Refusal
from shufflesum.service.http.rounds import MOST_CELLS_ANSWERED, round_to_json
from shufflesum.service.http.secret import check_bearer
from shufflesum.service.logs import log
from shufflesum.service.stores.store import StoreError
from shufflesum.service.stores.tables import CountedBatch, TableStore, WrongBatchError
from shufflesum.wire import SEALED_BYTES, Opener, Task, UploadError

__all__ = ["AnalyzerServer"]

_OPEN_AT_ONCE = 16 * 1024 * SEALED_BYTES
_IN_FLIGHT = 2  # so that no core waits for the last of a piece
_CHUNK_SECONDS = 60.0
_BATCH_ID = re.compile(r"[0-9a-f]{32}")
_LEVEL = 0.95


class AnalyzerServer:
    """One task's analyzer. `without_guarantee` answers with estimates even where the guarantee no longer holds."""

    def __init__(
        self, task: Task, opener: Opener, store: TableStore, *, secret: str, without_guarantee: bool = False
    ) -> None:
        if opener.public_key != task.analyzer_key:
            raise ParameterError(
                "other-key",
                f"this private key belongs to the public key {opener.public_key.hex()}, but task {task.id[:12]} names "
                f"{task.analyzer_key.hex()}; give the key that the task was made for (--key)",
            )
        if not math.isfinite(task.plan.expected_error.total):
            raise ParameterError(
                "nothing-but-noise",
                "every report of the task's plan is noise and there is nothing to estimate; plan with more users or a "
                "larger epsilon",
            )
        if task.plan.cells > MOST_CELLS_ANSWERED:
            raise ParameterError(
                "too-many-cells",
                f"the task's plan has {task.plan.cells} cells, and an answer carries a table of at most "
                f"{MOST_CELLS_ANSWERED}; plan with fewer labels, buckets, functions or levels",
            )
        self._task = task
        self._opener = opener
        self._store = store
        self._secret = secret
        self._without_guarantee = without_guarantee
        self._answering = asyncio.Lock()
        self._last_answer: tuple[list[str], dict[str, Any], dict[int | None, bytes]] | None = None
        self._taking = asyncio.Lock()  # one batch at a time has all cores, and a repetition finds it done
        self._registry = CollectorRegistry()
        self._batches = Counter("shufflesum_batches", "Batches counted", registry=self._registry)
        self._accepted = Counter("shufflesum_reports_accepted", "Reports counted", registry=self._registry)
        self._blank = Counter("shufflesum_reports_blank", "Blank reports counted", registry=self._registry)
        self._rejected = Counter("shufflesum_reports_rejected", "Reports rejected", registry=self._registry)

    def app(self) -> Starlette:
        """The web application."""
        return create_app(
            [
                Route("/tasks/{task_id}/batches/{batch_id}", self._post_batch, methods=["POST"]),
                Route("/tasks/{task_id}/estimate", self._get_estimate),
            ],
            registry=self._registry,
            ready=self._ready,
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        # Now, so that the first batch does not wait for counting to be compiled.
        nothing = Reports(self._task.plan.id, np.empty(0, dtype=np.uint32))
        await asyncio.to_thread(Counts(self._task.plan).add, nothing)
        try:
            yield
        finally:
            await asyncio.to_thread(self._opener.close)

    async def _ready(self) -> bool:
        try:
            await asyncio.to_thread(self._store.check)
        except StoreError:
            return False
        return True

    async def _post_batch(self, request: Request) -> Response:
        check_bearer(request, self._secret)
        self._check_task(request)
        batch_id = request.path_params["batch_id"]
        if not _BATCH_ID.fullmatch(batch_id):
            raise Refusal("bad-request", "a batch id is 32 lower-case hexadecimal digits")
        round_number, users = _number(request, "round"), _number(request, "users")
        self._check_batch(round_number, users)
        size = users * self._task.plan.reports * SEALED_BYTES
        announced = request.headers.get("content-length")
        if announced is not None and announced != str(size):
            raise _wrong_length(announced[:20], size)
        try:
            async with self._taking:
                return await self._take(request, batch_id, round_number, users, size)
        except WrongBatchError as error:
            raise Refusal("wrong-batch", str(error)) from error
        except StoreError as error:
            log.warning("store unavailable", role="analyzer")
            raise Refusal("store-unavailable", str(error), headers={"Retry-After": "1"}) from error

    async def _take(self, request: Request, batch_id: str, round_number: int, users: int, size: int) -> Response:
        if await asyncio.to_thread(self._store.is_counted, batch_id, round_number):
            async for _ in _pieces(request, size):  # read to its end, so that the sender gets to hear the answer
                pass
            return JSONResponse({"batch": batch_id, "answer": "repeated"})
        counts = await self._count(request, round_number, size)
        counted = CountedBatch(round_number, batch_id, users, counts.blanks, counts.rejected, counts.table)
        if await asyncio.to_thread(self._store.record, counted):
            self._batches.inc()
            self._accepted.inc(counts.accepted)
            self._blank.inc(counts.blanks)
            self._rejected.inc(counts.rejected)
            log.info("batch counted", round=round_number, users=users, rejected=counts.rejected)
        return JSONResponse({"batch": batch_id, "answer": "counted"}, status_code=201)

    async def _count(self, request: Request, round_number: int, size: int) -> Counts:
        """The table of a batch that is complete; pieces are opened while the next ones arrive."""
        counts = Counts(self._task.plan, round_number)
        opening: deque[asyncio.Future[tuple[Reports, int]]] = deque()

        async def count_oldest() -> None:
            reports, unreadable = await opening.popleft()
            counts.add(reports)
            counts.rejected += unreadable

        try:
            async for piece in _pieces(request, size):
                if len(opening) == _IN_FLIGHT:
                    await count_oldest()
                work = asyncio.to_thread(self._task.open_reports, piece, round_number, self._opener)
                opening.append(asyncio.ensure_future(work))
            while opening:
                await count_oldest()
        finally:
            await asyncio.gather(*opening, return_exceptions=True)  # of a batch that was broken off
        return counts

    async def _get_estimate(self, request: Request) -> Response:
        self._check_task(request)
        only = _number(request, "round") if "round" in request.query_params else None
        try:
            # In a thread as a whole, and once for all who ask: a large answer takes a while to compute and to write.
            async with self._answering:
                answer = await asyncio.to_thread(self._answer, only)
        except StoreError as error:
            raise Refusal("store-unavailable", str(error), headers={"Retry-After": "1"}) from error
        return Response(answer, media_type="application/json")

    def _answer(self, only: int | None) -> bytes:
        """The estimates of all rounds, or of one, as JSON; a round's never change once it is there."""
        batches = self._store.batch_ids()
        if self._last_answer is None or self._last_answer[0] != batches:
            self._last_answer = batches, self._estimates(), {}
        _, document, written = self._last_answer
        if only not in written:
            rounds = [found for found in document["rounds"] if only in (None, found["round"])]
            if not rounds:
                raise Refusal("no-estimate-yet", f"the shuffler has released no batch of round {only} yet")
            written[only] = bytes(JSONResponse(document | {"rounds": rounds}).body)
        return written[only]

    def _estimates(self) -> dict[str, Any]:
        counted = self._store.counted()
        if not counted:
            raise Refusal(
                "no-estimate-yet",
                f"the shuffler has released no batch of at least {self._task.smallest_batch} users yet",
            )
        for batch in counted:
            if not batch.table.any():
                raise Refusal(
                    "wrong-key",
                    f"no report of round {batch.round_number} could be opened: its users sealed them to another key, "
                    "for another task or another round; see which task file they were given",
                )
        estimates = [self._released(batch) for batch in counted]
        holds = all(estimate.guarantee_holds for estimate in estimates)
        rounds = [self._document(*pair, holds) for pair in zip(counted, estimates, strict=True)]
        return {"task": self._task.id, "rounds": rounds}

    def _released(self, batch: CountedBatch) -> Estimate:
        counts = Counts(self._task.plan, batch.round_number)
        counts.table, counts.blanks, counts.rejected = batch.table, batch.blanks, batch.rejected
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a coordinate nobody reported is null in the answer
                return release(counts, without_guarantee=self._without_guarantee)
        except ReportsError as error:
            raise Refusal(
                "batch-too-small" if error.problem == "too-few-users" else "guarantee-broken",
                f"round {batch.round_number}: {error}",
            ) from error

    def _document(self, batch: CountedBatch, estimate: Estimate, holds: bool) -> dict[str, Any]:
        plan = self._task.plan
        return {
            "round": batch.round_number,
            "uploads": batch.users,
            **round_to_json(estimate, _LEVEL),
            "guarantee": {
                "epsilon": plan.epsilon if math.isfinite(plan.epsilon) else None,
                "delta": plan.delta,
                "unit": "one user, in all rounds of the task",
                "holds": holds,
            },
        }

    def _check_task(self, request: Request) -> None:
        if request.path_params["task_id"] != self._task.id:
            raise Refusal("wrong-task", f"this analyzer serves task {self._task.id}; use the task file it was given")

    def _check_batch(self, round_number: int, users: int) -> None:
        try:
            self._task.check_round(round_number)
        except UploadError as error:
            raise Refusal(error.problem, str(error)) from error
        if users < self._task.smallest_batch:
            raise Refusal(
                "batch-too-small",
                f"a batch of {users} users; this task releases nothing below {self._task.smallest_batch}",
            )


async def _pieces(request: Request, size: int) -> AsyncIterator[bytes]:
    """A body of exactly `size` bytes in pieces of whole reports; no more than a piece is held."""
    stream = request.stream()
    held, seen = bytearray(), 0
    while True:
        try:
            async with asyncio.timeout(_CHUNK_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise Refusal("too-slow", f"nothing came for {_CHUNK_SECONDS:.0f} seconds; send the batch again") from None
        if chunk is None:
            break
        held += chunk
        seen += len(chunk)
        if seen > size:
            raise _wrong_length(f"more than {size}", size)
        while len(held) >= _OPEN_AT_ONCE:
            yield bytes(held[:_OPEN_AT_ONCE])
            del held[:_OPEN_AT_ONCE]
    if seen != size:
        raise _wrong_length(str(seen), size)
    if held:
        yield bytes(held)


def _wrong_length(given: str, size: int) -> Refusal:
    return Refusal("wrong-length", f"a batch of {given} bytes; so many users' reports have {size}")


def _number(request: Request, name: str) -> int:
    given = request.query_params.getlist(name)
    if len(given) != 1 or not re.fullmatch(r"[0-9]{1,12}", given[0]):
        raise Refusal("bad-request", f"?{name}= must be given once, as a whole number")
    return int(given[0])
