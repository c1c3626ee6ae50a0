from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from tests.refusals import refusal
from tests.service.analyzer.analyzer_in_thread import (
    TASK,
    USERS,
)
from tests.service.postgres import Postgres

from shufflesum.errors import FileError
from shufflesum.service.stores.database import StoreError, WrongStoreError
from shufflesum.service.stores.store import open_store
from shufflesum.service.stores.tables import BatchStore, CountedBatch, WrongBatchError, open_tables


@pytest.fixture(params=["sqlite", "postgresql"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty store; both kinds must behave alike."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/analyzer.sqlite"
    database: Postgres = request.getfixturevalue("postgres")
    with psycopg.connect(database.address) as connection:
        connection.execute("DROP TABLE IF EXISTS shufflesum_tables_3")
    return database.address


@pytest.fixture
def tables(address: str) -> BatchStore:
    return open_tables(address, TASK)


def counted(round_number: int = 1, batch_id: str = "ab" * 16, number: int = 1) -> CountedBatch:
    return CountedBatch(round_number, batch_id, USERS, 2, 3, 1, np.arange(44) * number)


def content(batches: list[CountedBatch]) -> list[Any]:
    return [
        (b.round_number, b.batch_id, b.users, b.blanks, b.rejected, b.unreadable, b.table.tolist()) for b in batches
    ]


def test_a_batch_is_kept_whole_and_once(tables: BatchStore, address: str) -> None:
    assert not tables.is_counted("ab" * 16, 1)
    assert tables.record(counted())
    assert not tables.record(counted(number=2))  # the first one stands
    for store in (tables, open_tables(address, TASK)):
        assert store.is_counted("ab" * 16, 1)
        assert store.batch_ids() == ["ab" * 16]
        assert content(store.counted()) == content([counted()])


def test_each_round_has_one_batch_and_each_batch_one_round(tables: BatchStore) -> None:
    tables.record(counted())
    for batch_id, round_number in (("cd" * 16, 1), ("ab" * 16, 2)):
        with refusal("wrong-batch", error=WrongBatchError):
            tables.is_counted(batch_id, round_number)
        with pytest.raises(WrongBatchError):
            tables.record(counted(round_number, batch_id))
    assert tables.record(counted(2, "cd" * 16, 5))
    assert content(tables.counted()) == content([counted(), counted(2, "cd" * 16, 5)])


def test_two_tasks_share_one_store_without_meeting(tables: BatchStore, address: str) -> None:
    tables.record(counted())
    other = open_tables(address, replace(TASK, name="other"))
    assert other.counted() == []
    assert other.record(counted())


def test_a_server_may_start_before_its_database(postgres: Postgres) -> None:
    task = replace(TASK, name="before its database")
    postgres.stop()
    try:
        tables = open_tables(postgres.address, task)
        with refusal("store-unavailable", error=StoreError):
            tables.check()
    finally:
        postgres.start()
    tables.check()
    assert tables.counted() == []


def test_a_shufflers_store_is_not_taken_for_the_analyzers(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store.db'}"
    open_store(address, TASK).close()
    before = (tmp_path / "store.db").read_bytes()
    with refusal("store-mismatch", "store.db", error=WrongStoreError):
        open_tables(address, TASK)
    assert (tmp_path / "store.db").read_bytes() == before
    with refusal("unwritable", error=FileError):
        open_tables(f"sqlite:{tmp_path}/no/such/file", TASK)


def test_a_store_of_another_version_is_refused(address: str) -> None:
    """Called shufflesum_results once; then it did not know blanks, then not the kinds of rejected reports."""
    for name in ("shufflesum_results", "shufflesum_tables_1", "shufflesum_tables_2", "shufflesum_tables_4"):
        other = connect(address)
        with contextlib.closing(other), other:
            other.execute(f"CREATE TABLE {name} (task TEXT)")
        with refusal("format-mismatch", str(name), "shufflesum_tables_3", error=WrongStoreError):
            open_tables(address, TASK)
        other = connect(address)
        with contextlib.closing(other), other:
            other.execute(f"DROP TABLE {name}")
    open_tables(address, TASK)


def connect(address: str) -> Any:
    return sqlite3.connect(address.removeprefix("sqlite:")) if "sqlite" in address else psycopg.connect(address)


def test_tables_that_vanished_are_not_replaced_by_an_empty_file(tmp_path: Path) -> None:
    tables = open_tables(f"sqlite:{tmp_path / 'tables'}", TASK)
    (tmp_path / "tables").rename(tmp_path / "away")
    with refusal("store-unavailable", error=StoreError):
        tables.check()
    assert not (tmp_path / "tables").exists()
