"""Noise drawn by servers, by full enumeration in fractions: slow, obvious, exact, for tiny tables and a few users.

Nothing here is shared with the package. A user sends `reports` reports in each position: numbers of cells, `BLANK`, or
whatever else a malicious user likes. The shuffler adds so many dummy reports of each cell as it draws, fills positions
that may hold blanks up to a public total, and permutes. A view is what somebody sees for one outcome of all draws, and
a law is how likely each view is. `weight` stands for e^epsilon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = [
    "BLANK",
    "Domain",
    "Pair",
    "Position",
    "all_tables",
    "bag",
    "batch",
    "categories",
    "choices",
    "counts",
    "dummies",
    "grouped",
    "law",
    "levels",
    "neighbours",
    "noisy",
    "numbers",
    "opened",
    "ordered",
    "pair_of",
    "plus",
    "product",
    "vocabulary",
]

BLANK = -1
Table = Sequence[int]
Upload = tuple[tuple[int, ...], ...]
"""What one user sends: the reports of each position."""
Law = dict[Hashable, int]


@dataclass(frozen=True)
class Position:
    """Cells with a table of weights over 0..m each; `blank` says that users may send none of them."""

    tables: tuple[Table, ...]
    blank: bool
    reports: int = 1

    @property
    def most(self) -> int:
        """The largest possible number of dummies."""
        return sum(len(table) - 1 for table in self.tables)


# ---- who sees what ---------------------------------------------------------------------------------------------------


def law(tables: Sequence[Table], view: Callable[[tuple[int, ...]], Hashable]) -> Law:
    """How many of the equally likely outcomes of independent draws from these tables show each view."""
    seen: Law = {}
    for draw in itertools.product(*(range(len(table)) for table in tables)):
        ways = math.prod(table[count] for table, count in zip(tables, draw, strict=True))
        if ways:
            found = view(draw)
            seen[found] = seen.get(found, 0) + ways
    return seen


def dummies(position: Position, draw: Sequence[int], *, padding: bool = True) -> list[int]:
    """What the shuffler adds to one position."""
    added = [cell for cell, count in enumerate(draw) for _ in range(count)]
    if position.blank and padding:
        added += [BLANK] * (position.most - sum(draw))
    return added


def batch(
    positions: Sequence[Position],
    users: Sequence[Upload],
    draw: Sequence[int],
    *,
    padding: bool = True,
    linked: bool = False,
) -> Hashable:
    """What the analyzer opens, without the order, for one draw of all cells.

    With `linked` one permutation is used for all positions, so that it sees which reports are beside each other.
    """
    lists = []
    for number, (position, own) in enumerate(zip(positions, _split(positions, draw), strict=True)):
        lists.append([report for user in users for report in user[number]] + dummies(position, own, padding=padding))
    if linked:
        return tuple(sorted(itertools.zip_longest(*lists, fillvalue=-9)))
    return tuple(tuple(sorted(reports)) for reports in lists)


def opened(
    positions: Sequence[Position], users: Sequence[Upload], *, padding: bool = True, linked: bool = False
) -> Law:
    """The analyzer's whole view: everything it opens, without the order."""
    return law(all_tables(positions), lambda draw: batch(positions, users, draw, padding=padding, linked=linked))


def ordered(position: Position, users: Sequence[Upload], *, padding: bool = True) -> Law:
    """The same for a single position, with the order: each of all permutations is as likely."""
    found: Law = {}
    lists = {
        draw: [report for (reports,) in users for report in reports] + dummies(position, draw, padding=padding)
        for draw in itertools.product(*(range(len(table)) for table in position.tables))
    }
    common = math.factorial(max(map(len, lists.values())))
    for draw, reports in lists.items():
        ways = math.prod(table[count] for table, count in zip(position.tables, draw, strict=True))
        for order in itertools.permutations(reports):
            found[order] = found.get(order, 0) + ways * common // math.factorial(len(reports))
    return found


def counts(positions: Sequence[Position], users: Sequence[Upload]) -> tuple[int, ...]:
    """How many users report each cell."""
    return tuple(
        sum(report == cell for user in users for report in user[number])
        for number, position in enumerate(positions)
        for cell in range(len(position.tables))
    )


def noisy(positions: Sequence[Position], users: Sequence[Upload]) -> Law:
    """The noisy table alone: reports of each cell, draws included, and nothing else."""
    true = counts(positions, users)
    return law(all_tables(positions), lambda draw: plus(true, draw))


def plus(*tables: Sequence[int]) -> tuple[int, ...]:
    """Cell by cell."""
    return tuple(map(sum, zip(*tables, strict=True)))


def all_tables(positions: Sequence[Position]) -> list[Table]:
    """The noise of all cells, position after position."""
    return [table for position in positions for table in position.tables]


def _split(positions: Sequence[Position], flat: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for position in positions:
        yield flat[start : start + len(position.tables)]
        start += len(position.tables)


# ---- profiles --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two laws: how much of the first lies at each likelihood ratio, and how much where the second has nothing."""

    finite: dict[Fraction, Fraction]
    infinite: Fraction

    def delta(self, weight: Fraction) -> Fraction:
        """The hockey-stick divergence of the first from the second."""
        return self.infinite + sum((p * (1 - weight / r) for r, p in self.finite.items() if r > weight), Fraction(0))


def pair_of(first: Law, second: Law) -> Pair:
    """The first law against the second."""
    total, other = sum(first.values()), sum(second.values())
    finite: dict[Fraction, Fraction] = {}
    infinite = Fraction(0)
    for view, ways in first.items():
        if view in second:
            ratio = Fraction(ways * other, second[view] * total)
            finite[ratio] = finite.get(ratio, Fraction(0)) + Fraction(ways, total)
        else:
            infinite += Fraction(ways, total)
    return Pair(finite, infinite)


def product(pairs: Sequence[Pair]) -> Pair:
    """Independent views, side by side."""
    finite = {Fraction(1): Fraction(1)}
    for pair in pairs:
        further: dict[Fraction, Fraction] = {}
        for (ratio, mass), (more, share) in itertools.product(finite.items(), pair.finite.items()):
            further[ratio * more] = further.get(ratio * more, Fraction(0)) + mass * share
        finite = further
    return Pair(finite, 1 - math.prod((1 - pair.infinite for pair in pairs), start=Fraction(1)))


def levels(weights: Sequence[Fraction], first: Law, second: Law) -> list[Fraction]:
    """Delta at each weight, in the worse order of the two."""
    one, other = pair_of(first, second), pair_of(second, first)
    return [max(one.delta(weight), other.delta(weight)) for weight in weights]


# ---- what users hold -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """Positions, and all uploads of honest users."""

    positions: tuple[Position, ...]
    honest: tuple[Upload, ...]

    @property
    def anything(self) -> Iterator[Upload]:
        """All uploads of malicious users: any cell, a blank, or a number that is no cell."""
        held = [
            itertools.combinations_with_replacement(
                [BLANK, *range(len(position.tables) + 1)],
                position.reports,
            )
            for position in self.positions
        ]
        return itertools.product(*held)


def neighbours(domain: Domain, users: int, others: Sequence[Upload] | None = None) -> Iterator[tuple[Any, Any]]:
    """All pairs of data sets that differ in the first user; the rest hold what they like of `others`."""
    for rest in itertools.combinations_with_replacement(others or domain.honest, users - 1):
        for one, other in itertools.combinations(domain.honest, 2):
            yield (one, *rest), (other, *rest)


def categories(table: Table, labels: int) -> Domain:
    """One label of several: one position."""
    return Domain((Position((table,) * labels, blank=False),), tuple(((label,),) for label in range(labels)))


def vocabulary(table: Table, functions: Sequence[Sequence[int]], width: int) -> Domain:
    """Words by their cells in the table of each hash function: a position for each."""
    words = range(len(functions[0]))
    return Domain(
        (Position((table,) * width, blank=False),) * len(functions),
        tuple(tuple((function[word],) for function in functions) for word in words),
    )


def choices(table: Table, labels: int, most: int) -> Domain:
    """Up to so many labels of several: a position for each label, with its cell or a blank."""
    sets = [set(held) for size in range(most + 1) for held in itertools.combinations(range(labels), size)]
    return Domain(
        (Position((table,), blank=True),) * labels,
        tuple(tuple((0,) if label in held else (BLANK,) for label in range(labels)) for held in sets),
    )


def bag(table: Table, labels: int, most: int) -> Domain:
    """The same in one position that takes `most` reports of each user."""
    sets = [held for size in range(most + 1) for held in itertools.combinations(range(labels), size)]
    return Domain(
        (Position((table,) * labels, blank=True, reports=most),),
        tuple(((*[BLANK] * (most - len(held)), *held),) for held in sets),
    )


def _digit(radix: int, value: int) -> int:
    """The cell of a digit: a binary 0 and the middle of an odd radix are blank."""
    if radix == 2:
        return 0 if value else BLANK
    if radix % 2:
        middle = radix // 2
        return BLANK if value == middle else value - (value > middle)
    return value


def _cells(radix: int) -> int:
    return 1 if radix == 2 else radix - radix % 2


def _digits(value: int, radices: Sequence[int]) -> list[int]:
    found = []
    for radix in radices:
        value, digit = divmod(value, radix)
        found.append(_digit(radix, digit))
    return found


def numbers(tables: Sequence[Table], radices: Sequence[int], coordinates: int) -> Domain:
    """Whole numbers by their digits, lowest first; a table of weights for each digit."""
    positions = [
        Position((table,) * _cells(radix), blank=_may_be_blank(radix))
        for table, radix in zip(tables, radices, strict=True)
    ]
    values = itertools.product(range(math.prod(radices)), repeat=coordinates)
    return Domain(
        (*positions,) * coordinates,
        tuple(tuple((digit,) for value in row for digit in _digits(value, radices)) for row in values),
    )


def grouped(tables: Sequence[Table], radices: Sequence[int], coordinates: int, groups: int, counts: Table) -> Domain:
    """A group and numbers: a position for each digit has the cells of all groups, and one more counts users."""
    positions = [
        Position((table,) * (_cells(radix) * groups), blank=_may_be_blank(radix))
        for table, radix in zip(tables, radices, strict=True)
    ]
    uploads = []
    for group in range(groups):
        for row in itertools.product(range(math.prod(radices)), repeat=coordinates):
            digits = [
                (digit, _cells(radix))
                for value in row
                for digit, radix in zip(_digits(value, radices), radices, strict=True)
            ]
            sent = [(digit if digit == BLANK else group * cells + digit,) for digit, cells in digits]
            uploads.append((*sent, (group,)))
    return Domain((*(positions * coordinates), Position((counts,) * groups, blank=False)), tuple(uploads))


def _may_be_blank(radix: int) -> bool:
    return radix == 2 or radix % 2 == 1
