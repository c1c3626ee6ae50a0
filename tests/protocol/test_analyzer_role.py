from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.plan_builders import reports_of
from tests.refusals import refusal

from shufflesum import Analyzer, Randomizer, shuffle
from shufflesum.errors import ReportsError
from shufflesum.reports import Counts
from shufflesum.testing import SeededSource, unprotected_plan


def test_users_are_the_reports_received_over_those_each_sends() -> None:
    """Not the plan's users, and not those whose reports were accepted."""
    plan = unprotected_plan(users=2, shape=3, coordinates=3)
    pairs = [(0, 0), (1, 1), (2, 0)] * 2 + [(0, 1), (1, 1), (7, 0)]
    estimate = Analyzer(plan).analyze(reports_of(plan, pairs), without_guarantee=True)
    assert (estimate.users, estimate.rejected) == (3, 1)
    assert "at least 1 of 3 users" in str(estimate.broken)


def test_a_released_batch_is_closed() -> None:
    """Else the difference of two estimates would show a single user's reports."""
    plan = unprotected_plan(users=1, shape=1)
    analyzer, late = Analyzer(plan), Analyzer(plan)
    first = analyzer.analyze(reports_of(plan, [(0, 0)]))
    late.add(reports_of(plan, [(0, 1)]))
    with refusal("batch-closed", error=ReportsError):
        analyzer.add(reports_of(plan, [(0, 1)]))
    with refusal("batch-closed", error=ReportsError):
        analyzer.merge(late)
    assert analyzer.estimate().mean.tolist() == first.mean.tolist()


def test_the_table_of_an_analyzer_is_not_public_and_an_estimate_stays_what_it_was() -> None:
    plan = unprotected_plan(users=1, shape=1)
    analyzer = Analyzer(plan)
    first = analyzer.analyze(reports_of(plan, [(0, 0)]))
    assert not [name for name, value in vars(analyzer).items() if isinstance(value, Counts) and name[0] != "_"]
    with refusal("batch-closed", error=ReportsError):
        analyzer._counts.add(reports_of(plan, [(0, 1)]))  # as nobody should
    assert analyzer.estimate() is first


def test_who_insisted_once_does_not_insist_for_others() -> None:
    plan = unprotected_plan(users=1, shape=1)
    analyzer = Analyzer(plan)
    analyzer.add(reports_of(plan, [(0, 0), (7, 0)]))
    broken = analyzer.estimate(without_guarantee=True)
    with refusal("guarantee-broken", error=ReportsError):
        analyzer.estimate()
    assert analyzer.estimate(without_guarantee=True) is broken


def test_what_is_too_few_can_still_become_enough() -> None:
    plan = unprotected_plan(users=2, shape=2, coordinates=2)
    analyzer = Analyzer(plan)
    analyzer.add(reports_of(plan, [(0, 0), (1, 0), (0, 1)]))
    with refusal("too-few-users", "3 reports", error=ReportsError):
        analyzer.estimate()
    analyzer.add(reports_of(plan, [(1, 1)]))
    assert analyzer.estimate().mean.tolist() == [0.5, 0.5]


def test_one_missing_user_is_one_too_few() -> None:
    plan = unprotected_plan(users=10, shape=3, coordinates=3)
    with refusal("too-few-users", error=ReportsError):
        Analyzer(plan).analyze(Randomizer(plan).randomize(np.zeros((9, 3))))


def test_a_shard_counts_once_and_a_released_batch_not_again() -> None:
    plan = unprotected_plan(users=2, shape=1)
    released, shard, whole = Analyzer(plan), Analyzer(plan), Analyzer(plan)
    released.analyze(reports_of(plan, [(0, 1), (0, 0)]))
    with refusal("batch-closed", error=ReportsError):
        whole.merge(released)
    shard.add(reports_of(plan, [(0, 1)]))
    whole.merge(shard)
    for again in (lambda: whole.merge(shard), lambda: shard.add(reports_of(plan, [(0, 1)])), shard.estimate):
        with refusal("batch-closed", error=ReportsError):
            again()
    with refusal("too-few-users", "1 reports", error=ReportsError):
        whole.estimate()


def test_reports_and_shards_of_another_plan_are_refused() -> None:
    plan, other = (unprotected_plan(users=1, shape=2, noise_probability=gamma) for gamma in (0.0, 2.0**-53))
    with refusal("plan-mismatch", error=ReportsError):
        Analyzer(plan).analyze(Randomizer(other).randomize(np.zeros((1, 2))))
    with refusal("plan-mismatch", error=ReportsError):
        Analyzer(plan).merge(Analyzer(other))


@given(users=st.integers(1, 40), cuts=st.lists(st.integers(0, 120), max_size=4), seed=st.integers(0, 2**32))
def test_pieces_and_shards_estimate_as_the_whole(users: int, cuts: list[int], seed: int) -> None:
    plan = unprotected_plan(users=users, shape=3, coordinates=3, levels=5, noise_probability=0.2)
    arrays = np.random.default_rng(seed).random((users, 3))
    reports = shuffle(Randomizer(plan, source=SeededSource(seed)).randomize(arrays), source=SeededSource(seed))
    whole = Analyzer(plan).analyze(reports)
    edges = [0, *sorted(cuts), len(reports)]
    in_pieces = Analyzer(plan)
    shards = Analyzer(plan)
    for start, stop in pairwise(edges):
        in_pieces.add(reports[start:stop])
        shard = Analyzer(plan)
        shard.add(reports[start:stop])
        shards.merge(shard)
    for estimate in (in_pieces.estimate(), shards.estimate()):
        np.testing.assert_array_equal(estimate.table, whole.table)
        np.testing.assert_array_equal(estimate.mean, whole.mean)
        np.testing.assert_array_equal(estimate.standard_error, whole.standard_error)
        assert estimate.users == whole.users


def test_a_whole_batch_is_not_mixed_with_pieces_by_accident() -> None:
    plan = unprotected_plan(users=1, shape=1)
    analyzer = Analyzer(plan)
    analyzer.add(reports_of(plan, [(0, 1)]))
    with refusal("batch-not-empty", error=ReportsError):
        analyzer.analyze(reports_of(plan, [(0, 1)]))
    with refusal("counted-twice", error=ReportsError):
        analyzer.merge(analyzer)
