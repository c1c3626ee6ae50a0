"""Full enumeration of the shuffled protocol, and the blanket sum written out: slow, obvious, for small sizes.

Nothing here is shared with the package. The shuffler's output is the multiset of reports, that is their histogram;
`worst_delta` goes through all histograms, all data sets and all pairs of neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

__all__ = [
    "binary_blanket_delta",
    "blanket_delta",
    "concrete_delta",
    "rational_blanket_delta",
    "worst_delta",
    "worst_pair",
]

Floats = npt.NDArray[np.float64]
Histogram = tuple[int, ...]
Law = dict[Histogram, float]


def blocks_of(dimension: int, reports: int) -> list[list[int]]:
    """Cut the coordinates into `reports` blocks of nearly equal size."""
    edges = [dimension * i // reports for i in range(reports + 1)]
    return [list(range(low, high)) for low, high in itertools.pairwise(edges)]


def report_law(vector: Sequence[int], block: Sequence[int], levels: int, gamma: float) -> Floats:
    """Probability of each (coordinate, value) that one user with this vector reports for this block."""
    values = levels + 1
    law = np.full((len(block), values), gamma / values)
    for row, coordinate in enumerate(block):
        law[row, vector[coordinate]] += 1.0 - gamma
    flat: Floats = law.ravel() / len(block)
    return flat


def histograms(total: int, cells: int) -> list[Histogram]:
    """All ways to put `total` reports into `cells` cells."""
    if cells == 1:
        return [(total,)]
    return [(i, *rest) for i in range(total + 1) for rest in histograms(total - i, cells - 1)]


class _Adder:
    """Adds one more user's report to a law over histograms."""

    def __init__(self, users: int, cells: int) -> None:
        self.listed = [histograms(total, cells) for total in range(users + 1)]
        places = [{histogram: i for i, histogram in enumerate(listed)} for listed in self.listed]
        self.targets = [
            np.array([[places[total + 1][_plus(h, c)] for h in self.listed[total]] for c in range(cells)])
            for total in range(users)
        ]

    def add(self, law: Floats, total: int, report: Floats) -> Floats:
        """Return the law of the histogram of total + 1 reports."""
        result = np.zeros(len(self.listed[total + 1]))
        for cell, probability in enumerate(report):
            np.add.at(result, self.targets[total][cell], probability * law)
        return result


def _plus(histogram: Histogram, cell: int) -> Histogram:
    return (*histogram[:cell], histogram[cell] + 1, *histogram[cell + 1 :])


def _block_laws(
    users: int, dimension: int, levels: int, gamma: float, reports: int
) -> Iterator[tuple[tuple[Histogram, ...], list[tuple[int, ...]], list[list[Floats]]]]:
    """For every multiset of the other users: the vectors, and per vector of the last user one law per block."""
    vectors = list(itertools.product(range(levels + 1), repeat=dimension))
    blocks = blocks_of(dimension, reports)
    adders = [_Adder(users, len(block) * (levels + 1)) for block in blocks]
    single = [[report_law(v, block, levels, gamma) for v in vectors] for block in blocks]
    for others in itertools.combinations_with_replacement(range(len(vectors)), users - 1):
        laws: list[list[Floats]] = [[] for _ in vectors]
        for adder, reports_of in zip(adders, single, strict=True):
            base = np.ones(1)
            for total, other in enumerate(others):
                base = adder.add(base, total, reports_of[other])
            for v in range(len(vectors)):
                laws[v].append(adder.add(base, users - 1, reports_of[v]))
        yield tuple(vectors[o] for o in others), vectors, laws


def worst_pair(
    *,
    users: int,
    dimension: int,
    levels: int,
    noise_probability: float,
    epsilons: Sequence[float],
    reports: int = 1,
) -> tuple[Floats, list[tuple[tuple[Histogram, ...], tuple[int, ...], tuple[int, ...]]]]:
    """Largest divergence at each epsilon over all data sets and neighbours, and where it is reached.

    `reports` blocks (stratified) are independent given the data, so their joint law is the product of theirs.
    """
    worst = np.zeros(len(epsilons))
    where: list[tuple[tuple[Histogram, ...], tuple[int, ...], tuple[int, ...]]] = [((), (), ())] * len(epsilons)
    for others, vectors, laws in _block_laws(users, dimension, levels, noise_probability, reports):
        joint = np.array([_product(parts) for parts in laws])
        for e, epsilon in enumerate(epsilons):
            w = math.exp(epsilon)
            for v, law in enumerate(joint):
                deltas = np.maximum(law - w * joint, 0.0).sum(axis=1)
                best = int(np.argmax(deltas))
                if deltas[best] > worst[e]:
                    worst[e] = deltas[best]
                    where[e] = (others, vectors[v], vectors[best])
    return worst, where


def worst_delta(
    *,
    users: int,
    dimension: int,
    levels: int,
    noise_probability: float,
    epsilons: Sequence[float],
    reports: int = 1,
) -> Floats:
    """Exact delta at each epsilon: the largest divergence over all data sets and neighbours."""
    return worst_pair(
        users=users,
        dimension=dimension,
        levels=levels,
        noise_probability=noise_probability,
        epsilons=epsilons,
        reports=reports,
    )[0]


def _product(parts: Sequence[Floats]) -> Floats:
    result = np.ones(1)
    for part in parts:
        result = np.outer(result, part).ravel()
    return result


def concrete_delta(others: Sequence[int], first: int, second: int, levels: int, gamma: float, epsilon: float) -> float:
    """Divergence of one pair of scalar data sets: `others` and `first` against `others` and `second`."""
    users = len(others) + 1
    adder = _Adder(users, levels + 1)
    base = np.ones(1)
    for total, other in enumerate(others):
        base = adder.add(base, total, report_law([other], [0], levels, gamma))
    p, q = (adder.add(base, users - 1, report_law([x], [0], levels, gamma)) for x in (first, second))
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def blanket_delta(users: int, levels: int, gamma: float, epsilon: float) -> float:
    """The blanket bound as a plain sum over m, a and b; cost grows with (users gamma)^3."""
    values = levels + 1
    w = math.exp(epsilon)
    result = 0.0
    for m in range(users):
        weight = binom.pmf(m, users - 1, gamma)
        if weight < 1e-25:
            continue
        count = m + 1
        a = np.arange(count + 1)[:, None]
        b = np.arange(count + 1)[None, :]
        rest = np.maximum(count - a, 0)
        law = binom.pmf(a, count, 1.0 / values) * binom.pmf(b, rest, 1.0 / (values - 1))
        up = (1.0 - gamma) * a * values / count + gamma
        down = (1.0 - gamma) * b * values / count + gamma
        result += float(weight * (law * np.maximum(up - w * down, 0.0)).sum())
    return result


def rational_blanket_delta(users: int, levels: int, gamma: Fraction, growth: Fraction) -> Fraction:
    """The same sum in exact rational numbers, with growth in place of e^epsilon."""
    values = levels + 1
    result = Fraction(0)
    for m in range(users):
        weight = math.comb(users - 1, m) * gamma**m * (1 - gamma) ** (users - 1 - m)
        count = m + 1
        for a in range(count + 1):
            for b in range(count + 1 - a):
                ways = math.comb(count, a) * math.comb(count - a, b) * (values - 2) ** (count - a - b)
                up = (1 - gamma) * a * values / count + gamma
                down = (1 - gamma) * b * values / count + gamma
                result += weight * Fraction(ways, values**count) * max(Fraction(0), up - growth * down)
    return result


def binary_blanket_delta(users: int, gamma: float, epsilon: float) -> float:
    """The blanket sum for two values at any size: there a + b = M, and E(a - tau)+ follows from two tails.

    E(a - tau)+ = (M/2) P(a' >= j - 1) - tau P(a >= j), a' ~ Bin(M - 1, 1/2), j the least integer above tau.
    """
    w = math.exp(epsilon)
    middle, spread = users * gamma, math.sqrt(users * gamma)
    m = np.arange(max(0, int(middle - 9 * spread)), min(users, int(middle + 9 * spread) + 20))
    count = m + 1.0
    tau = (w * count + (w - 1) * gamma * count / (2 * (1 - gamma))) / (1 + w)
    j = np.floor(tau) + 1
    mean = 0.5 * count * binom.sf(j - 2, count - 1, 0.5) - tau * binom.sf(j - 1, count, 0.5)
    return float(np.sum(binom.pmf(m, users - 1, gamma) * (1 - gamma) * (2 / count) * (1 + w) * mean))
