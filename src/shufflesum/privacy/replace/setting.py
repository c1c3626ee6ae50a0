"""The front of all bounds of `replace`, in the words of a plan: users, levels, noise probability, coordinates, rounds.

Each question has two answers: `upper` is certified for every data set, `lower` is what concrete neighbouring data sets
show, so no analysis can do better. Answers are remembered while the process runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Required, TypedDict, Unpack

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._search import GRID
from shufflesum.errors import ParameterError, PlanError
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.privacy.guarantees import Interval, honest_users
from shufflesum.privacy.replace import blanket, published
from shufflesum.privacy.replace.composed import Blocks
from shufflesum.privacy.replace.uniform import Subsets

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["Sampling", "Setting", "delta_bounds", "epsilon_bounds", "forget", "smallest_noise_probability"]

Sampling = Literal["stratified", "uniform"]

_ANSWERS = 1 << 14  # of each kind that are remembered


@dataclass(frozen=True, slots=True)
class Setting:
    """Who reports what: all that privacy depends on but the noise.

    A user reports `coordinates` of `dimension`, which may be left out for stratified sampling; knowing it can only
    tighten the bounds.
    """

    users: int
    levels: int
    coordinates: int = 1
    rounds: int = 1
    dimension: int | None = None
    sampling: Sampling = "stratified"
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers and combinations that no plan can have."""
        for name, count in (("users", self.users), ("coordinates", self.coordinates), ("rounds", self.rounds)):
            check_size(name, count, 1, blanket.MOST_USERS)
        honest_users(self.users, self.honest_fraction)
        if self.dimension is not None and not 1 <= self.coordinates <= self.dimension:
            raise ParameterError(
                "out-of-range",
                f"coordinates is {self.coordinates}; it must lie between 1 and dimension = {self.dimension}",
            )
        check_choice("sampling", self.sampling, ("stratified", "uniform"))
        if self.sampling == "uniform" and self.coordinates > 1 and self.dimension is None:
            raise ParameterError(
                "missing-argument", "uniform sampling of several coordinates needs the dimension; give dimension"
            )

    @property
    def honest_users(self) -> int:
        """The users whose noise counts."""
        return honest_users(self.users, self.honest_fraction)

    @property
    def subsets_overlap(self) -> bool:
        """Whether users draw subsets of coordinates, so that reports do not fall into independent blocks."""
        return self.sampling == "uniform" and 1 < self.coordinates != self.dimension

    @property
    def scheme(self) -> Blocks | Subsets:
        """What is accounted for: independent blocks, or subsets that overlap."""
        if self.subsets_overlap and self.dimension is not None:
            return Subsets(self.honest_users, self.levels, self.coordinates, self.dimension, self.rounds)
        count = int(self.coordinates) * int(self.rounds)
        return Blocks(self.honest_users, self.levels, count, self.coordinates == self.dimension)

    def delta(self, noise_probability: float, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        upper = self.delta_upper(noise_probability, epsilon)
        return Interval(upper, _delta_lower(self.scheme, noise_probability, epsilon))

    def delta_upper(self, noise_probability: float, epsilon: float) -> float:
        """The certified half of `delta`, alone."""
        check_number("epsilon", epsilon)
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        return _delta_upper(self.scheme, noise_probability, epsilon)

    def epsilon(self, noise_probability: float, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        check_number("delta", delta)
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        return _epsilon(self.scheme, noise_probability, delta)

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """The least noise probability certified for (epsilon, delta): a whole multiple of 2**-53, evaluated as such."""
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        blanket.check_parameters(self.honest_users, self.levels, 1.0)
        return _smallest_noise_probability(self.scheme, epsilon, delta)

    def published_noise_probability(self, epsilon: float, delta: float) -> float:
        """The published formula's noise probability, rounded up to a multiple of 2**-53; refused above 1.

        It counts honest users only. It says nothing about several rounds, nor about stratified sampling of several
        coordinates.
        """
        if self.rounds > 1:
            raise ParameterError(
                "impossible-combination",
                f"rounds is {self.rounds}; the published formula covers one round: accountant='exact'",
            )
        if self.coordinates > 1 and self.sampling != "uniform":
            raise ParameterError(
                "impossible-combination", "the published formula for several coordinates goes with sampling='uniform'"
            )
        if self.dimension is None:
            raise ParameterError("missing-argument", "the published formula needs the dimension; give dimension")
        gamma = published.published_noise_probability(
            users=self.honest_users,
            dimension=self.dimension,
            levels=self.levels,
            coordinates=self.coordinates,
            epsilon=epsilon,
            delta=delta,
        )
        return min(1.0, math.ceil(gamma * GRID) / GRID)

    def to_dp_accounting(
        self, noise_probability: float, *, value_discretization_interval: float = 1e-4
    ) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        interval = value_discretization_interval
        return self.scheme.to_dp_accounting(noise_probability, value_discretization_interval=interval)

    def losses(self, noise_probability: float, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all reports of a user."""
        return self.scheme.losses(noise_probability, interval)

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
                "claim-not-confirmed",
                f"this plan claims epsilon = {epsilon!r}, delta = {delta!r} at noise probability "
                f"{noise_probability!r}, but there {finding}; make a new plan",
            )


# Answers to checked questions: what compares equal as a key (1 and True) must have been refused before.


@lru_cache(maxsize=_ANSWERS)
def _delta_upper(scheme: Blocks | Subsets, noise_probability: float, epsilon: float) -> float:
    return scheme.delta_upper(noise_probability, epsilon)


@lru_cache(maxsize=_ANSWERS)
def _delta_lower(scheme: Blocks | Subsets, noise_probability: float, epsilon: float) -> float:
    return scheme.delta_lower(noise_probability, epsilon)


@lru_cache(maxsize=_ANSWERS)
def _epsilon(scheme: Blocks | Subsets, noise_probability: float, delta: float) -> Interval:
    return Interval(scheme.epsilon_upper(noise_probability, delta), scheme.epsilon_lower(noise_probability, delta))


@lru_cache(maxsize=_ANSWERS)
def _smallest_noise_probability(scheme: Blocks | Subsets, epsilon: float, delta: float) -> float:
    return scheme.smallest_noise_probability(epsilon, delta)


def forget() -> None:
    """Forget all answers, for measurements."""
    for answers in (_delta_upper, _delta_lower, _epsilon, _smallest_noise_probability):
        answers.cache_clear()


class _SettingArguments(TypedDict, total=False):
    users: Required[int]
    levels: Required[int]
    coordinates: int
    rounds: int
    dimension: int | None
    sampling: Sampling
    honest_fraction: float


def delta_bounds(*, noise_probability: float, epsilon: float, **setting: Unpack[_SettingArguments]) -> Interval:
    """The delta that goes with epsilon; the other arguments are those of `Setting`."""
    return Setting(**setting).delta(noise_probability, epsilon)


def epsilon_bounds(*, noise_probability: float, delta: float, **setting: Unpack[_SettingArguments]) -> Interval:
    """The epsilon that goes with delta; the other arguments are those of `Setting`."""
    return Setting(**setting).epsilon(noise_probability, delta)


def smallest_noise_probability(*, epsilon: float, delta: float, **setting: Unpack[_SettingArguments]) -> float:
    """The least noise probability certified for (epsilon, delta); the other arguments are those of `Setting`."""
    return Setting(**setting).smallest_noise_probability(epsilon, delta)
