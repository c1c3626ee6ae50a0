"""What every domain answers: the one base class, and a batch that is read once.

A domain says what a user holds. It reads batches into `Block`s, offers encodings of them to mechanisms, and is the only
place that knows its type: estimates, sentences, made-up data, options and audits of a domain stand in its folder.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.cells import MOST_CELLS
from shufflesum.domains.labels import LABEL_GAPS, DictionaryColumn, Label, Labels, value_at
from shufflesum.domains.options import Option
from shufflesum.encodings import Block, Cells, ChosenCells, Encoding, Values
from shufflesum.errors import DataError, ParameterError, PlanError

if TYPE_CHECKING:
    from shufflesum.domains.wording import Wording
    from shufflesum.estimate import BaseEstimate

Missing: TypeAlias = Literal["refuse", "midpoint"]
MissingOrDrop: TypeAlias = Literal["refuse", "midpoint", "drop"]
"""What may be done about missing values where all rows are at hand: such rows can be left out as well."""

Rows: TypeAlias = Any
"""What `Domain.rows` gives: one row for each user, with a length and slices of rows; each domain has its own."""


class AnswerColumn(NamedTuple):
    """A column of answers to one question."""

    name: str
    numbers: bool
    lists: bool
    optional: bool
    """Whether a missing answer is one."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """Which columns of a table hold a domain's data, the same for files and for Spark.

    A table has columns of numbers, one column of labels, or a column of labels and numbers beside it.
    """

    numbers: tuple[int, ...] | None = None
    """The shape of each user's array of numbers; None where there are only labels."""
    names: tuple[str, ...] | None = None
    """What the plan calls the columns of numbers."""
    labels: bool = False
    """Whether a column holds labels."""
    lists: bool = False
    """Whether each of its cells holds several."""
    single: bool = False
    """Whether numbers are one column that is named as one of labels is, such as numbers in bins."""
    column: str | None = None
    """What the plan calls the column of labels, or the single one of numbers."""
    gaps: tuple[str, ...] = LABEL_GAPS
    """What stands for a missing label in a file of text."""
    answers: tuple[AnswerColumn, ...] | None = None
    """The columns of a survey's questions; batches are tables with these columns then."""

    @property
    def named(self) -> bool:
        """Whether `column=` names a column of it."""
        return self.labels or self.single

    @property
    def grouped(self) -> bool:
        """Whether numbers stand beside labels."""
        return self.labels and self.numbers is not None

    def fit(self, batch: Any) -> Any:
        """A batch of a table (numbers, labels, or a pair of both), its numbers in the domain's shape."""
        if self.numbers is None:
            return batch
        if self.labels:
            labels, numbers = batch
            return labels, numbers.reshape(len(numbers), *self.numbers)
        return batch.reshape(len(batch), *self.numbers)


@dataclass(frozen=True, slots=True)
class InputCoercion:
    """How one user's own data are moved into a domain, since nobody's data must keep them from taking part.

    Numbers are moved to the nearest bound, arrays into their structure, vectors into their ball, labels into `other`
    where the plan has it. A label that is not in the plan is refused before anything is sent. `clip` and
    `missing` are for the randomizer.
    """

    wrap_one: Callable[[Any], Any]
    """What `domain.rows` takes for one user, from what that user holds."""
    validate: Callable[[Any], object]
    """Refuses rows of `domain.rows` that cannot be moved into the domain, for all users at once."""
    clamp: Callable[[Any], Any] = lambda row: row
    """Moves one row of `domain.rows`, a slice, into the domain."""
    clip: bool = False
    missing: Missing = "refuse"


class Domain(ABC):
    """What a user holds; frozen, equal by value, written into plans."""

    __slots__ = ()

    kind: ClassVar[str]
    """Its tag in plan files."""

    # ---- what is estimated

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is estimated: of one user's array, or one number for each label."""
        return (self.dimension,)

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many numbers are estimated."""

    @property
    def entries(self) -> int:
        """How many numbers a user holds."""
        return 1

    @property
    def unit(self) -> float:
        """What a mean is measured in: frequencies are parts of 1."""
        return 1.0

    @property
    @abstractmethod
    def trivial_mse(self) -> float:
        """Squared error of the best guess without data, at the worst."""

    @property
    @abstractmethod
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise."""

    @property
    def numbers(self) -> Any:
        """The `Arrays` that a user's numbers lie in; None where there are no numbers with bounds."""
        return None

    def with_numbers(self, bounds: Any, columns: Any) -> Domain:
        """The same with these bounds and names of its numbers, where they are given; refused where it has none."""
        for name, value in (("bounds", bounds), ("columns", columns)):
            if value is not None:
                raise ParameterError(
                    "conflicting-arguments",
                    f"{name} is for numbers with bounds, not for {type(self).__name__}: leave it out",
                )
        return self

    column: str | None
    """What the column of labels is called, for tables that must have it; None where there are no labels, or no name."""
    entry_noun: ClassVar[str] = "each label's share"
    """What each estimated number is, in words."""
    trivial_guess: ClassVar[str] = "the middle of the bounds"
    """What the best guess without data is, in words."""

    needs_candidates: ClassVar[bool] = False
    """Whether words must be named before there are counts of them: the estimate then has `counts_of(words)`."""

    finds_labels: ClassVar[bool] = False
    """Whether labels are found in the data: an estimate has a list of its own, `words`, and a number for each."""

    @property
    def bin_edges(self) -> tuple[float, ...] | None:
        """The edges of bins that a user's one number is counted in, which has quantiles then; None elsewhere."""
        return None

    parts: ClassVar[tuple[str, str]]
    """Its estimate and its wording, "module:class" below `domains`: clients on devices load neither."""

    @property
    def estimate_type(self) -> type[BaseEstimate]:
        """The kind of estimate: what can be asked of a released table."""
        return cast("type[BaseEstimate]", resolve_name(f"shufflesum.domains.{self.parts[0]}"))

    @property
    def wording(self) -> Wording[Any]:
        """Nouns and sentences for cards, statements and pages."""
        return cast("Wording[Any]", resolve_name(f"shufflesum.domains.{self.parts[1]}")(self))

    def better_domain(self, plan: Any) -> str | None:
        """What to plan for instead, where another domain would have the smaller error; None where none is known."""
        return None

    def size_text(self) -> str:
        """How much is estimated, in two or three words."""
        return f"{self.dimension:,} {'labels' if self.counts_users else 'coordinates'}"

    def bounds_text(self) -> str:
        """What a plan says of the bounds in one line, after its shape; nothing where there are none."""
        return ""

    def in_units(self) -> Domain:
        """The same with each number in widths of its bounds; what has no bounds stays as it is."""
        return self

    # ---- what a user holds

    @abstractmethod
    def rows(self, values: Any) -> Any:
        """The values of several users as rows that can be counted and sliced; not copied, and given back as they are
        where they are such rows already."""

    @abstractmethod
    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about values that are missing or out of bounds."""

    @abstractmethod
    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Block:
        """Rows as encodings take them; never changes `rows`."""

    def prepare(self, values: Any, *, clip: bool = False, missing: Missing = "refuse", first_row: int = 0) -> Prepared:
        """A batch, read once, whose blocks mechanisms encode; what is prepared already keeps its options."""
        if isinstance(values, Prepared):
            return replace(values, domain=self)
        self.check_options(clip=clip, missing=missing)
        return Prepared(self, self.rows(values), clip, missing, first_row)

    planning_tolerance: ClassVar[float] = 0.05
    """Of plans whose squared error is within this part of the least, the one with the fewest reports is chosen."""

    @property
    @abstractmethod
    def column_layout(self) -> ColumnLayout:
        """Which columns of a table hold its data."""

    def names_in(self, rows: Any) -> tuple[str, ...] | None:
        """What these rows call the numbers, for plans to remember; None where they have no names."""
        return None

    def value_at(self, rows: Any, row: int) -> Any:
        """What one user of these rows holds, as `coercion` takes it."""
        one = rows[row : row + 1]
        return value_at(one, 0) if isinstance(one, DictionaryColumn) else one[0]

    def coercion(self) -> InputCoercion:
        """How one user's own data are moved into the domain; what `block` refuses is refused unless overridden."""
        return InputCoercion(lambda held: [held], self.block)

    def repeated(self, row: Any, size: int, first: Any = None) -> Any:
        """What `rows` takes for so many users who all hold `row`, but `first`, if given, for the very first."""
        return [row if first is None else first, *[row] * (size - 1)]

    def in_turn(self, rows: Sequence[Any], size: int) -> Any:
        """What `rows` takes for so many users who hold these rows in turn."""
        return [rows[user % len(rows)] for user in range(size)]

    # ---- made-up data

    counts_users: ClassVar[bool] = True
    """Whether what is estimated are numbers of users, such as those of a label, and not means of users' numbers."""
    distributions: ClassVar[tuple[str, ...]]
    """The distributions that users can be made up by, the default first."""

    made_up_words: ClassVar[tuple[str, ...]] = ()
    """The candidates for made-up users, where they are needed."""

    def describe_distribution(self, distribution: str) -> str:
        """One of them in words."""
        return f"labels {distribution}"

    @abstractmethod
    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], Any]:
        """A function that makes up the next so many users: what `rows` takes for them."""

    @abstractmethod
    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """What an estimate without any error would say of these users, NaN where there are none: for public data."""

    # ---- encodings

    @abstractmethod
    def encodings(self) -> tuple[Encoding, ...]:
        """The encodings that mechanisms may choose from."""

    def of_round(self, number: int) -> Self:
        """The domain as it is reported in a round; the same unless something is drawn afresh for each."""
        return self

    def check_complete(self) -> None:
        """Refuse a domain in which something is still left open that a planner fixes."""
        return

    def completed(self, encoding: Encoding) -> Domain:
        """The domain with everything fixed that a planner leaves open: sizes as the encoding has them, public keys."""
        return self

    def with_new_key(self) -> Self:
        """The same with a fresh public key, where intervals hold over the draw of one; itself without such a key."""
        return self

    @abstractmethod
    def example(self, *, cells: Any = (), values: Any = None) -> Any:
        """A row that is encoded as these cells, or numbers in the user's units: what an audit lets users hold."""

    # ---- command line

    takes_numbers: ClassVar[bool] = False
    """Whether --dimension, --shape and --columns describe what users hold, or a part of it."""
    options: ClassVar[tuple[Option, ...]] = ()
    """What is said of the domain by options; `from_options` makes it of them."""
    column_help: ClassVar[tuple[str, str] | None] = None
    """Help for the option --KIND COLUMN: of a command that plans, and of one that follows a plan; None without one."""

    flag_help: ClassVar[str | None] = None
    """Help for the flag --KIND, where a domain can be made without any option of its own; None without one."""
    excludes: ClassVar[tuple[str, ...]] = ()
    """Arguments of plans, by their names, that mean nothing for this domain."""

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> Domain:
        """The domain that these options describe, all of its own; `numbers` are the `Arrays` of each user, if any."""
        raise ParameterError("impossible-combination", f"{cls.__name__} is not made by options; give a --plan")

    # ---- files

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal domain."""

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Undo `to_json`; raises `PlanError` for anything else."""
        try:
            match value:
                case {"kind": cls.kind, **fields} if (found := cls._from_fields(fields)) is not None:
                    return found
        except (ParameterError, DataError) as error:
            raise PlanError(error.problem, f"the plan's domain is not valid: {error}") from error
        raise PlanError("malformed", f"a domain of kind {cls.kind!r} has {cls._fields}, not {shown(value)}")

    _fields: ClassVar[str]
    """What `to_json` writes beside the kind, for messages."""

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> Self | None:
        """The domain that these fields of a plan file describe; None where they are not those of `to_json`."""
        raise NotImplementedError

    def _column_field(self) -> dict[str, Any]:
        return {} if self.column is None else {"column": self.column}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A batch of users' data as its domain read it, once, with what is done about missing and outlying values."""

    domain: Domain
    rows: Any
    clip: bool
    missing: Missing
    first_row: int

    def __len__(self) -> int:
        return len(self.rows)

    def block(self, start: int, stop: int) -> Block:
        """Some of the rows, as encodings take them."""
        return self.domain.block(self.rows[start:stop], self.first_row + start, clip=self.clip, missing=self.missing)

    def parts(self, size: int) -> Iterator[Prepared]:
        """All rows, so many at a time, still to be made blocks; rows of a table are not converted yet."""
        for start in range(0, len(self.rows), size):
            whole = self.rows
            part = whole.part(start, start + size) if hasattr(whole, "part") else whole[start : start + size]
            yield replace(self, rows=part, first_row=self.first_row + start)

    def blocks(self, size: int) -> Iterator[Block]:
        """All rows, so many at a time."""
        for start in range(0, len(self.rows), size):
            yield self.block(start, start + size)


# ---- what several domains share --------------------------------------------------------------------------------------

NUMBER_DISTRIBUTIONS: Mapping[str, str] = MappingProxyType(
    {
        "normal": "around 40 % of the way through the bounds, give or take 15 %",
        "uniform": "anywhere within the bounds",
        "skewed": "mostly near the lower bound, a few far above it",
        "constant": "the same for everybody",
    }
)
"""How numbers of made-up users are distributed, in words, as parts of the width of the bounds."""

LABEL_DISTRIBUTIONS = ("zipf", "uniform")


def made_up_codes(random: np.random.Generator, labels: int, users: int, distribution: str) -> NDArray[np.int64]:
    """The number of each made-up user's label; under Zipf's law label number i is held in proportion to 1 / i."""
    if distribution == "uniform":
        return random.integers(0, labels, users)
    ends = np.cumsum(1 / np.arange(1, labels + 1))
    found: NDArray[np.int64] = np.searchsorted(ends, random.random(users) * ends[-1], side="right")
    return found.clip(max=labels - 1)


class ArrayDomain(Domain):
    """Users hold arrays of numbers, and their mean array is estimated."""

    __slots__ = ()

    entry_noun: ClassVar[str] = "each mean"
    counts_users: ClassVar[bool] = False
    takes_numbers: ClassVar[bool] = True
    distributions: ClassVar[tuple[str, ...]] = tuple(NUMBER_DISTRIBUTIONS)

    @property
    def entries(self) -> int:
        """As many numbers as are estimated."""
        return self.dimension

    def repeated(self, row: Any, size: int, first: Any = None) -> NDArray[Any]:
        """One array."""
        rows = np.repeat(np.asarray(row)[None], size, axis=0)
        rows[0] = row if first is None else first
        return rows

    def in_turn(self, rows: Sequence[Any], size: int) -> NDArray[Any]:
        """One array."""
        return np.stack([np.asarray(row) for row in rows])[np.arange(size) % len(rows)]

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """The mean array."""
        total, users = np.zeros(self.dimension), 0
        for block in blocks:
            assert isinstance(block, Values)
            total += block.values.sum(axis=0, dtype=np.float64)
            users += len(block)
        found: NDArray[np.float64] = self.example(values=total / users)
        return found


class LabelDomain(Domain):
    """Users hold labels out of a public list, and how many hold each is estimated."""

    __slots__ = ()

    distributions: ClassVar[tuple[str, ...]] = LABEL_DISTRIBUTIONS
    one_each: ClassVar[bool]
    """Whether each user holds exactly one label."""
    labels: Labels

    @property
    def cells(self) -> int:
        """How many labels are counted."""
        return len(self.labels)

    @property
    def dimension(self) -> int:
        """One frequency for each label."""
        return self.cells

    @property
    def cell_labels(self) -> tuple[Label, ...]:
        """The labels as they were given."""
        return tuple(self.labels.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text."""
        return self.labels.texts

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """How many users have each label."""
        counts = np.zeros(self.cells)
        for block in blocks:
            assert isinstance(block, Cells | ChosenCells)
            cells = block.cells if isinstance(block, Cells) else block.cells[block.cells < self.cells]  # no blanks
            counts += np.bincount(cells, minlength=self.cells)
        return counts


def listed_for(domain: str, labels: int | Iterable[Label] | Labels, further_cells: int = 0) -> Labels:
    """The labels of a domain; a histogram that says nothing is refused, and one that reports cannot number."""
    listed = labels if isinstance(labels, Labels) else Labels(labels)
    cells = len(listed) + further_cells
    if cells < 2:
        raise ParameterError(
            "out-of-range", f"{domain}: {cells} labels are given, but there must be at least 2: one alone says nothing"
        )
    if cells > MOST_CELLS:
        raise ParameterError("too-many-cells", f"{domain}: {cells} cells; reports can number at most {MOST_CELLS}")
    return listed


def refuse_midpoint(missing: Missing, why: str) -> None:
    """Refuse anything to be done about missing values but to refuse them."""
    if missing not in ("refuse", "midpoint"):
        raise ParameterError("unknown-choice", f"missing={missing!r} is not allowed: give 'refuse'")
    if missing == "midpoint":
        raise ParameterError("impossible-combination", f"missing='midpoint' is not possible {why}")


def refuse_for_labels(*, clip: bool, missing: Missing, remedy: str = "") -> None:
    """Refuse what cannot be done about labels that are missing, or not among those of the plan."""
    refuse_midpoint(
        missing, f"with labels, which have no middle; use missing='refuse' and leave incomplete rows out{remedy}"
    )
    if clip:
        raise ParameterError("impossible-combination", "clip=True is for numbers; labels have no nearest one")


def key_from_hex(text: str) -> bytes:
    """A public key or seed of a plan file: it has one spelling, or plans that are the same would have different ids."""
    if not re.fullmatch(r"(?:[0-9a-f]{2})*", text):
        raise ParameterError("malformed-key", "a public key or seed is written in small hexadecimal digits")
    return bytes.fromhex(text)
