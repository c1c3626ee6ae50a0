"""Attacks the running randomizer: a lower bound on its epsilon that observations prove, beside the certified upper one.

Two attacks, on the worst pair of neighbouring data sets: a victim at x or at x', all others at a third value v (for
K = 2 values, at x). Each gives a lower bound on epsilon at the plan's delta; together with the findings they hold with
the stated confidence.

*Reports.* Crowds of users with equal arrays are randomized, and exact tail bounds enclose the chances that x, x' and v
come out as one another. Where some channel, applied to each report, turns every law in that enclosure into the law of
an honest randomizer at noise probability g, the running randomizer reveals at least what is revealed at g, because
processing outputs reveals nothing new; what concrete data sets show at g is then its epsilon, too. Assumed: reports
are independent, of the same law for all users with the same data and for all blocks. This sees small defects.

*Batches.* Whole batches are randomized and told apart by the likelihood ratio of their tables of counts. Assumed: only
that batches are independent, and like each other where their data are. This sees gross defects of any kind.

*Findings* compare every cell of every crowd's table with the law that the plan prescribes: noise that is not uniform,
coordinates that are not, or that depend on the data, correlated draws. What passes is not thereby proved private.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import check_size
from shufflesum._evidence import chances, deviation, honest_law, noise_simulated
from shufflesum.contract import Plan
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.replace import Blocks
from shufflesum.protocol.counts import Counts
from shufflesum.protocol.randomizer import Randomizer
from shufflesum.protocol.reports import Reports

__all__ = ["AuditResult", "BatchAttack", "Randomize", "ReportAttack", "audit"]

Randomize = Callable[[NDArray[np.float64]], Reports]
_Floats = NDArray[np.float64]
_Values = tuple[int, int, int]  # x, x' and v

_CHUNK_REPORTS = 1 << 18
_CHUNK_VALUES = 1 << 21
_NOISY_REPORTS = 400_000  # of each kind; then chances are known within one per cent
_LEAST_DELTA = 1e-12  # what composition covers; epsilon at a larger delta is a lower bound, too


@dataclass(frozen=True, slots=True)
class ReportAttack:
    """What single reports show: the randomizer reveals as much as an honest one at this noise probability."""

    reports: int
    noise_probability: float
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
            f"the randomizer does not keep plan {self.plan.id[:12]}: {'; '.join(reasons)}; "
            "release nothing that it made, and compare its code with the plan"
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
        raise ParameterError(f"confidence is {confidence}; it must lie strictly between 0 and 1")
    if not seconds > 0:
        raise ParameterError(f"seconds is {seconds}; it must be positive")
    check_size("trials", trials, 0, 10**9)
    if samples is None:
        samples = math.ceil(4 * _NOISY_REPORTS * (plan.levels + 1) / plan.noise_probability)
    check_size("samples", samples, 1, 1 << 99)
    randomize = randomize or Randomizer(plan).randomize
    epsilon_upper = min(plan.privacy.epsilon(plan.noise_probability, plan.delta).upper, plan.epsilon)
    clock = _Clock(seconds, progress)
    chance_of_error = (1 - confidence) / 3
    values = _worst_values(plan, randomize)
    crowds = _crowds(plan, randomize, values, samples, clock)
    return AuditResult(
        plan=plan,
        confidence=confidence,
        epsilon_upper=epsilon_upper,
        report_attack=_attack_reports(plan, values, crowds, chance_of_error),
        batch_attack=_attack_batches(plan, randomize, values, trials, chance_of_error, clock),
        findings=_findings(plan, crowds, chance_of_error),
    )


class _Clock:
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
    """Users who all hold the same array, a whole level in each coordinate, and the table of what they sent."""

    def __init__(self, plan: Plan, levels: ArrayLike) -> None:
        self.levels: NDArray[np.int64] = np.broadcast_to(np.asarray(levels, dtype=np.int64), plan.dimension)
        self.counts, self.users = Counts(plan), 0
        lower, upper = plan.domain.lower, plan.domain.upper
        coordinates = np.clip(lower + (upper - lower) * (self.levels / plan.levels), lower, upper)
        self.array = plan.domain.structure.restore(coordinates)
        size = max(1, min(_CHUNK_REPORTS // plan.reports, _CHUNK_VALUES // max(1, self.array.size)))
        self._rows = np.repeat(self.array[None], size, axis=0)

    def chunks(self, users: int) -> Iterator[tuple[int, _Floats]]:
        """So many rows, in pieces, each with the number of its first row."""
        return ((start, self._rows[: users - start]) for start in range(0, users, len(self._rows)))

    def report(self, randomize: Randomize) -> _Crowd:
        """Let as many users report as fit in one piece."""
        self.counts.add(randomize(self._rows))
        self.users += len(self._rows)
        return self

    def values_reported(self, level: int) -> NDArray[np.int64]:
        """How often each value came out where `level` went in."""
        return np.asarray(self.counts.table[self.levels == level].sum(axis=0))


_Crowds = dict[int | None, _Crowd]


def _worst_values(plan: Plan, randomize: Randomize) -> _Values:
    """x, x' and v: where noise is least by the look of a few reports that are not used again.

    Honest noise is the same for all values; then the choice is an arbitrary one.
    """
    if plan.levels == 1:
        kept = [_Crowd(plan, level).report(randomize).values_reported(level)[level] for level in (0, 1)]
        x = int(np.argmax(kept))
        return x, 1 - x, x
    v = plan.levels // 2
    rarest = [int(w) for w in np.argsort(_Crowd(plan, v).report(randomize).values_reported(v)) if w != v]
    return rarest[0], rarest[1], v


def _crowds(plan: Plan, randomize: Randomize, values: _Values, samples: int, clock: _Clock) -> _Crowds:
    """Crowds at x, at x', at v, and one (None) whose coordinates differ, in turns until there are enough reports."""
    mixed = np.unique(np.linspace(0, plan.levels, min(plan.dimension, plan.levels + 1)).astype(np.int64))
    crowds: _Crowds = {value: _Crowd(plan, value) for value in values}
    crowds[None] = _Crowd(plan, mixed[np.arange(plan.dimension) % len(mixed)])
    done = 0
    while done < samples:
        for crowd in crowds.values():
            crowd.report(randomize)
        done = sum(crowd.users for crowd in crowds.values()) * plan.reports
        if clock.over(0.5, 0.5 * done / samples):
            break
    return crowds


def _attack_reports(plan: Plan, values: _Values, crowds: _Crowds, chance_of_error: float) -> ReportAttack:
    held = list(dict.fromkeys(values))  # x, x' and, unless K = 2, v
    size = len(held)
    lower, upper, each = np.zeros((size, size)), np.zeros((size, size)), chance_of_error / (2 * size * (size - 1))
    for row, value in enumerate(held):
        reported = crowds[value].values_reported(value)
        total = int(reported.sum())
        # The last kind of report is whatever is neither x nor x'.
        kinds = [int(reported[held[0]]), int(reported[held[1]])]
        kinds += [total - sum(kinds)] if size == 3 else []
        for column, count in enumerate(kinds):  # the diagonal is not used
            lower[row, column], upper[row, column] = chances(count, total, each)
    gamma = noise_simulated(plan.levels + 1, lower, upper)
    reports = sum(crowd.counts.accepted for crowd in crowds.values())
    return ReportAttack(reports, gamma, _epsilon_of_honest(plan, gamma))


def _epsilon_of_honest(plan: Plan, noise_probability: float) -> float:
    """What x against x' among users at v shows of an honest randomizer; 0 where no bound is known.

    The bound looks only at how many reports of a block are x, x' or neither, as the channel does.
    """
    if noise_probability == 1 or plan.privacy.subsets_overlap:
        return 0.0
    bound = Blocks(plan.honest_users, plan.levels, plan.reports * plan.rounds).lower(noise_probability)
    return bound.epsilon(max(plan.delta, _LEAST_DELTA))


def _attack_batches(
    plan: Plan, randomize: Randomize, values: _Values, trials: int, chance_of_error: float, clock: _Clock
) -> BatchAttack:
    others, victims = _Crowd(plan, values[2]), [_Crowd(plan, value).array for value in values[:2]]
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        counts = Counts(plan)
        for start, rows in others.chunks(plan.honest_users):
            if clock.over(1.0, 0.5 + 0.5 * trial / trials):
                break
            rows[0] = others.array if start else victims[trial % 2]
            counts.add(randomize(rows))
        else:
            scores[trial % 2].append(_log_likelihood_ratio(plan, counts, values))
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


def _log_likelihood_ratio(plan: Plan, counts: Counts, values: _Values) -> float:
    """How much likelier the table is with a victim at x than at x', summed over blocks (docs/privacy.md).

    One victim among users at v: the likelihood, relative to n users at v, is the mean over reports of the ratio of the
    two laws. For subsets of coordinates that overlap this is not exact; any score makes a valid attack.
    """
    starts = [0] if plan.privacy.subsets_overlap else plan.block_starts
    blocks = np.add.reduceat(counts.table, starts, axis=0)
    x, other_x, v = honest_law(plan.levels + 1, plan.levels + 1, plan.noise_probability)[list(values)]
    tiny = np.finfo(np.float64).tiny  # a block without reports must not stop the attack
    return float(np.sum(np.log(np.maximum(blocks @ (x / v), tiny) / np.maximum(blocks @ (other_x / v), tiny))))


def _distinguished(plan: Plan, scores: list[_Floats], threshold: float, sign: int, chance_of_error: float) -> float:
    """The epsilon that the event {score >= threshold}, or {score <= threshold} where sign is -1, proves.

    P <= e^epsilon Q + delta must hold for it, with P its chance in the world in which it is likelier.
    """
    p, q = scores[::sign]
    hits_p, hits_q = (int(np.sum(sign * side >= sign * threshold)) for side in (p, q))
    least = chances(hits_p, len(p), chance_of_error / 2)[0] - plan.delta
    most = chances(hits_q, len(q), chance_of_error / 2)[1]
    return math.log(least / most) if least > 0 else -math.inf


def _findings(plan: Plan, crowds: _Crowds, chance_of_error: float) -> tuple[str, ...]:
    """Where tables deviate from the plan's law by more than chance allows: for each kind of count, the worst case."""
    law = honest_law(plan.levels + 1, plan.levels + 1, plan.noise_probability)
    sampled = plan.sampling_probabilities
    values, coordinates, cells, kept, accepted = [], [], [], 0, 0
    for crowd in crowds.values():
        table, users = crowd.counts.table, crowd.users
        kept, accepted = kept + table[np.arange(plan.dimension), crowd.levels].sum(), accepted + crowd.counts.accepted
        for level in np.unique(crowd.levels):
            reported = crowd.values_reported(level)
            values.append((f"where users held {level}, value {{}}", reported, int(reported.sum()), law[level]))
        coordinates.append(("coordinate {}", table.sum(axis=1), users, sampled))
        cells.append(("coordinate {} with value {}", table, users, sampled[:, None] * law[crowd.levels]))
    values.append(("the value held", np.array([kept]), accepted, law[0, :1]))
    limit = math.log(2 * sum(test[1].size for test in (*values, *coordinates, *cells)) / chance_of_error)
    found = []
    for tests in (values, coordinates, cells):
        worst, text = limit, None
        for name, observed, total, prescribed in tests:
            deviations = deviation(observed, total, prescribed)
            place = np.unravel_index(int(np.argmax(deviations)), deviations.shape)
            if deviations[place] > worst:
                expected = f"{total * prescribed[place]:,.0f} of {total:,}"
                text = f"{name.format(*place)} was reported {observed[place]:,} times; the plan expects {expected}"
                worst = deviations[place]
        found += [text] if text else []
    rejected = sum(crowd.counts.rejected for crowd in crowds.values())
    return (*found, *([f"{rejected:,} reports lie outside the plan's domain"] if rejected else []))
