"""Lets known users report along every path, and looks at single users, neighbours, batches, calls and processes."""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, cycle
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum.audit.findings import Sums, Watch, less_noise_shown, rare_event, users_to_show
from shufflesum.mechanisms.auditing import Attack, ExpectedCounts
from shufflesum.plans import Plan
from shufflesum.reports import Counts, Reports

Count = Callable[[Any], Counts]
"""Rows to their table of counts."""

Copies = list[NDArray[np.uint32]]
_SECONDS = 20.0


def in_forks(work: Callable[[], NDArray[np.uint32]], children: int = 2) -> Copies:
    """The cells that this process and its forked copies make; empty where forks are not to be had.

    A copy that cannot do the work, or takes too long for it, is ended and left out.
    """
    if not hasattr(os, "fork"):
        return []
    pipes = [_forked(work) for _ in range(children)]
    made = [work()]
    for child, pipe in pipes:
        cells = _read(child, pipe)
        made += [cells] if cells.size else []
    return made if len(made) > 1 else []


def _forked(work: Callable[[], NDArray[np.uint32]]) -> tuple[int, int]:
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which this child does without
        child = os.fork()
    if child:
        os.close(writable)
        return child, readable
    try:
        os.close(readable)
        with os.fdopen(writable, "wb") as pipe:
            pipe.write(np.ascontiguousarray(work(), dtype=np.uint32).tobytes())
    finally:
        os._exit(0)  # nothing of the parent's is flushed or closed twice


def _read(child: int, pipe: int) -> NDArray[np.uint32]:
    """What a child writes until it ends; nothing where it stalls."""
    pieces: list[bytes] = []
    try:
        while True:
            if not select.select([pipe], [], [], _SECONDS)[0]:
                os.kill(child, signal.SIGKILL)
                pieces = []
                break
            piece = os.read(pipe, 1 << 20)
            if not piece:
                break
            pieces.append(piece)
    finally:
        os.close(pipe)
        os.waitpid(child, 0)
    whole = b"".join(pieces)
    return np.frombuffer(whole[: len(whole) // 4 * 4], dtype=np.uint32)


Randomize = Callable[[Any], Reports]
"""Rows to reports, `plan.reports` for each, users one after another."""

MANY_ROWS, ONE_ROW, LIGHT = "many rows", "one row at a time", "one row at a time, nothing compiled"
ONE_PROCESS = "whole batches in one process"

_CHUNK_REPORTS = 1 << 18
_CHUNK_VALUES = 1 << 21
_PIECE_REPORTS = 1 << 17
_FORKED_REPORTS = 1 << 15
_BATCHES = 16  # of each crowd, where only whole batches can be looked at
_LEAST_USERS = 300  # of each crowd that report one by one, if there is time
_CLOSE, _CLOSE_OF_VARIANTS = 0.08, 0.5  # less noise than planned that one row at a time need not look closer than
_CROWDS_PART, _VARIANTS_PART = 0.55, 0.85  # of a path's time, until each has it
_TURNS = 3  # of crowds whose noise is added up, for one of each other
_FORKED_PART = 0.2  # of the users of all crowds, once more in every process

_Cells = NDArray[np.uint32]


def users_at_once(plan: Plan, reports: int = _CHUNK_REPORTS) -> int:
    """How many users' rows and reports make a piece that is kept easily."""
    return max(1, min(reports // plan.reports, _CHUNK_VALUES // plan.domain.entries))


class Crowd:
    """Users who all hold the same, and the table of what they sent."""

    def __init__(self, plan: Plan, row: Any) -> None:
        self.counts, self.users = Counts(plan), 0
        self._domain, self._row = plan.domain, row
        self._size = users_at_once(plan)
        self._rows = plan.domain.repeated(row, self._size)

    def chunks(self, users: int, first: Any) -> Iterator[Any]:
        """So many rows, in pieces; the very first of them is another one."""
        for start in range(0, users, self._size):
            size = min(self._size, users - start)
            if start == 0:
                yield self._domain.repeated(self._row, size, first)
            else:
                yield self._rows if size == self._size else self._domain.repeated(self._row, size)

    def report(self, count: Count) -> Crowd:
        """Let as many users report as fit in one piece."""
        self.counts.merge(count(self._rows))
        self.users += self._size
        return self


class Drawn(NamedTuple):
    """Who reported along a path.

    `held` is how many rows they held: those of crowds, and variants, of which some are rows of crowds once more. That
    all users lack a part of their noise shows, hardly ever missed, from `less_noise` of it on, or not even where all of
    it is missing, if that is None.
    """

    path: str
    users: int
    held: int
    less_noise: float | None


class Paths:
    """What was seen of single users and batches, path by path."""

    def __init__(self, plan: Plan, attack: Attack) -> None:
        self._plan, self._attack = plan, attack
        self.sums = Sums()
        self.drawn: list[Drawn] = []
        self.tables: list[list[ExpectedCounts]] = []
        self.rejected = 0

    def many_rows(self, client: Randomize, reports: int, over: Callable[[], bool]) -> None:
        """Whole pieces of each crowd, each twice, until there are enough reports or it is `over`."""
        watch = self._watch(MANY_ROWS)
        crowds = len(self._attack.crowds)
        users, done = users_at_once(self._plan, max(_FORKED_REPORTS, min(_PIECE_REPORTS, reports // crowds))), 0
        rows = [self._plan.domain.repeated(row, users) for row in self._attack.crowds]
        while done * self._plan.reports < reports:
            for number, held in enumerate(rows):
                first, second = (self._cells(client, held, users) for _ in range(2))
                for cells in (first, second):
                    watch.users(number, cells)
                watch.calls("two calls", number, first, second)
            done += 2 * len(rows) * users
            if over():
                break
        variants = [variant.row for variant in self._attack.variants]
        wanted = users_to_show(self._attack.cell_groups(0)[0], self._attack.silent, _CLOSE_OF_VARIANTS)
        enough = min(wanted, reports / self._plan.reports / len(variants))
        each, at_once = 0, -(-users // len(variants))
        held = self._plan.domain.in_turn(variants, at_once * len(variants))
        while each == 0 or (each < enough and not over()):
            cells = self._cells(client, held, at_once * len(variants))
            for variant in range(len(variants)):
                watch.held(variant, cells[variant :: len(variants)])
            each += at_once
        forked = users_at_once(self._plan, _FORKED_REPORTS)
        held = self._plan.domain.repeated(self._attack.crowds[0], forked)
        self._forks(watch, lambda: self._cells(client, held, forked), forked)
        self._drew(watch, MANY_ROWS, [done // crowds] * crowds, [each] * len(variants))

    def one_row(self, path: str, client: Randomize, reports: int, over: Callable[[float], bool]) -> None:
        """Users one by one, a call for each, as a client on a device does it, until a part of the time is `over`.

        Before that it ends with so many reports, or when `_CLOSE` would show.
        """
        watch, plan, attack = self._watch(path), self._plan, self._attack
        like = [watch.like_first(number) for number in range(len(attack.crowds))]
        order = [*_TURNS * np.flatnonzero(like).tolist(), *np.flatnonzero(np.logical_not(like)).tolist()]
        enough = self._enough(sum(like), reports)
        crowds = self._one_by_one(client, attack.crowds, order, 2, enough, lambda: over(_CROWDS_PART))
        tables = list[NDArray[np.int64]]()
        for number, cells in enumerate(crowds):
            counts = Counts(plan)
            counts.add(Reports(plan.id, np.concatenate(cells)))
            watch.users(number, np.stack(cells))
            self.rejected += counts.rejected
            tables.append(counts.table)
        users = [len(cells) for cells in crowds]
        for kind in attack.expected(tables, users):
            self.tables.append([counts._replace(name=f"{path}: {counts.name}") for counts in kind])
        each = int(min(_LEAST_USERS, 1 + users_to_show(attack.cell_groups(0)[0], attack.silent, _CLOSE_OF_VARIANTS)))
        rows = [variant.row for variant in attack.variants]
        varied = self._one_by_one(client, rows, range(len(rows)), 0, each, lambda: over(_VARIANTS_PART))
        for variant, cells in enumerate(varied):
            if cells:
                watch.held(variant, np.stack(cells))
        most = max(2, min(int(_FORKED_PART * sum(users)), _FORKED_REPORTS // plan.reports))
        held = plan.domain.repeated(attack.crowds[0], 1)
        self._forks(watch, lambda: np.stack([self._cells(client, held, 1)[0] for _ in range(most)]), most)
        self._drew(watch, path, users, [len(cells) for cells in varied])

    def rare(self, client: Randomize, reports: int, over: Callable[[], bool]) -> None:
        """The first crowd, until one user in a thousand without noise would be seen; not where that takes too many."""
        silent = self._attack.silent
        event = None if silent is None else rare_event(self._attack.cell_groups(0)[0], silent)
        if event is None or event.users * self._plan.reports > reports:
            return
        size, done = users_at_once(self._plan), 0
        rows = self._plan.domain.repeated(self._attack.crowds[0], size)
        while done < event.users and not over():
            happened = event.happened(self._cells(client, rows, size))
            name = f"{MANY_ROWS}: {event.name} happened"
            self.sums.add("single users", name, happened, size, size * event.chance)
            done += size

    def whole_batches(self, count: Count, reports: int, over: Callable[[float], bool]) -> None:
        """Only tables of counts, where one process adds everything up, until a part of the time is `over`."""
        watch, attack = self._watch(ONE_PROCESS), self._attack
        size = min(users_at_once(self._plan, _PIECE_REPORTS), self._plan.honest_users)
        users, done = [0] * len(attack.crowds), [0] * len(attack.variants)
        for number in cycle(range(len(users))):
            held = self._plan.domain.repeated(attack.crowds[number], size)
            watch.tables(number, [count(held).table for _ in range(_BATCHES)], size)
            users[number] += _BATCHES * size
            if number == len(users) - 1 and (sum(users) * self._plan.reports >= reports or over(_CROWDS_PART)):
                break
        few = max(1, size // 8)
        for variant, (_, row) in enumerate(attack.variants):
            watch.held_by_all(variant, [count(self._plan.domain.repeated(row, few)).table], few)
            done[variant] = few
            if over(1.0):
                break
        self._drew(watch, ONE_PROCESS, users, done)

    def _one_by_one(
        self,
        client: Randomize,
        rows: Sequence[Any],
        order: Sequence[int],
        least: int,
        most: int,
        over: Callable[[], bool],
    ) -> list[list[_Cells]]:
        """The reports of users who hold these rows in this order, again and again, each in a call of its own."""
        held = [self._plan.domain.repeated(row, 1) for row in rows]
        seen = [list[_Cells]() for _ in held]
        for number in cycle(order):
            if len(seen[number]) >= most or (min(map(len, seen)) >= least and over()):
                break
            seen[number].append(self._cells(client, held[number], 1)[0])
        return seen

    def _enough(self, like: int, reports: int) -> int:
        """Users of each crowd, one by one, until less noise shows in so many of them, or as many reports have come."""
        wanted = users_to_show(self._attack.cell_groups(0)[0], self._attack.silent, _CLOSE)
        return int(max(_LEAST_USERS, min(wanted / like, reports / len(self._attack.crowds) / self._plan.reports)))

    def _forks(self, watch: Watch, work: Callable[[], _Cells], users: int) -> None:
        made = in_forks(work)
        for first, second in combinations(made, 2):
            watch.calls("forked processes", 0, *(cells.reshape(users, -1) for cells in (first, second)))

    def _watch(self, path: str) -> Watch:
        return Watch(self._attack, self.sums, path, self._plan.honest_users)

    def _drew(self, watch: Watch, path: str, crowds: list[int], variants: list[int]) -> None:
        like = sum(users for number, users in enumerate(crowds) if watch.like_first(number))
        less = less_noise_shown(self._attack.cell_groups(0)[0], self._attack.silent, like)
        held = np.count_nonzero([*crowds, *variants])
        self.drawn.append(Drawn(path, sum(crowds) + sum(variants), int(held), less))

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
