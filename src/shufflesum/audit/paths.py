"""Lets known users report along every path, and looks at single users, neighbours, batches, calls and processes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.audit.crowds import Count, alike, in_turn, users_at_once
from shufflesum.audit.findings import Sums, Watch, in_forks, rare_event
from shufflesum.mechanisms import Attack, ExpectedCounts
from shufflesum.plans import Plan
from shufflesum.reports import Counts, Reports

__all__ = ["LIGHT", "MANY_ROWS", "ONE_ROW", "Paths", "Randomize"]

Randomize = Callable[[Any], Reports]
"""Rows to reports, `plan.reports` for each, users one after another."""

MANY_ROWS, ONE_ROW, LIGHT = "many rows", "one row at a time", "one row at a time, nothing compiled"

_PIECE_REPORTS = 1 << 17
_FORKED_REPORTS = 1 << 15
_ONE_ROW_USERS = 300  # of each crowd; a call for each
_BATCHES = 16  # of each crowd, where only whole batches can be looked at

_Cells = NDArray[np.uint32]


class Paths:
    """What was seen of single users and batches, path by path."""

    def __init__(self, plan: Plan, attack: Attack) -> None:
        self._plan, self._attack = plan, attack
        self.sums = Sums()
        self.paths: list[str] = []
        self.tables: list[list[ExpectedCounts]] = []
        self.rejected = 0

    def many_rows(self, client: Randomize, reports: int, over: Callable[[], bool]) -> None:
        """Whole pieces of each crowd, each twice, until there are enough reports or it is `over`."""
        watch = self._watch(MANY_ROWS)
        crowds = len(self._attack.crowds)
        users, done = users_at_once(self._plan, max(_FORKED_REPORTS, min(_PIECE_REPORTS, reports // crowds))), 0
        rows = [alike(self._plan.domain, row, users) for row in self._attack.crowds]
        while done < reports:
            for number, held in enumerate(rows):
                first, second = (self._cells(client, held, users) for _ in range(2))
                for cells in (first, second):
                    watch.users(number, cells)
                watch.calls("two calls", number, first, second)
            done += 2 * len(rows) * users * self._plan.reports
            if over():
                break
        self._variants(client, watch, users)
        self._forks(client, watch)

    def one_row(self, path: str, client: Randomize, over: Callable[[], bool]) -> None:
        """Users one by one, a call for each, as a client on a device does it."""
        watch, plan, attack = self._watch(path), self._plan, self._attack
        tables, users = [], []
        for number, row in enumerate(attack.crowds):
            held, cells = alike(plan.domain, row, 1), list[_Cells]()
            while len(cells) < _ONE_ROW_USERS and not (len(cells) > 1 and over()):
                cells.append(self._cells(client, held, 1)[0])
            counts = Counts(plan)
            counts.add(Reports(plan.id, np.concatenate(cells)))
            watch.users(number, np.stack(cells))
            self.rejected += counts.rejected
            tables.append(counts.table)
            users.append(len(cells))
        for kind in attack.expected(tables, users):
            self.tables.append([counts._replace(name=f"{path}: {counts.name}") for counts in kind])

    def rare(self, client: Randomize, reports: int, over: Callable[[], bool]) -> None:
        """The first crowd, until one user in a thousand without noise would be seen; not where that takes too many."""
        silent = self._attack.silent
        event = None if silent is None else rare_event(self._attack.places(0)[0], silent)
        if event is None or event.users * self._plan.reports > reports:
            return
        size, done = users_at_once(self._plan), 0
        rows = alike(self._plan.domain, self._attack.crowds[0], size)
        while done < event.users and not over():
            happened = event.happened(self._cells(client, rows, size))
            name = f"{MANY_ROWS}: {event.name} happened"
            self.sums.add("single users", name, happened, size, size * event.chance)
            done += size

    def whole_batches(self, count: Count, reports: int, over: Callable[[], bool]) -> None:
        """Only tables of counts, where one process adds everything up."""
        watch = self._watch("whole batches")
        users = min(users_at_once(self._plan, _PIECE_REPORTS), self._plan.honest_users)
        done = 0
        while done < reports:
            for number, row in enumerate(self._attack.crowds):
                held = alike(self._plan.domain, row, users)
                watch.tables(number, [count(held).table for _ in range(_BATCHES)], users)
                done += _BATCHES * users * self._plan.reports
                if over():
                    return

    def _variants(self, client: Randomize, watch: Watch, users: int) -> None:
        variants, first = self._attack.variants, len(self._attack.crowds)
        users = -(-users // len(variants)) * len(variants)
        cells = self._cells(client, in_turn(self._plan.domain, variants, users), users)
        for variant in range(len(variants)):
            watch.held(variant, first + variant, cells[variant :: len(variants)])

    def _forks(self, client: Randomize, watch: Watch) -> None:
        users = users_at_once(self._plan, _FORKED_REPORTS)
        rows = alike(self._plan.domain, self._attack.crowds[0], users)
        made = in_forks(lambda: self._cells(client, rows, users))
        for first, second in combinations(made, 2):
            watch.calls("forked processes", 0, *(cells.reshape(users, -1) for cells in (first, second)))

    def _watch(self, path: str) -> Watch:
        self.paths.append(path)
        return Watch(self._attack, self.sums, path, self._plan.honest_users)

    def _cells(self, client: Randomize, rows: Any, users: int) -> _Cells:
        """(users, reports) cells; where there are more or fewer, a finding, and what is missing is out of range."""
        cells = client(rows).cells
        size = users * self._plan.reports
        name = f"other than {self._plan.reports} reports for each user happened"
        self.sums.add("reports per user", name, len(cells) != size, 1, 0.0)
        if len(cells) != size:
            whole = np.full(size, self._plan.cells, dtype=np.uint32)
            whole[: min(size, len(cells))] = cells[:size]
            cells = whole
        return cells.reshape(users, self._plan.reports)
