"""Binomial draws against their law; every test has a wrong twin that it must refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum import randomness as module
from shufflesum.randomness import PROBABILITY_BITS, binomials, ones_of
from shufflesum.testing import SeededSource

DRAWS = 40_000


class Scripted:
    """A source that hands out these words, and notes when more are asked for."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def fill(self, out: NDArray[Any]) -> None:
        out[:] = 0
        given, self.words = self.words[: len(out)], self.words[len(out) :]
        out[: len(given)] = given


def grouped(draws: NDArray[np.int64], trials: int, probability: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Counts and chances of values, neighbours in the tails taken together so that each is expected 20 times."""
    chances = binom.pmf(np.arange(trials + 1), trials, probability)
    edges, total = [0], 0.0
    for value, chance in enumerate(chances):
        total += chance
        if total * len(draws) >= 20:
            edges.append(value + 1)
            total = 0.0
    edges[-1] = trials + 1
    cut = [slice(*pair) for pair in itertools.pairwise(edges)]
    counts = np.bincount(draws, minlength=trials + 1)
    law = np.array([chances[part].sum() for part in cut])
    return np.array([counts[part].sum() for part in cut]), law / law.sum()


@pytest.mark.parametrize(
    ("trials", "probability"),
    [(1, 0.25), (3, 5 / 8), (63, 1 / 24), (64, 0.5), (65, 1 / 3), (1000, 0.0123), (200, 1 - 2.0**-7), (5000, 0.7)],
)
def test_draws_follow_their_law_and_no_other(trials: int, probability: float) -> None:
    """Chi-square at false alarm 1e-6; one trial less, or a chance 10 % of a deviation away, is refused."""
    probability = round(probability * 2**PROBABILITY_BITS) / 2**PROBABILITY_BITS
    draws = binomials(SeededSource(trials), trials, probability, DRAWS)
    assert chi_square(*grouped(draws, trials, probability)) > FALSE_ALARM
    away = 0.1 * np.sqrt(probability * (1 - probability) / trials)
    wrong = probability + (away if probability < 0.5 else -away)
    assert chi_square(*grouped(draws, trials, wrong)) < FALSE_ALARM


def test_neighbouring_draws_are_independent() -> None:
    """Joint counts of consecutive draws; the twin repeats every draw."""
    chances = binom.pmf(range(4), 3, 0.5)
    draws = binomials(SeededSource(1), 3, 0.5, DRAWS)
    for second, independent in ((draws[1::2], True), (draws[::2], False)):
        joint = np.bincount(4 * draws[::2] + second, minlength=16)
        assert (chi_square(joint, np.outer(chances, chances)) > FALSE_ALARM) == independent


@pytest.mark.parametrize("numerator", range(8))
def test_one_trial_succeeds_for_exactly_as_many_patterns_of_bits_as_its_probability_says(numerator: int) -> None:
    successes = sum(
        int(binomials(Scripted([*bits, 0, 0, 0]), 1, numerator / 8, 1)[0])
        for bits in itertools.product((0, 1), repeat=3)
    )
    assert successes == numerator


def test_the_last_bit_of_a_probability_counts() -> None:
    for last, expected in ((0, 1), (1, 0)):  # below 2^-53 is only the number whose bits are all 0
        bits = [0] * (PROBABILITY_BITS - 1) + [last]
        assert binomials(Scripted(bits), 1, 2.0**-PROBABILITY_BITS, 1) == [expected]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_drawing_words_in_small_pieces_gives_the_same_draws(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    expected = binomials(SeededSource(3), 200, 0.3, 50)
    monkeypatch.setattr(module, "_MOST_BINOMIAL_WORDS", most)
    np.testing.assert_array_equal(binomials(SeededSource(3), 200, 0.3, 50), expected)


def test_no_chance_gives_nothing_and_draws_nothing() -> None:
    assert not binomials(Scripted([]), 5, 0.0, 3).any()


def test_ones_are_counted() -> None:
    words = [0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF]
    assert [int(ones_of(np.uint64(word))) for word in words] == [word.bit_count() for word in words]
