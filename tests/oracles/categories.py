"""Randomized response over very many values, enumerated by lumping the values that nobody holds.

Nothing here is shared with the package. Each of n users sends its value, or with probability gamma a uniform one of K.
All data sets are gone through up to renaming values: the others hold the victim's value, the one it is compared with,
or further ones. Values that nobody holds look alike in both worlds, so only the number of reports among them counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["worst_categories_delta"]

Table = tuple[int, ...]
Ways = dict[Table, int]


def worst_categories_delta(*, users: int, values: int, gamma: Fraction, weights: Sequence[Fraction]) -> list[Fraction]:
    """Exact delta at each weight: the largest divergence over all data sets and neighbours, in both orders."""
    named = min(values, users + 1)  # the victim's two values, and one for each other user
    worst = [Fraction(0)] * len(weights)
    for others in itertools.combinations_with_replacement(range(named), users - 1):
        crowd: Ways = {(0,) * (named + 1): 1}
        for value in others:
            crowd = _reported(crowd, value, named, values, gamma)
        laws = [_reported(crowd, value, named, values, gamma) for value in (0, 1)]
        for first, second in itertools.permutations(laws):
            worst = [max(pair) for pair in zip(worst, _divergence(first, second, weights), strict=True)]
    return worst


def _reported(law: Ways, value: int, named: int, values: int, gamma: Fraction) -> Ways:
    """The table with one more report, in parts of values x gamma's denominator; the last cell is all unnamed values."""
    noise, truth = gamma.numerator, (gamma.denominator - gamma.numerator) * values
    parts = [noise] * named + [noise * (values - named)]
    parts[value] += truth
    more: Ways = {}
    for table, ways in law.items():
        for cell, part in enumerate(parts):
            place = (*table[:cell], table[cell] + 1, *table[cell + 1 :])
            more[place] = more.get(place, 0) + ways * part
    return more


def _divergence(first: Ways, second: Ways, weights: Sequence[Fraction]) -> list[Fraction]:
    total = sum(first.values())
    return [
        Fraction(
            sum(max(0, weight.denominator * ways - weight.numerator * second[table]) for table, ways in first.items()),
            weight.denominator * total,
        )
        for weight in weights
    ]
