"""The accountant of randomized response, in the words of a plan: users, levels, noise probability, coordinates, rounds.

Answers are remembered while the process runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._search import GRID
from shufflesum.errors import ParameterError
from shufflesum.privacy.accountant import MOST_USERS, Guarantee, PrivacyAccountant, honest_users, local_epsilon
from shufflesum.privacy.engine.pld import PrivacyLossDistribution
from shufflesum.privacy.randomized_response import published
from shufflesum.privacy.randomized_response.blanket import check_parameters
from shufflesum.privacy.randomized_response.schemes import Blocks, Subsets

if TYPE_CHECKING:
    from dp_accounting.pld import privacy_loss_distribution

Sampling = Literal["stratified", "uniform"]

_ANSWERS = 1 << 16  # that are remembered


@dataclass(frozen=True, slots=True)
class RandomizedResponseAccountant(PrivacyAccountant):
    """Of each of `coordinates` a user sends one of levels + 1 values, replaced by a uniform one at random.

    A user reports `coordinates` of `dimension`, which may be left out for stratified sampling; knowing it can only
    tighten the bounds. Adjacent data sets may differ in every coordinate that a user reports. Without noise, which is
    the default, every bound is refused, but `smallest_noise_probability` can be asked for.
    """

    users: int
    levels: int
    noise_probability: float = 0.0
    coordinates: int = 1
    rounds: int = 1
    dimension: int | None = None
    sampling: Sampling = "stratified"
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuse numbers and combinations that no plan can have; the noise is checked by each bound."""
        for name, count in (("users", self.users), ("coordinates", self.coordinates), ("rounds", self.rounds)):
            check_size(name, count, 1, MOST_USERS)
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
    def scheme(self) -> Blocks | Subsets:
        """What is accounted for: independent blocks, or subsets of coordinates that overlap."""
        if self.sampling == "uniform" and self.dimension is not None and 1 < self.coordinates != self.dimension:
            return Subsets(self.honest_users, self.levels, self.coordinates, self.dimension, self.rounds)
        count = int(self.coordinates) * int(self.rounds)
        return Blocks(self.honest_users, self.levels, count, self.coordinates == self.dimension)

    @property
    def local_epsilon(self) -> float:
        """What is left for a user if shuffler and analyzer collude, over all reports and rounds."""
        noise, reports = self.noise_probability, self.coordinates
        return local_epsilon(levels=self.levels, noise_probability=noise, coordinates=reports, rounds=self.rounds)

    def delta_upper(self, epsilon: float) -> float:
        """A delta for which all reports together are certainly (epsilon, delta)-private."""
        return self._answer("epsilon", epsilon, type(self.scheme).delta_upper)

    def delta_lower(self, epsilon: float) -> float:
        """A delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return self._answer("epsilon", epsilon, type(self.scheme).delta_lower)

    def epsilon_upper(self, delta: float) -> float:
        """An epsilon for which all reports together are certainly (epsilon, delta)-private; may be infinite."""
        return self._answer("delta", delta, type(self.scheme).epsilon_upper)

    def epsilon_lower(self, delta: float) -> float:
        """An epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return self._answer("delta", delta, type(self.scheme).epsilon_lower)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all reports of a user."""
        return self.scheme.pld(self.noise_probability, interval)

    def to_dp_accounting(
        self, *, value_discretization_interval: float = 1e-4
    ) -> privacy_loss_distribution.PrivacyLossDistribution:
        """The PLD as one of `dp_accounting`; refused for subsets that overlap, of which only a union bound is known."""
        if isinstance(self.scheme, Subsets):
            raise ParameterError(
                "impossible-combination",
                "uniform sampling of several coordinates has no privacy loss distribution: use stratified",
            )
        return PrivacyAccountant.to_dp_accounting(self, value_discretization_interval=value_discretization_interval)

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """The least noise probability certified for (epsilon, delta): a whole multiple of 2**-53, evaluated as such.

        All other numbers are as they are here; `noise_probability` does not matter.
        """
        check_number("epsilon", epsilon)
        check_number("delta", delta)
        check_parameters(self.honest_users, self.levels, 1.0)
        return _remembered(type(self.scheme).smallest_noise_probability, self.scheme, epsilon, delta)

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

    def _published_objection(self, guarantee: Guarantee) -> str | None:
        needed = self.published_noise_probability(guarantee.epsilon, guarantee.delta)
        if self.noise_probability >= needed:
            return None
        return f"its noise probability is {self.noise_probability!r}, and the published formula asks for {needed!r}"

    def _answer(self, name: str, number: float, question: Callable[..., float]) -> float:
        """Refuse what is no number before it can be taken for one that was answered: True equals 1 as a key."""
        check_number(name, number)
        check_parameters(self.honest_users, self.levels, self.noise_probability)
        return _remembered(question, self.scheme, self.noise_probability, number)


@lru_cache(maxsize=_ANSWERS)
def _remembered(question: Callable[..., float], scheme: Blocks | Subsets, *numbers: float) -> float:
    return question(scheme, *numbers)


def forget() -> None:
    """Forget all answers, for measurements."""
    _remembered.cache_clear()
