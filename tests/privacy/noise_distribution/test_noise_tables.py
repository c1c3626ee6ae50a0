"""The tables of integer weights: what they are, the same on every machine, drawn exactly."""

from __future__ import annotations

import _pydecimal
import hashlib
from fractions import Fraction

import numpy as np
import pytest
from tests.oracles import noise_distribution as oracle
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum.errors import ParameterError
from shufflesum.privacy import NoiseDistribution
from shufflesum.privacy.noise_distribution import MAX_HALF_LENGTH, _half_weights
from shufflesum.randomness import UInts, table_draws
from shufflesum.testing import SeededSource

TABLES = [
    NoiseDistribution(1, 1, 1),
    NoiseDistribution(1.0, 2.0, 29),
    NoiseDistribution(1.5, 14.460207941291117, 106),
    NoiseDistribution(2.0, 0.3, 2),
    NoiseDistribution(2.0, 30.0, 140),
]
SHORT = NoiseDistribution(1.0, 4.0, 6)  # its ends are drawn often


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_weights_are_symmetric_fall_from_the_middle_and_add_up_to_2_to_the_128(table: NoiseDistribution) -> None:
    weights = table.weights
    assert len(weights) == 2 * table.half_length + 1
    assert weights == weights[::-1]
    assert sum(weights) == 2**128
    assert list(table.half_weights) == sorted(table.half_weights, reverse=True)
    assert min(weights) >= 1


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_weights_are_those_of_the_formula(table: NoiseDistribution) -> None:
    expected = oracle.bell(Fraction(table.shape), Fraction(table.scale), table.half_length)
    middle, *others = (weight - 2**128 * p for weight, p in zip(table.half_weights, expected, strict=True))
    assert all(-1 - Fraction(1, 1000) < off < Fraction(1, 1000) for off in others)  # rounded down
    assert -1 < middle < 2 * table.half_length + 1  # what the others lost


@pytest.mark.parametrize("table", [*TABLES, NoiseDistribution(1.475, 60.0, 300)], ids=str)
def test_another_implementation_of_decimal_arithmetic_gives_the_same_weights(table: NoiseDistribution) -> None:
    # Python's own, without the C library, and the formula as it stands: a plan file means the same everywhere
    number, context = _pydecimal.Decimal, _pydecimal.Context(prec=60, rounding=_pydecimal.ROUND_HALF_EVEN)
    densities = []
    for distance in range(1, table.half_length + 1):
        exponent = context.divide(number(distance), number(table.scale))
        if table.shape != 1:
            exponent = context.exp(context.multiply(number(table.shape), context.ln(exponent)))
        densities.append(context.exp(context.minus(exponent)))
    total = number(0)
    for density in reversed(densities):
        total = context.add(total, density)
    unit = context.divide(number(2**128), context.add(context.multiply(number(2), total), number(1)))
    assert table.half_weights[1:] == tuple(int(context.multiply(unit, density)) for density in densities)


def test_weights_stay_what_they_were() -> None:
    text = ",".join(str(weight) for table in TABLES for weight in table.weights)
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "8649930684e0f2ec18d2d686d4cd3f83a404259b2554244f4b53cbbf1088e7fc"
    )


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_the_variance_is_exact(table: NoiseDistribution) -> None:
    mean = Fraction(sum(k * weight for k, weight in enumerate(table.weights)), 2**128)
    assert mean == table.half_length
    second = Fraction(sum(k * k * weight for k, weight in enumerate(table.weights)), 2**128)
    assert table.exact_variance == second - mean**2
    assert table.variance == float(second - mean**2)


@pytest.mark.parametrize(
    ("shape", "scale", "half_length", "problem"),
    [
        (0.99, 1.0, 3, "out-of-range"),
        (2.01, 1.0, 3, "out-of-range"),
        (float("nan"), 1.0, 3, "out-of-range"),
        (1.0, 0.0, 3, "out-of-range"),
        (1.0, float("inf"), 3, "out-of-range"),
        (1.0, float("nan"), 3, "out-of-range"),
        (1.0, 10**400, 3, "out-of-range"),
        (1.0, np.longdouble("1e4000"), 3, "out-of-range"),  # as a double it would be infinite
        (1.0, 1.0, 0, "out-of-range"),
        (1.0, 1.0, MAX_HALF_LENGTH + 1, "out-of-range"),
        (1.0, 1.0, 89, "out-of-range"),  # e^-89 is below 2^-128
        (1.0, 1e-300, 1, "out-of-range"),
        (2.0, 1e-300, 1, "out-of-range"),
        ("1", 1.0, 3, "wrong-type"),
        (1.0, True, 3, "wrong-type"),
        (1.0, 1.0, 3.0, "wrong-type"),
    ],
)
def test_what_is_no_table_is_refused(shape: float, scale: float, half_length: int, problem: str) -> None:
    with refusal(problem, error=ParameterError):
        NoiseDistribution(shape, scale, half_length)


def test_a_table_ends_before_its_weights_are_0() -> None:
    lasts = {length: _half_weights(1.0, 4.0, length)[-1] for length in range(340, 360)}
    assert {0, 1, 2} <= set(lasts.values())
    for length, last in lasts.items():
        if last:
            assert NoiseDistribution(1.0, 4.0, length).weights[0] == last
        else:
            with refusal("out-of-range", error=ParameterError):
                NoiseDistribution(1.0, 4.0, length)


class Given:
    """Bits that a test chooses: the upper halves of all numbers, then the lower ones."""

    def __init__(self, numbers: list[int]) -> None:
        self._words = [number >> 64 for number in numbers] + [number % 2**64 for number in numbers]

    def fill(self, out: UInts) -> None:
        out[:] = self._words


@pytest.mark.parametrize("table", [*TABLES, SHORT], ids=str)
def test_every_outcome_has_exactly_as_many_numbers_as_its_weight(table: NoiseDistribution) -> None:
    ends = [sum(table.weights[:k]) for k in range(2 * table.half_length + 2)]
    firsts, lasts = ends[:-1], [end - 1 for end in ends[1:]]
    drawn = table_draws(Given(firsts + lasts), table.thresholds, len(firsts + lasts))
    outcomes = list(range(2 * table.half_length + 1))
    assert drawn.tolist() == outcomes + outcomes  # and what lies between, because the outcome rises with the number


def test_nobody_can_change_the_thresholds_that_all_draws_share() -> None:
    for half in SHORT.thresholds:
        with pytest.raises(ValueError, match="WRITEABLE"):
            half.flags.writeable = True


def test_thresholds_with_the_same_upper_half_are_told_apart() -> None:
    upper, lower = np.array([5, 5, 5, 9], dtype=np.uint64), np.array([1, 3, 2**64 - 1, 0], dtype=np.uint64)
    numbers = [0, 5 << 64, (5 << 64) + 1, (5 << 64) + 2, (5 << 64) + 3, (6 << 64) - 1, 6 << 64, 9 << 64, 2**128 - 1]
    assert table_draws(Given(numbers), (upper, lower), len(numbers)).tolist() == [0, 0, 1, 1, 2, 3, 3, 4, 4]


def test_many_draws_are_drawn_piece_by_piece() -> None:
    assert table_draws(SeededSource(1), SHORT.thresholds, 0).size == 0
    drawn = table_draws(SeededSource(1), SHORT.thresholds, 200_001)
    assert drawn.dtype == np.int64
    assert len(set(drawn[:1000].tolist()) ^ set(drawn[-1000:].tolist())) == 0


def _observed(drawn: NoiseDistribution, outcomes: int) -> np.ndarray:
    return np.bincount(table_draws(SeededSource(7), drawn.thresholds, 400_000), minlength=outcomes)


@pytest.mark.parametrize("table", [SHORT, NoiseDistribution(1.5, 3.0, 7), NoiseDistribution(2.0, 5.0, 9)], ids=str)
def test_draws_follow_the_table(table: NoiseDistribution) -> None:
    chances = np.array(table.weights) / 2**128
    assert chi_square(_observed(table, chances.size), chances.astype(float)) > FALSE_ALARM


@pytest.mark.parametrize(
    "wrong",
    [
        NoiseDistribution(1.0, 4.0, 7),  # longer than the certified one
        NoiseDistribution(1.0, 4.3, 6),
        NoiseDistribution(1.05, 4.0, 6),
    ],
    ids=str,
)
def test_draws_of_another_table_are_noticed(wrong: NoiseDistribution) -> None:
    longer = wrong.half_length - SHORT.half_length
    chances = np.array([0] * longer + list(SHORT.weights) + [0] * longer) / 2**128
    assert chi_square(_observed(wrong, chances.size), chances.astype(float)) < FALSE_ALARM


def test_draws_of_a_longer_table_that_are_clipped_to_the_certified_one_are_noticed() -> None:
    longer = NoiseDistribution(1.0, 4.0, 9)
    clipped = np.clip(table_draws(SeededSource(7), longer.thresholds, 400_000) - 3, 0, 12)
    chances = np.array(SHORT.weights) / 2**128
    assert chi_square(np.bincount(clipped, minlength=13), chances.astype(float)) < FALSE_ALARM
