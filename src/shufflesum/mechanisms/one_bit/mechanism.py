"""The parameters of random bits for vectors in a ball, and where the answers are found.

A vector is rotated, its D coordinates clipped to C tau/sqrt(D); of each, `bits` random bits are sent, each a one with
probability (1 + amplitude y)/2: the value rounded at random to a bit, which is replaced by a fair one with probability
1 - amplitude. The coin of this rounding is the privacy (docs/privacy-ball.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from shufflesum._checks import check_number, check_size
from shufflesum._format import downwards
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, SignBits
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Mechanism, Search
from shufflesum.mechanisms.one_bit.attack import OneBitAttack
from shufflesum.mechanisms.one_bit.decode import OneBitMeans, ball_error, best_bits, best_tau, crowding
from shufflesum.mechanisms.one_bit.randomize import AMPLITUDE_BITS, OneBitEncoder, OneBitTally
from shufflesum.privacy import Guarantee, OneBitAccountant
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
        check_number("tau", self.tau)
        if not 0 < self.amplitude <= 1 or not float(self.amplitude * 2.0**AMPLITUDE_BITS).is_integer():
            raise ParameterError(
                "out-of-range",
                f"amplitude is {self.amplitude!r}; it must be a multiple of 2**-31, above 0 and at most 1",
            )
        if not 1 <= self.tau <= _MOST_TAU:
            raise ParameterError("out-of-range", f"tau is {self.tau}; it must lie between 1 and {_MOST_TAU:g}")
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
        """Squared error of the mean, summed over entries, whatever the users hold; how they differ does not matter."""
        return ball_error(self, encoding, users)

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
