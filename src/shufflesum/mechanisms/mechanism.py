"""What every mechanism answers; whoever adds one implements `Mechanism` in a folder of its own.

Rows come as their domain prepared them (coordinates in the user's units, codes of labels), tables as one count for each
cell. A mechanism knows the numbers of its own protocol; domain and guarantee, which it shares with others, are handed
in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.encodings import Encoding, Positions
from shufflesum.errors import ParameterError
from shufflesum.privacy import Guarantee, PrivacyAccountant
from shufflesum.randomness import RandomSource

if TYPE_CHECKING:
    from shufflesum.mechanisms.auditing import Attack, DrawnNoise, Held

Floats = NDArray[np.float64]
CountTable = NDArray[np.int64]
Target = Literal["users", "population"]
NoiseBy = Literal["users", "shuffler", "servers", "curator"]
"""Who draws the noise.

Each user for their own reports; the shuffler once for all; shuffler and analyzer, each by itself; or one process that
holds all rows.
"""


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """A squared error, split by where it comes from."""

    sampling: float
    rounding: float
    noise: float

    @property
    def total(self) -> float:
        """The expected squared error."""
        return self.sampling + self.rounding + self.noise

    def __add__(self, other: ExpectedError) -> ExpectedError:
        """The error of two coordinates together."""
        return ExpectedError(self.sampling + other.sampling, self.rounding + other.rounding, self.noise + other.noise)

    def __mul__(self, factor: float) -> ExpectedError:
        """The error in other units, or of several like coordinates."""
        return ExpectedError(self.sampling * factor, self.rounding * factor, self.noise * factor)


class Combined(NamedTuple):
    """The sum of weights times means: its estimate, squared standard error, and ends for the tail asked for."""

    value: float
    variance: float
    lower: float
    upper: float


class Encoder(Protocol):
    """Rows to reports, with randomness of its own."""

    def encode(self, block: Any) -> NDArray[np.uint32]:
        """The cells that these users send, as many for each, users one after another.

        A value outside the domain is refused.
        """


class Tally(Protocol):
    """Rows straight to a table of counts, where one process holds them all; it is distributed as that of reports."""

    def add(self, block: Any, table: CountTable) -> None:
        """Add what these users bring to the table of all cells; a value outside the domain is refused."""

    def noise(self, users: int) -> CountTable:
        """What must be added to the table once, for all of so many users."""


class Means(Protocol):
    """A table of counts, decoded: the mean of each coordinate as a fraction of the width of its bounds."""

    @property
    def mean(self) -> Floats:
        """Unbiased estimates; NaN where nothing was reported."""

    @property
    def report_counts(self) -> CountTable:
        """How many reports say something about each coordinate."""

    def variance(self, target: Target) -> Floats:
        """The squared standard errors."""

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Ends that the true mean lies beyond with probability at most `tail`, each."""

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """The sum of weights times means, with what their errors have to do with each other."""


class VectorMeans(Means, Protocol):
    """The same of vectors of a bounded norm, in units of the clipping norm; errors are alike in all directions."""

    @property
    def noise(self) -> float:
        """The variance of an entry."""

    @property
    def bias(self) -> float:
        """What is biased adds so much to the squared error of all entries together, at most."""

    def deviation(self, target: Target) -> float:
        """The standard error in any direction of length 1."""

    def reach(self, tail: float, target: Target) -> float:
        """How far an entry is off with probability `tail` at most, on either side."""


class GroupSums(Protocol):
    """A table of counts, decoded: users and sums of each of G groups, values as fractions of the width of bounds."""

    @property
    def origin(self) -> float:
        """Where values are counted from, as a part of the width: 0 is the lower bound."""

    @property
    def excess(self) -> float:
        """The most that noise of counts or sums has: the fourth cumulant over the squared variance."""

    @property
    def counts(self) -> Floats:
        """(G,): unbiased numbers of users."""

    @property
    def sums(self) -> Floats:
        """(G, d): unbiased sums over the group's users."""

    @property
    def count_variance(self) -> float:
        """What noise brings to each count."""

    @property
    def sum_variance(self) -> float:
        """What noise brings to each sum."""

    @property
    def rounding(self) -> float:
        """What rounding one user's value brings to a sum, at the worst."""

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """Ends that the true count lies beyond with probability at most `tail`, each."""


MAX_DUMMIES = 10_000_000
"""The most reports that a shuffler adds to a batch, on average, unless a caller says another number."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a planner asks mechanisms for."""

    guarantee: Guarantee
    noise_by: NoiseBy = "users"
    max_reports: int | None = None
    assumed_std: float | None = None
    only: bool = True
    """Whether no other mechanism may serve."""
    max_dummies: int = MAX_DUMMIES
    """The most reports that a shuffler adds to a batch, on average, blanks among them."""
    rival: float = math.inf
    """The least comparison error of what other mechanisms offered."""


class Candidate(NamedTuple):
    """A certified mechanism, and the encoding it is for, with all sizes chosen."""

    mechanism: Mechanism
    encoding: Any


class Mechanism(ABC):
    """One member of the union: frozen, equal by value, written into plans."""

    kind: ClassVar[str]
    family: ClassVar[str]
    """What people choose it by; the encoding says which member of a family is meant."""
    accepts: ClassVar[type[Encoding] | tuple[type[Encoding], ...]]
    """The kinds of encoding that it takes."""
    noise_options: ClassVar[tuple[NoiseBy, ...]] = ("users",)
    """Who can draw its noise."""

    @classmethod
    def takes(cls, encoding: Encoding) -> bool:
        """Whether it takes this encoding."""
        return isinstance(encoding, cls.accepts)

    @property
    def noise_by(self) -> NoiseBy:
        """Who draws the noise."""
        return "users"

    @abstractmethod
    def check(self, encoding: Any) -> None:
        """Refuse an encoding that this mechanism, or the report format, cannot carry."""

    def positions(self, encoding: Any) -> Positions | None:
        """Where each of a user's reports goes if servers, or one process, draw the noise of cells; None if users do."""
        return None

    def draw(self, encoding: Any, source: RandomSource) -> CountTable:
        """One independent draw for each cell, where servers or one process draw it."""
        raise ParameterError("impossible-combination", f"under mechanism {self.kind!r} users draw the noise")

    def most_drawn(self, encoding: Any) -> CountTable:
        """The largest that each cell's draw can be."""
        raise ParameterError("impossible-combination", f"under mechanism {self.kind!r} users draw the noise")

    def most_counted(self, encoding: Any, users: int) -> CountTable:
        """The largest that so many users and all draws can make of each cell."""
        positions = self.positions(encoding)
        assert positions is not None, "users draw the noise"
        draws = 2 if self.noise_by == "servers" else 1
        return draws * self.most_drawn(encoding) + users * np.repeat(positions.reports, positions.sizes)

    def added_reports(self, encoding: Any) -> float:
        """How many reports a shuffler adds to a batch, on average, blanks among them."""
        return 0.0

    @abstractmethod
    def cells(self, encoding: Any) -> int:
        """How many different reports there are, blanks not counted."""

    @abstractmethod
    def reports(self, encoding: Any) -> int:
        """How many reports each user sends in a round, blanks included: the same for all."""

    @abstractmethod
    def encoder(self, encoding: Any, source: RandomSource) -> Encoder:
        """Rows to reports."""

    @abstractmethod
    def tally(self, encoding: Any, source: RandomSource) -> Tally:
        """Rows to a table, in one process."""

    @abstractmethod
    def blanks(self, encoding: Any) -> float:
        """How many of a user's reports are blank, on average."""

    def dummy_reports(self, encoding: Any) -> float | None:
        """How many of a user's reports are noise, on average; None where no report is noise alone."""
        return None

    @abstractmethod
    def decode(self, encoding: Any, table: CountTable, users: int) -> Means:
        """A table of counts to means with error bars; of labels and hashed words to frequencies of cells."""

    def decode_groups(self, encoding: Any, table: CountTable, users: int) -> GroupSums:
        """The same for groups, whose means follow from sums and counts; only where a mechanism carries groups."""
        raise ParameterError("impossible-combination", f"mechanism {self.family!r} does not carry groups")

    @abstractmethod
    def expected_error(self, encoding: Any, users: int, assumed_std: float | None = None) -> ExpectedError:
        """Squared error of the mean, summed over coordinates, in the user's units, for the worst data.

        With an `assumed_std`, for the worst data whose users differ by so much: their standard deviation in every
        coordinate.
        """

    @abstractmethod
    def accountant(self, encoding: Any, guarantee: Guarantee) -> PrivacyAccountant:
        """The privacy of this mechanism at the sensitivity of the encoding, with the guarantee's users and rounds."""

    @abstractmethod
    def min_malicious(self, encoding: Any, table: CountTable, blanks: int, rejected: int, users: int) -> int:
        """The fewest of `users` who cannot have followed the protocol, given the counts of a whole batch."""

    @abstractmethod
    def max_shift(self, encoding: Any, users: int, malicious: int) -> float:
        """By how much so many of `users` who send what they like can move a mean at most, in widths of its bounds."""

    @abstractmethod
    def attack(
        self, encoding: Any, held: Held, guarantee: Guarantee, sample_table: Callable[[Any], CountTable]
    ) -> Attack:
        """What an audit attacks; `sample_table` gives the table of a small crowd that holds a given row."""

    def drawn_noise(self, encoding: Any, held: Held) -> DrawnNoise | None:
        """What an audit looks at where one process draws the noise; None where it attacks reports instead."""
        return None

    # ---- planning

    Options: ClassVar[Any] = None
    """The dataclass of what a planner may be told of this mechanism; None where there is nothing."""

    @classmethod
    @abstractmethod
    def candidates(cls, encoding: Any, search: Search, options: Any = None) -> Iterator[Candidate]:
        """Certified mechanisms that a planner may choose from, as `options` of this mechanism allow.

        None where another mechanism may serve and this one cannot; an error says why where it is the only one.
        """

    @classmethod
    def alternatives(cls, encoding: Any, search: Search) -> Iterator[Candidate]:
        """What the same collection would cost otherwise: all that a person may want to compare."""
        return cls.candidates(encoding, search)

    def options(self) -> Any:
        """The options that lead to this mechanism again, but for its noise; None where it has none."""
        return None

    def comparison_error(self, encoding: Any, users: int, assumed_std: float | None = None) -> float:
        """The squared error that planners compare."""
        return self.expected_error(encoding, users, assumed_std).total

    @abstractmethod
    def describe(self, encoding: Any) -> str:
        """One sentence for people, which goes on after "each user sends": what, and how noise enters."""
