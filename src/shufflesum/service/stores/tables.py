"""*Once*, at the analyzer: which batches it has counted, each with its table, written in one transaction.

A batch is either in here, whole and once, or not at all. No report is ever written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from shufflesum.errors import FileError, ShufflesumError
from shufflesum.service.logs import log
from shufflesum.service.stores.database import Database, StoreError, Usage, WrongStoreError, open_database
from shufflesum.wire import Task

FORMAT = "shufflesum_tables_3"  # the table's name in the database; those of other versions are refused

_TABLES = sa.Table(
    FORMAT,
    sa.MetaData(),
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("batch", sa.Text, nullable=False),
    *(sa.Column(figure, sa.BigInteger, nullable=False) for figure in ("users", "blanks", "rejected", "unreadable")),
    sa.Column("counts", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("task", "batch"),
)
_MOST_PROBED = 1 << 20


class WrongBatchError(ShufflesumError):
    """A batch contradicts one that was counted: each round has one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedBatch:
    """A batch after counting: its users as the shuffler counted them, blank and rejected reports, and the table.

    Of the rejected reports the unreadable ones could not be opened; the others name no cell of the plan.
    """

    round_number: int
    batch_id: str
    users: int
    blanks: int
    rejected: int
    unreadable: int
    table: NDArray[np.int64]


class BatchStore:
    """The tables of one task in SQLite or PostgreSQL.

    Calls are rare (a batch, a question), so each opens a connection of its own: after an outage the next call works
    again without help. Every method raises StoreError where the store is out of reach.
    """

    def __init__(self, database: Database, task: Task) -> None:
        self._task = task
        self._database = database
        self._own = _TABLES.c.task == task.id
        self._made = False

    def record(self, counted: CountedBatch) -> bool:
        """Keep a counted batch, durably; False if it was kept before, `WrongBatchError` as for `is_counted`."""
        row = (
            *(self._task.id, counted.round_number, counted.batch_id),
            *(counted.users, counted.blanks, counted.rejected, counted.unreadable),
            counted.table.astype("<i8").tobytes(),
        )
        with self._transaction() as connection:
            adding = self._database.insert_if_new(_TABLES).values(row).on_conflict_do_nothing()
            added = connection.scalar(adding.returning(_TABLES.c.round)) is not None
        if not added:
            self.is_counted(counted.batch_id, counted.round_number)
        return added

    def is_counted(self, batch_id: str, round_number: int) -> bool:
        """Whether a batch is here already.

        Another batch for the same round, or the same batch for another round, is a `WrongBatchError`.
        """
        columns = _TABLES.c
        query = sa.select(columns.batch, columns.round).where(
            self._own, sa.or_(columns.batch == batch_id, columns.round == round_number)
        )
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        for known_batch, known_round in rows:
            if (known_batch, known_round) != (batch_id, round_number):
                raise WrongBatchError(
                    "wrong-batch",
                    f"batch {batch_id} for round {round_number}; round {known_round} already has batch {known_batch}: "
                    "each round is released once",
                )
        return bool(rows)

    def batch_ids(self) -> list[str]:
        """The ids of all batches counted so far, by round."""
        with self._transaction() as connection:
            return list(connection.scalars(sa.select(_TABLES.c.batch).where(self._own).order_by(_TABLES.c.round)))

    def counted(self) -> list[CountedBatch]:
        """All batches counted so far, by round."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(_TABLES).where(self._own).order_by(_TABLES.c.round)).all()
        return [
            CountedBatch(*(*figures, np.frombuffer(counts, "<i8").astype(np.int64))) for _, *figures, counts in rows
        ]

    def usage(self) -> Usage:
        """What the tables take, of all tasks in this store, and what is free where they lie."""
        with self._transaction() as connection:
            return self._database.usage(connection, [FORMAT])

    def check(self) -> None:
        """Raise StoreError where a table could not be kept now; found out by writing as much, up to a megabyte."""
        with self._transaction() as connection:
            self._database.probe(connection, min(8 * self._task.plan.cells, _MOST_PROBED))
            connection.execute(sa.select(_TABLES.c.round).limit(1)).all()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self._database.connect() as connection, self._database.transaction(connection):
                if not self._made:
                    self._refuse_others(sa.inspect(connection).get_table_names())
                    _TABLES.create(connection, checkfirst=True)
                yield connection
            self._made = True
        except self._database.failures as error:
            if isinstance(error, ShufflesumError):
                raise
            raise self._database.unavailable(error) from error

    def _refuse_others(self, tables: list[str]) -> None:
        where = self._database.where
        if "round" in tables:
            raise WrongStoreError(
                "store-mismatch", f"{where} is a shuffler's store; give the analyzer a store of its own"
            )
        if other := sorted(name for name in tables if name.startswith("shufflesum_") and name != FORMAT):
            raise WrongStoreError(
                "format-mismatch",
                f"the analyzer's store {where} was made by another version of shufflesum ({other[0]}; this one reads "
                f"{FORMAT}); read older estimates with that version, and give this one a store of its own",
            )


def open_tables(address: str, task: Task) -> BatchStore:
    """The tables at `sqlite:PATH` or `postgresql://...`, made where they are new; they may be out of reach for now."""
    database = open_database(address)
    try:
        database.make()
    except OSError as error:
        raise FileError(
            "unwritable",
            f"the analyzer's store {database.where} cannot be made: {error.strerror}; choose another",
        ) from error
    store = BatchStore(database, task)
    try:
        store.check()
    except WrongStoreError:
        raise
    except StoreError as error:
        log.warning("store unavailable, will be tried again", error=str(error))
    return store
