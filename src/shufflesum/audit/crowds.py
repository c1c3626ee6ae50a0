"""Rows of many users who all hold the same, but for one, or who hold several things in turn; and what they sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from shufflesum.domain import Ball, Box, Domain, Groups
from shufflesum.plans import Plan
from shufflesum.reports import Counts

__all__ = ["Count", "Crowd", "alike", "in_turn", "users_at_once"]

Count = Callable[[Any], Counts]
"""Rows to their table of counts."""

_CHUNK_REPORTS = 1 << 18
_CHUNK_VALUES = 1 << 21


def alike(domain: Domain, row: Any, size: int, first: Any = None) -> Any:
    """What a domain takes for so many users: `row` for each, but `first`, if given, for the very first."""
    first = row if first is None else first
    if isinstance(domain, Ball | Box):
        rows = np.repeat(np.asarray(row)[None], size, axis=0)
        rows[0] = first
        return rows
    if isinstance(domain, Groups):
        (label, array), (first_label, first_array) = row, first
        return [first_label, *[label] * (size - 1)], alike(domain.box, array, size, first_array)
    return [first, *[row] * (size - 1)]


def in_turn(domain: Domain, rows: Sequence[Any], size: int) -> Any:
    """What a domain takes for so many users who hold these rows in turn."""
    if isinstance(domain, Ball | Box):
        return np.stack([np.asarray(row) for row in rows])[np.arange(size) % len(rows)]
    if isinstance(domain, Groups):
        labels = [rows[user % len(rows)][0] for user in range(size)]
        return labels, in_turn(domain.box, [array for _, array in rows], size)
    return [rows[user % len(rows)] for user in range(size)]


def users_at_once(plan: Plan, reports: int = _CHUNK_REPORTS) -> int:
    """How many users' rows and reports make a piece that is kept easily."""
    entries = plan.domain.dimension if isinstance(plan.domain, Ball | Box | Groups) else 1
    return max(1, min(reports // plan.reports, _CHUNK_VALUES // entries))


class Crowd:
    """Users who all hold the same, and the table of what they sent."""

    def __init__(self, plan: Plan, row: Any) -> None:
        self.counts, self.users = Counts(plan), 0
        self._domain, self._row = plan.domain, row
        self._size = users_at_once(plan)
        self._rows = alike(plan.domain, row, self._size)

    def chunks(self, users: int, first: Any) -> Iterator[Any]:
        """So many rows, in pieces; the very first of them is another one."""
        for start in range(0, users, self._size):
            size = min(self._size, users - start)
            if start == 0:
                yield alike(self._domain, self._row, size, first)
            else:
                yield self._rows if size == self._size else alike(self._domain, self._row, size)

    def report(self, count: Count) -> Crowd:
        """Let as many users report as fit in one piece."""
        self.counts.merge(count(self._rows))
        self.users += self._size
        return self
