"""Vectors in a ball sent as random bits: what neighbours show, counted out. Slow, obvious, for small sizes.

Nothing here is shared with the package. Vectors are given as y, in the box [-1, 1]^d with |y|^2 <= d/tau^2; whoever
holds y reports a one in coordinate c with probability (1 + a y_c)/2, and the counts of ones are seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = [
    "call",
    "delta_between",
    "flips_delta",
    "gaussian_delta",
    "hill_climb",
    "ones_law",
    "shown",
    "vectors_in_ball",
    "worst_delta",
]

Floats = npt.NDArray[np.float64]


def ones_law(chances: Sequence[Fraction]) -> list[Fraction]:
    """The law of the number of ones among independent bits, exactly."""
    law = [Fraction(1)]
    for chance in chances:
        law = [
            (law[k] if k < len(law) else 0) * (1 - chance) + (law[k - 1] if k > 0 else 0) * chance
            for k in range(len(law) + 1)
        ]
    return law


def shown(law: Sequence[Fraction], s: Fraction, other: Fraction, weight: Fraction) -> Fraction:
    """Sum of (P - weight Q)+ for one count: the victim's bit is a one with (1 + s)/2, or with (1 + other)/2."""
    padded = [Fraction(0), *law, Fraction(0)]
    total = Fraction(0)
    for one, zero in itertools.pairwise(padded):  # the others' ones if the victim's is a one, or none
        first = (1 + s) / 2 * one + (1 - s) / 2 * zero
        second = (1 + other) / 2 * one + (1 - other) / 2 * zero
        total += max(Fraction(0), first - weight * second)
    return total


def call(law: Sequence[Fraction], x: Fraction, sign: int) -> Fraction:
    """E (sign z - x)+, where z = (one - zero)/(one + zero) has the law u = (one + zero)/2."""
    padded = [Fraction(0), *law, Fraction(0)]
    return sum(
        (max(Fraction(0), (sign * (one - zero) - x * (one + zero)) / 2) for one, zero in itertools.pairwise(padded)),
        start=Fraction(0),
    )


def gaussian_delta(mu: float, weight: float) -> float:
    """The profile of N(mu, 1) against N(0, 1) at weight >= 1, as a plain sum: within 1e-5 of itself."""
    start = math.log(weight) / mu + mu / 2
    x = start + np.linspace(0.0, 14.0, 4001)
    values = (np.exp(mu * x - mu**2 / 2) - weight) * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(np.sum(values[1:] + values[:-1]) / 2 * (x[1] - x[0]))


def vectors_in_ball(dimension: int, tau: float, steps: int) -> Floats:
    """All y of the grid with `steps` steps from -1 to 1 whose norm is allowed."""
    values = np.linspace(-1.0, 1.0, steps + 1)
    found = [y for y in itertools.product(values, repeat=dimension) if sum(c * c for c in y) <= dimension / tau**2]
    return np.array(found)


def worst_delta(
    *, users: int, dimension: int, tau: float, amplitude: float, steps: int, epsilons: Sequence[float]
) -> Floats:
    """The largest divergence at each epsilon over all data sets and neighbours on the grid, in both orders."""
    vectors = vectors_in_ball(dimension, tau, steps)
    worst = np.zeros(len(epsilons))
    for others in itertools.combinations_with_replacement(range(len(vectors)), users - 1):
        joint = _joint(vectors[list(others)], vectors, amplitude)
        for e, epsilon in enumerate(epsilons):
            weight = math.exp(epsilon)
            for law in joint:
                worst[e] = max(worst[e], float(np.maximum(law - weight * joint, 0.0).sum(axis=1).max()))
    return worst


def delta_between(others: Floats, first: Floats, second: Floats, amplitude: float, epsilon: float) -> float:
    """The divergence of one pair of data sets: `others` and `first` against `others` and `second`."""
    upper, lower = _joint(others, np.stack([first, second]), amplitude)
    return float(np.maximum(upper - math.exp(epsilon) * lower, 0.0).sum())


def flips_delta(*, users: int, flips: int, amplitude: float, epsilons: Sequence[float]) -> Floats:
    """The worst of so many coordinates that flip fully, others at the ends. No bound for spread-out vectors."""
    worst = np.zeros(len(epsilons))
    ends = np.array([[1.0] * flips, [-1.0] * flips])
    for high in range(users):
        others = np.repeat(ends, [high, users - 1 - high], axis=0)
        for e, epsilon in enumerate(epsilons):
            for first, second in (ends, ends[::-1]):
                worst[e] = max(worst[e], delta_between(others, first, second, amplitude, epsilon))
    return worst


def hill_climb(
    generator: np.random.Generator,
    *,
    users: int,
    dimension: int,
    tau: float,
    amplitude: float,
    epsilon: float,
    moves: int,
) -> float:
    """The largest delta met on a random walk uphill over the victim's two vectors and everybody else's."""
    first, second = (_fitted(generator.normal(size=dimension), tau) for _ in range(2))
    others = np.stack([_fitted(3.0 * generator.normal(size=dimension), tau) for _ in range(users - 1)])
    if generator.random() < 0.5:
        others[:] = others[0]
    best = delta_between(others, first, second, amplitude, epsilon)
    for _ in range(moves):
        trial = [first.copy(), second.copy(), others.copy()]
        which = int(generator.integers(3))
        size = float(generator.choice([0.03, 0.3, 3.0]))
        if which < 2:
            trial[which] = _fitted(trial[which] + size * generator.normal(size=dimension), tau)
        else:
            moved = generator.random(users - 1) < generator.random()
            target = _fitted(3.0 * generator.normal(size=dimension), tau)
            trial[2][moved] = target
        found = delta_between(trial[2], trial[0], trial[1], amplitude, epsilon)
        if found >= best:
            best, (first, second, others) = found, trial
    return best


def _fitted(y: Floats, tau: float) -> Floats:
    """The nearest allowed vectors' kind: cut to the box, then shortened to the norm."""
    cut = np.clip(y, -1.0, 1.0)
    longest = math.sqrt(len(y)) / tau
    length = float(np.linalg.norm(cut))
    return cut * min(1.0, longest / length) if length else cut


def _joint(others: Floats, vectors: Floats, amplitude: float) -> Floats:
    """For each of the vectors the law of all counts, flattened: a product over coordinates."""
    bases = list(_count_laws(others, amplitude, vectors.shape[1]))
    joint = []
    for vector in vectors:
        law = np.ones(1)
        for y, base in zip(vector, bases, strict=True):
            one = (1.0 + amplitude * y) / 2
            law = np.outer(law, np.convolve(base, [1.0 - one, one])).ravel()
        joint.append(law)
    return np.array(joint)


def _count_laws(others: Floats, amplitude: float, dimension: int) -> Iterator[Floats]:
    for c in range(dimension):
        law = np.ones(1)
        for y in others[:, c] if len(others) else ():
            one = (1.0 + amplitude * y) / 2
            law = np.convolve(law, [1.0 - one, one])
        yield law
