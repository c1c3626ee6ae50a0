"""Quantiles and bounds of numbers counted in bins hold as often as they say, whatever the law.

False alarms: at most 1e-6 for each test that counts misses.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, cauchy
from tests.refusals import refusal
from tests.value_distributions import SIX_LAWS, too_many_misses, true_quantile

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.domains import Categories
from shufflesum.domains.counts import QUANTILE_BINS, WIDE_BINS, Binned, CountEstimate
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

USERS = 400
EDGES = [-1e12, -30, -10, -3, -1, 0, 1, 2, 3, 5, 10, 20, 30, 50, 100, 165, 170, 175, 200, 1000, 1e12]


def counted(plan: Plan, values: np.ndarray, seed: int) -> CountEstimate:
    found = aggregate_batches([values], plan, source=SeededSource(seed))
    assert isinstance(found, CountEstimate)
    return found


def plan_for(mechanism: str, users: int = USERS) -> Plan:
    return ss.plan(users=users, domain=Categories(bins=EDGES), epsilon=1.5, delta=1e-5, mechanism=mechanism)


def misses(plan: Plan, runs: int, level: float, q: float) -> tuple[int, int]:
    missed = 0
    for seed in range(runs):
        for number, law in enumerate(SIX_LAWS.values()):
            values = law(np.random.default_rng([seed, number]), plan.users)
            found = counted(plan, values, 1000 * seed + number).quantile(q, level)
            missed += not found.lower <= true_quantile(values, q) <= found.upper
    return missed, runs * len(SIX_LAWS)


@pytest.mark.long
@pytest.mark.parametrize("q", [0.1, 0.5])
def test_intervals_of_quantiles_hold_on_six_laws(q: float) -> None:
    missed, trials = misses(plan_for("noisy-counts"), 20, 0.9, q)
    assert missed < too_many_misses(trials, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
@pytest.mark.parametrize("q", [0.02, 0.25, 0.5, 0.9])
def test_intervals_of_quantiles_hold_on_six_laws_long(mechanism: str, q: float) -> None:
    missed, trials = misses(plan_for(mechanism), 150, 0.9, q)
    assert missed < too_many_misses(trials, 0.9)


def test_intervals_that_are_too_short_would_be_found_out() -> None:
    """The twin: users just at the edge of a bin, so that noise decides, and a level that is not the one asked for."""
    plan, missed, trials = plan_for("noisy-counts"), 0, 200
    values = np.repeat([2.5, 4.0], [USERS // 2, USERS // 2])  # the median, 2.5, is next to an edge
    for seed in range(trials):
        found = counted(plan, values, seed).quantile(0.5, 0.2)
        missed += not found.lower <= 2.5 <= found.upper
    assert missed >= too_many_misses(trials, 0.9)


def chances_of_holding(mechanism: str, target: str, q: float, asked: float) -> list[float]:
    """For every part below the one edge between two bins: how likely the interval holds the quantile, all enumerated.

    Of these users a part is a count of them; of a population any, and the worst are those around q.
    """
    users, noise, edges = 30, 12, (0.0, 1.0, 2.0)
    plan = ss.plan(users=users, domain=Categories(bins=edges), epsilon=3, delta=1e-2, mechanism=mechanism)
    reports = users + (noise if mechanism == "noisy-counts" else 0)
    passed = []
    for below in range(reports + 1):
        binned = Binned(plan, np.array([below, reports - below]), users, edges)
        found = binned.quantile(q, asked, target)  # type: ignore[arg-type]
        passed.append((found.lower == 1.0, found.upper == 1.0))
    not_below, not_above = (~np.array(side) for side in zip(*passed, strict=True))
    if target == "users":
        parts = np.arange(users + 1) / users
    else:
        parts = np.unique(np.concatenate([np.linspace(0, 1, 101), [q, np.nextafter(q, 0), np.nextafter(q, 1)]]))
    found_chances = []
    for part in parts:
        law = counts_below(mechanism, target, part, users, noise, plan)
        found_chances.append(float(law @ (not_below if part >= q - 1e-12 else not_above)))
    return found_chances


def counts_below(mechanism: str, target: str, part: float, users: int, noise: int, plan: Plan) -> np.ndarray:
    """The law of the reports below the edge, from the protocol's own words."""

    def law(trials: int, p: float) -> np.ndarray:
        return np.asarray(binom.pmf(np.arange(trials + 1), trials, p))

    if mechanism == "noisy-counts":
        own = law(users, part) if target == "population" else np.eye(users + 1)[round(part * users)]
        return np.convolve(own, law(noise, 0.5))
    assert isinstance(plan.mechanism, RandomizedResponse)
    gamma = plan.mechanism.noise_probability
    if target == "population":
        return law(users, (1 - gamma) * part + gamma / 2)
    holders = round(part * users)
    return np.convolve(law(holders, 1 - gamma / 2), law(users - holders, gamma / 2))


@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
@pytest.mark.parametrize("target", ["users", "population"])
@pytest.mark.parametrize("q", [0.1, 0.5])
def test_no_part_below_an_edge_is_missed_too_often(mechanism: str, target: str, q: float) -> None:
    """Exact: every outcome is enumerated. At the worst part half of what may be missed is, on one side."""
    assert min(chances_of_holding(mechanism, target, q, 0.9)) >= 0.95
    # the twin: intervals of a lower level, by the same enumeration
    assert min(chances_of_holding(mechanism, target, q, 0.3)) < 0.95


GAMMA = Fraction(1, 2)
VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)  # on the edges of three bins, and between them


def law_of_tables(mechanism: str, counts: tuple[int, ...], noise: int) -> dict[tuple[int, ...], Fraction]:
    """Of all reports, one after the other: a user's own, replaced by a uniform one or kept, or uniform noise."""
    third = Fraction(1, 3)
    if mechanism == "noisy-counts":
        laws = [[Fraction(i == held) for i in range(3)] for held, users in enumerate(counts) for _ in range(users)]
        laws += [[third] * 3] * noise
    else:
        own = [[(1 - GAMMA) * (i == held) + GAMMA * third for i in range(3)] for held in range(3)]
        laws = [own[held] for held, users in enumerate(counts) for _ in range(users)]
    tables: dict[tuple[int, ...], Fraction] = {(0, 0, 0): Fraction(1)}
    for law_of_one in laws:
        added = defaultdict[tuple[int, ...], Fraction](Fraction)
        for table, chance in tables.items():
            for i, one in enumerate(law_of_one):
                if one:
                    added[tuple(count + (i == j) for j, count in enumerate(table))] += chance * one
        tables = added
    return tables


def least_coverage(mechanism: str, q: Fraction, level: float, users: int = 4, noise: int = 3) -> float:
    """Of all that so many users can hold, ties and empty bins among it: how likely the quantile is held at least."""
    edges = (0.0, 1.0, 2.0, 3.0)
    plan = ss.plan(users=users, domain=Categories(bins=edges), epsilon=6, delta=0.3, mechanism=mechanism)
    if isinstance(plan.mechanism, RandomizedResponse):
        plan = replace(plan, mechanism=replace(plan.mechanism, noise_probability=float(GAMMA)))

    @cache
    def interval(table: tuple[int, ...]) -> tuple[float, float]:
        found = Binned(plan, np.array(table), users, edges).quantile(float(q), level, "users")
        return found.lower, found.upper

    @cache
    def tables(counts: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
        return law_of_tables(mechanism, counts, noise)

    least = Fraction(1)
    for held in combinations_with_replacement(VALUES, users):
        quantile = next(x for x in held if sum(y <= x for y in held) >= q * users)
        counts = tuple(sum(min(int(x), 2) == i for x in held) for i in range(3))
        chances = tables(counts).items()
        holding = (chance for table, chance in chances if interval(table)[0] <= quantile <= interval(table)[1])
        least = min(least, sum(holding, Fraction(0)))
    return float(least)


@pytest.mark.parametrize("mechanism", ["noisy-counts", "randomized-response"])
@pytest.mark.parametrize("q", [Fraction(1, 10), Fraction(1, 2), Fraction(3, 4)])
def test_ties_empty_bins_and_values_on_edges_are_held_as_often_as_said(mechanism: str, q: Fraction) -> None:
    """Exact: all data sets of four users, and all tables that each can lead to."""
    assert least_coverage(mechanism, q, 0.9) >= 0.9
    # the twin: intervals of a lower level, by the same enumeration
    assert least_coverage(mechanism, q, 0.1) < 0.9


def population_misses(runs: int, level: float, users: int, *, target: str) -> int:
    plan, missed = plan_for("noisy-counts", users), 0
    for seed in range(runs):
        values = np.random.default_rng(seed).standard_cauchy(users)
        found = counted(plan, values, seed).quantile(0.25, level, target=target)  # type: ignore[arg-type]
        missed += not found.lower <= -1.0 <= found.upper  # its quartile, which is an edge
    return missed


def test_a_population_has_wider_intervals_and_they_hold() -> None:
    assert math.isclose(cauchy.ppf(0.25), -1.0)
    assert population_misses(150, 0.9, USERS, target="population") < too_many_misses(150, 0.9)


def test_a_population_taken_for_its_sample_would_be_found_out() -> None:
    # With so many users the noise is small beside sampling; at the quartile's own edge every side counts.
    plan, missed, runs = plan_for("noisy-counts", 20_000), 0, 120
    for seed in range(runs):
        values = np.random.default_rng(seed).standard_cauchy(20_000) * 1.0003  # just off the edge
        found = counted(plan, values, seed).quantile(0.25, 0.9)
        missed += not found.lower <= -1.0003 <= found.upper
    assert missed >= too_many_misses(runs, 0.9)


def test_a_quantile_is_never_finer_than_its_bins() -> None:
    found = counted(plan_for("noisy-counts", 5000), np.full(5000, 42.0), 1).quantile(0.5)
    assert (found.lower, found.upper) == (30, 50)
    assert 30 <= found.value <= 50
    assert counted(plan_for("noisy-counts", 5000), np.full(5000, 42.0), 1).median() == found


def test_quantiles_rise() -> None:
    values = np.random.default_rng(5).lognormal(3, 1, 20_000)
    estimate = counted(plan_for("noisy-counts", 20_000), values, 1)
    found = [estimate.quantile(q) for q in (0.1, 0.3, 0.5, 0.7, 0.9)]
    for one, other in pairwise(found):
        assert one.value <= other.value
        assert one.lower <= other.lower
        assert one.upper <= other.upper


@pytest.mark.parametrize("q", [0, 1, -0.5, math.nan])
def test_what_is_no_quantile_is_refused(q: float) -> None:
    estimate = counted(plan_for("noisy-counts"), np.full(USERS, 1.5), 1)
    with refusal("out-of-range"):
        estimate.quantile(q)


def test_labels_have_no_quantiles_and_neither_have_bins_with_another_cell() -> None:
    for domain in (Categories(["a", "b"]), Categories(bins=[0, 1, 2], other=True)):
        plan = ss.plan(users=100, domain=domain, epsilon=5, delta=1e-3)
        estimate = aggregate_batches([["a"] * 100 if domain.bins is None else np.ones(100)], plan)
        assert isinstance(estimate, CountEstimate)
        with refusal("impossible-combination"):
            estimate.median()


def test_wide_bins_hold_every_double_and_know_zero() -> None:
    bins = Categories(bins=WIDE_BINS)
    some = np.array([0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, np.finfo(float).max, 100.0, np.nextafter(100, 101)])
    codes = bins.block(some).cells
    zero = (len(WIDE_BINS) - 1) // 2
    assert codes[:4].tolist() == [zero] * 4
    assert codes[4] == codes[6] == len(WIDE_BINS) - 2
    assert codes[5] == 0
    assert codes[8] == codes[7] + 1  # a whole 100 is the last of its bin
    mirrored = bins.block(-np.array([1.0, 7.0, 100.0])).cells
    assert (len(WIDE_BINS) - 2 - mirrored).tolist() == bins.block(np.array([1.0, 7.0, 100.0])).cells.tolist()
    assert (
        bins.block(np.array([1e30, 3.0], dtype=np.float32)).cells.tolist()
        == bins.block([np.float32(1e30), 3]).cells.tolist()
    )


def test_a_quantile_that_falls_on_a_user_is_no_matter_of_rounding() -> None:
    """0.07 times 100 is a little more than 7 as it is computed: the seventh of a hundred all the same."""
    few: Any = SimpleNamespace(users=100)
    assert 0.07 * 100 > 7
    assert Binned._holders(few, 0.07) == (0.07, 0.07)


def test_a_quantile_lies_in_its_bin_as_if_users_were_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = SimpleNamespace(mean=np.array([0.25, 0.5, 0.25]))
    monkeypatch.setattr(Binned, "_means", property(lambda _: parts))
    plan: Any = None
    binned = Binned(plan, np.zeros(3, dtype=np.int64), 100, (0.0, 1.0, 2.0, 4.0))
    assert [binned._value(q) for q in (0.1, 0.5, 0.75, 0.9)] == pytest.approx([0.4, 1.5, 2.0, 3.2])


def test_bins_for_quantiles_are_close_to_each_other() -> None:
    plan: Any = None
    fine_and_coarse = 18 * 24 + 12  # of either sign, and the largest double
    assert Binned(plan, np.zeros(0, dtype=np.int64), 1, QUANTILE_BINS).bins == 2 * (fine_and_coarse + 1) - 1
    assert np.all(np.diff(QUANTILE_BINS) > 0)
    fine = np.array([edge for edge in QUANTILE_BINS if 1 <= edge <= 1.0001e12])
    assert fine.size == 12 * 24 + 1  # from 1 to 10^12
    assert np.max(fine[1:] / fine[:-1]) <= 1.16
