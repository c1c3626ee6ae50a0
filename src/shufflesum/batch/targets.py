"""What reports are made for: a round of a plan, or of a task, for which they are sealed.

Encoding and opening are here, once: the local engine and Spark both call these, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum._machine import SYSTEM_CLOCK, Clock, cores
from shufflesum.batch.identity import PLAIN, SEALED, Identity, ReportKind, cells_of, sealed_rows
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer, shuffle
from shufflesum.reports import Counts, Reports
from shufflesum.sealing import Opener, Sealer, encode_reports, seal_info
from shufflesum.wire import Task, TaskError

DEFAULT_MEMORY = 10**9


def workers_within(asked: int | None, memory: int, bytes_each: int) -> int:
    """As many as asked for, or as there are cores, and as the memory allows."""
    if asked is not None:
        check_size("workers", asked, 1, 1 << 10)
    if memory < bytes_each:
        raise ParameterError(
            "out-of-range",
            f"memory is {memory / 1e6:.3g} MB, but one worker needs {bytes_each / 1e6:.0f} MB; raise it (memory=)",
        )
    return min(asked or cores(), memory // bytes_each)


Encode = Callable[[Reports], Any]
"""Reports, of one or many users, to a record batch of the target's kind."""

Open = Callable[[Any], tuple[Reports, int]]
"""A record batch to its readable reports, and how many were rejected as unreadable."""


@dataclass(frozen=True, slots=True)
class PlainTarget:
    """A round of a plan; its reports can be read by anybody."""

    plan: Plan
    round_number: int = 1

    def __post_init__(self) -> None:
        """Refuse a plan under which nothing can be sent, and a round that it does not cover."""
        self.plan.check_carried()
        self.plan.check_round(self.round_number)

    @property
    def task(self) -> Task | None:
        """None."""
        return None

    @property
    def kind(self) -> ReportKind:
        """Plain."""
        return PLAIN

    def identity(self, names: Sequence[str] | None = None) -> Identity:
        """That of a new contribution of reports, from columns of these names."""
        return Identity.for_plan(self.plan, names, self.round_number)

    def check(self, identity: Identity) -> None:
        """Refuse reports of another plan, and sealed ones; the round is the reports' own."""
        _check_plan(identity, self.plan)
        if identity.kind is not PLAIN:
            raise ReportsError(
                "sealed", "these reports are sealed; give the task and the analyzer's private key (task=, key=)"
            )

    def encode(self, reports: Reports) -> Any:
        """Reports as they are, in their order."""
        _check_reports(reports, self)
        return PLAIN.records(reports.cells)

    def open(self, records: Any) -> tuple[Reports, int]:
        """Reports as they are; what can be none is rejected."""
        cells, rejected = cells_of(records)
        return Reports(self.plan.id, cells, self.round_number), rejected

    def encoding(self, workers: int) -> AbstractContextManager[Encode]:
        """Nothing to prepare."""
        return nullcontext(self.encode)

    def opening(self, identity: Identity, workers: int) -> AbstractContextManager[Open]:
        """Nothing to prepare."""
        return nullcontext(replace(self, round_number=identity.round_number).open)


@dataclass(frozen=True, slots=True)
class SealedTarget:
    """A round of a task; its reports can be read by the analyzer alone, with its private key."""

    task: Task
    round_number: int = 1
    private_key: X25519PrivateKey | None = None
    clock: Clock = SYSTEM_CLOCK

    def __post_init__(self) -> None:
        """Refuse a plan whose reports files do not carry."""
        self.task.plan.check_carried()

    @property
    def plan(self) -> Plan:
        """The task's."""
        return self.task.plan

    @property
    def kind(self) -> ReportKind:
        """Sealed."""
        return SEALED

    def identity(self, names: Sequence[str] | None = None) -> Identity:
        """That of a new contribution; refused after the task's time, and for a round that it does not cover."""
        if self.task.expired_at(self.clock.now()):
            raise TaskError("expired", f"task {self.task.name!r} ran out at {self.task.expires}; make a new task")
        return Identity.for_task(self.task, self.round_number, names)

    def check(self, identity: Identity) -> None:
        """Refuse reports of another plan or task, and plain ones; the round is the reports' own."""
        _check_plan(identity, self.plan)
        if identity.kind is not SEALED:
            raise ReportsError(
                "not-sealed", "these reports are not sealed, so they belong to no task; give the plan (plan=)"
            )
        if identity.task_id != self.task.id:
            raise ReportsError(
                "task-mismatch",
                f"these reports are sealed for task {str(identity.task_id)[:12]}, not for task {self.task.id[:12]}; "
                "give the task they were made for",
            )

    @contextmanager
    def encoding(self, workers: int) -> Iterator[Encode]:
        """Seal each report by itself, and mix them: the order they were drawn in would tell what they are about."""
        self.task.check_round(self.round_number)
        info = seal_info(self.task.id, self.round_number)
        with Sealer(self.task.public_key(self.round_number), info, processes=workers) as seal:

            def encode(reports: Reports) -> Any:
                _check_reports(reports, self)
                sealed: NDArray[np.uint8] = seal(encode_reports(shuffle(reports)))
                return SEALED.records(sealed)

            yield encode

    @contextmanager
    def opening(self, identity: Identity, workers: int) -> Iterator[Open]:
        """Open each report with the analyzer's private key."""
        if self.private_key is None:
            raise ParameterError(
                "missing-argument", "sealed reports are opened with the analyzer's private key; give it (key=)"
            )
        number = identity.round_number
        with Opener(self.private_key, processes=workers) as opener:

            def open_records(records: Any) -> tuple[Reports, int]:
                sealed, damaged = sealed_rows(records)
                reports, unreadable = self.task.open_reports(sealed.tobytes(), number, opener)
                return reports, damaged + unreadable

            yield open_records


Target = PlainTarget | SealedTarget
"""What reports are made for, and who can read them."""


def randomize_rows(rows: Any, randomizer: Randomizer, first_row: int = 0) -> Reports:
    """Users' arrays, shape (users, *shape), as reports, user after user; errors count rows from `first_row`."""
    return Reports.concatenate(randomizer.blocks(rows, first_row=first_row))


def count_records(records: Any, counts: Counts, open_records: Open) -> None:
    """Count a record batch of reports; what cannot be read is rejected and counted as such."""
    reports, rejected = open_records(records)
    counts.add(reports)
    counts.rejected += rejected


def _check_plan(identity: Identity, plan: Plan) -> None:
    if identity.plan_id != plan.id:
        raise ReportsError(
            "plan-mismatch",
            f"these reports belong to plan {identity.plan_id[:12]}, not to plan {plan.id[:12]}; "
            "analyze reports with the plan they were made under",
        )
    if (identity.users, identity.reports) != (plan.users, plan.reports):
        raise ReportsError(
            "changed-afterwards", "these reports name the plan, but with other users or reports; the files were changed"
        )
    plan.check_round(identity.round_number)


def _check_reports(reports: Reports, target: Target) -> None:
    if reports.plan_id != target.plan.id:
        raise ReportsError(
            "plan-mismatch",
            f"these reports belong to plan {reports.plan_id[:12]}, not to plan {target.plan.id[:12]}; "
            "randomize with the plan that they are for",
        )
    if reports.round_number != target.round_number:
        raise ReportsError(
            "round-mismatch",
            f"these reports are of round {reports.round_number}, not of round {target.round_number}; "
            "randomize for the round that they are for",
        )
