"""What an analyzer keeps: for each round the table of counts, written in one transaction with its batch's id.

A batch is either in here, whole and once, or not at all. No report is ever written down.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import FileError, ParameterError
from shufflesum.service.http.problems import Refusal
from shufflesum.service.stores.store import StoreError, sqlite_path
from shufflesum.wire import Task

__all__ = ["Result", "ResultStore", "open_results"]

_COLUMNS = "round, batch, users, rejected, counts"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS shufflesum_results (task TEXT NOT NULL, round INTEGER NOT NULL, batch TEXT NOT NULL, "
    "users BIGINT NOT NULL, rejected BIGINT NOT NULL, counts {binary} NOT NULL, "
    "PRIMARY KEY (task, round), UNIQUE (task, batch))"
)
_LOCK_SECONDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """What came of one batch: its users as the shuffler counted them, rejected reports, and the table of counts."""

    round_number: int
    batch_id: str
    users: int
    rejected: int
    table: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Database:
    where: str
    connect: Callable[[], Any]
    failures: tuple[type[Exception], ...]
    why: Callable[[Exception], str]
    mark: str  # how it writes a parameter
    binary: str  # its type for bytes


class ResultStore:
    """The results of one task in SQLite or PostgreSQL.

    Calls are rare (a batch, a question), so each opens a connection of its own: after an outage the next call works
    again without help. Every method raises StoreError where the store is out of reach.
    """

    def __init__(self, task: Task, database: _Database) -> None:
        self._task = task
        self._database = database
        self._mark = database.mark
        self._made = False

    def record(self, result: Result) -> bool:
        """Keep a batch's result, durably; False if this batch was kept before.

        Another batch for the same round, or the same batch for another round, is refused as `wrong-batch`.
        """
        values = (self._task.id, result.round_number, result.batch_id, result.users, result.rejected)
        with self._transaction() as connection:
            added = connection.execute(
                f"INSERT INTO shufflesum_results (task, {_COLUMNS}) VALUES ({', '.join([self._mark] * 6)}) "
                "ON CONFLICT DO NOTHING",
                (*values, result.table.astype("<i8").tobytes()),
            ).rowcount
        if not added:
            self.is_new(result.batch_id, result.round_number)  # refuses what contradicts it
        return bool(added)

    def is_new(self, batch_id: str, round_number: int) -> bool:
        """Whether a batch is not known yet; refuses one that contradicts a known one."""
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT batch, round FROM shufflesum_results WHERE task = {self._mark} "
                f"AND (batch = {self._mark} OR round = {self._mark})",
                (self._task.id, batch_id, round_number),
            ).fetchall()
        for known_batch, known_round in rows:
            if (known_batch, known_round) != (batch_id, round_number):
                raise Refusal(
                    "wrong-batch",
                    f"batch {batch_id} for round {round_number}; round {known_round} already has batch {known_batch}: "
                    "each round is released once",
                )
        return not rows

    def batches(self) -> list[str]:
        """The ids of all batches so far, by round."""
        query = f"SELECT batch FROM shufflesum_results WHERE task = {self._mark} ORDER BY round"
        with self._transaction() as connection:
            return [batch for (batch,) in connection.execute(query, (self._task.id,)).fetchall()]

    def results(self) -> list[Result]:
        """All results so far, by round."""
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM shufflesum_results WHERE task = {self._mark} ORDER BY round", (self._task.id,)
            ).fetchall()
        shape = (self._task.plan.dimension, self._task.plan.levels + 1)
        return [
            Result(round_number, batch, users, rejected, np.frombuffer(counts, "<i8").astype(np.int64).reshape(shape))
            for round_number, batch, users, rejected, counts in rows
        ]

    def check(self) -> None:
        """Raise StoreError if the store cannot be used now."""
        with self._transaction() as connection:
            connection.execute("SELECT 1 FROM shufflesum_results LIMIT 1").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with closing(self._database.connect()) as connection, connection:
                if not self._made:
                    connection.execute(_TABLE.format(binary=self._database.binary))
                yield connection
            self._made = True
        except self._database.failures as error:
            why = self._database.why(error)
            raise StoreError(
                f"the analyzer's store {self._database.where} cannot be used ({why}); nothing was kept: see "
                "that it can be reached and written to, then try again"
            ) from error


def open_results(address: str, task: Task) -> ResultStore:
    """The results at `sqlite:PATH` or `postgresql://...`, made where they are new.

    A file must be usable now; a database may be away for a while.
    """
    path = sqlite_path(address)
    if path is None:
        return ResultStore(task, _postgres(address))
    store = ResultStore(task, _sqlite(Path(path)))
    store.check()
    return store


def _sqlite(path: Path) -> _Database:
    # Made here and never again: results that vanished must not be replaced by an empty file that knows of none.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise FileError(
            f"the analyzer's store {path} cannot be made: {error.strerror}; choose another --store"
        ) from error
    address = f"file:{quote(str(path.absolute()))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True, timeout=_LOCK_SECONDS)
        connection.execute("PRAGMA synchronous = EXTRA")  # the folder's entry of the journal too, before we say yes
        return connection

    with suppress(sqlite3.Error), closing(connect()) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'round'").fetchone():
            raise ParameterError(f"{path} is a shuffler's store; give the analyzer a --store of its own")
    return _Database(str(path), connect, (sqlite3.Error,), str, "?", "BLOB")


def _postgres(address: str) -> _Database:
    from shufflesum.service.stores.postgres import check_conninfo, connect, why_unavailable  # isort: skip; says which extra is missing
    from psycopg import Error

    check_conninfo(address)
    failures = (Error, OSError)
    return _Database(
        "in PostgreSQL", lambda: connect(address, autocommit=False), failures, why_unavailable, "%s", "BYTEA"
    )
