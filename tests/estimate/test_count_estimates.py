from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.estimate.decoded import count_estimate
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM

from shufflesum.domains import Categories, MultiChoice
from shufflesum.domains.counts import nearest_counts, top_of
from shufflesum.errors import ParameterError

Floats = Any


def test_counts_and_frequencies_are_the_unbiased_ones_of_the_mechanism() -> None:
    domain = Categories(["yes", "no", 3], other=True)
    estimate = count_estimate(domain, [60, 30, 5, 5], users=60, trials=40, probability=0.25)
    np.testing.assert_allclose(estimate.counts, [50, 20, -5, -5])
    np.testing.assert_allclose(estimate.frequencies, estimate.counts / 60)
    np.testing.assert_array_equal(estimate.mean, estimate.frequencies)
    np.testing.assert_allclose(estimate.count_standard_error, np.sqrt(40 / 4 * 3 / 4))
    np.testing.assert_allclose(estimate.standard_error, np.sqrt(7.5) / 60)
    assert estimate.labels == ("yes", "no", 3, "other")
    assert estimate.names == ("yes", "no", "3", "other")
    assert estimate.report_counts.tolist() == [60, 30, 5, 5]
    assert repr(estimate) == "CountEstimate(60 users, shape=(4,), plan 0123456789ab)"


def test_intervals_are_the_mechanisms_and_together_their_tail_is_divided_by_the_cells() -> None:
    estimate = count_estimate(Categories(4), [60, 30, 5, 5], users=60, trials=40, probability=0.25)
    for together, tail in ((False, 0.05), (True, 0.05 / 4)):
        low, high = estimate.count_interval(0.9, simultaneous=together)
        np.testing.assert_allclose(low, np.array([60, 30, 5, 5]) - binom.isf(tail, 40, 0.25))
        np.testing.assert_allclose(high, np.array([60, 30, 5, 5]) - binom.ppf(tail, 40, 0.25))
        for end, count in zip(estimate.confidence_interval(0.9, simultaneous=together), (low, high), strict=True):
            np.testing.assert_allclose(60 * end, count)
    wide = estimate.count_interval(0.9, target="population")
    assert (wide[0] < estimate.count_interval(0.9)[0]).all()
    assert (estimate.standard_error_of("population") > estimate.standard_error).all()
    with refusal("out-of-range", error=ParameterError):
        estimate.count_interval(1.0)


counts_near_zero = st.lists(st.floats(-50, 50), min_size=1, max_size=12)


@given(counts=counts_near_zero, users=st.integers(1, 60))
def test_consistent_counts_are_the_nearest_that_are_possible(counts: list[float], users: int) -> None:
    """What is taken from all is the root of a falling function: found by halving, which shares nothing with sorting."""
    given_counts = np.array(counts)
    nearest = nearest_counts(given_counts, users, users)
    assert (nearest >= 0).all()
    assert nearest.sum() == pytest.approx(users)
    low, high = given_counts.min() - users - 1, given_counts.max() + 1
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(given_counts - middle, 0).sum() > users else (low, middle)
    np.testing.assert_allclose(nearest, np.maximum(given_counts - low, 0), atol=1e-9)


def test_counts_of_a_million_labels_add_up() -> None:
    noisy = np.random.default_rng(1).normal(0, 6.5, 1_000_000)
    noisy += (100_000 - noisy.sum()) / len(noisy)
    assert nearest_counts(noisy, 100_000, 100_000).sum() == pytest.approx(100_000)


def test_consistent_counts_add_up_for_one_label_each_and_are_only_cut_off_for_several() -> None:
    table = [60, 30, -4]
    one = count_estimate(Categories(3), table, users=60)
    np.testing.assert_allclose(one.consistent_counts, [45, 15, 0])
    np.testing.assert_allclose(one.consistent_frequencies, [0.75, 0.25, 0])
    several = count_estimate(MultiChoice(3, max_choices=2), [70, 30, -4], users=60)
    np.testing.assert_allclose(several.consistent_counts, [60, 30, 0])


@pytest.mark.parametrize(("members", "more"), [(10, ""), (11, " and 1 more"), (14, " and 4 more")])
def test_of_many_members_ten_are_named_and_the_others_counted(members: int, more: str) -> None:
    names = [f"n{number}" for number in range(members + 1)]
    counts = np.array([*range(100 + members, 100, -1), 0.0])
    ends = np.maximum(counts - 50, 0), counts + 50  # all but the last among the first, in no certain order
    statement = top_of(names, names, counts, (ends[0], np.append(ends[1][:-1], 1.0)), members, 0.9).statement
    assert f'"n9"{more} are certainly in the top' in statement


ends = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted), min_size=2, max_size=4)


@given(ends=ends, k=st.integers(1, 4))
def test_what_is_certain_is_so_for_all_counts_in_the_intervals(ends: list[list[int]], k: int) -> None:
    """All whole counts, tried one by one: certain if never as many as k others are as frequent, and so for places."""
    k = min(k, len(ends))
    lower, upper = np.array(ends, dtype=float).T
    found = top_of(range(len(ends)), "abcd", (lower + upper) / 2, (lower, upper), k, 0.9)
    for row in found.rows:
        me = int(row.label)
        certain = exact = True
        for counts in itertools.product(*(range(low, high + 1) for low, high in ends)):
            others = [count for label, count in enumerate(counts) if label != me]
            certain &= sum(count >= counts[me] for count in others) < k
            more = sum(count > counts[me] for count in others)
            exact &= more == row.rank - 1 and counts[me] not in others
        assert (row.certain, row.rank_certain) == (certain, exact)


def test_the_top_is_told_in_words() -> None:
    table = np.array([900, 700, 500, 480, 210, 200]) + 200
    estimate = count_estimate(Categories(["a", "b", "c", "d", "e", "f"]), table, 2690, 400, 0.5)
    top = estimate.top(5)
    assert top.statement in str(top)
    assert all(f"{top.rows[0].count:,.0f}" in shown for shown in (str(top), top._repr_html_()))
    assert top.labels == ("a", "b", "c", "d", "e")
    assert [row.rank for row in top.rows] == [1, 2, 3, 4, 5]
    assert [row.certain for row in top.rows] == [True] * 4 + [False]
    assert [row.rank_certain for row in top.rows] == [True, True, False, False, False]
    for words in (
        "Ranks 1-2 are certain (95 %",
        '"c", "d" are',
        "in the top 5, in an uncertain order",
        "1 of these 5 may not",
    ):
        assert words in top.statement
    low, high = estimate.count_interval(0.95, simultaneous=True)
    assert (top.rows[2].count, top.rows[2].lower, top.rows[2].upper) == (estimate.counts[2], low[2], high[2])
    everything = estimate.top(6)
    assert all(row.certain for row in everything.rows)
    close = count_estimate(Categories(2), [5, 5], 10)
    assert "No rank is certain" in close.top(1).statement
    assert 'The order of "0", "1" is uncertain' in close.top(2).statement, "all are among all: that says nothing"
    for k in (0, 7):
        with refusal("out-of-range", error=ParameterError):
            estimate.top(k)


def mistaken(estimate: Any, truth: Floats, level: float) -> bool:
    ends = estimate.count_interval(level, simultaneous=level > 0.9)
    rows = top_of(range(len(truth)), estimate.names, estimate.counts, ends, 2, level).rows
    more = [int((truth > truth[row.label]).sum()) for row in rows]
    return any(
        (row.certain and others >= 2) or (row.rank_certain and others != row.rank - 1)
        for row, others in zip(rows, more, strict=True)
    )


@pytest.mark.long
def test_what_is_called_certain_is_true_as_often_as_the_level_says() -> None:
    """2,000 runs at 95 %: more mistakes than allowed once in 10^6; single intervals of a lower level make far more."""
    rng = np.random.default_rng(5)
    truth = np.array([100, 100, 101, 102])
    wrong = {0.95: 0, 0.2: 0}
    for _ in range(2000):
        table = truth + rng.binomial(170, 0.25, len(truth))
        estimate = count_estimate(Categories(4), table, int(truth.sum()), 170, 0.25)
        for level in wrong:
            wrong[level] += mistaken(estimate, truth, level)
    most = binom.isf(FALSE_ALARM, 2000, 0.05)
    assert wrong[0.95] <= most
    assert wrong[0.2] > most
