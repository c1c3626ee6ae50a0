"""The privacy of random bits: the certificate of the ball, at the amplitude really drawn with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shufflesum._checks import check_number
from shufflesum.domain import InBall, Neighbours
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms.claims import check_certified
from shufflesum.privacy import Guarantee, Interval, local_epsilon
from shufflesum.privacy.ball import Certificate
from shufflesum.privacy.engine.losses import GridLosses

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from shufflesum.mechanisms.replace_bits.mechanism import ReplaceBits

__all__ = ["BallAccounting"]


@dataclass(frozen=True, slots=True)
class BallAccounting:
    """All that the guarantee depends on; None where bits carry no noise: nothing is certified then."""

    ball: Certificate | None
    local_epsilon: float
    """What is left for a user if the shuffler colludes with the analyzer, over all reports and rounds."""

    @staticmethod
    def of(mechanism: ReplaceBits, neighbours: Neighbours, guarantee: Guarantee) -> BallAccounting:
        """The accounting of a plan."""
        if not isinstance(neighbours, InBall):
            raise ParameterError("impossible-combination", f"random bits of a ball say nothing of {neighbours}")
        local = local_epsilon(
            levels=1,
            noise_probability=1.0 - mechanism.amplitude,
            coordinates=neighbours.coordinates * mechanism.bits,
            rounds=guarantee.rounds,
        )
        if mechanism.amplitude == 1.0:
            return BallAccounting(None, local)
        ball = Certificate(
            honest_users=guarantee.honest_users,
            coordinates=neighbours.coordinates,
            amplitude=mechanism.amplitude,
            tau=mechanism.tau,
            rounds=guarantee.rounds,
            bits=mechanism.bits,
        )
        return BallAccounting(ball, local)

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        check_number("epsilon", epsilon)
        if self.ball is None:
            return Interval(1.0, 0.0)
        return Interval(self.ball.delta_upper(epsilon), self.ball.delta_lower(epsilon))

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        check_number("delta", delta)
        if self.ball is None:
            return Interval(math.inf, 0.0)
        return Interval(self.ball.epsilon_upper(delta), self.ball.epsilon_lower(delta))

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse a guarantee that the certified accountant does not confirm."""
        check_certified(guarantee, lambda epsilon: 1.0 if self.ball is None else self.ball.delta_upper(epsilon))

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        if self.ball is None:
            raise PrivacyError("not-certified", "bits without noise have no certificate")
        return self.ball.losses(interval)

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """The certified bound as a privacy loss distribution of `dp_accounting`, to compose with other mechanisms."""
        if self.ball is None:
            raise PrivacyError("not-certified", "bits without noise have no certificate to export")
        return self.ball.to_dp_accounting(value_discretization_interval=value_discretization_interval)
