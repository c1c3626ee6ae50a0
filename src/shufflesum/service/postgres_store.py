"""The shuffler's store in PostgreSQL, in a schema of its own for each task.

Each round has tables of its own, which are dropped as a whole, files and all. The upload ids that stay are copied, in
the order of the (random) ids and in one transaction, to a new table: neither place nor transaction id of a row tells
when it came. The server's own write-ahead log keeps changes for a while, as its administrator has set it up.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.service.store import Batch, Entry, Outcome, Status, StoreError, decide
from shufflesum.wire import Task

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise MissingExtraError("a PostgreSQL store needs psycopg: pip install 'shufflesum[service]'") from error

__all__ = ["PostgresStore"]

_ROWS = 4096  # uploads read at a time

Cursor = psycopg.Cursor[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore:
    """A store in the database at `address`, made for this task at first use; one server at a time may use it.

    Nothing is connected until the first call, so a server can start before its database.
    """

    def __init__(self, address: str, task: Task) -> None:
        try:
            psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.Error:
            raise ParameterError(
                "the --store address is not understood; write postgresql://user@host:port/database"
            ) from None
        self._address = address
        self._task = task
        self._schema = f"shufflesum_{task.id[:32]}"
        self._mutex = threading.RLock()
        self._connection: Connection | None = None

    def _connect(self) -> Connection:
        # A database in the C locale would answer text as bytes, were no encoding asked for.
        connection = psycopg.connect(
            self._address,
            autocommit=True,
            connect_timeout=5,
            tcp_user_timeout=10_000,
            client_encoding="utf8",
            application_name="shufflesum",
        )
        try:
            # Rows must come in the same order at every reading, and a commit must mean that it is on disk.
            connection.execute("SET synchronize_seqscans = off")
            connection.execute("SET synchronous_commit = on")
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Be the only server on this schema, and make its tables where there are none."""
        ((fsync,),) = connection.execute("SHOW fsync").fetchall()
        if fsync != "on":
            raise StoreError("the database runs with fsync off and would lose uploads; set fsync = on")
        key = int.from_bytes(bytes.fromhex(self._task.id[:16]), signed=True)
        ((locked,),) = connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchall()
        if not locked:
            raise StoreError(f"another server uses the store of task {self._task.id[:12]}; stop that one first")
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            ((there,),) = cursor.execute("SELECT to_regclass('seen') IS NOT NULL").fetchall()
            if not there:
                cursor.execute("CREATE TABLE seen (id bytea PRIMARY KEY)")
                cursor.execute(
                    "CREATE TABLE round (number integer PRIMARY KEY, users bigint NOT NULL, state text NOT NULL, "
                    "batch_id text)"
                )
                _open_round(cursor, 1)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Cursor]:
        """One transaction, for one thread at a time; after any failure the database is connected afresh."""
        with self._mutex:
            try:
                if self._connection is None:
                    connection = self._connect()
                    try:
                        self._prepare(connection)
                    except BaseException:
                        connection.close()
                        raise
                    self._connection = connection
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                self._disconnect()
                raise _unavailable(error) from error

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def add(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Store uploads; see `Store.add`."""
        with self._transaction() as cursor:
            number, _ = _open_state(cursor)
            ids = [entry.upload_id for entry in entries]
            known = {row[0] for row in cursor.execute("SELECT id FROM seen WHERE id = ANY(%s)", (ids,))}
            tokens = [entry.token for entry in entries if entry.token is not None]
            spent: set[bytes] = set()
            if number is not None and tokens:
                query = sql.SQL("SELECT digest FROM {} WHERE digest = ANY(%s)").format(_table("spent", number))
                spent = {row[0] for row in cursor.execute(query, (tokens,))}
            outcomes = decide(entries, number, known, spent)
            stored = [entry for entry, outcome in zip(entries, outcomes, strict=True) if outcome is Outcome.STORED]
            if stored and number is not None:
                paid = [entry.token for entry in stored if entry.token is not None]
                _copy(cursor, sql.Identifier("seen"), [entry.upload_id for entry in stored])
                _copy(cursor, _table("upload", number), [entry.sealed for entry in stored])
                if paid:
                    _copy(cursor, _table("spent", number), paid)
                cursor.execute("UPDATE round SET users = users + %s WHERE number = %s", (len(stored), number))
        return outcomes

    def status(self) -> Status:
        """Where the task stands."""
        with self._transaction() as cursor:
            number, users = _open_state(cursor)
            ((released,),) = cursor.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchall()
        return Status(number, users, released)

    def close_round(self, smallest: int) -> Batch | None:
        """Fix a batch; see `Store.close_round`."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._transaction() as cursor:
            number, users = _open_state(cursor)
            if number is None or users < smallest or _pending(cursor) is not None:
                return None
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute(
                "UPDATE round SET state = 'fixed', batch_id = %s WHERE number = %s", (batch.batch_id, number)
            )
            if number < self._task.rounds:
                _open_round(cursor, number + 1)
        return batch

    def pending(self) -> Batch | None:
        """The batch that waits to be acknowledged."""
        with self._transaction() as cursor:
            return _pending(cursor)

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports; see `Store.sealed`."""
        query = sql.SQL("SELECT sealed FROM {}").format(_table("upload", batch.round_number))
        try:
            with (
                contextlib.closing(self._connect()) as connection,
                connection.transaction(),
                connection.cursor("reports", binary=True) as cursor,
            ):
                cursor.execute(query)
                while rows := cursor.fetchmany(_ROWS):
                    yield b"".join(sealed for (sealed,) in rows)
        except psycopg.Error as error:
            raise _unavailable(error) from error

    def acknowledge(self, batch: Batch) -> None:
        """Delete a batch; see `Store.acknowledge`."""
        with self._transaction() as cursor:
            if _pending(cursor) != batch:
                return
            _drop_round(cursor, batch.round_number)
            cursor.execute("UPDATE round SET state = 'released' WHERE number = %s", (batch.round_number,))
            cursor.execute("CREATE TABLE sorted (id bytea PRIMARY KEY)")
            cursor.execute("INSERT INTO sorted SELECT id FROM seen ORDER BY id")
            cursor.execute("DROP TABLE seen")
            cursor.execute("ALTER TABLE sorted RENAME TO seen")
            cursor.execute("ALTER INDEX sorted_pkey RENAME TO seen_pkey")

    def forget(self) -> None:
        """Delete everything; see `Store.forget`."""
        with self._transaction() as cursor:
            number, _ = _open_state(cursor)
            if number is not None:
                _drop_round(cursor, number)
                cursor.execute("UPDATE round SET state = 'expired', users = 0 WHERE number = %s", (number,))
            cursor.execute("TRUNCATE seen")

    def tidy(self) -> None:
        """Nothing is left over: PostgreSQL removes dropped tables with the transaction."""

    def close(self) -> None:
        """Let go of the connection, and with it of the right to be the only server."""
        with self._mutex:
            self._disconnect()


def _unavailable(error: psycopg.Error) -> StoreError:
    # Only the kind: messages of the driver may quote the address with its password.
    return StoreError(f"the database cannot be used now ({type(error).__name__} {error.sqlstate or ''})")


def _table(kind: str, number: int) -> sql.Identifier:
    return sql.Identifier(f"{kind}_{number:d}")


def _copy(cursor: Cursor, table: sql.Identifier, values: Sequence[bytes]) -> None:
    with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(table)) as copy:
        copy.set_types(["bytea"])
        for value in values:
            copy.write_row((value,))


def _open_round(cursor: Cursor, number: int) -> None:
    cursor.execute(sql.SQL("CREATE TABLE {} (sealed bytea NOT NULL)").format(_table("upload", number)))
    cursor.execute(sql.SQL("CREATE TABLE {} (digest bytea PRIMARY KEY)").format(_table("spent", number)))
    cursor.execute("INSERT INTO round VALUES (%s, 0, 'open', NULL)", (number,))


def _drop_round(cursor: Cursor, number: int) -> None:
    cursor.execute(sql.SQL("DROP TABLE {}, {}").format(_table("upload", number), _table("spent", number)))


def _open_state(cursor: Cursor) -> tuple[int | None, int]:
    row = cursor.execute("SELECT number, users FROM round WHERE state = 'open'").fetchone()
    return (None, 0) if row is None else (row[0], row[1])


def _pending(cursor: Cursor) -> Batch | None:
    row = cursor.execute("SELECT batch_id, number, users FROM round WHERE state = 'fixed'").fetchone()
    return None if row is None else Batch(*row)
