"""Full enumeration of noise in slots: slow, obvious, exact, for small sizes.

Nothing here is shared with the package. A user sends one true report, of its label's cell or of the cell (f,
h_f(label)) of a hash function f drawn uniformly, and `slots` further ones, each a uniform cell with probability
`chance` and blank otherwise. The view is the table of counts per cell; the number of blanks follows from it. All data
sets, all pairs of neighbours and all tables are gone through, in whole numbers over one denominator; a `weight` stands
for e^epsilon.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

__all__ = ["direct", "hashed", "noise", "worst_delta"]

Table = tuple[int, ...]
Ways = dict[Table, int]
User = list[int]
"""The cells that a user's true report may have, equally likely."""


def direct(labels: int) -> list[User]:
    """Users whose report is their label: each has a cell of its own."""
    return [[label] for label in range(labels)]


def hashed(functions: Sequence[Sequence[int]], buckets: int) -> list[User]:
    """Users who draw one of these tables from labels to buckets; the cells of function f start at f x buckets."""
    labels = range(len(functions[0]))
    return [[f * buckets + table[label] for f, table in enumerate(functions)] for label in labels]


def noise(cells: int, trials: int, chance: Fraction) -> Ways:
    """How often each table comes up, out of (cells x chance's denominator)^trials equally likely outcomes."""
    blank = cells * (chance.denominator - chance.numerator)
    law: Ways = {(0,) * cells: 1}
    for _ in range(trials):
        more: Ways = {}
        for table, ways in law.items():
            _add(more, table, ways * blank)
            for cell in range(cells):
                _add(more, _with(table, cell), ways * chance.numerator)
        law = more
    return law


def worst_delta(
    *,
    users: int,
    reports: Sequence[User],
    cells: int,
    slots: int,
    chance: Fraction,
    weights: Sequence[Fraction],
    rounds: int = 1,
) -> list[Fraction]:
    """Exact delta at each weight: the largest divergence over all data sets and neighbours, in both orders.

    In several rounds users may hold other labels in each, so neighbours are any choice of neighbours in every round.
    """
    free = noise(cells, users * slots, chance)
    worst = [Fraction(0)] * len(weights)
    singles = list(_neighbours(free, users, reports))
    for pairs in itertools.combinations_with_replacement(singles, rounds):
        first: Ways = {(): 1}
        second: Ways = {(): 1}
        for p, q in pairs:
            first, second = _product(first, p), _product(second, q)
        worst = [max(pair) for pair in zip(worst, _divergence(first, second, weights), strict=True)]
    return worst


def _neighbours(free: Ways, users: int, reports: Sequence[User]) -> Iterator[tuple[Ways, Ways]]:
    for others in itertools.combinations_with_replacement(reports, users - 1):
        crowd = free
        for other in others:
            crowd = _reported(crowd, other)
        laws = [_reported(crowd, victim) for victim in reports]
        yield from itertools.permutations(laws, 2)


def _reported(law: Ways, user: User) -> Ways:
    """The table with this user's report; every outcome counts len(user) times as often."""
    more: Ways = {}
    for table, ways in law.items():
        for cell in user:
            _add(more, _with(table, cell), ways)
    return more


def _product(first: Ways, second: Ways) -> Ways:
    return {table + more: p * q for table, p in first.items() for more, q in second.items()}


def _divergence(first: Ways, second: Ways, weights: Sequence[Fraction]) -> list[Fraction]:
    total = sum(first.values())
    assert total == sum(second.values())
    pairs = [(ways, second.get(table, 0)) for table, ways in first.items()]
    return [
        Fraction(
            sum(max(0, weight.denominator * p - weight.numerator * q) for p, q in pairs), weight.denominator * total
        )
        for weight in weights
    ]


def _with(table: Table, cell: int) -> Table:
    return (*table[:cell], table[cell] + 1, *table[cell + 1 :])


def _add(law: Ways, table: Table, ways: int) -> None:
    law[table] = law.get(table, 0) + ways
