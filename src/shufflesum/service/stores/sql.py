"""What both stores do alike: rounds, upload ids and sealed reports in tables, changed in transactions.

Uploads are first written one after another, to a list of arrivals: that is quick. Once there are many, and before a
round is closed, upload ids and reports are put away in tables of their own, so that a known id or report is found at
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from shufflesum.service.stores.store import Batch, Entry, Outcome, Status, StoreError, WrongStoreError, decide, split
from shufflesum.wire import UPLOAD_ID_BYTES, Task

__all__ = ["PLACE_BYTES", "Cursor", "SqlStore"]

Cursor = Any  # of either database's driver: execute, fetchone, fetchall

PLACE_BYTES = 16  # the digest that a report is sorted by, written before it
_LAYOUT = 3  # of the tables; one more with each change that older servers would not understand
_KEY_BYTES = 32
_OWNER_BYTES = 16
_MOST_RECENT = 1 << 16  # reports in the list of arrivals before they are put away
_MOST_OVERDUE = 8  # times as many where that fails
_ROUND_TABLES = ("arrived", "key", "report", "spent")


@dataclass(slots=True)
class _Recent:
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

    def __init__(self, task: Task) -> None:
        self._task = task
        self._owner = secrets.token_hex(_OWNER_BYTES)
        self._mutex = threading.RLock()
        self._recent: _Recent | None = None  # None where it has to be read from the store
        self._patience = 1  # how many times _MOST_RECENT may wait
        self._untidy = True  # whoever used it before may have been killed halfway through a deletion

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
    def _sweep(self) -> bool:
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
                        raise WrongStoreError("another server has taken this store over; stop this one")
                    yield cursor
            except BaseException:
                self._recent = None
                raise

    def add(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Store uploads; see `Store.add`."""
        with self._mutex:
            self._put_away_in_time()
            with self._changing() as cursor:
                number, _ = self._open_state(cursor)
                outcomes = self._outcomes(cursor, entries, number)
                stored = [entry for entry, outcome in zip(entries, outcomes, strict=True) if outcome is Outcome.STORED]
                if number is not None and stored:
                    self._enter(cursor, number, stored)
        return outcomes

    def _outcomes(self, cursor: Cursor, entries: Sequence[Entry], number: int | None) -> list[Outcome]:
        recent = self._arrived(cursor, number)
        ids = [entry.upload_id for entry in entries]
        known = self._present(cursor, "seen", ids) | recent.ids.intersection(ids)
        fresh = [entry for entry in entries if entry.round_number == number and entry.upload_id not in known]
        tokens = [entry.token for entry in fresh if entry.token is not None]
        reports = [report for entry in fresh for report in entry.reports]
        spent = self._present(cursor, f"spent_{number}", tokens) if tokens else set()
        placed = [recent.placed(report) for report in reports]
        kept = self._present(cursor, f"report_{number}", placed) if placed else set()
        sealed = {report[PLACE_BYTES:] for report in kept} | recent.reports.intersection(reports)
        return decide(entries, number, known, spent, sealed)

    def _enter(self, cursor: Cursor, number: int, entries: Sequence[Entry]) -> None:
        """Add uploads to the open round's list of arrivals."""
        self._insert(cursor, f"arrived_{number:d}", [entry.upload_id + entry.sealed for entry in entries])
        self._insert(cursor, f"spent_{number:d}", [entry.token for entry in entries if entry.token is not None])
        cursor.execute(
            f"UPDATE round SET users = users + {self.mark} WHERE number = {self.mark}", (len(entries), number)
        )
        recent = self._arrived(cursor, number)
        for entry in entries:
            recent.add(entry.upload_id, entry.reports)

    def _put_away_in_time(self) -> None:
        """Empty a long list of arrivals; where that fails, a longer one will do for a while."""
        if self._recent is None:
            with self._reading() as cursor:
                self._arrived(cursor, self._open_state(cursor)[0])
        assert self._recent is not None
        if len(self._recent.reports) < self._patience * _MOST_RECENT:
            return
        try:
            with self._changing() as cursor:
                number, _ = self._open_state(cursor)
                if number is not None:
                    self._put_away(cursor, number)
        except StoreError:
            if self._patience == _MOST_OVERDUE:
                raise
            self._patience += 1
        else:
            self._patience = 1

    def _arrived(self, cursor: Cursor, number: int | None) -> _Recent:
        """What the open round's list of arrivals holds."""
        if self._recent is None:
            recent = _Recent(b"")
            if number is not None:
                (recent.key,) = cursor.execute(f"SELECT id FROM key_{number:d}").fetchone()
                for (upload,) in cursor.execute(f"SELECT upload FROM arrived_{number:d}").fetchall():
                    recent.add(upload[:UPLOAD_ID_BYTES], split(upload[UPLOAD_ID_BYTES:]))
            self._recent = recent  # now that all of it is read
        return self._recent

    def _put_away(self, cursor: Cursor, number: int) -> None:
        """Empty the open round's list of arrivals into the tables of upload ids and reports."""
        recent = self._arrived(cursor, number)
        self._insert(cursor, "seen", sorted(recent.ids))
        self._insert(cursor, f"report_{number:d}", sorted(map(recent.placed, recent.reports)))
        cursor.execute(f"DROP TABLE arrived_{number:d}")
        self._make_list(cursor, number)
        self._recent = _Recent(recent.key)

    def check(self) -> None:
        """Write something; see `Store.check`."""
        with self._changing() as cursor:
            cursor.execute("UPDATE meta SET owner = owner")

    def status(self) -> Status:
        """Where the task stands."""
        with self._reading() as cursor:
            number, users = self._open_state(cursor)
            (released,) = cursor.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchone()
        return Status(number, users, released)

    def close_round(self, smallest: int) -> Batch | None:
        """Fix a batch; see `Store.close_round`."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._changing() as cursor:
            number, users = self._open_state(cursor)
            if number is None or users < smallest or self._pending(cursor) is not None:
                return None
            self._put_away(cursor, number)
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute(
                f"UPDATE round SET state = 'fixed', batch_id = {self.mark} WHERE number = {self.mark}",
                (batch.batch_id, number),
            )
            self._recent = None
            if number < self._task.rounds:
                self._open_round(cursor, number + 1)
        return batch

    def pending(self) -> Batch | None:
        """The batch that waits to be acknowledged."""
        with self._reading() as cursor:
            return self._pending(cursor)

    def acknowledge(self, batch: Batch) -> None:
        """Delete a batch; see `Store.acknowledge`."""
        with self._changing() as cursor:
            self._untidy = True
            if self._pending(cursor) != batch:
                return
            self._end_round(cursor, batch.round_number, "released")
            self._make_ids(cursor, "sorted", batch.round_number)
            cursor.execute("INSERT INTO sorted SELECT id FROM seen ORDER BY id")
            cursor.execute("DROP TABLE seen")
            cursor.execute("ALTER TABLE sorted RENAME TO seen")
        self._try_to_tidy()

    def forget(self, *, pending: bool = False) -> None:
        """Delete everything; see `Store.forget`."""
        with self._changing() as cursor:
            self._untidy = True
            number, _ = self._open_state(cursor)
            if number is not None:
                self._end_round(cursor, number, "expired")
                self._recent = None
            if pending and (batch := self._pending(cursor)) is not None:
                self._end_round(cursor, batch.round_number, "expired")
            cursor.execute("UPDATE round SET users = 0 WHERE state = 'expired'")
            cursor.execute("DROP TABLE seen")
            self._make_ids(cursor, "seen", self._task.rounds + 1)
        self._try_to_tidy()

    def tidy(self) -> None:
        """Finish a deletion that was interrupted; see `Store.tidy`."""
        if not self._untidy:
            return
        with self._mutex:
            with self._reading() as cursor:
                needed = {row[0] for row in cursor.execute("SELECT number FROM round WHERE state IN ('open', 'fixed')")}
                left = [table for table in self._table_names(cursor) if _round_of(table) not in {None, *needed}]
                for table in left:
                    cursor.execute(f"DROP TABLE {table}")
            self._untidy = not self._sweep()

    def _try_to_tidy(self) -> None:
        """What was given up is given up, even where there is no room to delete it just now."""
        with contextlib.suppress(StoreError):
            self.tidy()

    def _take_possession(self, cursor: Cursor, where: str) -> None:
        """Own the store: make its tables where there are none; refuse those of another task or another version."""
        tables = self._table_names(cursor)
        if not tables:
            self._make_tables(cursor)
            return
        if not {"meta", "round"} <= set(tables):
            raise WrongStoreError(f"{where} is no shuffler's store; give the shuffler a --store of its own")
        made_for: Sequence[Any] = cursor.execute("SELECT * FROM meta").fetchone() or ()
        if len(made_for) != 3 or made_for[0] != _LAYOUT:
            raise WrongStoreError(
                f"the store {where} was made by another version of shufflesum; let that version release what it holds, "
                "and give this one a --store of its own"
            )
        if made_for[1] != self._task.id:
            raise WrongStoreError(
                f"the store {where} belongs to task {made_for[1][:12]}, not to {self._task.id[:12]}; "
                "give each task a --store of its own"
            )
        cursor.execute(f"UPDATE meta SET owner = {self.mark}", (self._owner,))

    def _make_tables(self, cursor: Cursor) -> None:
        cursor.execute("CREATE TABLE meta (layout INTEGER NOT NULL, task TEXT NOT NULL, owner TEXT NOT NULL)")
        values = (_LAYOUT, self._task.id, self._owner)
        cursor.execute(f"INSERT INTO meta VALUES ({self.mark}, {self.mark}, {self.mark})", values)
        cursor.execute(
            "CREATE TABLE round (number INTEGER PRIMARY KEY, users BIGINT NOT NULL, state TEXT NOT NULL, batch_id TEXT)"
        )
        self._make_ids(cursor, "seen", 0)
        self._open_round(cursor, 1)

    def _make_ids(self, cursor: Cursor, table: str, number: int) -> None:
        # PostgreSQL keeps the key's name when a table is renamed, so that each needs another.
        self._make_table(cursor, table, f"id {self.binary} CONSTRAINT ids_{number:d} PRIMARY KEY")

    def _make_list(self, cursor: Cursor, number: int) -> None:
        self._make_table(cursor, f"arrived_{number:d}", f"upload {self.binary} NOT NULL")

    def _open_round(self, cursor: Cursor, number: int) -> None:
        self._make_list(cursor, number)
        self._make_table(cursor, f"report_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._make_table(cursor, f"spent_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._make_table(cursor, f"key_{number:d}", f"id {self.binary} PRIMARY KEY")
        self._insert(cursor, f"key_{number:d}", [secrets.token_bytes(_KEY_BYTES)])
        cursor.execute(f"INSERT INTO round VALUES ({self.mark}, 0, 'open', NULL)", (number,))

    def _end_round(self, cursor: Cursor, number: int, state: str) -> None:
        """Give a round up; `tidy` drops its tables."""
        cursor.execute(f"UPDATE round SET state = {self.mark} WHERE number = {self.mark}", (state, number))

    def _open_state(self, cursor: Cursor) -> tuple[int | None, int]:
        row = cursor.execute("SELECT number, users FROM round WHERE state = 'open'").fetchone()
        return (None, 0) if row is None else (row[0], row[1])

    def _pending(self, cursor: Cursor) -> Batch | None:
        row = cursor.execute("SELECT batch_id, number, users FROM round WHERE state = 'fixed'").fetchone()
        return None if row is None else Batch(*row)


def _round_of(table: str) -> int | None:
    """The round that a table is of, if any."""
    kind, _, number = table.rpartition("_")
    return int(number) if kind in _ROUND_TABLES else None
