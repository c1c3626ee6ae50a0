"""The parameters of random bits for vectors in a ball, and where the answers are found.

A vector is rotated, its D coordinates clipped to C tau/sqrt(D); of each, `bits` random bits are sent, each a one with
probability (1 + amplitude y)/2: the value rounded at random to a bit, which is replaced by a fair one with probability
1 - amplitude. The coin of this rounding is the privacy (docs/privacy-ball.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from shufflesum._checks import check_number, check_size
from shufflesum._rounding import downwards
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Ball, Domain, Neighbours
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.mechanism import ExpectedError, Mechanism, Table
from shufflesum.mechanisms.replace_bits.accounting import BallAccounting
from shufflesum.mechanisms.replace_bits.attack import BitsAttack
from shufflesum.mechanisms.replace_bits.coin import AMPLITUDE_BITS
from shufflesum.mechanisms.replace_bits.decode import BallMeans
from shufflesum.mechanisms.replace_bits.encode import BitsEncoder, BitsTally
from shufflesum.mechanisms.replace_bits.error import ball_error
from shufflesum.privacy import Guarantee
from shufflesum.randomness import RandomSource

__all__ = ["MOST_BITS", "ReplaceBits", "as_ball"]

MOST_BITS = 1 << 20
_MOST_TAU = 2.0**20


@dataclass(frozen=True, slots=True)
class ReplaceBits(Mechanism):
    """Every user sends `bits` random bits of each rotated coordinate, of this `amplitude`, clipped at `tau`."""

    kind: ClassVar[str] = "replace-bits"
    word: ClassVar[str] = "replace"

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

    def check(self, domain: Domain) -> None:
        """Refuse what is no ball with a seed, and more reports than can be numbered."""
        ball = as_ball(domain)
        ball.drawn_seed()
        if max(self.cells(ball), self.reports(ball)) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{ball.padded} coordinates with {self.bits} bits each; the report format has fewer than 2**32 cells, "
                "and nobody can send more reports: lower the dimension or the bits",
            )

    def cells(self, domain: Domain) -> int:
        """Two for each rotated coordinate."""
        return 2 * as_ball(domain).padded

    def reports(self, domain: Domain) -> int:
        """One for each bit, never a blank."""
        return self.bits * as_ball(domain).padded

    def blanks(self, domain: Domain) -> float:
        """None."""
        return 0.0

    def encoder(self, domain: Domain, source: RandomSource) -> BitsEncoder:
        """Rotation and coins."""
        return BitsEncoder(self, as_ball(domain), source)

    def tally(self, domain: Domain, source: RandomSource) -> BitsTally:
        """The same bits, counted where they are tossed."""
        return BitsTally(self, as_ball(domain), source)

    def decode(self, domain: Domain, table: Table, users: int) -> BallMeans:
        """Means of differences to the centre, in units of the radius."""
        return BallMeans(
            table=table.reshape(-1, 2),
            users=users,
            bits=self.bits,
            amplitude=self.amplitude,
            tau=self.tau,
            signs=as_ball(domain).signs(),
        )

    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """Squared error of the mean, summed over entries, whatever the users hold; their spread does not matter."""
        return ball_error(self, as_ball(domain), users)

    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> BallAccounting:
        """The certified bounds of vectors in a ball."""
        return BallAccounting.of(self, neighbours, guarantee)

    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted, as many of each coordinate, and none blank."""
        places = table.reshape(-1, 2).sum(axis=1)
        short, over = users * self.bits - int(places.min()), int(places.max()) - users * self.bits
        return max(
            math.ceil((blanks + rejected) / self.reports(domain)),
            math.ceil(short / self.bits),
            math.ceil(over / (self.bits * (len(places) - 1))),
        )

    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """All reports of the dishonest chosen for one entry: tau/a radii, where chance had as much opposite."""
        return dishonest / users * 2.0 * self.tau / self.amplitude

    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Any], Table]) -> BitsAttack:
        """The victim at one end of an axis or at the other, which is everywhere after the rotation."""
        return BitsAttack(self, as_ball(domain), guarantee)

    def choices(self) -> dict[str, Any]:
        """The mechanism; bits, amplitude and tau follow from the guarantee."""
        return {"mechanism": self.word}

    def describe(self, domain: Domain) -> str:
        """What a user sends."""
        bits = "1 random bit" if self.bits == 1 else f"{self.bits:,} random bits"
        return (
            f"{bits} of each of {as_ball(domain).padded:,} rotated coordinates (clipped at {self.tau:.3g} times their "
            f"mean size), each replaced by a fair one with probability {downwards(1 - self.amplitude, 5)}"
        )


def as_ball(domain: Domain) -> Ball:
    """The domain where it must be a ball; anything else is refused."""
    if isinstance(domain, Ball):
        return domain
    raise ParameterError(
        "impossible-combination",
        f"mechanism 'replace-bits' is for vectors with a bounded norm, not for {type(domain).__name__}; use 'replace' "
        "or 'add'",
    )
