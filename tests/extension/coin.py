"""A toy mechanism over an existing encoding: a user's own cell, or by a fair coin a uniform one.

It is randomized response at one noise probability, one half, and sends one report. What it shares with the mechanism
of the package is the accountant, which knows numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum.cells import BLANK
from shufflesum.encodings import Encoding, Levels, OneHot, OwnCells
from shufflesum.errors import PrivacyError
from shufflesum.mechanisms.auditing import Attack, Held
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Mechanism, Search
from shufflesum.mechanisms.randomized_response import RandomizedResponse
from shufflesum.mechanisms.randomized_response.decode import RandomizedResponseFrequencies, labels_error
from shufflesum.mechanisms.rounding import EncodedTally
from shufflesum.privacy import Guarantee, PrivacyAccountant
from shufflesum.randomness import RandomSource, uniform_or_blank


@dataclass(frozen=True, slots=True)
class FairCoin(Mechanism):
    """Heads, the truth; tails, any cell."""

    kind: ClassVar[str] = "fair-coin"
    family: ClassVar[str] = "fair-coin"
    accepts: ClassVar[type[Encoding]] = OneHot

    sides: int = 2

    def _twin(self, encoding: OneHot) -> tuple[RandomizedResponse, Levels]:
        return RandomizedResponse(1, encoding.size - 1, 0.5), Levels(1, levels=encoding.size - 1)

    def check(self, encoding: OneHot) -> None:
        self._twin(encoding)[0].check(self._twin(encoding)[1])

    def cells(self, encoding: OneHot) -> int:
        return encoding.size

    def reports(self, encoding: OneHot) -> int:
        return 1

    def blanks(self, encoding: OneHot) -> float:
        return 0.0

    def encoder(self, encoding: OneHot, source: RandomSource) -> _Coins:
        return _Coins(encoding.size, source)

    def tally(self, encoding: OneHot, source: RandomSource) -> EncodedTally:
        return EncodedTally(self.encoder(encoding, source), encoding.size)

    def decode(self, encoding: OneHot, table: CountTable, users: int) -> RandomizedResponseFrequencies:
        return RandomizedResponseFrequencies(table, users, 0.5)

    def expected_error(self, encoding: OneHot, users: int, assumed_std: float | None = None) -> ExpectedError:
        return labels_error(encoding.size, 0.5, users)

    def accountant(self, encoding: OneHot, guarantee: Guarantee) -> PrivacyAccountant:
        mechanism, levels = self._twin(encoding)
        return mechanism.accountant(levels, guarantee)

    def min_malicious(self, encoding: OneHot, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        return blanks + rejected

    def max_shift(self, encoding: OneHot, users: int, malicious: int) -> float:
        return 2 * malicious / users

    def attack(
        self, encoding: OneHot, held: Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> Attack:
        mechanism, levels = self._twin(encoding)
        return mechanism.attack(levels, held, guarantee, sample_table)

    @classmethod
    def candidates(cls, encoding: OneHot, search: Search, options: Any = None) -> Iterator[Candidate]:
        guarantee = search.guarantee
        if cls().accountant(encoding, guarantee).delta(guarantee.epsilon).upper <= guarantee.delta:
            yield Candidate(cls(), encoding)
        elif search.only:
            raise PrivacyError("privacy-out-of-reach", "a fair coin is not enough noise; raise users or epsilon")

    def describe(self, encoding: OneHot) -> str:
        return "the own cell, or by a fair coin a random one"


@dataclass(frozen=True, slots=True)
class _Coins:
    cells: int
    source: RandomSource

    def encode(self, block: OwnCells) -> NDArray[np.uint32]:
        block.check()
        own = block.draw(self.source)
        sent = uniform_or_blank(self.source, len(own), 0.5, self.cells)
        np.copyto(sent, own.astype(np.uint32), where=sent == BLANK)
        return sent
