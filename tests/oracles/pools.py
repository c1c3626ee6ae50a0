"""All reports of a crowd in one pool, by adding up every outcome in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

Law = dict[int, Fraction]


def added(law: Law, step: Law) -> Law:
    """The law of the sum of two independent numbers."""
    total: Law = {}
    for x, p in law.items():
        for y, q in step.items():
            total[x + y] = total.get(x + y, Fraction(0)) + p * q
    return total


def pool(users: int, reports: int, other: Law, victim: Law) -> Law:
    """The sum over all reports: so many of the victim, and of each of the other users."""
    law: Law = {0: Fraction(1)}
    for step in [victim] * reports + [other] * ((users - 1) * reports):
        law = added(law, step)
    return law


def best_threshold(here: Law, there: Law, growth: Fraction) -> Fraction:
    """The largest P(sum >= c) - growth Q(sum >= c) over all c."""
    places = sorted(set(here) | set(there), reverse=True)
    gains = (here.get(c, Fraction(0)) - growth * there.get(c, Fraction(0)) for c in places)
    return max(Fraction(0), *accumulate(gains))


def difference(values: int, gamma: Fraction) -> tuple[Law, Law, Law]:
    """Reports of x less reports of x', for one report of an other at a third value, of the victim at x, and at x'."""
    hit, stay = gamma / values, 1 - gamma + gamma / values
    rest = gamma * (values - 2) / values
    other = {1: hit, -1: hit, 0: 1 - 2 * hit}
    return other, {1: stay, -1: hit, 0: rest}, {1: hit, -1: stay, 0: rest}


def count(values: int, gamma: Fraction) -> tuple[Law, Law, Law]:
    """Reports of x', for one report of an other at x, of the victim at x', and at x."""
    hit, stay = gamma / values, 1 - gamma + gamma / values
    return {1: hit, 0: 1 - hit}, {1: stay, 0: 1 - stay}, {1: hit, 0: 1 - hit}


def pooled(users: int, values: int, reports: int, gamma: Fraction, growth: Fraction) -> Fraction:
    """What the better of both statistics shows, in either direction."""
    found = []
    for statistic in (difference, count) if values > 2 else (count,):
        other, first, second = statistic(values, gamma)
        here, there = pool(users, reports, other, first), pool(users, reports, other, second)
        for p, q in ((here, there), (negated(there), negated(here))):
            found.append(best_threshold(p, q, growth))
    return max(found)


def negated(law: Law) -> Law:
    """The law of the number with the other sign."""
    return {-x: p for x, p in law.items()}
