"""The coin: exactly rational chances from secure bits, and twins with a wrong chance, which must be caught."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2
from tests.plan_builders import encoding_for
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.domains import L2Ball
from shufflesum.mechanisms import OneBit
from shufflesum.mechanisms.one_bit.randomize import chances_of, toss
from shufflesum.randomness import SecureSource
from shufflesum.testing import SeededSource

ONE, FULL = 1 << 15, 1 << 31


class Scripted:
    """Gives these words, 16-bit coins first and 64-bit ones for ties; complains when they do not suffice."""

    def __init__(self, coins: Any, spare: list[int]) -> None:
        self._coins, self._spare = np.asarray(coins, dtype=np.uint16), list(spare)

    def fill(self, out: NDArray[Any]) -> None:
        if out.dtype == np.uint16:
            out[...] = self._coins.reshape(out.shape)
        else:
            out[...] = [self._spare.pop(0) for _ in range(out.size)]


def chance(level: int, amplitude: int) -> Fraction:
    """(1 + a y)/2 with a = A/2^31 and y = Y/2^15."""
    return (1 + Fraction(amplitude, FULL) * Fraction(level, ONE)) / 2


@given(
    level=st.integers(-ONE, ONE) | st.sampled_from([-ONE, -1, 0, 1, ONE]),
    amplitude=st.integers(1, FULL) | st.sampled_from([1, 65535, 65536, FULL - 1, FULL]),
)
def test_of_all_words_exactly_as_many_give_a_one_as_the_chance_says(level: int, amplitude: int) -> None:
    """All 2^16 coins: those above and below decide by themselves; one at most is a tie, which 31 more bits decide."""
    coins = np.arange(1 << 16)
    exact = chance(level, amplitude) * 2**47
    assert exact.denominator == 1
    digit, rest = divmod(int(exact), 1 << 31)
    levels = np.full((1, 1 << 16), level, dtype=np.int32)
    ones = {}
    for word in {0, max(0, rest - 1), min(rest, (1 << 31) - 1), (1 << 31) - 1}:
        bits = toss(Scripted(coins, [(word << 33) | 12345] * 1), levels, amplitude)
        ones[word] = int(bits.sum())
        np.testing.assert_array_equal(bits[0], (coins << 31) + np.where(coins == digit, word, 0) < int(exact))
    assert all(count == digit + (word < rest) for word, count in ones.items() if digit < 1 << 16)


@given(st.integers(1, FULL), st.integers(-ONE, ONE))
def test_chances_are_told_exactly(amplitude: int, level: int) -> None:
    assert Fraction(float(chances_of(np.array([level]), amplitude)[0])) == chance(level, amplitude)


def test_a_source_that_is_stuck_at_a_tie_does_not_hang() -> None:
    levels = np.zeros((3, 1000), dtype=np.int32)
    bits = toss(Scripted(np.full((3, 1000), 32768), [0] * 3000), levels, FULL // 3)
    assert bits.sum() == 0  # the chance is 1/2, all of its further bits are 0


LEVELS = np.array([-ONE, -20_000, -3, 0, 1, 9_000, ONE], dtype=np.int32)


def counted(source: Any, amplitude: int, tosses: int) -> NDArray[np.int64]:
    """Ones at each of the levels."""
    return np.asarray(toss(source, np.tile(LEVELS, (tosses, 1)), amplitude).sum(axis=0, dtype=np.int64))


def p_value(ones: NDArray[np.int64], tosses: int, amplitude: int) -> float:
    """Pearson's test of all levels together."""
    chances = np.array([float(chance(int(level), amplitude)) for level in LEVELS])
    scores = (ones - tosses * chances) ** 2 / (tosses * chances * (1 - chances))
    return float(chi2.sf(scores.sum(), len(LEVELS)))


AMPLITUDE, TOSSES = int(0.3 * FULL), 400_000


@pytest.mark.parametrize("source", [SecureSource(), SeededSource(1)], ids=["secure", "seeded"])
def test_ones_come_as_often_as_they_should(source: Any) -> None:
    assert p_value(counted(source, AMPLITUDE, TOSSES), TOSSES, AMPLITUDE) > FALSE_ALARM


@pytest.mark.parametrize("wrong", [0.97, 1.03, 0.0, 1.0 / 0.3], ids=["less", "more", "fair", "no noise"])
def test_a_coin_of_another_amplitude_is_caught(wrong: float) -> None:
    twin = max(1, min(FULL - 1, int(AMPLITUDE * wrong)))
    assert p_value(counted(SeededSource(1), AMPLITUDE, TOSSES), TOSSES, twin) < FALSE_ALARM


def test_a_coin_that_rounds_to_the_nearest_bit_is_caught() -> None:
    nearest = np.where(LEVELS > 0, TOSSES, 0)
    assert p_value(nearest, TOSSES, AMPLITUDE) < FALSE_ALARM


def pairs(bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often 00, 01, 10 and 11 came in two bits that belong together."""
    first, second = bits.reshape(-1, 2).astype(np.int64).T
    return np.bincount(2 * first + second, minlength=4)


def law_of_pairs(level: int, amplitude: int) -> NDArray[np.float64]:
    one = float(chance(level, amplitude))
    return np.array([(1 - one) ** 2, (1 - one) * one, one * (1 - one), one * one])


@pytest.mark.usefixtures("both_kernels")
@pytest.mark.parametrize("between", ["bits", "users", "coordinates"])
def test_no_two_bits_share_a_coin(between: str) -> None:
    """Between users, between coordinates of a user, between bits of a coordinate; a shared coin is caught."""
    level, mechanism = 12_000, OneBit(2, AMPLITUDE / FULL, 2.0)
    ball = L2Ball(2, clipping_norm=1.0, seed=bytes(16))
    signed = int(ball.signs()[0]) * level / ONE * mechanism.tau  # both coordinates get this level
    rows = np.tile([signed, 0.0], (100_000, 1))
    encoder = mechanism.encoder(encoding_for(ball, OneBit), SeededSource(2))
    bits = (encoder.encode(ball.block(rows)) % 2).astype(np.uint8).reshape(-1, 2, 2)  # user, bit, coordinate
    found = {"bits": bits[:, :, 0], "users": bits[:, 0, 0], "coordinates": bits[:, 0, :]}[between]
    law = law_of_pairs(level, mechanism.numerator)
    assert chi_square(pairs(found), law) > FALSE_ALARM
    shared = np.repeat(found.reshape(-1)[::2], 2)
    assert chi_square(pairs(shared), law) < FALSE_ALARM
