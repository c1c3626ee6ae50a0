"""*Once*, at the shuffler: which uploads it has taken and which batches it has released, whatever they are kept in.

Sealed reports are kept until their round is released, and no longer. A store never learns who sent an upload or when;
upload ids are remembered apart from the reports, without order.

Both databases keep rounds, upload ids and uploads in tables, changed in transactions. An upload is written once, as it
came, behind those that came before; which upload ids and reports the open round has is held in memory, in 16 to 32
bytes each, and read again after a start. When a round is closed, its upload ids move to the table of all that were
taken, sorted. Its batch leaves in an order that is drawn when it is handed over (`shufflesum.shuffling`), and that no
row here tells anything about.

Rounds of all tasks are in one table. Upload ids, tokens and uploads of a task are in tables of its own, and of the
round: what is dropped as a whole leaves nothing behind, and keeps no server of another task waiting.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from shufflesum.errors import FileError, ShufflesumError
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.stores.database import Database, StoreError, Usage, WrongStoreError, open_database
from shufflesum.wire import UPLOAD_ID_BYTES, Task


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


FORMAT = "shufflesum-store-7"  # one more with each change that older servers would not understand
_READ_BYTES = 1 << 20  # of uploads, at a time
_NAME_BYTES = 16  # of the store itself, and of the server that owns it
_AT_ONCE = 1 << 16  # numbers put into a larger table at a time
_KEYS = 256  # looked for in one statement

_SHARED = sa.MetaData()  # tables of all tasks
_META = sa.Table(
    "meta",
    _SHARED,
    sa.Column("format", sa.Text, nullable=False),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
)
_ROUND = sa.Table(
    "round",
    _SHARED,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("users", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),  # open, closed, released or expired
    sa.Column("batch_id", sa.Text),
)


@cache
def _task_table(task: str, kind: str, number: int) -> sa.Table:
    """A table of one task alone, and of one of its rounds (0 for all): to be dropped as a whole.

    Upload ids that were taken, tokens that were spent, or uploads as they came: the id before the sealed reports.
    """
    column, is_key = ("upload", False) if kind == "uploads" else ("id", True)
    table = sa.Table(
        f"{kind}_{task}_{number:d}",
        sa.MetaData(),
        sa.Column(column, sa.LargeBinary, primary_key=is_key, nullable=False),
        sqlite_with_rowid=not is_key,  # in the order of the key, or as they came
    )
    # Statistics quote values, which would stay in the catalogue when the table is dropped; nothing can be compressed.
    change = f"ALTER TABLE {table} ALTER {column} SET STATISTICS 0, ALTER {column} SET STORAGE EXTERNAL"
    sa.event.listen(table, "after_create", sa.DDL(change).execute_if(dialect="postgresql"))  # type: ignore[no-untyped-call]
    return table


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


class Store:
    """A durable place for one task's uploads. Methods block, and may be called from several threads.

    Every method raises StoreError where the database is out of reach; the next call tries afresh, without help. One
    server at a time may use it; another one that opens it waits for the end of the first.
    """

    def __init__(self, database: Database, task: Task, begin: Callable[[str], None] | None = None) -> None:
        self._database = database
        self._task = task
        self._begin = begin
        self._meta, self._rounds = _META.c.task == task.id, _ROUND.c.task == task.id
        self._owner = secrets.token_hex(_NAME_BYTES)
        self._mutex = threading.RLock()
        self._connection: sa.Connection | None = None
        self._closed = False
        self._begun = False  # what was refused before that is left to nobody
        self._open: _OpenRound | None = None  # None where it has to be read from the store
        self._deletion_unfinished = True  # whoever used it before may have been killed halfway through a deletion
        try:
            self.finish_deletion()
        except WrongStoreError:
            self.close()
            raise
        except StoreError as error:
            reason = error.__cause__
            if isinstance(reason, OSError) and reason.errno not in (errno.ENOSPC, errno.EDQUOT):
                self.close()
                raise FileError(
                    "unwritable",
                    f"the store {database.where} cannot be made: {reason.strerror}; choose another, on a disk "
                    "that has room and locks",
                ) from error

    def _reach(self) -> sa.Connection:
        """Be the only server of the task on the database, and make its tables where there are none."""
        connection = self._database.connect_alone(self._task.id)
        try:
            with self._database.transaction(connection):
                name = self._become_owner(connection)
            self._database.prepared(connection)
            self._begin_as(name)
        except BaseException:
            self._database.close(connection)
            raise
        return connection

    @contextlib.contextmanager
    def _session(self) -> Iterator[sa.Connection]:
        """The connection, for one thread at a time; after any failure it is opened afresh."""
        with self._mutex:
            if self._closed:
                raise StoreError("store-unavailable", f"the store {self._database.where} was closed; open it again")
            try:
                if self._connection is None:
                    self._connection = self._reach()
                yield self._connection
            except WrongStoreError:  # the connection is as good as before
                raise
            except BaseException as error:
                self._disconnect()
                if isinstance(error, self._database.failures) and not isinstance(error, ShufflesumError):
                    raise self._database.unavailable(error) from error
                raise

    def _disconnect(self) -> None:
        self._open = None  # while it is away, another server may use the store
        if self._connection is not None:
            self._database.close(self._connection)
            self._connection = None

    @contextlib.contextmanager
    def _changing(self) -> Iterator[sa.Connection]:
        """A transaction of the store's owner; where it fails, what is remembered of the store is not believed any more.

        A lock keeps a second server out, but locks can be removed by hand, or mean nothing behind a pooling proxy. The
        last server to open the store owns it, and what any other remembers may be wrong.
        """
        try:
            with self._session() as connection, self._database.transaction(connection):
                # Nobody else can take it before the transaction ends.
                owner = sa.select(_META.c.owner).where(self._meta).with_for_update(read=True)
                if connection.scalar(owner) != self._owner:
                    raise WrongStoreError("in-use", "another server has taken this store over; stop this one")
                yield connection
        except BaseException:
            self._open = None
            raise

    def take(self, uploads: Sequence[ArrivingUpload]) -> list[UploadStatus]:
        """Take uploads, all in one transaction, and return once they are durable; one answer each, in order.

        A known upload id is REPEATED before anything else is looked at, so that a lost answer can always be asked for
        again, even after its round was closed. A token is spent only by an upload that is ACCEPTED. An upload is
        DUPLICATE, and refused whole, where one of its reports is in it twice or in another upload of the open round.
        """
        if not uploads:
            return []
        with self._changing() as connection:
            number, _ = self._open_round_and_users(connection)
            opened = self._read_open(connection, number)
            answers = self._answers(connection, uploads, number, opened)
            taken = [each for each, answer in zip(uploads, answers, strict=True) if answer is UploadStatus.ACCEPTED]
            if number is not None and taken:
                rows = [upload.upload_id + upload.sealed for upload in taken]
                self._database.append(connection, self._table("uploads", number), rows)
                tokens = sorted(upload.token for upload in taken if upload.token is not None)
                self._database.append(connection, self._table("tokens", number), tokens)
                self._change_round(connection, number, users=_ROUND.c.users + len(taken))
                opened.add(rows)
        return answers

    def _answers(
        self, connection: sa.Connection, uploads: Sequence[ArrivingUpload], number: int | None, opened: _OpenRound
    ) -> list[UploadStatus]:
        ids = [upload.upload_id for upload in uploads]
        here = opened.ids.holds(_id_marks(ids)).tolist()
        known = _present(connection, self._table("taken"), ids) | {
            id_ for id_, found in zip(ids, here, strict=True) if found
        }
        fresh = [upload for upload in uploads if upload.round_number == number and upload.upload_id not in known]
        tokens = [upload.token for upload in fresh if upload.token is not None]
        spent = _present(connection, self._table("tokens", number or 0), tokens)
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

    def _read_open(self, connection: sa.Connection, number: int | None) -> _OpenRound:
        """What the open round holds."""
        if self._open is None:
            opened = _OpenRound()
            if number is not None:
                for rows in self._uploads(connection, number):
                    opened.add(rows)
            self._open = opened  # now that all of it is read
        return self._open

    def check(self) -> None:
        """Raise StoreError where an upload could not be taken now; found out by writing as much."""
        with self._changing() as connection:
            self._database.probe(connection, self._task.upload_bytes)
            connection.execute(sa.update(_META).where(self._meta).values(owner=self._owner))

    def rounds(self) -> Rounds:
        """Where the task's rounds stand."""
        with self._session() as connection:
            number, users = self._open_round_and_users(connection)
            released = self._in_state(connection, "released")
        return Rounds(number, users, len(released))

    def close_round(self, smallest: int) -> Batch | None:
        """Close the open round, whose users are a batch, and open the next one; None where there are fewer."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._changing() as connection:
            number, users = self._open_round_and_users(connection)
            if number is None or users < smallest or self._pending(connection) is not None:
                return None
            id_ = sa.func.substr(self._table("uploads", number).c.upload, 1, UPLOAD_ID_BYTES).label("id")
            connection.execute(sa.insert(self._table("taken")).from_select(["id"], sa.select(id_).order_by(id_)))
            batch = Batch(secrets.token_hex(16), number, users)
            self._change_round(connection, number, state="closed", batch_id=batch.batch_id)
            self._open = _OpenRound()
            if number < self._task.rounds:
                self._open_round(connection, number + 1)
        return batch

    def pending(self) -> Batch | None:
        """The batch of a closed round that is not released yet; at most one."""
        with self._session() as connection:
            return self._pending(connection)

    def sealed(self, batch: Batch) -> Iterator[bytes]:
        """The batch's sealed reports, some at a time, as they came: to be permuted before they leave."""
        try:
            with self._database.connect() as connection:
                for rows in self._uploads(connection, batch.round_number):
                    yield b"".join(row[UPLOAD_ID_BYTES:] for row in rows)
        except self._database.failures as error:
            raise self._database.unavailable(error) from error

    def _uploads(self, connection: sa.Connection, number: int) -> Iterator[list[bytes]]:
        """The uploads of a round as they came, some at a time: id and sealed reports."""
        rows = max(1, _READ_BYTES // self._task.upload_bytes)
        return self._database.pieces(connection, self._table("uploads", number), rows)

    @property
    def folder(self) -> Path | None:
        """Where a batch that does not fit into memory may wait while it is permuted; None for the system's place."""
        return self._database.folder

    def mark_released(self, batch: Batch) -> None:
        """The analyzer has the batch: delete its reports and tokens for good; its upload ids stay, without order.

        What cannot be deleted at once is left to `finish_deletion`.
        """
        with self._changing() as connection:
            self._deletion_unfinished = True
            if self._pending(connection) != batch:
                return
            self._change_round(connection, batch.round_number, state="released")
        self._try_to_finish_deletion()

    def delete_all(self, *, pending: bool = False) -> None:
        """Delete all uploads, upload ids and tokens for good and close every round: the task has expired.

        The batch of a closed round stays, unless `pending` says that it goes as well. What cannot be deleted at once
        is left to `finish_deletion`.
        """
        with self._changing() as connection:
            self._deletion_unfinished = True
            number, _ = self._open_round_and_users(connection)
            if number is not None:
                self._change_round(connection, number, state="expired", users=0)
                self._open = None
            if pending and (batch := self._pending(connection)) is not None:
                self._change_round(connection, batch.round_number, state="expired", users=0)
            self._table("taken").drop(connection)
            self._table("taken").create(connection)
        self._try_to_finish_deletion()

    def finish_deletion(self) -> None:
        """Finish a deletion that was interrupted; cheap where there is none."""
        if not self._deletion_unfinished:
            return
        with self._session() as connection:
            needed = {0, *(each.round_number for each in self._in_state(connection, "open", "closed"))}
            for table in sa.inspect(connection).get_table_names():
                _, own, number = table.partition(f"_{self._task.id[:32]}_")
                if own and int(number) not in needed:
                    connection.exec_driver_sql(f"DROP TABLE {table}")
            self._deletion_unfinished = not self._database.erase_dropped(connection)

    def _try_to_finish_deletion(self) -> None:
        """What is to be deleted counts as such, even where there is no room to delete it just now."""
        with contextlib.suppress(StoreError):
            self.finish_deletion()

    def usage(self) -> Usage:
        """How large the store is, with all tasks in it, and how much more it can hold."""
        with self._session() as connection:
            return self._database.usage(connection, sa.inspect(connection).get_table_names())

    def close(self) -> None:
        """Let go of files and connections."""
        with self._mutex:
            self._closed = True
            self._disconnect()
            self._database.let_go()

    def _become_owner(self, connection: sa.Connection) -> str:
        """Own the store, and say its name: make tables where there are none; refuse those of another task or version.

        The name was drawn when the tables were made, and `_begin_as` goes before all else that is done with them.
        """
        where, task, there = self._database.where, self._task.id, sa.inspect(connection)
        tables = set(there.get_table_names())
        if tables and not {"meta", "round"} <= tables:
            raise WrongStoreError(
                "store-mismatch", f"{where} is no shuffler's store; give the shuffler a store of its own"
            )
        made_for = connection.exec_driver_sql("SELECT * FROM meta").all() if tables else []  # by any version
        older = f"shufflesum_{task[:32]}" in there.get_schema_names()  # each task had its own
        if older or (tables and {row[0] for row in made_for} != {FORMAT}):
            raise WrongStoreError(
                "format-mismatch",
                f"the store {where} was made by another version of shufflesum (this one reads {FORMAT}); let that "
                "version release what it holds, and give this one a store of its own",
            )
        for _, known, owner, name in made_for:
            if known == task:
                if owner != self._owner:  # a full disk lets nobody write, and what is released makes room
                    connection.execute(sa.update(_META).where(self._meta).values(owner=self._owner))
                return str(name)
            if not self._database.shared:
                raise WrongStoreError(
                    "store-mismatch",
                    f"the store {where} belongs to task {known[:12]}, not to {task[:12]}; "
                    "give each task a store of its own",
                )
        return self._make_tables(connection)

    def _begin_as(self, name: str) -> None:
        """Say the store's name to whoever adds up what is collected; what that refuses is refused here for good."""
        if self._begin is not None:
            try:
                self._begin(name)
            except ShufflesumError as error:
                if not self._begun:
                    self._database.unmake()
                raise WrongStoreError(error.problem, str(error)) from error
        self._begun = True

    def _make_tables(self, connection: sa.Connection) -> str:
        name = secrets.token_hex(_NAME_BYTES)
        _SHARED.create_all(connection)
        connection.execute(sa.insert(_META).values(format=FORMAT, task=self._task.id, owner=self._owner, name=name))
        self._table("taken").create(connection)
        self._open_round(connection, 1)
        return name

    def _open_round(self, connection: sa.Connection, number: int) -> None:
        self._table("uploads", number).create(connection)
        self._table("tokens", number).create(connection)
        connection.execute(sa.insert(_ROUND).values(task=self._task.id, number=number, users=0, state="open"))

    def _table(self, kind: str, number: int = 0) -> sa.Table:
        return _task_table(self._task.id[:32], kind, number)

    def _change_round(self, connection: sa.Connection, number: int, **values: Any) -> None:
        """Change a round; where it has ended, `finish_deletion` drops its tables."""
        connection.execute(sa.update(_ROUND).where(self._rounds, _ROUND.c.number == number).values(values))

    def _in_state(self, connection: sa.Connection, *states: str) -> list[Batch]:
        """The task's rounds in these states; those that were not closed have no batch id."""
        query = sa.select(_ROUND.c.batch_id, _ROUND.c.number, _ROUND.c.users)
        return [Batch(*row) for row in connection.execute(query.where(self._rounds, _ROUND.c.state.in_(states)))]

    def _open_round_and_users(self, connection: sa.Connection) -> tuple[int | None, int]:
        opened = self._in_state(connection, "open")
        return (opened[0].round_number, opened[0].users) if opened else (None, 0)

    def _pending(self, connection: sa.Connection) -> Batch | None:
        closed = self._in_state(connection, "closed")
        return closed[0] if closed else None


def _present(connection: sa.Connection, table: sa.Table, keys: Sequence[bytes]) -> set[bytes]:
    """Those of the keys that a table holds."""
    found: set[bytes] = set()
    for start in range(0, len(keys), _KEYS):
        found.update(connection.scalars(sa.select(table.c.id).where(table.c.id.in_(keys[start : start + _KEYS]))))
    return found


def _has_copies(reports: NDArray[np.uint64], taken: set[int]) -> bool:
    """Whether a report is in its upload twice, or among those taken just now."""
    own = set(reports.tolist())
    return len(own) < len(reports) or not taken.isdisjoint(own)


def open_store(address: str, task: Task, begin: Callable[[str], None] | None = None) -> Store:
    """The store at `sqlite:PATH` or `postgresql://...`, made for this task where it is new.

    It may be out of reach, full or in use by another server for now: then its methods say so until it is not. `begin`
    is called with the random name that a store keeps for good, before anything is taken or released: once it is within
    reach, and perhaps again. Where it raises, the store is refused.
    """
    return Store(open_database(address, "shufflesum"), task, begin)
