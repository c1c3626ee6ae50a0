"""What both stores do alike: rounds, upload ids and sealed reports in tables, changed in transactions.

Each round has tables of its own, which are dropped as a whole. The upload ids that stay are copied, in the order of
the (random) ids, to a new table: where a row lies must not tell when it came.
"""

from __future__ import annotations

import abc
import contextlib
import secrets
from collections.abc import Sequence
from typing import Any

from shufflesum.service.store import Batch, Entry, Outcome, Status, decide
from shufflesum.wire import Task

__all__ = ["Cursor", "SqlStore"]

Cursor = Any  # of either database's driver: execute, fetchone, fetchall


class SqlStore(abc.ABC):
    """A `Store` over a database that speaks SQL; what the two databases say differently is left to them."""

    binary: str  # the type of a column of bytes
    keyed: str  # what follows a table that has nothing but its key
    mark: str  # how a parameter is written

    def __init__(self, task: Task) -> None:
        self._task = task
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
    def tidy(self) -> None:
        """Finish a deletion that was interrupted; see `Store.tidy`."""

    def add(self, entries: Sequence[Entry]) -> list[Outcome]:
        """Store uploads; see `Store.add`."""
        with self._transaction() as cursor:
            number, _ = self._open_state(cursor)
            known = self._present(cursor, "seen", [entry.upload_id for entry in entries])
            tokens = [entry.token for entry in entries if entry.token is not None]
            spent = self._present(cursor, f"spent_{number}", tokens) if number is not None and tokens else set()
            keys = [key for entry in entries if entry.round_number == number for key in entry.keys]
            sealed = self._present(cursor, f"sealed_key_{number}", keys) if keys else set()
            outcomes = decide(entries, number, known, spent, sealed)
            stored = [entry for entry, outcome in zip(entries, outcomes, strict=True) if outcome is Outcome.STORED]
            if stored:
                self._insert(cursor, "seen", [entry.upload_id for entry in stored])
                self._insert(cursor, f"upload_{number}", [entry.sealed for entry in stored])
                self._insert(cursor, f"spent_{number}", [entry.token for entry in stored if entry.token is not None])
                # In order: neighbours are then written together, which matters to an index that outgrew its cache.
                self._insert(cursor, f"sealed_key_{number}", sorted(key for entry in stored for key in entry.keys))
                cursor.execute(
                    f"UPDATE round SET users = users + {self.mark} WHERE number = {self.mark}", (len(stored), number)
                )
        return outcomes

    def status(self) -> Status:
        """Where the task stands."""
        with self._reading() as cursor:
            number, users = self._open_state(cursor)
            (released,) = cursor.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchone()
        return Status(number, users, released)

    def close_round(self, smallest: int) -> Batch | None:
        """Fix a batch; see `Store.close_round`."""
        smallest = max(smallest, self._task.smallest_batch)
        with self._transaction() as cursor:
            number, users = self._open_state(cursor)
            if number is None or users < smallest or self._pending(cursor) is not None:
                return None
            batch = Batch(secrets.token_hex(16), number, users)
            cursor.execute(
                f"UPDATE round SET state = 'fixed', batch_id = {self.mark} WHERE number = {self.mark}",
                (batch.batch_id, number),
            )
            if number < self._task.rounds:
                self._open_round(cursor, number + 1)
        return batch

    def pending(self) -> Batch | None:
        """The batch that waits to be acknowledged."""
        with self._reading() as cursor:
            return self._pending(cursor)

    def acknowledge(self, batch: Batch) -> None:
        """Delete a batch; see `Store.acknowledge`."""
        with self._transaction() as cursor:
            if self._pending(cursor) != batch:
                return
            self._drop_round(cursor, batch.round_number, "released")
            self._make_ids(cursor, "sorted", batch.round_number)
            cursor.execute("INSERT INTO sorted SELECT id FROM seen ORDER BY id")
            cursor.execute("DROP TABLE seen")
            cursor.execute("ALTER TABLE sorted RENAME TO seen")
        self._untidy = True
        self.tidy()

    def forget(self, *, pending: bool = False) -> None:
        """Delete everything; see `Store.forget`."""
        with self._transaction() as cursor:
            number, _ = self._open_state(cursor)
            if number is not None:
                self._drop_round(cursor, number, "expired")
            if pending and (batch := self._pending(cursor)) is not None:
                self._drop_round(cursor, batch.round_number, "expired")
            cursor.execute("UPDATE round SET users = 0 WHERE state = 'expired'")
            cursor.execute("DROP TABLE seen")
            self._make_ids(cursor, "seen", self._task.rounds + 1)
        self._untidy = True
        self.tidy()

    def _make_tables(self, cursor: Cursor) -> None:
        cursor.execute(
            "CREATE TABLE round (number INTEGER PRIMARY KEY, users BIGINT NOT NULL, state TEXT NOT NULL, batch_id TEXT)"
        )
        self._make_ids(cursor, "seen", 0)
        self._open_round(cursor, 1)

    def _make_ids(self, cursor: Cursor, table: str, number: int) -> None:
        # PostgreSQL keeps the key's name when a table is renamed, so that each needs another.
        cursor.execute(f"CREATE TABLE {table} (id {self.binary} CONSTRAINT ids_{number:d} PRIMARY KEY){self.keyed}")

    def _open_round(self, cursor: Cursor, number: int) -> None:
        cursor.execute(f"CREATE TABLE upload_{number:d} (sealed {self.binary} NOT NULL)")
        cursor.execute(f"CREATE TABLE spent_{number:d} (id {self.binary} PRIMARY KEY){self.keyed}")
        cursor.execute(f"CREATE TABLE sealed_key_{number:d} (id {self.binary} PRIMARY KEY){self.keyed}")
        cursor.execute(f"INSERT INTO round VALUES ({self.mark}, 0, 'open', NULL)", (number,))

    def _drop_round(self, cursor: Cursor, number: int, state: str) -> None:
        cursor.execute(f"DROP TABLE upload_{number:d}")
        cursor.execute(f"DROP TABLE spent_{number:d}")
        cursor.execute(f"DROP TABLE sealed_key_{number:d}")
        cursor.execute(f"UPDATE round SET state = {self.mark} WHERE number = {self.mark}", (state, number))

    def _open_state(self, cursor: Cursor) -> tuple[int | None, int]:
        row = cursor.execute("SELECT number, users FROM round WHERE state = 'open'").fetchone()
        return (None, 0) if row is None else (row[0], row[1])

    def _pending(self, cursor: Cursor) -> Batch | None:
        row = cursor.execute("SELECT batch_id, number, users FROM round WHERE state = 'fixed'").fetchone()
        return None if row is None else Batch(*row)
