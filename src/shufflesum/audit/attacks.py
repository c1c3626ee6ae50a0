"""Attacks the running randomizer: a lower bound on its epsilon that observations prove, beside the certified upper one.

Two attacks, on the worst pair of neighbouring data sets, which the plan's mechanism names. Each gives a lower bound on
epsilon at the plan's delta; together with the findings they hold with the stated confidence.

*Reports.* Crowds of users with equal arrays are randomized, and exact tail bounds enclose the chances that one kind of
report comes out as another; the mechanism says what any distribution in that enclosure reveals at least. Assumed:
reports are independent, of the same distribution for all users with the same data and for all blocks. This sees small
defects.

*Batches.* Whole batches are randomized and told apart by the likelihood ratio of their tables of counts. Assumed: only
that batches are independent, and like each other where their data are. This sees gross defects of any kind.

*Findings* are counts of events that the plan makes independent and gives chances: every cell of every crowd's table;
what single users report beyond the truth, in each set of cells and in all; the same of two neighbours, and two sets
of one user together; how far counts over 8, 64, n users and a whole call lie from their means, and how often they are
odd; how often two batches have the same count; the same rows in two calls, and in forked processes; and users who hold
something else: each value, random values between levels, or a single entry. Of many sets of cells 1,024 are looked at,
of many values 64. Last, where users need noise of their own, one in a thousand without any is looked for among as many
as that takes, if they can be had in time.

Both attacks, and the search for one in a thousand, are for many rows in one call. The findings are for every path: many
rows; one row at a time (two calls are neighbours then); and, of our own code, whole batches as one process counts them,
where tables of counts are all there is. One row at a time takes long: such paths share three tenths of the time, and
`AuditResult.paths` says how many users that was, how many rows they held, and how much less noise for all of them would
have shown.

Not seen: rows unlike all that are tried, and noise that one entry of a wide row lacks where no crowd holds it; what
happens less often than these events can tell; dependence on anything else (the time, the machine, three users
together); draws that look random but can be predicted. What passes is not proved private.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size
from shufflesum._format import downwards, upwards
from shufflesum.audit.findings import Judged, Tested, chances, judged
from shufflesum.audit.paths import LIGHT, ONE_PROCESS, ONE_ROW, Count, Crowd, Drawn, Paths, Randomize
from shufflesum.audit.tables import TableNoiseWatch
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms.auditing import Attack, DrawnNoise
from shufflesum.mechanisms.noisy_table import NoisyTable
from shufflesum.plans import Plan, check_unaltered
from shufflesum.protocol import Randomizer, Tally
from shufflesum.reports import Counts

_PATH_REPORTS = 4_000_000  # of which single users, neighbours and batches are looked at
_RARE_REPORTS = 1_000_000_000  # among which one user in a thousand is looked for, unless samples say how many
_ONE_ROW_REPORTS = 0.1  # of as many, where each user is a call
_REPORTS_PART, _STRUCTURE_PART, _PATHS_PART, _BATCHES_PART = 0.35, 0.45, 0.8, 0.9  # of the time, until each has it
_DRAWS, _USERS_DRAWN = 400_000, 8  # of noise that one process draws, and in how large batches beside those of one
_ONE_ROW_TIME, _CURATOR_TIME = 0.3, 0.05  # of the time, of paths beside many rows


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
    tested: tuple[Tested, ...] = ()
    paths: tuple[Drawn, ...] = ()

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

    @property
    def verdict(self) -> str:
        """What speaks against the randomizer, or that nothing does."""
        if self.passed:
            return "consistent: no attack beats the certificate, and nothing that was counted deviates from the plan"
        least, certified = downwards(self.epsilon_lower, 6), upwards(self.epsilon_upper, 6)
        crossing = [f"epsilon is at least {least}, but {certified} is certified"] * self.crossed
        return f"{'; '.join([*crossing, *self.findings])}. Release nothing that this randomizer made."

    def require(self) -> None:
        """Raise `PrivacyError` unless the audit passed."""
        if not self.passed:
            raise PrivacyError("audit-failed", f"the randomizer does not keep plan {self.plan.id[:12]}: {self.verdict}")


def audit(
    plan: Plan,
    *,
    randomize: Randomize | None = None,
    one_row: Mapping[str, Randomize] | None = None,
    confidence: float = 1 - 1e-6,
    samples: int | None = None,
    trials: int = 2_000,
    seconds: float = 20.0,
    progress: Callable[[float], None] | None = None,
) -> AuditResult:
    """Attack the randomizer of a plan, and compare what the attacks prove with what is certified.

    `randomize` turns rows into reports, `Randomizer(plan).randomize` with secure randomness unless given: pass the
    client that really runs. `one_row` names other paths that take one row at a time, as a device does; by default
    `randomize` is called so, and ours without compiling, too. `samples` reports (by default enough to know their noise
    within one per cent) and `trials` batches of the plan's honest users in one round are drawn, or as many as fit in
    about `seconds`; one row at a time, a tenth as many reports, in three tenths of the time. `progress` is called with
    the part done. This process is forked, to see whether its copies draw the same.
    """
    check_unaltered(plan)
    plan.verify()
    check_number("confidence", confidence, above=0, below=1)
    check_number("seconds", seconds, above=0)
    check_size("trials", trials, 0, 10**9)
    check_size("samples", 1 if samples is None else samples, 1, 1 << 99)

    if isinstance(plan.mechanism, NoisyTable):
        return _audit_table(plan, randomize, confidence, trials, _Deadline(seconds, progress))
    client = None if randomize is None and plan.noise_by == "curator" else randomize or Randomizer(plan).randomize
    count = partial(_tallied, plan) if client is None else partial(_counted, plan, client)
    deadline = _Deadline(seconds, progress)
    chance_of_error = (1 - confidence) / 3
    drawn = plan.mechanism.drawn_noise(plan.encoding, plan.domain) if client is None else None
    if drawn is not None:
        return _audit_drawn(plan, drawn, samples or _DRAWS, trials, confidence, deadline)

    def sample_table(row: Any) -> NDArray[np.int64]:
        return Crowd(plan, row).report(count).counts.table

    attack = plan.mechanism.attack(plan.encoding, plan.domain, plan.guarantee, sample_table)
    rare, samples = samples or _RARE_REPORTS, samples or attack.samples
    if one_row is None and client is not None:
        one_row = {ONE_ROW: client}
        if randomize is None:
            one_row[LIGHT] = Randomizer(plan, compiled=False).randomize
    crowds = _crowds(plan, count, attack, samples, deadline)
    seen = _along_paths(plan, attack, client, one_row or {}, randomize is None, samples, deadline)
    batch_attack = _attack_batches(plan, count, attack, trials, chance_of_error, deadline)
    if client is not None:
        seen.rare(client, rare, lambda: deadline.over(1.0, _BATCHES_PART))
    findings, tested = _findings(attack, crowds, seen, chance_of_error)
    return AuditResult(
        plan=plan,
        confidence=confidence,
        epsilon_upper=min(plan.privacy.epsilon(plan.delta).upper, plan.epsilon),
        report_attack=_attack_reports(attack, crowds, chance_of_error),
        batch_attack=batch_attack,
        findings=findings,
        lower_bound_known=attack.lower_bound_known,
        tested=tested,
        paths=tuple(seen.drawn),
    )


def _audit_drawn(
    plan: Plan, drawn: DrawnNoise, samples: int, trials: int, confidence: float, deadline: _Deadline
) -> AuditResult:
    """Where one process draws the noise of each cell once: it must follow its distribution, in every batch anew.

    Batches are of one user and of several. What tells batches of one user apart proves an epsilon.
    """
    chance_of_error = (1 - confidence) / 3
    sizes, done, users = (1, _USERS_DRAWN), 0, 0
    cases = [(size, *row) for size in sizes for row in drawn.rows]
    noise: list[list[NDArray[np.int64]]] = [[] for _ in cases]
    while done < samples and not (done and deadline.over(_PATHS_PART, done / samples)):
        for found, (size, row, true) in zip(noise, cases, strict=True):
            found.append(_tallied(plan, plan.domain.repeated(row, size)).table - size * true)
            done, users = done + plan.cells, users + size
    kinds = [("noise of cells", drawn.counts(ONE_PROCESS, np.stack(found))) for found in noise if len(found) > 1]
    kinds.append(("noise of cells", drawn.counts(ONE_PROCESS, np.concatenate(noise))))
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        if deadline.over(_BATCHES_PART, _PATHS_PART + (_BATCHES_PART - _PATHS_PART) * trial / trials):
            break
        row = drawn.rows[trial % 2][0]
        scores[trial % 2].append(drawn.score(_tallied(plan, plan.domain.repeated(row, 1)).table))
    verdict = judged(kinds, chance_of_error)
    return AuditResult(
        plan=plan,
        confidence=confidence,
        epsilon_upper=min(plan.privacy.epsilon(plan.delta).upper, plan.epsilon),
        report_attack=ReportAttack(0, math.inf, 0.0),
        batch_attack=_told_apart(plan, scores, chance_of_error),
        findings=verdict.findings,
        lower_bound_known=True,
        tested=verdict.tested,
        paths=(Drawn(ONE_PROCESS, users, len(drawn.rows), drawn.less_noise(done)),),
    )


def _audit_table(
    plan: Plan, randomize: Randomize | None, confidence: float, trials: int, deadline: _Deadline
) -> AuditResult:
    """Of noise that users do not draw: the roles that do are looked at, with one known user in each batch."""
    if randomize is not None:
        raise ParameterError(
            "impossible-combination",
            f"randomize is what users run, but with noise by {plan.noise_by!r} they draw none; leave it out",
        )
    chance_of_error = (1 - confidence) / 3
    seen = TableNoiseWatch(plan).look(lambda: deadline.over(_BATCHES_PART, 0.0), trials)
    found, tested = judged(seen.counts, chance_of_error)
    return AuditResult(
        plan=plan,
        confidence=confidence,
        epsilon_upper=min(plan.privacy.epsilon(plan.delta).upper, plan.epsilon),
        report_attack=ReportAttack(0, math.inf, 0.0),
        batch_attack=_told_apart(plan, seen.scores, chance_of_error),
        findings=found,
        lower_bound_known=True,
        tested=tested,
    )


def _tallied(plan: Plan, rows: Any) -> Counts:
    """Rows to their table as one process does it, where nothing is sent."""
    tally = Tally(plan)
    tally.add(rows)
    return tally.counts()


def _counted(plan: Plan, client: Randomize, rows: Any) -> Counts:
    """Rows to the table of what the client sends."""
    counts = Counts(plan)
    counts.add(client(rows))
    return counts


def _along_paths(
    plan: Plan,
    attack: Attack,
    client: Randomize | None,
    one_row: Mapping[str, Randomize],
    ours: bool,
    samples: int,
    deadline: _Deadline,
) -> Paths:
    """What single users, neighbours, batches, calls and processes show, along all paths."""
    seen, reports = Paths(plan, attack), min(samples, _PATH_REPORTS)
    if client is not None:
        seen.many_rows(client, reports, lambda: deadline.over(_STRUCTURE_PART, _REPORTS_PART))
    if ours:
        share = _CURATOR_TIME if client else _PATHS_PART - _REPORTS_PART
        seen.whole_batches(partial(_tallied, plan), reports, deadline.share(share, _STRUCTURE_PART))
    end = deadline.spent + _ONE_ROW_TIME
    for left, (path, called) in zip(range(len(one_row), 0, -1), one_row.items(), strict=True):
        # what one does not need, the others have; what it needs too much is not theirs
        share = max(_ONE_ROW_TIME / len(one_row), (end - deadline.spent) / left)
        seen.one_row(path, called, int(_ONE_ROW_REPORTS * samples), deadline.share(share, _STRUCTURE_PART))
    return seen


class _Deadline:
    """Says when a part of the time is over, and passes on how far the audit is."""

    def __init__(self, seconds: float, progress: Callable[[float], None] | None) -> None:
        self._start, self._seconds, self._progress, self._told = time.monotonic(), seconds, progress, -1

    @property
    def spent(self) -> float:
        """The part of the time that is over."""
        return (time.monotonic() - self._start) / self._seconds

    def over(self, part: float, done: float) -> bool:
        """Whether `part` of the time is over, when `done` of all work is."""
        spent = self.spent
        far = min(1.0, max(done, spent))
        if self._progress and int(100 * far) > self._told:
            self._told = int(100 * far)
            self._progress(far)
        return spent >= part

    def share(self, part: float, done: float) -> Callable[[float], bool]:
        """Whether so much of `part` of the time is over, from now on."""
        begun = self.spent
        return lambda some: self.over(begun + some * part, done)


def _crowds(plan: Plan, count: Count, attack: Attack, samples: int, deadline: _Deadline) -> list[Crowd]:
    """All crowds of the attack, reporting in turns until there are enough reports."""
    crowds = [Crowd(plan, row) for row in attack.crowds]
    done = 0
    while done < samples:
        for crowd in crowds:
            crowd.report(count)
        done = sum(crowd.users for crowd in crowds) * plan.reports
        if deadline.over(_REPORTS_PART, _REPORTS_PART * done / samples):
            break
    return crowds


def _attack_reports(attack: Attack, crowds: Sequence[Crowd], chance_of_error: float) -> ReportAttack:
    counts, totals = attack.kinds([crowd.counts.table for crowd in crowds], [crowd.users for crowd in crowds])
    each = chance_of_error / (2 * counts.size)
    ends = [chances(int(seen), int(total), each) for seen, total in zip(counts.flat, totals.flat, strict=True)]
    lower, upper = (np.array(side).reshape(counts.shape) for side in zip(*ends, strict=True))
    revealed = attack.reveals(lower, upper)
    return ReportAttack(sum(crowd.counts.accepted for crowd in crowds), revealed.noise, revealed.epsilon)


def _attack_batches(
    plan: Plan, count: Count, attack: Attack, trials: int, chance_of_error: float, deadline: _Deadline
) -> BatchAttack:
    others = Crowd(plan, attack.others)
    scores: tuple[list[float], list[float]] = ([], [])
    for trial in range(trials):
        counts = Counts(plan)
        for rows in others.chunks(plan.honest_users, attack.victims[trial % 2]):
            if deadline.over(_BATCHES_PART, _PATHS_PART + (_BATCHES_PART - _PATHS_PART) * trial / trials):
                break
            counts.merge(count(rows))
        else:
            scores[trial % 2].append(attack.score(counts.table))
            continue
        break
    return _told_apart(plan, scores, chance_of_error)


def _told_apart(plan: Plan, scores: tuple[list[float], list[float]], chance_of_error: float) -> BatchAttack:
    """What a threshold that is chosen among half of the batches proves with the other half."""
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


def _findings(attack: Attack, crowds: Sequence[Crowd], seen: Paths, chance_of_error: float) -> Judged:
    """Everything that was counted, beside what the plan says of it."""
    tables = attack.expected([crowd.counts.table for crowd in crowds], [crowd.users for crowd in crowds])
    kinds = [
        ("cells, values and coordinates", [counts._replace(name=f"{counts.name} was reported") for counts in kind])
        for kind in (*tables, *seen.tables)
    ]
    found, tested = judged([*kinds, *seen.sums.counts().items()], chance_of_error)
    rejected = seen.rejected + sum(crowd.counts.rejected for crowd in crowds)
    return Judged((*found, *([f"{rejected:,} reports name no cell of the plan"] if rejected else [])), tested)
