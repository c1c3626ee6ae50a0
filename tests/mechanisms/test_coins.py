"""Chances of counts are exact: against laws of SciPy, convolved in full."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from shufflesum.mechanisms.frequencies import Coins, ends_of, held_ends, unlikely

PAIRS: list[tuple[Coins, Coins]] = [
    ((30, 0.2), (12, 0.5)),
    ((400, 0.01), (0, 0.0)),
    ((7, 1.0), (300, 0.03)),
    ((5, 0.0), (9, 1.0)),
    ((1000, 0.9), (2000, 0.999)),
]


def law(one: Coins, other: Coins) -> np.ndarray:
    return np.convolve(*(binom.pmf(np.arange(n + 1), n, p) for n, p in (one, other)))


@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("tail", [0.3, 0.05, 1e-6])
def test_counts_are_unlikely_where_their_tail_is_small(one: Coins, other: Coins, tail: float) -> None:
    chances = law(one, other)
    few, many = np.cumsum(chances), np.cumsum(chances[::-1])[::-1]
    for heads in range(len(chances)):
        said = unlikely(one, other, heads, tail)
        assert said == unlikely(other, one, heads, tail)
        # a thousandth of the tail is left for what a window leaves out, always against us
        for found, exact in zip(said, (few[heads], many[heads]), strict=True):
            assert found or exact > 0.998 * tail - 1e-13
            assert not found or exact <= tail + 1e-13


def test_what_cannot_be_is_unlikely_and_what_must_be_is_not() -> None:
    assert unlikely((7, 1.0), (10, 0.5), 6, 0.01) == (True, False)
    assert unlikely((7, 1.0), (10, 0.5), 18, 0.01) == (False, True)
    assert unlikely((7, 1.0), (0, 0.0), 7, 0.4) == (False, False)


@pytest.mark.parametrize(("trials", "p"), [(50, 0.3), (1000, 0.001), (0, 0.5), (20, 0.0)])
def test_ends_of_one_binomial_are_its_quantiles(trials: int, p: float) -> None:
    low, high = ends_of((trials, p), 0.05)
    assert low == binom.ppf(0.05, trials, p) or binom.cdf(low, trials, p) == pytest.approx(0.05)
    assert high == binom.isf(0.05, trials, p)


def test_holders_are_all_that_would_not_surprise() -> None:
    """A tenth of the reports replaced by fair coins, 40 users: every number is tried."""

    def coins(held: int) -> tuple[Coins, Coins]:
        return (held, 0.95), (40 - held, 0.05)

    for heads in range(41):
        possible = [held for held in range(41) if not any(unlikely(*coins(held), heads, 0.1))]
        assert held_ends(coins, 40, heads, 0.1) == (min(possible), max(possible))


def test_rounding_counts_against_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its real size nobody would notice: a tenth, of both laws."""
    one, other = PAIRS[0]
    few = np.cumsum(law(one, other))
    monkeypatch.setattr("shufflesum.mechanisms.frequencies.slack", lambda _: 0.1)
    for heads, exact in enumerate(few):
        found, _ = unlikely(one, other, heads, exact * 1.22)
        assert found or exact > 0.9
        assert not unlikely(one, other, heads, exact * 1.2)[0]
    assert ends_of((50, 0.3), 0.05)[0] <= binom.ppf(0.05 / 1.1, 50, 0.3)
