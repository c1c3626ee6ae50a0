"""Privacy filters: for mechanisms that are chosen one after the other, in view of all results (docs/privacy.md, 21).

Each mechanism costs some privacy loss and, apart from that, some delta: the chance that everything is revealed. As long
as both sums stay below limits that were fixed before the first result, everything together is (epsilon, delta)-private,
however mechanisms were chosen. Privacy loss is measured in one of three ways: by mu of the Gaussian pair that dominates
a mechanism's PLD (GDP), by a Renyi moment of it, or by an epsilon (basic composition). The first gives away least,
unless noise is so little that losses are lopsided; the last does for few mechanisms whose losses are bounded, as with
Laplace noise.
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
from shufflesum.privacy.engine.gaussian import dominates, gaussian_profile_upper
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.pld import ULP, PrivacyLossDistribution, trim_above

_DELTA_SHARES = (0.5, 0.25, 0.75)  # parts of delta that are for what may be revealed
_ORDER_FACTORS = (1.0, 0.8, 0.65)  # of order - 1, times that for Gaussian noise: smaller ones mind far losses less
_SHARES = [0.999 * 2.0**-k for k in range(17)]  # of what may be revealed: what one mechanism may spend on less noise
_TOLERANCE = 1e-5  # of the least Gaussian shift
_MOST_EPSILON, _LEAST_DELTA = 1e6, 1e-150  # beyond, limits overflow, are rounded coarsely, or masses are lost
_LEAST_PART = 1e-9
_SUMS = 1.0 + 1e-12  # sums of costs are rounded up


@dataclass(frozen=True, slots=True)
class PrivacyCost:
    """What a mechanism costs: privacy loss, as its filter measures it, and a chance that everything is revealed."""

    privacy_loss: float
    delta: float


@dataclass(frozen=True, slots=True)
class PrivacyFilter(ABC):
    """Limits on the sums of costs under which everything together is (epsilon, delta)-private.

    `delta_share` is the part of delta that is for what may be revealed: mass at infinite loss, and what is cut off. The
    rest is for finite losses above epsilon.
    """

    epsilon: float
    delta: float
    delta_share: float

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        check_guarantee(self.epsilon, self.delta)
        if not 0 < self.delta_share < 1:
            raise ParameterError("out-of-range", f"delta_share must be between 0 and 1, not {self.delta_share}")

    @property
    @abstractmethod
    def loss_limit(self) -> float:
        """What privacy losses may add up to, rounded down."""

    @property
    def delta_limit(self) -> float:
        """What chances that everything is revealed may add up to."""
        return self.delta_share * self.delta * (1.0 - 4 * ULP)

    @abstractmethod
    def cost(self, pld: PrivacyLossDistribution, rounds: int = 1) -> PrivacyCost:
        """What so many mechanisms cost that a symmetric PLD dominates."""

    @abstractmethod
    def gaussian_cost(self, mu: float, delta: float, rounds: int = 1) -> PrivacyCost:
        """What so many equal mechanisms cost that N(mu, 1) against N(0, 1) dominates together, up to `delta`.

        Each by itself is dominated by N(mu / sqrt(rounds), 1), up to delta / rounds.
        """

    def epsilon_of(self, part: float) -> float:
        """Roughly, the part of a mechanism's epsilon that costs this part of its cost: costs grow with the square."""
        return math.sqrt(part)

    def admits(self, costs: Iterable[PrivacyCost]) -> bool:
        """Whether so much may be spent in all."""
        spent = total(costs)
        return spent.privacy_loss <= self.loss_limit and spent.delta <= self.delta_limit

    def part_of(self, costs: Iterable[PrivacyCost]) -> float:
        """How much of the limits is spent, of the one that is nearer; 1 is all."""
        spent = total(costs)
        if not self.loss_limit > 0:
            return 0.0 if spent.privacy_loss <= 0 and spent.delta <= 0 else math.inf
        return max(spent.privacy_loss / self.loss_limit, spent.delta / self.delta_limit)

    def times(self, costs: Iterable[PrivacyCost]) -> float:
        """How many times all this may be spent, the last time in part; a billion stands for any more."""
        return 1.0 / max(self.part_of(costs), _LEAST_PART)

    def _cheapest(self, ways: Iterable[PrivacyCost], rounds: int) -> PrivacyCost:
        """Of several valid costs of one round the one of which most fit, for all rounds; rounded up."""
        more = rounds * (1.0 + 4 * ULP)
        costs = (PrivacyCost(way.privacy_loss * more, way.delta * more) for way in ways)
        return min(costs, key=lambda cost: self.part_of([cost]))


def check_guarantee(epsilon: float, delta: float) -> None:
    """Refuse what no filter can be for."""
    if not (0 < epsilon <= _MOST_EPSILON and _LEAST_DELTA <= delta < 1):
        raise ParameterError(
            "out-of-range",
            f"a budget of epsilon {epsilon}, delta {delta}: epsilon must be above 0 and at most {_MOST_EPSILON:g}, "
            f"delta at least {_LEAST_DELTA:g} and below 1",
        )


def privacy_filters(epsilon: float, delta: float) -> list[PrivacyFilter]:
    """Filters to choose from before the first result: none admits most of every kind of mechanism."""
    found: list[PrivacyFilter] = []
    for share in _DELTA_SHARES:
        found.append(GaussianFilter(epsilon, delta, share))
        found += [RenyiFilter.of(epsilon, delta, share, factor) for factor in _ORDER_FACTORS]
    return [*found, BasicFilter(epsilon, delta)]


def total(costs: Iterable[PrivacyCost]) -> PrivacyCost:
    """The sums, rounded up."""
    listed = list(costs)
    return PrivacyCost(
        math.fsum(max(cost.privacy_loss, 0.0) for cost in listed) * _SUMS,
        math.fsum(cost.delta for cost in listed) * _SUMS,
    )


@dataclass(frozen=True, slots=True)
class GaussianFilter(PrivacyFilter):
    """Privacy loss is mu^2 of a pair N(mu, 1) against N(0, 1) that dominates a mechanism's, up to a chance."""

    @property
    def loss_limit(self) -> float:
        """The square of the largest mu whose pair is (epsilon, delta')-private, delta' the rest of delta."""
        return _largest_shift(self.epsilon, (1.0 - self.delta_share) * self.delta) ** 2 * (1.0 - 4 * ULP)

    def cost(self, pld: PrivacyLossDistribution, rounds: int = 1) -> PrivacyCost:
        """The more may be revealed, the smaller mu is: the cheapest of some ways to share out what may be."""
        losses, heights = pld.heights_above()
        must, most = float(heights[-1]), math.sqrt(self.loss_limit)
        spare = max(0.0, self.delta_limit / rounds - must)
        chances = [must + share * spare for share in _SHARES]
        ways = [self.gaussian_cost(_least_shift(losses, heights, chance, most), chance) for chance in chances]
        return self._cheapest(ways, rounds)

    def gaussian_cost(self, mu: float, delta: float, rounds: int = 1) -> PrivacyCost:
        """However many share it: the sum is the same."""
        return PrivacyCost(mu**2 * (1.0 + 16 * ULP), delta * (1.0 + 4 * ULP))


def _least_shift(losses: Floats, heights: Floats, delta: float, most: float) -> float:
    """A mu, nearly the least, with which G_mu + delta is above these heights; infinite if none up to `most` is."""
    least = 1e-9 * most
    return bisect(
        lambda mu: dominates(mu, losses, heights, delta), least, most, tolerance=_TOLERANCE, middle=geometric_mean
    )[1]


@lru_cache(maxsize=256)
def _largest_shift(epsilon: float, delta: float) -> float:
    """A mu, nearly the largest, with G_mu(e^epsilon) <= delta; G_mu(w) <= G_mu(1) < mu/2, so delta is one."""
    allowed, at = delta * (1.0 - 4 * ULP), np.array([epsilon])
    most = 2.0 * (math.sqrt(2.0 * epsilon) + 40.0)  # nothing is private there
    too_large = bisect(
        lambda mu: gaussian_profile_upper(mu, at)[0] > allowed, allowed, most, tolerance=1e-12, middle=geometric_mean
    )
    return too_large[0]


@dataclass(frozen=True, slots=True)
class RenyiFilter(PrivacyFilter):
    """Privacy loss is the logarithm of a moment of a mechanism's PLD: (order - 1) times its Renyi divergence.

    `order` is that of the moments. Any above 1 is right, if it is the same from the first mechanism to the last.
    """

    order: float

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        PrivacyFilter.__post_init__(self)
        if not 1 < self.order < math.inf:
            raise ParameterError("out-of-range", f"order must be above 1, not {self.order}")

    @staticmethod
    def of(epsilon: float, delta: float, delta_share: float, order_factor: float = 1.0) -> RenyiFilter:
        """A filter with the order that admits most Gaussian noise, of some thousand from 1.016 on, or a smaller one."""
        RenyiFilter(epsilon, delta, delta_share, 2.0)  # refuses what is no guarantee
        tilts = np.geomspace(2.0**-6, 2.0**20, 6657)
        orders = 1.0 + tilts
        limits = math.log((1.0 - delta_share) * delta) + tilts * (epsilon - np.log(tilts)) + orders * np.log(orders)
        best = float(tilts[np.argmax(limits / (tilts * orders))])
        return RenyiFilter(epsilon, delta, delta_share, 1.0 + order_factor * best)

    @property
    def loss_limit(self) -> float:
        """log(delta' w^(a-1) a^a/(a-1)^(a-1)), w = e^epsilon, delta' the rest of delta."""
        tilt = self.order - 1.0
        left = math.log((1.0 - self.delta_share) * self.delta)
        terms = (left, tilt * self.epsilon, self.order * math.log(self.order), -tilt * math.log(tilt))
        return math.fsum(terms) - 16 * ULP * math.fsum(map(abs, terms))

    def cost(self, pld: PrivacyLossDistribution, rounds: int = 1) -> PrivacyCost:
        """Far losses may be cut, and count as revealed: the cheapest of some ways, that of leaving all among them."""
        spare = max(0.0, self.delta_limit / rounds - pld.infinity_mass)
        cut = [trim_above(pld, share * spare) for share in _SHARES]
        return self._cheapest([self._moment(each) for each in (pld, *cut)], rounds)

    def gaussian_cost(self, mu: float, delta: float, rounds: int = 1) -> PrivacyCost:
        """However many share it: the sum is the same."""
        return PrivacyCost(0.5 * self.order * (self.order - 1.0) * mu**2 * (1.0 + 16 * ULP), delta * (1.0 + 4 * ULP))

    def _moment(self, pld: PrivacyLossDistribution) -> PrivacyCost:
        """log sum P^a Q^(1-a) over finite losses, with masses raised by the factor 1 + error that they may lack.

        As computed, P's total may be above 1 by as much: then it has (1 + error)^2 on finite losses. Masses that are
        too small for double precision, below 1e-200 in all, count as revealed with that.
        """
        # P^a Q^(1-a) of a symmetrised mass r at loss x is r e^((a - 1/2) x)
        exponents = (self.order - 0.5) * pld.losses()
        held = pld.symmetrised > 0.0
        if not held.any():
            return PrivacyCost(0.0, max(1.0, pld.infinity_mass))
        logarithms = np.log(pld.symmetrised[held]) + exponents[held]
        most = float(np.max(logarithms))
        size = pld.symmetrised.size
        # a loss, its product with the order, and logarithms are rounded; then so many terms are added up
        relative_error_bound = (
            8 * ULP * (float(np.max(np.abs(exponents))) + float(np.max(np.abs(logarithms))) + size + 64.0)
        )
        moment = (
            most + math.log(float(np.sum(np.exp(logarithms - most)))) + math.log1p(pld.error) + relative_error_bound
        )
        more = pld.error * (2.0 + pld.error) + 8 * ULP
        return PrivacyCost(max(moment, 0.0), pld.infinity_mass * (1.0 + pld.error) + more * self.delta_limit)


_BASIC_DELTA_SHARE = 1.0  # nothing is left for losses above epsilon, since there are none
_NODES = 4097  # of the polygon above a Gaussian profile
_ALL = 1.0 - 1e-9  # of what may be revealed, so that a budget admits a plan of its own guarantee: sums are rounded up


@dataclass(frozen=True, slots=True)
class BasicFilter(PrivacyFilter):
    """Privacy loss is an epsilon, and both are added up: basic composition (Rogers et al., 2016)."""

    delta_share: float = _BASIC_DELTA_SHARE

    def __post_init__(self) -> None:
        """Refuse what is no guarantee."""
        check_guarantee(self.epsilon, self.delta)
        if self.delta_share != _BASIC_DELTA_SHARE:
            raise ParameterError("out-of-range", f"delta_share must be 1 for sums of epsilon, not {self.delta_share}")

    @property
    def loss_limit(self) -> float:
        """Epsilon."""
        return self.epsilon * (1.0 - 4 * ULP)

    def cost(self, pld: PrivacyLossDistribution, rounds: int = 1) -> PrivacyCost:
        """An (epsilon, delta) that the PLD has, the cheapest of some."""
        return self._cheapest_sum(*pld.heights_above(), rounds)

    def gaussian_cost(self, mu: float, delta: float, rounds: int = 1) -> PrivacyCost:
        """Of each round by itself, since others may come between them: more than of all together."""
        losses = np.linspace(0.0, self.epsilon, _NODES)
        each = max(mu / math.sqrt(rounds) * (1.0 + 4 * ULP), 1e-9)  # a profile rises with mu
        heights = gaussian_profile_upper(each, losses) + delta / rounds
        return self._cheapest_sum(losses, np.minimum.accumulate(heights * (1.0 + 8 * ULP)), rounds)

    def epsilon_of(self, part: float) -> float:
        """Costs grow as epsilon does."""
        return part

    def _cheapest_sum(self, losses: Floats, heights: Floats, rounds: int) -> PrivacyCost:
        """Of some points of a falling polygon above a profile the one of which most fit, and then spends least in all.

        The polygon is given by its heights at losses from 0 on; after the last it is level.
        """
        must, limit = float(heights[-1]), self.delta_limit / rounds
        spare = max(0.0, limit - must)
        chances = [min(must + share * spare, float(heights[0])) for share in (_ALL, *_SHARES)]
        more = rounds * (1.0 + 4 * ULP)
        costs = [PrivacyCost(_epsilon_at(losses, heights, chance) * more, chance * more) for chance in chances]

        def order(cost: PrivacyCost) -> tuple[int, float]:
            both = cost.privacy_loss / self.loss_limit + cost.delta / self.delta_limit
            return -math.floor(self.times([cost])), both

        return min(costs, key=order)


def _epsilon_at(losses: Floats, heights: Floats, delta: float) -> float:
    """The least loss where a falling polygon in e^loss is at most `delta`, rounded up; it is so at the last one."""
    last = int(np.searchsorted(-heights, -delta))  # the first whose height is at most that
    if last == 0:
        return 0.0
    before, above = float(losses[last - 1]), float(heights[last - 1])
    edge = (above - delta) / (above - float(heights[last]))
    return (before + math.log1p(min(1.0, edge) * math.expm1(float(losses[last]) - before))) * (1.0 + 16 * ULP)
