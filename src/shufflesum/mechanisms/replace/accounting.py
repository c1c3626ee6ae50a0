"""The privacy of `replace`: its setting for the accountant, at the noise probability really drawn with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shufflesum.domain import EveryCoordinate, Neighbours, OneCell
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.claims import accountant_of
from shufflesum.privacy import Guarantee, Interval, local_epsilon
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.privacy.replace import Setting

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from shufflesum.mechanisms.replace.mechanism import Replace

__all__ = ["ReplaceAccounting"]


@dataclass(frozen=True, slots=True)
class ReplaceAccounting:
    """All that the guarantee depends on; neighbours may differ in every coordinate that a user reports."""

    setting: Setting
    noise_probability: float

    @staticmethod
    def of(mechanism: Replace, neighbours: Neighbours, guarantee: Guarantee) -> ReplaceAccounting:
        """The accounting of a plan."""
        setting = Setting(
            users=guarantee.users,
            levels=mechanism.levels,
            coordinates=mechanism.coordinates,
            rounds=guarantee.rounds,
            dimension=_places(neighbours),
            sampling=mechanism.sampling,
            honest_fraction=guarantee.honest_fraction,
        )
        return ReplaceAccounting(setting, mechanism.noise_probability)

    @property
    def local_epsilon(self) -> float:
        """What is left for a user if the shuffler colludes with the analyzer, over all reports and rounds."""
        return local_epsilon(
            levels=self.setting.levels,
            noise_probability=self.noise_probability,
            coordinates=self.setting.coordinates,
            rounds=self.setting.rounds,
        )

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        return self.setting.delta(self.noise_probability, epsilon)

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        return self.setting.epsilon(self.noise_probability, delta)

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse a guarantee that the accountant, certified or published, does not confirm."""
        self.setting.check_claim(accountant_of(guarantee), self.noise_probability, guarantee.epsilon, guarantee.delta)

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        return self.setting.losses(self.noise_probability, interval)

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        return self.setting.to_dp_accounting(
            self.noise_probability, value_discretization_interval=value_discretization_interval
        )


def _places(neighbours: Neighbours) -> int:
    """How many coordinates may change: a label counts as one."""
    match neighbours:
        case EveryCoordinate(dimension):
            return dimension
        case OneCell():
            return 1
    raise ParameterError("impossible-combination", f"mechanism 'replace' says nothing of {neighbours}")
