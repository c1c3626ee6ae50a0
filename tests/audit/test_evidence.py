from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from shufflesum.audit.findings import chances, deviation


@given(
    trials=st.integers(1, 40),
    chance=st.floats(0.001, 0.999),
    chance_of_error=st.sampled_from([1e-7, 1e-3, 0.05, 0.3]),
)
@settings(max_examples=20, deadline=None)
def test_chances_are_enclosed_as_often_as_stated(trials: int, chance: float, chance_of_error: float) -> None:
    """By summing the binomial law itself, so without luck: each side fails with at most the stated probability."""
    bounds = [chances(successes, trials, chance_of_error) for successes in range(trials + 1)]
    law = binom.pmf(np.arange(trials + 1), trials, chance)
    assert sum(mass for mass, (lower, _) in zip(law, bounds, strict=True) if chance < lower - 1e-12) <= chance_of_error
    assert sum(mass for mass, (_, upper) in zip(law, bounds, strict=True) if chance > upper + 1e-12) <= chance_of_error


def test_chances_are_enclosed_almost_as_tightly_as_can_be() -> None:
    for successes, trials in [(0, 100), (3, 50), (5_000, 10**6), (10**6, 3 * 10**6)]:
        lower, upper = chances(successes, trials, 1e-7)
        exact_upper = beta.ppf(1 - 1e-7, successes + 1, trials - successes)
        exact_lower = beta.ppf(1e-7, successes, trials - successes + 1) if successes else 0.0
        assert lower <= exact_lower * (1 + 1e-9)
        assert upper >= exact_upper * (1 - 1e-9)
        centre = successes / trials
        assert upper - centre <= 1.3 * (exact_upper - centre)
        assert centre - lower <= 1.3 * (centre - exact_lower)


@pytest.mark.parametrize("trials", [1, 5, 40])
@pytest.mark.parametrize("chance", [0.01, 0.3, 0.5, 0.99])
def test_a_count_deviates_by_so_much_as_rarely_as_stated(trials: int, chance: float) -> None:
    """Both tails of the binomial law, summed: with chance e^-deviation or less each."""
    counts = np.arange(trials + 1)
    bound = np.exp(-deviation(counts, trials, chance))
    above = counts >= trials * chance
    assert (binom.sf(counts - 1, trials, chance)[above] <= bound[above] * (1 + 1e-9)).all()
    assert (binom.cdf(counts, trials, chance)[~above] <= bound[~above] * (1 + 1e-9)).all()


def test_what_cannot_be_deviates_without_limit_and_what_must_be_not_at_all() -> None:
    assert deviation([0, 5, 6, 4, 1], 5, [0.0, 1.0, 1.0, 1.0, 0.0]).tolist() == [0, 0, np.inf, np.inf, np.inf]
