"""Attacks the running randomizer: a lower bound on its epsilon that observations prove, beside the certified upper one.

Two attacks, on the worst pair of neighbouring data sets, which the plan's mechanism names. Each gives a lower bound on
epsilon at the plan's delta; together with the findings they hold with the stated confidence.

*Reports.* Crowds of users with equal arrays are randomized, and exact tail bounds enclose the chances that one kind of
report comes out as another; the mechanism says what any law in that enclosure reveals at least. Assumed: reports are
independent, of the same law for all users with the same data and for all blocks. This sees small defects.

*Batches.* Whole batches are randomized and told apart by the likelihood ratio of their tables of counts. Assumed: only
that batches are independent, and like each other where their data are. This sees gross defects of any kind.

*Findings* compare every cell of every crowd's table with the law that the plan prescribes: noise that is not uniform,
coordinates that are not, or that depend on the data, correlated draws. What passes is not thereby proved private.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size
from shufflesum.audit.crowds import alike
from shufflesum.audit.evidence import chances, deviation
from shufflesum.domain import Ball, Box, Groups
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import Attack, Enclosure
from shufflesum.plans import Plan
from shufflesum.protocol import Randomizer, Tally
from shufflesum.reports import Counts, Reports

__all__ = ["AuditResult", "BatchAttack", "Randomize", "ReportAttack", "audit"]

Randomize = Callable[[Any], Reports]
_Count = Callable[[Any], Counts]

_CHUNK_REPORTS = 1 << 18
_CHUNK_VALUES = 1 << 21


@dataclass(frozen=True, slots=True)
class ReportAttack:
    """What single reports show: the randomizer reveals as much as one with so many times the plan's noise at most."""

    reports: int
    noise: float
    epsilon_lower: float


@dataclass(frozen=True, slots=True)
class BatchAttack:
    """What telling whole batches apart shows."""

    batches: int
    epsilon_lower: float


@dataclass(frozen=True, slots=True)
class AuditResult:
    """What an audit saw. A randomizer that follows its plan passes with probability `confidence` or more."""

    plan: Plan
    confidence: float
    epsilon_upper: float
    report_attack: ReportAttack
    batch_attack: BatchAttack
    findings: tuple[str, ...]
    lower_bound_known: bool

    @property
    def epsilon_lower(self) -> float:
        """The better of both attacks: at the plan's delta the running randomizer has no smaller epsilon."""
        return max(self.report_attack.epsilon_lower, self.batch_attack.epsilon_lower)

    @property
    def crossed(self) -> bool:
        """Whether observations refute the certified bound."""
        return self.epsilon_lower > self.epsilon_upper

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the randomizer."""
        return not self.crossed and not self.findings

    def require(self) -> None:
        """Raise `PrivacyError` unless the audit passed."""
        if self.passed:
            return
        crossing = f"epsilon is at least {self.epsilon_lower!r}, above the certified {self.epsilon_upper!r}"
        reasons = ([crossing] if self.crossed else []) + list(self.findings)
        raise PrivacyError(
            "audit-failed",
            f"the randomizer does not keep plan {self.plan.id[:12]}: {'; '.join(reasons)}; "
            "release nothing that it made, and compare its code with the plan",
        )


def audit(
    plan: Plan,
    *,
    randomize: Randomize | None = None,
    confidence: float = 1 - 1e-6,
    samples: int | None = None,
    trials: int = 2_000,
    seconds: float = 20.0,
    progress: Callable[[float], None] | None = None,
) -> AuditResult:
    """Attack the randomizer of a plan, and compare what the attacks prove with what is certified.

    `randomize` turns rows into reports, `Randomizer(plan).randomize` with secure randomness unless given: pass the
    client that really runs. `samples` reports (by default enough to know their noise within one per cent) and `trials`
    batches of the plan's honest users in one round are drawn, or as many as fit in about `seconds`, half for each.
    `progress` is called with the part done.
    """
    plan.verify()
    if not 0 < confidence < 1:
        raise ParameterError("out-of-range", f"confidence is {confidence}; it must lie strictly between 0 and 1")
    if not seconds > 0:
        raise ParameterError("out-of-range", f"seconds is {seconds}; it must be positive")
    check_size("trials", trials, 0, 10**9)
    check_size("samples", 1 if samples is None else samples, 1, 1 << 99)
    count = _counting(plan, randomize)
    deadline = _Deadline(seconds, progress)
    chance_of_error = (1 - confidence) / 3

    def scout(row: Any) -> NDArray[np.int64]:
        return _Crowd(plan, row).report(count).counts.table

    attack = plan.mechanism.attack(plan.domain, plan.guarantee, scout)
    crowds = _crowds(plan, count, attack, samples or attack.samples, deadline)
    return AuditResult(
        plan=plan,
        confidence=confidence,
        epsilon_upper=min(plan.privacy.epsilon(plan.delta).upper, plan.epsilon),
        report_attack=_attack_reports(attack, crowds, chance_of_error),
        batch_attack=_attack_batches(plan, count, attack, trials, chance_of_error, deadline),
        findings=_findings(attack, crowds, chance_of_error),
        lower_bound_known=attack.lower_bound_known,
    )


def _counting(plan: Plan, randomize: Randomize | None) -> _Count:
    """Rows to their table of counts: by the client given, by ours, or as one process does it where nothing is sent."""
    if randomize is None and plan.one_process:

        def tallied(rows: Any) -> Counts:
            tally = Tally(plan)
            tally.add(rows)
            return tally.counts()

        return tallied
    client = randomize or Randomizer(plan).randomize

    def counted(rows: Any) -> Counts:
        counts = Counts(plan)
        counts.add(client(rows))
        return counts

    return counted


class _Deadline:
    """Says when half of the time, or all of it, is over, and passes on how far the audit is."""

    def __init__(self, seconds: float, progress: Callable[[float], None] | None) -> None:
        self._start, self._seconds, self._progress = time.monotonic(), seconds, progress

    def over(self, part: float, done: float) -> bool:
        """Whether `part` of the time is over, when `done` of all work is."""
        spent = (time.monotonic() - self._start) / self._seconds
        if self._progress:
            self._progress(min(1.0, max(done, spent)))
        return spent >= part


class _Crowd:
    """Users who all hold the same, and the table of what they sent."""

    def __init__(self, plan: Plan, row: Any) -> None:
        self.counts, self.users = Counts(plan), 0
        self._domain, self._row = plan.domain, row
        entries = plan.domain.dimension if isinstance(plan.domain, Ball | Box | Groups) else 1
        self._size = max(1, min(_CHUNK_REPORTS // plan.reports, _CHUNK_VALUES // entries))
        self._rows = alike(plan.domain, row, self._size)

    def chunks(self, users: int, first: Any) -> Iterator[Any]:
        """So many rows, in pieces; the very first of them is another one."""
        for start in range(0, users, self._size):
            size = min(self._size, users - start)
            if start == 0:
                yield alike(self._domain, self._row, size, first)
            else:
                yield self._rows if size == self._size else alike(self._domain, self._row, size)

    def report(self, count: _Count) -> _Crowd:
        """Let as many users report as fit in one piece."""
        self.counts.merge(count(self._rows))
        self.users += self._size
        return self


def _crowds(plan: Plan, count: _Count, attack: Attack, samples: int, deadline: _Deadline) -> list[_Crowd]:
    """All crowds of the attack, reporting in turns until there are enough reports."""
    crowds = [_Crowd(plan, row) for row in attack.crowds]
    done = 0
    while done < samples:
        for crowd in crowds:
            crowd.report(count)
        done = sum(crowd.users for crowd in crowds) * plan.reports
        if deadline.over(0.5, 0.5 * done / samples):
            break
    return crowds


def _attack_reports(attack: Attack, crowds: Sequence[_Crowd], chance_of_error: float) -> ReportAttack:
    counts, totals = attack.kinds([crowd.counts.table for crowd in crowds], [crowd.users for crowd in crowds])
    each = chance_of_error / (2 * counts.size)
    ends = [chances(int(seen), int(total), each) for seen, total in zip(counts.flat, totals.flat, strict=True)]
    lower, upper = (np.array(side).reshape(counts.shape) for side in zip(*ends, strict=True))
    revealed = attack.reveals(Enclosure(lower, upper))
    return ReportAttack(sum(crowd.counts.accepted for crowd in crowds), revealed.noise, revealed.epsilon)


def _attack_batches(
    plan: Plan, count: _Count, attack: Attack, trials: int, chance_of_error: float, deadline: _Deadline
) -> BatchAttack:
    others = _Crowd(plan, attack.others)
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        counts = Counts(plan)
        for rows in others.chunks(plan.honest_users, attack.victims[trial % 2]):
            if deadline.over(1.0, 0.5 + 0.5 * trial / trials):
                break
            counts.merge(count(rows))
        else:
            scores[trial % 2].append(attack.score(counts.table))
            continue
        break
    batches, half = len(scores[0]) + len(scores[1]), len(scores[1]) // 2
    if half == 0:
        return BatchAttack(batches, 0.0)
    seen, unseen = ([np.array(side[part]) for side in scores] for part in (slice(half), slice(half, None)))
    candidates = [
        (_distinguished(plan, seen, threshold, sign, chance_of_error), threshold, sign)
        for threshold in np.unique(np.quantile(np.concatenate(seen), np.linspace(0, 1, 51)))
        for sign in (1, -1)
    ]
    _, threshold, sign = max(candidates)
    return BatchAttack(batches, max(0.0, _distinguished(plan, unseen, threshold, sign, chance_of_error)))


def _distinguished(
    plan: Plan, scores: list[NDArray[np.float64]], threshold: float, sign: int, chance_of_error: float
) -> float:
    """The epsilon that the event {score >= threshold}, or {score <= threshold} where sign is -1, proves.

    P <= e^epsilon Q + delta must hold for it, with P its chance in the world in which it is likelier.
    """
    p, q = scores[::sign]
    hits_p, hits_q = (int(np.sum(sign * side >= sign * threshold)) for side in (p, q))
    least = chances(hits_p, len(p), chance_of_error / 2)[0] - plan.delta
    most = chances(hits_q, len(q), chance_of_error / 2)[1]
    return math.log(least / most) if least > 0 else -math.inf


def _findings(attack: Attack, crowds: Sequence[_Crowd], chance_of_error: float) -> tuple[str, ...]:
    """Where tables deviate from the plan's law by more than chance allows: for each kind of count, the worst case."""
    kinds = attack.expected([crowd.counts.table for crowd in crowds], [crowd.users for crowd in crowds])
    limit = math.log(2 * sum(counts.observed.size for kind in kinds for counts in kind) / chance_of_error)
    found = []
    for kind in kinds:
        worst, text = limit, None
        for name, observed, trials, prescribed in kind:
            deviations = deviation(observed, trials, prescribed)
            place = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
            if deviations[place] > worst:
                expected = f"{trials * prescribed[place]:,.0f} of {trials:,}"
                text = f"{name.format(*place)} was reported {observed[place]:,} times; the plan expects {expected}"
                worst = deviations[place]
        found += [text] if text else []
    rejected = sum(crowd.counts.rejected for crowd in crowds)
    return (*found, *([f"{rejected:,} reports name no cell of the plan"] if rejected else []))
