"""The parameters of noise in slots, for labels and words: the own cell, and slots that are a random cell or blank.

The error that is predicted for words of an open vocabulary: docs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size
from shufflesum._compiled import kernel
from shufflesum.cells import MOST_CELLS
from shufflesum.encodings import Encoding, OneHot, OwnCells
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.frequencies import Frequencies
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Mechanism, Search
from shufflesum.mechanisms.noisy_slots.attack import NoisySlotsAttack
from shufflesum.privacy import Guarantee, NoisySlotsAccountant
from shufflesum.privacy.noisy_slots import noise_per_cell_guess, rough_noise_per_cell, smallest_chance
from shufflesum.randomness import PROBABILITY_BITS, RandomSource, add_uniform, binomials, uniform_or_blank

ASSUMED_LAW = (
    "the i-th most frequent of a million words is held in proportion to 1/i, and all frequent ones are asked for"
)

TELLING_FUNCTIONS = 8
"""With fewer a frequent word is not told from one that shares a bucket with it, and none is subtracted."""

_WORDS = 10**6
_HARMONIC = math.log(_WORDS) + 0.5772156649  # the sum of 1/i over all words
_SQUARES = math.pi**2 / 6  # and of 1/i^2
_SEEN = 4.0  # a word that many standard errors above 0 is found, and subtracted from the others'


def hashed_error(encoding: OneHot, users: int, noise: float) -> ExpectedError:
    """Squared error of a word's frequency if words follow Zipf's law, and frequent ones are subtracted.

    A word's buckets hold users/B reports of other words and users x noise/B of noise. Frequent words are taken off up
    to their own chance of being reported there, which is in the first term; those of fewer than c users, too rare to
    be seen, collide as a whole: by the sum of their squares over S B, which is users c/(H S B), H the harmonic sum.
    Where functions are too few to tell, all words collide as a whole.
    """
    functions, buckets = encoding.layout
    per_bucket = users / buckets
    error = per_bucket * (1 + noise)
    if functions < TELLING_FUNCTIONS:
        collisions = per_bucket * (1 + users * _SQUARES / (_HARMONIC**2 * functions))
        return ExpectedError(collisions, rounding=0.0, noise=per_bucket * noise) * users**-2
    for _ in range(20):  # c is a few standard errors, which depend on c
        rare = _SEEN * math.sqrt(error)
        error = per_bucket * (1 + noise + rare / (_HARMONIC * functions))
    return ExpectedError(error - per_bucket * noise, rounding=0.0, noise=per_bucket * noise) * users**-2


MOST_SLOTS = 1 << 20


@dataclass(frozen=True, slots=True)
class NoisySlots(Mechanism):
    """Every user reports their own cell and `slots` more, each of them noise with probability `chance`, else blank."""

    kind: ClassVar[str] = "noisy-slots"
    family: ClassVar[str] = "noisy-counts"
    accepts: ClassVar[type[Encoding]] = OneHot

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
        """Lambda: how many dummy reports a user sends on average."""
        return self.slots * self.chance

    def check(self, encoding: OneHot) -> None:
        """Refuse more cells than a report can number."""
        if self.cells(encoding) > MOST_CELLS:
            raise ParameterError(
                "too-many-cells",
                f"{self.cells(encoding)} cells; the report format has fewer than 2**32: take fewer labels or buckets",
            )

    def cells(self, encoding: OneHot) -> int:
        """One for each label, or for each bucket of each function."""
        return encoding.size

    def reports(self, encoding: OneHot) -> int:
        """The user's own and the slots."""
        return 1 + self.slots

    def blanks(self, encoding: OneHot) -> float:
        """The slots that are not noise."""
        return self.slots - self.noise

    def dummy_reports(self, encoding: OneHot) -> float:
        """Lambda."""
        return self.noise

    def encoder(self, encoding: OneHot, source: RandomSource) -> NoisySlotsEncoder:
        """The user's own cell and the slots."""
        return NoisySlotsEncoder(self, encoding, source)

    def tally(self, encoding: OneHot, source: RandomSource) -> NoisySlotsTally:
        """Labels counted, noise drawn once."""
        return NoisySlotsTally(self, encoding, source)

    def decode(self, encoding: OneHot, table: CountTable, users: int) -> Frequencies:
        """Frequencies of labels, or of the buckets of all functions: in each the same noise, and in all they are 1."""
        return Frequencies(table, users, surplus_reports(table, users), 1 / len(table), in_all=True)

    def expected_error(self, encoding: OneHot, users: int, assumed_std: float | None = None) -> ExpectedError:
        """Squared error of the frequencies, summed over labels: noise alone, and public.

        Of an open vocabulary: of one word's frequency, for the law of words that `hashed_error` assumes.
        """
        if not encoding.names_cells:
            return hashed_error(encoding, users, self.noise)
        cells = encoding.dimension
        return ExpectedError(sampling=0.0, rounding=0.0, noise=self.noise * (1 - 1 / cells) / users)

    def accountant(self, encoding: OneHot, guarantee: Guarantee) -> NoisySlotsAccountant:
        """One report moves from one cell to another; only slots of honest users count."""
        trials = guarantee.honest_users * self.slots
        return NoisySlotsAccountant(trials, self.chance, encoding.layout[1], guarantee.rounds)

    def min_malicious(self, encoding: OneHot, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """Whoever follows the protocol has all reports accepted or blank, and one of them at least is not blank."""
        own = users - int(table.sum())
        return max(math.ceil(rejected / self.reports(encoding)), own)

    def max_shift(self, encoding: OneHot, users: int, malicious: int) -> float:
        """All reports of malicious users in one cell."""
        return malicious * self.reports(encoding) / users

    def attack(
        self, encoding: OneHot, held: auditing.Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> NoisySlotsAttack:
        """The victim with one label or another."""
        return NoisySlotsAttack(self, encoding, held, guarantee)

    @classmethod
    def candidates(cls, encoding: OneHot, search: Search, options: Any = None) -> Iterator[Candidate]:
        """The fewest slots at their smallest certified chance; for an open vocabulary, several sizes of it."""
        if getattr(options, "digits", None) is not None:  # of the same family, for numbers
            raise ParameterError("impossible-combination", "digits are for numbers, not for labels; leave them out")
        return candidates(encoding, search)

    def describe(self, encoding: OneHot) -> str:
        """What a user sends."""
        own = "the label" if encoding.names_cells else "one random hash of the word"
        slots = "1 slot that is" if self.slots == 1 else f"{self.slots:,} slots that are each"
        return f"{own}, and {slots} a random cell with probability {self.chance:.3g} and else blank"


def surplus_reports(table: CountTable, users: int) -> int:
    """Reports that are nobody's own: all but one of each user, uniform over the cells whatever the data.

    Malicious users can make that a negative number, which then counts as 0.
    """
    return max(0, int(table.sum()) - users)


class NoisySlotsEncoder:
    """The users' own cells and their slots, with secure randomness unless a test gives another source."""

    def __init__(self, mechanism: NoisySlots, encoding: OneHot, source: RandomSource) -> None:
        self._mechanism, self._source, self._cells = mechanism, source, encoding.size

    def encode(self, block: OwnCells) -> NDArray[np.uint32]:
        """The cells that these users send: their own and their slots, as many for each, user after user."""
        block.check()
        own, slots = block.draw(self._source), self._mechanism.slots
        sent = np.empty((len(own), 1 + slots), dtype=np.uint32)
        sent[:, 0] = own
        noise = uniform_or_blank(self._source, len(own) * slots, self._mechanism.chance, self._cells)
        sent[:, 1:] = noise.reshape(len(own), slots)
        return sent.reshape(-1)


class NoisySlotsTally:
    """Counts of all rows added so far; the noise comes last, for all users at once, by the same law as their slots'."""

    def __init__(self, mechanism: NoisySlots, encoding: OneHot, source: RandomSource) -> None:
        self._mechanism, self._cells, self._source = mechanism, encoding.size, source

    def add(self, block: OwnCells, table: CountTable) -> None:
        """Count the users' own cells."""
        own = block.draw(self._source)
        cells = own if own.dtype in (np.uint32, np.int64) else own.astype(np.int64)
        if _count(cells, table):
            block.refuse(cells)

    def noise(self, users: int) -> CountTable:
        """Binomial(users x slots, chance) dummy reports, each in a uniform cell."""
        noise = np.zeros(self._cells, dtype=np.int64)
        (reports,) = binomials(self._source, users * self._mechanism.slots, self._mechanism.chance, 1)
        add_uniform(self._source, int(reports), noise)
        return noise


@kernel
def _count(cells: NDArray[Any], table: NDArray[Any]) -> int:
    """Add cells to the table; returns how many are none of its cells, negative ones among them, and were left out."""
    outside = 0
    for cell in cells:
        if 0 <= cell < table.size:
            table[cell] += 1
        else:
            outside += 1
    return outside


MAX_TABLE = 2**24  # buckets of a hash function, at most
_FULL = 0.97  # of the slots noise may fill so many, so that a guess need not be exact
_FUNCTIONS = 64  # unless cells would be too many
_MOST_CELLS = 1 << 25  # that an analyzer's table should have unasked, 256 MiB, unless buckets are millions
_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # that are tried for open vocabularies


def candidates(encoding: OneHot, search: Search) -> Iterator[Candidate]:
    """The fewest slots, at the smallest chance that is certified for the guarantee.

    Sizes of an open vocabulary that are not fixed yet are chosen: as many cells as so many slots carry noise for.
    """
    guarantee, fewest = search.guarantee, 0
    if encoding.names_cells:
        mechanism = _certified(encoding.layout[1], guarantee)
        if search.max_reports is None or mechanism.reports(encoding) <= search.max_reports:
            yield Candidate(mechanism, encoding)
            return
        fewest = mechanism.reports(encoding)
    else:
        noise = noise_per_cell_guess(guarantee.epsilon, guarantee.delta, guarantee.rounds)
        found: set[int] = set()
        offered = False
        for slots in _SLOTS:
            most = min(MAX_TABLE, int(_FULL * slots * guarantee.honest_users / noise))
            cells = encoding.cells or max(2, most)
            if cells in found:
                break
            found.add(cells)
            tables = encoding.tables or max(TELLING_FUNCTIONS, min(_FUNCTIONS, _MOST_CELLS // cells))
            mechanism = _certified(cells, guarantee)
            sized = replace(encoding, cells=cells, tables=tables)
            reports = mechanism.reports(sized)
            if search.max_reports is None or reports <= search.max_reports:
                yield Candidate(mechanism, sized)
                offered = True
            fewest = min(fewest or reports, reports)
        if offered:
            return
    if search.only:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"max_reports is {search.max_reports}, but at least {fewest} reports of a user are needed; raise "
            "max_reports, users or epsilon, or take fewer labels",
        )


def _certified(cells: int, guarantee: Guarantee) -> NoisySlots:
    """As many slots as the noise of so many cells needs, at their smallest chance."""
    honest, asked = guarantee.honest_users, (guarantee.epsilon, guarantee.delta, guarantee.rounds)
    slots = MOST_SLOTS + 1
    if rough_noise_per_cell(*asked) * cells / honest < 2.0 * MOST_SLOTS:  # else there is nothing to look for
        guess = noise_per_cell_guess(*asked) * cells / honest
        slots = max(1, math.ceil(min(guess / _FULL, slots)))
    while slots <= MOST_SLOTS:
        chance = smallest_chance(honest, slots, cells, *asked)
        if chance < 1:
            return NoisySlots(slots, chance)
        slots += math.ceil(0.02 * slots)
    raise PrivacyError(
        "privacy-out-of-reach",
        f"{honest} honest users would need more than {MOST_SLOTS} dummy reports each for {cells} labels; raise users, "
        "epsilon or delta, or take fewer labels",
    )
