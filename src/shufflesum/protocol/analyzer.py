"""The analyzer, run by anybody on shuffled reports (Algorithm 3 of the paper).

It counts reports and hands the table to the gate; how a table becomes means is the mechanism's affair
(`mechanisms/replace/decode.py` for the paper's).
"""

from __future__ import annotations

from shufflesum._checks import OnlyOnce
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.estimate import Estimate
from shufflesum.plans import Plan
from shufflesum.release import refuse_broken, release
from shufflesum.reports import Counts, Reports

__all__ = ["Analyzer"]


class Analyzer(OnlyOnce):
    """Collects the reports of one batch, of one round of the plan, and releases an estimate once there are enough.

    `analyze` takes a whole batch. For pieces, `add` each and call `estimate`; shards `merge`. Nothing is released below
    the plan's smallest batch, nor where reports contradict the plan's honest users.
    """

    def __init__(self, plan: Plan, *, round_number: int = 1) -> None:
        self._counts = Counts(plan, round_number)
        plan.check_sending()
        self.plan = plan
        self._closed = ""  # why it takes no more reports
        self._released: Estimate | None = None

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

    def analyze(self, reports: Reports, *, without_guarantee: bool = False) -> Estimate:
        """The estimate from a whole batch of reports."""
        if self._counts.received:
            raise ReportsError(
                "batch-begun", "this analyzer holds reports already; add(...) the rest and call estimate()"
            )
        self.add(reports)
        return self.estimate(without_guarantee=without_guarantee)

    def estimate(self, *, without_guarantee: bool = False) -> Estimate:
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
        if self._closed:
            raise ReportsError("batch-closed", f"this batch was {self._closed}; start a new Analyzer for other reports")
