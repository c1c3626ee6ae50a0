"""What docs/runbook.md tells operators to do, done."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest
from tests.deploy.containers import REPOSITORY
from tests.forked_processes import wait_until
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.client import Client, fetch_estimate
from shufflesum.service.stores.database import StoreError
from shufflesum.service.stores.tables import FORMAT, CountedBatch, open_tables

USERS = 5
PAGE = (REPOSITORY / "docs" / "runbook.md").read_text()


def contribute(deployment: Deployment, server: ServerProcess, number: int) -> None:
    """All users to one round."""
    object.__setattr__(deployment.task, "shuffler", server.url)
    with Client(deployment.task, contributions=deployment.folder / "contributions") as client:
        client.upload_many(np.full((USERS, 4), 0.5), [f"user {i}" for i in range(USERS)], round_number=number)


class Store:
    """The analyzer's store, backed up and restored by the commands of the page."""

    def __init__(self, folder: Path, postgres: Postgres | None) -> None:
        self._file, self._backup, self._postgres = folder / "tables.db", folder / "backup", postgres
        self.address = f"sqlite:{self._file}" if postgres is None else postgres.address
        self.journal = folder / "tables.db-journal"
        if postgres is not None:
            with psycopg.connect(postgres.address) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {FORMAT}")

    def back_up(self) -> None:
        if self._postgres is None:
            # What `sqlite3 FILE ".backup COPY"` does.
            with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._backup)) as copy:
                source.backup(copy)
        else:
            self._pg("pg_dump", "--format=custom", "--table=shufflesum_tables_*", f"--file={self._backup}")

    def restore(self) -> None:
        if self._postgres is None:
            self.journal.unlink(missing_ok=True)
            shutil.copy(self._backup, self._file)
        else:
            self._pg("pg_restore", "--clean", "--if-exists", "--dbname=postgres", str(self._backup), database=False)

    def die_while_writing(self) -> None:
        """Leave a file and its journal as a process does that is killed in the middle of a transaction."""
        with closing(sqlite3.connect(self._file, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")  # the journal is whole at any moment
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"INSERT INTO {FORMAT} SELECT task, 100, 'x', 5, 0, 0, 0, counts FROM {FORMAT} LIMIT 1")
            left = self.journal.read_bytes()
            connection.execute("ROLLBACK")
        self.journal.write_bytes(left)

    def _pg(self, program: str, *options: str, database: bool = True) -> None:
        assert self._postgres is not None
        where = ("-h", "127.0.0.1", "-p", str(self._postgres.port), "-U", "shuffler")
        name = ("postgres",) if database else ()
        subprocess.run([self._postgres.binary(program), *where, *options, *name], check=True, capture_output=True)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_an_analyzer_is_backed_up_and_restored(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, rounds=3)
    store = Store(tmp_path, request.getfixturevalue("postgres") if kind == "postgres" else None)
    tables = open_tables(store.address, deployment.task)

    def rounds() -> list[int]:
        return [batch.round_number for batch in tables.counted()]

    with (
        deployment.analyzer("--processes", "1", store=store.address) as analyzer,
        deployment.shuffler(analyzer.url) as shuffler,
    ):
        contribute(deployment, shuffler, 1)
        wait_until(lambda: rounds() == [1])
        first = fetch_estimate(deployment.task, analyzer.url)
        store.back_up()
        contribute(deployment, shuffler, 2)
        wait_until(lambda: rounds() == [1, 2])
        assert analyzer.stop() == 0
        store.restore()
        analyzer.start()
        assert rounds() == [1]  # the second is lost, and nobody pretends otherwise
        assert fetch_estimate(deployment.task, analyzer.url) == first
        (batch_id,) = tables.batch_ids()
        path = f"/tasks/{deployment.task.id}/batches/{batch_id}?round=1&users={USERS}"
        again = analyzer.request("POST", path, bytes(USERS * SEALED_BYTES), headers=deployment.bearer)
        assert again.json["answer"] == "repeated"
        contribute(deployment, shuffler, 3)
        wait_until(lambda: rounds() == [1, 3])
        assert fetch_estimate(deployment.task, analyzer.url, round_number=1)["rounds"] == first["rounds"]


def test_a_journal_that_was_left_behind_is_not_played_back_into_a_restored_store(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, rounds=8)
    store = Store(tmp_path, None)
    tables = open_tables(store.address, deployment.task)

    def count(first: int, last: int) -> None:
        for number in range(first, last + 1):
            table = np.arange(deployment.plan.cells)
            tables.record(CountedBatch(number, f"{number:032x}", USERS, 0, 0, 0, table))

    count(1, 2)
    store.back_up()
    count(3, 8)
    store.die_while_writing()
    left = store.journal.read_bytes()
    store.restore()
    assert len(tables.counted()) == 2
    assert "rm -f /var/lib/shufflesum-analyzer/tables.db-journal\ninstall" in PAGE
    store.journal.write_bytes(left)
    with pytest.raises((StoreError, AssertionError)):  # this is what the page says, and why
        assert len(tables.counted()) == 2


def test_a_shufflers_store_is_moved(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS)
    uploads = [fake_upload(deployment.task) for _ in range(USERS)]
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    with StandInAnalyzer() as analyzer:
        with deployment.shuffler(analyzer.url, store=f"sqlite:{old}/uploads.db") as server:
            for upload in uploads[:-1]:
                assert server.upload(upload).status == 201
            assert server.stop() == 0
        assert {path.name for path in old.iterdir()} == {"uploads.db", "uploads.db.lock"}
        (old / "uploads.db").rename(new / "uploads.db")
        with deployment.shuffler(analyzer.url, store=f"sqlite:{new}/uploads.db") as server:
            assert server.upload(uploads[0]).problem == "repeated"
            assert server.upload(uploads[-1]).status == 201
            (batch,) = analyzer.wait_for(1)
    assert sorted(batch.reports) == sorted(upload.sealed for upload in uploads)


class Standby(Postgres):
    """A synchronous standby of another PostgreSQL, made as the page says."""

    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        super().__init__()

    def _make(self) -> None:
        source = f"host=127.0.0.1 port={self._primary.port} user=shuffler application_name=standby"
        basebackup = (self.binary("pg_basebackup"), f"--pgdata={self._data}", "--write-recovery-conf")
        self._run([*basebackup, "--checkpoint=fast", f"--dbname={source}"])

    def promote(self) -> None:
        self._run([self.binary("pg_ctl"), "promote", "-D", str(self._data), "--wait"])


@pytest.mark.slow
def test_a_synchronous_standby_takes_over_with_every_acknowledged_upload(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=2 * USERS)
    uploads = [fake_upload(deployment.task) for _ in range(2 * USERS)]
    with Postgres() as primary, Standby(primary) as standby, StandInAnalyzer() as analyzer:
        with psycopg.connect(primary.address, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (standby)'")
            connection.execute("SELECT pg_reload_conf()")
            state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('quorum', 'sync')"
            wait_until(lambda: connection.execute(state).fetchone() == (1,))
        both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        store = f"postgresql://shuffler@{both}/postgres?target_session_attrs=read-write"
        with deployment.shuffler(analyzer.url, store=store) as server:
            for upload in uploads[:USERS]:
                assert server.upload(upload).status == 201
            primary.stop()
            assert server.upload(uploads[USERS]).problem == "store-unavailable"
            standby.promote()
            with psycopg.connect(standby.address, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
                connection.execute("SELECT pg_reload_conf()")
            wait_until(lambda: server.upload(uploads[USERS]).status in (201, 409))
            assert [server.upload(upload).problem for upload in uploads[: USERS + 1]] == ["repeated"] * (USERS + 1)
            for upload in uploads[USERS + 1 :]:
                assert server.upload(upload).status == 201
            (batch,) = analyzer.wait_for(1)
    assert sorted(batch.reports) == sorted(upload.sealed for upload in uploads)
