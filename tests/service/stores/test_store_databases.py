"""What is particular to one database: its files, its locks, its errors, and whose store it is."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.refusals import refusal
from tests.service.postgres import Postgres
from tests.service.stores.store_urls import (
    ACCEPTED,
    USERS,
    PathOrUrl,
    close,
    fill,
    new_task,
    new_upload,
    released,
    split,
)

from shufflesum.errors import FileError, ParameterError
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.http.server import ServerOptions
from shufflesum.service.shuffler.release import AnalyzerAddress
from shufflesum.service.shuffler.server import ShufflerOptions, run_shuffler
from shufflesum.service.stores import postgres as postgres_store
from shufflesum.service.stores import sqlite as sqlite_store
from shufflesum.service.stores import store as store_module
from shufflesum.service.stores.database import StoreError, WrongStoreError
from shufflesum.service.stores.store import ArrivingUpload, Store, open_store


def test_sqlite_pages_tell_no_order_of_arrival(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "ab" * 16)
    task = new_task(tmp_path)
    uploads = [new_upload(task) for _ in range(400)]

    def files(name: str, order: list[ArrivingUpload], *, release: bool) -> bytes:
        store = open_store(f"sqlite:{tmp_path / name}", task)
        for start in range(0, len(order), 8):
            store.take(order[start : start + 8])
        if release:
            store.mark_released(close(store))
        store.close()
        assert not list(tmp_path.glob(f"{name}-wal"))
        return (tmp_path / name).read_bytes()

    assert files("a", uploads, release=True) == files("b", uploads[::-1], release=True)
    assert files("c", uploads, release=False) != files("d", uploads[::-1], release=False)


def test_sqlite_overwrites_what_was_deleted_before_the_file_gives_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = new_task(tmp_path, reports=200)
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:{path}", task)
    traces = [trace for each in fill(store, task, 50) for trace in split(each.sealed)[::40]]
    batch = close(store)
    kept = fill(store, task, 1, round_number=2)[0].sealed
    found: list[tuple[bool, bool]] = []
    overwrite = sqlite_store._overwrite_free_pages

    def watched(connection: sqlite3.Connection) -> None:
        sqlite_store._cut_log(connection)
        before = path.read_bytes()
        overwrite(connection)
        after = path.read_bytes()
        assert len(after) >= len(before)  # nothing was given back yet
        found.extend((trace in before, trace in after) for trace in traces)

    monkeypatch.setattr(sqlite_store, "_overwrite_free_pages", watched)
    store.mark_released(batch)
    assert found == [(True, False)] * len(traces)
    files = b"".join(each.read_bytes() for each in tmp_path.glob("store.db*"))
    assert not any(trace in files for trace in traces)
    assert kept[:SEALED_BYTES] in files
    assert path.stat().st_size < 50 * task.upload_bytes
    assert sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_a_deletion_that_fails_while_it_overwrites_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = new_task(tmp_path, reports=200)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    traces = [trace for each in fill(store, task, 50) for trace in split(each.sealed)[::40]]
    batch = close(store)

    def torn(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("CREATE TABLE zeros (zeros BLOB NOT NULL)")
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as failing:
        failing.setattr(sqlite_store, "_overwrite_free_pages", torn)
        store.mark_released(batch)
    fill(store, task, 2, round_number=2)  # goes on meanwhile
    store.finish_deletion()
    files = b"".join(each.read_bytes() for each in tmp_path.glob("store.db*"))
    assert not any(trace in files for trace in traces)
    assert store.rounds().users == 2
    store.close()


def test_postgres_rows_tell_no_order_of_arrival(tmp_path: Path, postgres: Postgres) -> None:
    task = new_task(tmp_path)
    store = open_store(postgres.address, task)
    for _ in range(40):
        fill(store, task, 1)
    query = f"SELECT xmin::text, id FROM shufflesum.taken_{task.id[:32]}_0 ORDER BY ctid"

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres.address) as connection:
            return connection.execute(query).fetchall()

    assert rows() == []  # they are with the uploads
    store.mark_released(close(store))
    after = rows()
    assert len(after) == 40
    assert [identifier for _, identifier in after] == sorted(identifier for _, identifier in after)
    assert len({xmin for xmin, _ in after}) == 1
    store.close()


def test_a_second_server_waits_for_the_end_of_the_first_on_either_store(store: Store, place: PathOrUrl) -> None:
    fill(store, place.task, 1)
    second = place.open()
    for attempt in (second.rounds, second.check, lambda: second.take([new_upload(place.task)])):
        with refusal("in-use", error=StoreError):
            attempt()
    fill(store, place.task, 1)
    store.close()
    second.check()
    fill(second, place.task, 1)
    assert second.rounds().users == 3
    second.close()


def test_a_store_belongs_to_the_server_that_opened_it_last(store: Store, place: PathOrUrl) -> None:
    """Where the lock means nothing (removed by hand, a pooling proxy), no acknowledged upload is lost all the same."""
    fill(store, place.task, 5)
    if place.address.startswith("sqlite"):
        Path(f"{place.address.removeprefix('sqlite:')}.lock").unlink()
    else:
        assert store._connection is not None
        store._connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
    other = place.open()
    fill(other, place.task, 7)
    with refusal("in-use", error=WrongStoreError):
        store.take([new_upload(place.task)])
    with pytest.raises(WrongStoreError):
        store.check()
    with pytest.raises(WrongStoreError):
        store.close_round(1)
    fill(other, place.task, 8)
    batch = close(other)
    assert batch.users == 20
    assert len(released(other, batch)) == 40
    other.close()


def test_a_store_by_two_names_belongs_to_the_last_as_well(tmp_path: Path) -> None:
    task = new_task(tmp_path)
    first = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    fill(first, task, 3)
    os.link(tmp_path / "store.db", tmp_path / "other.db")
    second = open_store(f"sqlite:{tmp_path / 'other.db'}", task)
    with pytest.raises(StoreError):
        first.take([new_upload(task)])
    second.close()
    first.close()


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
    with refusal("store-mismatch", error=WrongStoreError):
        open_store(address, new_task(tmp_path))


def test_a_store_of_another_version_is_refused(
    store: Store, place: PathOrUrl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, place.task)
    store.close()
    with monkeypatch.context() as later:
        later.setattr(store_module, "FORMAT", "shufflesum-store-1000")
        analyzer = AnalyzerAddress("http://127.0.0.1:1", "s" * 16)
        with refusal("format-mismatch", error=WrongStoreError):
            run_shuffler(place.task, place.address, ShufflerOptions(analyzer), ServerOptions())
    reopened = place.open()
    assert reopened.rounds().users == USERS
    reopened.close()
    # Earlier versions wrote a number, or nothing.
    for name, columns in (
        ("first.db", "task TEXT"),
        ("third.db", "task TEXT, layout INTEGER, owner TEXT"),
        ("fourth.db", "format TEXT DEFAULT 'shufflesum-store-4', task TEXT, owner TEXT"),
    ):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as connection, connection:
            connection.execute(f"CREATE TABLE meta ({columns})")
            connection.execute("CREATE TABLE round (number INTEGER)")
            connection.execute("INSERT INTO meta (task) VALUES (?)", (place.task.id,))
        with refusal("format-mismatch", "shufflesum-store-7", error=WrongStoreError):
            open_store(f"sqlite:{tmp_path / name}", place.task)


def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE meta (name TEXT)")
    before = path.read_bytes()
    with refusal("store-mismatch", error=WrongStoreError):
        open_store(f"sqlite:{path}", new_task(tmp_path))
    assert path.read_bytes() == before


def test_one_store_is_one_lock_by_whatever_name(tmp_path: Path) -> None:
    task = new_task(tmp_path)
    (tmp_path / "link.db").symlink_to("store.db")
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    with refusal("in-use", error=StoreError):
        open_store(f"sqlite:{tmp_path / 'link.db'}", task).rounds()
    store.close()


def test_a_disk_without_locks_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none_left)
    with refusal("unwritable", error=FileError):
        open_store(f"sqlite:{tmp_path / 'store.db'}", new_task(tmp_path))


def test_postgres_uploads_go_on_while_a_backup_reads(
    tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "_LOCK_SECONDS", 1)
    task = new_task(tmp_path)
    store = open_store(postgres.address, task)
    fill(store, task, 8)
    with psycopg.connect(postgres.address) as backup:
        backup.execute(f"SELECT * FROM shufflesum.uploads_{task.id[:32]}_1").fetchall()
        fill(store, task, 2)
    assert store.rounds().users == 10
    fill(store, task, 10)
    batch = close(store)
    assert len(released(store, batch)) == 2 * 20
    store.close()


def test_a_commit_means_that_it_is_on_disk(tmp_path: Path, postgres: Postgres) -> None:
    task = new_task(tmp_path)
    sqlite = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    database = open_store(postgres.address, task)
    database.rounds()
    assert sqlite._connection is not None
    assert database._connection is not None
    assert sqlite._connection.exec_driver_sql("PRAGMA synchronous").fetchone() == (3,)
    assert sqlite._connection.exec_driver_sql("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database._connection.exec_driver_sql("SHOW synchronous_commit").fetchone() == ("on",)
    sqlite.close()
    database.close()


def test_two_tasks_share_one_database_without_meeting(tmp_path: Path, postgres: Postgres) -> None:
    tasks = [new_task(tmp_path), new_task(tmp_path)]
    stores = [open_store(postgres.address, task) for task in tasks]
    fill(stores[0], tasks[0], 2)
    assert [store.rounds().users for store in stores] == [2, 0]
    for store in stores:
        store.close()


def test_a_sqlite_store_that_vanished_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    task = new_task(tmp_path)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    store._disconnect()
    (tmp_path / "store.db").rename(tmp_path / "elsewhere")
    with refusal("store-unavailable", error=StoreError):
        store.take([new_upload(task)])
    assert not (tmp_path / "store.db").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "store.db")
    assert store.take([new_upload(task)]) == [ACCEPTED]
    store.close()
    store.close()
    with refusal("store-unavailable", error=StoreError):
        store.rounds()


@pytest.mark.parametrize("fate", ["gone", "replaced"])
def test_nothing_is_acknowledged_into_a_file_that_has_no_name(tmp_path: Path, fate: str) -> None:
    task = new_task(tmp_path)
    path, away = tmp_path / "store.db", tmp_path / "away"
    store = open_store(f"sqlite:{path}", task)
    fill(store, task, 3)
    path.rename(away)
    if fate == "replaced":
        path.write_bytes(away.read_bytes())
    for attempt in (lambda: store.take([new_upload(task)]), store.check, store.rounds):
        with refusal(("store-mismatch", "store-unavailable"), "store.db", error=StoreError):
            attempt()
    away.replace(path)
    store.check()
    fill(store, task, 2)
    assert store.rounds().users == 5
    store.close()


def test_nothing_is_acknowledged_into_a_log_that_has_no_name(tmp_path: Path) -> None:
    task = new_task(tmp_path)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    fill(store, task, 3)
    (tmp_path / "store.db-wal").unlink()
    with refusal("store-unavailable", error=StoreError):
        store.take([new_upload(task)])
    fill(store, task, 2)
    assert store.rounds().users == 5
    store.close()


def test_a_store_that_is_locked_by_others_says_so_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.3)
    task = new_task(tmp_path)
    store = open_store(f"sqlite:{tmp_path / 'store.db'}", task)
    blocker = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    one = new_upload(task)
    with refusal("store-unavailable", error=StoreError):
        store.take([one])
    blocker.close()
    assert store.take([one]) == [ACCEPTED]
    store.close()


def test_a_database_that_is_away_is_an_error_that_quotes_no_password(tmp_path: Path) -> None:
    store = open_store("postgresql://somebody:hidden@127.0.0.1:1/none", new_task(tmp_path))
    with pytest.raises(StoreError) as caught:
        store.rounds()
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("address", ["store.db", "mysql://host/db", "", "sqlite:"])
def test_an_unknown_kind_of_store_is_refused(tmp_path: Path, address: str) -> None:
    with refusal("unknown-choice", error=ParameterError):
        open_store(address, new_task(tmp_path))
