"""One front for all accountants, in the words of a plan: users, levels, noise probability, reports, rounds.

Each question has two answers: `upper` is certified for every data set, `lower` is what concrete neighbouring data sets
show, so no analysis can do better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Required, TypedDict, Unpack

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum.errors import ParameterError, PlanError
from shufflesum.privacy import blanket, composition, published
from shufflesum.privacy._memory import recall, remember
from shufflesum.privacy._search import GRID, crossing_probability

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "Interval",
    "Protocol",
    "delta_bounds",
    "epsilon_bounds",
    "honest_users",
    "smallest_noise_probability",
]


@dataclass(frozen=True, slots=True)
class Interval:
    """A certified upper bound, and a lower bound nobody can beat (0 where none is known)."""

    upper: float
    lower: float


def honest_users(users: int, honest_fraction: float) -> int:
    """The users whose noise counts: max(1, floor(users x honest_fraction))."""
    check_number("honest_fraction", honest_fraction)
    if not 0 < honest_fraction <= 1:
        raise ParameterError(f"honest_fraction is {honest_fraction}; it must lie in (0, 1]")
    return max(1, math.floor(users * honest_fraction))


@dataclass(frozen=True, slots=True)
class Protocol:
    """Who reports what: all of a plan that its privacy depends on, but for the noise.

    `dimension` may be left out for stratified sampling; knowing it can only tighten the bounds.
    """

    users: int
    levels: int
    reports: int = 1
    rounds: int = 1
    dimension: int | None = None
    sampling: Literal["stratified", "uniform"] = "stratified"
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers and combinations that no plan can have."""
        for name, count in (("users", self.users), ("reports", self.reports), ("rounds", self.rounds)):
            check_size(name, count, 1, blanket.MOST_USERS)
        honest_users(self.users, self.honest_fraction)
        if self.dimension is not None and not 1 <= self.reports <= self.dimension:
            raise ParameterError(f"reports is {self.reports}; it must lie between 1 and dimension = {self.dimension}")
        check_choice("sampling", self.sampling, ("stratified", "uniform"))
        if self.sampling == "uniform" and self.reports > 1 and self.dimension is None:
            raise ParameterError("uniform sampling of several reports needs the dimension; give dimension")

    def delta(self, noise_probability: float, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        check_number("epsilon", epsilon)
        question = f"delta {self} {noise_probability!r} {epsilon!r}"
        upper = self.delta_upper(noise_probability, epsilon)
        remembered = recall(question)
        if remembered and 0 <= remembered[0] <= upper:
            return Interval(upper, remembered[0])
        return Interval(upper, *remember(question, self._lower("delta", noise_probability, epsilon)))

    def delta_upper(self, noise_probability: float, epsilon: float) -> float:
        """The certified half of `delta`, alone, and always computed anew."""
        if self.subsets_overlap:
            return composition.uniform_delta_upper(
                self._honest, self.dimension or 1, self.reports, self.levels, noise_probability, epsilon, self.rounds
            )
        return composition.composed_delta_upper(
            self._honest,
            self.levels,
            noise_probability,
            epsilon,
            self._copies,
            single_coordinate_blocks=self._single_blocks,
        )

    def epsilon(self, noise_probability: float, delta: float) -> Interval:
        """The epsilon that goes with delta; a remembered one is certified again before it is returned."""
        check_number("delta", delta)
        question = f"epsilon {self} {noise_probability!r} {delta!r}"
        remembered = recall(question)
        if remembered and 0 <= remembered[-1] <= remembered[0] < math.inf:
            upper, lower = remembered[0], remembered[-1]
            if self.delta_upper(noise_probability, upper) <= delta:
                return Interval(upper, lower)
        upper = self._epsilon_upper(noise_probability, delta)
        return Interval(*remember(question, upper, self._lower("epsilon", noise_probability, delta)))

    def _epsilon_upper(self, noise_probability: float, delta: float) -> float:
        if self.subsets_overlap:
            return _falling_crossing(lambda epsilon: self.delta_upper(noise_probability, epsilon), delta)
        return composition.composed_epsilon_upper(
            self._honest,
            self.levels,
            noise_probability,
            delta,
            self._copies,
            single_coordinate_blocks=self._single_blocks,
        )

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """The least noise probability certified for (epsilon, delta): a whole multiple of 2**-53, evaluated as such.

        A remembered value is evaluated again before it is returned.
        """
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        question = f"noise {self} {epsilon!r} {delta!r}"
        remembered = recall(question)
        if remembered and 0 < remembered[0] <= 1 and (remembered[0] * GRID).is_integer():
            noise_probability = remembered[0]
            if self.delta_upper(noise_probability, epsilon) <= delta:
                return noise_probability
        return remember(question, self._search_noise_probability(epsilon, delta))[0]

    def _search_noise_probability(self, epsilon: float, delta: float) -> float:
        if self.subsets_overlap:
            _, enough = crossing_probability(lambda gamma: self.delta_upper(gamma, epsilon), delta, 0.5, GRID, 1e-4)
            return enough / GRID
        return composition.smallest_noise_probability(
            self._honest, self.levels, epsilon, delta, self._copies, single_coordinate_blocks=self._single_blocks
        )

    def published_noise_probability(self, epsilon: float, delta: float) -> float:
        """The published formula's noise probability, rounded up to a multiple of 2**-53; refused above 1.

        It counts honest users only. It says nothing about several rounds, nor about stratified reports.
        """
        if self.rounds > 1:
            raise ParameterError(f"rounds is {self.rounds}; the published formula covers one round: accountant='exact'")
        if self.reports > 1 and self.sampling != "uniform":
            raise ParameterError("the published formula for several reports goes with sampling='uniform'")
        if self.dimension is None:
            raise ParameterError("the published formula needs the dimension; give dimension")
        gamma = published.published_noise_probability(
            users=self._honest,
            dimension=self.dimension,
            levels=self.levels,
            reports=self.reports,
            epsilon=epsilon,
            delta=delta,
        )
        return min(1.0, math.ceil(gamma * GRID) / GRID)

    def to_dp_accounting(
        self, noise_probability: float, *, value_discretization_interval: float = 1e-4
    ) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        if self.subsets_overlap:
            raise ParameterError("uniform sampling of several reports has no privacy loss distribution: use stratified")
        return composition.to_dp_accounting(
            self._honest,
            self.levels,
            noise_probability,
            self._copies,
            single_coordinate_blocks=self._single_blocks,
            value_discretization_interval=value_discretization_interval,
        )

    def check_claim(
        self, accountant: Literal["exact", "paper"], noise_probability: float, epsilon: float, delta: float
    ) -> None:
        """Refuse a claimed (epsilon, delta) that the accountant does not confirm at this noise probability."""
        if accountant == "paper":
            needed = self.published_noise_probability(epsilon, delta)
            holds, finding = noise_probability >= needed, f"the published formula asks for {needed!r}"
        else:
            certified = self.delta_upper(noise_probability, epsilon)
            holds, finding = certified <= delta, f"delta is up to {certified:.6g}"
        if not holds:
            raise PlanError(
                f"this plan claims epsilon = {epsilon!r}, delta = {delta!r} at noise probability "
                f"{noise_probability!r}, but there {finding}; make a new plan"
            )

    @property
    def _honest(self) -> int:
        return honest_users(self.users, self.honest_fraction)

    @property
    def _copies(self) -> int:
        return self.reports * self.rounds

    @property
    def _single_blocks(self) -> bool:
        return self.reports == self.dimension

    @property
    def subsets_overlap(self) -> bool:
        """Whether users draw subsets of coordinates, so that reports do not fall into independent blocks."""
        return self.sampling == "uniform" and self.reports > 1 and not self._single_blocks

    def _lower(self, what: Literal["delta", "epsilon"], noise_probability: float, given: float) -> float:
        if self.subsets_overlap:
            return 0.0
        bound = composition.composed_delta_lower if what == "delta" else composition.composed_epsilon_lower
        return bound(self._honest, self.levels, noise_probability, given, self._copies)


class _ProtocolArguments(TypedDict, total=False):
    users: Required[int]
    levels: Required[int]
    reports: int
    rounds: int
    dimension: int | None
    sampling: Literal["stratified", "uniform"]
    honest_fraction: float


def delta_bounds(*, noise_probability: float, epsilon: float, **protocol: Unpack[_ProtocolArguments]) -> Interval:
    """The delta that goes with epsilon; the other arguments are those of `Protocol`."""
    return Protocol(**protocol).delta(noise_probability, epsilon)


def epsilon_bounds(*, noise_probability: float, delta: float, **protocol: Unpack[_ProtocolArguments]) -> Interval:
    """The epsilon that goes with delta; the other arguments are those of `Protocol`."""
    return Protocol(**protocol).epsilon(noise_probability, delta)


def smallest_noise_probability(*, epsilon: float, delta: float, **protocol: Unpack[_ProtocolArguments]) -> float:
    """The least noise probability certified for (epsilon, delta); the other arguments are those of `Protocol`."""
    return Protocol(**protocol).smallest_noise_probability(epsilon, delta)


def _falling_crossing(delta_upper: Callable[[float], float], delta: float) -> float:
    """An epsilon at which delta_upper(epsilon) <= delta was evaluated, near the least such; infinity if none to 700."""
    low, high = 0.0, 1.0
    while delta_upper(high) > delta:
        low, high = high, 2 * high
        if high > 700:
            return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_upper(middle) <= delta else (middle, high)
    return high
