from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum import shuffling
from shufflesum.errors import ReportsError
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.shuffler import release
from shufflesum.service.shuffler.release import AnalyzerAddress, Releaser, permuted
from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.sqlite import SqliteDatabase
from shufflesum.service.stores.store import ArrivingUpload, Batch, Rounds, Store, UploadStatus, open_store
from shufflesum.shuffling import SMALLEST_MEMORY, Layout
from shufflesum.wire import Task

ORDERS = {order: place for place, order in enumerate(itertools.permutations(range(4)))}


def reports(count: int) -> bytes:
    rows = np.zeros((count, SEALED_BYTES), dtype=np.uint8)
    rows[:, :4] = np.arange(count, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return rows.tobytes()


def numbers(sealed: bytes) -> list[int]:
    rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)
    return [int(number) for number in np.ascontiguousarray(rows[:, :4]).view(">u4").ravel()]


def chunked(sealed: bytes, sizes: list[int]) -> Iterator[bytes]:
    start = 0
    for size in sizes:
        yield sealed[start * SEALED_BYTES : (start + size) * SEALED_BYTES]
        start += size


@pytest.mark.parametrize("rows", [0, 1, 1000, 1_100_000])
def test_every_report_comes_once_in_memory_or_through_a_file(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "_MEMORY", SMALLEST_MEMORY)  # the most of them do not fit
    assert Layout.plan(rows, SEALED_BYTES, memory=SMALLEST_MEMORY, workers=1).in_memory == (rows < 10**6)
    sent = permuted(chunked(reports(rows), [rows // 3, 0, rows - rows // 3]), rows, tmp_path)
    found = numbers(b"".join(sent))
    assert sorted(found) == list(range(rows))
    assert rows < 1000 or found != sorted(found)
    assert list(tmp_path.iterdir()) == []


def orders(draws: int) -> list[int]:
    """How often each of the 24 orders of four reports comes."""
    seen = []
    for _ in range(draws):
        sent = b"".join(permuted(chunked(reports(4), [1, 1, 1, 1]), 4))
        seen.append(ORDERS[tuple(numbers(sent))])
    return [int(count) for count in np.bincount(seen, minlength=24)]


def test_all_orders_are_equally_likely() -> None:
    """A true shuffle is rejected with probability 1e-6."""
    assert chi_square(orders(3000), np.full(24, 1 / 24)) > FALSE_ALARM


def test_a_shuffle_that_moves_nothing_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffling, "permutation", lambda count, _: np.arange(count, dtype=np.uint32))
    assert chi_square(orders(3000), np.full(24, 1 / 24)) < FALSE_ALARM


def test_a_batch_in_many_buckets_is_sent_in_an_order_of_neither_bytes_nor_arrival() -> None:
    """The rank correlation of a random order is this far from zero with probability 1e-6."""
    rows = 200_000
    assert Layout.plan(rows, SEALED_BYTES, memory=release._MEMORY, workers=1).buckets > 1
    found = np.array(numbers(b"".join(permuted([reports(rows)], rows))))
    assert abs(np.corrcoef(found, np.arange(rows))[0, 1]) < 4.9 / math.sqrt(rows - 1)


def test_a_batch_that_others_changed_is_not_sent() -> None:
    with refusal("damaged", error=ReportsError):
        list(permuted(chunked(reports(5), [5]), 6))


USERS = 3


def with_a_pending_batch(folder: Path, task: Task, late: int) -> tuple[Store, Batch]:
    """A store with a batch of round 1 that waits and some users in round 2."""
    store = open_store(f"sqlite:{folder / 'store.db'}", task)
    for number, users in ((1, USERS), (2, late)):
        uploads = [fake_upload(task, number) for _ in range(users)]
        answers = store.take([ArrivingUpload(number, upload.upload_id, upload.sealed) for upload in uploads])
        assert answers == [UploadStatus.ACCEPTED] * users
        store.close_round(USERS)
    batch = store.pending()
    assert batch is not None
    return store, batch


def attempt(store: Store, task: Task, analyzer: str, after_expiry: timedelta = timedelta(days=-1)) -> bool:
    """Let a releaser work until it has released a batch (True) or failed to (False)."""

    async def once() -> bool:
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def end(taken: bool) -> None:
            if not done.done():
                done.set_result(taken)

        releaser = Releaser(
            store,
            task,
            AnalyzerAddress(analyzer, "s" * 16),
            release_at=None,
            released=lambda _: end(True),
            failed=lambda: end(False),
            clock=FakeClock(task.expires + after_expiry),
        )
        running = asyncio.create_task(releaser.run())
        try:
            return await asyncio.wait_for(done, 30)
        finally:
            running.cancel()
            await asyncio.wait({running})

    return asyncio.run(once())


NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("after_expiry", "late", "open_round", "waits"),
    [
        (timedelta(), 1, None, True),
        (timedelta(), USERS, 2, True),  # enough for a batch of its own, once the first is taken
        (timedelta(days=6, hours=22), 1, None, True),
        (timedelta(days=7), 1, None, False),
        (timedelta(days=7), USERS, None, False),
    ],
)
def test_what_can_never_be_released_is_deleted_though_a_batch_cannot_be_delivered(
    tmp_path: Path, after_expiry: timedelta, late: int, open_round: int | None, waits: bool
) -> None:
    task = Deployment.small(tmp_path, users=USERS, rounds=2).task
    store, batch = with_a_pending_batch(tmp_path, task, late)
    clock = FakeClock(task.expires + after_expiry)
    work_until(store, task, clock, lambda: clock.monotonic() > 3500)
    assert store.rounds() == Rounds(2, late, 0)
    assert store.pending() == batch
    work_until(store, task, clock, lambda: clock.monotonic() > 2 * 3700)
    assert store.rounds() == Rounds(open_round, late if open_round else 0, 0)
    assert store.pending() == (batch if waits else None)
    store.close()


def work_until(store: Store, task: Task, clock: FakeClock, over: Callable[[], bool]) -> None:
    """Let a releaser whose analyzer is away work for a while."""

    async def work() -> None:
        analyzer = AnalyzerAddress(NOBODY, "s" * 16)
        releaser = Releaser(
            store, task, analyzer, release_at=None, released=print, failed=lambda: clock.wait(250), clock=clock
        )
        running = asyncio.create_task(releaser.run())
        while not over():
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait({running})

    asyncio.run(work())


class JumpingClock(FakeClock):
    """Ten days ahead for ten minutes, now and then."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=10) * (self.monotonic() % 1000 < 600)


def test_a_clock_that_is_ahead_for_a_moment_now_and_then_deletes_nothing(tmp_path: Path) -> None:
    task = Deployment.small(tmp_path, users=USERS, rounds=2).task
    store, batch = with_a_pending_batch(tmp_path, task, 1)
    clock = JumpingClock(task.expires - timedelta(days=2))
    work_until(store, task, clock, lambda: clock.monotonic() > 3 * 3600)
    assert (store.pending(), store.rounds()) == (batch, Rounds(2, 1, 0))
    store.close()


def test_only_the_analyzers_own_word_ends_a_batch(tmp_path: Path) -> None:
    task = Deployment.small(tmp_path, users=USERS, rounds=2).task
    store, batch = with_a_pending_batch(tmp_path, task, 0)
    with StandInAnalyzer() as analyzer:
        analyzer.answer = "page"
        assert not attempt(store, task, analyzer.url)
        assert store.pending() == batch
        analyzer.answer = 201
        assert attempt(store, task, analyzer.url)
    assert store.pending() is None
    store.close()


def test_a_release_counts_and_goes_on_where_nothing_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Deployment.small(tmp_path, users=USERS, rounds=2).task
    store, _ = with_a_pending_batch(tmp_path, task, USERS)

    def full(*_: object) -> bool:
        raise StoreError("store-unavailable", "the disk is full")

    with StandInAnalyzer() as analyzer, monkeypatch.context() as broken:
        broken.setattr(SqliteDatabase, "erase_dropped", full)
        assert attempt(store, task, analyzer.url)
        assert attempt(store, task, analyzer.url)
        assert [received.round_number for received in analyzer.received.values()] == [1, 2]
        with refusal("store-unavailable", error=StoreError):
            store.finish_deletion()
    store.finish_deletion()
    store.close()


def test_a_batch_that_waited_is_still_delivered_at_the_first_attempt(tmp_path: Path) -> None:
    task = Deployment.small(tmp_path, users=USERS, rounds=2).task
    store, batch = with_a_pending_batch(tmp_path, task, 1)
    with StandInAnalyzer() as analyzer:
        assert attempt(store, task, analyzer.url, timedelta(days=8))
        assert list(analyzer.received) == [batch.batch_id]
    store.close()
