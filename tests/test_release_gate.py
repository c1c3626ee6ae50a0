from __future__ import annotations

from dataclasses import replace

import pytest

from shufflesum.contract import Plan
from shufflesum.honesty import strayed_users, why_broken
from shufflesum.protocol import Counts
from shufflesum.testing import unprotected_plan


def counts_of(*blocks: int, rejected: int = 0, plan: Plan | None = None) -> Counts:
    """Four coordinates in two blocks, with so many reports in each block."""
    counts = Counts(plan or unprotected_plan(users=6, shape=4, reports=2, levels=3))
    counts.table[0, 0], counts.table[2, 0] = blocks
    counts.rejected = rejected
    return counts


@pytest.mark.parametrize(
    ("blocks", "rejected", "strayed"),
    [
        ((6, 6), 0, 0),
        ((6, 4), 2, 2),  # two rejected reports could be one user's, but one block lacks two
        ((5, 5), 2, 1),
        ((8, 4), 0, 2),  # nothing rejected, but two users sent both reports for the first block
    ],
)
def test_the_fewest_users_who_can_have_strayed(blocks: tuple[int, int], rejected: int, strayed: int) -> None:
    assert strayed_users(counts_of(*blocks, rejected=rejected), 6) == strayed


def test_one_user_can_put_all_reports_into_one_block() -> None:
    """Two users of a thousand with a hundred reports each: two strayed, not 198."""
    counts = Counts(unprotected_plan(users=1000, shape=100, reports=100, levels=3))
    counts.table[:, 0] = 998
    counts.table[0, 0] += 200
    assert strayed_users(counts, 1000) == 2


def test_it_is_said_when_more_strayed_than_the_honest_fraction_allows() -> None:
    strict = unprotected_plan(users=6, shape=4, reports=2, levels=3)
    assert why_broken(counts_of(6, 6, plan=strict), 6) is None
    assert "at least 2 of 6 users strayed" in str(why_broken(counts_of(8, 4, plan=strict), 6))
    lenient = replace(strict, honest_fraction=0.66)  # floor(6 x 0.66) = 3 honest: three may stray
    assert why_broken(counts_of(8, 4, plan=lenient), 6) is None
    assert why_broken(counts_of(10, 2, plan=lenient), 6) is not None


def test_in_uniform_sampling_nobody_reports_a_coordinate_twice() -> None:
    plan = unprotected_plan(users=6, shape=4, reports=2, levels=3, sampling="uniform")
    assert strayed_users(counts_of(6, 6, plan=plan), 6) == 0
    assert strayed_users(counts_of(12, 0, plan=plan), 6) == 6
    assert strayed_users(counts_of(8, 4, plan=plan), 6) == 2
    assert strayed_users(counts_of(6, 5, rejected=1, plan=plan), 6) == 1


def test_whoever_reports_all_coordinates_reports_each_once_in_either_scheme() -> None:
    for sampling in ("stratified", "uniform"):
        plan = unprotected_plan(users=6, shape=4, reports=4, levels=3, sampling=sampling)
        counts = Counts(plan)
        counts.table[:, 0] = (6, 6, 7, 5)
        assert strayed_users(counts, 6) == 1
        counts.table[:, 0] = 6
        assert strayed_users(counts, 6) == 0
