"""What must not be released under noise that servers draw: parts, copies, tables with two draws, numbers that lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import DataError, ParameterError, PlanError, ReportsError
from shufflesum.protocol import Analyzer, Randomizer, Tally, shuffle
from shufflesum.release import release
from shufflesum.reports import Counts, Reports

LABELS = [0, 1, 1, 2, 2, 2]


def planned(noise_by: str = "servers", domain: Any = None) -> ss.Plan:
    """A plan for a few labels."""
    return ss.plan(domain=domain or ss.Categories(3), users=1000, epsilon=8.0, delta=1e-6, noise_by=noise_by)  # type: ignore[arg-type]


def batch(plan: ss.Plan, rows: Any = LABELS) -> Reports:
    """A shuffled batch of these users."""
    return shuffle(Randomizer(plan).randomize(plan.domain.rows(rows)), plan=plan)


def test_a_shard_is_not_released_beside_the_batch_that_it_was_merged_into() -> None:
    # each has a draw of its own, and two draws over the same reports could be averaged
    plan = planned()
    sent = batch(plan)
    whole, shard = Counts(plan), Counts(plan)
    shard.add(sent)
    whole.merge(shard)
    assert release(whole).users == 6
    with refusal("batch-closed", error=ReportsError):
        shard.add(sent[:0])
    released = Counts(plan)
    released.add(sent)
    release(released)
    with refusal("batch-closed", error=ReportsError):
        Counts(plan).merge(released)


@pytest.mark.parametrize("noise_by", ["shuffler", "servers"])
def test_tables_with_their_noise_in_them_are_not_put_together(noise_by: str) -> None:
    # the users would be those of one, the noise that of both
    plan = planned(noise_by)
    tables = []
    for _ in range(2):
        tally = Tally(plan)
        tally.add(plan.domain.rows(LABELS))
        tables.append(tally.counts())
    one, other = tables
    with refusal("mixed-reports", error=ReportsError):
        one.merge(other)
    with refusal("mixed-reports", error=ReportsError):
        Counts(plan).merge(other)
    with refusal("mixed-reports", error=ReportsError):
        one.add(batch(plan))
    with refusal("mixed-reports", error=ReportsError):
        one.add_table(np.zeros(3, dtype=np.int64), 6)
    assert release(one).users == 6


@pytest.mark.parametrize(
    "domain", [ss.Categories(3), ss.MultiChoice(3, max_choices=1), ss.MultiChoice(70, max_choices=3)]
)
def test_every_layout_of_positions_is_released_as_a_whole_only(domain: Any) -> None:
    plan = planned("servers", domain)
    rows = LABELS if isinstance(domain, ss.Categories) else [[label] for label in LABELS]
    sent = batch(plan, rows)
    assert Analyzer(plan).analyze(sent).users == 6
    for part in (sent[:0], sent[1:3]):
        with refusal("not-whole", error=ReportsError):
            Analyzer(plan).analyze(part)


@pytest.mark.parametrize("users", [-1, 1.5, True, None, "6"])
def test_a_number_of_users_is_a_number(users: Any) -> None:
    sent = batch(planned())
    with refusal("out-of-range" if users == -1 else "wrong-type", error=(ParameterError, ReportsError)):
        replace(sent, users=users)


def test_numbers_of_reports_are_not_negative() -> None:
    plan = planned("servers", ss.MultiChoice(3, max_choices=1))
    sent = batch(plan, [[0], [1]])
    assert sent.by_position is not None
    first, second, third = sent.by_position
    wrong: tuple[Any, ...] = ((-1, second + 1 + first, third), (first + 0.5, second - 0.5, third))
    for numbers in wrong:
        with refusal("wrong-type", error=ReportsError):
            replace(sent, by_position=numbers)
    with refusal("plan-mismatch", error=ReportsError):
        Analyzer(plan).add(replace(sent, by_position=(first + second, third)))


def test_a_batch_of_other_users_than_it_says_is_refused() -> None:
    plan = planned("servers", ss.MultiChoice(3, max_choices=1))
    for users in (1, 3, 5):
        with refusal("not-whole", error=ReportsError):
            Analyzer(plan).analyze(replace(batch(plan, [[0], [1]]), users=users))


def test_rows_that_are_refused_in_part_are_not_counted_twice() -> None:
    # each row counts for one user: of three tries the rows before the wrong one would count three times
    plan = planned("curator")
    tally = Tally(plan)
    with refusal("unknown-label", error=DataError):
        tally.add(np.array([0, 1, 1, 7]))
    for again in (lambda: tally.add(np.array([0, 1, 1])), tally.counts, lambda: Tally(plan).merge(tally)):
        with refusal("batch-closed", error=ReportsError):
            again()


def test_one_process_randomizes_for_nobody_else() -> None:
    # reports under such a plan would be the bare truth
    with refusal("one-process-only", error=PlanError):
        Randomizer(planned("curator"))
