"""Certified privacy of many reports: t coordinates per user in each of T rounds, t*T reports composed.

What composes with what. In the stratified scheme a block is one run of the t = 1 protocol with all n users, on
randomness of its own; so is every round. For neighbours that differ in one user (in all blocks and rounds) the
released tables are a product of t*T independent parts, and each part is dominated by the pair of `blanket` (for any
data of the other users), or, for K = 2 and blocks of one coordinate, by the maximum over all neighbours as well.
Where a part is dominated in this sense (its profile delta(epsilon) is below that of one convex profile, at every
epsilon and in both directions), the product is dominated by the product: the others' data may differ
from block to block, and the worst case may be another one at each epsilon. Rounds may be chosen adaptively.

Upper bounds sample the single profile on a grid, join the points, and convolve; lower bounds do the same
from below with one concrete pair of neighbouring data sets. Errors of truncation, grid and rounding all go against us.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shufflesum.errors import ParameterError
from shufflesum.privacy.engine.composition import (
    MOST_COMPOSITIONS,
    ComposedLower,
    ComposedUpper,
    Factor,
    Profile,
    check_epsilon,
    compose_pairs,
    compose_profiles,
    pure_noise,
)
from shufflesum.privacy.engine.export import check_interval, to_privacy_loss_distribution
from shufflesum.privacy.engine.laws import Floats
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.privacy.replace import binary, blanket
from shufflesum.privacy.replace.calibration import bracket_noise_probability, guess_noise_probability
from shufflesum.privacy.replace.concrete import third_value_losses
from shufflesum.privacy.replace.local import local_epsilon
from shufflesum.privacy.replace.pooled import pooled_delta_lower, pooled_epsilon_lower

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["Blocks", "check_compositions", "deviation_of_loss"]

_NODES = 40  # of the grid per deviation of a concrete pair's loss: cheap, because it is listed outcome by outcome
_SMALL_CROWD = 1000  # up to here the grid of single blocks may lose more than throwing all blocks into one pool does


@dataclass(frozen=True, slots=True)
class Blocks:
    """So many independent blocks in which each of the honest users sends one report: t*T of a stratified plan.

    `single_coordinate`: each block is one coordinate (t = d), which admits the tighter direct bound for levels = 1.
    """

    honest_users: int
    levels: int
    count: int
    single_coordinate: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be certified at any noise."""
        check_compositions(self.count)
        blanket.check_parameters(self.honest_users, self.levels, 1.0)

    @property
    def has_direct_bound(self) -> bool:
        """Whether the bound of `binary` holds, beside the blanket's."""
        return self.levels == 1 and self.single_coordinate

    def delta_upper(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta for which all reports together are certainly (epsilon, delta)-private."""
        if self.count == 1:  # needs no grid
            return float(self._profile(noise_probability)(np.array([check_epsilon(epsilon)]))[0])
        return self.upper(noise_probability).delta(epsilon)

    def delta_lower(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
        if self.count == 1:
            return blanket.delta_lower(self.honest_users, self.levels, noise_probability, check_epsilon(epsilon))
        found = self.lower(noise_probability).delta(epsilon)
        if self.honest_users > _SMALL_CROWD:
            return found
        return max(found, pooled_delta_lower(*self._pool, noise_probability, epsilon))

    def epsilon_upper(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon for which all reports together are certainly (epsilon, delta)-private."""
        if self.count == 1 and not self.has_direct_bound:
            return blanket.epsilon_upper(self.honest_users, self.levels, noise_probability, delta)
        return self.upper(noise_probability).epsilon(delta)

    def epsilon_lower(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        if self.count == 1:
            return blanket.epsilon_lower(self.honest_users, self.levels, noise_probability, delta)
        found = self.lower(noise_probability).epsilon(delta)
        if self.honest_users > _SMALL_CROWD:
            return found
        return max(found, pooled_epsilon_lower(*self._pool, noise_probability, delta))

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly enough, within 1e-4 of the least that can be certified.

        A multiple of 2**-53, at which delta_upper <= delta was evaluated. It exists: 1 is always enough.
        """
        if self.count == 1 and not self.has_direct_bound:
            return blanket.smallest_noise_probability(self.honest_users, self.levels, epsilon, delta)
        guess = self._guess(epsilon, delta, 1 if self.has_direct_bound else self.levels + 1)
        return bracket_noise_probability(self.delta_upper, epsilon, delta, guess=guess, spread=1.03)[1]

    def noise_probability_lower_bound(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly too small, and so is every smaller one; 0 if none is known."""
        if self.count == 1:
            return blanket.noise_probability_lower_bound(self.honest_users, self.levels, epsilon, delta)
        guess = self._guess(epsilon, delta, 1 if self.levels == 1 else self.levels + 1)
        return bracket_noise_probability(self.delta_lower, epsilon, delta, guess=guess, spread=1.03)[0]

    def upper(self, noise_probability: float, *, interval: float | None = None) -> ComposedUpper:
        """Bound all blocks together from above, for every data set, on a grid of `interval` x a power of two."""
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        highest = local_epsilon(levels=self.levels, noise_probability=noise_probability)
        single, rough = self._profile(noise_probability), self._blanket(noise_probability)
        deviation = deviation_of_loss(self.honest_users, self.levels, noise_probability)
        return compose_profiles([Factor(single, deviation, highest, self.count, rough=rough)], interval=interval)

    def lower(self, noise_probability: float) -> ComposedLower:
        """Bound the worst case of all blocks from below: by one pair of data sets, the same in all blocks.

        K >= 3: x against x' among users at a third value. K = 2: 0 against 1 among users at 0, either way round. With
        larger blocks all coordinates hold that value, and forgetting the coordinate leaves the same pairs.
        """
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        if noise_probability == 1.0:
            return ComposedLower((pure_noise(),))
        # few outcomes are not smooth: a finer grid then keeps more of them apart
        deviation = deviation_of_loss(self.honest_users, self.levels, noise_probability)
        step = deviation / (_NODES * min(8.0, max(1.0, 64.0 / self.count)))
        if self.levels == 1:
            singles = binary.one_value_losses(self.honest_users, noise_probability, step)
            return compose_pairs([(single, self.count)] for single in singles)
        single = third_value_losses(self.honest_users, self.levels + 1, noise_probability, step)
        return compose_pairs([[(single, self.count)]])

    def to_dp_accounting(
        self, noise_probability: float, *, value_discretization_interval: float = 1e-4
    ) -> PrivacyLossDistribution:
        """Return a pessimistic distribution of `dp_accounting` that dominates all reports of a user.

        Distributions compose only on the same discretization interval; 1e-4 is the default of that library too. It
        convolves by plain FFT: after composing there, a delta below about 1e-12 means nothing.
        """
        interval = check_interval(value_discretization_interval)
        return to_privacy_loss_distribution(self.losses(noise_probability, interval), interval)

    def losses(self, noise_probability: float, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all reports of a user."""
        return self.upper(noise_probability, interval=interval).losses

    @property
    def _pool(self) -> tuple[int, int, int]:
        return self.honest_users, self.levels + 1, self.count

    def _guess(self, epsilon: float, delta: float, values: int) -> float:
        return guess_noise_probability(self.honest_users / (values * self.count), epsilon, delta)

    def _profile(self, noise_probability: float) -> Profile:
        """The upper bound of delta of one report."""
        general = self._blanket(noise_probability)

        def direct(epsilons: Floats) -> Floats:
            bound = binary.profile_upper(self.honest_users, noise_probability, epsilons)
            return np.minimum(general(epsilons), bound)

        return direct if self.has_direct_bound and noise_probability < 1.0 else general

    def _blanket(self, noise_probability: float) -> Profile:
        return lambda epsilons: blanket.profile_upper(self.honest_users, self.levels, noise_probability, epsilons)


def deviation_of_loss(honest_users: float, levels: int, noise_probability: float) -> float:
    """Return roughly the standard deviation of one report's loss: it sets grids, never bounds."""
    blanket_reports = honest_users * noise_probability
    return min(1.0, (1.0 - noise_probability) * math.sqrt(2.0 * (levels + 1) / blanket_reports))


def check_compositions(count: int) -> None:
    """Refuse fewer than one or too many coordinates x rounds."""
    if not 1 <= count <= MOST_COMPOSITIONS:
        raise ParameterError(
            "out-of-range",
            f"coordinates x rounds = {count}: must lie in 1..{MOST_COMPOSITIONS}; change coordinates or rounds",
        )
