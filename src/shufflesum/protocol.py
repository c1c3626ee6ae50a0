"""The three roles, the same for every mechanism: randomizer, shuffler and analyzer (Algorithms 1 to 3 of the paper).

A tally is all roles but the analyzer in one process, for whoever holds all rows: from rows straight to the table of
counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import OnlyOnce
from shufflesum._compiled import can_compile, uncompiled
from shufflesum.cells import BLANK
from shufflesum.domains import Missing, Prepared
from shufflesum.encodings import Positions
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimate import AnyEstimate, BaseEstimate
from shufflesum.plans import Plan, check_plan, check_unaltered
from shufflesum.randomness import RandomSource, SecureSource, random_uints, shuffle_in_place
from shufflesum.release import refuse_broken, release
from shufflesum.reports import Counts, Reports

_BLOCK_REPORTS = 1 << 17  # so that a block's words, values and positions stay in a core's cache
_BLOCK_VALUES = 1 << 22  # so that a block of wide rows stays small where it must be copied


def rows_at_once(plan: Plan, numbers_each: int) -> int:
    """How many rows make a block, with so many numbers to draw for each."""
    return max(1, min(_BLOCK_REPORTS // numbers_each, _BLOCK_VALUES // plan.domain.entries))


class _RowReader:
    """Reads the rows of one round of a plan as the plan's domain does."""

    def __init__(self, plan: Plan, round_number: int, clip: bool, missing: Missing) -> None:
        plan.check_round(round_number)
        plan.domain.check_options(clip=clip, missing=missing)
        self.plan, self.round_number = plan, round_number
        self._domain, self._clip, self._missing = plan.domain.of_round(round_number), clip, missing

    def prepare(self, arrays: Any, *, first_row: int = 0) -> Prepared:
        """Users' data as they are taken here, read once; rows are counted from `first_row`."""
        return self._domain.prepare(arrays, clip=self._clip, missing=self._missing, first_row=first_row)


class Randomizer(_RowReader):
    """Turns users' arrays into reports under a plan: one row on a user's own machine, or the rows of a simulated crowd.

    Values out of bounds, NaN and infinities are refused unless `clip` moves values to the nearest bound and
    `missing="midpoint"` puts the middle of the bounds where a value is missing (which pulls the estimate towards that
    middle by the fraction missing). Randomness is secure unless a source is given, as tests do. Reports are for one
    round of the plan, `round_number`. With `compiled=False` kernels run as plain Python, by the same law, bit for bit:
    for a few rows that is quicker than compiling, and it is what happens where numba is not installed.
    """

    _check_plan = staticmethod(check_plan)

    def __init__(
        self,
        plan: Plan,
        *,
        clip: bool = False,
        missing: Missing = "refuse",
        source: RandomSource | None = None,
        round_number: int = 1,
        compiled: bool | None = None,
    ) -> None:
        self._check_plan(plan)
        plan.check_sending()
        super().__init__(plan, round_number, clip, missing)
        self.compiled = can_compile() if compiled is None else compiled
        self._encoder = plan.mechanism.encoder(plan.encoding_of(self._domain), source or SecureSource())

    def randomize(self, arrays: Any) -> Reports:
        """Reports for arrays of shape (m, *shape), m >= 1: `plan.reports` of them for each row, each row one user.

        Under a plan for labels, m labels, lists of labels, or a pair of m groups and m arrays. Either every row is
        valid and all reports come back, or an error names the first value that is not.
        """
        prepared = self.prepare(arrays)
        cells = np.empty(len(prepared) * self.plan.reports, dtype=np.uint32)
        done = 0
        for block in self.blocks(prepared):
            cells[done : done + len(block)] = block.cells
            done += len(block)
        return Reports(self.plan.id, cells, self.round_number)

    def blocks(self, arrays: Any, *, first_row: int = 0) -> Iterator[Reports]:
        """The same reports in pieces that stay in cache, for callers that count or store them as they come."""
        prepared = self.prepare(arrays, first_row=first_row)
        size = rows_at_once(self.plan, self.plan.reports)
        for start in range(0, len(prepared), size):
            with self.kernels():
                cells = self._encoder.encode(prepared.block(start, start + size))
            yield Reports(self.plan.id, cells, self.round_number)

    def kernels(self) -> AbstractContextManager[None]:
        """Within it kernels run as here: compiled, or as plain Python."""
        return nullcontext() if self.compiled else uncompiled()


class UnverifiedRandomizer(Randomizer):
    """For a plan whose guarantee somebody else verified: a client's task read with verify=False, a driver's plan."""

    _check_plan = staticmethod(check_unaltered)


_BLOCK = 1 << 16  # words drawn at a time: 256 KiB, within a core's cache


def shuffle(reports: Reports, *, plan: Plan | None = None, source: RandomSource | None = None) -> Reports:
    """The same reports in a uniformly random order, with the shuffler's noise where the plan says that it draws it.

    Single reports are permuted, never a user's reports as a group: the privacy proof needs them unlinked. Whoever runs
    a shuffler hands on nothing before a batch holds the reports of `plan.smallest_batch` users. Where servers draw the
    noise the `plan` must be given: each position gets the shuffler's dummy reports, is filled up with blanks where
    reports may be blank, and has a permutation of its own.
    """
    if not isinstance(reports, Reports):
        raise ReportsError(
            "wrong-type", f"reports from Randomizer.randomize are expected, not {type(reports).__name__}"
        )
    if reports.by_position is not None:
        raise ReportsError("wrong-stage", "these reports were shuffled before, and have the shuffler's noise in them")
    _check_count(len(reports))
    drawn = source or SecureSource()
    if plan is not None:
        check_plan(plan)
        plan.check_sending()
        if reports.plan_id != plan.id:
            raise ReportsError(
                "plan-mismatch", f"these reports belong to plan {reports.plan_id[:12]}, not {plan.id[:12]}"
            )
        if plan.positions is not None:
            return _with_noise(reports, plan, plan.positions, drawn)
    cells = reports.cells.copy()
    _shuffle(cells, drawn)
    return replace(reports, cells=cells)


def _with_noise(reports: Reports, plan: Plan, positions: Positions, source: RandomSource) -> Reports:
    """Position after position, each with the shuffler's reports, in an order of its own."""
    users, left = divmod(len(reports), positions.each)
    if left:
        raise ReportsError("not-whole", f"{len(reports)} reports are not {positions.each} from each of some users")
    added = added_reports(plan, plan.mechanism.draw(plan.encoding, source))
    sent = reports.cells.reshape(users, positions.each)
    sizes = users * positions.reports + np.array([len(each) for each in added])
    _check_count(int(sizes.sum()))
    cells = np.empty(int(sizes.sum()), dtype=np.uint32)
    done = column = 0
    for size, each, own in zip(sizes.tolist(), added, positions.reports.tolist(), strict=True):
        here = cells[done : done + size]
        here[: users * own] = sent[:, column : column + own].reshape(-1)
        here[users * own :] = each
        _shuffle(here, source)
        done, column = done + size, column + own
    return replace(reports, cells=cells, by_position=tuple(sizes.tolist()), users=users)


def added_reports(plan: Plan, draw: NDArray[np.int64]) -> list[NDArray[np.uint32]]:
    """What a shuffler adds to each position: as many dummy reports of each cell as were drawn, and blanks.

    Where reports may be blank it fills up with blanks to the largest number of dummy reports that it could have drawn:
    else the number of blanks would say how many users sent none.
    """
    positions = plan.positions
    assert positions is not None, "users draw the noise"
    cells = np.repeat(np.arange(positions.cells, dtype=np.uint32), draw)
    ends = np.concatenate([[0], np.cumsum(draw)])[positions.first]
    most = np.concatenate([[0], np.cumsum(plan.mechanism.most_drawn(plan.encoding))])[positions.first]
    dummies = [cells[start:stop] for start, stop in pairwise(ends.tolist())]
    return [
        np.concatenate([here, np.full(room - len(here), BLANK, dtype=np.uint32)]) if blank else here
        for here, room, blank in zip(dummies, np.diff(most).tolist(), positions.blank.tolist(), strict=True)
    ]


def permutation(count: int, source: RandomSource) -> NDArray[np.uint32]:
    """The numbers below `count` in a uniformly random order."""
    _check_count(count)
    order = np.arange(count, dtype=np.uint32)
    _shuffle(order, source)
    return order


def _shuffle(items: NDArray[Any], source: RandomSource) -> None:
    unplaced = len(items)
    while unplaced > 1:
        unplaced = shuffle_in_place(items, random_uints(source, min(unplaced, _BLOCK), np.uint32), unplaced)


def _check_count(count: int) -> None:
    if count >= 1 << 32:
        raise ParameterError(
            "too-many-reports",
            f"{count} reports at once; at most 2**32 - 1 can be permuted in memory: make smaller batches",
        )


class Analyzer(OnlyOnce):
    """Collects the reports of one batch, of one round of the plan, and releases an estimate once there are enough.

    `analyze` takes a whole batch. For pieces, `add` each and call `estimate`; shards `merge`. Nothing is
    released below the plan's smallest batch, nor where reports contradict the plan's honest users.
    """

    def __init__(self, plan: Plan, *, round_number: int = 1, source: RandomSource | None = None) -> None:
        self._counts = Counts(plan, round_number, source=source)
        plan.check_sending()
        self.plan = plan
        self._process = os.getpid()
        self._closed = ""  # why it takes no more reports
        self._released: BaseEstimate | None = None

    @property
    def round_number(self) -> int:
        """The round whose reports are collected."""
        return self._counts.round_number

    def add(self, reports: Reports) -> None:
        """Count one piece of the batch; those of another plan or round are refused, what names no cell rejected."""
        self._refuse_if_closed()
        self._counts.add(reports)

    def merge(self, other: Analyzer) -> None:
        """Take over the counts of another shard of the same batch.

        Shards share the work of counting. The batch must have been shuffled as a whole before it was cut into them:
        parts shuffled each on their own hide a user among fewer, and the plan's guarantee does not hold.
        """
        if not isinstance(other, Analyzer):
            raise ParameterError("wrong-type", f"another analyzer is expected, not {type(other).__name__}")
        self._refuse_if_closed()
        other._refuse_if_closed()
        self._counts.merge(other._counts)
        other._closed = "merged into another analyzer, where it counts"

    def analyze(self, reports: Reports, *, without_guarantee: bool = False) -> AnyEstimate:
        """The estimate from a whole batch of reports."""
        if self._counts.received:
            raise ReportsError(
                "batch-not-empty", "this analyzer holds reports already; add(...) the rest and call estimate()"
            )
        self.add(reports)
        return self.estimate(without_guarantee=without_guarantee)

    def estimate(self, *, without_guarantee: bool = False) -> AnyEstimate:
        """The estimate from everything added, if the batch may be released; see `shufflesum.release.release`.

        It closes the batch: a second estimate with a few reports more would show those few by the difference. Asked
        again, it is the same estimate.
        """
        if self._released is None:
            self._refuse_if_closed()
            self._released = release(self._counts, without_guarantee=without_guarantee)
            self._closed = "released already, so it takes no more reports"
        refuse_broken(self._released.broken, without_guarantee=without_guarantee)
        return self._released

    def _refuse_if_closed(self) -> None:
        self._refuse_forked(self._process)
        if self._closed:
            raise ReportsError("batch-closed", f"this batch was {self._closed}; start a new Analyzer for other reports")


class Tally(_RowReader, OnlyOnce):
    """Adds up rows under a plan; `counts` draws what noise is left to draw, and ends it.

    Order carries nothing in a table, so counting shuffles perfectly. What is noise in users' reports may be drawn once
    for all of them: the law of the table is the same.

    Rows are taken and refused as by a `Randomizer`. Until `counts`, the table may hold bare sums: it is not private.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        clip: bool = False,
        missing: Missing = "refuse",
        source: RandomSource | None = None,
        round_number: int = 1,
    ) -> None:
        check_plan(plan)
        super().__init__(plan, round_number, clip, missing)
        self.users = 0
        self._source = source or SecureSource()
        self._tally = plan.mechanism.tally(plan.encoding_of(self._domain), self._source)
        self._table = np.zeros(plan.cells, dtype=np.int64)
        self._process = os.getpid()
        self._closed = ""  # why it takes no more rows

    def add(self, arrays: Any, *, first_row: int = 0) -> None:
        """Add m users: arrays of shape (m, *shape), or what else the plan's domain takes.

        Where rows are refused some before them were added: it ends the tally, in which they would count twice if all
        were added once more.
        """
        self._refuse_if_closed()
        prepared = self.prepare(arrays, first_row=first_row)
        try:
            for block in prepared.blocks(_rows_at_once(self.plan)):
                self._tally.add(block, self._table)
                self.users += len(block)
        except BaseException:
            self._closed = "refused some of its rows, and holds others of them"
            raise

    def merge(self, other: Tally) -> None:
        """Take over the rows of another tally of the same plan and round, before either draws its noise."""
        if other is self or other.plan.id != self.plan.id:
            raise ReportsError("plan-mismatch", "only another tally of the same plan can be merged")
        if other.round_number != self.round_number:
            raise ReportsError(
                "round-mismatch",
                f"a tally of round {other.round_number} cannot be merged into one of {self.round_number}",
            )
        self._refuse_if_closed()
        other._refuse_if_closed()
        self._table += other._table
        self.users += other.users
        other._closed = "was merged into another"

    def counts(self) -> Counts:
        """The table as the users' reports would have made it, blanks and all.

        It ends the tally: the same sums with other noise, or with a few rows more, would show what noise hides.
        """
        self._refuse_if_closed()
        self._closed = "was counted"
        counts = Counts(self.plan, self.round_number, source=self._source)
        if self.plan.positions is not None:
            counts.add_table(self._table + self._tally.noise(self.users), self.users)
            return counts
        counts.table += self._table + self._tally.noise(self.users)
        counts.blanks = self.users * self.plan.reports - counts.accepted
        if counts.blanks < 0:  # seen from the noisy table alone, so that it reveals nothing more
            raise ReportsError(
                "too-many-reports",
                f"noise drawn for all {self.users} users at once is more than the plan's reports of each can hold, "
                "which under a plan whose guarantee holds is next to impossible; there is no estimate: raise the cap",
            )
        return counts

    def _refuse_if_closed(self) -> None:
        self._refuse_forked(self._process)
        if self._closed:
            raise ReportsError("batch-closed", f"this tally {self._closed}; start a new one for all rows")


def check_rows(plan: Plan, arrays: Any, *, first_row: int = 0, clip: bool = False, missing: Missing = "refuse") -> None:
    """Refuse what `Tally.add` would refuse, and draw nothing: for whoever must know before something is spent."""
    prepared = plan.domain.prepare(arrays, clip=clip, missing=missing, first_row=first_row)
    for block in prepared.blocks(_rows_at_once(plan)):
        block.check()


def _rows_at_once(plan: Plan) -> int:
    """More reports than values are never made here, values are only rounded: that takes a fourth of the memory."""
    reports, entries = 1 if plan.positions is not None else plan.reports, plan.domain.entries
    return rows_at_once(plan, reports if reports <= entries else max(1, entries // 4))
