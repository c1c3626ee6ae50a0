"""Several labels for each user, out of a public list: questions where more than one answer may be ticked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size, shown
from shufflesum.cells import BLANK
from shufflesum.domain._arrays import LEFT_OUT
from shufflesum.domain.box import Missing
from shufflesum.domain.categories import check_cells, refuse_for_labels
from shufflesum.domain.frames import library_of, table_columns
from shufflesum.domain.label_columns import (
    LabelRows,
    Words,
    array_rows,
    checked_column,
    column_from_json,
    is_missing,
    list_rows,
    value_at,
)
from shufflesum.domain.label_frames import frame_lists, label_rows
from shufflesum.domain.labels import Label, Labels
from shufflesum.domain.neighbours import Neighbours, SomeCells
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["ChoiceRows", "Choices", "ListRows"]


@dataclass(frozen=True, slots=True)
class ListRows:
    """Lists of labels, one after the other: row i holds those from `starts[i]` up to `starts[i + 1]`."""

    starts: NDArray[np.int64]
    labels: LabelRows
    missing: NDArray[np.bool_] | None = None
    """Whose lists are missing, where any is."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: slice) -> ListRows:
        start, stop, _ = rows.indices(len(self))
        missing = None if self.missing is None else self.missing[start:stop]
        return ListRows(self.starts[start : max(start, stop) + 1], self.labels, missing)


ChoiceRows: TypeAlias = NDArray[np.bool_] | ListRows


@dataclass(frozen=True, slots=True, init=False)
class Choices:
    """Up to `most` different labels each, out of a list, or of 0 to D - 1 for a number D."""

    labels: Labels
    most: int
    column: str | None
    """What the column of lists is called, for tables that must have it."""

    def __init__(self, labels: int | Iterable[Label] | Labels, *, most: int, column: str | None = None) -> None:
        listed = labels if isinstance(labels, Labels) else Labels(labels)
        check_cells("Choices", len(listed))
        check_size("most", most, 1, len(listed))
        object.__setattr__(self, "labels", listed)
        object.__setattr__(self, "most", int(most))
        object.__setattr__(self, "column", checked_column(column))

    @property
    def cells(self) -> int:
        """How many labels are counted."""
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the estimate: one frequency for each label."""
        return (self.cells,)

    @property
    def dimension(self) -> int:
        """How many numbers are estimated."""
        return self.cells

    @property
    def neighbours(self) -> Neighbours:
        """How neighbouring data sets differ."""
        return SomeCells(self.cells, self.most)

    @property
    def cell_labels(self) -> tuple[Label, ...]:
        """The labels as they were given."""
        return tuple(self.labels.values)

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text."""
        return self.labels.texts

    @property
    def curator_weights(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise: up to `most` counts go down
        and as many up."""
        return 2.0 * self.most * self.cells, 4.0 * self.most**2 * self.cells

    @property
    def entries(self) -> int:
        """How many numbers a user holds."""
        return self.most

    @property
    def unit(self) -> float:
        """Frequencies are parts of 1."""
        return 1.0

    @property
    def guess_error(self) -> float:
        """Squared error of guessing that each label is chosen by half of the users, at the worst."""
        return self.cells / 4

    def rows(self, values: Any) -> ChoiceRows:
        """A list of labels for each user, or a row of true and false, one for each label; arrays are not copied."""
        rows = _choice_rows(values, self.labels)
        if len(rows) == 0:
            raise DataError("no-rows", "choices: no rows; pass the labels of at least one user")
        if isinstance(rows, np.ndarray) and rows.shape[1:] != self.shape:
            raise DataError(
                "wrong-shape",
                f"choices has shape {rows.shape}, but (m, {self.cells}) is expected, true or false for each label",
            )
        return rows

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing labels, and about others."""
        refuse_for_labels(clip=clip, missing=missing)

    def prepare(
        self, values: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse"
    ) -> NDArray[np.uint32]:
        """(m, most) cells, rising in each row, blanks where a user has fewer labels; one named twice counts once."""
        self.check_options(clip=clip, missing=missing)
        rows = self.rows(values)
        if isinstance(rows, np.ndarray):
            users, codes = np.nonzero(rows)
        else:
            users, codes = self._listed(rows, first_row)
        sizes = np.bincount(users, minlength=len(rows))
        if (sizes > self.most).any():
            row = int(np.flatnonzero(sizes > self.most)[0])
            named = ", ".join(shown(self.labels.values[code]) for code in codes[users == row][: self.most + 1])
            raise DataError(
                "too-many-labels",
                f"row {first_row + row}: more labels than the plan allows for each user, at most {self.most}; leave "
                "some out, or plan with more (most=, --most)",
                value=f"{sizes[row]} labels: {named}{', ...' if sizes[row] > self.most + 1 else ''}",
                row=first_row + row,
            )
        cells: NDArray[np.uint32] = np.full((len(rows), self.most), BLANK, np.uint32)
        cells[users, np.arange(len(users)) - (np.cumsum(sizes) - sizes)[users]] = codes
        return cells

    def of_round(self, number: int) -> Choices:
        """The same: nothing changes from round to round."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal choices."""
        named = {} if self.column is None else {"column": self.column}
        return {"kind": "choices", "labels": self.labels.to_json(), "most": self.most, **named}

    @classmethod
    def from_json(cls, value: object) -> Choices:
        """Undo `to_json`; raises `PlanError` for anything else."""
        try:
            match value:
                case {"kind": "choices", "labels": labels, "most": int(most), **rest}:
                    return cls(Labels.from_json(labels), most=most, column=column_from_json(rest))
        except ParameterError as error:
            raise PlanError(error.problem, f"the plan's domain is not valid: {error}") from error
        raise PlanError("malformed", f'choices must be {{"kind": "choices", "labels", "most"}}, not {shown(value)}')

    def _listed(self, rows: ListRows, first_row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Users and codes of all labels, in order, each label of a user once."""
        if rows.missing is not None and rows.missing.any():
            row = first_row + int(np.flatnonzero(rows.missing)[0])
            raise DataError(
                "missing-value",
                f"row {row}: the list of labels is missing; {LEFT_OUT}, or pass an empty list",
                row=row,
            )
        sizes = np.diff(rows.starts)
        users = np.repeat(np.arange(len(rows)), sizes)
        if not len(users):
            return users, users
        labels = rows.labels[int(rows.starts[0]) : int(rows.starts[-1])]
        codes = self.labels.codes(labels, what="choices")
        if (codes < 0).any():
            place = int(np.flatnonzero(codes < 0)[0])
            self.labels.refuse(value_at(labels, place), first_row + int(users[place]))
        cells = np.sort(users * self.cells + codes)  # np.unique is slower by far where nearly all are different
        return np.divmod(cells[np.diff(cells, prepend=-1) > 0], self.cells)


def _choice_rows(values: Any, labels: Labels) -> ChoiceRows:
    if isinstance(values, ListRows):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return _array(values)
    table = table_columns(values)
    if table is not None:
        names, columns = table
        return _choice_rows(columns[0], labels) if len(columns) == 1 else _ticked(names, columns, labels)
    if library_of(values) is not None:
        lists = frame_lists(values, "choices")
        if lists is not None:
            return _rows_of(*lists)
        values = values.to_numpy() if library_of(values) == "pandas" else values
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim == 1):
        return _lists(values, labels)
    raise DataError(
        "wrong-type",
        f"choices: {type(values).__name__} is no list of lists of labels; pass one, or true and false in rows",
        value=shown(values),
    )


def _array(values: NDArray[Any]) -> ChoiceRows:
    if values.ndim != 2:
        raise DataError(
            "wrong-shape",
            f"choices has shape {values.shape}, but two axes are expected: users, and their labels, or true and false "
            "for each label",
        )
    if values.dtype.kind == "b":
        return values
    return ListRows(np.arange(len(values) + 1) * values.shape[1], array_rows(values.reshape(-1), "choices"))


def _ticked(names: tuple[str, ...] | None, columns: list[Any], labels: Labels) -> NDArray[np.bool_]:
    """A table of true and false, one column for each label, by its name."""
    if names is not None and names != labels.texts:
        raise DataError(
            "other-columns",
            f"choices: the columns are {shown(list(names))}, but the labels are {shown(list(labels.texts[:20]))}; pass "
            "one column of true and false for each label, in their order, or one column of lists",
        )
    ticked = [label_rows(column, "choices") for column in columns]
    wrong = next((j for j, each in enumerate(ticked) if isinstance(each, Words) or each.dtype.kind != "b"), None)
    if wrong is not None:
        raise DataError(
            "wrong-type",
            f"choices: column {shown(names[wrong] if names else wrong)} is not all true and false; a table of several "
            "columns must be, without gaps",
        )
    return np.column_stack([np.asarray(each) for each in ticked])


def _lists(values: Any, labels: Labels) -> ChoiceRows:
    sizes: NDArray[np.int64] = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        if isinstance(value, list | tuple | set | frozenset | np.ndarray):
            sizes[row] = len(value)
        elif is_missing(value):
            sizes[row] = -1
        else:
            raise DataError(
                "wrong-type",
                f"choices: row {row}: {type(value).__name__} is no list; pass a list of labels for each user",
                value=shown(value),
                row=row,
            )
    flat = list(chain.from_iterable(value for value, size in zip(values, sizes, strict=True) if size > 0))
    ticked = bool(flat) and set(map(type, flat)) <= {bool, np.bool_} and bool((sizes == len(labels)).all())
    if ticked and not any(isinstance(label, bool) for label in labels.values):
        return np.array(flat, dtype=np.bool_).reshape(-1, len(labels))
    return _rows_of(sizes, list_rows(flat, "choices"))


def _rows_of(sizes: NDArray[np.int64], labels: LabelRows) -> ListRows:
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])
    return ListRows(starts, labels, sizes < 0 if (sizes < 0).any() else None)
