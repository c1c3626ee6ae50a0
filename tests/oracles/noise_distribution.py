"""Noise tables by full enumeration, in fractions: slow, obvious, exact, for tiny tables.

Nothing here is shared with the package. A table of whole weights over 0..m is drawn once for each cell; a user changes
some cells by one, up or down. All outcomes are gone through; `weight` stands for e^epsilon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

__all__ = ["Many", "bell", "delta", "directions", "exponential"]


def delta(tables: Sequence[Sequence[int]], moves: Sequence[int], weight: Fraction) -> Fraction:
    """The hockey-stick divergence of tables whose cells are moved by so much each against those that are not."""
    total = Fraction(0)
    for outcome in itertools.product(*(range(-1, len(table) + 1) for table in tables)):
        moved = still = 1
        for count, table, move in zip(outcome, tables, moves, strict=True):
            moved *= _at(table, count - move)
            still *= _at(table, count)
        total += max(Fraction(0), moved - weight * still)
    return total / math.prod(sum(table) for table in tables)


class Many:
    """So many cells of each table, all moved up by one: outcomes of the same likelihood ratio are put together.

    That ratio is a product of weights, so that outcomes are known by how often each weight is a factor of it.
    """

    def __init__(self, *classes: tuple[Sequence[int], int]) -> None:
        weights = sorted({weight for table, _ in classes for weight in table})
        moved = {(0,) * len(weights): 1}  # times the totals of all tables
        self._total = 1
        for table, cells in classes:
            steps = list(itertools.pairwise(weights.index(weight) for weight in table))
            for _ in range(cells):
                self._total *= sum(table)
                further: dict[tuple[int, ...], int] = {}
                for factors, mass in moved.items():
                    for up, down in steps:
                        powers = list(factors)
                        powers[up] += 1
                        powers[down] -= 1
                        key = tuple(powers)
                        further[key] = further.get(key, 0) + mass * weights[up]
                moved = further
        self._finite = [(self._ratio(weights, factors), mass) for factors, mass in moved.items()]
        self._infinite = self._total - sum(moved.values())

    @staticmethod
    def _ratio(weights: Sequence[int], factors: Sequence[int]) -> Fraction:
        over = math.prod(weight**power for weight, power in zip(weights, factors, strict=True) if power > 0)
        under = math.prod(weight**-power for weight, power in zip(weights, factors, strict=True) if power < 0)
        return Fraction(over, under)

    @property
    def losses(self) -> list[float]:
        """All finite losses above 0, rounded."""
        return sorted(math.log(r.numerator) - math.log(r.denominator) for r, _ in self._finite if r > 1)

    def delta(self, weight: Fraction) -> Fraction:
        """The hockey-stick divergence of all cells together."""
        finite = sum((mass * (1 - weight / ratio) for ratio, mass in self._finite if ratio > weight), Fraction(0))
        return (self._infinite + finite) / self._total


def _at(table: Sequence[int], count: int) -> int:
    return table[count] if 0 <= count < len(table) else 0


def directions(cells: int) -> Iterator[tuple[int, ...]]:
    """All ways in which so many cells move by one."""
    return itertools.product((1, -1), repeat=cells)


def exponential(x: Fraction, bits: int = 220) -> Fraction:
    """e^-x up to 2^-200: Taylor's series of e^(x/2^k), whose reciprocal is squared k times."""
    halvings = max(0, math.ceil(x).bit_length()) + 8
    term = total = Fraction(1)
    small = x / 2**halvings
    for n in range(1, 60):
        term = _rounded(term * small / n, bits)
        total += term
    power = 1 / total
    for _ in range(halvings):
        power = _rounded(power * power, bits)
    return power


def bell(shape: Fraction, scale: Fraction, half_length: int) -> list[Fraction]:
    """The probabilities of distances 0..half_length from the middle, for a shape that is a multiple of 1/2."""
    densities = []
    for distance in range(half_length + 1):
        twice = (distance / scale) ** int(2 * shape)  # of the exponent's square root
        densities.append(exponential(Fraction(math.isqrt(int(twice * 2**400)), 2**200)))
    total = 2 * sum(densities) - 1
    return [density / total for density in densities]


def _rounded(x: Fraction, bits: int) -> Fraction:
    return Fraction(round(x * 2**bits), 2**bits)
