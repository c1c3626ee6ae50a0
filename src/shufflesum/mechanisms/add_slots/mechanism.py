"""The parameters of `add` with slots, and where its answers are found: every label once, and a few slots of noise.

A user reports the cell of their label, and `slots` further reports: each is, with probability `chance`, a uniform cell,
else blank. Open vocabularies have functions x buckets cells, of which a user reports one: function x buckets + bucket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from shufflesum._checks import check_number, check_size
from shufflesum.cells import MOST_CELLS
from shufflesum.domain import Categories, Domain, Hashed, Neighbours
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.add_slots.accounting import SlotsAccounting
from shufflesum.mechanisms.add_slots.attack import SlotsAttack
from shufflesum.mechanisms.add_slots.encode import SlotsEncoder
from shufflesum.mechanisms.add_slots.error import hashed_error
from shufflesum.mechanisms.add_slots.tally import SlotsTally
from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import ExpectedError, Mechanism, Table
from shufflesum.privacy import Guarantee
from shufflesum.randomness import RandomSource
from shufflesum.randomness.draws import PROBABILITY_BITS

__all__ = ["MOST_SLOTS", "AddSlots", "noise_reports"]

MOST_SLOTS = 1 << 20


@dataclass(frozen=True, slots=True)
class AddSlots(Mechanism):
    """Every user reports their own cell and `slots` more, each of them noise with probability `chance`, else blank."""

    kind: ClassVar[str] = "add-slots"
    word: ClassVar[str] = "add"

    slots: int
    chance: float

    def __post_init__(self) -> None:
        """Refuse what no domain could make sense of, and keep Python's own numbers: others read otherwise in JSON."""
        check_size("slots", self.slots, 1, MOST_SLOTS)
        check_number("chance", self.chance)
        if not 0 <= self.chance < 1 or not float(self.chance * 2.0**PROBABILITY_BITS).is_integer():
            raise ParameterError(
                "out-of-range",
                f"chance is {self.chance!r}; it must be a multiple of 2**-53, at least 0 and below 1",
            )
        object.__setattr__(self, "slots", int(self.slots))
        object.__setattr__(self, "chance", float(self.chance))

    @property
    def noise(self) -> float:
        """Lambda: how many noise reports a user sends on average."""
        return self.slots * self.chance

    def check(self, domain: Domain) -> None:
        """Refuse what is not one label of each user, and more cells than a report can number."""
        _single(domain)
        if isinstance(domain, Hashed) and domain.key is None:
            raise ParameterError("missing-argument", "the key of the hash is missing, without which nobody can report")
        if self.cells(domain) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{self.cells(domain)} cells; the report format has fewer than 2**32: take fewer labels or buckets",
            )

    def cells(self, domain: Domain) -> int:
        """One for each label, or for each bucket of each function."""
        return _single(domain).cells

    def reports(self, domain: Domain) -> int:
        """The user's own and the slots."""
        return 1 + self.slots

    def blanks(self, domain: Domain) -> float:
        """The slots that are not noise."""
        return self.slots - self.noise

    def encoder(self, domain: Domain, source: RandomSource) -> SlotsEncoder:
        """The user's own cell and the slots."""
        return SlotsEncoder(self, _single(domain), source)

    def tally(self, domain: Domain, source: RandomSource) -> SlotsTally:
        """Labels counted, noise drawn once."""
        return SlotsTally(self, _single(domain), source)

    def decode(self, domain: Domain, table: Table, users: int) -> Frequencies:
        """Frequencies of labels, or of the buckets of all functions: in each the same noise, and in all they are 1."""
        return Frequencies(table, users, noise_reports(table, users), 1 / len(table), in_all=True)

    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """Squared error of the frequencies, summed over labels: noise alone, and public.

        Of an open vocabulary: of one word's frequency, for the law of words that `hashed_error` assumes.
        """
        if isinstance(domain, Hashed):
            return hashed_error(domain, users, self.noise)
        cells = domain.dimension
        return ExpectedError(sampling=0.0, rounding=0.0, noise=self.noise * (1 - 1 / cells) / users)

    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> SlotsAccounting:
        """The certified bounds of a report that moves from one cell to another."""
        return SlotsAccounting.of(self, neighbours, guarantee)

    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted or blank, and one of them at least is not blank."""
        own = users - int(table.sum())
        return max(math.ceil(rejected / self.reports(domain)), own)

    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """All reports of the dishonest in one cell."""
        return dishonest * self.reports(domain) / users

    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Any], Table]) -> SlotsAttack:
        """The victim with one label or another."""
        return SlotsAttack(self, _single(domain), guarantee)

    def choices(self) -> dict[str, Any]:
        """The mechanism; slots follow from the guarantee."""
        return {"mechanism": self.word}

    def describe(self, domain: Domain) -> str:
        """What a user sends."""
        own = "the label" if isinstance(domain, Categories) else "one random hash of the word"
        slots = "1 slot that is" if self.slots == 1 else f"{self.slots:,} slots that are each"
        return f"{own}, and {slots} a random cell with probability {self.chance:.3g} and else blank"


def noise_reports(table: Table, users: int) -> int:
    """Reports that are nobody's own: all but one of each user, uniform over the cells whatever the data.

    Dishonest users can make that a negative number, which then counts as 0.
    """
    return max(0, int(table.sum()) - users)


def _single(domain: Domain) -> Categories | Hashed:
    if isinstance(domain, Categories | Hashed):
        return domain
    raise ParameterError(
        "impossible-combination",
        f"mechanism 'add-slots' is for one label of each user, not for {type(domain).__name__}; use 'add' or 'replace'",
    )
