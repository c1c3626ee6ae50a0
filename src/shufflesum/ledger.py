"""A ledger: records that are only ever added, in a SQLite file, each checksummed together with all before it.

Rounds, budgets, released batches and counted files are kept like this. Atomicity, durability and locks are SQLite's.
What it does not have is added here: a checksum over each record and the one before it, a head that says how many there
are, and a memory of what this process has seen, so that damage, a missing record or an older copy refuses everything.
Checksums are there against damage, by whatever cause; whoever changes a file on purpose can compute them again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shufflesum._machine import WriteError, replace_file
from shufflesum.errors import FileError

PATIENCE = 30.0
"""Seconds that another process is waited for. Most changes take milliseconds, but for a budget that is entered while a
round is begun: the cost of a new plan takes up to some seconds."""

_SCHEMA = (
    "CREATE TABLE head (format TEXT NOT NULL, count INTEGER NOT NULL, checksum BLOB NOT NULL)",
    "CREATE TABLE record "
    "(number INTEGER PRIMARY KEY, mark BLOB NOT NULL, content BLOB NOT NULL, checksum BLOB NOT NULL)",
)
_PAGE_BYTES = 512
_MARK_BYTES = 8
_NOT_A_FILE = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH}


class _DamagedError(ValueError):
    """What a ledger cannot say."""


class _OtherFormatError(_DamagedError):
    """A ledger of another kind, or of another version."""


class Records(tuple[Any, ...]):
    """What the records of a ledger say, in order."""

    checksums: tuple[bytes, ...]  # of each, and before them that of none


class Change:
    """A ledger that nobody else changes meanwhile: what its records say, and what is added to them."""

    def __init__(self, records: Records, connection: sqlite3.Connection, format: str) -> None:
        self.records = records
        self.added = 0
        self._connection, self._format = connection, format
        self._count, self._last = len(records), records.checksums[-1]

    def append(self, content: Mapping[str, Any]) -> None:
        """Add a record; a mark at random tells it from the same one made by somebody else."""
        data, mark = _encoded(content), secrets.token_bytes(_MARK_BYTES)
        self._count, self.added = self._count + 1, self.added + 1
        self._last = _chained(self._last, self._count, mark, data)
        self._connection.execute("INSERT INTO record VALUES (?, ?, ?, ?)", (self._count, mark, data, self._last))
        self._connection.execute("UPDATE head SET count = ?, checksum = ?", (self._count, self._last))

    def replace(self, content: Mapping[str, Any]) -> None:
        """Put one record in the place of all."""
        self._connection.execute("DELETE FROM record")
        self._count, self._last = 0, _first(self._format)
        self.append(content)


class Ledger:
    """The ledger of this format at `path`, which need not be there yet.

    `what` it is and `advice` for one that is damaged are for messages. A file with a second name (a hard link) is
    refused: SQLite goes by names. Symbolic links are followed. Every call opens the file anew, so that neither threads
    nor forked processes share anything.
    """

    def __init__(self, path: str | os.PathLike[str], format: str, what: str, advice: str, *, mode: int = 0o666) -> None:
        self.path = Path(path)
        self._final = self.path.resolve()
        self._format, self._what, self._advice, self._mode = format, what, advice, mode
        self._seen: tuple[int, bytes] = 0, _first(format)  # how many records, and the last one's checksum

    def exists(self) -> bool:
        """Whether there is a file, or anything else, in its place."""
        return os.path.lexists(self._final)

    def create(self, *contents: Mapping[str, Any]) -> None:
        """Make the file with these records, whole and on the disk when this returns; one that exists is refused."""
        if not self._create(*contents):
            raise FileError(
                "exists",
                f"{self.path}: exists, and a {self._what} is never begun anew; open it, or choose another file",
            )
        self.read()

    def read(self) -> Records:
        """What all records say; refused where anything is in doubt. Where there is no file, there are none."""
        seen = self._seen  # taken before reading, because other threads may write in between
        if not self.exists() and not seen[0]:
            return _none(self._format)
        with self._opened() as connection:
            connection.execute("BEGIN")  # what is read is of one moment
            return self._checked(connection, seen)

    @contextmanager
    def change(self, *, patience: float | None = None) -> Iterator[Change]:
        """Alone with the ledger, which is made where there is none.

        What was added is on the disk after the block, all of it; after an error nothing is. Others wait for the end of
        the block, and are refused after so many seconds.
        """
        seen = self._seen
        if not seen[0]:
            self._create()
        with self._opened(patience, to_write=True) as connection:
            connection.execute("BEGIN IMMEDIATE")
            change = Change(self._checked(connection, seen), connection, self._format)
            yield change
            if not change.added:
                return
            records = _verified(connection, self._format)  # where the file was damaged, an insertion may do harm
            connection.execute("COMMIT")
            self._remember(records)

    def _create(self, *contents: Mapping[str, Any]) -> bool:
        """Make the file, whole; False where there is one. The folder is locked meanwhile, so that no two make it."""
        try:
            folder = os.open(self._final.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(folder, fcntl.LOCK_EX)
                if self.exists():
                    return False
                with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
                    connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute("INSERT INTO head VALUES (?, 0, ?)", (self._format, _first(self._format)))
                    change = Change(_none(self._format), connection, self._format)
                    for content in contents:
                        change.append(content)
                    replace_file(self._final, connection.serialize(), self._mode)
                return True
            finally:
                os.close(folder)
        except OSError as error:
            raise self._unwritable(error) from error

    @contextmanager
    def _opened(self, patience: float | None = None, *, to_write: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection, closed in the end; what SQLite refuses is said in our words."""
        seconds = PATIENCE if patience is None else patience
        try:
            names = os.stat(self._final).st_nlink if self._final.is_file() else 1
            if names > 1:
                raise FileError(
                    "in-use",
                    f"{self.path}: has {names} names (hard links), and a change under one of them can be lost under "
                    "the others; delete all names but one (symbolic links may stay)",
                )
            address = f"file:{quote(str(self._final))}?mode=rw"  # what vanished is not made anew
            with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=seconds)) as connection:
                with _readable():
                    connection.execute("PRAGMA trusted_schema = OFF")
                    connection.execute("PRAGMA cell_size_check = ON")
                    connection.execute("PRAGMA synchronous = EXTRA")  # the folder too: a journal must not come back
                yield connection
        except _DamagedError as error:
            raise self._damaged(error) from error
        except sqlite3.Error as error:
            raise self._refusal(error, to_write) from error

    def _checked(self, connection: sqlite3.Connection, seen: tuple[int, bytes]) -> Records:
        """All records, if they go on from those that were seen."""
        records = _verified(connection, self._format)
        count, checksum = seen
        if len(records) < count or records.checksums[count] != checksum:
            raise FileError(
                "rolled-back",
                f"{self.path}: was replaced by an older copy or by another file, and lacks changes that this process "
                f"has seen; put the latest file back, or {self._advice}",
            )
        self._remember(records)
        return records

    def _remember(self, records: Records) -> None:
        if len(records) > self._seen[0]:
            self._seen = len(records), records.checksums[-1]

    def _refusal(self, error: sqlite3.Error, to_write: bool) -> FileError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return FileError("in-use", f"{self.path}: another process is changing it; wait until that has ended")
        if code in _NOT_A_FILE:
            return self._damaged(error)
        if code == sqlite3.SQLITE_CANTOPEN:
            # not opened to see why: closing it would end the locks that SQLite has on it
            reason = "is a folder" if self._final.is_dir() else error if self.exists() else "does not exist"
            kind, problem = (WriteError, "unwritable") if to_write else (FileError, "unreadable")
            return kind(problem, f"{self.path}: cannot be opened ({reason}); {self._advice}")
        return self._unwritable(error)

    def _damaged(self, error: Exception) -> FileError:
        return FileError(
            "format-mismatch" if isinstance(error, _OtherFormatError) else "damaged",
            f"{self.path}: is no {self._what} that can be used ({error}); {self._advice}",
        )

    def _unwritable(self, error: Exception) -> FileError:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        return WriteError(
            "unwritable",
            f"{self.path}: the entry could not be made ({reason}); nothing of it may be released: name a file in a "
            "folder that you may write to, on a disk with room, and begin again",
        )


def records_in(data: bytes, format: str) -> Records:
    """The records of a ledger's bytes, such as those of a file at an address; a ValueError where it is none."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        try:
            connection.deserialize(data)
            return _verified(connection, format)
        except sqlite3.Error as error:
            raise _DamagedError(str(error)) from error


@contextmanager
def _readable() -> Iterator[None]:
    """SQLite's own words about a damaged file quote it, and may be no text."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise _DamagedError("SQLite finds it damaged") from error


@_readable()
def _verified(connection: sqlite3.Connection, format: str) -> Records:
    """All records, if every byte of them, and their number, is what was written."""
    if tuple(sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema ORDER BY rowid")) != _SCHEMA:
        raise _DamagedError("it is a database of something else, or was changed")
    if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()) != ("ok",):
        raise _DamagedError(f"SQLite finds it damaged: {found[0]}")
    heads = connection.execute("SELECT format, count, checksum FROM head").fetchall()
    if len(heads) == 1 and heads[0][0] != format:
        raise _OtherFormatError(f"its format is {str(heads[0][0])[:80]!r}, but this version reads {format!r}")
    last, contents = _first(format), list[bytes]()
    checksums = [last]
    for number, mark, content, checksum in connection.execute("SELECT * FROM record ORDER BY number"):
        if not isinstance(mark, bytes) or not isinstance(content, bytes) or number != len(contents) + 1:
            raise _DamagedError(f"record {len(contents) + 1} was changed or damaged")
        last = _chained(last, number, mark, content)
        if checksum != last:
            raise _DamagedError(f"the checksum of record {number} does not fit: it was changed or damaged")
        contents.append(content)
        checksums.append(last)
    if heads != [(format, len(contents), last)]:
        raise _DamagedError(f"there are {len(contents)} records, but its head says otherwise")
    records = Records(json.loads(content) for content in contents)
    records.checksums = tuple(checksums)
    return records


def _none(format: str) -> Records:
    records = Records()
    records.checksums = (_first(format),)
    return records


def _encoded(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()


def _first(format: str) -> bytes:
    return hashlib.sha256(format.encode()).digest()


def _chained(before: bytes, number: int, mark: bytes, content: bytes) -> bytes:
    """The checksum of a record, given that of the one before it."""
    return hashlib.sha256(before + number.to_bytes(8, "big") + mark + content).digest()
