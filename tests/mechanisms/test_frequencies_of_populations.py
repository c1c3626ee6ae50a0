"""Frequencies in a population are held as often as said, by few users too: all outcomes are enumerated."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from shufflesum.mechanisms.frequencies import BinomialNoise, Frequencies

FREQUENCIES = (0.0, 0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 0.97, 1.0)
LEVELS = (0.5, 0.8, 0.95, 0.999)


def least_coverage(users: int, noise: int, cells: int, level: float, asked: float) -> float:
    """Over frequencies: so many users drawn, and so many dummy reports in as many cells."""
    counts = np.arange(users + noise + 1)
    found = Frequencies(counts, users, BinomialNoise(noise, 1 / cells, in_all=True), one_each=True)
    lower, upper = found.interval((1 - asked) / 2, "population")
    noisy, least = binom.pmf(np.arange(noise + 1), noise, 1 / cells), 1.0
    for frequency in FREQUENCIES:
        law = np.convolve(binom.pmf(np.arange(users + 1), users, frequency), noisy)
        least = min(least, float(law[(lower <= frequency) & (frequency <= upper)].sum()) - level)
    return least


@pytest.mark.parametrize(("users", "noise", "cells"), list(product((5, 20, 400), (0, 5, 40, 200), (2, 10))))
def test_frequencies_in_a_population_are_held_as_often_as_said(users: int, noise: int, cells: int) -> None:
    assert all(least_coverage(users, noise, cells, level, level) >= -1e-12 for level in LEVELS)


def test_intervals_of_a_lower_level_would_be_found_out() -> None:
    assert least_coverage(400, 40, 10, 0.8, 0.77) < 0


def test_an_interval_for_the_population_holds_that_for_the_users() -> None:
    found = Frequencies(np.arange(60), 50, BinomialNoise(40, 0.25, in_all=True), one_each=True)
    (low, high), (lower, upper) = (found.interval(0.025, target) for target in ("users", "population"))
    assert np.all((lower <= low) & (high <= upper))
