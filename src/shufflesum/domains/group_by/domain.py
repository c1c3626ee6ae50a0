"""A group and an array for each user: means, sums and counts by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import set_fields, shown
from shufflesum.domains import base
from shufflesum.domains.arrays import Arrays
from shufflesum.domains.base import LABEL_DISTRIBUTIONS, ColumnLayout, Domain, InputCoercion, Missing
from shufflesum.domains.bounds import BoundsLike
from shufflesum.domains.frames import aligned
from shufflesum.domains.labels import Label, LabelRows, Labels, checked_column, column_from_json, label_rows
from shufflesum.domains.options import LABELS, Option, listed_labels
from shufflesum.domains.structure import Rows, Structure
from shufflesum.encodings import Block, Encoding, GroupedValues, MultiHot
from shufflesum.errors import DataError


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Groups and arrays of the same users."""

    labels: LabelRows
    arrays: Rows

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice) -> GroupRows:
        return GroupRows(self.labels[rows], self.arrays[rows])


@dataclass(frozen=True, slots=True, init=False)
class GroupBy(Domain):
    """A label out of a public list, or of 0 to G - 1 for a number G, and an array of `values`.

    `values` is an `Arrays`, or a shape for values in [0, 1].
    """

    kind: ClassVar[str] = "group-by"
    parts: ClassVar[tuple[str, str]] = ("group_by.estimate:GroupEstimate", "wording:GroupByWording")
    counts_users: ClassVar[bool] = False
    takes_numbers: ClassVar[bool] = True
    distributions: ClassVar[tuple[str, ...]] = Arrays.distributions
    column_help: ClassVar[tuple[str, str]] = (
        "Means of numbers in the groups of this column.",
        "The column of each user's group, under a plan for groups.",
    )
    options: ClassVar[tuple[Option, ...]] = (LABELS,)

    labels: Labels
    values: Arrays
    column: str | None
    """What the column of groups is called, for tables that must have it."""

    def __init__(
        self,
        labels: int | Iterable[Label] | Labels,
        values: int | Sequence[int] | Structure | Arrays = (),
        *,
        column: str | None = None,
    ) -> None:
        arrays = values if isinstance(values, Arrays) else Arrays(values)
        set_fields(self, labels=base.listed_for("GroupBy", labels), values=arrays, column=checked_column(column))

    def with_bounds(self, bounds: BoundsLike) -> GroupBy:
        """The same groups of arrays of the same shape, within these bounds."""
        return GroupBy(self.labels, self.values.with_bounds(bounds), column=self.column)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the estimate: one array for each group."""
        return (len(self.labels), *self.values.shape)

    @property
    def dimension(self) -> int:
        """How many numbers are estimated."""
        return len(self.labels) * self.values.dimension

    @property
    def cell_labels(self) -> tuple[Label, ...]:
        """The groups as they were given."""
        return tuple(self.labels.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The groups as text."""
        return self.labels.texts

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise, of the means of equally large
        groups: a user moves all coordinates of one group and of another."""
        gaussian, laplace = self.values.central_sensitivity
        groups = len(self.labels)
        return 2 * groups**3 * gaussian, 4 * groups**3 * laplace

    @property
    def entries(self) -> int:
        """How many numbers a user holds, beside the group."""
        return self.values.entries

    @property
    def unit(self) -> float:
        """The widest of the bounds."""
        return self.values.unit

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing the middle of the bounds for every group, at the worst."""
        return len(self.labels) * self.values.trivial_mse

    def rows(self, values: Any) -> GroupRows:
        """The pair (groups, arrays), one label and one array for each user; neither is copied."""
        if isinstance(values, GroupRows):
            return values
        if not isinstance(values, tuple | list) or len(values) != 2:
            raise DataError(
                "wrong-type", f"{type(values).__name__} is not a pair (groups, arrays)", value=shown(values)
            )
        groups = aligned(values[0], values[1], "group_by")
        labels, arrays = label_rows(groups, "groups"), self.values.rows(values[1])
        if len(labels) != len(arrays):
            raise DataError(
                "wrong-shape",
                f"there are {len(labels)} groups but {len(arrays)} arrays; give one of each for each user",
            )
        return GroupRows(labels, arrays)

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done about values of the arrays; a missing group is always refused."""
        self.values.check_options(clip=clip, missing=missing)

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> GroupedValues:
        """Groups, checked, and numbers as `Arrays.block` gives them, not yet compared with their limits."""
        rows = self.rows(rows)
        codes = self.labels.known(rows.labels, first_row, what="groups")
        numbers = self.values.block(rows.arrays, first_row, clip=clip, missing=missing)
        return GroupedValues(codes.astype(np.uint32), numbers)

    @property
    def column_layout(self) -> ColumnLayout:
        """A column of groups, and columns of numbers beside it."""
        values = self.values
        return ColumnLayout(values.shape, values.columns, labels=True, column=self.column)

    def names_in(self, rows: Any) -> tuple[str, ...] | None:
        """What the numbers are called."""
        return self.values.names_in(rows.arrays)

    def value_at(self, rows: Any, row: int) -> Any:
        """A user's group and array."""
        return Domain.value_at(self, rows.labels, row), self.values.value_at(rows.arrays, row)

    def coercion(self) -> InputCoercion:
        """Numbers are moved as those of arrays; an unknown group is refused."""
        values = self.values.coercion()

        def wrap_one(held: Any) -> Any:
            if not isinstance(held, tuple | list) or len(held) != 2:
                raise DataError(
                    "wrong-type",
                    f"{type(held).__name__} is not a pair (group, array), which this task asks for",
                    value=str(held)[:60],
                )
            return [held[0]], values.wrap_one(held[1])

        def validate(rows: GroupRows) -> object:
            return self.labels.known(rows.labels, what="groups")

        def clamp(rows: GroupRows) -> GroupRows:
            return GroupRows(rows.labels, values.clamp(rows.arrays))

        return InputCoercion(wrap_one, validate, clamp, values.clip, values.missing)

    def repeated(self, row: Any, size: int, first: Any = None) -> Any:
        """Groups, and arrays."""
        (label, array), (first_label, first_array) = row, row if first is None else first
        return [first_label, *[label] * (size - 1)], self.values.repeated(array, size, first_array)

    def in_turn(self, rows: Sequence[Any], size: int) -> Any:
        """Groups, and arrays."""
        labels = [rows[user % len(rows)][0] for user in range(size)]
        return labels, self.values.in_turn([array for _, array in rows], size)

    def describe_distribution(self, distribution: str) -> str:
        """Of the numbers; that of the groups is always the same."""
        return f"{self.values.describe_distribution(distribution)}, labels {LABEL_DISTRIBUTIONS[0]}"

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], Any]:
        """Groups of different sizes, and numbers that are alike in all."""
        labels, numbers = self.cell_labels, self.values.sampler(distribution, random)

        def sample(users: int) -> Any:
            codes = base.made_up_codes(random, len(labels), users, LABEL_DISTRIBUTIONS[0])
            return [labels[code] for code in codes], numbers(users)

        return sample

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """The mean array of each group."""
        sizes = np.zeros(len(self.labels))
        sums = np.zeros((len(self.labels), self.values.dimension))
        for block in blocks:
            assert isinstance(block, GroupedValues)
            np.add.at(sizes, block.groups, 1)
            np.add.at(sums, block.groups, block.numbers.values)
        with np.errstate(invalid="ignore"):
            return np.stack([self.values.structure.restore(row) for row in sums / sizes[:, None]])

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> GroupBy:
        """Groups of such numbers, or of one number each."""
        return cls(listed_labels(given, "--group-by"), () if numbers is None else numbers, column=column)

    def encodings(self) -> tuple[Encoding, ...]:
        """The digits of all numbers in the cells of the user's group, and one cell that counts its users."""
        numbers, groups = self.values, len(self.labels)
        mixes = numbers.structure.mixes
        return (MultiHot(numbers.dimension, groups=groups, counted=True, scale=numbers, mixes=mixes),)

    def example(self, *, cells: Any = (), values: Any = None) -> tuple[Label, NDArray[np.float64]]:
        """A user of this group with these numbers."""
        (group,) = cells
        return self.labels.values[group], self.values.example(values=values)

    @property
    def numbers(self) -> Arrays:
        """The values of all groups."""
        return self.values

    def with_numbers(self, bounds: BoundsLike | None, columns: Sequence[str] | None) -> GroupBy:
        """The same groups of numbers with these bounds and columns, where they are given."""
        return GroupBy(self.labels, self.values.with_numbers(bounds, columns), column=self.column)

    def size_text(self) -> str:
        """Groups, and numbers of each."""
        return f"{len(self.labels):,} groups of {self.values.dimension:,} coordinates"

    def bounds_text(self) -> str:
        """The bounds of the numbers."""
        return self.values.bounds_text()

    def in_units(self) -> GroupBy:
        """Values between 0 and 1."""
        return self.with_bounds((0.0, 1.0))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal groups."""
        return {
            "kind": "group-by",
            "labels": self.labels.to_json(),
            "values": self.values.to_json(),
        } | self._column_field()

    _fields: ClassVar[str] = '"labels", "values" and perhaps "column"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> GroupBy | None:
        match fields:
            case {"labels": labels, "values": arrays, **rest}:
                return cls(Labels.from_json(labels), Arrays.from_json(arrays), column=column_from_json(rest))
        return None
