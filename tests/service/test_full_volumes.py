"""Both servers on file systems that are full: they say so, wait, and work again by themselves."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psycopg
import pytest
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload
from tests.service.small_volumes import fill, small_volume
from tests.service.stores.store_urls import ACCEPTED, new_task, new_upload

from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.store import open_store
from shufflesum.service.stores.tables import CountedBatch, open_tables


@contextmanager
def small_database(postgres: Postgres, folder: Path, kilobytes: int) -> Iterator[str]:
    """PostgreSQL whose tables lie on a small volume."""
    with small_volume(folder, kilobytes):
        entry = pwd.getpwnam("postgres")
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        try:
            yield f"{postgres.address}?options={quote('-c default_tablespace=small')}"
        finally:
            (folder / "ballast").unlink(missing_ok=True)
            with psycopg.connect(postgres.address, autocommit=True, client_encoding="utf8") as connection:
                for (schema,) in connection.execute(
                    "SELECT DISTINCT schemaname FROM pg_tables WHERE tablespace = 'small'"
                ).fetchall():
                    if schema != "public":
                        connection.execute(f"DROP SCHEMA {schema} CASCADE")
                connection.execute("DROP TABLE IF EXISTS shufflesum_tables_3")
                connection.execute("DROP TABLESPACE small")


@contextmanager
def small_place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """The address of a store on a small volume, and where that is."""
    if kind == "sqlite":
        folder = tmp_path / "small"
        with small_volume(folder, 512):
            yield f"sqlite:{folder / 'store.db'}", folder
    else:
        running: Postgres = request.getfixturevalue("postgres")
        folder = running.data.parent / "small"
        with small_database(running, folder, 2048) as address:
            yield address, folder


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_shufflers_store_is_ready_only_where_an_upload_can_be_taken(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    task = new_task(tmp_path, users=10**6, reports=100)
    with small_place(kind, tmp_path, request) as (address, folder):
        store = open_store(address, task)
        store.check()
        assert store.take([new_upload(task)]) == [ACCEPTED]
        ballast = fill(folder)
        for _ in range(200):  # what is left in the files' last pages
            one = new_upload(task)
            try:
                store.take([one])
            except StoreError:
                break
        for _ in range(3):
            with refusal("store-unavailable", error=StoreError):
                store.check()
            with refusal("store-unavailable", error=StoreError):
                store.take([one])
        ballast.unlink()
        store.check()
        assert store.take([one]) == [ACCEPTED]
        store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_analyzers_store_is_ready_only_where_a_table_can_be_kept(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    task = new_task(tmp_path)
    batch = CountedBatch(1, "ab" * 16, 3, 0, 0, 0, np.arange(5000))
    with small_place(kind, tmp_path, request) as (address, folder):
        if kind == "postgres":
            with psycopg.connect(address) as connection:
                connection.execute("DROP TABLE IF EXISTS shufflesum_tables_3")
        tables = open_tables(address, task)
        tables.check()
        ballast = fill(folder)
        for attempt in (tables.check, lambda: tables.record(batch), open_tables(address, task).check):
            with refusal("store-unavailable", error=StoreError):
                attempt()
        assert tables.counted() == []  # reading needs no room
        ballast.unlink()
        tables.check()
        assert tables.record(batch)


def status(server: ServerProcess, path: str = "/readyz") -> int:
    return server.request("GET", path).status


def test_servers_on_full_disks_start_wait_and_work_again_by_themselves(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=3, reports=200)
    with (
        small_volume(tmp_path / "one", 512) as one,
        small_volume(tmp_path / "two", 512) as two,
        deployment.analyzer("--processes", "1", store=f"sqlite:{one / 'tables.db'}") as analyzer,
        deployment.shuffler(analyzer.url, store=f"sqlite:{two / 'uploads.db'}") as shuffler,
    ):
        uploads = [fake_upload(deployment.task) for _ in range(3)]
        assert shuffler.upload(uploads[0]).status == 201
        for server, volume in ((shuffler, two), (analyzer, one)):
            server.kill()  # its log is left to be written back, which needs room
            fill(volume)
            server.restart()
            assert (status(server), status(server, "/healthz")) == (503, 200)
        answer = shuffler.upload(uploads[1])
        assert (answer.status, answer.problem) == (503, "store-unavailable")
        assert shuffler.stop() == 0
        shuffler.restart()
        (two / "ballast").unlink()
        wait_until(lambda: status(shuffler) == 200)
        assert shuffler.upload(uploads[0]).problem == "repeated"
        assert [shuffler.upload(upload).status for upload in uploads[1:]] == [201, 201]
        wait_until(lambda: shuffler.metric("shufflesum_release_failures_total") > 0)
        (one / "ballast").unlink()
        wait_until(lambda: status(analyzer) == 200)
        wait_until(lambda: analyzer.metric("shufflesum_batches_total") == 1)
        assert analyzer.metric("shufflesum_reports_rejected_total") == 600  # nobody can open these, but they are there


def test_a_new_store_on_a_full_disk_waits_too(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=3)
    with small_volume(tmp_path / "full", 256) as folder, StandInAnalyzer() as analyzer:
        ballast = fill(folder)
        with deployment.shuffler(analyzer.url, store=f"sqlite:{folder / 'uploads.db'}") as server:
            assert status(server) == 503
            ballast.unlink()
            wait_until(lambda: status(server) == 200)
            assert server.upload(fake_upload(deployment.task)).status == 201


def test_the_write_ahead_log_of_single_uploads_stays_small_even_while_a_batch_is_read(tmp_path: Path) -> None:
    task = new_task(tmp_path, users=50_000, reports=1, rounds=2)
    path = tmp_path / "store.db"
    store = open_store(f"sqlite:{path}", task)
    for _ in range(50):
        store.take([new_upload(task) for _ in range(1000)])
    batch = store.close_round(1)
    assert batch is not None
    reading = store.sealed(batch)
    read = len(next(reading))
    store.take([new_upload(task, 2)])  # the log of the sorting is written back, and cut, with this
    largest = 0
    for _ in range(1500):
        store.take([new_upload(task, 2)])
        largest = max(largest, path.with_name("store.db-wal").stat().st_size)
    assert largest < 5_000_000
    assert read + sum(map(len, reading)) == 50_000 * 52
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_second_shuffler_waits_and_takes_over_alike_on_both_stores(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    deployment = Deployment.small(tmp_path, users=3)
    store = f"sqlite:{tmp_path / 'uploads.db'}"
    if kind == "postgres":
        running: Postgres = request.getfixturevalue("postgres")
        store = running.address
    (tmp_path / "second").mkdir()
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, store=store) as first:
        uploads = [fake_upload(deployment.task) for _ in range(3)]
        assert first.upload(uploads[0]).status == 201
        with deployment.shuffler(analyzer.url, store=store, folder=tmp_path / "second") as second:
            answer = second.upload(uploads[1])
            assert (status(second), answer.status, answer.problem) == (503, 503, "store-unavailable")
            assert any("another server uses the store" in event.get("error", "") for event in second.events())
            assert first.upload(uploads[1]).status == 201
            first.kill()
            wait_until(lambda: status(second) == 200)
            assert [second.upload(upload).status for upload in uploads] == [409, 409, 201]
            assert analyzer.wait_for(1)[0].users == 3
