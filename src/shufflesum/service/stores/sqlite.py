"""A store in one SQLite file: nothing to set up, durable, and emptied after each release.

What is deleted is overwritten: by `secure_delete` in pages that stay, and by zeros in those that the file gives back.
Then what is left is written anew, so that the file is cut to it, and the write-ahead log, some megabytes, is cut to
nothing; blocks of the log are not overwritten. Temporary files are made in the folder of the store and nowhere else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Table
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import SQLAlchemyError

from shufflesum._machine import lock_file, sync
from shufflesum.service.stores.database import Database, StoreError, Usage, WrongStoreError, driver, of_driver

_BUSY_SECONDS = 5.0
_CACHE_KB = 16_384
_AT_ONCE = 256  # values in one statement
_PAGE_BYTES = 4096
_ZERO_PAGES = 4096  # overwritten at a time
_LOG_BYTES = 1000 * _PAGE_BYTES  # of the write-ahead log before it is written back and, if longer, cut


class SqliteDatabase(Database):
    """The file at `path`, readable by its owner only; the shuffler's has a write-ahead log, and one server at a time.

    It is made once: a file that vanished must not be replaced by an empty one that knows of nothing.
    """

    shared, insert_if_new = False, staticmethod(insert)
    failures = (SQLAlchemyError, sqlite3.Error, OSError)

    def __init__(self, path: str | Path) -> None:
        super().__init__("sqlite")
        self._path = Path(path).resolve()  # one store is one lock, by whatever name
        self.where, self.folder = str(self._path), self._path.parent
        self._file: tuple[int, int] | None = None  # which file it is, once it was found or made
        self._made = False
        self._lock: int | None = None
        self._with_log = False

    def make(self) -> None:
        """Make the file where there is none."""
        if self._file is None:
            self._made = not self._path.exists()
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            sync(self._path.parent)
            found = self._path.stat()
            self._file = (found.st_dev, found.st_ino)

    def connect_alone(self, task: str) -> Connection:
        """Hold PATH.lock, and connect; see `Database.connect_alone`."""
        if self._lock is None:
            self._lock = _held(self._path)
        self.make()
        connection = self.connect()
        if self._with_log:  # a deletion that failed may have left the file without it
            connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        return connection

    def prepared(self, connection: Connection) -> None:
        """Have a write-ahead log from now on."""
        connection.exec_driver_sql("PRAGMA journal_mode = WAL")  # the file remembers it
        self._with_log = True

    def unmake(self) -> None:
        """Remove a file that was made just now; see `Database.unmake`."""
        if self._made:
            self._file, self._with_log = None, False
            for ending in ("", "-wal", "-shm", ".lock"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _driver_connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_SECONDS,
            cached_statements=8 * _AT_ONCE,
        )
        try:
            self._refuse_if_gone()
            folder = str(self._path.parent).replace("'", "''")
            connection.execute(f"PRAGMA temp_store_directory = '{folder}'")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
            connection.execute("PRAGMA secure_delete = FAST")
            connection.execute("PRAGMA synchronous = EXTRA")  # the folder's entry of a journal too, before we say yes
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // _PAGE_BYTES}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def transaction(self, connection: Connection) -> Iterator[None]:
        """One transaction, that nobody else writes during."""
        with driver(connection) as within:
            within.execute("BEGIN IMMEDIATE")
            yield
            self._refuse_if_gone(with_log=self._with_log)

    def _refuse_if_gone(self, *, with_log: bool = False) -> None:
        """Refuse a file that has no name any more, and would end with this process, or that has become another."""
        try:
            found = self._path.stat()
            if with_log:
                os.stat(f"{self._path}-wal")
        except OSError as error:
            raise StoreError(
                "store-unavailable", f"the store {self._path} is gone: {error.strerror}; put it back"
            ) from error
        if (found.st_dev, found.st_ino) != self._file:
            raise StoreError(
                "store-mismatch", f"the store {self._path} was replaced by another file; put it back, or start afresh"
            )

    def append(self, connection: Connection, table: Table, values: Sequence[bytes]) -> None:
        """Add rows, many in one statement: each hands the interpreter to the server's other thread and back."""
        for start in range(0, len(values), _AT_ONCE):
            some = values[start : start + _AT_ONCE]
            driver(connection).execute(f"INSERT INTO {table} VALUES {', '.join(['(?)'] * len(some))}", some)

    def pieces(self, connection: Connection, table: Table, rows: int) -> Iterator[list[bytes]]:
        """The values of a table as they came, each piece in a reading of its own.

        While a reading is open, the write-ahead log only grows. A closed round does not change.
        """
        query = f"SELECT rowid, * FROM {table} WHERE rowid > ? ORDER BY rowid LIMIT ?"
        last = 0
        while found := driver(connection).execute(query, (last, rows)).fetchall():
            last = found[-1][0]
            yield [value for _, value in found]

    def erase_dropped(self, connection: Connection) -> bool:
        """Overwrite and give back what dropped tables left."""
        file = driver(connection)
        file.execute("DROP TABLE IF EXISTS zeros")  # of a server that was killed meanwhile
        if _free_pages(file):
            _overwrite_free_pages(file)
            file.execute("VACUUM")
        return _cut_log(file)

    def usage(self, connection: Connection, tables: Sequence[str]) -> Usage:
        """The size of the file with its log, and what is free beside it."""
        log = self._path.with_name(f"{self._path.name}-wal")
        used = sum(file.stat().st_size for file in (self._path, log) if file.exists())
        return Usage(used, shutil.disk_usage(self._path.parent).free)

    def unavailable(self, error: Exception) -> StoreError:
        """What to say where it cannot be used, or is no database."""
        if getattr(of_driver(error), "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            return WrongStoreError("store-mismatch", f"{self._path} is no store; give the server a store of its own")
        return super().unavailable(error)

    def why(self, error: Exception) -> str:
        """What the system or SQLite says."""
        return str(error.strerror if isinstance(error, OSError) else error)

    def let_go(self) -> None:
        """Let go of PATH.lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _free_pages(connection: sqlite3.Connection) -> int:
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(free)


def _overwrite_free_pages(connection: sqlite3.Connection) -> None:
    """Overwrite what was in pages that are free now, once, by a table of zeros that takes all of them and is dropped.

    `secure_delete = ON` would write every page of zeros to the write-ahead log as well. Without that log they are
    written to the file alone, and whoever is killed meanwhile harms nothing: what is free may hold anything.
    """
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("CREATE TABLE zeros (zeros BLOB NOT NULL)")
    while pages := min(_free_pages(connection), _ZERO_PAGES):
        connection.execute(f"INSERT INTO zeros VALUES (zeroblob({pages * _PAGE_BYTES}))")
    connection.execute("DROP TABLE zeros")
    connection.execute("PRAGMA journal_mode = WAL")


def _cut_log(connection: sqlite3.Connection) -> bool:
    """Write the write-ahead log back and cut it to nothing; False where somebody still reads it."""
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _held(path: Path) -> int:
    """Hold PATH.lock, so that no second shuffler releases the same batch; ends with this process, however it ends."""
    if (lock := lock_file(path.with_name(f"{path.name}.lock"))) is None:
        raise StoreError("in-use", f"another server uses the store {path}; stop that one first")
    return lock
