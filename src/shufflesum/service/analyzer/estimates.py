"""What an analyzer answers with: the estimates of all rounds counted so far, computed once for all who ask."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from threading import Lock
from typing import Any

from starlette.responses import JSONResponse

from shufflesum.errors import ReportsError
from shufflesum.estimate import AnyEstimate, BaseEstimate
from shufflesum.release import release
from shufflesum.reports import Counts
from shufflesum.service.http.messages import Refusal, round_to_json
from shufflesum.service.stores.tables import BatchStore, CountedBatch
from shufflesum.wire import Task

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class CountedRounds:
    """The batches counted so far, each with its estimate, and whether the guarantee holds in all of them."""

    batches: tuple[CountedBatch, ...]
    estimates: tuple[BaseEstimate, ...]

    @property
    def guarantee_holds(self) -> bool:
        """Whether nothing speaks against the guarantee, which is about all rounds together."""
        return all(estimate.guarantee_holds for estimate in self.estimates)


class Estimates:
    """The estimates of one task. Methods block, may be called from several threads, and refuse by name.

    A round's estimate never changes once it is there, so everything is kept until a further batch is counted.
    """

    def __init__(self, task: Task, store: BatchStore, *, without_guarantee: bool = False) -> None:
        self._task = task
        self._store = store
        self._without_guarantee = without_guarantee
        self._computing = Lock()
        self._batches: list[str] | None = None
        self._rounds = CountedRounds((), ())
        self._document: dict[str, Any] | None = None
        self._written: dict[tuple[int | None, bool], bytes] = {}

    def rounds(self) -> CountedRounds:
        """All rounds counted so far; a `Refusal` says why there are none to show."""
        with self._computing:
            return self._current()

    def answer(self, only: int | None, *, table: bool) -> bytes:
        """The estimates of all rounds, or of one, as JSON; with their tables of counts where they are asked for."""
        with self._computing:
            rounds = self._current()
            if self._document is None:
                self._document = self._to_json(rounds)
            if (only, table) not in self._written:
                asked = [found for found in self._document["rounds"] if only in (None, found["round"])]
                if not asked:
                    raise Refusal("no-estimate-yet", f"the shuffler has released no batch of round {only} yet")
                if not table:
                    asked = [{name: found[name] for name in found if name != "table"} for found in asked]
                self._written[only, table] = bytes(JSONResponse(self._document | {"rounds": asked}).body)
            return self._written[only, table]

    def _current(self) -> CountedRounds:
        batches = self._store.batch_ids()
        if self._batches != batches:
            self._batches = None
            self._rounds, self._document, self._written = self._compute(), None, {}
            self._batches = batches
        return self._rounds

    def _compute(self) -> CountedRounds:
        counted = tuple(self._store.counted())
        if not counted:
            raise Refusal(
                "no-estimate-yet",
                f"the shuffler has released no batch of at least {self._task.smallest_batch} users yet",
            )
        for batch in counted:
            if not batch.table.any():
                raise Refusal(
                    "wrong-key",
                    f"no report of round {batch.round_number} could be opened: its users sealed them to another key, "
                    "for another task or another round; see which task file they were given",
                )
        return CountedRounds(counted, tuple(self._released(batch) for batch in counted))

    def _released(self, batch: CountedBatch) -> AnyEstimate:
        counts = Counts(self._task.plan, batch.round_number)
        counts.table, counts.blanks, counts.rejected = batch.table, batch.blanks, batch.rejected
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a coordinate nobody reported is null in the answer
                return release(counts, without_guarantee=self._without_guarantee)
        except ReportsError as error:
            raise Refusal(
                "batch-too-small" if error.problem == "too-few-users" else "guarantee-broken",
                f"round {batch.round_number}: {error}",
            ) from error

    def _to_json(self, rounds: CountedRounds) -> dict[str, Any]:
        pairs = zip(rounds.batches, rounds.estimates, strict=True)
        return {"task": self._task.id, "rounds": [self._round(*pair, rounds.guarantee_holds) for pair in pairs]}

    def _round(self, batch: CountedBatch, estimate: BaseEstimate, holds: bool) -> dict[str, Any]:
        plan = self._task.plan
        return {
            "round": batch.round_number,
            "uploads": batch.users,
            **round_to_json(estimate, LEVEL),
            "rejected_kinds": {"unreadable": batch.unreadable, "no_cell": batch.rejected - batch.unreadable},
            "guarantee": {
                "epsilon": plan.epsilon if math.isfinite(plan.epsilon) else None,
                "delta": plan.delta,
                "unit": "one user, in all rounds of the task",
                "holds": holds,
            },
        }
