"""Filters for mechanisms that are chosen one after the other, in view of all results so far (docs/privacy.md, 21).

Each mechanism is charged for its noise, and apart from that for the chance that everything is laid open. As long as
both sums stay below limits that were fixed before the first result, everything together is (epsilon, delta)-private,
however mechanisms were chosen. Noise is measured in one of two ways: by the Gaussian pair that dominates a mechanism's
pair, or by a moment of its losses. The first gives away less, unless noise is so little that losses are lopsided.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._search import bisect, geometric_mean
from shufflesum.errors import ParameterError
from shufflesum.privacy.engine.convolution import trim_above
from shufflesum.privacy.engine.gaussian import dominates, profile_upper
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.losses import ULP, GridLosses

__all__ = ["Charge", "Filter", "Gaussian", "Moments", "check_guarantee", "filters_of", "total"]

_APART = (0.5, 0.25, 0.75)  # parts of delta that are for what may be laid open
_LEANS = (1.0, 0.8, 0.65)  # of orders above 1, times the one for Gaussian noise: smaller ones mind far losses less
_SHARES = [0.999 * 2.0**-k for k in range(17)]  # of what may be laid open: what one mechanism may spend on less noise
_TOLERANCE = 1e-5  # of the least Gaussian shift
_MOST_EPSILON, _LEAST_DELTA = 1e6, 1e-150  # beyond, limits overflow, are rounded coarsely, or masses are lost
_SUMS = 1.0 + 1e-12  # sums of charges are rounded up


@dataclass(frozen=True, slots=True)
class Charge:
    """What a mechanism costs: for its noise, as its filter measures it, and a chance that everything is laid open."""

    noise: float
    apart: float


@dataclass(frozen=True, slots=True)
class Filter(ABC):
    """Limits on the sums of charges under which everything together is (epsilon, delta)-private.

    `apart` is the part of delta that is for what may be laid open: mass at infinite loss, and what is cut off.
    """

    epsilon: float
    delta: float
    apart: float

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        check_guarantee(self.epsilon, self.delta)
        if not 0 < self.apart < 1:
            raise ParameterError("out-of-range", f"apart must be between 0 and 1, not {self.apart}")

    @property
    @abstractmethod
    def noise_limit(self) -> float:
        """What charges for noise may add up to, rounded down."""

    @property
    def apart_limit(self) -> float:
        """What chances that everything is laid open may add up to."""
        return self.apart * self.delta * (1.0 - 4 * ULP)

    @abstractmethod
    def charge(self, pair: GridLosses, rounds: int = 1) -> Charge:
        """What so many mechanisms cost that a symmetric pair dominates."""

    @abstractmethod
    def charge_gaussian(self, mu: float, apart: float) -> Charge:
        """What a mechanism costs that N(mu, 1) against N(0, 1) dominates, up to `apart`."""

    def admits(self, charges: Iterable[Charge]) -> bool:
        """Whether so much may be spent in all."""
        spent = total(charges)
        return spent.noise <= self.noise_limit and spent.apart <= self.apart_limit

    def part_of(self, charges: Iterable[Charge]) -> float:
        """How much of the limits is spent, of the one that is nearer; 1 is all."""
        spent = total(charges)
        if not self.noise_limit > 0:
            return 0.0 if spent.noise <= 0 and spent.apart <= 0 else math.inf
        return max(spent.noise / self.noise_limit, spent.apart / self.apart_limit)

    def _cheapest(self, ways: Iterable[Charge], rounds: int) -> Charge:
        """Of several valid charges of one round the one of which most fit, for all rounds; rounded up."""
        more = rounds * (1.0 + 4 * ULP)
        return min((Charge(way.noise * more, way.apart * more) for way in ways), key=lambda way: self.part_of([way]))


def check_guarantee(epsilon: float, delta: float) -> None:
    """Refuse what no filter can be for."""
    if not (0 < epsilon <= _MOST_EPSILON and _LEAST_DELTA <= delta < 1):
        raise ParameterError(
            "out-of-range",
            f"a budget of epsilon {epsilon}, delta {delta}: epsilon must be above 0 and at most {_MOST_EPSILON:g}, "
            f"delta at least {_LEAST_DELTA:g} and below 1",
        )


def filters_of(epsilon: float, delta: float) -> list[Filter]:
    """Filters to choose from before the first result: none admits most of every kind of mechanism."""
    return [
        within
        for apart in _APART
        for within in (Gaussian(epsilon, delta, apart), *(Moments.of(epsilon, delta, apart, lean) for lean in _LEANS))
    ]


def total(charges: Iterable[Charge]) -> Charge:
    """The sums, rounded up."""
    listed = list(charges)
    return Charge(
        math.fsum(max(charge.noise, 0.0) for charge in listed) * _SUMS,
        math.fsum(charge.apart for charge in listed) * _SUMS,
    )


@dataclass(frozen=True, slots=True)
class Gaussian(Filter):
    """Noise is measured by mu^2 of a pair N(mu, 1) against N(0, 1) that dominates a mechanism's, up to a chance."""

    @property
    def noise_limit(self) -> float:
        """The square of the largest mu whose pair is (epsilon, delta')-private, delta' the rest of delta."""
        return _largest_shift(self.epsilon, (1.0 - self.apart) * self.delta) ** 2 * (1.0 - 4 * ULP)

    def charge(self, pair: GridLosses, rounds: int = 1) -> Charge:
        """The more may be laid open, the smaller mu is: the cheapest of some ways to share out what may be."""
        losses, heights = pair.heights_above()
        must, most = float(heights[-1]), math.sqrt(self.noise_limit)
        spare = max(0.0, self.apart_limit / rounds - must)
        chances = [must + share * spare for share in _SHARES]
        ways = [self.charge_gaussian(_least_shift(losses, heights, chance, most), chance) for chance in chances]
        return self._cheapest(ways, rounds)

    def charge_gaussian(self, mu: float, apart: float) -> Charge:
        """What a mechanism costs that N(mu, 1) against N(0, 1) dominates, up to `apart`."""
        return Charge(mu**2 * (1.0 + 16 * ULP), apart * (1.0 + 4 * ULP))


def _least_shift(losses: Floats, heights: Floats, apart: float, most: float) -> float:
    """A mu, nearly the least, with which G_mu + apart is above these heights; infinite if none up to `most` is."""
    least = 1e-9 * most
    return bisect(
        lambda mu: dominates(mu, losses, heights, apart), least, most, tolerance=_TOLERANCE, middle=geometric_mean
    )[1]


@lru_cache(maxsize=256)
def _largest_shift(epsilon: float, delta: float) -> float:
    """A mu, nearly the largest, with G_mu(e^epsilon) <= delta; G_mu(w) <= G_mu(1) < mu/2, so delta is one."""
    allowed, at = delta * (1.0 - 4 * ULP), np.array([epsilon])
    most = 2.0 * (math.sqrt(2.0 * epsilon) + 40.0)  # nothing is private there
    too_large = bisect(
        lambda mu: profile_upper(mu, at)[0] > allowed, allowed, most, tolerance=1e-12, middle=geometric_mean
    )
    return too_large[0]


@dataclass(frozen=True, slots=True)
class Moments(Filter):
    """Noise is measured by the logarithm of a moment of a mechanism's losses.

    `order` is that of the moments. Any above 1 is right, if it is the same from the first mechanism to the last.
    """

    order: float

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        Filter.__post_init__(self)
        if not 1 < self.order < math.inf:
            raise ParameterError("out-of-range", f"order must be above 1, not {self.order}")

    @staticmethod
    def of(epsilon: float, delta: float, apart: float, lean: float = 1.0) -> Moments:
        """A filter with the order that admits most Gaussian noise, of some thousand from 1.016 on, or a smaller one."""
        Moments(epsilon, delta, apart, 2.0)  # refuses what is no guarantee
        tilts = np.geomspace(2.0**-6, 2.0**20, 6657)
        orders = 1.0 + tilts
        limits = math.log((1.0 - apart) * delta) + tilts * (epsilon - np.log(tilts)) + orders * np.log(orders)
        return Moments(epsilon, delta, apart, 1.0 + lean * float(tilts[np.argmax(limits / (tilts * orders))]))

    @property
    def noise_limit(self) -> float:
        """log(delta' w^(a-1) a^a/(a-1)^(a-1)), w = e^epsilon, delta' the rest of delta."""
        tilt = self.order - 1.0
        left = math.log((1.0 - self.apart) * self.delta)
        terms = (left, tilt * self.epsilon, self.order * math.log(self.order), -tilt * math.log(tilt))
        return math.fsum(terms) - 16 * ULP * math.fsum(map(abs, terms))

    def charge(self, pair: GridLosses, rounds: int = 1) -> Charge:
        """Far losses may be cut, and laid open instead: the cheapest of some ways, that of leaving all among them."""
        spare = max(0.0, self.apart_limit / rounds - pair.infinite)
        cut = [trim_above(pair, share * spare) for share in _SHARES]
        return self._cheapest([self._moment(each) for each in (pair, *cut)], rounds)

    def charge_gaussian(self, mu: float, apart: float) -> Charge:
        """What a mechanism costs that N(mu, 1) against N(0, 1) dominates, up to `apart`."""
        return Charge(0.5 * self.order * (self.order - 1.0) * mu**2 * (1.0 + 16 * ULP), apart * (1.0 + 4 * ULP))

    def _moment(self, pair: GridLosses) -> Charge:
        """log sum P^a Q^(1-a) over finite losses, with masses raised by the factor 1 + error that they may lack.

        As computed, P's total may be above 1 by as much: then it has (1 + error)^2 on finite losses. Masses that are
        too small for double precision, below 1e-200 in all, are laid open with that.
        """
        exponents = (self.order - 0.5) * pair.losses()  # P^a Q^(1-a) of a balanced mass r at loss x: r e^((a - 1/2) x)
        held = pair.balanced > 0.0
        logarithms = np.log(pair.balanced[held]) + exponents[held]
        most = float(np.max(logarithms))
        size = pair.balanced.size
        # a loss, its product with the order, and logarithms are rounded; then so many terms are added up
        doubt = 8 * ULP * (float(np.max(np.abs(exponents))) + float(np.max(np.abs(logarithms))) + size + 64.0)
        moment = most + math.log(float(np.sum(np.exp(logarithms - most)))) + math.log1p(pair.error) + doubt
        more = pair.error * (2.0 + pair.error) + 8 * ULP
        return Charge(max(moment, 0.0), pair.infinite * (1.0 + pair.error) + more * self.apart_limit)
