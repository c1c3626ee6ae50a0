"""What both stores do alike: rounds, upload ids and sealed reports in tables, changed in transactions.

Uploads are first written one after another, to a list of arrivals: that is quick. Once there are many, and before a
round is closed, the list is sorted into tables of upload ids and of reports, so that a known id or report is found at
once and reports are kept apart from the ids they came with. Ids are sorted by their random bytes. Reports are sorted by
a digest that only this store can compute, with a secret key drawn for the round: a random order of the whole round, in
which nobody can choose a place, and which is read in one pass however large the round is.

Each round has tables of its own, which are dropped as a whole. The upload ids that stay are then copied to a new table:
where a row lies must not tell when it came.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shufflesum.errors import ShufflesumError
from shufflesum.service.stores.store import (
    Batch,
    NewUpload,
    Rounds,
    StoreError,
    UploadAnswer,
    WrongStoreError,
    decide,
    split,
)
from shufflesum.wire import UPLOAD_ID_BYTES, Task

__all__ = ["PLACE_BYTES", "PROBE_BYTES", "Cursor", "SqlStore"]

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

    def take(self, uploads: Sequence[NewUpload]) -> list[UploadAnswer]:
        """Take uploads; see `Store.take`."""
        with self._mutex:
            self._sort_arrivals_in_time()
            with self._changing() as cursor:
                number, _ = self._open_round_and_users(cursor)
                answers = self._answers(cursor, uploads, number)
                taken = [
                    upload for upload, answer in zip(uploads, answers, strict=True) if answer is UploadAnswer.TAKEN
                ]
                if number is not None and taken:
                    self._append(cursor, number, taken)
        return answers

    def _answers(self, cursor: Cursor, uploads: Sequence[NewUpload], number: int | None) -> list[UploadAnswer]:
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
        return decide(uploads, number, known, spent, sealed)

    def _append(self, cursor: Cursor, number: int, uploads: Sequence[NewUpload]) -> None:
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
                "other-store", f"{where} is no shuffler's store; give the shuffler a --store of its own"
            )
        made_for: Sequence[Any] = cursor.execute("SELECT * FROM meta").fetchone() or ()
        if len(made_for) != 4 or made_for[0] != FORMAT:
            raise WrongStoreError(
                "other-format",
                f"the store {where} was made by another version of shufflesum (this one reads {FORMAT}); let that "
                "version release what it holds, and give this one a --store of its own",
            )
        if made_for[1] != self._task.id:
            raise WrongStoreError(
                "other-store",
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
