"""A filter for mechanisms that are chosen one after the other, in view of all results so far (docs/privacy.md, 21).

Each mechanism is charged the logarithm of a moment of its dominating pair, and apart from that what the pair has at
infinite loss. As long as both sums stay below limits that were fixed at the beginning, everything together is
(epsilon, delta)-private, however mechanisms were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from shufflesum.errors import ParameterError
from shufflesum.privacy.engine.convolution import trim_above
from shufflesum.privacy.engine.losses import ULP, GridLosses

__all__ = ["Charge", "Filter", "charge_of", "gaussian_charge", "total"]

APART = 0.5
"""The part of delta that is for what may be laid open: mass at infinite loss, and what is cut off."""

_TRIMMED = 1e-4  # of what may be laid open: where the losses of one mechanism may be cut for it
_MOST_EPSILON, _LEAST_DELTA = 1e6, 1e-150  # beyond, limits overflow, are rounded coarsely, or masses are lost
_SUMS = 1.0 + 1e-12  # sums of charges are rounded up


@dataclass(frozen=True, slots=True)
class Charge:
    """What one mechanism costs: the logarithm of its moment, and a chance that everything is laid open."""

    moment: float
    apart: float


@dataclass(frozen=True, slots=True)
class Filter:
    """Limits on the sums of charges under which everything together is (epsilon, delta)-private.

    `order` is that of the moments. Any above 1 is right, if it is the same from the first mechanism to the last.
    """

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        if not (0 < self.epsilon <= _MOST_EPSILON and _LEAST_DELTA <= self.delta < 1 and 1 < self.order < math.inf):
            raise ParameterError(
                "out-of-range",
                f"a budget of epsilon {self.epsilon}, delta {self.delta}: epsilon must be above 0 and at most "
                f"{_MOST_EPSILON:g}, delta at least {_LEAST_DELTA:g} and below 1",
            )

    @staticmethod
    def of(epsilon: float, delta: float) -> Filter:
        """A filter with the order that admits most Gaussian noise, to a tenth of a per cent."""
        Filter(epsilon, delta, 2.0)  # refuses what is no guarantee
        tilts = np.geomspace(2.0**-6, 2.0**20, 6657)
        orders = 1.0 + tilts
        limits = math.log((1.0 - APART) * delta) + tilts * (epsilon - np.log(tilts)) + orders * np.log(orders)
        return Filter(epsilon, delta, float(orders[np.argmax(limits / (tilts * orders))]))

    @property
    def moment_limit(self) -> float:
        """What moments may add up to: log(delta' w^(a-1) a^a/(a-1)^(a-1)), rounded down, delta' the rest of delta."""
        tilt = self.order - 1.0
        left = math.log((1.0 - APART) * self.delta)
        terms = (left, tilt * self.epsilon, self.order * math.log(self.order), -tilt * math.log(tilt))
        return math.fsum(terms) - 16 * ULP * math.fsum(map(abs, terms))

    @property
    def apart_limit(self) -> float:
        """What chances that everything is laid open may add up to."""
        return APART * self.delta * (1.0 - 4 * ULP)

    def admits(self, charges: Iterable[Charge]) -> bool:
        """Whether so much may be spent in all."""
        spent = total(charges)
        return spent.moment <= self.moment_limit and spent.apart <= self.apart_limit

    def part_of(self, charges: Iterable[Charge]) -> float:
        """How much of the limits is spent, of the one that is nearer; 1 is all."""
        spent = total(charges)
        if not self.moment_limit > 0:
            return 0.0 if spent.moment <= 0 and spent.apart <= 0 else math.inf
        return max(spent.moment / self.moment_limit, spent.apart / self.apart_limit)


def total(charges: Iterable[Charge]) -> Charge:
    """The sums, rounded up."""
    listed = list(charges)
    return Charge(
        math.fsum(max(charge.moment, 0.0) for charge in listed) * _SUMS,
        math.fsum(charge.apart for charge in listed) * _SUMS,
    )


def charge_of(pair: GridLosses, within: Filter, rounds: int = 1) -> Charge:
    """What so many mechanisms cost that a symmetric pair dominates; the cheaper of two ways to take far losses."""
    ways = [_charge(each, within) for each in (pair, trim_above(pair, _TRIMMED * within.apart_limit / rounds))]
    all_rounds = [Charge(*(rounds * part * (1.0 + 4 * ULP) for part in (way.moment, way.apart))) for way in ways]
    return min(all_rounds, key=lambda charge: within.part_of([charge]))


def gaussian_charge(mu: float, apart: float, within: Filter) -> Charge:
    """What a mechanism costs that N(mu, 1) against N(0, 1) dominates, up to `apart`."""
    order = within.order
    return Charge(0.5 * order * (order - 1.0) * mu**2 * (1.0 + 16 * ULP), apart * (1.0 + 4 * ULP))


def _charge(pair: GridLosses, within: Filter) -> Charge:
    """log sum P^a Q^(1-a) over finite losses, with masses raised by the factor 1 + error that they may lack.

    As computed, P's total may be above 1 by as much: then it has (1 + error)^2 on finite losses. Masses that are too
    small for double precision, below 1e-200 in all, are laid open with that.
    """
    exponents = (within.order - 0.5) * pair.losses()  # P^a Q^(1-a) of a balanced mass r at loss x: r e^((a - 1/2) x)
    held = pair.balanced > 0.0
    logarithms = np.log(pair.balanced[held]) + exponents[held]
    most = float(np.max(logarithms))
    size = pair.balanced.size
    # a loss, its product with the order, and logarithms are rounded; then so many terms are added up
    doubt = 8 * ULP * (float(np.max(np.abs(exponents))) + float(np.max(np.abs(logarithms))) + size + 64.0)
    moment = most + math.log(float(np.sum(np.exp(logarithms - most)))) + math.log1p(pair.error) + doubt
    more = pair.error * (2.0 + pair.error) + 8 * ULP
    return Charge(max(moment, 0.0), pair.infinite * (1.0 + pair.error) + more * within.apart_limit)
