from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plan_builders import values_of
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum import Randomizer, Reports, shuffle
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.protocol import permutation
from shufflesum.testing import SeededSource, unprotected_plan


def numbered(count: int) -> Reports:
    return Reports("plan", np.arange(count, dtype=np.uint32))


@pytest.mark.long
@pytest.mark.usefixtures("both_kernels")
def test_every_permutation_of_five_reports_is_equally_likely() -> None:
    """Chi-square over 120 permutations at false alarm 1e-6; the well-known wrong shuffle is rejected."""
    source, reports = SeededSource(20), numbered(5)
    place = {order: i for i, order in enumerate(permutations(range(5)))}
    observed = np.zeros(120)
    for _ in range(40_000):
        observed[place[tuple(shuffle(reports, source=source).cells.tolist())]] += 1
    assert chi_square(observed, np.full(120, 1 / 120)) > FALSE_ALARM

    swapped_with_any = np.zeros(120)
    for draws in np.random.default_rng(1).integers(0, 5, (40_000, 5)).tolist():
        items = list(range(5))
        for i, j in enumerate(draws):
            items[i], items[j] = items[j], items[i]
        swapped_with_any[place[tuple(items)]] += 1
    assert chi_square(swapped_with_any, np.full(120, 1 / 120)) < FALSE_ALARM


def test_the_reports_of_one_user_are_shuffled_apart_from_each_other() -> None:
    """Where a user's two reports end up among six: all 15 pairs of places alike (false alarm 1e-6)."""
    plan = unprotected_plan(users=3, shape=2, coordinates=2, levels=5)
    # value = user, so that a report can be followed; two reports of each user, in rows
    sent = Randomizer(plan, source=SeededSource(1)).randomize(np.repeat([[0.0], [0.2], [0.4]], 2, axis=1))
    assert values_of(plan, sent).tolist() == [0, 0, 1, 1, 2, 2]
    source = SeededSource(21)
    place: dict[tuple[int, ...], int] = {pair: i for i, pair in enumerate(combinations(range(6), 2))}
    observed = np.zeros(15)
    for _ in range(20_000):
        shuffled = values_of(plan, shuffle(sent, source=source))
        observed[place[tuple(np.flatnonzero(shuffled == 1).tolist())]] += 1
    assert chi_square(observed, np.full(15, 1 / 15)) > FALSE_ALARM

    rows_kept_together = np.zeros(15)
    for order in np.random.default_rng(1).permuted(np.tile(np.arange(3), (20_000, 1)), axis=1).tolist():
        at = order.index(1)
        rows_kept_together[place[2 * at, 2 * at + 1]] += 1
    assert chi_square(rows_kept_together, np.full(15, 1 / 15)) < FALSE_ALARM


@given(cells=st.lists(st.integers(0, 2**32 - 1), max_size=50), seed=st.integers(0, 2**64))
def test_shuffling_loses_invents_and_changes_nothing(cells: list[int], seed: int) -> None:
    reports = Reports("plan", np.array(cells, dtype=np.uint32))
    shuffled = shuffle(reports, source=SeededSource(seed))
    assert shuffled.plan_id == "plan"
    assert sorted(shuffled.cells.tolist()) == sorted(cells)
    assert reports.cells.tolist() == cells  # the original stays as it was


def test_reports_beyond_one_block_of_words_reach_every_place() -> None:
    count = 200_000
    order = shuffle(numbered(count)).cells.astype(np.int64)
    assert np.array_equal(np.sort(order), np.arange(count))
    # uniform places: mean distance count / 3, here far within 40 standard deviations
    assert abs(np.abs(order - np.arange(count)).mean() / count - 1 / 3) < 0.02
    assert np.count_nonzero(order == np.arange(count)) < 30  # Poisson with mean 1: beyond 30 once in 10^33


def test_a_seeded_shuffle_repeats_and_the_default_does_not() -> None:
    reports = numbered(100)
    first, second = (shuffle(reports, source=SeededSource(7)).cells.tolist() for _ in range(2))
    assert first == second
    assert shuffle(reports).cells.tolist() != shuffle(reports).cells.tolist()


def test_a_batch_too_large_to_number_is_refused() -> None:
    cells = np.broadcast_to(np.zeros(1, dtype=np.uint32), 1 << 32)  # takes no memory
    with refusal("too-many-reports", "4294967296 reports", error=ParameterError):
        shuffle(Reports("plan", cells))
    with refusal("too-many-reports", "4294967296 reports", error=ParameterError):
        permutation(1 << 32, SeededSource(1))


def test_only_reports_are_shuffled() -> None:
    with refusal("wrong-type", "list", error=ReportsError):
        shuffle([3, 1, 2])  # type: ignore[arg-type]


def test_the_smallest_batches_are_shuffled_too() -> None:
    """Two reports in 2,000 shuffles come swapped as often as not (false alarm 1e-6)."""
    source = SeededSource(5)
    swapped = sum(shuffle(numbered(2), source=source).cells[0] == 1 for _ in range(2000))
    assert chi_square([swapped, 2000 - swapped], [0.5, 0.5]) > FALSE_ALARM
    assert chi_square([swapped, 2000 - swapped], [0.6, 0.4]) < FALSE_ALARM
    assert shuffle(numbered(1)).cells.tolist() == [0]
