"""*Once*, at the shuffler: which uploads it has taken and which batches it has released, whatever they are kept in.

Sealed reports are kept until their round is released, and no longer. A store never learns who sent an upload or when;
upload ids are remembered apart from the reports, without order.

Both databases keep rounds, upload ids and uploads in tables, changed in transactions. An upload is written once, as it
came, behind those that came before; which upload ids and reports the open round has is held in memory, in 16 to 32
bytes each, and read again after a start. When a round is closed, its upload ids move to the table of all that were
taken, sorted. Its batch leaves in an order that is drawn when it is handed over (`shufflesum.shuffling`), and that no
row here tells anything about.

Each round has tables of its own, which are dropped as a whole.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from shufflesum.errors import ParameterError, ShufflesumError
from shufflesum.wire import SEALED_BYTES, UPLOAD_ID_BYTES, Task


class StoreError(ShufflesumError):
    """The store cannot be reached or cannot write now; nothing was acknowledged, and trying again is safe."""


class WrongStoreError(StoreError):
    """What is there belongs to another task, another version or somebody else; trying again will not help."""


class UploadStatus(enum.Enum):
    """What a shuffler answers to an upload; all but the first are names of problems."""

    ACCEPTED = "taken"
    REPEATED = "repeated"
    ROUND_CLOSED = "round-closed"
    ROUND_NOT_OPEN = "round-not-open"
    TOKEN_SPENT = "token-spent"
    DUPLICATE = "duplicate-report"


@dataclass(frozen=True)
class ArrivingUpload:
    """One upload to be taken: its sealed reports, and the digest of the token that pays for it, if any."""

    round_number: int
    upload_id: bytes
    sealed: bytes
    token: bytes | None = None

    @cached_property
    def reports(self) -> NDArray[np.uint64]:
        """What tells its reports apart from all others; see `marks`."""
        return marks(self.sealed)


@dataclass(frozen=True, slots=True)
class Batch:
    """The reports of one round that are released together, under the random id that the analyzer knows them by."""

    batch_id: str
    round_number: int
    users: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """Where a task's rounds stand: the open one (None after the last), its users, and how many were released."""

    open_round: int | None
    users: int
    released: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes that a store takes, and bytes that are free where it lies; None where that cannot be seen from here."""

    used: int
    free: int | None


class Store(Protocol):
    """A durable place for one task's uploads. Methods block, and may be called from several threads.

    Every method raises StoreError where the store is out of reach; the next call tries afresh, without help.
    """

    def take(self, uploads: Sequence[ArrivingUpload]) -> list[UploadStatus]:
        """Take uploads, all in one transaction, and return once they are durable; one answer each, in order.

        A known upload id is REPEATED before anything else is looked at, so that a lost answer can always be asked for
        again, even after its round was closed. A token is spent only by an upload that is ACCEPTED. An upload is
        DUPLICATE, and refused whole, where one of its reports is in it twice or in another upload of the open round.
        """
        ...

    def check(self) -> None:
        """Raise StoreError where an upload could not be taken now; found out by a durable write that needs room."""
        ...

    def rounds(self) -> Rounds:
        """Where the task's rounds stand."""
        ...

    def close_round(self, smallest: int) -> Batch | None:
        """Close the open round, whose users are a batch, and open the next one; None where there are fewer."""
        ...

    def pending(self) -> Batch | None:
        """The batch of a closed round that is not released yet; at most one."""
        ...

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports, some at a time, as they came: to be permuted before they leave."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where a batch that does not fit into memory may wait while it is permuted; None for the system's place."""
        ...

    def mark_released(self, batch: Batch) -> None:
        """The analyzer has the batch: delete its reports and tokens for good; its upload ids stay, without order.

        What cannot be deleted at once is left to `finish_deletion`.
        """
        ...

    def delete_all(self, *, pending: bool = False) -> None:
        """Delete all uploads, upload ids and tokens for good and close every round: the task has expired.

        The batch of a closed round stays, unless `pending` says that it goes as well. What cannot be deleted at once
        is left to `finish_deletion`.
        """
        ...

    def finish_deletion(self) -> None:
        """Finish a deletion that was interrupted; cheap where there is none."""
        ...

    def usage(self) -> Usage:
        """How large the store is, and how much more it can hold."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


def split(sealed: bytes) -> list[bytes]:
    """Sealed reports one by one."""
    return [sealed[start : start + SEALED_BYTES] for start in range(0, len(sealed), SEALED_BYTES)]


def marks(sealed: bytes) -> NDArray[np.uint64]:
    """The first eight bytes of each sealed report, which are of its own fresh key.

    A copy that is not exact cannot be opened. Two of a hundred million reports that are no copies have the same mark
    with a probability below 0.0003, and the upload that came later is then refused.
    """
    rows = np.frombuffer(sealed, dtype=np.uint8).reshape(-1, SEALED_BYTES)
    return np.ascontiguousarray(rows[:, :8]).view(np.uint64).ravel()


class Seen:
    """A set of numbers that only grows: a hash table at most half full, 16 to 32 bytes for each number.

    Where a number lies is drawn with it, by a secret factor, so that nobody can send numbers that crowd together.
    """

    def __init__(self) -> None:
        self._slots = np.zeros(1 << 12, dtype=np.uint64)
        self._count = 0
        self._factor = np.uint64(secrets.randbits(64) | 1)

    def add(self, values: NDArray[np.uint64]) -> None:
        """Add numbers that are not in it, all different."""
        self._count += len(values)
        if 2 * self._count > len(self._slots):
            known = self._slots[self._slots != 0]
            self._slots = np.zeros(1 << (2 * self._count).bit_length(), dtype=np.uint64)
            for start in range(0, len(known), _AT_ONCE):
                self._put(known[start : start + _AT_ONCE])
        self._put(np.maximum(values, 1))  # 0 is an empty slot

    def _put(self, values: NDArray[np.uint64]) -> None:
        at = self._first(values)
        while len(values):
            free = self._slots[at] == 0
            self._slots[at[free]] = values[free]
            left = self._slots[at] != values  # others were there, or came at the same time
            values, at = values[left], self._next(at[left])

    def holds(self, values: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """For each number, whether it is in it."""
        values = np.maximum(values, 1)
        found, left, at = np.zeros(len(values), dtype=np.bool_), np.arange(len(values)), self._first(values)
        while len(left):
            there = self._slots[at]
            found[left] = there == values[left]
            on = (there != 0) & ~found[left]
            left, at = left[on], self._next(at[on])
        return found

    def _first(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (values * self._factor) >> np.uint64(65 - len(self._slots).bit_length())

    def _next(self, at: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (at + np.uint64(1)) & np.uint64(len(self._slots) - 1)


def open_store(address: str, task: Task, begin: Callable[[str], None] | None = None) -> Store:
    """The store at `sqlite:PATH` or `postgresql://...`, made for this task where it is new.

    It may be out of reach, full or in use by another server for now: then its methods say so until it is not. `begin`
    is called with the random name that a store keeps for good, before anything is taken or released: once it is within
    reach, and perhaps again. Where it raises, the store is refused.
    """
    path = sqlite_path(address)
    if path is not None:
        from shufflesum.service.stores.sqlite import SqliteStore

        return SqliteStore(path, task, begin)
    from shufflesum.service.stores.postgres import PostgresStore

    return PostgresStore(address, task, begin)


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


def usage_of_file(path: Path) -> Usage:
    """Of a store in one file, with its write-ahead log."""
    try:
        used = sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())
        return Usage(used, shutil.disk_usage(path.parent).free)
    except OSError as error:
        raise StoreError("store-unavailable", f"the store {path} cannot be measured: {error.strerror}") from error


Cursor = Any  # of either database's driver: execute, fetchone, fetchall

FORMAT = "shufflesum-store-6"  # one more with each change that older servers would not understand
PROBE_BYTES = 1 << 14  # written beyond an upload's size to see whether one can be: pages of its tables and indexes
READ_BYTES = 1 << 20  # of uploads, at a time
_NAME_BYTES = 16  # of the store itself, and of the server that owns it
_ROUND_TABLES = ("tokens", "uploads")
_AT_ONCE = 1 << 16  # numbers put into a larger table at a time


class _OpenRound:
    """What tells the uploads of the open round, and their reports, from others."""

    def __init__(self) -> None:
        self.ids, self.reports = Seen(), Seen()

    def add(self, rows: Sequence[bytes]) -> None:
        """Add uploads as they are kept: the id before the reports."""
        self.ids.add(_id_marks([row[:UPLOAD_ID_BYTES] for row in rows]))
        self.reports.add(marks(b"".join(row[UPLOAD_ID_BYTES:] for row in rows)))


def _id_marks(ids: Sequence[bytes]) -> NDArray[np.uint64]:
    """The first half of each upload id: eight random bytes."""
    return np.frombuffer(b"".join(ids), dtype=np.uint64)[::2]


class SqlStore(abc.ABC):
    """A `Store` over a database that speaks SQL; what the two databases say differently is left to them."""

    binary: str  # the type of a column of bytes
    mark: str  # how a parameter is written
    owner_query: str  # who owns the store; nobody else can take it before the transaction ends

    def __init__(self, task: Task, begin: Callable[[str], None] | None = None) -> None:
        self._task = task
        self._begin = begin
        self._owner = secrets.token_hex(_NAME_BYTES)
        self._mutex = threading.RLock()
        self._open: _OpenRound | None = None  # None where it has to be read from the store
        self._deletion_unfinished = True  # whoever used it before may have been killed halfway through a deletion

    @abc.abstractmethod
    def _transaction(self) -> contextlib.AbstractContextManager[Cursor]:
        """One durable transaction, for one thread at a time; StoreError where it fails."""

    @abc.abstractmethod
    def _reading(self) -> contextlib.AbstractContextManager[Cursor]:
        """The same for reading only."""

    @abc.abstractmethod
    def _present(self, cursor: Cursor, table: str, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that a table holds."""

    @abc.abstractmethod
    def _insert(self, cursor: Cursor, table: str, values: Sequence[bytes]) -> None:
        """Add rows of one value each to a table."""

    @abc.abstractmethod
    def _uploads(self, cursor: Cursor, number: int) -> Iterator[list[bytes]]:
        """The uploads of a round as they came, some at a time: id and sealed reports."""

    @abc.abstractmethod
    def _make_table(self, cursor: Cursor, table: str, column: str) -> None:
        """Make a table of one column."""

    @abc.abstractmethod
    def _table_names(self, cursor: Cursor) -> list[str]:
        """All tables of the store."""

    @abc.abstractmethod
    def _erase_dropped(self) -> bool:
        """Get rid of what dropped tables left in files; False where it has to be tried again."""

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Cursor]:
        """A transaction of the store's owner; where it fails, what is remembered of the store is not believed any more.

        A lock keeps a second server out, but locks can be removed by hand, or mean nothing behind a pooling proxy. The
        last server to open the store owns it, and what any other remembers may be wrong.
        """
        with self._mutex:
            try:
                with self._transaction() as cursor:
                    if cursor.execute(self.owner_query).fetchone() != (self._owner,):
                        raise WrongStoreError("in-use", "another server has taken this store over; stop this one")
                    yield cursor
            except BaseException:
                self._open = None
                raise

    def take(self, uploads: Sequence[ArrivingUpload]) -> list[UploadStatus]:
        """Take uploads; see `Store.take`."""
        if not uploads:
            return []
        with self._changing() as cursor:
            number, _ = self._open_round_and_users(cursor)
            opened = self._read_open(cursor, number)
            answers = self._answers(cursor, uploads, number, opened)
            taken = [each for each, answer in zip(uploads, answers, strict=True) if answer is UploadStatus.ACCEPTED]
            if number is not None and taken:
                rows = [upload.upload_id + upload.sealed for upload in taken]
                self._insert(cursor, f"uploads_{number:d}", rows)
                tokens = sorted(upload.token for upload in taken if upload.token is not None)
                self._insert(cursor, f"tokens_{number:d}", tokens)
                cursor.execute(
                    f"UPDATE round SET users = users + {self.mark} WHERE number = {self.mark}", (len(taken), number)
                )
                opened.add(rows)
        return answers

    def _answers(
        self, cursor: Cursor, uploads: Sequence[ArrivingUpload], number: int | None, opened: _OpenRound
    ) -> list[UploadStatus]:
        ids = [upload.upload_id for upload in uploads]
        here = opened.ids.holds(_id_marks(ids)).tolist()
        known = self._present(cursor, "taken", ids) | {id_ for id_, found in zip(ids, here, strict=True) if found}
        fresh = [upload for upload in uploads if upload.round_number == number and upload.upload_id not in known]
        tokens = [upload.token for upload in fresh if upload.token is not None]
        spent = self._present(cursor, f"tokens_{number}", tokens) if tokens else set()
        copied = opened.reports.holds(np.concatenate([upload.reports for upload in uploads]))
        sealed: set[int] = set()  # of this call
        answers = []
        for upload, copies in zip(uploads, np.split(copied, len(uploads)), strict=True):
            if upload.upload_id in known:
                answer = UploadStatus.REPEATED
            elif number is None or upload.round_number < number:
                answer = UploadStatus.ROUND_CLOSED
            elif upload.round_number > number:
                answer = UploadStatus.ROUND_NOT_OPEN
            elif upload.token in spent:
                answer = UploadStatus.TOKEN_SPENT
            elif copies.any() or _has_copies(upload.reports, sealed):
                answer = UploadStatus.DUPLICATE
            else:
                answer = UploadStatus.ACCEPTED
                known.add(upload.upload_id)
                sealed.update(upload.reports.tolist())
                if upload.token is not None:
                    spent.add(upload.token)
            answers.append(answer)
        return answers

    def _read_open(self, cursor: Cursor, number: int | None) -> _OpenRound:
        """What the open round holds."""
        if self._open is None:
            opened = _OpenRound()
            if number is not None:
                for rows in self._uploads(cursor, number):
                    opened.add(rows)
            self._open = opened  # now that all of it is read
        return self._open

    def check(self) -> None:
        """Write as much as an upload does; see `Store.check`.

        The table is new each time and needs room of its own: small changes still fit into what full disks hold.
        """
        with self._changing() as cursor:
            self._make_table(cursor, "probe", f"id {self.binary} NOT NULL")
            self._insert(cursor, "probe", [secrets.token_bytes(self._task.upload_bytes + PROBE_BYTES)])
            cursor.execute("DROP TABLE probe")
            cursor.execute("UPDATE meta SET owner = owner")

    def rounds(self) -> Rounds:
        """Where the task's rounds stand."""
        with self._reading() as cursor:
            number, users = self._open_round_and_users(cursor)
            (released,) = cursor.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchone()
        return Rounds(number, users, released)

    def close_round(self, smallest: int) -> Batch | None:
        """Close the open round; see `Store.close_round`."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._changing() as cursor:
            number, users = self._open_round_and_users(cursor)
            if number is None or users < smallest or self._pending(cursor) is not None:
                return None
            ids = f"SELECT substr(upload, 1, {UPLOAD_ID_BYTES}) FROM uploads_{number:d}"
            cursor.execute(f"INSERT INTO taken {ids} ORDER BY 1")
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute(
                f"UPDATE round SET state = 'closed', batch_id = {self.mark} WHERE number = {self.mark}",
                (batch.batch_id, number),
            )
            self._open = _OpenRound()
            if number < self._task.rounds:
                self._open_round(cursor, number + 1)
        return batch

    def _rows_at_once(self) -> int:
        return max(1, READ_BYTES // self._task.upload_bytes)

    def pending(self) -> Batch | None:
        """The batch of a closed round; see `Store.pending`."""
        with self._reading() as cursor:
            return self._pending(cursor)

    def mark_released(self, batch: Batch) -> None:
        """Delete a batch; see `Store.mark_released`."""
        with self._changing() as cursor:
            self._deletion_unfinished = True
            if self._pending(cursor) != batch:
                return
            self._end_round(cursor, batch.round_number, "released")
        self._try_to_finish_deletion()

    def delete_all(self, *, pending: bool = False) -> None:
        """Delete everything; see `Store.delete_all`."""
        with self._changing() as cursor:
            self._deletion_unfinished = True
            number, _ = self._open_round_and_users(cursor)
            if number is not None:
                self._end_round(cursor, number, "expired")
                self._open = None
            if pending and (batch := self._pending(cursor)) is not None:
                self._end_round(cursor, batch.round_number, "expired")
            cursor.execute("UPDATE round SET users = 0 WHERE state = 'expired'")
            cursor.execute("DROP TABLE taken")
            self._make_table(cursor, "taken", f"id {self.binary} PRIMARY KEY")
        self._try_to_finish_deletion()

    def finish_deletion(self) -> None:
        """Finish a deletion that was interrupted; see `Store.finish_deletion`."""
        if not self._deletion_unfinished:
            return
        with self._mutex:
            with self._reading() as cursor:
                needed = {
                    row[0] for row in cursor.execute("SELECT number FROM round WHERE state IN ('open', 'closed')")
                }
                left = [table for table in self._table_names(cursor) if _round_of(table) not in {None, *needed}]
                for table in left:
                    cursor.execute(f"DROP TABLE {table}")
            self._deletion_unfinished = not self._erase_dropped()

    def _try_to_finish_deletion(self) -> None:
        """What is to be deleted counts as such, even where there is no room to delete it just now."""
        with contextlib.suppress(StoreError):
            self.finish_deletion()

    def _become_owner(self, cursor: Cursor, where: str) -> str:
        """Own the store, and say its name: make tables where there are none; refuse those of another task or version.

        The name was drawn when the tables were made, and `_begin_as` goes before all else that is done with them.
        """
        tables = self._table_names(cursor)
        if not tables:
            return self._make_tables(cursor)
        if not {"meta", "round"} <= set(tables):
            raise WrongStoreError(
                "store-mismatch", f"{where} is no shuffler's store; give the shuffler a --store of its own"
            )
        made_for: Sequence[Any] = cursor.execute("SELECT * FROM meta").fetchone() or ()
        if len(made_for) != 4 or made_for[0] != FORMAT:
            raise WrongStoreError(
                "format-mismatch",
                f"the store {where} was made by another version of shufflesum (this one reads {FORMAT}); let that "
                "version release what it holds, and give this one a --store of its own",
            )
        if made_for[1] != self._task.id:
            raise WrongStoreError(
                "store-mismatch",
                f"the store {where} belongs to task {made_for[1][:12]}, not to {self._task.id[:12]}; "
                "give each task a --store of its own",
            )
        cursor.execute(f"UPDATE meta SET owner = {self.mark}", (self._owner,))
        return str(made_for[3])

    def _begin_as(self, name: str) -> None:
        """Say the store's name to whoever adds up what is collected; what that refuses is refused here for good."""
        if self._begin is not None:
            try:
                self._begin(name)
            except ShufflesumError as error:
                raise WrongStoreError(error.problem, str(error)) from error

    def _make_tables(self, cursor: Cursor) -> str:
        columns = ", ".join(f"{column} TEXT NOT NULL" for column in ("format", "task", "owner", "name"))
        cursor.execute(f"CREATE TABLE meta ({columns})")
        values = (FORMAT, self._task.id, self._owner, secrets.token_hex(_NAME_BYTES))
        cursor.execute(f"INSERT INTO meta VALUES ({', '.join([self.mark] * len(values))})", values)
        cursor.execute(
            "CREATE TABLE round (number INTEGER PRIMARY KEY, users BIGINT NOT NULL, state TEXT NOT NULL, batch_id TEXT)"
        )
        self._make_table(cursor, "taken", f"id {self.binary} PRIMARY KEY")
        self._open_round(cursor, 1)
        return values[-1]

    def _open_round(self, cursor: Cursor, number: int) -> None:
        self._make_table(cursor, f"uploads_{number:d}", f"upload {self.binary} NOT NULL")
        self._make_table(cursor, f"tokens_{number:d}", f"id {self.binary} PRIMARY KEY")
        cursor.execute(f"INSERT INTO round VALUES ({self.mark}, 0, 'open', NULL)", (number,))

    def _end_round(self, cursor: Cursor, number: int, state: str) -> None:
        """End a round; `finish_deletion` drops its tables."""
        cursor.execute(f"UPDATE round SET state = {self.mark} WHERE number = {self.mark}", (state, number))

    def _open_round_and_users(self, cursor: Cursor) -> tuple[int | None, int]:
        row = cursor.execute("SELECT number, users FROM round WHERE state = 'open'").fetchone()
        return (None, 0) if row is None else (row[0], row[1])

    def _pending(self, cursor: Cursor) -> Batch | None:
        row = cursor.execute("SELECT batch_id, number, users FROM round WHERE state = 'closed'").fetchone()
        return None if row is None else Batch(*row)


def _has_copies(reports: NDArray[np.uint64], taken: set[int]) -> bool:
    """Whether a report is in its upload twice, or among those taken just now."""
    own = set(reports.tolist())
    return len(own) < len(reports) or not taken.isdisjoint(own)


def _round_of(table: str) -> int | None:
    """The round that a table is of, if any."""
    kind, _, number = table.rpartition("_")
    return int(number) if kind in _ROUND_TABLES else None
