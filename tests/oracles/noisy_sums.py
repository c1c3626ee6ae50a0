"""Noisy sums by full enumeration, in fractions: slow, obvious, exact, for tiny tables.

Nothing here is shared with the package. The noise of a coordinate is U + step (N1 + stride N2): U uniform below `step`,
N1 and N2 from tables of whole weights over 0, 1, .... A user moves the sum of each coordinate by some whole number;
`weight` stands for e^epsilon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

__all__ = ["Law", "delta", "discrete_gaussian", "distance", "moves_within", "noise", "rounded"]

Law = Mapping[int, Fraction]


def noise(tables: Sequence[Sequence[int]], *, step: int = 1, stride: int = 1) -> Law:
    """The distribution of the noise of one coordinate."""
    found: dict[int, Fraction] = {}
    scales = [step * stride**number for number in range(len(tables))]
    for low in range(step):
        for draws in itertools.product(*(range(len(table)) for table in tables)):
            weight = Fraction(1, step)
            for draw, table in zip(draws, tables, strict=True):
                weight *= Fraction(table[draw], sum(table))
            place = low + sum(scale * draw for scale, draw in zip(scales, draws, strict=True))
            found[place] = found.get(place, Fraction(0)) + weight
    return found


def delta(law: Law, moves: Sequence[int], weight: Fraction) -> Fraction:
    """The hockey-stick divergence of coordinates that are moved by so much each against those that are not."""
    total = Fraction(0)
    for outcome in itertools.product(*({*law, *(place + move for place in law)} for move in moves)):
        moved = math.prod((law.get(seen - move, Fraction(0)) for seen, move in zip(outcome, moves, strict=True)))
        if moved:
            still = math.prod(law.get(seen, Fraction(0)) for seen in outcome)
            total += max(Fraction(0), moved - weight * still)
    return total


def moves_within(squared: int, coordinates: int) -> Iterator[tuple[int, ...]]:
    """All integer vectors of at most this squared norm."""
    most = math.isqrt(squared)
    for moves in itertools.product(range(-most, most + 1), repeat=coordinates):
        if sum(move * move for move in moves) <= squared:
            yield moves


def rounded(half: Sequence[Fraction], bits: int) -> list[int]:
    """Probabilities at distances 0, 1, ... as whole weights, 2**bits in all, rounded down; the middle has the rest."""
    weights = [math.floor(probability * 2**bits) for probability in half[1:]]
    return [*reversed(weights), 2**bits - 2 * sum(weights), *weights]


def distance(table: Sequence[int], half: Sequence[Fraction]) -> Fraction:
    """The total variation between a table of weights and the probabilities it was made from."""
    true = [*reversed(half[1:]), *half]
    return sum((abs(Fraction(w, sum(table)) - p) for w, p in zip(table, true, strict=True)), Fraction(0)) / 2


def discrete_gaussian(variance: float, reach: int) -> dict[int, float]:
    """The discrete Gaussian on all integers, of which those up to `reach` from 0 are listed."""
    density = {x: math.exp(-(x**2) / (2 * variance)) for x in range(-4 * reach, 4 * reach + 1)}
    total = math.fsum(density.values())
    return {x: density[x] / total for x in range(-reach, reach + 1)}
