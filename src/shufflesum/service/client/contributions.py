"""*Once*, at the client: who has contributed to which round of which task, and with which bytes.

An upload is written here before it is first sent. Whatever happens then, a lost answer or a killed process, the same
bytes under the same upload id go out again, so that a shuffler recognises them and nobody counts twice.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from shufflesum._clock import SYSTEM_CLOCK, Clock
from shufflesum.errors import FileError, ParameterError
from shufflesum.wire import Task

__all__ = ["Contributions", "default_contributions"]

FORMAT = "shufflesum-contributions-1"

_MAX_LABEL = 1000
_TABLES = (
    "CREATE TABLE format (name TEXT NOT NULL)",
    f"INSERT INTO format VALUES ('{FORMAT}')",
    "CREATE TABLE contributions (task TEXT NOT NULL, label TEXT NOT NULL, round INTEGER NOT NULL, "
    "expires TEXT NOT NULL, upload BLOB, PRIMARY KEY (task, label, round)) WITHOUT ROWID",
)
_FIND = "SELECT upload FROM contributions WHERE task = ? AND label = ? AND round = ?"


def default_contributions() -> Path:
    """Where contributions are remembered: `SHUFFLESUM_CONTRIBUTIONS`, or a file in the user's data folder."""
    chosen = os.environ.get("SHUFFLESUM_CONTRIBUTIONS")
    if chosen:
        return Path(chosen)
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "shufflesum" / "contributions.sqlite"


class Contributions:
    """Contributions by (task, user label, round), in a file that several processes may share.

    A contribution is pending, with its bytes, until the shuffler has acknowledged it; then only the fact is kept.
    """

    def __init__(self, path: str | Path, clock: Clock = SYSTEM_CLOCK) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # For its owner only: pending uploads are sealed, but who took part is nobody's business.
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
            self._connection = sqlite3.connect(
                self.path, timeout=30, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        try:
            with self._transaction():
                self._make_or_check()
            with self._explained():
                self._connection.execute("PRAGMA journal_mode = WAL")
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA secure_delete = ON")
                self._delete_expired_bytes(clock.now())
        except BaseException:
            self._connection.close()
            raise

    def known(self, task: Task, labels: Sequence[str], round_number: int) -> dict[str, bytes | None]:
        """Of these users, those who have contributed: None if acknowledged, else the pending bytes."""
        found: dict[str, bytes | None] = {}
        with self._explained(), self._lock:
            for label in labels:
                row = self._connection.execute(_FIND, (task.id, _checked(label), round_number)).fetchone()
                if row is not None:
                    found[label] = row[0]
        return found

    def claim(self, task: Task, round_number: int, uploads: Mapping[str, bytes]) -> dict[str, bytes | None]:
        """Remember uploads, durably, before they are sent; returns what is to be sent for each label.

        Where a contribution is known already the first one stands: its pending bytes, or None if acknowledged.
        """
        expires = task.expires.isoformat()
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO contributions VALUES (?, ?, ?, ?, ?)",
                [(task.id, _checked(label), round_number, expires, upload) for label, upload in uploads.items()],
            )
            return {label: connection.execute(_FIND, (task.id, label, round_number)).fetchone()[0] for label in uploads}

    def acknowledge(self, task: Task, round_number: int, labels: Sequence[str]) -> None:
        """Remember that uploads were taken, and drop their bytes."""
        with self._transaction() as connection:
            connection.executemany(
                "UPDATE contributions SET upload = NULL WHERE task = ? AND label = ? AND round = ?",
                [(task.id, label, round_number) for label in labels],
            )

    def close(self) -> None:
        """Close the file; everything in it is durable already."""
        self._connection.close()

    def __enter__(self) -> Contributions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make_or_check(self) -> None:
        tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            for statement in _TABLES:
                self._connection.execute(statement)
            return
        known = "format" in tables and self._connection.execute("SELECT name FROM format").fetchone()
        if known != (FORMAT,):
            raise FileError(
                "other-format",
                f"{self.path} holds no contributions in the format {FORMAT}, but tables of another version or program "
                f"({', '.join(sorted(tables))[:100]}); finish older tasks with the version that began them, and name "
                "another file for this one (--contributions, SHUFFLESUM_CONTRIBUTIONS)",
            )

    def _delete_expired_bytes(self, now: datetime) -> None:
        """What was never acknowledged and never can be is not kept; that it was tried still is."""
        self._connection.execute(
            "UPDATE contributions SET upload = NULL WHERE upload IS NOT NULL AND expires < ?",
            (now.isoformat(),),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except FileError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise FileError(
                "unreadable",
                f"the contributions in {self.path} cannot be used: {error}; nothing is sent without them, because "
                "nobody must count twice: name a file that you may write (--contributions, SHUFFLESUM_CONTRIBUTIONS)",
            ) from error


def _checked(label: str) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > _MAX_LABEL:
        raise ParameterError(
            "out-of-range",
            f"a user's label must be text of 1 to {_MAX_LABEL} characters; see --user and --user-column",
            value=f"{label!r:.80}",
        )
    return label
