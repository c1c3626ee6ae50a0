"""What an audit attacks, and what every attack shares: crowds of known users, variants of them, and where to look.

`Attack` is what a mechanism answers an audit; each mechanism has a subclass in its folder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum._format import evenly
from shufflesum.encodings import Scale
from shufflesum.mechanisms.mechanism import CountTable, Floats
from shufflesum.privacy import Guarantee
from shufflesum.privacy.engine.composition import LEAST_DELTA


class Revealed(NamedTuple):
    """What enclosed chances prove: there is at most so many times the plan's noise, which reveals such an epsilon."""

    noise: float
    epsilon: float


class ExpectedCounts(NamedTuple):
    """Counts beside the chances that the plan prescribes for them; `name` has braces for each index."""

    name: str
    observed: CountTable
    trials: int
    chances: Floats


class CellGroup(NamedTuple):
    """Sets of cells whose counts are independent binomials under the plan.

    So many users who hold the same report set i `true[i]` times each, and Binomial(users x trials[i], chances[i])
    times in all beyond that, independently of all other sets and users.
    """

    name: str
    set_of_cell: NDArray[np.int64]  # -1 for none
    true: NDArray[np.int64]
    trials: NDArray[np.int64]
    chances: Floats


class Events(NamedTuple):
    """What happened in the reports of each of some users, (users, events), beside the chances that the plan gives it.

    Users are independent, and so are several events of one user.
    """

    name: str
    happened: NDArray[np.bool_]
    chances: Floats


class Variant(NamedTuple):
    """A row that users can hold beside those of crowds, and what kind of row it is, for findings."""

    kind: str
    row: Any


class Held(Protocol):
    """What users can hold: the part of a domain with which an audit makes rows of known contents."""

    def example(self, *, cells: Any = (), values: Any = None) -> Any:
        """A row that is encoded as these cells, or numbers in the user's units."""

    def rows(self, values: Any) -> Any:
        """Rows that can be counted and sliced."""

    def block(self, rows: Any, first_row: int = 0) -> Any:
        """Rows as encodings take them."""


@dataclass(frozen=True)
class Attack(ABC):
    """What an audit attacks: the worst pair of adjacent data sets, and the distribution that reports must follow.

    What users hold is a row as the domain takes it. All users of a crowd hold the same. Crowds are numbered, and
    variants after them.
    """

    mechanism: Any
    encoding: Any
    held: Held
    guarantee: Guarantee

    @property
    @abstractmethod
    def crowds(self) -> tuple[Any, ...]:
        """What the crowds hold whose reports are looked at."""

    @property
    @abstractmethod
    def variants(self) -> tuple[Variant, ...]:
        """What else users can hold.

        Every value or label, or as many as fit, evenly spaced; of numbers also values between levels, and rows with a
        single entry, chosen at random.
        """

    @property
    def victims(self) -> tuple[Any, Any]:
        """The two rows to tell apart: what the victim holds in one world and in the other."""
        return self.crowds[0], self.crowds[1]

    @property
    @abstractmethod
    def others(self) -> Any:
        """What all others hold in both worlds."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """How many reports are enough to know their noise within one per cent."""

    @property
    def silent(self) -> Floats | None:
        """The chances of the first sets of cells of crowd 0 for a user without noise.

        Where one user in a thousand is so, that user has lost something. None where others' noise hides it all.
        """
        return None

    @property
    def lower_bound_known(self) -> bool:
        """Whether any epsilon can be proved from reports; where not, only their distribution is tested."""
        return True

    @abstractmethod
    def kinds(self, tables: Sequence[CountTable], users: Sequence[int]) -> tuple[CountTable, CountTable]:
        """How often each kind of report came from these crowds, and out of how many chances each."""

    @abstractmethod
    def reveals(self, lower: Floats, upper: Floats) -> Revealed:
        """What a randomizer reveals at least if its chances of each kind of report lie between these bounds."""

    @abstractmethod
    def score(self, table: CountTable) -> float:
        """How much likelier a batch is with the victim at its one row than at its other one, as a logarithm."""

    @abstractmethod
    def expected(self, tables: Sequence[CountTable], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """What the plan prescribes for the crowds' tables, by kind of count."""

    @abstractmethod
    def cell_groups(self, number: int) -> list[CellGroup]:
        """Counts that the plan makes independent, where users hold what the crowd or variant of this number does.

        Of a variant only the sum over all sets is looked at. Where rounding, or which coordinates are sampled, makes
        its terms unequal, chances are means: the sum strays no more than one of equal terms (docs/privacy.md).
        """

    @abstractmethod
    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """What else the plan says of single users' reports, (users, reports) cells of users who hold the same."""

    @property
    def delta(self) -> float:
        """The delta at which the epsilon that was revealed is stated: the plan's, or the least that is certified."""
        return max(self.guarantee.delta, LEAST_DELTA)


@dataclass(frozen=True)
class DrawnNoise(ABC):
    """What an audit looks at where one process draws the noise of each cell once: tables of known users."""

    @property
    @abstractmethod
    def rows(self) -> tuple[tuple[Any, CountTable], ...]:
        """Rows, and what one user who holds them adds to each cell."""

    @abstractmethod
    def counts(self, name: str, noise: CountTable) -> list[ExpectedCounts]:
        """What the plan prescribes for the noise of several batches, (batches, cells)."""

    @abstractmethod
    def less_noise(self, draws: int) -> float | None:
        """From which part of the noise missing on this hardly ever passes with so many draws; None: not even all."""

    @abstractmethod
    def score(self, table: CountTable) -> float:
        """How much likelier a batch of one user is with the second row than with the first: any number that rises."""


# ---- which rows and cells are looked at ------------------------------------------------------------------------------

BETWEEN, SINGLE = "values between levels", "a single entry"
"""Kinds of variants."""

NOISY_REPORTS = 400_000  # of each kind; then chances are known within one per cent
_MAX_CELLS = 1024
_MAX_VARIANTS = 64
_MAX_ENTRIES = 1 << 22
_FEW = 4  # of each kind that is chosen at random
_ON_LEVEL = 1e-6  # so near to a level a value is on it: floating point put it there


def evenly_spaced(count: int, at_most: int = _MAX_CELLS) -> NDArray[np.int64]:
    """The numbers below `count`, or so many of them."""
    return np.array(evenly(count, at_most), dtype=np.int64)


def index_among(count: int, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each number below `count` its index among the chosen, or -1."""
    index = np.full(count, -1, dtype=np.int64)
    index[chosen] = np.arange(len(chosen))
    return index


def variants_of(count: int, entries: int) -> NDArray[np.int64]:
    """Which of `count` rows of so many entries are tried."""
    return evenly_spaced(count, max(2, min(_MAX_VARIANTS, _MAX_ENTRIES // entries)))


def few_of(entries: int) -> int:
    """How many rows of so many entries are chosen at random, of each kind."""
    return max(1, min(_FEW, _MAX_ENTRIES // entries))


def mixed_levels(levels: int, dimension: int) -> NDArray[np.int64]:
    """Levels from 0 to `levels`, another one in each of the coordinates as far as they last."""
    mixed = evenly_spaced(levels + 1, dimension)
    return mixed[np.arange(dimension) % len(mixed)]


def values_at(scale: Scale, levels: Any, highest: int) -> Floats:
    """The numbers, in the user's units, that lie on these of the levels 0 to `highest`."""
    values: Floats = np.clip(scale.lower + scale.width * (np.asarray(levels) / highest), scale.lower, scale.upper)
    return values


def off_levels(scale: Scale, levels: int) -> list[tuple[str, NDArray[np.float64]]]:
    """Flat arrays, chosen anew each time: random values between levels, and a single entry in a row of zeros.

    Values between levels are one and the same in all coordinates, or another one in each. Zero is the value, or the
    bound next to it; the entry lies at the bound farther from that, on a level within bounds, or between levels.
    """
    lower, upper, width = scale.lower, scale.upper, scale.width
    random, size = np.random.default_rng(), len(lower)
    few = few_of(size)
    parts = [*(np.full(size, (number + random.random()) / few) for number in range(few)), *random.random((few, size))]
    rows = [(BETWEEN, lower + width * part) for part in parts]
    zero = np.clip(np.zeros(size), lower, upper)
    for number, entry in enumerate(np.resize(random.permutation(size), few)):
        row = zero.copy()
        farther = float(zero[entry] - lower[entry] < width[entry] / 2)
        inner = random.integers(1, levels) / levels if levels > 1 else random.random()
        row[entry] = lower[entry] + width[entry] * (farther, inner, *random.random(_FEW))[number]
        rows.append((SINGLE, row))
    return [(kind, np.clip(row, lower, upper)) for kind, row in rows]


def positions_of(scale: Scale, values: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Where values lie on the scale from 0 to `levels` that they are rounded on."""
    positions = np.clip((values - scale.lower) * (levels / scale.width), 0, levels)
    nearest = np.rint(positions)
    return np.where(np.abs(positions - nearest) < _ON_LEVEL, nearest, positions)
