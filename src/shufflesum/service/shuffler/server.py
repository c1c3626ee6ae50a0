"""The shuffler as a server: takes uploads that it cannot read, and hands whole batches, permuted, to the analyzer.

Uploads on their way into the store wait together for one durable write.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from shufflesum._machine import SYSTEM_CLOCK, Clock
from shufflesum.errors import ParameterError
from shufflesum.noise_keys import NoiseKey
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.http import app as http
from shufflesum.service.http.messages import OpenRound, Refusal
from shufflesum.service.http.openapi import StatusGauges, routes_of
from shufflesum.service.http.server import ServerOptions, background, run_server
from shufflesum.service.logs import configure_logging, log
from shufflesum.service.shuffler import interface
from shufflesum.service.shuffler.release import AnalyzerAddress, Releaser
from shufflesum.service.shuffler.tokens import Tokens
from shufflesum.service.stores import store as stores
from shufflesum.service.stores.database import StoreError, WrongStoreError
from shufflesum.service.stores.store import ArrivingUpload, UploadStatus
from shufflesum.wire import Task, Upload, UploadError

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

    def __init__(
        self, store: stores.Store, *, upload_bytes: int, max_pending: int, taken: Callable[[int], None]
    ) -> None:
        self._store = store
        self._group = max(1, min(_GROUP, _GROUP_BYTES // upload_bytes))
        self._most_held = max(1, _PENDING_BYTES // upload_bytes)
        self._most_pending = min(max_pending, self._most_held)
        self._taken = taken
        self._waiting: list[tuple[ArrivingUpload, asyncio.Future[UploadStatus]]] = []
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

    async def take(self, upload: ArrivingUpload) -> UploadStatus:
        """Take an upload that was read in its `room`; returns when it is durable, or refuses it for a moment."""
        self._check_room(0)
        future: asyncio.Future[UploadStatus] = asyncio.get_running_loop().create_future()
        self._waiting.append((upload, future))
        self._pending += 1
        self._arrived.set()
        try:
            return await future
        except StoreError:
            raise Refusal(
                "store-unavailable", "the upload was not acknowledged; send the same upload again", headers=_LATER
            ) from None

    def _check_room(self, expected: int) -> None:
        if self._pending >= self._most_pending or self._pending + expected >= self._most_held:
            raise Refusal(
                "overloaded", "too many uploads wait to be stored; send the same upload again", headers=_LATER
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
            if taken := answers.count(UploadStatus.ACCEPTED):
                self._taken(taken)

    async def _gather(self) -> None:
        """Let those in who are at the door: a thread that writes takes turns with this one, which slows both."""
        end = asyncio.get_running_loop().time() + _GATHER_SECONDS
        seen = 0
        while seen < len(self._waiting) < self._group and asyncio.get_running_loop().time() < end:
            seen = len(self._waiting)
            await asyncio.sleep(0)  # a request is read in one turn of the loop
            await asyncio.sleep(0)  # and handled in the next

    def _fail(self, group: list[tuple[ArrivingUpload, asyncio.Future[UploadStatus]]], error: BaseException) -> None:
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


_LATER = {"Retry-After": "2"}


@contextlib.contextmanager
def _asking_store() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise Refusal("store-unavailable", "ask again in a moment", headers=_LATER) from None


_FINEST_STEP, _STEPS = 10, 20  # of the number of users that is shown

_REFUSALS = {
    UploadStatus.REPEATED: "this upload counts already, once; nothing is to be done",
    UploadStatus.ROUND_CLOSED: "round {round} is closed; take part in the open round, if there is one",
    UploadStatus.ROUND_NOT_OPEN: "round {round} is not open yet; send the same upload once it is",
    UploadStatus.TOKEN_SPENT: "this token was used in round {round}; a token stands for one user",
    UploadStatus.DUPLICATE: "a report of this upload counts already in round {round}; seal every report afresh",
}


@dataclass(frozen=True, slots=True)
class ShufflerOptions:
    """How a shuffler runs: its analyzer, its tokens if it needs any, and when it releases.

    `noise_key` is for plans under which servers draw the noise. Whoever has `operator_secret` can ask for a release
    below `release_at`, for the status and the metrics; without one nobody can ask for the first two, and everybody for
    the last.

    `release_at` is a number of users, no fewer than the task's smallest batch, by default those it was planned for.
    `max_pending` uploads, and 64 MB, may wait to be written before others are turned away for a moment. `show_progress`
    tells everybody about how many users the open round has. Web pages of `allowed_origins` may load the task, ask for
    the round and upload.
    """

    analyzer: AnalyzerAddress
    operator_secret: str | http.SecretFile | None = None
    noise_key: NoiseKey | None = None
    tokens: Tokens | None = None
    release_at: int | None = None
    max_pending: int = 2000
    show_progress: bool = False
    allowed_origins: tuple[str, ...] = ()
    limits: http.Limits = field(default_factory=http.Limits)

    def check(self, task: Task) -> None:
        """Refuse what contradicts the task."""
        if task.plan.positions is not None and self.noise_key is None:
            raise ParameterError(
                "missing-argument",
                "the shuffler draws noise under this task's plan; give its noise key (--noise-key), from shufflesum "
                "keygen --noise",
            )
        if self.release_at is not None and self.release_at < task.smallest_batch:
            raise ParameterError(
                "out-of-range",
                f"release_at is {self.release_at}; this task releases nothing below {task.smallest_batch} users",
            )
        if self.max_pending < 1:
            raise ParameterError(
                "out-of-range", f"max_pending is {self.max_pending}; at least one upload must be able to wait"
            )
        for origin in self.allowed_origins:
            http.check_origin(origin)
        if set(http.valid_secrets(self.operator_secret)) & set(http.valid_secrets(self.analyzer.secret)):
            raise ParameterError(
                "conflicting-arguments",
                "the operator's secret is the one that the servers share, and the analyzer could ask for releases with "
                "it; make another (operator_secret_file, secret_file)",
            )
        self.analyzer.check()


class _Shuffler:
    """The handlers of one task."""

    def __init__(
        self, task: Task, store: stores.Store, options: ShufflerOptions, registry: CollectorRegistry, clock: Clock
    ) -> None:
        task.verify()
        self._task = task
        self._task_json = task.to_json().encode()
        self._store = store
        self._options = options
        self._clock = clock
        self._stopping = False
        self.limits = http.AddressLimits(options.limits, clock)
        self._store_ready = http.StoreReady(store.check, clock)
        self._uploads = Counter("shufflesum_uploads", "Uploads taken", registry=registry)
        self._releases = Counter("shufflesum_batches_released", "Batches the analyzer has taken", registry=registry)
        self._users = Counter("shufflesum_users_released", "Users in released batches", registry=registry)
        self._gauges = StatusGauges(registry, interface.ShufflerStatus, self._status)
        failures = Counter("shufflesum_release_failures", "Attempts to release that failed", registry=registry)
        self.releaser = Releaser(
            store,
            task,
            options.analyzer,
            release_at=options.release_at,
            released=self._count_release,
            failed=failures.inc,
            noise_key=options.noise_key,
            clock=clock,
        )
        self.queue = UploadQueue(
            store, upload_bytes=task.upload_bytes, max_pending=options.max_pending, taken=self._count_uploads
        )

    def _count_uploads(self, taken: int) -> None:
        self._uploads.inc(taken)
        self.releaser.wake()

    def _count_release(self, batch: stores.Batch) -> None:
        self._releases.inc()
        self._users.inc(batch.users)

    def _check_task(self, request: Request) -> None:
        if request.path_params["task_id"] != self._task.id:
            raise Refusal("wrong-task", f"this server runs task {self._task.id[:12]}; use its task file")

    async def take(self, scope: Scope, receive: Receive) -> int:
        if self._task.expired_at(self._clock.now()):
            raise Refusal("expired", f"this task ended on {self._task.expires:%Y-%m-%d %H:%M:%S} UTC; use a newer one")
        self.limits.check_upload(scope)
        token = None
        if self._options.tokens is not None:
            token = self._options.tokens.check(http.header(scope, b"authorization"))
        with self.queue.room():
            # One report more is read, to say what is wrong with it: the length.
            body = await http.read_body(scope, receive, self._task.upload_bytes + SEALED_BYTES)
        try:
            upload = Upload.decode(body, self._task)
        except UploadError as error:
            raise Refusal(error.problem, str(error)) from None
        answer = await self.queue.take(ArrivingUpload(upload.round_number, upload.upload_id, upload.sealed, token))
        if answer in _REFUSALS:
            raise Refusal(answer.value, _REFUSALS[answer].format(round=upload.round_number))
        return 201

    async def upload(self, request: Request) -> Response:
        """Refuse an upload whose path is not exactly that of this task's: those go to `take`."""
        self._check_task(request)
        raise Refusal("bad-request", "write the path of an upload as in the task's address")

    async def get_task(self, request: Request) -> Response:
        self._check_task(request)
        return Response(self._task_json, media_type="application/json")

    async def get_round(self, request: Request) -> Response:
        self._check_task(request)
        with _asking_store():
            rounds = await asyncio.to_thread(self._store.rounds)
        # In steps: a count to the single user would tell whoever watches it the moment of each upload.
        step = max(_FINEST_STEP, -(-self._task.smallest_batch // _STEPS))
        shown = rounds.users // step * step if self._options.show_progress else None
        return http.json_response(OpenRound(self._task.id, rounds.open_round, self._task.rounds, shown))

    def _status(self) -> interface.ShufflerStatus:
        return interface.shuffler_status(self._task, self._store, self._options.release_at)

    async def get_status(self, request: Request) -> Response:
        self._check_task(request)
        self._check_operator(request)
        with _asking_store():
            return http.json_response(await asyncio.to_thread(self._status))

    async def before_metrics(self, request: Request) -> None:
        """Where there is an operator's secret, figures are for whoever has it."""
        if self._options.operator_secret is not None:
            self._check_operator(request)
        await self._gauges.refresh()

    def _check_operator(self, request: Request) -> None:
        options = self._options
        # A secret that the analyzer knows too is not the operator's, whatever file it was written to.
        known_to_analyzer = http.valid_secrets(options.analyzer.secret)
        operators = [
            secret for secret in http.valid_secrets(options.operator_secret) if secret not in known_to_analyzer
        ]
        http.check_bearer(
            request,
            operators,
            "give the operator's secret as 'Authorization: Bearer ...'; the one that both servers share is not it "
            "(serve shuffler --operator-secret-file; without it nobody can ask)",
        )

    async def release(self, request: Request) -> Response:
        self._check_task(request)
        self._check_operator(request)
        with _asking_store():
            batch = await self.releaser.close_now() or await asyncio.to_thread(self._store.pending)
            rounds = await asyncio.to_thread(self._store.rounds)
        if batch is None and rounds.open_round is None:
            raise Refusal("round-closed", "no round of this task is open any more")
        if batch is None:
            raise Refusal(
                "batch-too-small", f"the open round has fewer than {self._task.smallest_batch} users; wait for more"
            )
        return http.json_response(interface.Closed(batch.round_number, batch.users), 202)

    async def ready(self) -> bool:
        return not self._stopping and await self._store_ready()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with background(self.queue.run, self.releaser.run):
            yield
            self._stopping = True
        await asyncio.to_thread(self.queue.close)
        await asyncio.to_thread(self._store.close)


def shuffler_app(task: Task, store: stores.Store, options: ShufflerOptions, clock: Clock = SYSTEM_CLOCK) -> Starlette:
    """The shuffler of one task as an ASGI application; it closes the store when it stops."""
    options.check(task)
    registry = CollectorRegistry()
    shuffler = _Shuffler(task, store, options, registry, clock)
    pages = {each.path.format(task_id=task.id): each.method for each in interface.FOR_PAGES}
    return http.create_app(
        routes_of(interface.ENDPOINTS, shuffler),
        registry=registry,
        ready=shuffler.ready,
        interface=interface.shuffler_interface(task),
        before_metrics=shuffler.before_metrics,
        lifespan=shuffler.lifespan,
        limits=shuffler.limits,
        exact={(interface.UPLOADS.method, interface.UPLOADS.path.format(task_id=task.id)): shuffler.take},
        origins=http.Origins(options.allowed_origins, pages),
    )


def run_shuffler(
    task: Task,
    store: str,
    options: ShufflerOptions,
    server: ServerOptions,
    clock: Clock = SYSTEM_CLOCK,
    begin: Callable[[str], None] | None = None,
) -> None:
    """Serve a task until SIGTERM; `store` is sqlite:PATH or postgresql://..., `begin` as for `open_store`.

    Whoever calls it has checked the options, before a store is made.
    """
    configure_logging()
    opened = stores.open_store(store, task, begin)
    try:
        opened.rounds()
    except WrongStoreError:
        raise
    except StoreError as error:
        log.warning("store unavailable, will be tried again", error=str(error))
    app = shuffler_app(task, opened, options, clock)
    tokens = {} if options.tokens is None else {"tokens": len(options.tokens)}
    log.info("shuffler starts", task=task.id, smallest_batch=task.smallest_batch, rounds=task.rounds, **tokens)
    if options.tokens is not None and len(options.tokens) < task.smallest_batch:
        log.warning("fewer tokens than the smallest batch, so that no round can fill; make more: shufflesum tokens")
    if task.expired_at(clock.now()):
        log.warning("task has expired already, uploads are refused")
    run_server(app, server, role="shuffler")
