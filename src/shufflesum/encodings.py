"""Encodings: a user's data as a mechanism sees it, and how far one user's replacement can move it.

A domain offers encodings and turns batches into `Block`s of them; a mechanism accepts some kinds of encoding and knows
nothing else about the data. Neither imports the other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from shufflesum.cells import BLANK, MOST_CELLS
from shufflesum.marginals import LeastSquares, Marginal, maximal

if TYPE_CHECKING:
    from shufflesum.randomness import RandomSource


class Scale(Protocol):
    """Public bounds of numbers: where a value in the user's units lies between 0 and 1."""

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds, (d,)."""

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds, (d,)."""

    @property
    def width(self) -> NDArray[np.float64]:
        """Upper minus lower bounds, (d,); finite and positive."""

    def limits(self, dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[Any]]:
        """Bounds in the precision of the data: what values of that data type are compared with."""

    def refuse(self, values: NDArray[Any], first_row: int) -> NoReturn:
        """Raise the `DataError` for the first value outside the limits."""


# ---- blocks of users' data -------------------------------------------------------------------------------------------


class Block(ABC):
    """Some users' data, in the form an encoding takes; rows are counted from `first_row`."""

    first_row: int

    @abstractmethod
    def __len__(self) -> int:
        """How many users there are."""

    def check(self) -> None:
        """Refuse what is outside the domain and was not looked at before: whoever encodes looks as well."""
        return


@dataclass(frozen=True, slots=True, eq=False)
class Values(Block):
    """Numbers in the users' units, (m, d), not yet compared with the limits of their `scale`, if they have one."""

    values: NDArray[Any]
    first_row: int
    scale: Scale | None = None

    def __len__(self) -> int:
        return len(self.values)

    def check(self) -> None:
        """Refuse what is outside the limits."""
        if self.scale is not None:
            lower, upper = self.scale.limits(self.values.dtype)
            if not ((self.values >= lower) & (self.values <= upper)).all():
                self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the `DataError` for the first value outside the limits."""
        assert self.scale is not None
        self.scale.refuse(self.values, self.first_row)


class OwnCells(Block):
    """One cell for each user, which may have to be drawn."""

    @abstractmethod
    def draw(self, source: RandomSource) -> NDArray[Any]:
        """Whole numbers, (m,), not yet compared with the number of cells."""

    @abstractmethod
    def of_all_tables(self) -> NDArray[np.int64]:
        """The user's cell in every table, (m, tables)."""

    @abstractmethod
    def refuse(self, cells: NDArray[Any]) -> NoReturn:
        """Raise the `DataError` for the first of these that is no cell."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells(OwnCells):
    """The cell of each user, (m,): integers of any type; `refused` raises for the first outside 0 to `size` - 1."""

    cells: NDArray[Any]
    first_row: int
    size: int
    refused: Callable[[NDArray[Any], int], NoReturn]

    def __len__(self) -> int:
        return len(self.cells)

    def draw(self, source: RandomSource) -> NDArray[Any]:
        """Nothing is left to chance."""
        return self.cells

    def of_all_tables(self) -> NDArray[np.int64]:
        """There is one table."""
        return self.cells.astype(np.int64)[:, None]

    def check(self) -> None:
        """Refuse what is no cell."""
        if self.cells.size and not (int(self.cells.min()) >= 0 and int(self.cells.max()) < self.size):
            self.refuse(self.cells)

    def refuse(self, cells: NDArray[Any]) -> NoReturn:
        """Raise the `DataError` for the first that is no cell."""
        self.refused(cells, self.first_row)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenCells(Block):
    """Several cells for each user, (m, c), rising in each row; blanks where a user has fewer."""

    cells: NDArray[np.uint32]
    first_row: int

    def __len__(self) -> int:
        return len(self.cells)


@dataclass(frozen=True, slots=True, eq=False)
class GroupedValues(Block):
    """The group of each user, (m,), and their numbers."""

    groups: NDArray[np.uint32]
    numbers: Values

    @property
    def first_row(self) -> int:  # type: ignore[override]  # the numbers' own
        """The number of the first row."""
        return self.numbers.first_row

    def __len__(self) -> int:
        return len(self.groups)

    def check(self) -> None:
        """Refuse what is outside the limits."""
        self.numbers.check()


@dataclass(frozen=True, slots=True, eq=False)
class AttributeValues(Block):
    """The value of each of a user's attributes, (m, attributes), and numbers that are still to be rounded to one.

    Of an attribute with `numbers` the value 0 stands for the user's number, rounded at random to 0..levels; any other
    value is as it is. Whoever encodes rounds once for each user, so that all tables agree.
    """

    values: NDArray[np.uint32]
    first_row: int
    numbers: tuple[tuple[int, int, Values], ...] = ()
    """An attribute, its levels, and the numbers, (m, 1)."""

    def __len__(self) -> int:
        return len(self.values)

    def check(self) -> None:
        """Refuse what is outside the limits."""
        for _, _, numbers in self.numbers:
            numbers.check()


# ---- sensitivity -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangedCells:
    """Of `cells` like cells (or coordinates), replacing one user's data changes at most `changed`, each by one.

    Where they are `paired`, at most half of them lose a report and at most half gain one.
    """

    cells: int
    changed: int
    paired: bool


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far replacing one user's data can move the encoding: the changes in each class of cells.

    `l2_bounded` says that the changes of all coordinates together are bounded in Euclidean norm as well.
    """

    classes: tuple[ChangedCells, ...]
    l2_bounded: bool = False


# ---- positions -------------------------------------------------------------------------------------------------------

MOST_LABEL_POSITIONS = 64
"""Up to so many labels have a position each; of more, a user's chosen ones share one."""


@dataclass(frozen=True, slots=True, eq=False)
class Positions:
    """What each user reports where servers draw the noise: at every position as many reports as everybody else.

    A report is one of its position's cells, or blank where the position allows that. The table of all cells is the
    positions' cells one after another.
    """

    first: NDArray[np.int64]
    """(P + 1,): the first cell of each position, and the number of all cells."""
    reports: NDArray[np.int64]
    """(P,): a user's reports."""
    blank: NDArray[np.bool_]
    """(P,): whether a report may be blank."""
    noise_class: NDArray[np.int64]
    """(P,): the class of its cells; cells of a class have noise of the same distribution."""
    changed: tuple[int, ...]
    """For each class, how many of its cells replacing one user's data can change, each by one."""

    @staticmethod
    def of(sizes: Any, *, reports: int = 1, blank: Any, noise_class: Any = 0, changed: tuple[int, ...]) -> Positions:
        """Positions with so many cells each; what is one value is that of all."""
        sizes = np.asarray(sizes, dtype=np.int64)
        return Positions(
            np.concatenate([[0], np.cumsum(sizes)]),
            np.full(len(sizes), reports, dtype=np.int64),
            np.broadcast_to(np.asarray(blank, dtype=np.bool_), sizes.shape).copy(),
            np.broadcast_to(np.asarray(noise_class, dtype=np.int64), sizes.shape).copy(),
            changed,
        )

    def __len__(self) -> int:
        return len(self.blank)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(P,): how many cells each position has."""
        return np.diff(self.first)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return int(self.first[-1])

    @property
    def each(self) -> int:
        """How many reports a user sends."""
        return int(self.reports.sum())

    @property
    def class_of_cells(self) -> NDArray[np.int64]:
        """The class of each cell."""
        return np.repeat(self.noise_class, self.sizes)


def digit_cells(radix: int) -> int:
    """How many cells a digit has: one for each value, but for a blank one.

    That is 0 of a binary digit, the middle of an odd number of values, and none of an even number above two.
    """
    return radix - 1 if radix % 2 or radix == 2 else radix


# ---- the encodings ---------------------------------------------------------------------------------------------------


class Encoding(ABC):
    """What a mechanism knows about the data of one round: cells or coordinates, and their sensitivity."""

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How far one user can move it."""


@dataclass(frozen=True, slots=True)
class OneHot(Encoding):
    """One cell of `cells`; with several `tables` (hash functions) one cell of one table, drawn at random.

    `cells` and `tables` are None where the planner is to choose them. `names_cells` says that each cell is estimated;
    otherwise one number, looked up by hash.
    """

    cells: int | None
    tables: int | None = 1
    names_cells: bool = True

    @property
    def size(self) -> int:
        """All cells of all tables."""
        return self.layout[0] * self.layout[1]

    @property
    def layout(self) -> tuple[int, int]:
        """Tables, and cells of each, once they are chosen."""
        assert self.cells is not None, "the planner chooses cells and tables before anything is encoded"
        assert self.tables is not None
        return self.tables, self.cells

    @property
    def dimension(self) -> int:
        """One number for each cell, or one looked up."""
        return self.layout[1] if self.names_cells else 1

    def positions(self, radices: tuple[int, ...] = ()) -> Positions:
        """One for each table: a user reports in every table."""
        tables, cells = self.layout
        return Positions.of(np.full(tables, cells), blank=False, changed=(2 * tables,))

    @property
    def sensitivity(self) -> Sensitivity:
        """One cell loses a report and another gains one; the table is drawn whatever the data."""
        return Sensitivity((ChangedCells(self.layout[1], 2, paired=True),))


@dataclass(frozen=True, slots=True, eq=False)
class MultiHot(Encoding):
    """Cells of several classes, of which several are true: the binary digits of numbers, chosen labels, groups of both.

    There are `groups` groups of `coordinates` coordinates with `digits` digits each. A user is in one group; where
    groups are `counted`, each has one more cell that counts its users. At most `max_true` coordinates of one digit are
    true (None: all may be). `scale` has the bounds of numbers; it is None for labels. `mixes` says that entries of the
    user's array are sums over several coordinates.
    """

    coordinates: int
    groups: int = 1
    counted: bool = False
    max_true: int | None = None
    digits: int = 1
    scale: Scale | None = None
    mixes: bool = False

    def with_digits(self, digits: int) -> MultiHot:
        """The same values, written with so many binary digits."""
        return replace(self, digits=digits)

    @property
    def dimension(self) -> int:
        """One number for each coordinate of each group."""
        return self.groups * self.coordinates

    @property
    def most_true(self) -> int:
        """How many cells can be true of one user."""
        return self.max_true if self.max_true is not None else self.group_cells

    @property
    def group_cells(self) -> int:
        """How many cells a group has."""
        return self.coordinates * self.digits + self.counted

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.groups * self.group_cells

    @property
    def classes(self) -> int:
        """How many classes of cells there are: one for each digit, and one for the counts of groups."""
        return self.digits + self.counted

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many cells each class has."""
        return (self.groups * self.coordinates,) * self.digits + (self.groups,) * self.counted

    def positions(self, radices: tuple[int, ...] = ()) -> Positions:
        """Of numbers one for each digit of each coordinate, lowest digit first, then that of the groups' counts.

        `radices` are those of the digits. In the cells of a digit, groups come one after another. Of labels there is
        one position for each, or one for all that a user chose.
        """
        if self.scale is None:
            most = min(self.coordinates, 2 * self.most_true)
            if self.coordinates <= MOST_LABEL_POSITIONS:
                return Positions.of(np.ones(self.coordinates), blank=True, changed=(most,))
            return Positions.of([self.coordinates], reports=self.most_true, blank=True, changed=(most,))
        digits = np.array([digit_cells(radix) for radix in radices], dtype=np.int64)
        blank = [radix % 2 == 1 or radix == 2 for radix in radices]
        counts = [self.groups] * self.counted
        return Positions.of(
            np.concatenate([np.tile(self.groups * digits, self.coordinates), counts]),
            blank=np.concatenate([np.tile(blank, self.coordinates), np.zeros(len(counts), dtype=np.bool_)]),
            noise_class=np.concatenate(
                [np.tile(np.arange(len(radices)), self.coordinates), len(radices) * np.ones(len(counts))]
            ),
            changed=self.changed_by(radices),
        )

    def changed_by(self, radices: tuple[int, ...]) -> tuple[int, ...]:
        """How many cells of each digit, and of the groups' counts, replacing one user's data can change.

        Two of each digit of each coordinate, the old one and the new one; but a binary digit without groups has only
        one cell, which is reported or not.
        """
        digits = tuple(self.coordinates * (1 if radix == 2 and self.groups == 1 else 2) for radix in radices)
        return (*digits, *([2] * self.counted))

    def cells_of(self, number: int) -> NDArray[np.uint32]:
        """The cells of a class, in order."""
        grouped = np.arange(self.size, dtype=np.uint32).reshape(self.groups, self.group_cells)
        if number == self.digits:
            return np.ascontiguousarray(grouped[:, -1])
        return np.ascontiguousarray(grouped[:, : self.coordinates * self.digits][:, number :: self.digits]).reshape(-1)

    @property
    def sensitivity(self) -> Sensitivity:
        """Every digit of every coordinate may change; of two groups where there are groups, of few labels if so."""
        if self.max_true is not None:
            return Sensitivity((ChangedCells(self.coordinates, 2 * self.max_true, paired=True),))
        if self.counted:
            digit = ChangedCells(self.groups * self.coordinates, 2 * self.coordinates, paired=True)
            return Sensitivity((digit,) * self.digits + (ChangedCells(self.groups, 2, paired=True),))
        return Sensitivity((ChangedCells(self.coordinates, self.coordinates, paired=False),) * self.digits)


@dataclass(frozen=True)
class Marginals(Encoding):
    """Tables that count users by the values of some attributes: in each, one cell of each user is true.

    A table has a cell for every combination of its attributes' values. One of a single attribute with two values has
    one cell, for the second: the number of users is known.
    """

    sizes: tuple[int, ...]
    """How many values each attribute has."""
    wanted: tuple[tuple[Marginal, int], ...]
    """The marginals whose error counts, and how many of the cells of each."""
    tables: tuple[Marginal, ...] | None = None
    """Those that are collected; None where the planner is to choose."""

    def choices(self) -> list[Marginals]:
        """Tables that a planner may choose from, of which the wanted marginals follow: those themselves, only those
        that no other contains, or one of all attributes."""
        if self.tables is not None:
            return [self]
        marginals = tuple(marginal for marginal, _ in self.wanted)
        whole = tuple(sorted({attribute for marginal in marginals for attribute in marginal}))
        offered = [marginals, tuple(maximal(marginals))]
        if math.prod(self.sizes[attribute] for attribute in whole) <= _MOST_CELLS_OF_ALL:
            offered.append((whole,))
        return [replace(self, tables=tables) for tables in dict.fromkeys(offered)]

    @cached_property
    def table_sizes(self) -> tuple[int, ...]:
        """How many cells each table has."""
        layout = self.least_squares(1.0)
        return tuple(1 if layout.single(table) else layout.cells(table) for table in layout.tables)

    @property
    def size(self) -> int:
        """All cells of all tables."""
        return sum(self.table_sizes)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """The first cell of each table, and the number of all cells."""
        return np.concatenate([[0], np.cumsum(self.table_sizes)]).astype(np.int64)

    @property
    def changed(self) -> int:
        """How many cells a replaced user can change: two of each table, one of a table that is one cell."""
        return sum(1 if size == 1 else 2 for size in self.table_sizes)

    @property
    def dimension(self) -> int:
        """How many numbers are estimated."""
        return sum(cells for _, cells in self.wanted)

    def least_squares(self, variance: float) -> LeastSquares:
        """What the tables say together, with noise of this variance in every cell."""
        assert self.tables is not None, "the planner chooses tables before anything is encoded"
        return LeastSquares(self.sizes, self.tables, (variance,) * len(self.tables))

    @cached_property
    def error_per_variance(self) -> float:
        """The squared error of all numbers that are estimated, with noise of variance 1 in every cell."""
        layout = self.least_squares(1.0)
        return sum(cells * layout.cell_variance(marginal) for marginal, cells in self.wanted)

    def positions(self, radices: tuple[int, ...] = ()) -> Positions:
        """One for each table; a report in a table of one cell may be blank."""
        sizes = np.array(self.table_sizes)
        return Positions.of(sizes, blank=sizes == 1, changed=(self.changed,))

    @cached_property
    def largest_move(self) -> float:
        """By how many counts one user can move an estimated count at most, whose reports may contradict each other.

        In each table one count goes from one cell to another; least squares weighs the tables.
        """
        layout, most = self.least_squares(1.0), 0.0
        for marginal, _ in self.wanted:
            unit = np.zeros(layout.shape(marginal))
            unit.flat[0] = 1.0
            moved = layout.table_weights(layout.coefficients(unit, marginal)).values()
            most = max(
                most, sum(float(np.ptp(np.append(each, 0.0)) if each.size == 1 else np.ptp(each)) for each in moved)
            )
        return most

    def cells_of(self, values: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The cell of each user in each table, (m, tables); blanks where a table of one cell does not count a user."""
        assert self.tables is not None
        cells: NDArray[np.uint32] = np.empty((len(values), len(self.tables)), np.uint32)
        for place, (table, size, first) in enumerate(zip(self.tables, self.table_sizes, self.firsts, strict=False)):
            if size == 1:
                cells[:, place] = np.where(values[:, table[0]] == 1, first, BLANK)
                continue
            index = np.zeros(len(values), np.int64)
            for attribute in table:
                index = index * self.sizes[attribute] + values[:, attribute]
            cells[:, place] = first + index
        return cells

    @property
    def sensitivity(self) -> Sensitivity:
        """Every table may lose a report in one cell and gain one in another."""
        return Sensitivity((ChangedCells(self.size, self.changed, paired=False),))


_MOST_CELLS_OF_ALL = 1 << 16  # of one table of all attributes, before it is not even looked at


@dataclass(frozen=True, slots=True, eq=False)
class Levels(Encoding):
    """Coordinates, each with one of `levels` + 1 values; the mechanism chooses `levels` where it is None.

    `scale` has the bounds of numbers; it is None for labels, which are one coordinate with a value for each label.
    """

    dimension: int
    levels: int | None = None
    scale: Scale | None = None
    mixes: bool = False

    @property
    def sensitivity(self) -> Sensitivity:
        """Every coordinate may change, from any value to any other."""
        return Sensitivity((ChangedCells(self.dimension, self.dimension, paired=False),))


@dataclass(frozen=True, eq=False)
class SignBits(Encoding):
    """Bits of each of `coordinates` rotated coordinates of a vector of `dimension` numbers of bounded norm.

    The rotation is public: `signs` flips coordinates before a Hadamard transform.
    """

    dimension: int
    coordinates: int
    clipping_norm: float
    draw_signs: Any

    @cached_property
    def signs(self) -> NDArray[np.int8]:
        """The signs of this round, (dimension,)."""
        signs: NDArray[np.int8] = self.draw_signs()
        return signs

    @property
    def sensitivity(self) -> Sensitivity:
        """Every rotated coordinate may change; the vector by twice the clipping norm at most."""
        return Sensitivity((ChangedCells(self.coordinates, self.coordinates, paired=False),), l2_bounded=True)


@dataclass(frozen=True, slots=True)
class UnlistedCells(Encoding):
    """Cells that nobody listed: each is there as soon as a user holds it. A user is counted in at most `max_true`.

    One cell is there in any case, of the users who hold something that is not listed in the end.
    """

    max_true: int

    @property
    def sensitivity(self) -> Sensitivity:
        """As many cells lose the user as gain one, and the cell of the rest changes by one."""
        labels = ChangedCells(MOST_CELLS, 2 * self.max_true, paired=True)
        return Sensitivity((labels, ChangedCells(1, 1, paired=False)))


@dataclass(frozen=True, slots=True, eq=False)
class Residues(Encoding):
    """One integer for each coordinate, which are summed.

    `scale` has the bounds of numbers; where it is None, the vector of all coordinates is no longer than
    `clipping_norm`. `mixes` says that entries of the user's array are sums over several coordinates.
    """

    dimension: int
    scale: Scale | None = None
    clipping_norm: float | None = None
    mixes: bool = False

    def positions(self) -> Positions:
        """One for each coordinate."""
        return Positions.of(np.ones(self.dimension), blank=False, changed=(self.dimension,))

    @property
    def sensitivity(self) -> Sensitivity:
        """Every coordinate may change."""
        changed = ChangedCells(self.dimension, self.dimension, paired=False)
        return Sensitivity((changed,), l2_bounded=self.clipping_norm is not None)
