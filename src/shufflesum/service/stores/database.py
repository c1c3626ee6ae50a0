"""A database for either server, SQLite or PostgreSQL: one way to connect, change, measure and delete, and to fail.

What the two say differently is here and in `sqlite` and `postgres`; what is kept in them is in `store` and `tables`.
"""

from __future__ import annotations

import abc
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Column, Connection, LargeBinary, MetaData, Table, create_engine
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.pool import NullPool

from shufflesum.errors import ParameterError, ShufflesumError

_PROBE_BYTES = 1 << 14  # written beyond what is to be kept to see whether it can be: pages of tables and indexes
_PROBE = Table("shufflesum_probe", MetaData(), Column("bytes", LargeBinary, nullable=False))


class StoreError(ShufflesumError):
    """The store cannot be reached or cannot write now; nothing was acknowledged, and trying again is safe."""


class WrongStoreError(StoreError):
    """What is there belongs to another task, another version or somebody else; trying again will not help."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that a store takes, and bytes that are free where it lies; None where that cannot be seen from here."""

    used: int
    free: int | None


class Database(abc.ABC):
    """A SQLite file, or a schema of a PostgreSQL database. SQLAlchemy writes its tables and statements.

    Each statement that is in no `transaction` is one of its own. Uploads are written and read by the driver itself.
    """

    where: str  # for people; never an address, which may hold a password
    shared: bool  # whether shufflers of several tasks use it at the same time
    insert_if_new: Callable[[Table], SqliteInsert | PostgresInsert]
    failures: tuple[type[Exception], ...]  # what it raises
    folder: Path | None  # beside its files; None where they are on another machine

    def __init__(self, dialect: str) -> None:
        self._engine = create_engine(
            f"{dialect}://", creator=self._driver_connection, poolclass=NullPool, hide_parameters=True
        )

    def make(self) -> None:  # noqa: B027
        """Make the file that it is in, where there is none; never again once it was there."""

    @abc.abstractmethod
    def _driver_connection(self) -> Any:
        """A connection whose commits are on disk, and that gives up within seconds where nothing answers."""

    def connect(self) -> Connection:
        """A connection to it."""
        return self._engine.connect()

    @abc.abstractmethod
    def connect_alone(self, task: str) -> Connection:
        """Be the only server of a task on it, make it where it is new, and connect; StoreError where another is."""

    @abc.abstractmethod
    def transaction(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        """One durable transaction, or nothing of it."""

    @abc.abstractmethod
    def append(self, connection: Connection, table: Table, values: Sequence[bytes]) -> None:
        """Add rows of one value each to a table."""

    @abc.abstractmethod
    def pieces(self, connection: Connection, table: Table, rows: int) -> Iterator[list[bytes]]:
        """The values of a table of one column as they came, so many at a time."""

    @abc.abstractmethod
    def usage(self, connection: Connection, tables: Sequence[str]) -> Usage:
        """What these tables take, or the file that they are in."""

    @abc.abstractmethod
    def why(self, error: Exception) -> str:
        """Why it cannot be used; never a message that may quote an address and its password."""

    def prepared(self, connection: Connection) -> None:  # noqa: B027
        """Tables were made, or found, by the only server on it."""

    def erase_dropped(self, connection: Connection) -> bool:
        """Get rid of what dropped tables left in files; False where it has to be tried again."""
        return True

    def unmake(self) -> None:  # noqa: B027
        """Leave nothing of a file that was made just now, and refused before anybody could know of it."""

    def close(self, connection: Connection) -> None:
        """End a connection, and with it what it has locked."""
        with contextlib.suppress(*self.failures):
            connection.close()

    def let_go(self) -> None:  # noqa: B027
        """Let others be the only server."""

    def unavailable(self, error: Exception) -> StoreError:
        """What to say where the database cannot be used."""
        reason = self.why(of_driver(error))
        return StoreError(
            "store-unavailable",
            f"the store {self.where} cannot be used now ({reason}); nothing was kept: see that it can be "
            "reached and written to, then try again",
        )

    def probe(self, connection: Connection, size: int) -> None:
        """Write so many bytes and a little more into a table that is new each time, and so needs room of its own."""
        _PROBE.create(connection)
        self.append(connection, _PROBE, [secrets.token_bytes(size + _PROBE_BYTES)])
        _PROBE.drop(connection)


def driver(connection: Connection) -> Any:
    """The driver's own connection: for what its database alone has."""
    return connection.connection.driver_connection


def of_driver(error: Exception) -> Exception:
    """What the driver raised, where SQLAlchemy has put a message with the statement around it."""
    return getattr(error, "orig", None) or error


def open_database(address: str, schema: str | None = None) -> Database:
    """The database at `sqlite:PATH` or `postgresql://...`, there in a schema of its own where one is named."""
    path = sqlite_path(address)
    if path is not None:
        from shufflesum.service.stores.sqlite import SqliteDatabase

        return SqliteDatabase(path)
    from shufflesum.service.stores.postgres import PostgresDatabase

    return PostgresDatabase(address, schema)


def sqlite_path(address: str) -> str | None:
    """The path in `sqlite:PATH`, None for `postgresql://...`; any other address of a store is refused."""
    if address.startswith("sqlite:") and address != "sqlite:":
        return address.removeprefix("sqlite:")
    if urlsplit(address).scheme in ("postgresql", "postgres"):
        return None
    raise ParameterError(
        "unknown-choice",
        f"store {address.partition(':')[0][:40]!r} is not known; write sqlite:PATH or postgresql://user@host/database",
    )
