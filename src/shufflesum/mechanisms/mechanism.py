"""What every mechanism answers; whoever adds one implements `Mechanism` in a folder of its own.

Rows come as their domain prepared them (coordinates in the user's units, codes of labels), tables as one count for each
cell. A mechanism knows the numbers of its own protocol; domain and guarantee, which it shares with others, are handed
in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Domain, Neighbours
from shufflesum.errors import ParameterError
from shufflesum.mechanisms.linear import Combined
from shufflesum.privacy import Guarantee, Interval
from shufflesum.privacy.engine.losses import GridLosses
from shufflesum.randomness import RandomSource

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "Accounting",
    "Attack",
    "Enclosure",
    "Encoder",
    "Events",
    "ExpectedCounts",
    "ExpectedError",
    "Floats",
    "GroupSums",
    "Means",
    "Mechanism",
    "Places",
    "Revealed",
    "Table",
    "Tally",
    "Target",
]

Floats = NDArray[np.float64]
Table = NDArray[np.int64]
Target = Literal["users", "population"]


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


class Encoder(Protocol):
    """Rows to reports, with randomness of its own."""

    def encode(self, prepared: Any, first_row: int) -> NDArray[np.uint32]:
        """The cells that these users send, as many for each, users one after another.

        A value outside the domain is refused, with its row counted from `first_row`.
        """
        ...


class Tally(Protocol):
    """Rows straight to a table of counts, where one process holds them all: what is sent adds up to the same law."""

    def add(self, prepared: Any, first_row: int, table: Table) -> None:
        """Add what these users bring to the table of all cells.

        A value outside the domain is refused, with its row counted from `first_row`.
        """
        ...

    def noise(self, users: int) -> Table:
        """What must be added to the table once, for all of so many users."""
        ...


class Means(Protocol):
    """A table of counts, decoded: the mean of each coordinate as a fraction of the width of its bounds."""

    @property
    def mean(self) -> Floats:
        """Unbiased estimates; NaN where nothing was reported."""
        ...

    @property
    def report_counts(self) -> Table:
        """How many reports say something about each coordinate."""
        ...

    def variance(self, target: Target) -> Floats:
        """The squared standard errors."""
        ...

    def interval(self, tail: float, target: Target) -> tuple[Floats, Floats]:
        """Ends that the true mean lies beyond with probability at most `tail`, each."""
        ...

    def combine(self, weights: Floats, tail: float, target: Target) -> Combined:
        """The sum of weights times means, with what their errors have to do with each other."""
        ...


class GroupSums(Protocol):
    """A table of counts, decoded: users and sums of each of G groups, values as fractions of the width of bounds."""

    @property
    def counts(self) -> Floats:
        """(G,): unbiased numbers of users."""
        ...

    @property
    def sums(self) -> Floats:
        """(G, d): unbiased sums over the group's users."""
        ...

    @property
    def count_variance(self) -> float:
        """What noise brings to each count."""
        ...

    @property
    def sum_variance(self) -> float:
        """What noise brings to each sum."""
        ...

    @property
    def rounding(self) -> float:
        """What rounding one user's value brings to a sum, at the worst."""
        ...

    def count_interval(self, tail: float) -> tuple[Floats, Floats]:
        """Ends that the true count lies beyond with probability at most `tail`, each."""
        ...


class Accounting(Protocol):
    """The privacy of a mechanism for given neighbours, users and rounds, from above and from below."""

    @property
    def local_epsilon(self) -> float | None:
        """What is left for a user if shuffler and analyzer collude, over all reports and rounds; None: nothing."""
        ...

    def delta(self, epsilon: float) -> Interval:
        """The delta that goes with epsilon."""
        ...

    def epsilon(self, delta: float) -> Interval:
        """The epsilon that goes with delta."""
        ...

    def check_claim(self, guarantee: Guarantee) -> None:
        """Refuse, with a `PlanError`, a guarantee that its accountant does not confirm."""
        ...

    def losses(self, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all rounds."""
        ...

    def to_dp_accounting(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """The certified bound as a distribution of `dp_accounting`, to compose with other mechanisms."""
        ...


class Enclosure(NamedTuple):
    """Chances that observations enclose, of each kind of report that an attack counts."""

    lower: Floats
    upper: Floats


class Revealed(NamedTuple):
    """What enclosed chances prove: there is at most so many times the plan's noise, which reveals such an epsilon."""

    noise: float
    epsilon: float


class ExpectedCounts(NamedTuple):
    """Counts beside the chances that the plan prescribes for them; `name` has a place for each index."""

    name: str
    observed: Table
    trials: int
    chances: Floats


class Places(NamedTuple):
    """Sets of cells whose counts are independent binomials under the plan.

    So many users who hold the same report place i `true[i]` times each, and Binomial(users x trials[i], chances[i])
    times in all beyond that, independently of all other places and users.
    """

    name: str
    place: NDArray[np.int64]  # of each cell; -1 for none
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


class Attack(Protocol):
    """What an audit attacks: the worst pair of neighbours, and the law that reports must follow.

    What users hold is a row as the domain takes it. All users of a crowd hold the same. `victims` are the two rows to
    tell apart, `others` what everybody else holds meanwhile. Crowds are numbered, and variants after them.
    """

    @property
    def crowds(self) -> tuple[Any, ...]:
        """What the crowds hold whose reports are looked at."""
        ...

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What else users can hold.

        Every value or label, or as many as fit, spread evenly; of numbers also values between levels, and rows with a
        single entry, chosen at random.
        """
        ...

    @property
    def victims(self) -> tuple[Any, Any]:
        """What the victim holds in one world and in the other."""
        ...

    @property
    def others(self) -> Any:
        """What all others hold in both."""
        ...

    @property
    def samples(self) -> int:
        """How many reports are enough to know their noise within one per cent."""
        ...

    @property
    def silent(self) -> Floats | None:
        """The chances of the first places of crowd 0 for a user without noise; None where others' noise hides it all.

        Where one user in a thousand is so, that user has lost something.
        """
        ...

    @property
    def lower_bound_known(self) -> bool:
        """Whether any epsilon can be proved from reports; where not, only their law is tested."""
        ...

    def kinds(self, tables: Sequence[Table], users: Sequence[int]) -> tuple[Table, Table]:
        """How often each kind of report came from these crowds, and out of how many chances each."""
        ...

    def reveals(self, chances: Enclosure) -> Revealed:
        """What any law in the enclosure of the kinds' chances reveals at least."""
        ...

    def score(self, table: Table) -> float:
        """How much likelier a batch is with the victim at its one array than at its other one, as a logarithm."""
        ...

    def expected(self, tables: Sequence[Table], users: Sequence[int]) -> list[list[ExpectedCounts]]:
        """What the plan prescribes for the crowds' tables, by kind of count."""
        ...

    def places(self, number: int) -> list[Places]:
        """Counts that the plan makes independent, where users hold what the crowd or variant of this number does.

        Of a variant only the sum over all places is looked at. Where rounding, or which coordinates are sampled, makes
        its terms unequal, chances are means: the sum strays no more than one of equal terms (docs/privacy.md).
        """
        ...

    def events(self, number: int, cells: NDArray[np.uint32]) -> list[Events]:
        """What else the plan says of single users' reports, (users, reports) cells of users who hold the same."""
        ...


class Mechanism(ABC):
    """One member of the union: frozen, equal by value, written into plans."""

    kind: ClassVar[str]
    word: ClassVar[str]  # for people: they choose by it, and the domain says which kind it means

    @abstractmethod
    def check(self, domain: Domain) -> None:
        """Refuse a domain that this mechanism, or the report format, cannot carry."""

    @abstractmethod
    def cells(self, domain: Domain) -> int:
        """How many different reports there are, blanks not counted."""

    @abstractmethod
    def reports(self, domain: Domain) -> int:
        """How many reports each user sends in a round, blanks included: the same for all."""

    @abstractmethod
    def encoder(self, domain: Domain, source: RandomSource) -> Encoder:
        """Rows to reports."""

    @abstractmethod
    def tally(self, domain: Domain, source: RandomSource) -> Tally:
        """Rows to a table, in one process."""

    @abstractmethod
    def blanks(self, domain: Domain) -> float:
        """How many of a user's reports are blank, on average."""

    @abstractmethod
    def decode(self, domain: Domain, table: Table, users: int) -> Means:
        """A table of counts to means with error bars; of labels, choices and hashed words to frequencies of cells."""

    def decode_groups(self, domain: Domain, table: Table, users: int) -> GroupSums:
        """The same for groups, whose means follow from sums and counts; only where a mechanism carries groups."""
        raise ParameterError("impossible-combination", f"mechanism {self.word!r} does not carry groups")

    @abstractmethod
    def expected_error(self, domain: Domain, users: int, spread: float | None = None) -> ExpectedError:
        """Squared error of the mean, summed over coordinates, in the user's units, for the worst data.

        With a `spread`, for the worst data whose users differ by so much: their standard deviation in every coordinate.
        """

    @abstractmethod
    def accounting(self, neighbours: Neighbours, guarantee: Guarantee) -> Accounting:
        """The privacy of this mechanism where data sets differ like that, with the guarantee's users and rounds."""

    @abstractmethod
    def fewest_dishonest(self, domain: Domain, table: Table, blanks: int, rejected: int, users: int) -> int:
        """The fewest of `users` who cannot have followed the protocol, given the counts of a whole batch."""

    @abstractmethod
    def influence(self, domain: Domain, users: int, dishonest: int) -> float:
        """By how much so many of `users` who send what they like can move a mean at most, in widths of its bounds."""

    @abstractmethod
    def attack(self, domain: Domain, guarantee: Guarantee, scout: Callable[[Any], Table]) -> Attack:
        """What an audit attacks; `scout` gives the table of a small crowd that holds a given row."""

    @abstractmethod
    def choices(self) -> dict[str, Any]:
        """The arguments of `plan` that lead to this mechanism again, but for its noise."""

    @abstractmethod
    def describe(self, domain: Domain) -> str:
        """One sentence for people, which goes on after "each user sends": what, and how noise enters."""
