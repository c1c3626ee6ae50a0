"""*Once*, at the shuffler: which uploads it has taken and which batches it has released, whatever they are kept in.

Sealed reports are kept until their round is released, and no longer. A store never learns who sent an upload or when;
upload ids are remembered apart from the reports, without order.

Both databases keep rounds, upload ids and sealed reports in tables, changed in transactions. Uploads are first written
one after another, to a list of arrivals: that is quick. Once there are many, and before a round is closed, the list is
sorted into tables of upload ids and of reports, so that a known id or report is found at once and reports are kept
apart from the ids they came with. Ids are sorted by their random bytes. Reports are sorted by a digest that only this
store can compute, with a secret key drawn for the round: a random order of the whole round, in which nobody can choose
a place, and which is read in one pass however large the round is.

Each round has tables of its own, which are dropped as a whole. The upload ids that stay are then copied to a new table:
where a row lies must not tell when it came.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import hashlib
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

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
    def reports(self) -> list[bytes]:
        """The sealed reports one by one."""
        return split(self.sealed)


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
        """The batch's sealed reports, some at a time, in a random order that was drawn for the batch as a whole."""
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
    """Sealed reports one by one; no two that were sealed are alike, and a copy that is not exact cannot be opened."""
    return [sealed[start : start + SEALED_BYTES] for start in range(0, len(sealed), SEALED_BYTES)]


def classify(
    uploads: Sequence[ArrivingUpload], open_round: int | None, known: set[bytes], spent: set[bytes], sealed: set[bytes]
) -> list[UploadStatus]:
    """The answer to each upload, given what the store knows of them: upload ids, the open round's tokens and reports.

    The sets are added to, so that uploads which repeat each other within one call are recognised as well.
    """
    answers = []
    for upload in uploads:
        reports = upload.reports
        if upload.upload_id in known:
            answer = UploadStatus.REPEATED
        elif open_round is None or upload.round_number < open_round:
            answer = UploadStatus.ROUND_CLOSED
        elif upload.round_number > open_round:
            answer = UploadStatus.ROUND_NOT_OPEN
        elif upload.token in spent:
            answer = UploadStatus.TOKEN_SPENT
        elif len(set(reports)) < len(reports) or not sealed.isdisjoint(reports):
            answer = UploadStatus.DUPLICATE
        else:
            answer = UploadStatus.ACCEPTED
            known.add(upload.upload_id)
            sealed.update(reports)
            if upload.token is not None:
                spent.add(upload.token)
        answers.append(answer)
    return answers


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

FORMAT = "shufflesum-store-5"  # one more with each change that older servers would not understand
PROBE_BYTES = 1 << 14  # written beyond an upload's size to see whether one can be: pages of its tables and indexes
PLACE_BYTES = 16  # the digest that a report is sorted by, written before it
_KEY_BYTES = 32
_NAME_BYTES = 16  # of the store itself, and of the server that owns it
_MAX_ARRIVALS = 1 << 16  # reports in the list of arrivals before it is sorted
_MAX_LISTS = 8  # times as many where that fails
_ROUND_TABLES = ("arrivals", "order_key", "reports", "tokens")


@dataclass(slots=True)
class _Arrivals:
    """The upload ids and sealed reports in the open round's list of arrivals, and the key of that round's order."""

    key: bytes
    ids: set[bytes] = field(default_factory=set)
    reports: set[bytes] = field(default_factory=set)

    def add(self, upload_id: bytes, reports: Sequence[bytes]) -> None:
        self.ids.add(upload_id)
        self.reports.update(reports)

    def placed(self, report: bytes) -> bytes:
        """A report behind its place in the round's order."""
        return hashlib.blake2b(report, digest_size=PLACE_BYTES, key=self.key).digest() + report


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
        self._arrivals: _Arrivals | None = None  # None where it has to be read from the store
        self._lists = 1  # how many times _MAX_ARRIVALS may wait
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
                self._arrivals = None
                raise

    def take(self, uploads: Sequence[ArrivingUpload]) -> list[UploadStatus]:
        """Take uploads; see `Store.take`."""
        with self._mutex:
            self._sort_arrivals_in_time()
            with self._changing() as cursor:
                number, _ = self._open_round_and_users(cursor)
                answers = self._answers(cursor, uploads, number)
                taken = [
                    upload for upload, answer in zip(uploads, answers, strict=True) if answer is UploadStatus.ACCEPTED
                ]
                if number is not None and taken:
                    self._append(cursor, number, taken)
        return answers

    def _answers(self, cursor: Cursor, uploads: Sequence[ArrivingUpload], number: int | None) -> list[UploadStatus]:
        arrivals = self._read_arrivals(cursor, number)
        ids = [upload.upload_id for upload in uploads]
        known = self._present(cursor, "taken", ids) | arrivals.ids.intersection(ids)
        fresh = [upload for upload in uploads if upload.round_number == number and upload.upload_id not in known]
        tokens = [upload.token for upload in fresh if upload.token is not None]
        reports = [report for upload in fresh for report in upload.reports]
        spent = self._present(cursor, f"tokens_{number}", tokens) if tokens else set()
        placed = [arrivals.placed(report) for report in reports]
        kept = self._present(cursor, f"reports_{number}", placed) if placed else set()
        sealed = {report[PLACE_BYTES:] for report in kept} | arrivals.reports.intersection(reports)
        return classify(uploads, number, known, spent, sealed)

    def _append(self, cursor: Cursor, number: int, uploads: Sequence[ArrivingUpload]) -> None:
        """Add uploads to the open round's list of arrivals."""
        self._insert(cursor, f"arrivals_{number:d}", [upload.upload_id + upload.sealed for upload in uploads])
        self._insert(cursor, f"tokens_{number:d}", [upload.token for upload in uploads if upload.token is not None])
        cursor.execute(
            f"UPDATE round SET users = users + {self.mark} WHERE number = {self.mark}", (len(uploads), number)
        )
        arrivals = self._read_arrivals(cursor, number)
        for upload in uploads:
            arrivals.add(upload.upload_id, upload.reports)

    def _sort_arrivals_in_time(self) -> None:
        """Sort a long list of arrivals; where that fails, a longer one will do for a while."""
        if self._arrivals is None:
            with self._reading() as cursor:
                self._read_arrivals(cursor, self._open_round_and_users(cursor)[0])
        assert self._arrivals is not None
        if len(self._arrivals.reports) < self._lists * _MAX_ARRIVALS:
            return
        try:
            with self._changing() as cursor:
                number, _ = self._open_round_and_users(cursor)
                if number is not None:
                    self._sort_arrivals(cursor, number)
        except StoreError:
            if self._lists == _MAX_LISTS:
                raise
            self._lists += 1
        else:
            self._lists = 1

    def _read_arrivals(self, cursor: Cursor, number: int | None) -> _Arrivals:
        """What the open round's list of arrivals holds."""
        if self._arrivals is None:
            arrivals = _Arrivals(b"")
            if number is not None:
                (arrivals.key,) = cursor.execute(f"SELECT id FROM order_key_{number:d}").fetchone()
                for (upload,) in cursor.execute(f"SELECT upload FROM arrivals_{number:d}").fetchall():
                    arrivals.add(upload[:UPLOAD_ID_BYTES], split(upload[UPLOAD_ID_BYTES:]))
            self._arrivals = arrivals  # now that all of it is read
        return self._arrivals

    def _sort_arrivals(self, cursor: Cursor, number: int) -> None:
        """Move the open round's list of arrivals into the sorted tables of upload ids and reports."""
        arrivals = self._read_arrivals(cursor, number)
        self._insert(cursor, "taken", sorted(arrivals.ids))
        self._insert(cursor, f"reports_{number:d}", sorted(map(arrivals.placed, arrivals.reports)))
        cursor.execute(f"DROP TABLE arrivals_{number:d}")
        self._make_list(cursor, number)
        self._arrivals = _Arrivals(arrivals.key)

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
            self._sort_arrivals(cursor, number)
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute(
                f"UPDATE round SET state = 'closed', batch_id = {self.mark} WHERE number = {self.mark}",
                (batch.batch_id, number),
            )
            self._arrivals = None
            if number < self._task.rounds:
                self._open_round(cursor, number + 1)
        return batch

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
            self._make_ids(cursor, "sorted", batch.round_number)
            cursor.execute("INSERT INTO sorted SELECT id FROM taken ORDER BY id")
            cursor.execute("DROP TABLE taken")
            cursor.execute("ALTER TABLE sorted RENAME TO taken")
        self._try_to_finish_deletion()

    def delete_all(self, *, pending: bool = False) -> None:
        """Delete everything; see `Store.delete_all`."""
        with self._changing() as cursor:
            self._deletion_unfinished = True
            number, _ = self._open_round_and_users(cursor)
            if number is not None:
                self._end_round(cursor, number, "expired")
                self._arrivals = None
            if pending and (batch := self._pending(cursor)) is not None:
                self._end_round(cursor, batch.round_number, "expired")
            cursor.execute("UPDATE round SET users = 0 WHERE state = 'expired'")
            cursor.execute("DROP TABLE taken")
            self._make_ids(cursor, "taken", self._task.rounds + 1)
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
        self._make_ids(cursor, "taken", 0)
        self._open_round(cursor, 1)
        return values[-1]

    def _make_ids(self, cursor: Cursor, table: str, number: int) -> None:
        # PostgreSQL keeps the key's name when a table is renamed, so that each needs another.
        self._make_table(cursor, table, f"id {self.binary} CONSTRAINT ids_{number:d} PRIMARY KEY")

    def _make_list(self, cursor: Cursor, number: int) -> None:
        self._make_table(cursor, f"arrivals_{number:d}", f"upload {self.binary} NOT NULL")

    def _open_round(self, cursor: Cursor, number: int) -> None:
        self._make_list(cursor, number)
        self._make_table(cursor, f"reports_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._make_table(cursor, f"tokens_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._make_table(cursor, f"order_key_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._insert(cursor, f"order_key_{number:d}", [secrets.token_bytes(_KEY_BYTES)])
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


def _round_of(table: str) -> int | None:
    """The round that a table is of, if any."""
    kind, _, number = table.rpartition("_")
    return int(number) if kind in _ROUND_TABLES else None
