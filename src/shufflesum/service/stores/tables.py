"""*Once*, at the analyzer: which batches it has counted, each with its table, written in one transaction.

A batch is either in here, whole and once, or not at all. No report is ever written down.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.service.logs import log
from shufflesum.service.stores.store import PROBE_BYTES, StoreError, Usage, WrongStoreError, sqlite_path, usage_of_file
from shufflesum.wire import Task

FORMAT = "shufflesum_tables_3"  # the table's name in the database; those of other versions are refused

_COLUMNS = "round, batch, users, blanks, rejected, unreadable, counts"
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {FORMAT} (task TEXT NOT NULL, round INTEGER NOT NULL, batch TEXT NOT NULL, "
    "users BIGINT NOT NULL, blanks BIGINT NOT NULL, rejected BIGINT NOT NULL, unreadable BIGINT NOT NULL, "
    "counts {binary} NOT NULL, "
    "PRIMARY KEY (task, round), UNIQUE (task, batch))"
)
_LOCK_SECONDS = 5
_MOST_PROBED = 1 << 20


class WrongBatchError(ShufflesumError):
    """A batch contradicts one that was counted: each round has one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedBatch:
    """A batch after counting: its users as the shuffler counted them, blank and rejected reports, and the table.

    Of the rejected reports the unreadable ones could not be opened; the others name no cell of the plan.
    """

    round_number: int
    batch_id: str
    users: int
    blanks: int
    rejected: int
    unreadable: int
    table: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Database:
    where: str
    connect: Callable[[], Any]
    failures: tuple[type[Exception], ...]
    why: Callable[[Exception], str]
    mark: str  # how it writes a parameter
    binary: str  # its type for bytes
    names: str  # the query for its tables
    size: str | None = None  # the query for their size; None where they are a file


class BatchStore:
    """The tables of one task in SQLite or PostgreSQL.

    Calls are rare (a batch, a question), so each opens a connection of its own: after an outage the next call works
    again without help. Every method raises StoreError where the store is out of reach.
    """

    def __init__(self, task: Task, database: _Database) -> None:
        self._task = task
        self._database = database
        self._mark = database.mark
        self._made = False

    def record(self, counted: CountedBatch) -> bool:
        """Keep a counted batch, durably; False if it was kept before, `WrongBatchError` as for `is_counted`."""
        values = (
            *(self._task.id, counted.round_number, counted.batch_id),
            *(counted.users, counted.blanks, counted.rejected, counted.unreadable),
        )
        with self._transaction() as connection:
            added = connection.execute(
                f"INSERT INTO {FORMAT} (task, {_COLUMNS}) VALUES ({', '.join([self._mark] * 8)}) "
                "ON CONFLICT DO NOTHING",
                (*values, counted.table.astype("<i8").tobytes()),
            ).rowcount
        if not added:
            self.is_counted(counted.batch_id, counted.round_number)
        return bool(added)

    def is_counted(self, batch_id: str, round_number: int) -> bool:
        """Whether a batch is here already.

        Another batch for the same round, or the same batch for another round, is a `WrongBatchError`.
        """
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT batch, round FROM {FORMAT} WHERE task = {self._mark} "
                f"AND (batch = {self._mark} OR round = {self._mark})",
                (self._task.id, batch_id, round_number),
            ).fetchall()
        for known_batch, known_round in rows:
            if (known_batch, known_round) != (batch_id, round_number):
                raise WrongBatchError(
                    "wrong-batch",
                    f"batch {batch_id} for round {round_number}; round {known_round} already has batch {known_batch}: "
                    "each round is released once",
                )
        return bool(rows)

    def batch_ids(self) -> list[str]:
        """The ids of all batches counted so far, by round."""
        query = f"SELECT batch FROM {FORMAT} WHERE task = {self._mark} ORDER BY round"
        with self._transaction() as connection:
            return [batch for (batch,) in connection.execute(query, (self._task.id,)).fetchall()]

    def counted(self) -> list[CountedBatch]:
        """All batches counted so far, by round."""
        with self._transaction() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM {FORMAT} WHERE task = {self._mark} ORDER BY round", (self._task.id,)
            ).fetchall()
        return [CountedBatch(*(*figures, np.frombuffer(counts, "<i8").astype(np.int64))) for *figures, counts in rows]

    def usage(self) -> Usage:
        """What the tables take, of all tasks in this store, and what is free where they lie."""
        if self._database.size is None:
            return usage_of_file(Path(self._database.where))
        with self._transaction() as connection:
            ((used,),) = connection.execute(self._database.size).fetchall()
        return Usage(int(used), None)

    def check(self) -> None:
        """Raise StoreError where a table could not be kept now; found out by writing as much, up to a megabyte.

        What is written to is new each time, and needs room of its own.
        """
        probe = secrets.token_bytes(min(8 * self._task.plan.cells, _MOST_PROBED) + PROBE_BYTES)
        with self._transaction() as connection:
            connection.execute(f"CREATE TABLE shufflesum_probe (counts {self._database.binary} NOT NULL)")
            connection.execute(f"INSERT INTO shufflesum_probe VALUES ({self._mark})", (probe,))
            connection.execute("DROP TABLE shufflesum_probe")
            connection.execute(f"SELECT 1 FROM {FORMAT} LIMIT 1").fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with closing(self._database.connect()) as connection, connection:
                if not self._made:
                    self._refuse_other_formats(connection)
                    connection.execute(_CREATE.format(binary=self._database.binary))
                yield connection
            self._made = True
        except self._database.failures as error:
            why = self._database.why(error)
            raise StoreError(
                "store-unavailable",
                f"the analyzer's store {self._database.where} cannot be used ({why}); nothing was kept: see "
                "that it can be reached and written to, then try again",
            ) from error

    def _refuse_other_formats(self, connection: Any) -> None:
        names = {name for (name,) in connection.execute(self._database.names).fetchall()}
        if other := sorted(name for name in names - {FORMAT} if name.startswith("shufflesum_")):
            raise WrongStoreError(
                "format-mismatch",
                f"the analyzer's store {self._database.where} was made by another version of shufflesum ({other[0]}; "
                f"this one reads {FORMAT}); read older estimates with that version, and give this one a --store of its "
                "own",
            )


def open_tables(address: str, task: Task) -> BatchStore:
    """The tables at `sqlite:PATH` or `postgresql://...`, made where they are new; they may be out of reach for now."""
    path = sqlite_path(address)
    store = BatchStore(task, _postgres(address) if path is None else _sqlite(Path(path)))
    try:
        store.check()
    except WrongStoreError:
        raise
    except StoreError as error:
        if getattr(error.__cause__, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise
        log.warning("store unavailable, will be tried again", error=str(error))
    return store


def _sqlite(path: Path) -> _Database:
    # Made here and never again: tables that vanished must not be replaced by an empty file that knows of none.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise FileError(
            "unwritable", f"the analyzer's store {path} cannot be made: {error.strerror}; choose another --store"
        ) from error
    address = f"file:{quote(str(path.absolute()))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(address, uri=True, timeout=_LOCK_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = EXTRA")  # the folder's entry of the journal too, before we say yes
            connection.execute("BEGIN IMMEDIATE")  # a new table is part of the transaction, too
        except BaseException:
            connection.close()
            raise
        return connection

    with suppress(sqlite3.Error), closing(connect()) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'round'").fetchone():
            raise ParameterError(
                "store-mismatch", f"{path} is a shuffler's store; give the analyzer a --store of its own"
            )
    names = "SELECT name FROM sqlite_master WHERE type = 'table'"
    return _Database(str(path), connect, (sqlite3.Error,), str, "?", "BLOB", names)


def _postgres(address: str) -> _Database:
    from shufflesum.service.stores.postgres import check_conninfo, connect, why_unavailable  # isort: skip; says which extra is missing
    from psycopg import Error

    check_conninfo(address)
    return _Database(
        "in PostgreSQL",
        lambda: connect(address, autocommit=False),
        (Error, OSError),
        why_unavailable,
        "%s",
        "BYTEA",
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
        f"SELECT pg_total_relation_size('{FORMAT}')",
    )
