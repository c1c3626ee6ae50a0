"""Means of vectors in a ball, and the squared error that is predicted for them (docs/accuracy.md).

n users, D coordinates, r bits of each, norm 1: a mean of vectors in a ball of radius C has C^2 times these errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice
from shufflesum._search import bisect
from shufflesum.encodings import SignBits
from shufflesum.mechanisms.frequencies import quantile
from shufflesum.mechanisms.mechanism import Combined, CountTable, ExpectedError, Floats, Target
from shufflesum.mechanisms.one_bit.randomize import LEVEL_BITS, hadamard
from shufflesum.privacy import Guarantee
from shufflesum.privacy.engine.gaussian import gaussian_noise

if TYPE_CHECKING:
    from shufflesum.mechanisms.one_bit.mechanism import OneBit


_BITS_PER_CROWDING = 10.0  # then one bit's share of the error is about a tenth of the curator's


def clipping_bias(tau: float) -> float:
    """Squared bias, summed over coordinates, if all users hold the same vector of norm 1: E ((|g| - tau)+)^2.

    g is standard normal: a coordinate of a randomly rotated vector, times sqrt(D), is nearly that.
    """
    return max(0.0, 2.0 * ((1.0 + tau**2) * _beyond(tau) - tau * _density(tau)))


def best_tau(users: int, bits: int = 1) -> float:
    """The tau with the least error: the part tau^2/(n r) of the noise, which privacy does not ask for, plus the bias.

    The derivative of the bias is -4 E (g - tau)+, so this tau is 2 n r E (g - tau)+.
    """
    weight = 2.0 * users * bits
    return bisect(lambda tau: tau >= weight * (_density(tau) - tau * _beyond(tau)), 1.0, 12.0, tolerance=1e-9)[1]


def crowding(guarantee: Guarantee, coordinates: int, tau: float) -> float:
    """v = n tau^2/(4 sigma^2 D), sigma the curator's noise multiplier: r bits have about 1 + v/r times his error.

    Where it is large (many users, few coordinates) one bit is not fine enough, and several are worth their reports.
    """
    noise = gaussian_noise(guarantee.epsilon, guarantee.delta)
    return guarantee.users * tau**2 / (4.0 * guarantee.rounds * noise**2 * coordinates)


def best_bits(crowded: float, most: int) -> int:
    """A good number of bits per coordinate, about 10 v, at most so many."""
    return max(1, min(most, math.ceil(_BITS_PER_CROWDING * crowded)))


def bias_square(tau: float, coordinates: int) -> float:
    """Squared bias of the mean in units of the squared clipping norm, if all users hold the same vector of full norm.

    Clipping at tau, and levels of 2^-15, which are at most half a level off. Where tau is above sqrt(D) no coordinate
    can reach its bound.
    """
    clipped = clipping_bias(tau) if tau**2 < coordinates else 0.0
    return clipped + (tau * 2.0 ** -(LEVEL_BITS + 1)) ** 2


def ball_error(mechanism: OneBit, encoding: SignBits, users: int) -> ExpectedError:
    """d (tau/a)^2/(D n r) for the noise, of which d tau^2/(D n r) is rounding to bits; the bias counts as rounding."""
    rounded = encoding.dimension * mechanism.tau**2 / (encoding.coordinates * users * mechanism.bits)
    noise = rounded * (1.0 / mechanism.amplitude**2 - 1.0)
    bias = bias_square(mechanism.tau, encoding.coordinates)
    return ExpectedError(sampling=0.0, rounding=rounded + bias, noise=noise) * encoding.clipping_norm**2


@dataclass(frozen=True, eq=False)
class OneBitMeans:
    """Means of differences to the centre, in units of the clipping norm; `signs` are those of the round."""

    table: NDArray[np.int64]
    """(D, 2): zeros and ones of each rotated coordinate."""
    users: int
    bits: int
    amplitude: float
    tau: float
    signs: NDArray[np.int8]

    @cached_property
    def mean(self) -> Floats:
        """One for each entry, unbiased but for clipping at tau; it can leave the ball."""
        ones_above = (self.table[:, 1] - self.table[:, 0]).astype(np.float64)
        ones_above *= self.tau / (self.users * self.bits * self.amplitude * len(self.table))
        hadamard(ones_above)
        mean: Floats = ones_above[: len(self.signs)] * self.signs
        return mean

    @property
    def report_counts(self) -> CountTable:
        """Every entry is in all reports."""
        return np.full(len(self.signs), self.table.sum())

    @property
    def noise(self) -> float:
        """The variance of an entry, whatever the users hold: (tau/a)^2/(D n r) at most."""
        return (self.tau / self.amplitude) ** 2 / (len(self.table) * self.users * self.bits)

    @property
    def bias(self) -> float:
        """What clipping at tau adds to the squared error of all entries together, at most."""
        return bias_square(self.tau, len(self.table))

    def deviation(self, target: Target) -> float:
        """The standard error in any direction of length 1: noise, an even share of the bias, sampled users.

        Users of a population may differ by as much as the ball allows in just this direction.
        """
        check_choice("target", target, ("users", "population"))
        sampling = 0.0 if target == "users" else 1.0 / self.users
        return math.sqrt(self.noise + self.bias / len(self.table) + sampling)

    def variance(self, target: Target) -> Floats:
        """The squared standard errors, the same for all entries."""
        return np.full(len(self.signs), self.deviation(target) ** 2)

    def reach(self, tail: float, target: Target) -> float:
        """How far an entry is off with probability `tail` at most, on either side.

        A sum of D n r independent signs of equal weight is within half a step of a normal distribution.
        """
        half_step = self.tau / (self.amplitude * math.sqrt(len(self.table)) * self.users * self.bits)
        return quantile(tail) * self.deviation(target) + half_step

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """The rotation makes errors alike in all directions: that of a sum is in proportion to its weights' norm."""
        length, value = float(np.linalg.norm(weights)), float(weights @ self.mean)
        off = length * self.reach(tail, target)
        return Combined(value, (length * self.deviation(target)) ** 2, value - off, value + off)

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Ends that the true mean lies beyond with probability at most `tail`, each."""
        reach = self.reach(tail, target)
        return self.mean - reach, self.mean + reach


def _density(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _beyond(x: float) -> float:
    return 0.5 * math.erfc(x / math.sqrt(2.0))
