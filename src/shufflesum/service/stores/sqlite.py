"""The shuffler's store in one SQLite file: nothing to set up, durable, and emptied after each release.

After each deletion what is left is written anew, so that the file is cut to it, and the write-ahead log is cut to
nothing; `secure_delete` overwrites what was deleted in pages that stay. Blocks that the file gives back to the disk are
not overwritten. Temporary files are made in the folder of the store and nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from shufflesum._machine import lock_file, sync
from shufflesum.errors import FileError, ShufflesumError
from shufflesum.service.stores import store as stores
from shufflesum.service.stores.store import StoreError
from shufflesum.wire import UPLOAD_ID_BYTES, Task

_BUSY_SECONDS = 5.0
_CACHE_KB = 16_384
_AT_ONCE = 256  # values in one statement
_PAGE_BYTES = 4096
_LOG_BYTES = 1000 * _PAGE_BYTES  # of the write-ahead log before it is written back and, if longer, cut


class SqliteStore(stores.SqlStore):
    """A store in the file at `path`, which it makes for this task, readable by its owner only.

    One process at a time may use it; another one that opens it waits for the end of the first. Where the disk is full,
    it waits for room.
    """

    binary, mark = "BLOB", "?"
    owner_query = "SELECT owner FROM meta"

    def __init__(self, path: str | Path, task: Task, begin: Callable[[str], None] | None = None) -> None:
        super().__init__(task, begin)
        self._path = Path(path).resolve()  # one store is one lock, by whatever name
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # which file it is, once it was made
        self._lock: int | None = None
        self._closed = False
        try:
            with self._working():
                pass
            self._try_to_finish_deletion()
        except stores.WrongStoreError:
            self.close()
            raise
        except StoreError as error:
            reason = error.__cause__
            if isinstance(reason, OSError) and reason.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.close()
                raise FileError(
                    "unwritable",
                    f"the store {self._path} cannot be made: {reason.strerror}; choose another --store, on a disk "
                    "that has room and locks",
                ) from error

    def _reach(self) -> sqlite3.Connection:
        """Be the only server on this file, and make its tables where there are none."""
        if self._lock is None:
            self._lock = _held(self._path)
        new = not self._path.exists()
        if self._connection is None:
            if self._file is None:
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
                sync(self._path.parent)
            self._connection = self._connect()
        if self._file is None:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            name = self._become_owner(cursor, str(self._path))
            cursor.execute("COMMIT")
            self._connection.execute("PRAGMA journal_mode = WAL")  # the file remembers it
            try:
                self._begin_as(name)
            except stores.WrongStoreError:
                if new:
                    self._unmake()
                raise
            found = self._path.stat()
            self._file = (found.st_dev, found.st_ino)
        return self._connection

    def _unmake(self) -> None:
        """Leave nothing of a store that was made just now, and refused before anybody could know of it."""
        self._disconnect()
        for ending in ("", "-wal", "-shm", ".lock"):
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a store that vanished must not be replaced by an empty one that knows of no upload.
        address = f"file:{quote(str(self._path))}?mode=rw"
        connection = sqlite3.connect(
            address,
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
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_BYTES // _PAGE_BYTES}")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _working(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; after any failure it is opened afresh."""
        with self._mutex:
            if self._closed:
                raise StoreError("store-unavailable", f"the store {self._path} was closed; open it again")
            try:
                yield self._reach()
            except BaseException as error:
                self._disconnect()
                if isinstance(error, sqlite3.Error | OSError) and not isinstance(error, ShufflesumError):
                    raise _unavailable(self._path, error) from error
                raise

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._working() as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            self._refuse_if_gone(with_log=True)
            cursor.execute("COMMIT")  # closing a connection rolls back what was not committed

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Cursor]:
        with self._working() as connection:
            yield connection.cursor()

    def _refuse_if_gone(self, *, with_log: bool = False) -> None:
        """Refuse a file that has no name any more, and would end with this process, or that has become another."""
        if self._file is None:
            return
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

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    # Many values in one statement: each statement hands the interpreter to the server's other thread and back.
    def _present(self, cursor: sqlite3.Cursor, table: str, keys: Sequence[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            query = f"SELECT id FROM {table} WHERE id IN ({', '.join('?' * len(some))})"
            found.update(key for (key,) in cursor.execute(query, some))
        return found

    def _insert(self, cursor: sqlite3.Cursor, table: str, values: Sequence[bytes]) -> None:
        for start in range(0, len(values), _AT_ONCE):
            some = values[start : start + _AT_ONCE]
            cursor.execute(f"INSERT INTO {table} VALUES {', '.join(['(?)'] * len(some))}", some)

    @property
    def folder(self) -> Path:
        """Beside the file."""
        return self._path.parent

    def sealed(self, batch: stores.Batch) -> Iterator[bytes]:
        """The batch's sealed reports; see `Store.sealed`."""
        try:
            with contextlib.closing(self._connect()) as connection:
                for rows in self._uploads(connection.cursor(), batch.round_number):
                    yield b"".join(row[UPLOAD_ID_BYTES:] for row in rows)
        except sqlite3.Error as error:
            raise _unavailable(self._path, error) from error

    def _uploads(self, cursor: sqlite3.Cursor, number: int) -> Iterator[list[bytes]]:
        # Piece by piece: while a reading is open, the write-ahead log only grows. A closed round does not change.
        query = f"SELECT rowid, upload FROM uploads_{number:d} WHERE rowid > ? ORDER BY rowid LIMIT ?"
        last = 0
        while rows := cursor.execute(query, (last, self._rows_at_once())).fetchall():
            last = rows[-1][0]
            yield [upload for _, upload in rows]

    def _make_table(self, cursor: sqlite3.Cursor, table: str, column: str) -> None:
        # A table that has nothing but its key is kept in the order of that.
        cursor.execute(f"CREATE TABLE {table} ({column}){' WITHOUT ROWID' * ('PRIMARY KEY' in column)}")

    def _table_names(self, cursor: sqlite3.Cursor) -> list[str]:
        return [name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()]

    def _erase_dropped(self) -> bool:
        with self._working() as connection:
            if connection.execute("PRAGMA freelist_count").fetchone() != (0,):
                connection.execute("VACUUM")
            erased = _cut_log(connection)
        return erased

    def usage(self) -> stores.Usage:
        """The file's size, and what is free beside it."""
        return stores.usage_of_file(self._path)

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._closed = True
            self._disconnect()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _cut_log(connection: sqlite3.Connection) -> bool:
    """Write the write-ahead log back and cut it to nothing; False where somebody still reads it."""
    (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _unavailable(path: Path, error: Exception) -> StoreError:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return stores.WrongStoreError("store-mismatch", f"{path} is no store; give the shuffler a --store of its own")
    reason = error.strerror if isinstance(error, OSError) else error
    return StoreError("store-unavailable", f"the store {path} cannot be used now: {reason}")


def _held(path: Path) -> int:
    """Hold PATH.lock, so that no second shuffler releases the same batch; ends with this process, however it ends."""
    if (lock := lock_file(path.with_name(f"{path.name}.lock"))) is None:
        raise StoreError("in-use", f"another server uses the store {path}; stop that one first")
    return lock
