"""Tables to which a user adds only some rows: at most so many labels, or an array in the cells of one group.

Noise and divergences are those of tests/oracles/noisy_counts.py; here are the rows, listed one by one. Nothing is
shared with the package.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from tests.oracles.noisy_counts import Table, independent_noise, rows, worst_over_rows

__all__ = ["choice_rows", "group_rows", "worst_choices_delta", "worst_groups_delta"]


def choice_rows(labels: int, most: int) -> list[Table]:
    """Every set of at most so many labels."""
    return [row for row in itertools.product((0, 1), repeat=labels) if sum(row) <= most]


def group_rows(groups: int, dimension: int, digits: int) -> list[Table]:
    """Every array in every group: the group's count first, then its digits; all other groups' cells are 0."""
    inside = [(1, *row) for row in rows(dimension, digits)]
    empty = (0,) * len(inside[0])
    return [empty * group + row + empty * (groups - 1 - group) for group in range(groups) for row in inside]


def worst_choices_delta(
    *,
    users: int,
    labels: int,
    max_choices: int,
    trials: int,
    probability: Fraction,
    weights: Sequence[Fraction],
    rounds: int = 1,
) -> list[Fraction]:
    """Exact delta over all data sets and neighbours; users may choose other labels in every round."""
    noise = independent_noise(users, labels * rounds, (trials,), (probability,))
    single = choice_rows(labels, max_choices)
    listed = [sum(parts, ()) for parts in itertools.product(single, repeat=rounds)]
    return worst_over_rows(noise, listed, weights)


def worst_groups_delta(
    *,
    users: int,
    groups: int,
    dimension: int,
    trials: Sequence[int],
    probabilities: Sequence[Fraction],
    weights: Sequence[Fraction],
) -> list[Fraction]:
    """Exact delta over all data sets and neighbours; first the noise of a group's count, then that of each digit."""
    count, *digits = zip(trials, probabilities, strict=True)
    cells = [count, *digits * dimension]
    noise = independent_noise(users, groups, [q for q, _ in cells], [p for _, p in cells])
    return worst_over_rows(noise, group_rows(groups, dimension, len(digits)), weights)
