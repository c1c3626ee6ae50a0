"""Means and intervals from tables of counts; coverage is enumerated wherever the outcomes can be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, hypergeom, multinomial
from tests.plan_builders import encoding_for
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, report_law

from shufflesum.domains import Arrays
from shufflesum.errors import ParameterError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.mechanisms.mechanism import Target
from shufflesum.mechanisms.randomized_response.decode import RandomizedResponseMeans

Floats = Any
NOISE = (0.0, 0.001, 0.01, 0.1, 0.3, 0.6, 0.9)
TARGETS: tuple[Target, ...] = ("users", "population")


def decoded(table: Floats, users: int, noise_probability: float) -> RandomizedResponseMeans:
    """The means of a (d, K) table in which all users reported all coordinates, or could have."""
    many, values = np.shape(table)
    gamma = np.ceil(noise_probability * 2.0**53) * 2.0**-53
    mechanism = RandomizedResponse(many, values - 1, gamma)
    means = mechanism.decode(encoding_for(Arrays(many, (0.0, 1.0)), RandomizedResponse), np.reshape(table, -1), users)
    assert isinstance(means, RandomizedResponseMeans)
    return means


def test_the_mean_is_the_papers_debiased_one() -> None:
    """With v the sum of c values of k levels it is z / c, z = (v/k - gamma c/2) / (1 - gamma)."""
    means = decoded([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], 4, 0.25)
    np.testing.assert_allclose(means.mean, [(8 / 4 - 0.25 * 3 / 2) / 0.75 / 3, -0.125 / 0.75])
    assert means.report_counts.tolist() == [3, 1]


def test_a_coordinate_without_reports_has_neither_mean_nor_error_bars() -> None:
    means = decoded([[0, 0], [1, 1]], 2, 0.25)
    for target in TARGETS:
        for result in (means.mean, means.variance(target), *means.interval(0.025, target)):
            assert np.isnan(result).tolist() == [True, False]


def test_another_target_is_refused() -> None:
    means = decoded([[1, 1]], 2, 0.25)
    for ask in (means.variance, lambda target: means.interval(0.025, target)):
        with refusal("unknown-choice", "is 'all'", error=ParameterError):
            ask("all")  # type: ignore[arg-type]


def intervals(
    tables: Floats, users: int, noise_probability: float, level: float, target: Target
) -> tuple[Floats, Floats]:
    """The intervals of many tables of one coordinate: each becomes a coordinate of one large table."""
    return decoded(tables, users, noise_probability).interval((1 - level) / 2, target)


def coverage(chances: Floats, ends: tuple[Floats, Floats], truth: Floats) -> Floats:
    """For each row of chances over all outcomes, the chance that the interval holds that row's truth."""
    truth = np.reshape(truth, (-1, 1))
    return (chances * ((ends[0] <= truth + 1e-12) & (truth - 1e-12 <= ends[1]))).sum(axis=1)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("reports", [10, 11, 17, 70, 1000])
def test_intervals_with_one_level_cover_in_every_case(reports: int, level: float) -> None:
    """All outcomes enumerated, so no chance is left: coverage of both targets is at least nominal."""
    ones = np.arange(reports + 1)
    tables = np.stack([reports - ones, ones], axis=1)
    x = np.unique(np.concatenate([np.linspace(0, 1, 201), np.array([0.1, 0.5, 1, 2, 3, 5]) / reports]))
    for gamma in NOISE:
        chances = binom.pmf(ones, reports, ((1 - gamma) * x + gamma / 2)[:, None])
        settings: list[tuple[Target, int]] = [("population", reports)]
        settings += [("users", users) for users in (reports, reports + 1, 2 * reports, 100 * reports)]
        for target, users in settings:  # all users hold the same x, so only rounding and noise vary
            covered = coverage(chances, intervals(tables, users, gamma, level, target), x)
            assert covered.min() >= level, (target, users, gamma)


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("reports", [10, 16, 60])
def test_intervals_cover_the_mean_of_users_who_differ(reports: int, level: float) -> None:
    """Users at 0 or 1, some of them sampled, then noise: all outcomes enumerated."""
    ones = np.arange(reports + 1)
    tables = np.stack([reports - ones, ones], axis=1)
    for gamma in NOISE:
        flipped = [
            np.convolve(
                binom.pmf(np.arange(h + 1), h, 1 - gamma / 2),
                binom.pmf(np.arange(reports - h + 1), reports - h, gamma / 2),
            )
            for h in range(reports + 1)
        ]
        for users in (reports, reports + 1, 2 * reports, 5 * reports):
            ends = intervals(tables, users, gamma, level, "users")
            at_one = np.unique(np.concatenate([np.arange(6), np.linspace(0, users, 21).astype(int)]))
            chances = hypergeom.pmf(np.arange(reports + 1), users, at_one[:, None], reports) @ np.array(flipped)
            assert coverage(chances, ends, at_one / users).min() >= level, (users, gamma)


def compositions(total: int, parts: int) -> Floats:
    if parts == 1:
        return np.array([[total]])
    return np.concatenate(
        [
            np.column_stack([np.full(len(rest), first), rest])
            for first in range(total + 1)
            for rest in [compositions(total - first, parts - 1)]
        ]
    )


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("levels", [2, 3])
def test_intervals_of_ten_reports_cover_with_more_levels(levels: int, level: float) -> None:
    """Ten reports, all tables enumerated: two kinds of users drawn for the population, all equal for these users."""
    tables = compositions(10, levels + 1)
    grid = np.linspace(0, 1, 13)
    for gamma in NOISE:
        for target in TARGETS:
            ends = intervals(tables, 10, gamma, level, target)
            for y, share in ((0.0, 0.0), (1.0, 0.1), (1.0, 0.5), (0.0, 0.3)):
                if target == "users" and share:
                    continue
                laws = [(1 - share) * report_law(x, levels, gamma) + share * report_law(y, levels, gamma) for x in grid]
                chances = np.array([multinomial.pmf(tables, 10, law) for law in laws])
                truth = (1 - share) * grid + share * y
                assert coverage(chances, ends, truth).min() >= level, (target, gamma, y, share)


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize("reports", [10, 1000])
@pytest.mark.parametrize(("levels", "gamma"), [(3, 0.01), (3, 0.4), (10, 0.1), (30, 0.01), (30, 0.1)])
def test_simulated_intervals_cover_with_many_levels(levels: int, gamma: float, reports: int, level: float) -> None:
    """8,000 tables a case. Falls below the line once in 10^6; twin: intervals of 0.6 times the width are rejected."""
    rng = np.random.default_rng(levels * 1000 + reports)
    tables = 8_000
    least = binom.ppf(FALSE_ALARM, tables, level) / tables
    narrow = []
    groups: list[list[tuple[float, float]]] = [
        [(1, 0.0)],
        [(0.9, 0.0), (0.1, 1.0)],
        [(0.5, 0.03), (0.5, 0.35)],
        [(1, 0.45)],
    ]
    for data in groups:
        truth = sum(share * x for share, x in data)
        every_user = sum(
            rng.multinomial(round(share * reports), report_law(x, levels, gamma), tables) for share, x in data
        )
        law = sum(share * report_law(x, levels, gamma) for share, x in data)
        drawn = rng.multinomial(reports, law, tables)
        for table, users, target in (
            (every_user, reports, "users"),
            (drawn, reports, "population"),
            (drawn, 10**9, "users"),
        ):
            low, high = intervals(np.asarray(table), users, gamma, level, target)  # type: ignore[arg-type]
            assert np.mean((low <= truth) & (truth <= high)) >= least, (data, target)
            middle, half = (low + high) / 2, 0.6 * (high - low) / 2
            narrow.append(np.mean((middle - half <= truth) & (truth <= middle + half)))
    assert min(narrow) < least
