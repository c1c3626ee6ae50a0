"""The shuffler's store in one SQLite file: nothing to set up, durable, and emptied for good.

Each round has tables of its own, which are dropped as a whole. `secure_delete` overwrites what was deleted, and the
write-ahead log is cut to nothing after each deletion. Only the upload ids stay; they are written anew in the order of
the (random) ids, because the file's pages would otherwise tell in which order they came.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from shufflesum.errors import FileError
from shufflesum.service.store import Batch, Entry, Outcome, Status, StoreError, decide
from shufflesum.wire import Task

__all__ = ["SqliteStore"]

_LOCK_SECONDS = 10.0
_BUSY_SECONDS = 5.0
_ROWS = 4096  # uploads read at a time

_SCHEMA = """
CREATE TABLE meta (task TEXT NOT NULL);
CREATE TABLE round (
    number INTEGER PRIMARY KEY, users INTEGER NOT NULL, state TEXT NOT NULL, batch_id TEXT
);
CREATE TABLE seen (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class SqliteStore:
    """A store in the file at `path`, which it makes for this task, readable by its owner only.

    One process at a time may have it open.
    """

    def __init__(self, path: str | Path, task: Task) -> None:
        self._path = Path(path).absolute()
        self._task = task
        self._mutex = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._untidy = True  # whoever had it open before may have been killed halfway through a deletion
        self._lock: int | None = _lock_file(self._path)
        try:
            self._create()
            self.tidy()
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            _sync_folder(self._path.parent)
        except OSError as error:
            raise FileError(
                f"the store {self._path} cannot be made: {error.strerror}; choose another --store"
            ) from None
        with self._transaction() as cursor:
            if not cursor.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                for statement in _SCHEMA.split(";")[:-1]:
                    cursor.execute(statement)
                cursor.execute("INSERT INTO meta VALUES (?)", (self._task.id,))
                _open_round(cursor, 1)
            (owner,) = cursor.execute("SELECT task FROM meta").fetchone()
        if owner != self._task.id:
            raise FileError(
                f"the store {self._path} belongs to task {owner[:12]}, not to {self._task.id[:12]}; "
                "give each task a --store of its own"
            )

    def _connect(self) -> sqlite3.Connection:
        # mode=rw: a store that vanished must not be replaced by an empty one that has forgotten every upload.
        address = f"file:{quote(str(self._path))}?mode=rw"
        connection = sqlite3.connect(
            address, uri=True, isolation_level=None, check_same_thread=False, timeout=_BUSY_SECONDS
        )
        try:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _working(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time; after any failure it is opened afresh."""
        with self._mutex:
            if self._lock is None:
                raise StoreError(f"the store {self._path} was closed; open it again")
            try:
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
            except sqlite3.Error as error:
                self._disconnect()
                raise StoreError(f"the store {self._path} cannot be used now: {error}") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._working() as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        cursor.execute("ROLLBACK")
                raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def add(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Store uploads; see `Store.add`."""
        with self._transaction() as cursor:
            number, _ = _open_state(cursor)
            known = _present(cursor, "seen", [entry.upload_id for entry in entries])
            tokens = [entry.token for entry in entries if entry.token is not None]
            spent = _present(cursor, f"spent_{number}", tokens) if number is not None and tokens else set()
            outcomes = decide(entries, number, known, spent)
            stored = [entry for entry, outcome in zip(entries, outcomes, strict=True) if outcome is Outcome.STORED]
            if stored:
                cursor.executemany("INSERT INTO seen VALUES (?)", [(entry.upload_id,) for entry in stored])
                cursor.executemany(f"INSERT INTO upload_{number} VALUES (?)", [(entry.sealed,) for entry in stored])
                paid = [(entry.token,) for entry in stored if entry.token is not None]
                cursor.executemany(f"INSERT INTO spent_{number} VALUES (?)", paid)
                cursor.execute("UPDATE round SET users = users + ? WHERE number = ?", (len(stored), number))
        return outcomes

    def status(self) -> Status:
        """Where the task stands."""
        with self._working() as connection:
            number, users = _open_state(connection.cursor())
            (released,) = connection.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchone()
        return Status(number, users, released)

    def close_round(self, smallest: int) -> Batch | None:
        """Fix a batch; see `Store.close_round`."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._transaction() as cursor:
            number, users = _open_state(cursor)
            if number is None or users < smallest or _pending(cursor) is not None:
                return None
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute("UPDATE round SET state = 'fixed', batch_id = ? WHERE number = ?", (batch.batch_id, number))
            if number < self._task.rounds:
                _open_round(cursor, number + 1)
        return batch

    def pending(self) -> Batch | None:
        """The batch that waits to be acknowledged."""
        with self._working() as connection:
            return _pending(connection.cursor())

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports; see `Store.sealed`."""
        try:
            with contextlib.closing(self._connect()) as connection:
                rows = connection.execute(f"SELECT sealed FROM upload_{batch.round_number:d} ORDER BY rowid")
                while chunk := rows.fetchmany(_ROWS):
                    yield b"".join(sealed for (sealed,) in chunk)
        except sqlite3.Error as error:
            raise StoreError(f"the store {self._path} cannot be read now: {error}") from error

    def acknowledge(self, batch: Batch) -> None:
        """Delete a batch; see `Store.acknowledge`."""
        with self._transaction() as cursor:
            if _pending(cursor) != batch:
                return
            _drop_round(cursor, batch.round_number)
            cursor.execute("UPDATE round SET state = 'released' WHERE number = ?", (batch.round_number,))
            cursor.execute("CREATE TABLE sorted (id BLOB PRIMARY KEY) WITHOUT ROWID")
            cursor.execute("INSERT INTO sorted SELECT id FROM seen ORDER BY id")
            cursor.execute("DROP TABLE seen")
            cursor.execute("ALTER TABLE sorted RENAME TO seen")
        self._untidy = True
        self.tidy()

    def forget(self) -> None:
        """Delete everything; see `Store.forget`."""
        with self._transaction() as cursor:
            number, _ = _open_state(cursor)
            if number is not None:
                _drop_round(cursor, number)
                cursor.execute("UPDATE round SET state = 'expired', users = 0 WHERE number = ?", (number,))
            cursor.execute("DELETE FROM seen")
        self._untidy = True
        self.tidy()

    def tidy(self) -> None:
        """Cut the write-ahead log to nothing where a deletion has not done so yet."""
        if self._untidy:
            with self._working() as connection:
                (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._untidy = bool(busy)

    def close(self) -> None:
        """Let go of the file."""
        with self._mutex:
            self._disconnect()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def _sync_folder(folder: Path) -> None:
    """A new file is durable once its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock_file(path: Path) -> int:
    """Hold PATH.lock, so that no second shuffler releases the same batch; ends with this process, however it ends."""
    try:
        descriptor = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise FileError(f"the store {path} cannot be made: {error.strerror}; choose another --store") from error
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise FileError(f"the store {path} is in use by another server; stop that one first") from error
            time.sleep(0.05)


def _open_round(cursor: sqlite3.Cursor, number: int) -> None:
    cursor.execute(f"CREATE TABLE upload_{number} (sealed BLOB NOT NULL)")
    cursor.execute(f"CREATE TABLE spent_{number} (digest BLOB PRIMARY KEY) WITHOUT ROWID")
    cursor.execute("INSERT INTO round VALUES (?, 0, 'open', NULL)", (number,))


def _drop_round(cursor: sqlite3.Cursor, number: int) -> None:
    cursor.execute(f"DROP TABLE upload_{number}")
    cursor.execute(f"DROP TABLE spent_{number}")


def _open_state(cursor: sqlite3.Cursor) -> tuple[int | None, int]:
    row = cursor.execute("SELECT number, users FROM round WHERE state = 'open'").fetchone()
    return (None, 0) if row is None else (row[0], row[1])


def _pending(cursor: sqlite3.Cursor) -> Batch | None:
    row = cursor.execute("SELECT batch_id, number, users FROM round WHERE state = 'fixed'").fetchone()
    return None if row is None else Batch(*row)


def _present(cursor: sqlite3.Cursor, table: str, keys: list[bytes]) -> set[bytes]:
    column = "id" if table == "seen" else "digest"
    query = f"SELECT 1 FROM {table} WHERE {column} = ?"
    return {key for key in keys if cursor.execute(query, (key,)).fetchone()}
