"""Several labels for each user, out of a public list: questions where more than one answer may be ticked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size, set_fields, shown
from shufflesum.cells import BLANK
from shufflesum.domains import base
from shufflesum.domains.base import ColumnLayout, Domain, InputCoercion, LabelDomain, Missing
from shufflesum.domains.frames import columns_of
from shufflesum.domains.labels import (
    DictionaryColumn,
    Label,
    LabelRows,
    Labels,
    array_rows,
    checked_column,
    column_from_json,
    frame_lists,
    is_missing,
    label_rows,
    list_rows,
    taken,
    value_at,
)
from shufflesum.domains.options import LABELS, Option, listed_labels
from shufflesum.domains.structure import LEFT_OUT
from shufflesum.encodings import ChosenCells, Encoding, MultiHot
from shufflesum.errors import DataError, ParameterError


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
class MultiChoice(LabelDomain):
    """Up to `max_choices` different labels each, out of a list, or of 0 to D - 1 for a number D."""

    kind: ClassVar[str] = "multi-choice"
    parts: ClassVar[tuple[str, str]] = ("counts:CountEstimate", "wording:MultiChoiceWording")
    trivial_guess: ClassVar[str] = "that half of the users hold each label"
    one_each: ClassVar[bool] = False
    column_help: ClassVar[tuple[str, str]] = (
        "Count the lists of labels of this column, or text with ; between.",
        "The column of lists of labels, or of text with ; between, under a plan for MultiChoice.",
    )
    options: ClassVar[tuple[Option, ...]] = (
        LABELS,
        Option("max-choices", "multi-choice: the most labels a user may hold.", "S", int),
    )

    labels: Labels
    max_choices: int
    column: str | None
    """What the column of lists is called, for tables that must have it."""

    def __init__(self, labels: int | Iterable[Label] | Labels, *, max_choices: int, column: str | None = None) -> None:
        listed = base.listed_for("MultiChoice", labels)
        check_size("max_choices", max_choices, 1, len(listed))
        set_fields(self, labels=listed, max_choices=int(max_choices), column=checked_column(column))

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise: up to
        `max_choices` counts go down and as many up."""
        return 2.0 * self.max_choices * self.cells, 4.0 * self.max_choices**2 * self.cells

    @property
    def entries(self) -> int:
        """How many numbers a user holds."""
        return self.max_choices

    @property
    def trivial_mse(self) -> float:
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
        base.refuse_for_labels(clip=clip, missing=missing)

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> ChosenCells:
        """(m, max_choices) cells, rising in each row; blanks fill up; a label named twice counts once."""
        self.check_options(clip=clip, missing=missing)
        rows = self.rows(rows)
        if isinstance(rows, np.ndarray):
            users, codes = np.nonzero(rows)
        else:
            users, codes = self._listed(rows, first_row)
        sizes = np.bincount(users, minlength=len(rows))
        if (sizes > self.max_choices).any():
            row = int(np.flatnonzero(sizes > self.max_choices)[0])
            named = ", ".join(shown(self.labels.values[code]) for code in codes[users == row][: self.max_choices + 1])
            raise DataError(
                "too-many-labels",
                f"row {first_row + row}: more labels than the plan allows for each user, at most {self.max_choices}; "
                "leave some out, or plan with more (max_choices=)",
                value=f"{sizes[row]} labels: {named}{', ...' if sizes[row] > self.max_choices + 1 else ''}",
                row=first_row + row,
            )
        cells: NDArray[np.uint32] = np.full((len(rows), self.max_choices), BLANK, np.uint32)
        cells[users, np.arange(len(users)) - (np.cumsum(sizes) - sizes)[users]] = codes
        return ChosenCells(cells, first_row)

    @property
    def column_layout(self) -> ColumnLayout:
        """One column, of lists of labels."""
        return ColumnLayout(labels=True, lists=True, column=self.column)

    def value_at(self, rows: Any, row: int) -> Any:
        """A user's labels, or true and false for each label."""
        if not isinstance(rows, ListRows):
            return Domain.value_at(self, rows, row)
        return [value_at(rows.labels, index) for index in range(*rows.starts[row : row + 2].tolist())]

    def coercion(self) -> InputCoercion:
        """Of too many labels as many as the plan allows, at random; of a list that is missing none."""

        def clamp(rows: Any) -> NDArray[np.bool_]:
            chosen = np.unique(self._all_codes(rows)).tolist()
            if len(chosen) > self.max_choices:
                chosen = secrets.SystemRandom().sample(chosen, self.max_choices)
            ticked = np.zeros((1, self.cells), dtype=np.bool_)
            ticked[0, chosen] = True
            return ticked

        return InputCoercion(lambda held: [held], self._all_codes, clamp)

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], list[list[Label]]]:
        """Up to as many labels as are allowed, every number of them equally often."""
        labels = self.cell_labels

        def sample(users: int) -> list[list[Label]]:
            codes = base.made_up_codes(random, self.cells, users * self.max_choices, distribution).reshape(users, -1)
            sizes = random.integers(1, self.max_choices, users, endpoint=True).tolist()
            return [list({labels[code] for code in row[:size]}) for row, size in zip(codes, sizes, strict=True)]

        return sample

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> MultiChoice:
        """Labels, and how many."""
        if "max_choices" not in given:
            raise ParameterError(
                "missing-argument",
                "--max-choices is missing: how many labels a user may have at most, as --max-choices 3",
            )
        return cls(listed_labels(given, "--multi-choice"), max_choices=given["max_choices"], column=column)

    def encodings(self) -> tuple[Encoding, ...]:
        """A cell for each label, of which a few are true."""
        return (MultiHot(self.cells, max_true=self.max_choices),)

    def example(self, *, cells: Any = (), values: Any = None) -> list[Label]:
        """The labels of these cells."""
        return [self.labels.values[cell] for cell in cells]

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal choices."""
        return {
            "kind": "multi-choice",
            "labels": self.labels.to_json(),
            "max_choices": self.max_choices,
        } | self._column_field()

    _fields: ClassVar[str] = '"labels", "max_choices" and perhaps "column"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> MultiChoice | None:
        match fields:
            case {"labels": labels, "max_choices": int(max_choices), **rest}:
                return cls(Labels.from_json(labels), max_choices=max_choices, column=column_from_json(rest))
        return None

    def _all_codes(self, rows: Any, first_row: int = 0) -> NDArray[Any]:
        """All labels of these users, row after row; refuses the first that is not in the plan."""
        if not isinstance(rows, ListRows):
            return np.nonzero(rows)[1]
        first, last = int(rows.starts[0]), int(rows.starts[-1])
        if first == last:
            return np.empty(0, dtype=np.int64)
        labels = rows.labels[first:last]
        codes = self.labels.codes(labels, what="choices")
        if (codes < 0).any():
            index = int(np.flatnonzero(codes < 0)[0])
            row = int(np.searchsorted(rows.starts, first + index, side="right")) - 1
            self.labels.refuse(value_at(labels, index), first_row + row)
        return codes

    def _listed(self, rows: ListRows, first_row: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Users and codes of all labels, in order, each label of a user once."""
        if rows.missing is not None and rows.missing.any():
            row = first_row + int(np.flatnonzero(rows.missing)[0])
            raise DataError(
                "missing-value", f"row {row}: the list of labels is missing; {LEFT_OUT}, or pass an empty list", row=row
            )
        sizes = np.diff(rows.starts)
        users = np.repeat(np.arange(len(rows)), sizes)
        if not len(users):
            return users, users
        codes = self._all_codes(rows, first_row)
        cells = np.sort(users * self.cells + codes)  # np.unique is slower by far where nearly all are different
        return np.divmod(cells[np.diff(cells, prepend=-1) > 0], self.cells)


def listed_rows(values: Any) -> ListRows:
    """A list of labels for each user, without a list of all labels: what ticks stand for nobody would know."""
    rows = _choice_rows(values, None)
    if not isinstance(rows, ListRows):
        raise DataError("wrong-type", "choices: true and false are no labels here; pass a list of labels for each user")
    return rows


def _choice_rows(values: Any, labels: Labels | None) -> ChoiceRows:
    if isinstance(values, ListRows):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind != "O":
        return _array(values)
    found = columns_of(values)
    if found is not None and found.is_table:
        if len(found.columns) == 1:
            return _choice_rows(found.columns[0], labels)
        if labels is None:
            raise DataError("wrong-shape", f"choices: a table of {len(found.columns)} columns; pass the one of lists")
        return _ticked(found.names, found.columns, labels)
    if found is not None:
        lists = frame_lists(values, "choices")
        if lists is not None:
            return _rows_of(*lists)
        values = np.asarray(values) if isinstance(getattr(values, "dtype", None), np.dtype) else values
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
            "columns-mismatch",
            f"choices: the columns are {shown(list(names))}, but the labels are {shown(list(labels.texts[:20]))}; pass "
            "one column of true and false for each label, in their order, or one column of lists",
        )
    ticked = [label_rows(column, "choices") for column in columns]
    wrong = next(
        (j for j, each in enumerate(ticked) if isinstance(each, DictionaryColumn) or each.dtype.kind != "b"), None
    )
    if wrong is not None:
        raise DataError(
            "wrong-type",
            f"choices: column {shown(names[wrong] if names else wrong)} is not all true and false; a table of several "
            "columns must be, without gaps",
        )
    return np.column_stack([np.asarray(each) for each in ticked])


def _lists(values: Any, labels: Labels | None) -> ChoiceRows:
    sizes: NDArray[np.int64] = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        if isinstance(value, list | tuple | set | frozenset | np.ndarray):
            sizes[row] = len(value)
        elif is_missing(value):
            sizes[row] = -1
        else:
            raise DataError(
                "wrong-type",
                f"choices: row {row}: {type(value).__name__} is no list; pass a list of labels for each user: of text, "
                "column.str.split(';')",
                value=shown(value),
                row=row,
            )
    flat = list(chain.from_iterable(value for value, size in zip(values, sizes, strict=True) if size > 0))
    ticked = bool(flat) and set(map(type, flat)) <= {bool, np.bool_}
    if labels is not None and ticked and np.all(sizes == len(labels)) and not any(map(_is_bool, labels.values)):
        return np.array(flat, dtype=np.bool_).reshape(-1, len(labels))
    return _rows_of(sizes, list_rows(flat, "choices"))


def _is_bool(label: Label) -> bool:
    return isinstance(label, bool)


def _rows_of(sizes: NDArray[np.int64], labels: LabelRows) -> ListRows:
    """Lists of these sizes, -1 where one is missing, without empty texts: "".split(";") is a list of one."""
    if isinstance(labels, DictionaryColumn) and "" in labels.values:
        filled = np.array([*(value != "" for value in labels.values), True])[labels.places]
        users = np.repeat(np.arange(len(sizes)), np.maximum(sizes, 0))
        sizes = np.where(sizes < 0, sizes, np.bincount(users[filled], minlength=len(sizes)))
        labels = taken(labels, filled)
    starts = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0))])
    return ListRows(starts, labels, sizes < 0 if (sizes < 0).any() else None)
