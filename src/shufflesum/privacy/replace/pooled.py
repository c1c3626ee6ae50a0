"""A lower bound for any way of choosing coordinates: all reports of all rounds in one pool.

Let every other user hold one value in all coordinates, and the victim x, or x', in all of theirs. Forgetting
coordinates and rounds leaves m = t T independent reports of the victim among (n - 1) m of the others, whoever reported
which coordinate. Two statistics of that pool, each at its best threshold (docs/privacy.md, section 8):

*Difference* (K >= 3, others at a third value): reports of x less those of x'. One report of the others is +1 or -1 with
p = gamma/K each, as is A - B for A, B ~ Bernoulli(q) with q (1 - q) = p; all of them together are the difference of two
binomials. This needs p <= 1/4.
*Count* (others at x): reports of x', in both directions.

Where laws would get too long the adversary keeps a random part of the reports, which is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shufflesum._search import bracket
from shufflesum.privacy.engine.laws import Floats, binomial_window, slack

__all__ = ["pooled_delta_lower", "pooled_epsilon_lower"]

_OUTSIDE = 1e-24  # probability that a window may leave out; charged
_MOST_HITS = 1.6e7  # reports of the others in one cell, beyond which only a part is kept
_TRIED = 33  # thresholds in each of two passes
_LARGEST_EPSILON = 600.0  # beyond, e^epsilon leaves double precision; the bound there is 0


@dataclass(frozen=True, slots=True)
class _Law:
    """Masses at lowest, lowest + 1, ..., each right up to the factor 1 +- error, and `outside` at most beyond."""

    lowest: int
    masses: Floats
    outside: float = 0.0
    error: float = 0.0

    def negated(self) -> _Law:
        return _Law(1 - self.lowest - self.masses.size, self.masses[::-1], self.outside, self.error)

    def plus(self, other: _Law) -> _Law:
        error = self.error + other.error + slack(min(self.masses.size, other.masses.size))
        outside = self.outside + other.outside
        return _Law(self.lowest + other.lowest, np.convolve(self.masses, other.masses), outside, error)._trimmed()

    def times(self, count: int) -> _Law:
        """The law of the sum of so many."""
        if count == 1:
            return self
        half = self.times(count // 2)
        return half.plus(half) if count % 2 == 0 else half.plus(half).plus(self)

    def _trimmed(self) -> _Law:
        kept = np.flatnonzero(self.masses > _OUTSIDE / self.masses.size)
        first, stop = int(kept[0]), int(kept[-1]) + 1
        beyond = float(self.masses[:first].sum() + self.masses[stop:].sum()) * 2.0
        return _Law(self.lowest + first, self.masses[first:stop], self.outside + beyond, self.error)

    def moments(self) -> tuple[float, float]:
        """Mean and variance, roughly: they choose thresholds, never bounds."""
        places = self.lowest + np.arange(self.masses.size)
        mean = float(np.dot(places, self.masses))
        return mean, float(np.dot((places - mean) ** 2, self.masses))


def pooled_delta_lower(honest_users: int, values: int, reports: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta below which (epsilon, delta)-privacy certainly fails for these neighbours.

    `reports` are those of one user in all rounds, in coordinates that are drawn without regard to the data.
    """
    if epsilon > _LARGEST_EPSILON or noise_probability == 1.0:
        return 0.0
    gamma, others = noise_probability, (honest_users - 1) * reports
    kept = min(1.0, _MOST_HITS * values / (max(others, 1) * gamma))
    hit, stay = kept * gamma / values, kept * (1.0 - gamma + gamma / values)
    truthful, other = _binomial(reports, stay), _binomial(reports, hit)
    alone = _Law(0, np.ones(1))
    noise = _binomial(others, hit)
    bounds = [
        _best_threshold(noise, alone, truthful, other, epsilon),
        _best_threshold(noise.negated(), alone, other.negated(), truthful.negated(), epsilon),
    ]
    if values > 2 and hit < 0.25:
        half = _binomial(others, 2.0 * hit / (1.0 + math.sqrt(1.0 - 4.0 * hit)))
        rest = kept * gamma * (values - 2) / values + (1.0 - kept)
        victim = _Law(-1, np.array([hit, rest, stay]), error=slack(1)).times(reports)
        bounds.append(_best_threshold(half, half, victim, victim.negated(), epsilon))
    return max(0.0, *bounds)


def pooled_epsilon_lower(honest_users: int, values: int, reports: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""

    def height(epsilon: float) -> float:
        return pooled_delta_lower(honest_users, values, reports, noise_probability, epsilon)

    if height(0.0) <= delta:
        return 0.0
    return bracket(height, delta, guess=1.0, highest=_LARGEST_EPSILON, tolerance=1e-4)[0]


def _binomial(trials: int, probability: float) -> _Law:
    if probability >= 1.0:
        return _Law(trials, np.ones(1))
    lowest, terms, total, tail = binomial_window(trials, probability, probability / (1.0 - probability), _OUTSIDE)
    # the chance is known up to some roundings, which every step away from the mode repeats
    return _Law(int(lowest), terms / total, tail / total * 2.0, slack(8 * terms.size) + tail / total)


def _best_threshold(up: _Law, down: _Law, here: _Law, there: _Law, epsilon: float) -> float:
    """Bound the largest P(up - down + here >= c) - e^epsilon P(up - down + there >= c) from below."""
    laws = up.plus(here), up.plus(there)
    (mean, variance), (other_mean, _), (shift, further) = laws[0].moments(), laws[1].moments(), down.moments()
    spread = math.sqrt(variance + further) + 1.0
    center = (mean + other_mean) / 2 - shift + epsilon * spread**2 / max(mean - other_mean, 1e-9)
    center = min(center, mean - shift + 12.0 * spread)
    best, best_place, width = 0.0, center, 6.0 * spread
    for _ in range(2):
        for c in np.unique(np.rint(best_place + width * np.linspace(-1.0, 1.0, _TRIED)).astype(np.int64)):
            found = _beyond(laws[0], down, int(c), -1) - math.exp(epsilon) * _beyond(laws[1], down, int(c), 1)
            if found > best:
                best, center = found, float(c)
        best_place, width = center, width * 2.0 / (_TRIED - 1)
    return best


def _beyond(law: _Law, down: _Law, c: int, side: int) -> float:
    """P(law - down >= c), from below (side -1) or from above (side 1)."""
    survival = np.append(np.cumsum(law.masses[::-1])[::-1], 0.0)
    places = np.clip(c + down.lowest + np.arange(down.masses.size) - law.lowest, 0, law.masses.size)
    error = law.error + down.error + slack(law.masses.size + down.masses.size)
    known = float(np.dot(survival[places], down.masses))
    return known * (1.0 - error) if side < 0 else known * (1.0 + error) + law.outside + down.outside
