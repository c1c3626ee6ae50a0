"""Labels found in tiny data by full enumeration, in fractions: slow, obvious, exact.

Nothing here is shared with the package. Users hold labels; of each user some are drawn, all choices equally likely.
Every label that is held gets one draw of a table of whole weights over 0..m. It is listed, with its noisy count, where
that exceeds `threshold`. Then users who hold anything that is not listed are counted, with a draw of another table.
`Twin` says what may be done wrong.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

__all__ = ["Twin", "Users", "data_sets", "delta", "law", "neighbours"]

Users = tuple[tuple[str, ...], ...]
"""What each user holds; no label twice."""


@dataclass(frozen=True)
class Twin:
    """The mechanism; with other values than these it is sabotaged."""

    table: tuple[int, ...]
    rest: tuple[int, ...]
    threshold: int
    max_items: int | None  # None: all that a user holds counts
    early: bool = True
    """Noise is drawn before it is decided what is listed; else whatever has noise-free counts above the threshold."""
    noisy_order: bool = True
    """Labels are listed by their noisy counts and their text; else in the order in which users had them."""


@cache
def law(users: Users, twin: Twin) -> dict[Hashable, Fraction]:
    """The probability of everything that can be released."""
    found: dict[Hashable, Fraction] = defaultdict(Fraction)
    ways = [_kept(held, twin.max_items) for held in users]
    chance = Fraction(1)
    for way in ways:
        chance /= len(way)
    for kept in itertools.product(*ways):
        for outcome, weight in _released(users, kept, twin):
            found[outcome] += chance * weight
    return dict(found)


def _kept(held: Sequence[str], most: int | None) -> list[tuple[str, ...]]:
    return list(itertools.combinations(held, len(held) if most is None else min(most, len(held))))


def _released(users: Users, kept: Sequence[Sequence[str]], twin: Twin) -> Iterator[tuple[Hashable, Fraction]]:
    counts = Counter(label for labels in kept for label in labels)
    met = list(dict.fromkeys(label for labels in users for label in labels))
    labels = [label for label in met if counts[label] > 0]
    total, rest_total = sum(twin.table), sum(twin.rest)
    for draws in itertools.product(range(len(twin.table)), repeat=len(labels)):
        chance = Fraction(1)
        for draw in draws:
            chance *= Fraction(twin.table[draw], total)
        noisy = {label: counts[label] + draw for label, draw in zip(labels, draws, strict=True)}
        looked = noisy if twin.early else {label: counts[label] + (len(twin.table) - 1) // 2 for label in labels}
        listed = [(label, noisy[label]) for label in labels if looked[label] > twin.threshold]
        if twin.noisy_order:
            listed.sort(key=lambda pair: (-pair[1], pair[0]))
        names = {label for label, _ in listed}
        others = sum(any(label not in names for label in held) for held in users)
        for draw, weight in enumerate(twin.rest):
            yield (tuple(listed), others + draw), chance * Fraction(weight, rest_total)


def delta(one: dict[Hashable, Fraction], other: dict[Hashable, Fraction], weight: Fraction) -> Fraction:
    """The hockey-stick divergence at e^epsilon = `weight`."""
    nothing = Fraction(0)
    return sum(
        (max(nothing, chance - weight * other.get(outcome, nothing)) for outcome, chance in one.items()), nothing
    )


def data_sets(users: int, labels: str, most: int) -> list[Users]:
    """All data of so many users who hold up to so many of these labels, or exactly one where `most` is 1."""
    sizes = [1] if most == 1 else range(most + 1)
    held = [choice for size in sizes for choice in itertools.combinations(labels, size)]
    return list(itertools.product(held, repeat=users))


def neighbours(data: Sequence[Users]) -> Iterator[tuple[Users, Users]]:
    """All ordered pairs that differ in what one user holds."""
    for one, other in itertools.permutations(data, 2):
        if sum(mine != theirs for mine, theirs in zip(one, other, strict=True)) == 1:
            yield one, other
