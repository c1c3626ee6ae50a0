"""A store in PostgreSQL; the shuffler's has a schema of its own.

Tables are dropped files and all, and the upload ids of a round that stay are written sorted and in one transaction, so
that neither place nor transaction id of a row tells when in the round it came. The server's own write-ahead log keeps
changes for a while, as its administrator has set it up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import SQLAlchemyError

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.service.stores.database import Database, StoreError, Usage, driver

try:
    import psycopg
except ImportError as error:
    raise MissingExtraError(
        "missing-extra", "a PostgreSQL store needs psycopg: pip install 'shufflesum[service]'"
    ) from error


_CONNECT_SECONDS, _LOCK_SECONDS = 5, 5
# A connection that broke unnoticed gives way to the next one within a minute, not within hours.
_KEEPALIVES = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 5, "tcp_keepalives_count": 5}

_REASONS = {
    "password": "user or password refused",
    "does not exist": "no such database or user",
    "connection refused": "connection refused",
    "host name": "unknown host name",
    "timeout": "no answer in time",
    "no space left": "its disk is full",
}


class PostgresDatabase(Database):
    """The database at `address`, and there the schema of that name, or the user's own."""

    shared, insert_if_new = True, staticmethod(insert)
    failures = (SQLAlchemyError, psycopg.Error, OSError)
    where, folder = "in PostgreSQL", None

    def __init__(self, address: str, schema: str | None = None) -> None:
        try:
            psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.Error:
            raise ParameterError(  # without quoting it: it may hold a password
                "wrong-type", "the address of the store is not understood; write postgresql://user@host:port/database"
            ) from None
        super().__init__("postgresql+psycopg")
        self._address = address
        self._schema = schema

    def _driver_connection(self) -> psycopg.Connection:
        connection = psycopg.connect(
            self._address,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            tcp_user_timeout=10_000,
            client_encoding="utf8",  # a database in the C locale would else answer text as bytes
            application_name="shufflesum",
        )
        try:
            if connection.execute("SHOW fsync").fetchone() != ("on",):
                raise StoreError(
                    "store-unavailable",
                    "the database runs with fsync off and would lose what it has acknowledged; set fsync = on",
                )
            connection.execute("SET synchronous_commit = on")
            # Whoever reads all tables, as a backup does, must not keep others waiting.
            connection.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")
            for name, value in _KEEPALIVES.items():
                connection.execute(f"SET {name} = {value}")
            if self._schema is not None:
                connection.execute(f"SET search_path TO {self._schema}")
        except BaseException:
            connection.close()
            raise
        return connection

    def connect_alone(self, task: str) -> Connection:
        """Lock the task, and make the schema where it is new; see `Database.connect_alone`."""
        connection = self.connect()
        try:
            query = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
            name = f"{self._schema}_{task[:32]}"
            if not connection.exec_driver_sql(query, (name,)).scalar():
                raise StoreError("in-use", f"another server uses the store {name}; stop that one first")
            connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
        except BaseException:
            self.close(connection)
            raise
        return connection

    @contextlib.contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One transaction."""
        with driver(connection).transaction():
            yield

    def append(self, connection: Connection, table: Table, values: Sequence[bytes]) -> None:
        """Add rows of one value each to a table."""
        if values:
            with driver(connection).cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(["bytea"])
                for value in values:
                    copy.write_row((value,))

    def pieces(self, connection: Connection, table: Table, rows: int) -> Iterator[list[bytes]]:
        """The values of a table as they came, so many at a time."""
        with self.transaction(connection), driver(connection).cursor("pieces", binary=True) as reading:
            reading.execute(f"SELECT * FROM {table}")
            while found := reading.fetchmany(rows):
                yield [value for (value,) in found]

    def usage(self, connection: Connection, tables: Sequence[str]) -> Usage:
        """What tables take; a database does not say how much its disk still has."""
        query = (
            "SELECT coalesce(sum(pg_total_relation_size(name::regclass)), 0)::bigint FROM unnest(%s::text[]) AS name"
        )
        return Usage(connection.exec_driver_sql(query, (list(tables),)).scalar_one(), None)

    def why(self, error: Exception) -> str:
        """A reason in our words; never the driver's own message, which may quote the address and its password."""
        text = str(error).lower()
        known = next((reason for words, reason in _REASONS.items() if words in text), None)
        return known or " ".join(filter(None, (type(error).__name__, getattr(error, "sqlstate", None))))

    def close(self, connection: Connection) -> None:
        """End a connection, and give up its locks at once: the database ends a connection in its own time."""
        with contextlib.suppress(*self.failures):
            connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
        super().close(connection)
