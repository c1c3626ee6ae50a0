"""The privacy of `add` with slots: noise of honest users in the cells between which a neighbour's report moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shufflesum._checks import check_number
from shufflesum.domain import Neighbours, OneCell
from shufflesum.mechanisms.claims import check_certified
from shufflesum.privacy import Guarantee, Interval
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.privacy.slots import Slots

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from shufflesum.mechanisms.add_slots.mechanism import AddSlots

__all__ = ["SlotsAccounting"]


@dataclass(frozen=True, slots=True)
class SlotsAccounting:
    """All that the guarantee depends on: one report moves from one cell to another."""

    slots: Slots

    @staticmethod
    def of(mechanism: AddSlots, neighbours: Neighbours, guarantee: Guarantee) -> SlotsAccounting:
        """The accounting of a plan; only slots of honest users count."""
        assert isinstance(neighbours, OneCell)  # `AddSlots.check` lets no other domain pass
        trials = guarantee.honest_users * mechanism.slots
        return SlotsAccounting(Slots(trials, mechanism.chance, neighbours.cells, guarantee.rounds))

    @property
    def local_epsilon(self) -> None:
        """Nothing is left: whoever can link reports to their sender reads the sender's label among a few others."""
        return

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        check_number("epsilon", epsilon)
        return Interval(self.slots.delta_upper(epsilon), self.slots.delta_lower(epsilon))

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        check_number("delta", delta)
        return Interval(self.slots.epsilon_upper(delta), self.slots.epsilon_lower(delta))

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse a guarantee that the certified accountant does not confirm."""
        check_certified(guarantee, self.slots.delta_upper)

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        return self.slots.losses(interval)

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        return self.slots.to_dp_accounting(value_discretization_interval=value_discretization_interval)
