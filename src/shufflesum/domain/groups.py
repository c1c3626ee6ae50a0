"""A group and an array for each user: means, sums and counts by group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.domain._arrays import Floats, Rows
from shufflesum.domain.bounds import BoundsLike
from shufflesum.domain.box import Box, Missing
from shufflesum.domain.categories import check_cells
from shufflesum.domain.label_columns import LabelRows, checked_column, column_from_json
from shufflesum.domain.label_frames import label_rows
from shufflesum.domain.labels import Label, Labels
from shufflesum.domain.neighbours import Neighbours, TwoGroups
from shufflesum.domain.structure import Structure
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["GroupRows", "Grouped", "Groups"]


class Grouped(NamedTuple):
    """What an encoder takes: the group of each user, (m,), and coordinates as `Box.prepare` gives them, (m, d)."""

    groups: NDArray[np.uint32]
    coordinates: Floats


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
class Groups:
    """A label out of a public list, or of 0 to G - 1 for a number G, and an array in a box."""

    labels: Labels
    box: Box
    column: str | None
    """What the column of groups is called, for tables that must have it."""

    def __init__(
        self,
        labels: int | Iterable[Label] | Labels,
        shape: int | Sequence[int] | Structure | Box = (),
        bounds: BoundsLike = (0, 1),
        columns: Sequence[str] | None = None,
        *,
        column: str | None = None,
    ) -> None:
        listed = labels if isinstance(labels, Labels) else Labels(labels)
        check_cells("Groups", len(listed))
        object.__setattr__(self, "labels", listed)
        object.__setattr__(self, "box", shape if isinstance(shape, Box) else Box.of(shape, bounds, columns))
        object.__setattr__(self, "column", checked_column(column))

    def with_bounds(self, bounds: BoundsLike) -> Groups:
        """The same groups of arrays of the same shape, within these bounds."""
        return Groups(self.labels, self.box.structure, bounds, self.box.columns, column=self.column)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the estimate: one array for each group."""
        return (len(self.labels), *self.box.shape)

    @property
    def dimension(self) -> int:
        """How many numbers are estimated."""
        return len(self.labels) * self.box.dimension

    @property
    def neighbours(self) -> Neighbours:
        """How neighbouring data sets differ."""
        return TwoGroups(len(self.labels), self.box.dimension)

    @property
    def cell_labels(self) -> tuple[Label, ...]:
        """The groups as they were given."""
        return tuple(self.labels.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The groups as text."""
        return self.labels.texts

    @property
    def curator_weights(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise, of the means of equally large
        groups: a user moves all coordinates of one group and of another."""
        gaussian, laplace = self.box.curator_weights
        groups = len(self.labels)
        return 2 * groups**3 * gaussian, 4 * groups**3 * laplace

    @property
    def entries(self) -> int:
        """How many numbers a user holds, beside the group."""
        return self.box.entries

    @property
    def unit(self) -> float:
        """The widest of the bounds."""
        return self.box.unit

    @property
    def guess_error(self) -> float:
        """Squared error of guessing the middle of the bounds for every group, at the worst."""
        return len(self.labels) * self.box.guess_error

    def rows(self, values: Any) -> GroupRows:
        """The pair (groups, arrays), one label and one array for each user; neither is copied."""
        if isinstance(values, GroupRows):
            return values
        if not isinstance(values, tuple | list) or len(values) != 2:
            raise DataError(
                "wrong-type", f"{type(values).__name__} is not a pair (groups, arrays)", value=shown(values)
            )
        labels, arrays = label_rows(values[0], "groups"), self.box.rows(values[1])
        if len(labels) != len(arrays):
            raise DataError(
                "wrong-shape",
                f"there are {len(labels)} groups but {len(arrays)} arrays; give one of each for each user",
            )
        return GroupRows(labels, arrays)

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done about values of the arrays; a missing group is always refused."""
        self.box.check_options(clip=clip, missing=missing)

    def prepare(self, values: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Grouped:
        """Groups, checked, and coordinates as `Box.prepare` gives them: whoever reads those compares them with
        `box.limits` and calls `box.refuse`."""
        rows = self.rows(values)
        codes = self.labels.known(rows.labels, first_row, what="groups")
        coordinates = self.box.prepare(rows.arrays, first_row, clip=clip, missing=missing)
        return Grouped(codes.astype(np.uint32), coordinates)

    def of_round(self, number: int) -> Groups:
        """The same: nothing changes from round to round."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal groups."""
        named = {} if self.column is None else {"column": self.column}
        return {"kind": "groups", "labels": self.labels.to_json(), "box": self.box.to_json(), **named}

    @classmethod
    def from_json(cls, value: object) -> Groups:
        """Undo `to_json`; raises `PlanError` for anything else."""
        try:
            match value:
                case {"kind": "groups", "labels": labels, "box": box, **rest}:
                    return cls(Labels.from_json(labels), Box.from_json(box), column=column_from_json(rest))
        except ParameterError as error:
            raise PlanError(error.problem, f"the plan's domain is not valid: {error}") from error
        raise PlanError("malformed", f'groups must be {{"kind": "groups", "labels", "box"}}, not {shown(value)}')
