"""The law of the others' ones against the same in rational numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.oracles.one_bit import call, ones_law
from tests.slow_params import slow_among

from shufflesum.privacy.one_bit import cells_of, law, worst_calls

AMPLITUDES = [Fraction(1, 1024), Fraction(1, 8), Fraction(1, 2), Fraction(15, 16), Fraction(1023, 1024)]


def others(high: int, low: int, amplitude: Fraction) -> list[Fraction]:
    return ones_law([(1 + amplitude) / 2] * high + [(1 - amplitude) / 2] * low)


@given(st.integers(0, 25), st.integers(0, 25), st.sampled_from(AMPLITUDES))
def test_the_law_and_its_ratios_err_by_no_more_than_they_say(high: int, low: int, amplitude: Fraction) -> None:
    exact = others(high, low, amplitude)
    terms, z, below, above, widening, error = law(high, low, float(amplitude))
    assert len(terms) == len(exact)
    assert below == above == 0.0
    for computed, truth in zip(terms, exact, strict=True):
        assert abs(Fraction(float(computed)) / truth - 1) <= Fraction(float(widening))
    for i, steepness in enumerate(z):
        truth = (exact[i] - exact[i + 1]) / (exact[i] + exact[i + 1])
        assert abs(Fraction(float(steepness)) - truth) <= Fraction(float(error)) + Fraction(1, 2**50)
    assert widening < 1e-9
    assert list(z) == sorted(z)


@pytest.mark.parametrize(
    ("high", "low", "amplitude"),
    [(500, 499, 0.3), (0, 999, 0.3), (100, 9000, 0.8), (5000, 5000, 0.05), (0, 99_999, 0.81), (0, 3000, 0.98)],
)
def test_a_window_of_a_long_law_is_the_convolution(high: int, low: int, amplitude: float) -> None:
    p = (1 + amplitude) / 2
    whole = np.convolve(binom.pmf(np.arange(high + 1), high, p), binom.pmf(np.arange(low + 1), low, 1 - p))
    terms, _, below, above, widening, error = law(high, low, amplitude)
    assert widening < 1e-9
    assert error < 1e-11
    first = round(float(np.dot(np.arange(len(whole)), whole) - np.dot(np.arange(len(terms)), terms)))
    reference = whole[first : first + len(terms)]
    seen = reference > 1e-20
    np.testing.assert_allclose(terms[seen], reference[seen], rtol=1e-9)
    assert below < 1e-28
    assert above < 1e-28


@pytest.mark.parametrize("users", [1, 2, 3, 12, 801, 5000])
def test_every_position_of_the_others_has_a_cell_with_no_more_users(users: int) -> None:
    cells = list(cells_of(users, 0.3, 16))
    for high in range((users - 1) // 2 + 1):
        assert any(h <= high and m <= users - 1 - high for h, m in cells)
    if users < 30:
        assert all(h + m == users - 1 for h, m in cells)  # nobody is left out


@pytest.mark.long
@pytest.mark.parametrize("users", slow_among([1, 2, 5, 12], [12]))
@pytest.mark.parametrize("amplitude", AMPLITUDES[1:4])
def test_the_worst_call_is_that_of_the_worst_position(users: int, amplitude: Fraction) -> None:
    grid = [Fraction(i, 64) for i in range(65)]
    computed = worst_calls(users, float(amplitude), np.array([float(x) for x in grid]))
    for x, bound in zip(grid, computed, strict=True):
        truth = max(call(others(h, users - 1 - h, amplitude), x, sign) for h in range(users) for sign in (-1, 1))
        assert truth <= Fraction(float(bound)) <= truth * Fraction(1 + 1e-9) + Fraction(1, 10**12)


def test_cells_leave_out_few_users_and_never_lower_a_call() -> None:
    users, amplitude = 3001, 0.4
    grid = np.linspace(0.0, 0.15, 200)
    computed = worst_calls(users, amplitude, grid)
    truth = np.zeros(grid.size)
    for high in range(0, users, 50):
        p = (1 + amplitude) / 2
        low = users - 1 - high
        ones = np.convolve(binom.pmf(np.arange(high + 1), high, p), binom.pmf(np.arange(low + 1), low, 1 - p))
        padded = np.pad(ones, 1)
        gap, mass = padded[:-1] - padded[1:], padded[:-1] + padded[1:]
        np.maximum(truth, [np.maximum(gap - x * mass, 0.0).sum() / 2 for x in grid], out=truth)
    assert np.all(computed >= truth * (1 - 1e-12))
    assert np.all(computed[truth > 1e-9] <= 1.03 * truth[truth > 1e-9])


def test_all_at_one_end_is_not_the_worst_position_everywhere() -> None:
    """At w = 1 the others are worst half and half, in the tail at one end: no single position may be charged."""
    users, amplitude = 101, Fraction(1, 2)
    end, half = others(0, users - 1, amplitude), others(50, 50, amplitude)
    assert max(call(end, Fraction(0), sign) for sign in (-1, 1)) < call(half, Fraction(0), 1)
    far = Fraction(5, 10)
    assert max(call(end, far, sign) for sign in (-1, 1)) > call(half, far, 1)


def test_a_law_of_ten_billion_users_is_enclosed() -> None:
    terms, z, _, _, widening, error = law(4 * 10**9, 6 * 10**9, 0.25)
    assert widening < 1e-3
    assert error < 1e-10
    mass = (terms[1:] + terms[:-1]) / 2
    assert math.sqrt(float(np.dot(mass, z**2))) == pytest.approx(1 / math.sqrt(1e10 * (1 - 0.25**2)), rel=1e-4)
