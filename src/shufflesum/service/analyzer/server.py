"""The analyzer as a server: takes whole batches from its shuffler, keeps tables of counts, answers with estimates.

Reports are opened on all cores while a batch streams in and are never kept: only their counts are, and those only once
the batch is complete. Before that nothing of it can be seen, here or in the metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.keys import RoundKeys
from shufflesum.noise_keys import NoiseKey
from shufflesum.noisy_batch import BatchCounter, BatchHeader
from shufflesum.pages import asset
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.service.analyzer import interface
from shufflesum.service.analyzer.page import DOWNLOADS, AnalystPage, Estimates, ShufflerProgress
from shufflesum.service.http import app as http
from shufflesum.service.http.messages import MOST_CELLS_ANSWERED, BatchAnswer, NoiseKeyAnswer, Refusal
from shufflesum.service.http.openapi import StatusGauges, routes_of
from shufflesum.service.http.server import CONNECTION
from shufflesum.service.logs import log
from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.tables import BatchStore, CountedBatch, WrongBatchError
from shufflesum.wire import Task, UploadError

_T = TypeVar("_T")

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
# A picture or a saved page that is opened by itself may do nothing but look as it does.
_FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"


class _Pages:
    """The handlers of a task's page (`PAGES`)."""

    def __init__(self, task: Task, estimates: Estimates, clock: Clock) -> None:
        self._task = task
        self._page = AnalystPage(task, estimates)
        self._progress = ShufflerProgress(task, clock)
        self._working = asyncio.Semaphore(1)  # pages wait for each other, so that readers never take all threads
        self._clock = clock
        self._assets = {path: asset(name).encode() for path, (name, _) in interface.ASSETS.items()}

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        async with self._working:
            with _asking_store():
                return await asyncio.to_thread(work)

    def _check_task(self, request: Request) -> None:
        if request.path_params.get("task_id", self._task.id) != self._task.id:
            raise Refusal("wrong-task", f"this analyzer serves task {self._task.id[:12]}; see its page at /")

    async def get_page(self, request: Request) -> Response:
        self._check_task(request)
        newest = _round(request.query_params.get("round"))
        known = await self._progress.latest()
        root = "../" if "task_id" in request.path_params else ""
        text = await self._in_thread(lambda: self._page.live(self._clock.now(), known, root=root, newest=newest))
        return _answer(request, text.encode(), "text/html; charset=utf-8")

    get_task_page = get_page

    async def save_page(self, request: Request) -> Response:
        self._check_task(request)
        text = await self._in_thread(lambda: self._page.alone(self._clock.now()))
        return _answer(request, text.encode(), "text/html; charset=utf-8", f"shufflesum-{self._task.id[:12]}.html")

    async def save_round(self, request: Request) -> Response:
        self._check_task(request)
        number, kind = _round(request.path_params["round"]), request.path_params["kind"]
        if number is None or kind not in DOWNLOADS:
            raise Refusal("not-found", f"a round is to be had as {', '.join(DOWNLOADS)}")
        content = await self._in_thread(lambda: self._page.file(number, kind))
        return _answer(request, content, DOWNLOADS[kind], f"shufflesum-{self._task.id[:12]}-round-{number}.{kind}")

    async def _send_asset(self, request: Request) -> Response:
        path = request.scope["path"]
        return _answer(request, self._assets[path], interface.ASSETS[path][1])

    get_style = get_script = get_icon = _send_asset


@contextlib.contextmanager
def _asking_store() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        raise _unavailable(error) from error


def _unavailable(error: StoreError) -> Refusal:
    return Refusal("store-unavailable", str(error), headers={"Retry-After": "1"})


def _answer(request: Request, content: bytes, media_type: str, filename: str | None = None) -> Response:
    headers = _HEADERS | {"ETag": f'"{hashlib.sha256(content).hexdigest()[:32]}"'}  # tells two versions apart
    if filename is not None:
        headers |= {
            "Content-Disposition": f'attachment; filename="{filename}"',
            "Content-Security-Policy": _FILE_POLICY,
        }
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


def _round(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= 12):
        raise Refusal("bad-request", "a round is a whole number")
    return int(given)


_OPEN_AT_ONCE = 16 * 1024 * SEALED_BYTES
_IN_FLIGHT = 2  # so that no core waits for the last of a piece
_CHUNK_SECONDS = 60.0
_NO_LIMITS = http.Limits()
_BATCH_ID = re.compile(r"[0-9a-f]{32}")


def check_serving(
    task: Task,
    opener: Opener,
    secret: str | http.SecretFile | None,
    peer: str | None,
    noise_key: NoiseKey | None = None,
) -> None:
    """Refuse what no analyzer can serve; it needs no store, and spends nothing."""
    if task.plan.noise_by == "servers" and noise_key is None:
        raise ParameterError(
            "missing-argument",
            "the analyzer draws noise under this task's plan; give its noise key (--noise-key), from shufflesum keygen "
            "--noise",
        )
    if task.plan.positions is not None and not isinstance(opener.keys, RoundKeys):
        raise ParameterError(
            "key-mismatch",
            "users send the truth under this task's plan, so each round needs a key of its own, destroyed after it; "
            "give the file of shufflesum keygen --rounds (--key)",
        )
    if secret is None and peer is None:
        raise ParameterError(
            "missing-argument", "the analyzer must know its shuffler by something; give secret_file or peer_ca"
        )
    first = opener.keys.first_round if isinstance(opener.keys, RoundKeys) else 1
    for number in range(first, task.rounds + 1):
        task.check_opener(opener, number)
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


class AnalyzerServer:
    """One task's analyzer, with a page for people.

    Batches are taken from whoever has `secret` and, where `peer` is given, shows a certificate with that name; at least
    one of the two is needed. `noise_key` is for plans under which servers draw the noise. `without_guarantee` answers
    with estimates even where the guarantee no longer holds.
    """

    def __init__(
        self,
        task: Task,
        opener: Opener,
        store: BatchStore,
        *,
        secret: str | http.SecretFile | None = None,
        peer: str | None = None,
        noise_key: NoiseKey | None = None,
        without_guarantee: bool = False,
        page: bool = True,
        limits: http.Limits = _NO_LIMITS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        task.verify()
        check_serving(task, opener, secret, peer, noise_key)
        self._task = task
        self._noise_key = noise_key
        self._opener = opener
        self._store = store
        self._secret = secret
        self._limits = http.AddressLimits(limits, clock)
        self._peer = peer
        self._store_ready = http.StoreReady(store.check, clock)
        self._estimates = Estimates(task, store, without_guarantee=without_guarantee)
        self._answering = asyncio.Lock()
        self._pages = _Pages(task, self._estimates, clock) if page else None
        self._taking = asyncio.Lock()  # one batch at a time has all cores, and a repetition finds it done
        self._registry = CollectorRegistry()
        self._batches = Counter("shufflesum_batches", "Batches counted", registry=self._registry)
        self._accepted = Counter("shufflesum_reports_accepted", "Reports counted", registry=self._registry)
        self._blank = Counter("shufflesum_reports_blank", "Blank reports counted", registry=self._registry)
        self._rejected = Counter("shufflesum_reports_rejected", "Reports rejected", registry=self._registry)
        self._gauges = StatusGauges(self._registry, interface.AnalyzerStatus, self._status)

    def app(self) -> Starlette:
        """The web application."""
        return http.create_app(
            [*routes_of(interface.ENDPOINTS, self), *(routes_of(interface.PAGES, self._pages) if self._pages else [])],
            registry=self._registry,
            ready=self._store_ready,
            interface=interface.analyzer_interface(self._task, page=self._pages is not None),
            lifespan=self._lifespan,
            limits=self._limits,
            before_metrics=lambda _: self._gauges.refresh(),
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        # Now, so that the first batch does not wait for counting to be compiled.
        if self._task.plan.positions is None:
            nothing = Reports(self._task.plan.id, np.empty(0, dtype=np.uint32))
            await asyncio.to_thread(Counts(self._task.plan).add, nothing)
        with contextlib.suppress(StoreError):  # a key that outlived its round, because the server was killed in between
            await asyncio.to_thread(self._destroy_keys)
        try:
            yield
        finally:
            await asyncio.to_thread(self._opener.close)

    async def take_batch(self, request: Request) -> Response:
        """Count a batch of the shuffler's, once."""
        self._check_sender(request)
        self._check_task(request)
        batch_id = request.path_params["batch_id"]
        if not _BATCH_ID.fullmatch(batch_id):
            raise Refusal("bad-request", "a batch id is 32 lower-case hexadecimal digits")
        round_number, users = _number(request, "round"), _number(request, "users")
        self._check_batch(round_number, users)
        announced = request.headers.get("content-length")
        try:
            if self._task.plan.positions is not None:
                digest = _digest(request)
                async with self._taking:
                    return await self._take_noisy(request, batch_id, round_number, users, digest)
            size = users * self._task.plan.reports * SEALED_BYTES
            if announced is not None and announced != str(size):
                raise _wrong_length(announced[:20], size)
            async with self._taking:
                return await self._take(request, batch_id, round_number, users, size)
        except WrongBatchError as error:
            raise Refusal("wrong-batch", str(error)) from error
        except StoreError as error:
            log.warning("store unavailable", role="analyzer")
            raise _unavailable(error) from error

    async def _take(self, request: Request, batch_id: str, round_number: int, users: int, size: int) -> Response:
        if await asyncio.to_thread(self._store.is_counted, batch_id, round_number):
            async for _ in _pieces(request, size):  # read to its end, so that the sender gets to hear the answer
                pass
            return http.json_response(BatchAnswer(batch_id, "repeated"))
        counts, unreadable = await self._count(request, round_number, size)
        counted = CountedBatch(round_number, batch_id, users, counts.blanks, counts.rejected, unreadable, counts.table)
        if await asyncio.to_thread(self._store.record, counted):
            self._batches.inc()
            self._accepted.inc(counts.accepted)
            self._blank.inc(counts.blanks)
            self._rejected.inc(counts.rejected)
            log.info("batch counted", round=round_number, users=users, rejected=counts.rejected)
        return http.json_response(BatchAnswer(batch_id, "counted"), 201)

    async def _take_noisy(
        self, request: Request, batch_id: str, round_number: int, users: int, digest: bytes
    ) -> Response:
        """Count a batch with the shuffler's noise in it. Nothing that is answered, kept or logged depends on contents.

        Not even how many reports were blank, or could not be opened.
        """
        if await asyncio.to_thread(self._store.is_counted, batch_id, round_number):
            async for _ in request.stream():
                pass
            await asyncio.to_thread(self._destroy_keys)
            return http.json_response(BatchAnswer(batch_id, "repeated"))
        body = _Body(request)
        try:
            header = BatchHeader.decode(await body.read(BatchHeader.bytes_of(self._task)), self._task)
            if (header.round_number, header.users) != (round_number, users):
                raise Refusal("wrong-batch", "the batch is of another round, or of other users, than its address says")
            counter = await asyncio.to_thread(
                BatchCounter, self._task, header, digest, self._opener, self._noise_key
            )  # the draw is fixed now, and no report was opened
            counts = await self._count_noisy(body, header, counter)
        except ReportsError as error:
            raise Refusal("wrong-batch", str(error)) from error
        counted = CountedBatch(round_number, batch_id, users, 0, 0, 0, counts.table)
        if await asyncio.to_thread(self._store.record, counted):
            self._batches.inc()
            log.info("batch counted", round=round_number, users=users)
        await asyncio.to_thread(self._destroy_keys)
        return http.json_response(BatchAnswer(batch_id, "counted"), 201)

    async def _count_noisy(self, body: _Body, header: BatchHeader, counter: BatchCounter) -> Counts:
        opening: deque[asyncio.Future[Reports]] = deque()
        left = header.reports * SEALED_BYTES
        try:
            while left:
                piece = await body.read(min(left, _OPEN_AT_ONCE))
                left -= len(piece)
                if len(opening) == _IN_FLIGHT:
                    counter.add(await opening.popleft())
                opening.append(asyncio.ensure_future(asyncio.to_thread(counter.take(piece))))
            await body.end()
            while opening:
                counter.add(await opening.popleft())
        finally:
            await asyncio.gather(*opening, return_exceptions=True)  # of a batch that was broken off
        return await asyncio.to_thread(counter.counts)

    def _destroy_keys(self) -> None:
        """Destroy the keys of rounds whose tables are kept: nobody can open their reports any more."""
        if self._task.plan.positions is not None and isinstance(self._opener.keys, RoundKeys):
            for counted in self._store.counted():
                self._opener.keys.destroy(counted.round_number)

    async def get_noise_key(self, request: Request) -> Response:
        """Answer the shuffler with the noise key's fingerprint, so that it hands a set to one analyzer only."""
        self._check_sender(request)
        self._check_task(request)
        if self._noise_key is None:
            raise Refusal("not-found", "this analyzer draws no noise")
        return http.json_response(NoiseKeyAnswer(self._noise_key.fingerprint))

    async def _count(self, request: Request, round_number: int, size: int) -> tuple[Counts, int]:
        """The table of a batch that is complete, and how many reports could not be opened.

        Pieces are opened while the next ones arrive.
        """
        counts, unreadable = Counts(self._task.plan, round_number), 0
        opening: deque[asyncio.Future[tuple[Reports, int]]] = deque()

        async def count_oldest() -> None:
            nonlocal unreadable
            reports, rejected = await opening.popleft()
            counts.add(reports)
            counts.rejected += rejected
            unreadable += rejected

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
        return counts, unreadable

    async def get_estimate(self, request: Request) -> Response:
        """Answer with the estimates of all rounds, or of one."""
        self._check_task(request)
        only = _number(request, "round") if "round" in request.query_params else None
        table = request.query_params.getlist("table")
        if table not in ([], ["0"], ["1"]):
            raise Refusal("bad-request", "?table= must be given once, as 1 for the tables of counts, or 0")
        # In a thread as a whole, and once for all who ask: a large answer takes a while to compute and to write.
        async with self._answering:
            with _asking_store():
                answer = await asyncio.to_thread(self._estimates.answer, only, table=table == ["1"])
        return Response(answer, media_type="application/json")

    async def get_status(self, request: Request) -> Response:
        """Answer with figures."""
        self._check_task(request)
        with _asking_store():
            return http.json_response(await asyncio.to_thread(self._status))

    def _status(self) -> interface.AnalyzerStatus:
        return interface.analyzer_status(self._task, self._store)

    def _check_sender(self, request: Request) -> None:
        """Refuse a batch of anybody but the shuffler; known by secret and certificate, it needs both."""
        if self._peer is not None and self._peer.lower() not in request.scope["state"][CONNECTION].peer_names:
            raise Refusal(
                "wrong-certificate",
                "show the shuffler's certificate (serve shuffler --client-cert), signed by the authority that the "
                "analyzer was given (--peer-ca), with the name it was given (--peer-name)",
            )
        if self._secret is not None:
            http.check_bearer(
                request,
                http.valid_secrets(self._secret),
                "give the shared secret as 'Authorization: Bearer ...'; both servers need the same --secret-file",
            )

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


class _Body:
    """A body of which so many bytes are read at a time."""

    def __init__(self, request: Request) -> None:
        self._stream = request.stream()
        self._held = bytearray()

    async def read(self, count: int) -> bytes:
        """Exactly so many bytes."""
        while len(self._held) < count:
            chunk = await _next_chunk(self._stream)
            if chunk is None:
                raise Refusal("wrong-length", "the batch is shorter than its header says")
            self._held += chunk
        found = bytes(self._held[:count])
        del self._held[:count]
        return found

    async def end(self) -> None:
        """Refuse more."""
        while not self._held and (chunk := await _next_chunk(self._stream)) is not None:
            self._held += chunk
        if self._held:
            raise Refusal("wrong-length", "the batch is longer than its header says")


async def _next_chunk(stream: AsyncIterator[bytes]) -> bytes | None:
    """What comes next; None at the end."""
    try:
        async with asyncio.timeout(_CHUNK_SECONDS):
            return await anext(stream, None)
    except TimeoutError:
        raise Refusal("too-slow", f"nothing came for {_CHUNK_SECONDS:.0f} seconds; send the batch again") from None


async def _pieces(request: Request, size: int) -> AsyncIterator[bytes]:
    """A body of exactly `size` bytes in pieces of whole reports; no more than a piece is held."""
    stream = request.stream()
    held, seen = bytearray(), 0
    while True:
        chunk = await _next_chunk(stream)
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


def _digest(request: Request) -> bytes:
    given = request.query_params.getlist("digest")
    if len(given) != 1 or not re.fullmatch(r"[0-9a-f]{64}", given[0]):
        raise Refusal("bad-request", "?digest= must be given once, the SHA-256 of the batch in hexadecimal")
    return bytes.fromhex(given[0])


def _number(request: Request, name: str) -> int:
    given = request.query_params.getlist(name)
    if len(given) != 1 or not re.fullmatch(r"[0-9]{1,12}", given[0]):
        raise Refusal("bad-request", f"?{name}= must be given once, as a whole number")
    return int(given[0])
