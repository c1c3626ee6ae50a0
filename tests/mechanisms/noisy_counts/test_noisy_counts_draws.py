"""What is drawn under `noisy-counts`, per user and in one process, against its law; wrong twins must be refused."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom
from tests.plan_builders import encoding_for
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.cells import BLANK
from shufflesum.domains import Arrays
from shufflesum.errors import DataError, ReportsError
from shufflesum.mechanisms import NoisyCounts
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Randomizer, Tally
from shufflesum.testing import SeededSource

USERS = 60_000
LOUD = NoisyCounts(2, (3, 2), (3 / 8, 5 / 16), 10)  # never above its cap
TIGHT = replace(LOUD, cap=2)  # often
SCALAR = Arrays(1, (0.0, 1.0))

Counts = NDArray[np.int64]


def sent(mechanism: NoisyCounts, rows: NDArray[Any], domain: Arrays = SCALAR, seed: int = 1) -> Counts:
    """How often each user reported each cell."""
    encoding = encoding_for(domain, NoisyCounts)
    reports = mechanism.encoder(encoding, SeededSource(seed)).encode(domain.block(rows)).reshape(len(rows), -1)
    cells = mechanism.cells(encoding)
    return np.stack([np.count_nonzero(reports == cell, axis=1) for cell in range(cells)], axis=1)


def law(trials: tuple[int, ...], chances: tuple[float, ...], most: float = math.inf) -> NDArray[np.float64]:
    """The joint law of one user's noise in the cells of one coordinate, given that no more than `most` are drawn."""
    each = [binom.pmf(range(q + 1), q, p) for q, p in zip(trials, chances, strict=True)]
    joint = np.multiply.outer(each[0], each[1])
    joint = np.where(np.add.outer(*(np.arange(len(one)) for one in each)) <= most, joint, 0.0)
    return np.asarray(joint / joint.sum())


def histogram(counts: Counts, mechanism: NoisyCounts) -> Counts:
    joint = np.zeros([q + 1 for q in mechanism.trials], dtype=np.int64)
    np.add.at(joint, tuple(counts.T), 1)
    return joint


@pytest.mark.usefixtures("both_kernels")
def test_a_users_noise_is_binomial_in_each_cell_and_independent() -> None:
    """Chi-square over both digits at once, false alarm 1e-6; 5 % less noise is refused."""
    observed = histogram(sent(LOUD, np.zeros((USERS, 1))), LOUD)
    assert chi_square(observed, law(LOUD.trials, LOUD.probabilities)) > FALSE_ALARM
    assert chi_square(observed, law(LOUD.trials, (0.95 * 3 / 8, 5 / 16))) < FALSE_ALARM
    assert chi_square(observed, law(LOUD.trials, (3 / 8, 0.95 * 5 / 16))) < FALSE_ALARM


@pytest.mark.usefixtures("both_kernels")
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_noise_above_the_cap_is_drawn_again_whatever_the_digits(value: float) -> None:
    """The law given that the cap is kept; cutting off what is too much, or no cap at all, would be another."""
    observed = histogram(sent(TIGHT, np.full((USERS, 1), value)) - int(value), TIGHT)
    assert chi_square(observed, law(TIGHT.trials, TIGHT.probabilities, most=2)) > FALSE_ALARM
    assert chi_square(observed, law(TIGHT.trials, TIGHT.probabilities)) < FALSE_ALARM
    cut = np.where(law((3, 2), TIGHT.probabilities, most=2) > 0, law((3, 2), TIGHT.probabilities), 0.0)
    cut[0, 2] += 1 - cut.sum()  # the first two that were drawn
    assert chi_square(observed, cut) < FALSE_ALARM


@pytest.mark.usefixtures("both_kernels")
def test_noise_of_one_coordinate_says_nothing_of_another_nor_of_the_next_user() -> None:
    """64 trials share words: joint counts over coordinates and over users; a copied one is refused."""
    domain, mechanism = Arrays(40, (0.0, 1.0)), NoisyCounts(1, (3,), (3 / 8,), 120)
    counts = sent(mechanism, np.zeros((8000, 40)), domain)
    one = binom.pmf(range(4), 3, 3 / 8)
    pairs = {"next coordinate": (counts[:, 0], counts[:, 1]), "far": (counts[:, 0], counts[:, 39])}
    pairs["next user"] = (counts[::2, 5], counts[1::2, 5])
    for first, second in pairs.values():
        assert chi_square(np.bincount(4 * first + second, minlength=16), np.outer(one, one)) > FALSE_ALARM / len(pairs)
        assert chi_square(np.bincount(4 * first + first, minlength=16), np.outer(one, one)) < FALSE_ALARM


@given(st.lists(st.integers(0, 7), min_size=3, max_size=3), st.integers(0, 50))
def test_reports_are_the_digits_and_noise_and_as_many_for_all(values: list[int], seed: int) -> None:
    domain, mechanism = Arrays(3, (0.0, 1.0)), NoisyCounts(3, (2, 1, 1), (0.25, 0.25, 0.5), 4)
    rows = np.array([values, [0, 0, 0], [7, 7, 7]]) / 7
    encoding = encoding_for(domain, NoisyCounts)
    reports = mechanism.encoder(encoding, SeededSource(seed)).encode(domain.block(rows)).reshape(3, -1)
    assert reports.shape[1] == mechanism.reports(encoding) == 13
    digits = [[(value >> j) & 1 for value in row for j in range(3)] for row in (values, [0] * 3, [7] * 3)]
    for user, expected in zip(reports, digits, strict=True):
        noise = np.bincount(user[user != BLANK], minlength=9) - expected
        assert (noise >= 0).all()
        assert (noise.reshape(3, 3) <= mechanism.trials).all()
        assert noise.sum() <= 4


@pytest.mark.long
@pytest.mark.usefixtures("both_kernels")
def test_one_row_at_a_time_or_all_at_once_is_the_same_law() -> None:
    encoder = TIGHT.encoder(encoding_for(SCALAR, NoisyCounts), SeededSource(9))
    reports = np.stack([encoder.encode(SCALAR.block(np.zeros((1, 1)))) for _ in range(4000)])
    counts = np.stack([np.count_nonzero(reports == cell, axis=1) for cell in range(2)], axis=1)
    assert chi_square(histogram(counts, TIGHT), law(TIGHT.trials, TIGHT.probabilities, most=2)) > FALSE_ALARM


@pytest.mark.long
def test_random_rounding_keeps_the_mean_to_the_last_bits_it_looks_at() -> None:
    """Chi-square of the four neighbours of 0 and 1 in 2^-15: ties are settled by further bits."""
    mechanism, tiny = NoisyCounts(4, (1,) * 4, (0.5,) * 4, 10**6), 0.4 * 2.0**-15 / 15
    rows = np.full((2_000_000, 10), tiny)
    table = np.zeros(40, dtype=np.int64)
    domain = Arrays(10, (0.0, 1.0))
    mechanism.tally(encoding_for(domain, NoisyCounts), SeededSource(5)).add(domain.block(rows), table)
    ups, chance = int(table[::4].sum()), 15 * tiny
    assert table[1::4].sum() == 0
    assert chi_square([ups, rows.size - ups], [chance, 1 - chance]) > FALSE_ALARM
    assert chi_square([ups, rows.size - ups], [2.0**-15, 1 - 2.0**-15]) < FALSE_ALARM


# In one process


def noise_tables(mechanism: NoisyCounts, users: int, tables: int) -> Counts:
    tally = mechanism.tally(encoding_for(SCALAR, NoisyCounts), SeededSource(2))
    return np.array([tally.noise(users) for _ in range(tables)])


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [pytest.param(LOUD, marks=pytest.mark.slow), TIGHT, pytest.param(replace(LOUD, cap=10**6), marks=pytest.mark.slow)],
    ids=["cap", "small cap", "no cap"],
)
def test_one_process_draws_all_users_noise_at_once(mechanism: NoisyCounts) -> None:
    """The free law, also under a plan with a cap, which need not be paid for then; 5 % less noise is refused."""
    users = 8
    tables = noise_tables(mechanism, users, 30_000)
    for j, (q, p) in enumerate(zip(mechanism.trials, mechanism.probabilities, strict=True)):
        low, high = (int(binom.ppf(end, users * q, p)) for end in (1e-3, 1 - 1e-3))
        observed = np.bincount(np.clip(tables[:, j], low, high))[low:]
        for chance, right in ((p, True), (0.95 * p, False)):
            below = binom.cdf(np.arange(low, high), users * q, chance)
            assert (chi_square(observed, np.diff(below, prepend=0, append=1)) > FALSE_ALARM) == right
    correlation = np.asarray(np.corrcoef(tables.T))
    assert abs(correlation[0, 1]) < 6 / math.sqrt(len(tables))


def plan_of(mechanism: NoisyCounts, dimension: int = 1, users: int = 1) -> Plan:
    return Plan(Arrays(dimension, (0.0, 1.0)), mechanism, Guarantee(1.0, 1e-6, users, accountant="none"))


def test_sums_of_digits_are_exact_beyond_what_sixteen_bits_count() -> None:
    silent = NoisyCounts(3, (1, 1, 1), (0.0, 0.0, 0.0), 10**6)
    values = np.random.default_rng(1).integers(0, 8, (70_000, 3))
    tally = Tally(plan_of(silent, 3))
    tally.add(np.where(values == 5, 7, values) / 7)
    tally.add(np.ones((66_000, 3)))
    held = np.where(values == 5, 7, values)
    expected = [[int(np.count_nonzero(held[:, c] >> j & 1)) + 66_000 for j in range(3)] for c in range(3)]
    counts = tally.counts()
    assert counts.table.reshape(3, 3).tolist() == expected
    assert counts.users == 136_000


def test_merged_tallies_draw_noise_once_for_all() -> None:
    certain = NoisyCounts(1, (4,), (1 - 2.0**-53,), 10**6)
    one, other = Tally(plan_of(certain)), Tally(plan_of(certain))
    one.add(np.zeros((3, 1)))
    other.add(np.ones((5, 1)))
    one.merge(other)
    assert one.counts().table.tolist() == [5 + 4 * 8]
    with refusal("batch-closed", error=ReportsError):
        other.counts()


def test_more_noise_than_all_users_reports_can_hold_gives_no_estimate() -> None:
    certain = NoisyCounts(1, (4,), (1 - 2.0**-53,), 2)
    tally = Tally(plan_of(certain))
    tally.add(np.zeros((3, 1)))  # 12 dummy reports, and room for 3 x 3
    with refusal("too-many-reports", error=ReportsError):
        tally.counts()


def test_values_out_of_bounds_are_refused_with_their_row() -> None:
    for wrong in (1.001, -1e-3, math.nan, math.inf, -1e300):
        rows = np.full((3000, 2), 0.5)
        rows[2047, 1] = wrong
        for take in (Tally(plan_of(LOUD, 2)).add, Randomizer(plan_of(LOUD, 2)).randomize):
            with pytest.raises(DataError, match="2047"):
                take(rows)


def test_single_precision_at_the_bounds_stays_on_the_scale() -> None:
    lower, upper = 0.1, 0.3  # neither is a float32
    domain = Arrays(2, (lower, upper))
    rows = np.array(list(itertools.product([lower, upper], repeat=2)), dtype=np.float32)
    silent = NoisyCounts(16, (1,) * 16, (0.0,) * 16, 0)
    counts = sent(silent, rows, domain)
    values = (counts.reshape(4, 2, 16) * 2 ** np.arange(16)).sum(axis=2)
    assert np.abs(values - 65535 * (rows > 0.2)).max() <= 1
