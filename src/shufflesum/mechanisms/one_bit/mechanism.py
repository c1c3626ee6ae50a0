"""The parameters of random bits for vectors in a ball, and where the answers are found.

A vector is rotated, its D coordinates clipped to C tau/sqrt(D); of each, `bits` random bits are sent, each a one with
probability (1 + amplitude y)/2: the value rounded at random to a bit, which is replaced by a fair one with probability
1 - amplitude. The coin of this rounding is the privacy (docs/privacy-ball.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_choice, check_number, check_size
from shufflesum._format import downwards
from shufflesum._search import bisect
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, SignBits
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.frequencies import quantile
from shufflesum.mechanisms.mechanism import (
    Candidate,
    Combined,
    CountTable,
    ExpectedError,
    Floats,
    Mechanism,
    Search,
    Target,
)
from shufflesum.mechanisms.one_bit.attack import OneBitAttack
from shufflesum.mechanisms.one_bit.randomize import AMPLITUDE_BITS, LEVEL_BITS, OneBitEncoder, OneBitTally, hadamard
from shufflesum.privacy import Guarantee, OneBitAccountant
from shufflesum.privacy.engine.gaussian import gaussian_noise
from shufflesum.privacy.one_bit import largest_amplitude
from shufflesum.randomness import RandomSource

MOST_BITS = 1 << 20
_MOST_TAU = 2.0**20


@dataclass(frozen=True, slots=True)
class OneBit(Mechanism):
    """Every user sends `bits` random bits of each rotated coordinate, of this `amplitude`, clipped at `tau`."""

    kind: ClassVar[str] = "one-bit"
    family: ClassVar[str] = "one-bit"
    accepts: ClassVar[type[Encoding]] = SignBits

    bits: int
    amplitude: float
    tau: float

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("bits", self.bits, 1, MOST_BITS)
        check_number("amplitude", self.amplitude)
        check_number("tau", self.tau, least=1, most=_MOST_TAU)
        if not 0 < self.amplitude <= 1 or not float(self.amplitude * 2.0**AMPLITUDE_BITS).is_integer():
            raise ParameterError(
                "out-of-range",
                f"amplitude is {self.amplitude!r}; it must be a multiple of 2**-31, above 0 and at most 1",
            )
        for name, number in (("bits", int), ("amplitude", float), ("tau", float)):
            object.__setattr__(self, name, number(getattr(self, name)))

    @property
    def numerator(self) -> int:
        """The amplitude in whole numbers of 2^-31."""
        return int(self.amplitude * 2.0**AMPLITUDE_BITS)

    def check(self, encoding: SignBits) -> None:
        """Refuse more reports than can be numbered."""
        if max(self.cells(encoding), self.reports(encoding)) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{encoding.coordinates} coordinates with {self.bits} bits each; there are fewer than 2**32 cells, and "
                "nobody can send more reports: lower the dimension or the bits",
            )

    def cells(self, encoding: SignBits) -> int:
        """Two for each rotated coordinate."""
        return 2 * encoding.coordinates

    def reports(self, encoding: SignBits) -> int:
        """One for each bit, never a blank."""
        return self.bits * encoding.coordinates

    def blanks(self, encoding: SignBits) -> float:
        """None."""
        return 0.0

    def encoder(self, encoding: SignBits, source: RandomSource) -> OneBitEncoder:
        """Rotation and coins."""
        return OneBitEncoder(self, encoding, source)

    def tally(self, encoding: SignBits, source: RandomSource) -> OneBitTally:
        """The same bits, counted where they are tossed."""
        return OneBitTally(self, encoding, source)

    def decode(self, encoding: SignBits, table: CountTable, users: int) -> OneBitMeans:
        """Means of differences to the centre, in units of the clipping norm."""
        return OneBitMeans(table.reshape(-1, 2), users, self.bits, self.amplitude, self.tau, encoding.signs)

    def expected_error(self, encoding: SignBits, users: int, assumed_std: float | None = None) -> ExpectedError:
        """Squared error of the mean, summed over entries, whatever the users hold; how they differ does not matter.

        d (tau/a)^2/(D n r) for the noise, of which d tau^2/(D n r) is rounding to bits; the bias counts as rounding.
        """
        rounded = encoding.dimension * self.tau**2 / (encoding.coordinates * users * self.bits)
        noise, bias = rounded * (1.0 / self.amplitude**2 - 1.0), bias_square(self.tau, encoding.coordinates)
        return ExpectedError(sampling=0.0, rounding=rounded + bias, noise=noise) * encoding.clipping_norm**2

    def accountant(self, encoding: SignBits, guarantee: Guarantee) -> OneBitAccountant:
        """The certified bounds of vectors in a ball."""
        honest, rounds = guarantee.honest_users, guarantee.rounds
        return OneBitAccountant(honest, encoding.coordinates, self.amplitude, self.tau, rounds, self.bits)

    def min_malicious(self, encoding: SignBits, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted, as many of each coordinate, and none blank."""
        counts = table.reshape(-1, 2).sum(axis=1)
        short, over = users * self.bits - int(counts.min()), int(counts.max()) - users * self.bits
        return max(
            math.ceil((blanks + rejected) / self.reports(encoding)),
            math.ceil(short / self.bits),
            math.ceil(over / (self.bits * (len(counts) - 1))),
        )

    def max_shift(self, encoding: SignBits, users: int, malicious: int) -> float:
        """All reports of malicious users chosen for one entry: tau/a radii, where chance had as much opposite."""
        return malicious / users * 2.0 * self.tau / self.amplitude

    def attack(
        self, encoding: SignBits, held: auditing.Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> OneBitAttack:
        """The victim at one end of an axis or at the other, which is everywhere after the rotation."""
        return OneBitAttack(self, encoding, held, guarantee)

    @classmethod
    def candidates(cls, encoding: SignBits, search: Search, options: Any = None) -> Iterator[Candidate]:
        """So many bits of each coordinate that more would hardly help."""
        yield Candidate(best(encoding, search.guarantee, search.max_reports), encoding)

    @classmethod
    def alternatives(cls, encoding: SignBits, search: Search) -> Iterator[Candidate]:
        """One bit of each coordinate, four, sixteen, and so on up to the best number."""
        chosen, bits = best(encoding, search.guarantee, None), 1
        while bits < chosen.bits:
            yield Candidate(best(encoding, search.guarantee, bits * encoding.coordinates), encoding)
            bits *= 4
        yield Candidate(chosen, encoding)

    def describe(self, encoding: SignBits) -> str:
        """What a user sends."""
        bits = "1 random bit" if self.bits == 1 else f"{self.bits:,} random bits"
        return (
            f"{bits} of each of {encoding.coordinates:,} rotated coordinates (clipped at {self.tau:.3g} times their "
            f"mean size), each replaced by a fair one with probability {downwards(1 - self.amplitude, 5)}"
        )


_UNASKED_REPORTS = 1 << 17  # of a user: half a mebibyte, unless one bit of each coordinate is more already
_TAU_STEPS = 1024
_LOWER = 1.0 - 2.0**-20


def best(encoding: SignBits, guarantee: Guarantee, max_reports: int | None) -> OneBit:
    """So many bits of each coordinate that more would hardly help, at their best tau and largest amplitude."""
    coordinates = encoding.coordinates
    most = (max_reports or max(_UNASKED_REPORTS, coordinates)) // coordinates
    if most < 1:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"max_reports is {max_reports}, but one bit of each of {coordinates} coordinates (the dimension "
            f"{encoding.dimension}, padded) takes as many reports; raise max_reports",
        )
    tau = _tau(guarantee.users, 1, coordinates)
    bits = best_bits(crowding(guarantee, coordinates, tau), min(most, MOST_BITS))
    return _certified(bits, _tau(guarantee.users, bits, coordinates), encoding, guarantee)


def _tau(users: int, bits: int, coordinates: int) -> float:
    """The best tau, in steps that are short to write; no coordinate is above sqrt(D), so more would be in vain."""
    best = min(best_tau(users, bits), math.sqrt(coordinates))
    return max(1.0, math.ceil(best * _TAU_STEPS) / _TAU_STEPS)


def _certified(bits: int, tau: float, encoding: SignBits, guarantee: Guarantee) -> OneBit:
    coordinates = encoding.coordinates
    found = largest_amplitude(
        honest_users=guarantee.honest_users,
        coordinates=coordinates,
        tau=tau,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        rounds=guarantee.rounds,
        bits=bits,
    )
    numerator = math.floor(found * 2.0**AMPLITUDE_BITS)
    while numerator > 0:
        mechanism = OneBit(bits, numerator * 2.0**-AMPLITUDE_BITS, tau)
        if mechanism.accountant(encoding, guarantee).delta_upper(guarantee.epsilon) <= guarantee.delta:
            return mechanism
        numerator = math.floor(numerator * _LOWER)  # a coarser grid may cost a rounding of the bounds
    raise PrivacyError(
        "privacy-out-of-reach",
        f"no bit that says more than 2**-31 is certified for epsilon = {guarantee.epsilon}, delta = {guarantee.delta} "
        f"with {guarantee.honest_users} honest users and {coordinates} coordinates; raise users or epsilon",
    )


# ---- Means of vectors in a ball, and the squared error that is predicted for them (docs/accuracy.md).
#
# n users, D coordinates, r bits of each, norm 1: a mean of vectors in a ball of radius C has C^2 times these errors.


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
