"""One suite for both stores: what a shuffler relies on, and what must be gone afterwards."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.service.postgres import Postgres
from tests.service.servers import Deployment

from shufflesum.errors import FileError, ParameterError
from shufflesum.service import postgres_store, sql_store, sqlite_store
from shufflesum.service.http import ServerOptions
from shufflesum.service.release import AnalyzerAddress
from shufflesum.service.shuffler import ShufflerOptions, run_shuffler
from shufflesum.service.store import Batch, Entry, Outcome, Status, Store, StoreError, WrongStoreError, open_store
from shufflesum.wire import SEALED_BYTES, Task

USERS, ROUNDS = 3, 2
STORED, REPLAYED = Outcome.STORED, Outcome.REPLAYED


def new_task(folder: Path, **sizes: int) -> Task:
    return Deployment.small(folder, **({"users": USERS, "rounds": ROUNDS, "reports": 2} | sizes)).task


def entry(task: Task, round_number: int = 1, token: bytes | None = None) -> Entry:
    return Entry(round_number, secrets.token_bytes(16), secrets.token_bytes(task.plan.reports * SEALED_BYTES), token)


class Place:
    """Where a store lives, to open it again and to look into its files."""

    def __init__(self, address: str, task: Task, files: Callable[[], list[Path]]) -> None:
        self.address, self.task, self._files = address, task, files

    def open(self) -> Store:
        return open_store(self.address, self.task)

    def analyze(self) -> None:
        """As PostgreSQL does by itself once tables grow: values of theirs go to its catalogue."""
        if self.address.startswith("postgresql"):
            with psycopg.connect(self.address, autocommit=True) as connection:
                connection.execute("ANALYZE")

    def held(self, needles: list[bytes]) -> list[bool]:
        contents = [path.read_bytes() for path in self._files()]
        return [any(needle in content for content in contents) for needle in needles]


@pytest.fixture(autouse=True)
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few uploads fill the list of arrivals."""
    monkeypatch.setattr(sql_store, "_MOST_RECENT", 9)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    task = new_task(tmp_path)
    if request.param == "sqlite":
        return Place(f"sqlite:{tmp_path / 'store.db'}", task, lambda: list(tmp_path.glob("store.db*")))
    running: Postgres = request.getfixturevalue("postgres")

    def files() -> list[Path]:
        with psycopg.connect(running.address, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        # The database's own log is its administrator's to keep or not, and docs/deploy.md says so.
        return [path for path in (running.data / "base").rglob("*") if path.is_file()]

    return Place(running.address, task, files)


@pytest.fixture
def store(place: Place) -> Iterator[Store]:
    store = place.open()
    yield store
    store.close()


def fill(store: Store, task: Task, users: int = USERS, round_number: int = 1) -> list[Entry]:
    entries = [entry(task, round_number) for _ in range(users)]
    assert store.add(entries) == [STORED] * users
    return entries


def released(store: Store, batch: Batch) -> list[bytes]:
    return split(b"".join(store.sealed(batch)))


def split(sealed: bytes) -> list[bytes]:
    return [sealed[start : start + SEALED_BYTES] for start in range(0, len(sealed), SEALED_BYTES)]


def close(store: Store, smallest: int = USERS) -> Batch:
    batch = store.close_round(smallest)
    assert batch is not None
    return batch


def test_an_upload_id_counts_once_however_often_it_comes(store: Store, place: Place) -> None:
    first, second = entry(place.task), entry(place.task)
    assert store.add([first, first, second]) == [STORED, REPLAYED, STORED]
    assert store.add([second, first]) == [REPLAYED, REPLAYED]
    assert store.status() == Status(open_round=1, users=2, released=0)


def test_a_round_other_than_the_open_one_is_refused_and_leaves_nothing(store: Store, place: Place) -> None:
    early = entry(place.task, 2)
    assert store.add([early]) == [Outcome.ROUND_NOT_OPEN]
    fill(store, place.task)
    close(store)
    late = entry(place.task, 1)
    assert store.add([late, early]) == [Outcome.ROUND_CLOSED, STORED]
    assert store.add([late]) == [Outcome.ROUND_CLOSED]


def test_a_repetition_is_recognised_after_its_round_was_released(store: Store, place: Place) -> None:
    entries = fill(store, place.task)
    batch = close(store)
    assert store.add(entries) == [REPLAYED] * USERS
    store.acknowledge(batch)
    assert store.add(entries) == [REPLAYED] * USERS
    assert store.status() == Status(open_round=2, users=0, released=1)


def test_a_token_pays_for_one_upload_a_round(store: Store, place: Place) -> None:
    token, other = secrets.token_bytes(32), secrets.token_bytes(32)
    paid = entry(place.task, token=token)
    assert store.add([paid, entry(place.task, token=token)]) == [STORED, Outcome.TOKEN_SPENT]
    assert store.add([paid]) == [REPLAYED]
    assert store.add([entry(place.task, token=token), entry(place.task, token=other)]) == [
        Outcome.TOKEN_SPENT,
        STORED,
    ]
    fill(store, place.task, 1)
    store.acknowledge(close(store))
    assert store.add([entry(place.task, 2, token)]) == [STORED]


def test_a_refused_upload_spends_no_token(store: Store, place: Place) -> None:
    token = secrets.token_bytes(32)
    assert store.add([entry(place.task, 2, token)]) == [Outcome.ROUND_NOT_OPEN]
    assert store.add([entry(place.task, 1, token)]) == [STORED]


def test_a_copied_report_is_refused_with_the_whole_upload(store: Store, place: Place) -> None:
    victim, token = entry(place.task), secrets.token_bytes(32)
    first, second = split(victim.sealed)
    fresh = secrets.token_bytes(SEALED_BYTES)
    copies = [
        Entry(1, secrets.token_bytes(16), sealed, token)
        for sealed in (victim.sealed, second + first, fresh + first, fresh + fresh)
    ]
    assert store.add([victim, *copies]) == [STORED] + [Outcome.COPIED] * 4
    assert store.add([*copies, victim]) == [Outcome.COPIED] * 4 + [REPLAYED]
    fill(store, place.task, 10)  # the list of arrivals is put away
    assert store.add([*copies, victim]) == [Outcome.COPIED] * 4 + [REPLAYED]
    assert store.status().users == 11
    # Nothing of a refused copy was kept: neither its token nor the fresh report next to the copied one.
    assert store.add([Entry(1, secrets.token_bytes(16), fresh + entry(place.task).sealed[:SEALED_BYTES], token)]) == [
        STORED
    ]


def test_a_copy_is_recognised_after_the_store_was_opened_again_and_in_its_round_only(
    store: Store, place: Place
) -> None:
    victim = fill(store, place.task)[0]
    store.close()
    again = place.open()
    try:
        assert again.add([Entry(1, secrets.token_bytes(16), victim.sealed)]) == [Outcome.COPIED]
        close(again)
        # Sealed for round 1, it cannot be opened in round 2 and counts as rejected there.
        assert again.add([Entry(2, secrets.token_bytes(16), victim.sealed)]) == [STORED]
    finally:
        again.close()


@pytest.mark.parametrize("asked", [0, 1, USERS])
def test_no_batch_is_fixed_below_the_smallest_whatever_is_asked(store: Store, place: Place, asked: int) -> None:
    fill(store, place.task, USERS - 1)
    assert store.close_round(asked) is None
    assert store.pending() is None
    fill(store, place.task, 1)
    assert store.close_round(USERS + 1) is None
    assert close(store, asked).users == USERS


def test_a_batch_holds_all_users_of_its_round_and_every_report_once(store: Store, place: Place) -> None:
    entries = fill(store, place.task, 10)
    batch = close(store)
    fill(store, place.task, 2, round_number=2)
    assert (batch.round_number, batch.users) == (1, 10)
    assert released(store, batch) == released(store, batch)
    assert sorted(released(store, batch)) == sorted(split(b"".join(e.sealed for e in entries)))


def test_one_batch_waits_at_a_time_and_rounds_end(store: Store, place: Place) -> None:
    fill(store, place.task)
    first = close(store)
    fill(store, place.task, round_number=2)
    assert store.close_round(USERS) is None
    assert store.pending() == first
    store.acknowledge(first)
    second = close(store)
    assert second.batch_id != first.batch_id
    assert store.status() == Status(open_round=None, users=0, released=1)
    store.acknowledge(second)
    assert store.close_round(0) is None
    assert store.add([entry(place.task, 2), entry(place.task, 1)]) == [Outcome.ROUND_CLOSED] * 2


def test_a_batch_survives_the_process_with_its_id_and_its_reports(store: Store, place: Place) -> None:
    fill(store, place.task, 5)
    batch = close(store)
    reports = released(store, batch)
    store.close()
    again = place.open()
    try:
        assert again.pending() == batch
        assert released(again, batch) == reports
        again.acknowledge(batch)
        again.acknowledge(batch)
        assert again.pending() is None
        assert again.status().released == 1
    finally:
        again.close()


def test_only_the_waiting_batch_can_be_acknowledged(store: Store, place: Place) -> None:
    fill(store, place.task)
    batch = close(store)
    store.acknowledge(Batch("0" * 32, 1, USERS))
    assert store.pending() == batch


def test_nothing_of_a_released_batch_is_left_in_the_files(store: Store, place: Place) -> None:
    token = secrets.token_bytes(32)
    entries = [*fill(store, place.task, 50), entry(place.task, token=token)]
    store.add(entries[-1:])
    assert isinstance(store, sql_store.SqlStore)
    assert store._recent is not None
    order_key = store._recent.key
    assert len(order_key) == 32
    batch = close(store)
    kept = fill(store, place.task, 1, round_number=2)
    traces = [*(report for e in entries for report in e.reports), token, order_key]
    assert all(place.held(traces))
    place.analyze()
    store.acknowledge(batch)
    assert not any(place.held(traces))
    assert all(place.held([kept[0].sealed[:SEALED_BYTES]]))


def test_a_reading_that_fails_makes_nothing_forgotten(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = fill(store, place.task, 2)
    store.close()
    again = place.open()
    assert again.status().users == 2

    def torn(_: bytes) -> list[bytes]:
        raise StoreError("the disk did not answer")

    with monkeypatch.context() as broken:
        broken.setattr(sql_store, "split", torn)
        with pytest.raises(StoreError, match="did not answer"):
            again.add(entries)
    assert again.add(entries) == [REPLAYED] * 2
    fill(again, place.task, 1)
    batch = close(again)
    assert (batch.users, len(released(again, batch))) == (3, 6)
    again.close()


@pytest.mark.parametrize("rank", ["bytes", "arrival"])
def test_a_batch_is_read_in_an_order_of_neither_bytes_nor_arrival(store: Store, place: Place, rank: str) -> None:
    """The rank correlation of a random order is this far from zero with probability 1e-6."""
    entries = fill(store, place.task, 400)
    reports = [report for entry in entries for report in entry.reports]
    expected = reports if rank == "arrival" else sorted(reports)
    position = {report: index for index, report in enumerate(released(store, close(store)))}
    positions = [position[report] for report in expected]
    assert _correlation(positions) < 4.9 / math.sqrt(len(positions) - 1) < _correlation(sorted(positions))


def _correlation(positions: list[int]) -> float:
    return abs(float(np.corrcoef(positions, range(len(positions)))[0, 1]))


def test_the_same_reports_are_in_another_order_in_each_store_and_the_same_when_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = new_task(tmp_path)
    entries = [entry(task) for _ in range(20)]

    def order(name: str) -> list[bytes]:
        store = open_store(f"sqlite:{tmp_path / name}", task)
        store.add(entries)
        store.close()
        again = open_store(f"sqlite:{tmp_path / name}", task)
        batch = close(again)
        first = released(again, batch)
        assert released(again, batch) == first
        again.close()
        return first

    assert order("a") != order("b")  # alike by chance once in 1e47
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    assert order("c") == order("d")  # it was the key


def test_forgetting_leaves_nothing_at_all(store: Store, place: Place) -> None:
    entries = fill(store, place.task, USERS - 1)
    traces = [e.sealed[:SEALED_BYTES] for e in entries] + [e.upload_id for e in entries]
    assert all(place.held(traces))
    place.analyze()
    store.forget()
    assert store.status().open_round is None
    assert not any(place.held(traces))
    assert store.add(entries) == [Outcome.ROUND_CLOSED] * len(entries)


def test_forgetting_spares_the_waiting_batch_until_told_otherwise(store: Store, place: Place) -> None:
    entries = fill(store, place.task)
    batch = close(store)
    late = fill(store, place.task, 1, round_number=2)
    gone = [e.sealed[:SEALED_BYTES] for e in late] + [e.upload_id for e in [*entries, *late]]
    kept = [e.sealed[:SEALED_BYTES] for e in entries]
    store.forget()
    assert store.pending() == batch
    assert all(place.held(kept))
    assert not any(place.held(gone))
    store.forget(pending=True)
    assert store.pending() is None
    assert store.status() == Status(open_round=None, users=0, released=0)
    assert not any(place.held(kept))


def test_a_batch_can_be_acknowledged_after_the_rest_was_forgotten(store: Store, place: Place) -> None:
    fill(store, place.task)
    batch = close(store)
    store.forget()
    store.acknowledge(batch)
    store.forget()
    assert store.status() == Status(open_round=None, users=0, released=1)


def test_uploads_go_on_while_a_batch_is_read(store: Store, place: Place) -> None:
    fill(store, place.task, 9000)
    batch = close(store)
    reading = store.sealed(batch)
    first = next(reading)
    fill(store, place.task, 5, round_number=2)
    assert len(first) + sum(map(len, reading)) == batch.users * place.task.plan.reports * SEALED_BYTES


def test_threads_that_add_at_once_lose_and_double_nothing(store: Store, place: Place) -> None:
    entries = [entry(place.task) for _ in range(120)]
    outcomes: list[Outcome] = []

    def add(part: list[Entry]) -> None:
        for start in range(0, len(part), 7):
            outcomes.extend(store.add(part[start : start + 7]))

    threads = [threading.Thread(target=add, args=(entries[i * 20 : i * 20 + 40],)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(STORED) == 120
    assert outcomes.count(REPLAYED) == 80
    assert store.status().users == 120


def test_uploads_go_on_where_nothing_can_be_put_away_and_end_before_memory_does(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("no room")

    entries = fill(store, place.task, 5)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_put_away", fail)
        while True:
            new = [entry(place.task) for _ in range(2)]
            try:
                assert store.add(new) == [STORED, STORED]
            except StoreError:
                break
            entries += new
            assert len(entries) < 100
        assert len(entries) > 20
        with pytest.raises(StoreError):
            store.add(new)
    assert store.add(entries) == [REPLAYED] * len(entries)
    fill(store, place.task, 1)
    assert store.status().users == len(entries) + 1


def test_a_deletion_that_was_interrupted_is_finished_by_the_next_server(
    store: Store, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [report for e in fill(store, place.task, 20) for report in e.reports]
    batch = close(store)

    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store, "tidy", killed)
        with pytest.raises(KeyboardInterrupt):
            store.acknowledge(batch)
    store.close()
    assert any(place.held(traces))
    again = place.open()
    again.tidy()
    assert not any(place.held(traces))
    assert again.status() == Status(open_round=2, users=0, released=1)
    again.close()


class _Model(RuleBasedStateMachine):
    """A store does what a few Python sets do, through any sequence of calls, openings included."""

    make: Callable[[], Place]

    @initialize()
    def start(self) -> None:
        self.place = type(self).make()
        self.store = self.place.open()
        self.open: int | None = 1
        self.seen: dict[bytes, Entry] = {}
        self.members: dict[int, list[Entry]] = {1: []}
        self.spent: set[tuple[int, bytes]] = set()
        self.sealed: set[tuple[int, bytes]] = set()
        self.fixed: Batch | None = None
        self.released = 0

    def expect(self, e: Entry) -> Outcome:
        if e.upload_id in self.seen:
            return REPLAYED
        if self.open is None or e.round_number < self.open:
            return Outcome.ROUND_CLOSED
        if e.round_number > self.open:
            return Outcome.ROUND_NOT_OPEN
        if e.token is not None and (e.round_number, e.token) in self.spent:
            return Outcome.TOKEN_SPENT
        reports = {(e.round_number, report) for report in split(e.sealed)}
        if reports & self.sealed:
            return Outcome.COPIED
        self.sealed |= reports
        self.seen[e.upload_id] = e
        self.members[e.round_number].append(e)
        if e.token is not None:
            self.spent.add((e.round_number, e.token))
        return STORED

    @rule(
        parts=st.lists(
            st.tuples(st.integers(1, ROUNDS), st.integers(0, 30), st.integers(0, 99), st.none() | st.integers(0, 5)),
            max_size=6,
        )
    )
    def add(self, parts: list[tuple[int, int, int, int | None]]) -> None:
        entries = [
            Entry(
                r,
                bytes([i, r] * 8),
                bytes([s] * SEALED_BYTES + [s + 1] * SEALED_BYTES),  # its neighbours have one report of it
                None if t is None else bytes([t] * 32),
            )
            for r, i, s, t in parts
        ]
        assert self.store.add(entries) == [self.expect(e) for e in entries]

    @rule(asked=st.integers(0, 6))
    def close_round(self, asked: int) -> None:
        batch = self.store.close_round(asked)
        enough = self.open is not None and len(self.members[self.open]) >= max(asked, USERS)
        assert (batch is not None) == (enough and self.fixed is None)
        if batch is not None:
            assert self.open is not None
            assert (batch.round_number, batch.users) == (self.open, len(self.members[self.open]))
            self.fixed = batch
            self.open = self.open + 1 if self.open < ROUNDS else None
            if self.open is not None:
                self.members[self.open] = []

    @precondition(lambda self: self.fixed is not None)
    @rule()
    def acknowledge(self) -> None:
        assert self.fixed is not None
        members = self.members[self.fixed.round_number]
        assert sorted(released(self.store, self.fixed)) == sorted(split(b"".join(e.sealed for e in members)))
        self.store.acknowledge(self.fixed)
        self.fixed = None
        self.released += 1

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = self.place.open()

    @invariant()
    def agrees(self) -> None:
        users = 0 if self.open is None else len(self.members[self.open])
        assert self.store.status() == Status(self.open, users, self.released)
        assert self.store.pending() == self.fixed

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_store_does_what_sets_do(place: Place, tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    def make() -> Place:
        folder = tmp_path_factory.mktemp("model")
        address = f"sqlite:{folder / 'store.db'}" if place.address.startswith("sqlite") else place.address
        return Place(address, new_task(folder), list)

    machine: Any = type("Machine", (_Model,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sqlite_pages_tell_no_order_of_arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "ab" * 16)
    task = new_task(tmp_path)
    entries = [entry(task) for _ in range(400)]
    monkeypatch.setattr(secrets, "token_bytes", bytes)  # the key of the next round's order

    def files(name: str, order: list[Entry], *, release: bool) -> bytes:
        store = open_store(f"sqlite:{tmp_path / name}", task)
        for start in range(0, len(order), 8):
            store.add(order[start : start + 8])
        if release:
            store.acknowledge(close(store))
        store.close()
        assert not list(tmp_path.glob(f"{name}-wal"))
        return (tmp_path / name).read_bytes()

    assert files("a", entries, release=True) == files("b", entries[::-1], release=True)
    assert files("c", entries, release=False) != files("d", entries[::-1], release=False)


def test_postgres_rows_tell_no_order_of_arrival(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_store, "_MOST_RECENT", 1)
    task = new_task(tmp_path)
    store = open_store(postgres.address, task)
    for _ in range(40):
        fill(store, task, 1)
    query = f"SELECT xmin::text, id FROM shufflesum_{task.id[:32]}.seen ORDER BY ctid"

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.address) as connection:
            return connection.execute(query).fetchall()

    before = rows()
    assert len({xmin for xmin, _ in before}) == 39  # the last one is in the list of arrivals
    store.acknowledge(close(store))
    after = rows()
    assert len(after) == 40
    assert [identifier for _, identifier in after] == sorted(identifier for _, identifier in after)
    assert len({xmin for xmin, _ in after}) == 1
    store.close()


def test_a_second_server_cannot_use_a_store(store: Store, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_LOCK_SECONDS", 0.1)
    fill(store, place.task, 1)
    with pytest.raises((FileError, StoreError), match="stop that one first"):
        place.open().status()


def test_sqlite_makes_temporary_files_beside_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    open_store(f"sqlite:{folder / 'store.db'}", new_task(tmp_path)).close()
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:  # the setting is the whole process's
        assert connection.execute("PRAGMA temp_store_directory").fetchone() == (str(folder),)


def test_a_sqlite_store_belongs_to_one_task_and_to_its_owner(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store.db'}"
    open_store(address, new_task(tmp_path)).close()
    assert os.stat(tmp_path / "store.db").st_mode & 0o077 == 0
    with pytest.raises(WrongStoreError, match="store of its own"):
        open_store(address, new_task(tmp_path))


def test_a_store_of_another_version_is_refused(
    store: Store, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, place.task)
    store.close()
    with monkeypatch.context() as later:
        later.setattr(sql_store, "_LAYOUT", 1000)
        analyzer = AnalyzerAddress("http://127.0.0.1:1", "s" * 16)
        with pytest.raises(WrongStoreError, match="made by another version"):
            run_shuffler(place.task, place.address, ShufflerOptions(analyzer), ServerOptions())
    reopened = place.open()
    assert reopened.status().users == USERS
    reopened.close()
    # The first version wrote no layout down.
    with contextlib.closing(sqlite3.connect(tmp_path / "first.db")) as connection, connection:
        connection.execute("CREATE TABLE meta (task TEXT NOT NULL)")
        connection.execute("CREATE TABLE round (number INTEGER)")
        connection.execute("INSERT INTO meta VALUES (?)", (place.task.id,))
    with pytest.raises(WrongStoreError, match="made by another version"):
        open_store(f"sqlite:{tmp_path / 'first.db'}", place.task)


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE meta (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(WrongStoreError, match="is no shuffler's store"):
        open_store(f"sqlite:{path}", new_task(tmp_path))
    assert path.read_bytes() == before


def test_one_store_is_one_lock_by_whatever_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_LOCK_SECONDS", 0.1)
    task = new_task(tmp_path)
    (tmp_path / "link.db").symlink_to("store.db")
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    with pytest.raises(FileError, match="stop that one first"):
        open_store(f"sqlite:{tmp_path / 'link.db'}", task)
    store.close()


def test_a_disk_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none_left)
    with pytest.raises(FileError, match="cannot be locked: No locks available"):
        open_store(f"sqlite:{tmp_path / 'store.db'}", new_task(tmp_path))


def test_postgres_uploads_go_on_while_a_backup_reads(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_LOCK_SECONDS", 1)
    task = new_task(tmp_path)
    store = open_store(postgres.address, task)
    fill(store, task, 8)
    with psycopg.connect(postgres.address) as backup:
        backup.execute(f"SELECT * FROM shufflesum_{task.id[:32]}.arrived_1").fetchall()
        fill(store, task, 2)
    assert store.status().users == 10
    fill(store, task, 10)
    batch = close(store)
    assert len(released(store, batch)) == 2 * 20
    store.close()


def test_a_commit_means_that_it_is_on_disk(tmp_path: Path, postgres: Postgres) -> None:
    task = new_task(tmp_path)
    sqlite = sqlite_store.SqliteStore(tmp_path / "store.db", task)
    database = postgres_store.PostgresStore(postgres.address, task)
    database.status()
    assert sqlite._connection is not None
    assert database._connection is not None
    assert sqlite._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert sqlite._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    sqlite.close()
    database.close()


def test_two_tasks_share_one_database_without_meeting(tmp_path: Path, postgres: Postgres) -> None:
    tasks = [new_task(tmp_path), new_task(tmp_path)]
    stores = [open_store(postgres.address, task) for task in tasks]
    fill(stores[0], tasks[0], 2)
    assert [store.status().users for store in stores] == [2, 0]
    for store in stores:
        store.close()


def test_a_sqlite_store_that_vanished_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    task = new_task(tmp_path)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    assert isinstance(store, sqlite_store.SqliteStore)
    store._disconnect()
    (tmp_path / "store.db").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="unable to open"):
        store.add([entry(task)])
    assert not (tmp_path / "store.db").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "store.db")
    assert store.add([entry(task)]) == [STORED]
    store.close()
    store.close()
    with pytest.raises(StoreError, match="was closed"):
        store.status()


def test_a_store_that_is_locked_by_others_says_so_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.3)
    task = new_task(tmp_path)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    blocker = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    one = entry(task)
    with pytest.raises(StoreError, match="cannot be used now"):
        store.add([one])
    blocker.close()
    assert store.add([one]) == [STORED]
    store.close()


def test_a_database_that_is_away_is_an_error_that_quotes_no_password(tmp_path: Path) -> None:
    store = open_store("postgresql://somebody:hidden@127.0.0.1:1/none", new_task(tmp_path))
    with pytest.raises(StoreError) as caught:
        store.status()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("address", ["store.db", "mysql://host/db", "", "sqlite:"])
def test_an_unknown_kind_of_store_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ParameterError, match="sqlite:PATH or postgresql"):
        open_store(address, new_task(tmp_path))
