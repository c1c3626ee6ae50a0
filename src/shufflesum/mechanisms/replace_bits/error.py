"""The squared error that is predicted for vectors in a ball (docs/accuracy.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shufflesum.domain import Ball
from shufflesum.mechanisms.mechanism import ExpectedError
from shufflesum.mechanisms.replace_bits.rotate import LEVEL_BITS
from shufflesum.privacy.ball import clipping_bias

if TYPE_CHECKING:
    from shufflesum.mechanisms.replace_bits.mechanism import ReplaceBits

__all__ = ["ball_error", "bias_square"]


def bias_square(tau: float, coordinates: int) -> float:
    """Squared bias of the mean in units of the squared radius, if all users hold the same vector of full norm.

    Clipping at tau, and levels of 2^-15, which are at most half a level off. Where tau is above sqrt(D) no coordinate
    can reach its bound.
    """
    clipped = clipping_bias(tau) if tau**2 < coordinates else 0.0
    return clipped + (tau * 2.0 ** -(LEVEL_BITS + 1)) ** 2


def ball_error(mechanism: ReplaceBits, domain: Ball, users: int) -> ExpectedError:
    """d (tau/a)^2/(D n r) for the noise, of which d tau^2/(D n r) is rounding to bits; the bias counts as rounding."""
    rounded = domain.dimension * mechanism.tau**2 / (domain.padded * users * mechanism.bits)
    noise = rounded * (1.0 / mechanism.amplitude**2 - 1.0)
    bias = bias_square(mechanism.tau, domain.padded)
    return ExpectedError(sampling=0.0, rounding=rounded + bias, noise=noise) * domain.radius**2
