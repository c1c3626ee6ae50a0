"""Users who each say something of their own, so that any report lost or counted twice shows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from shufflesum.service.stores.tables import CountedBatch

__all__ = ["check_rounds", "dependence", "expected_table", "rows_of"]


def rows_of(users: int) -> NDArray[np.float64]:
    """With as many levels as users, user i says i for the first coordinate and users - 1 - i for the second."""
    return np.stack([np.arange(users), users - 1 - np.arange(users)], axis=1) / users


def expected_table(users: int) -> NDArray[np.int64]:
    """One report of each user for each coordinate."""
    table = np.ones((2, users + 1), dtype=np.int64)
    table[:, users] = 0
    return table.reshape(-1)


def dependence(order: list[int]) -> float:
    """Rank correlation with the order of arrival in standard deviations: standard normal where there is none."""
    places = np.asarray(order, dtype=np.float64)
    return float(np.corrcoef(np.arange(len(places)), places)[0, 1] * math.sqrt(len(places) - 1))


def check_rounds(counted: list[CountedBatch], rounds: int, users: int) -> None:
    """Every round is there once, and every user's reports once in it."""
    assert [batch.round_number for batch in counted] == list(range(1, rounds + 1))
    assert len({batch.batch_id for batch in counted}) == rounds
    for batch in counted:
        assert (batch.users, batch.rejected) == (users, 0)
        assert np.array_equal(batch.table, expected_table(users)), f"round {batch.round_number}: {batch.table}"
