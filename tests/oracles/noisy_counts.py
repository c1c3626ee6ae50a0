"""Full enumeration of the mechanism that adds dummy reports: slow, obvious, exact, for small sizes.

Nothing here is shared with the package. A user holds `dimension` values of the grid 0..2^J - 1 and reports the cell
(coordinate, j) once if digit j of that value is 1, and Binomial(trials[j], probabilities[j]) times as noise. The view
is the table of counts per cell. `worst_delta` goes through all data sets, all pairs of neighbours and all tables, in
rational numbers; a `weight` stands in place of e^epsilon.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

__all__ = [
    "Law",
    "Table",
    "binomial",
    "capped_noise",
    "capped_worst_delta",
    "divergence",
    "independent_noise",
    "one_direction_delta",
    "overflow",
    "rows",
    "weights_of",
    "worst_delta",
    "worst_move",
    "worst_over_data_sets",
    "worst_over_rows",
]

Table = tuple[int, ...]
"""A number per cell; cell (coordinate, j) is at place coordinate J + j."""
Law = dict[Table, Fraction]


def weights_of(epsilons: Iterable[float]) -> list[Fraction]:
    """e^epsilon as a float gives it, taken as an exact number from there on."""
    return [Fraction(math.exp(epsilon)) for epsilon in epsilons]


def binomial(trials: int, probability: Fraction) -> list[Fraction]:
    """Probabilities of 0..trials successes."""
    return [math.comb(trials, i) * probability**i * (1 - probability) ** (trials - i) for i in range(trials + 1)]


def rows(dimension: int, digits: int) -> list[Table]:
    """What each possible vector of grid values adds to the table."""
    vectors = itertools.product(range(2**digits), repeat=dimension)
    return [tuple(value >> j & 1 for value in vector for j in range(digits)) for vector in vectors]


def independent_noise(users: int, dimension: int, trials: Sequence[int], probabilities: Sequence[Fraction]) -> Law:
    """The noise of all users together: Binomial(users trials[j], probabilities[j]) in each cell, independent."""
    cells = [binomial(users * q, p) for q, p in zip(trials, probabilities, strict=True)] * dimension
    law: Law = {}
    for table in itertools.product(*(range(len(cell)) for cell in cells)):
        law[table] = math.prod((cell[i] for cell, i in zip(cells, table, strict=True)), start=Fraction(1))
    return law


def capped_noise(users: int, dimension: int, trials: Sequence[int], probabilities: Sequence[Fraction], cap: int) -> Law:
    """The noise of all users together if each draws all cells again until they sum to at most `cap`."""
    free = independent_noise(1, dimension, trials, probabilities)
    kept = {table: probability for table, probability in free.items() if sum(table) <= cap}
    total = sum(kept.values())
    single = {table: probability / total for table, probability in kept.items()}
    law: Law = {(0,) * (dimension * len(trials)): Fraction(1)}
    for _ in range(users):
        more: Law = {}
        for (table, p), (added, q) in itertools.product(law.items(), single.items()):
            place = _plus(table, added)
            more[place] = more.get(place, Fraction(0)) + p * q
        law = more
    return law


def divergence(first: Law, second: Law, weights: Sequence[Fraction]) -> list[Fraction]:
    """Sum over all tables of (first - weight second)+, for each weight."""
    return _divergence(_Whole(first), _Whole(second), weights)


def worst_delta(
    *,
    users: int,
    dimension: int,
    trials: Sequence[int],
    probabilities: Sequence[Fraction],
    weights: Sequence[Fraction],
) -> list[Fraction]:
    """Exact delta at each weight: the largest divergence over all data sets and neighbours, in both orders."""
    noise = independent_noise(users, dimension, trials, probabilities)
    return worst_over_rows(noise, rows(dimension, len(trials)), weights)


def capped_worst_delta(
    *,
    users: int,
    dimension: int,
    trials: Sequence[int],
    probabilities: Sequence[Fraction],
    cap: int,
    weights: Sequence[Fraction],
    rounds: int = 1,
) -> list[Fraction]:
    """The same where no user sends more than `cap` dummy reports in a round: a draw with more is drawn again.

    Users may hold other values in every round, so that two rounds are one table of twice as many coordinates.
    """
    single = capped_noise(users, dimension, trials, probabilities, cap)
    noise = single
    for _ in range(rounds - 1):
        noise = {table + more: p * q for table, p in noise.items() for more, q in single.items()}
    return worst_over_rows(noise, rows(dimension * rounds, len(trials)), weights)


def one_direction_delta(
    *,
    users: int,
    dimension: int,
    trials: Sequence[int],
    probabilities: Sequence[Fraction],
    weights: Sequence[Fraction],
) -> list[Fraction]:
    """The larger of two moves only: every cell up, or every cell down. No upper bound: see `worst_move`."""
    noise = independent_noise(users, dimension, trials, probabilities)
    raised = {tuple(count + 1 for count in table): probability for table, probability in noise.items()}
    both = zip(divergence(raised, noise, weights), divergence(noise, raised, weights), strict=True)
    return [max(pair) for pair in both]


def worst_move(
    *, users: int, dimension: int, trials: Sequence[int], probabilities: Sequence[Fraction], weight: Fraction
) -> tuple[Fraction, Table]:
    """The worst delta, and the change of the table by -1, 0 or 1 in each cell that reaches it.

    The other users move both tables of a pair alike, so that only the change between them matters.
    """
    noise = independent_noise(users, dimension, trials, probabilities)
    still = _Whole(noise)
    found = (Fraction(-1), (0,) * (dimension * len(trials)))
    for move in itertools.product((-1, 0, 1), repeat=dimension * len(trials)):
        moved = _Whole({_plus(table, move): probability for table, probability in noise.items()})
        found = max(found, (_divergence(moved, still, [weight])[0], move))
    return found


def overflow(groups: Sequence[tuple[int, Fraction]], cap: int) -> Fraction:
    """Exact P[K > cap], K a sum of independent Binomial(trials, probability), one per group."""
    ways, denominator = [1] + [0] * cap, 1  # of K = 0..cap, over the denominator
    for trials, probability in groups:
        hits, misses = probability.numerator, probability.denominator - probability.numerator
        single = [math.comb(trials, i) * hits**i * misses ** (trials - i) for i in range(min(trials, cap) + 1)]
        ways = [sum(ways[k - i] * single[i] for i in range(min(k, trials) + 1)) for k in range(cap + 1)]
        denominator *= probability.denominator**trials
    return 1 - Fraction(sum(ways), denominator)


class _Whole:
    """A law as whole numbers over one denominator, which spares reducing fractions in long sums."""

    def __init__(self, law: Law) -> None:
        self.denominator = math.lcm(*(probability.denominator for probability in law.values()))
        self.ways = {table: int(probability * self.denominator) for table, probability in law.items()}


def _divergence(first: _Whole, second: _Whole, weights: Sequence[Fraction]) -> list[Fraction]:
    pairs = [
        (ways * second.denominator, second.ways.get(table, 0) * first.denominator) for table, ways in first.ways.items()
    ]
    total = first.denominator * second.denominator
    found = []
    for weight in weights:
        up, down = weight.numerator, weight.denominator
        found.append(Fraction(sum(max(0, down * p - up * q) for p, q in pairs), down * total))
    return found


def worst_over_rows(noise: Law, listed: Sequence[Table], weights: Sequence[Fraction]) -> list[Fraction]:
    """The largest divergence where every user adds one of the listed rows to the table.

    The others move both tables alike, so that each change from one row to another is looked at once.
    """
    still = _Whole(noise)
    worst = [Fraction(0)] * len(weights)
    for move in {_plus(row, tuple(-count for count in other)) for row, other in itertools.permutations(listed, 2)}:
        moved = _Whole({_plus(table, move): probability for table, probability in noise.items()})
        worst = [max(pair) for pair in zip(worst, _divergence(moved, still, weights), strict=True)]
    return worst


def worst_over_data_sets(
    noise: Law, users: int, listed: Sequence[Table], weights: Sequence[Fraction]
) -> list[Fraction]:
    """The same over all that the others may hold, too."""
    worst = [Fraction(0)] * len(weights)
    for others in _sums(users - 1, listed):
        laws = [_Whole({_plus(table, _plus(others, row)): p for table, p in noise.items()}) for row in listed]
        for first, second in itertools.permutations(laws, 2):
            worst = [max(pair) for pair in zip(worst, _divergence(first, second, weights), strict=True)]
    return worst


def _sums(users: int, listed: Sequence[Table]) -> Iterator[Table]:
    """Every table without noise that so many users can make; the view depends on them through nothing else."""
    found = {(0,) * len(listed[0])}
    for _ in range(users):
        found = {_plus(table, row) for table in found for row in listed}
    return iter(sorted(found))


def _plus(first: Table, second: Table) -> Table:
    return tuple(a + b for a, b in zip(first, second, strict=True))
