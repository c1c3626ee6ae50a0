"""Bounds of a composition: privacy profiles made into PLDs and multiplied, then read at any epsilon or delta.

Above, any privacy profile that bounds each factor; below, concrete pairs of adjacent data sets.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shufflesum._search import bisect
from shufflesum.errors import PrivacyError
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.pld import (
    PrivacyLossDistribution,
    dominating,
    power_above,
    power_below,
    product_above,
    product_below,
)

PrivacyProfile = Callable[[Floats], Floats]  # delta at ascending epsilons >= 0

MOST_COMPOSITIONS = 10**6
LEAST_DELTA = 1e-12  # what is certified
_LEAST_SINGLE_DELTA = 1e-15  # of a single round
_CHARGE = 1e-15  # of delta, for all truncation together
_NODES = 20  # of the grid per deviation of one loss: they add 1/(6 * 20**2) to its variance
_MOST_NODES = 2000
_FLOOR = 1e-17
_NEAR_LIMIT = 1.001  # times its limit: there a profile counts as having reached it
_PLAIN_LOSS = 100.0


@dataclass(frozen=True, slots=True)
class ComposedUpper:
    """Upper bounds for a product, computed once and read at any epsilon or delta."""

    pld: PrivacyLossDistribution

    def delta(self, epsilon: float) -> float:
        """Return a delta for which everything together is certainly (epsilon, delta)-private."""
        return self.pld.delta_upper(check_epsilon(epsilon))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon for which everything together is certainly (epsilon, delta)-private."""
        return crossing(self.delta, check_delta(delta), self.pld)[1]


@dataclass(frozen=True, slots=True)
class ComposedLower:
    """Lower bounds: what concrete adjacent data sets show, the larger of them at each epsilon."""

    pairs: tuple[PrivacyLossDistribution, ...]

    def delta(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        epsilon = check_epsilon(epsilon)
        return max(0.0, *(pair.delta_lower(epsilon) for pair in self.pairs))

    def epsilon(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return crossing(self.delta, check_delta(delta), *self.pairs)[0]


def crossing(profile: Callable[[float], float], delta: float, *pairs: PrivacyLossDistribution) -> tuple[float, float]:
    """Return epsilons (low, high) with profile(low) > delta >= profile(high); (0, 0), or (.., inf)."""
    highest = max(pair.step * (pair.lowest + len(pair.symmetrised) + 1) + 1.0 for pair in pairs)
    return bisect(lambda epsilon: profile(epsilon) <= delta, 0.0, highest, tolerance=1e-12)


def pure_noise(step: float = 1.0) -> PrivacyLossDistribution:
    """The PLD of two worlds that nothing tells apart."""
    return PrivacyLossDistribution(step, 0, np.ones(1), 0.0, 0.0)


class Equal(Protocol):
    """So many equal factors of a product, each below one pair that is its own mirror image."""

    @property
    def deviation(self) -> float:
        """Roughly that of one loss; only sets the grid."""

    @property
    def highest(self) -> float:
        """No finite loss is larger; 0 where nothing is revealed."""

    @property
    def copies(self) -> int:
        """How many there are."""

    @property
    def reach(self) -> float:
        """How far out losses matter in the product of so many."""

    def pld(self, step: float, reach: float) -> PrivacyLossDistribution:
        """A PLD on the grid that dominates one factor."""


@dataclass(frozen=True, slots=True)
class Factor:
    """So many equal factors of a product, each below one symmetric privacy profile: upper bounds of delta.

    From epsilon = `highest` on the profile stays at `limit`: the mass at infinite loss. `deviation` is roughly that of
    one loss and only sets the grid. `rough`, if given, is a cheaper bound that tells how far the grid must reach.
    """

    profile: PrivacyProfile
    deviation: float
    highest: float
    copies: int
    limit: float = 0.0
    rough: PrivacyProfile | None = None

    @property
    def reach(self) -> float:
        """How far out losses matter in the product of so many."""
        ends = np.geomspace(16.0, 17.0 + self.highest / self.deviation, 12)
        probes = np.concatenate([np.arange(2.0, 16.0), ends]) * self.deviation
        probes = np.append(probes[probes < self.highest], self.highest)
        heights = (self.rough or self.profile)(probes)
        heights[-1] = self.limit
        # computed bounds do not fall below a floor of their own; there is no point in reaching further out
        floor = 1.5 * float(heights[-2]) if probes.size > 1 and heights[-2] < _FLOOR else 0.0
        target = max(_CHARGE / (2 * self.copies), floor, _NEAR_LIMIT * self.limit)
        return float(probes[np.argmax(heights <= target)])

    def pld(self, step: float, reach: float) -> PrivacyLossDistribution:
        """A PLD on the grid that dominates one factor."""
        nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64)
        values = self.profile(nodes * (1.0 - 2.0**-51))  # a node's own loss is rounded: charge the smaller side
        values[nodes > self.highest * (1.0 + 1e-12)] = self.limit
        return dominating(step, values, 0.0)


def compose_profiles(factors: Iterable[Equal], *, interval: float | None = None) -> ComposedUpper:
    """Compose all factors, on grids whose steps are `interval` times powers of two."""
    factors = [factor for factor in factors if factor.highest > 0.0]
    if not factors:
        return ComposedUpper(pure_noise(interval or 1.0))
    reaches = [factor.reach for factor in factors]
    steps = [max(f.deviation / _NODES, reach / _MOST_NODES) for f, reach in zip(factors, reaches, strict=True)]
    unit = min(steps) if interval is None else interval
    charge = _CHARGE / (2 * len(factors))
    powers = [
        power_above(factor.pld(unit * 2.0 ** math.floor(math.log2(step / unit)), reach), factor.copies, charge)
        for factor, step, reach in zip(factors, steps, reaches, strict=True)
    ]
    return ComposedUpper(product_above(powers, _CHARGE / 2))


def compose_dominating(pairs: Sequence[PrivacyLossDistribution]) -> ComposedUpper:
    """Compose PLDs that are symmetric and dominate, on grids whose steps differ by powers of two."""
    return ComposedUpper(product_above(pairs, _CHARGE))


Copies = tuple[PrivacyLossDistribution, int]


def compose_pairs(alternatives: Iterable[Sequence[Copies]]) -> ComposedLower:
    """Compose concrete pairs, so many copies of each, that lie below the worst case of a factor; several such choices.

    Where the losses of a pair are plain to see, some of its copies suffice.
    """
    return ComposedLower(
        tuple(
            product_below(
                [power_below(one, min(copies, _plain_after(one)), _CHARGE / (2 * len(pairs))) for one, copies in pairs],
                _CHARGE / 2,
            )
            for pairs in alternatives
        )
    )


def _plain_after(single: PrivacyLossDistribution) -> int:
    """After how many copies there is nothing left to tell: by their losses, or because one of them is infinite."""
    mean = max(float(np.dot(single.upper_masses(), single.losses())), single.infinity_mass)
    return max(1, int(_PLAIN_LOSS / mean)) if mean > _PLAIN_LOSS / MOST_COMPOSITIONS else MOST_COMPOSITIONS


def check_epsilon(epsilon: float) -> float:
    """Refuse a negative or infinite epsilon."""
    if not 0.0 <= epsilon <= sys.float_info.max:  # a whole number may be larger
        raise PrivacyError("out-of-range", f"epsilon = {epsilon}: must be finite and at least 0; change epsilon")
    return float(epsilon)


def check_delta(delta: float) -> float:
    """Refuse a delta that no composition is certified for."""
    if not LEAST_DELTA <= delta < 1.0:
        raise PrivacyError(
            "not-certified",
            f"delta = {delta}: a composition is certified for delta from {LEAST_DELTA} to below 1; raise delta, "
            "or collect a single report in a single round",
        )
    return float(delta)


def check_single_delta(delta: float) -> float:
    """Refuse a delta that no single round is certified for."""
    if not 0.0 < delta < 1.0:
        raise PrivacyError("out-of-range", f"delta = {delta}: must lie strictly between 0 and 1; change delta")
    if delta < _LEAST_SINGLE_DELTA:
        raise PrivacyError(
            "not-certified",
            f"delta = {delta}: double precision cannot certify a delta below {_LEAST_SINGLE_DELTA}; raise delta",
        )
    return float(delta)
