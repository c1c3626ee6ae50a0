"""Where intervals are easily too narrow: hardly a noisy report at a high level, and sums of many coefficients."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.stat_tests import FALSE_ALARM

from shufflesum import Analyzer, Estimate, Randomizer, Span
from shufflesum.mechanisms.randomized_response import decode
from shufflesum.testing import SeededSource, unprotected_plan

TABLES = 20_000  # simulated for each number of noisy reports


def missing_share(users: int, levels: int, noisy: float, level: float) -> float:
    """How often the interval misses the mean, 0, of users who all report 0, over how often it may.

    Enumerated over the number of noisy reports, simulated over their values: a coordinate each.
    """
    gamma = round(noisy / users * 2**53) / 2**53
    plan = unprotected_plan(users=users, shape=TABLES, coordinates=TABLES, levels=levels, noise_probability=gamma)
    generator = np.random.default_rng(users + levels)
    misses = 0.0
    for drawn in range(int(noisy + 10 * math.sqrt(noisy)) + 10):
        table = np.zeros((TABLES, levels + 1), dtype=np.int64)
        table[:, 0] = users - drawn
        for _ in range(drawn):
            table[np.arange(TABLES), generator.integers(0, levels + 1, TABLES)] += 1
        lower, upper = Estimate(plan, users, 0, table.reshape(-1)).confidence_interval(level)
        misses += binom.pmf(drawn, users, gamma) * np.mean((lower > 0) | (upper < 0))
    return float(misses / (1 - level))


CORNERS = [
    pytest.param(100, 30, 1.0, 0.999, marks=pytest.mark.slow),
    pytest.param(1000, 100, 1.0, 0.9999, marks=pytest.mark.slow),
    pytest.param(200, 300, 0.3, 0.9999, marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.parametrize(("users", "levels", "noisy", "level"), CORNERS)
def test_hardly_a_noisy_report(
    users: int, levels: int, noisy: float, level: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twin: without the correction for skewness too many miss."""
    assert missing_share(users, levels, noisy, level) < 0.9
    monkeypatch.setattr(decode, "_QUANTILE_99", 100.0)
    assert missing_share(users, levels, noisy, level) > 1.2


@pytest.mark.long
@pytest.mark.parametrize(("coefficients", "users", "reported"), [(10, 500, 1), (50, 1000, 5), (100, 300, 100)])
def test_an_entry_that_is_the_sum_of_many_coefficients(coefficients: int, users: int, reported: int) -> None:
    """Coefficients all at a bound pull the centre one way. Fails once in 10^6; a span's first entry is their sum."""
    span = Span(np.hstack([np.ones((coefficients, 1)), np.eye(coefficients)]))
    plan = unprotected_plan(users=users, shape=span, coordinates=reported, levels=4, noise_probability=0.125)
    randomizer = Randomizer(plan, source=SeededSource(coefficients))
    trials, held = 60, 0
    for _ in range(trials):
        estimate = Analyzer(plan).analyze(randomizer.randomize(np.zeros((users, coefficients + 1))))
        lower, upper = estimate.confidence_interval()
        assert (lower <= estimate.mean).all()
        assert (estimate.mean <= upper).all()
        held += bool(lower[0] <= 0 <= upper[0])
    assert held >= binom.ppf(FALSE_ALARM, trials, 0.95)
