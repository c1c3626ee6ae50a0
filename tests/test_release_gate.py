"""The one gate: too few users, another plan, or more malicious users than the guarantee allows, and nothing leaves."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.plan_builders import reports_of, with_guarantee, with_mechanism
from tests.refusals import refusal

from shufflesum import Analyzer, Estimate, Plan, Randomizer, Reports
from shufflesum.cautions import UnreportedCoordinateWarning
from shufflesum.cells import BLANK
from shufflesum.errors import ReportsError
from shufflesum.release import min_malicious, release, why_broken
from shufflesum.reports import Counts
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=6, shape=4, coordinates=2, levels=3)  # blocks 0-1 and 2-3


def counts_of(first: int, second: int, *, rejected: int = 0, blanks: int = 0, plan: Plan = PLAN) -> Counts:
    """So many reports of coordinates 0 and 1, so many of 2 and 3, and others."""
    counts = Counts(plan)
    pairs = [(report % 2, 0) for report in range(first)] + [(2 + report % 2, 0) for report in range(second)]
    counts.add(reports_of(plan, pairs))
    counts.add(Reports(plan.id, np.array([plan.cells] * rejected + [BLANK] * blanks, dtype=np.uint32)))
    return counts


def test_a_whole_batch_of_honest_users_is_released_with_its_guarantee() -> None:
    estimate = release(counts_of(6, 6))
    assert isinstance(estimate, Estimate)
    assert (estimate.users, estimate.rejected) == (6, 0)
    assert estimate.guarantee_holds
    assert estimate.broken is None
    assert "WITHOUT" not in repr(estimate)


def test_more_users_than_planned_for_are_released_as_so_many() -> None:
    assert release(counts_of(9, 9)).users == 9


@pytest.mark.parametrize("without_guarantee", [False, True])
@pytest.mark.parametrize(
    ("first", "second", "rejected", "received"),
    [(5, 5, 0, 10), (6, 5, 0, 11), (5, 5, 1, 11), (0, 0, 11, 11), (0, 0, 0, 0)],
)
def test_too_few_users_are_never_released_however_one_insists(
    first: int, second: int, rejected: int, received: int, without_guarantee: bool
) -> None:
    counted = (f"{received} reports", f"{rejected} rejected", "12", "6 users")
    with refusal("too-few-users", *counted, error=ReportsError):
        release(counts_of(first, second, rejected=rejected), without_guarantee=without_guarantee)


def test_malicious_users_beyond_the_honest_fraction_are_refused_unless_somebody_insists() -> None:
    counts = counts_of(8, 4)  # two users sent both reports for the first block
    with refusal("guarantee-broken", "2 of 6 users", "honest fraction 1", error=ReportsError):
        release(counts)
    estimate = release(counts, without_guarantee=True)
    assert not estimate.guarantee_holds
    assert estimate.broken == why_broken(counts)
    assert "2 of 6 users did not follow" in str(estimate.broken)
    assert "WITHOUT the plan's guarantee" in repr(estimate)


def test_rejected_reports_and_blanks_are_as_much_against_the_protocol() -> None:
    """A user of `randomized-response` sends neither. They count towards the users, so they must not pass for honest
    ones.
    """
    for sampling in ("stratified", "uniform"):
        plan = with_mechanism(PLAN, sampling=sampling)
        for counts in (counts_of(5, 5, rejected=2, plan=plan), counts_of(5, 5, blanks=2, plan=plan)):
            assert counts.users == 6
            with refusal("guarantee-broken", "least 1", "of 6", error=ReportsError):
                release(counts)
        with refusal("guarantee-broken", "least 5", "of 6", error=ReportsError):
            release(counts_of(1, 1, blanks=10, plan=plan))


def test_insisting_changes_nothing_where_the_guarantee_holds() -> None:
    assert release(counts_of(6, 6), without_guarantee=True).guarantee_holds


def test_as_many_malicious_users_as_the_honest_fraction_allows_are_released() -> None:
    """floor(6 x 0.66) = 3 honest users are counted on, so three may be malicious, and a fourth may not."""
    lenient = with_guarantee(PLAN, honest_fraction=0.66)
    assert release(counts_of(9, 3, plan=lenient)).guarantee_holds
    assert min_malicious(counts_of(9, 3, plan=lenient)) == 3
    with refusal("guarantee-broken", "least 4", "of 6", "fraction 0.66", "allows 3", error=ReportsError):
        release(counts_of(10, 2, plan=lenient))


def test_the_part_that_must_be_honest_is_that_of_the_users_who_came() -> None:
    """Of twelve users where six were planned for, floor(12 x 0.66) = 7 must be honest, not three."""
    lenient = with_guarantee(PLAN, honest_fraction=0.66)
    assert release(counts_of(17, 7, plan=lenient)).users == 12
    with refusal("guarantee-broken", "least 6", "of 12", "allows 5", error=ReportsError):
        release(counts_of(18, 6, plan=lenient))


def test_reports_of_another_plan_never_come_to_the_gate() -> None:
    other = with_guarantee(PLAN, users=5)
    with refusal("plan-mismatch", error=ReportsError):
        Analyzer(PLAN).analyze(Randomizer(other).randomize(np.zeros((6, 4))), without_guarantee=True)


def test_the_analyzer_passes_the_gate_and_an_insistence_on() -> None:
    reports = reports_of(PLAN, [(0, 0), (1, 0)] * 4 + [(2, 0), (3, 0)] * 2)
    with refusal("guarantee-broken", "without_guarantee=", error=ReportsError):
        Analyzer(PLAN).analyze(reports)
    assert not Analyzer(PLAN).analyze(reports, without_guarantee=True).guarantee_holds
    refused = Analyzer(PLAN)
    refused.add(reports)
    with refusal("guarantee-broken", error=ReportsError):
        refused.estimate()
    assert not refused.estimate(without_guarantee=True).guarantee_holds  # a refusal closes nothing


def test_the_table_of_an_estimate_is_a_copy_and_cannot_be_written() -> None:
    counts = counts_of(6, 6)
    estimate = release(counts)
    before = estimate.mean
    counts.table.setflags(write=True)
    counts.table += 1
    np.testing.assert_array_equal(estimate.mean, before)
    with pytest.raises(ValueError, match="read-only"):
        estimate.table[0] = 5


def test_a_coordinate_nobody_reported_is_nan_and_warned_about() -> None:
    plan = unprotected_plan(users=2, shape=(2, 2))
    counts = Counts(plan)
    counts.add(reports_of(plan, [(1, 1), (2, 0)]))
    with pytest.warns(UnreportedCoordinateWarning, match=r"nobody reported entry \[0, 0\] nor 1 others"):
        estimate = release(counts)
    assert np.isnan(estimate.mean).tolist() == [[True, False], [False, True]]
    whole = Counts(plan)
    whole.add(reports_of(plan, [(0, 0), (1, 1), (2, 0), (3, 0)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few users say nothing
        warnings.simplefilter("error", UnreportedCoordinateWarning)
        assert release(whole).users == 4


def test_a_part_of_a_batch_and_what_was_found_before_are_refused_unless_somebody_insists() -> None:
    counts = counts_of(6, 6)
    for known in ({"whole": False}, {"flaws": ["found in another batch"]}):
        with refusal("guarantee-broken", error=ReportsError):
            release(counts, **known)
        assert not release(counts, without_guarantee=True, **known).guarantee_holds


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_reports_left_over_when_all_have_sent_theirs_are_somebody_s(sampling: str) -> None:
    plan = with_mechanism(PLAN, sampling=sampling)
    assert why_broken(counts_of(7, 6, plan=plan)) is not None
    assert why_broken(counts_of(6, 6, plan=plan)) is None
