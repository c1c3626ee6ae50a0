"""The shuffler's store in PostgreSQL, in a schema of its own for each task.

Tables are dropped files and all, and the upload ids of a round that stay are written sorted and in one transaction, so
that neither place nor transaction id of a row tells when in the round it came. The server's own write-ahead log keeps
changes for a while, as its administrator has set it up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.service.stores.store import Batch, SqlStore, StoreError, Usage
from shufflesum.wire import UPLOAD_ID_BYTES, Task

try:
    import psycopg
    from psycopg import sql
except ImportError as error:
    raise MissingExtraError(
        "missing-extra", "a PostgreSQL store needs psycopg: pip install 'shufflesum[service]'"
    ) from error


_CONNECT_SECONDS, _LOCK_SECONDS = 5, 5

_REASONS = {
    "password": "user or password refused",
    "does not exist": "no such database or user",
    "connection refused": "connection refused",
    "host name": "unknown host name",
    "timeout": "no answer in time",
    "no space left": "its disk is full",
}

Cursor = psycopg.Cursor[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]


def check_conninfo(address: str) -> None:
    """Refuse an address that PostgreSQL's own rules do not allow, without quoting it: it may hold a password."""
    try:
        psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error:
        raise ParameterError(
            "wrong-type", "the --store address is not understood; write postgresql://user@host:port/database"
        ) from None


def connect(address: str, *, autocommit: bool) -> Connection:
    """A connection whose commits are on disk, and that gives up within seconds where nothing answers."""
    connection = psycopg.connect(
        address,
        autocommit=autocommit,
        connect_timeout=_CONNECT_SECONDS,
        tcp_user_timeout=10_000,
        client_encoding="utf8",  # a database in the C locale would else answer text as bytes
        application_name="shufflesum",
    )
    try:
        ((fsync,),) = connection.execute("SHOW fsync").fetchall()
        if fsync != "on":
            raise StoreError(
                "store-unavailable",
                "the database runs with fsync off and would lose what it has acknowledged; set fsync = on",
            )
        connection.execute("SET synchronous_commit = on")
        # Whoever reads all tables, as a backup does, must not keep others waiting.
        connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
    except BaseException:
        connection.close()
        raise
    return connection


class PostgresStore(SqlStore):
    """A store in the database at `address`, made for this task at first use; one server at a time may use it.

    Nothing is connected until the first call, so a server can start before its database.
    """

    binary, mark = "bytea", "%s"
    owner_query = "SELECT owner FROM meta FOR SHARE"

    def __init__(self, address: str, task: Task, begin: Callable[[str], None] | None = None) -> None:
        check_conninfo(address)
        super().__init__(task, begin)
        self._address = address
        self._schema = f"shufflesum_{task.id[:32]}"
        self._connection: Connection | None = None

    def _connect(self) -> Connection:
        connection = connect(self._address, autocommit=True)
        try:
            # A connection that broke unnoticed gives way to the next one within a minute, not within hours.
            connection.execute("SET tcp_keepalives_idle = 30")
            connection.execute("SET tcp_keepalives_interval = 5")
            connection.execute("SET tcp_keepalives_count = 5")
            connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(self._schema)))
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Be the only server on this schema, and make its tables where there are none."""
        key = int.from_bytes(bytes.fromhex(self._task.id[:16]), signed=True)
        ((locked,),) = connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchall()
        if not locked:
            raise StoreError(
                "in-use", f"another server uses the store of task {self._task.id[:12]}; stop that one first"
            )
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            name = self._become_owner(cursor, f"schema {self._schema}")
        self._begin_as(name)

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
                        _let_go(connection)
                        raise
                    self._connection = connection
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                self._disconnect()
                raise _unavailable(error) from error

    _reading = _transaction

    def _disconnect(self) -> None:
        self._open = None  # while it is away, another server may use the store
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def _present(self, cursor: Cursor, table: str, keys: Sequence[bytes]) -> set[bytes]:
        query = sql.SQL("SELECT id FROM {} WHERE id = ANY(%s)").format(sql.Identifier(table))
        return {row[0] for row in cursor.execute(query, (list(keys),))}

    def _insert(self, cursor: Cursor, table: str, values: Sequence[bytes]) -> None:
        if values:
            with cursor.copy(sql.SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(sql.Identifier(table))) as copy:
                copy.set_types(["bytea"])
                for value in values:
                    copy.write_row((value,))

    folder = None

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports; see `Store.sealed`."""
        try:
            with contextlib.closing(self._connect()) as connection, connection.transaction():
                for rows in self._uploads(connection, batch.round_number):
                    yield b"".join(row[UPLOAD_ID_BYTES:] for row in rows)
        except psycopg.Error as error:
            raise _unavailable(error) from error

    def _uploads(self, cursor: Cursor | Connection, number: int) -> Iterator[list[bytes]]:
        connection = cursor if isinstance(cursor, psycopg.Connection) else cursor.connection
        query = sql.SQL("SELECT upload FROM {}").format(sql.Identifier(f"uploads_{number:d}"))
        with connection.cursor("uploads", binary=True) as reading:
            reading.execute(query)
            while rows := reading.fetchmany(self._rows_at_once()):
                yield [upload for (upload,) in rows]

    def _make_table(self, cursor: Cursor, table: str, column: str) -> None:
        cursor.execute(sql.SQL(f"CREATE TABLE {table} ({column})"))
        # Statistics quote values, which would stay in the catalogue when the table is dropped.
        name = column.split(maxsplit=1)[0]
        cursor.execute(sql.SQL(f"ALTER TABLE {table} ALTER COLUMN {name} SET STATISTICS 0"))
        cursor.execute(sql.SQL(f"ALTER TABLE {table} ALTER COLUMN {name} SET STORAGE EXTERNAL"))  # nothing to compress

    def _table_names(self, cursor: Cursor) -> list[str]:
        rows = cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (self._schema,)).fetchall()
        return [row[0] for row in rows]

    def _erase_dropped(self) -> bool:
        return True  # PostgreSQL removes the files of dropped tables with the transaction

    def usage(self) -> Usage:
        """What the task's tables take; a database does not say how much its disk still has."""
        query = "SELECT sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass))::bigint "
        query += "FROM pg_tables WHERE schemaname = %s"
        with self._reading() as cursor:
            row = cursor.execute(sql.SQL(query), (self._schema,)).fetchone()
        return Usage(0 if row is None or row[0] is None else int(row[0]), None)

    def close(self) -> None:
        """Let go of the connection, and with it of the right to be the only server."""
        with self._mutex:
            if self._connection is not None:
                _let_go(self._connection)
            self._disconnect()


def _let_go(connection: Connection) -> None:
    """Close a connection, and give up its locks at once: the database ends a connection in its own time."""
    with contextlib.suppress(psycopg.Error):
        connection.execute("SELECT pg_advisory_unlock_all()")
    connection.close()


def why_unavailable(error: BaseException) -> str:
    """Why the database cannot be used; never the driver's own message, which may quote the address and its password."""
    text = str(error).lower()
    known = next((reason for words, reason in _REASONS.items() if words in text), None)
    return known or " ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None))))


def _unavailable(error: psycopg.Error) -> StoreError:
    return StoreError("store-unavailable", f"the database cannot be used now ({why_unavailable(error)})")
