"""The privacy of `add`: the cells of each digit as groups for the accountant, and the charge for the cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shufflesum._checks import check_number
from shufflesum.domain import EveryCoordinate, Neighbours, SomeCells, TwoGroups
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.claims import check_certified
from shufflesum.privacy import Guarantee, Interval
from shufflesum.privacy.add import Cells, Group, choices, overflow_upper
from shufflesum.privacy.engine.losses import GridLosses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from shufflesum.mechanisms.add.mechanism import Add

__all__ = ["AddAccounting", "user_noise"]


def _sizes(mechanism: Add, neighbours: Neighbours) -> list[int]:
    """How many cells each class of `Layout` has, as far as privacy depends on it."""
    match neighbours:
        case EveryCoordinate(dimension):
            return [dimension] * mechanism.digits
        case SomeCells(cells, _):
            return [cells]
        case TwoGroups(groups, dimension):
            return [groups * dimension] * mechanism.digits + [groups]
    raise ParameterError("impossible-combination", f"mechanism 'add' says nothing of {neighbours}")


def user_noise(mechanism: Add, neighbours: Neighbours) -> list[tuple[int, float]]:
    """The trials of one user's noise, all cells of a class together."""
    sizes = _sizes(mechanism, neighbours)
    return [(size * q, p) for size, q, p in zip(sizes, mechanism.trials, mechanism.probabilities, strict=True)]


def _changed(mechanism: Add, neighbours: Neighbours, honest: int, rounds: int) -> tuple[Group, ...]:
    """The cells in which neighbours may differ, with the noise of honest users."""
    noise = [(honest * q, p) for q, p in zip(mechanism.trials, mechanism.probabilities, strict=True)]
    match neighbours:
        case SomeCells(cells, most):
            ((trials, p),) = noise
            return choices(trials=trials, probability=p, labels=cells, most=most, rounds=rounds)
        case TwoGroups(_, dimension):
            pairs = [dimension * rounds] * mechanism.digits + [rounds]
            return tuple(Group(*each, copies, "paired") for each, copies in zip(noise, pairs, strict=True))
    sizes = _sizes(mechanism, neighbours)
    return tuple(Group(*each, size * rounds, at_once=size) for each, size in zip(noise, sizes, strict=True))


@dataclass(frozen=True, slots=True)
class AddAccounting:
    """All that the guarantee depends on; neighbours may differ in every digit, of every coordinate or of two groups."""

    cells: Cells

    @staticmethod
    def of(mechanism: Add, neighbours: Neighbours, guarantee: Guarantee) -> AddAccounting:
        """The accounting of a plan; only noise of honest users counts."""
        honest, rounds = guarantee.honest_users, guarantee.rounds
        groups = _changed(mechanism, neighbours, honest, rounds)
        if mechanism.cap is None:
            return AddAccounting(Cells(groups))
        exceeded = overflow_upper(user_noise(mechanism, neighbours), mechanism.cap)
        return AddAccounting(Cells(groups, min(1.0, rounds * honest * exceeded)))

    @property
    def local_epsilon(self) -> None:
        """Nothing is left: whoever can link reports to their sender reads the sender's digits."""
        return

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        check_number("epsilon", epsilon)
        return Interval(self.cells.delta_upper(epsilon), self.cells.delta_lower(epsilon))

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        check_number("delta", delta)
        return Interval(self.cells.epsilon_upper(delta), self.cells.epsilon_lower(delta))

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse a guarantee that the certified accountant does not confirm."""
        check_certified(guarantee, self.cells.delta_upper)

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        return self.cells.losses(interval)

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        return self.cells.to_dp_accounting(value_discretization_interval=value_discretization_interval)
