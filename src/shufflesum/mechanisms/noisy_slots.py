"""The parameters of noise in slots, for labels and words: the own cell, and slots that are a random cell or blank.

The error that is predicted for words of an open vocabulary: docs/accuracy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size
from shufflesum.cells import BLANK, MOST_CELLS, count_cells
from shufflesum.encodings import Encoding, OneHot, OwnCells
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.mechanisms import auditing
from shufflesum.mechanisms.auditing import CellGroup, Events, ExpectedCounts, Revealed, Variant
from shufflesum.mechanisms.frequencies import BinomialNoise, Frequencies
from shufflesum.mechanisms.mechanism import Candidate, CountTable, ExpectedError, Floats, Mechanism, Search
from shufflesum.privacy import Guarantee, NoisySlotsAccountant
from shufflesum.privacy.engine.laws import binomial_window
from shufflesum.privacy.noisy_slots import noise_per_cell_guess, rough_noise_per_cell, smallest_chance
from shufflesum.randomness import PROBABILITY_BITS, RandomSource, add_uniform, binomials, uniform_or_blank

ASSUMED_LAW = (
    "the i-th most frequent of a million words is held in proportion to 1/i, and all frequent ones are asked for"
)

TELLING_FUNCTIONS = 8
"""With fewer a frequent word is not told from one that shares a bucket with it, and none is subtracted."""

_WORDS = 10**6
HARMONIC = math.log(_WORDS) + 0.5772156649  # the sum of 1/i over all words
ZIPF_SQUARES = math.pi**2 / 6  # and of 1/i^2
SEEN = 4.0  # a word that many standard errors above 0 is found, and subtracted from the others'


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
        collisions = per_bucket * (1 + users * ZIPF_SQUARES / (HARMONIC**2 * functions))
        return ExpectedError(collisions, rounding=0.0, noise=per_bucket * noise) * users**-2
    for _ in range(20):  # c is a few standard errors, which depend on c
        rare = SEEN * math.sqrt(error)
        error = per_bucket * (1 + noise + rare / (HARMONIC * functions))
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
                "out-of-range", f"chance is {self.chance!r}; it must be a multiple of 2**-53, at least 0 and below 1"
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
        noise = BinomialNoise(surplus_reports(table, users), 1 / len(table), in_all=True)
        return Frequencies(table, users, noise, one_each=True)

    def expected_error(self, encoding: OneHot, users: int, assumed_std: float | None = None) -> ExpectedError:
        """Squared error of the frequencies, summed over labels: noise alone, and public.

        Of an open vocabulary: of one word's frequency, for the distribution of words that `hashed_error` assumes.
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
    """Counts of all rows added so far; noise comes last, for all users at once, distributed as that of their slots."""

    def __init__(self, mechanism: NoisySlots, encoding: OneHot, source: RandomSource) -> None:
        self._mechanism, self._cells, self._source = mechanism, encoding.size, source

    def add(self, block: OwnCells, table: CountTable) -> None:
        """Count the users' own cells."""
        own = block.draw(self._source)
        cells = own if own.dtype in (np.uint32, np.int64) else own.astype(np.int64)
        if count_cells(cells, table):
            block.refuse(cells)

    def noise(self, users: int) -> CountTable:
        """Binomial(users x slots, chance) dummy reports, each in a uniform cell."""
        noise = np.zeros(self._cells, dtype=np.int64)
        (reports,) = binomials(self._source, users * self._mechanism.slots, self._mechanism.chance, 1)
        add_uniform(self._source, int(reports), noise)
        return noise


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


# ---- the attack of an audit ------------------------------------------------------------------------------------------
#
# What an audit attacks under `noisy-counts` with slots: a victim with one label or another, among users with a third.
#
# Crowds of users with known labels show how much noise there is: what is reported beyond the labels. Where slots are
# noise at whatever chance, each in a uniform cell, bounds on the observed chance tell what the running randomizer
# reveals.

_CROWDS = 6  # a label of each; in all of them every cell's noise is looked at
_EASY_USERS = 50_000_000
_TRIED_WORDS = 4096  # among which words are looked for that share few buckets


@dataclass(frozen=True)
class NoisySlotsAttack(auditing.Attack):
    """Crowds that hold one label each."""

    mechanism: NoisySlots
    encoding: OneHot

    @cached_property
    def _labels(self) -> list[Any]:
        """x, x', v, and a few others; of words, those that share the fewest buckets. Of two buckets there is no v."""
        if self.encoding.names_cells:
            return self._examples(auditing.evenly_spaced(self.encoding.size, _CROWDS))
        words = self._examples(range(_TRIED_WORDS))
        buckets, shared, found = self._tables(words), np.zeros(_TRIED_WORDS, dtype=np.int64), [0]
        for _ in range(min(2, self.encoding.layout[1] - 1)):
            shared += (buckets == buckets[found[-1]]).sum(axis=1)  # a word shares all with itself
            found.append(int(shared.argmin()))
        return [words[number] for number in found]

    @cached_property
    def _own(self) -> list[NDArray[np.int64]]:
        """The cells where each crowd's own reports may lie: one for a label, one of each function for a word."""
        return self._cells_of(self._labels)

    def _cells_of(self, labels: list[Any]) -> list[NDArray[np.int64]]:
        return list(self._tables(labels))

    @cached_property
    def _varied(self) -> list[Any]:
        """Labels all over the domain, or words."""
        if self.encoding.names_cells:
            return self._examples(auditing.variants_of(self.encoding.size, 1))
        return self._examples(range(_TRIED_WORDS, _TRIED_WORDS + len(auditing.variants_of(1 << 20, 1))))

    def _examples(self, cells: Iterable[int]) -> list[Any]:
        return [self.held.example(cells=[int(cell)]) for cell in cells]

    def _tables(self, labels: list[Any]) -> NDArray[np.int64]:
        """The cell of each label in every table."""
        tables: NDArray[np.int64] = self.held.block(self.held.rows(labels)).of_all_tables()
        return tables

    @cached_property
    def _own_of_all(self) -> list[NDArray[np.int64]]:
        return [*self._own, *self._cells_of(self._varied)]

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What each crowd holds."""
        return tuple(self._labels)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Other labels."""
        return tuple(Variant("one label", label) for label in self._varied)

    @property
    def others(self) -> Any:
        """v; of two labels, x."""
        return self._labels[2 % len(self._labels)]

    @property
    def samples(self) -> int:
        """Enough users to see noise often, times what they send."""
        users = min(_EASY_USERS, int(auditing.NOISY_REPORTS / self.mechanism.noise) + 1)
        return users * self.mechanism.reports(self.encoding)

    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """The dummy reports of all crowds together, and the slots behind them."""
        seen = sum(int(table.sum()) for table in tables) - sum(users)
        return np.array([[max(0, seen)]]), np.array([[sum(users) * self.mechanism.slots]])

    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """What a batch shows at least: at the largest chance, because noise hides the more the more there is."""
        chance = min(float(upper[0, 0]), 1.0)
        certified = self.mechanism.accountant(self.encoding, self.guarantee)
        shown = replace(certified, chance=max(chance, 2.0**-53))
        return Revealed(chance / self.mechanism.chance, shown.epsilon_lower(self.delta))

    def score(self, table: CountTable) -> float:
        """How much likelier a table is with the victim at x: log of its reports there over those at x'."""
        other = self._labels.index(self.others)
        honest = self.guarantee.honest_users - 1
        x, second = (
            float(table[own].sum()) - honest * (number == other)
            for number, own in zip(range(2), self._own, strict=False)
        )
        return float(np.log(max(x, 0.5) / max(second, 0.5)))

    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """Noise in all and in each cell beyond the users' own, and how own reports are shared out among functions."""
        noise, cells, functions = [], [], []
        chance, size = self.mechanism.chance, self.encoding.size
        for table, own, held, whose in zip(tables, self._own, users, self._labels, strict=True):
            label = repr(whose).replace("{", "{{").replace("}", "}}")  # names have braces where indices go
            slots = held * self.mechanism.slots
            noise.append(
                ExpectedCounts(f"noise beside {label}", np.array([int(table.sum()) - held]), slots, np.array([chance]))
            )
            others = np.ones(size, dtype=bool)
            others[own] = False
            name = f"noise beside {label} in cell {{}} of the others"
            cells.append(ExpectedCounts(name, table[others], slots, np.full(int(others.sum()), chance / size)))
            if len(own) == 1:
                seen, chances = table[own] - held, np.array([chance / size])
                cells.append(ExpectedCounts(f"noise in the cell of {label}", seen, slots, chances))
            else:
                # own reports and noise have chances of their own; as trials of their mean they vary no less
                trials = held + slots
                chances = np.full(len(own), (held / len(own) + slots * chance / size) / trials)
                functions.append(ExpectedCounts(f"reports of {label} by function {{}}", table[own], trials, chances))
        return [noise, cells, *([functions] if functions else [])]

    def cell_groups(self, number: int) -> list[CellGroup]:
        """Noise in all, and in half of the cells that are nobody's own."""
        own, size, slots = self._own_of_all[number], self.encoding.size, self.mechanism.slots
        half = np.zeros(size, dtype=np.int64)
        half[size // 2 :] = half[own] = -1
        part = int(np.count_nonzero(half == 0)) / size

        def noise(name: str, set_of_cell: NDArray[np.int64], true: int, chance: float) -> CellGroup:
            return CellGroup(name, set_of_cell, np.array([true]), np.array([slots]), np.array([chance]))

        return [
            noise("noise", np.zeros(size, dtype=np.int64), 1, self.mechanism.chance),
            noise("noise in the first half of the cells", half, 0, self.mechanism.chance * part),
        ]

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """An own report of everybody, the same cell twice by one user, and of words, which functions they take.

        m dummy reports are in m cells, none of them the own one, with chance (1 - 1/D) ... (1 - m/D).
        """
        own, size, slots = self._own_of_all[number], self.encoding.size, self.mechanism.slots
        chance = self.mechanism.chance
        ordered = np.sort(cells, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != BLANK)).any(axis=1)
        lowest, terms, total, _ = binomial_window(slots, chance, chance / (1 - chance), 1e-15)
        distinct = np.cumprod(np.append(1.0, np.maximum(0.0, 1 - np.arange(1, lowest + len(terms)) / size)))
        apart = float(terms @ distinct[lowest:]) / total
        missing = ~_among(cells, own)
        found = [
            Events("no report that may be the own one", missing[:, None], np.zeros(1)),
            Events("a cell twice", twice[:, None], np.array([max(0.0, 1 - apart)])),
        ]
        if len(own) > 1:
            first = own[: len(own) // 2]
            early = _among(cells, first)
            none = (1 - len(first) / len(own)) * (1 - chance * len(first) / size) ** slots
            found.append(Events("one of the first functions", early[:, None], np.array([1 - none])))
        return found


def _among(cells: NDArray[np.uint32], some: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which users report one of some cells."""
    return np.asarray(np.isin(cells, some.astype(np.uint32)).any(axis=1))
