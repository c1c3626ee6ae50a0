"""One label for each user, out of a public list, or one number in public bins: what a histogram counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import set_fields, shown
from shufflesum.domains import base
from shufflesum.domains.base import ColumnLayout, InputCoercion, LabelDomain, Missing
from shufflesum.domains.labels import (
    MISSING,
    UNKNOWN,
    Label,
    LabelRows,
    Labels,
    checked_column,
    column_from_json,
    label_rows,
    value_at,
)
from shufflesum.domains.options import LABELS, Option, bin_edges, listed_labels
from shufflesum.domains.structure import LEFT_OUT, Rows, real_array, users_rows
from shufflesum.encodings import Cells, Encoding, Levels, OneHot
from shufflesum.errors import DataError, ParameterError

OTHER = "other"
"""The last cell of a plan that has one for everything outside its labels or bins."""

_REMEDY = ", or count everything else as one more label (other=True)"
_BINS_REMEDY = _REMEDY + ", which leaves no quantiles"


@dataclass(frozen=True, slots=True, init=False)
class Categories(LabelDomain):
    """One label each. `labels` is a list or a number D for 0 to D - 1; or `bins` are the rising edges of intervals.

    Bins [0, 18, 65] are the labels "0 to 18" (18 itself not in it) and "18 to 65" (65 in it). With `other` there is
    one more cell, the last, for every other label or number and for missing ones. All of it is public: never chosen
    by looking at the private data.
    """

    kind: ClassVar[str] = "categories"
    parts: ClassVar[tuple[str, str]] = ("counts:CountEstimate", "wording:CategoriesWording")
    trivial_guess: ClassVar[str] = "that all labels are equally frequent"
    one_each: ClassVar[bool] = True
    column_help: ClassVar[tuple[str, str]] = (
        "Count the labels, or numbers in bins, of this column.",
        "The column of each user's label, or number in bins, under a plan for categories.",
    )
    options: ClassVar[tuple[Option, ...]] = (
        LABELS,
        Option("bins", "categories: edges of bins for numbers, as 0,18,65,120.", "E,E,...", bin_edges),
        Option("other", "categories: count everything else as one more label.", flag=True),
    )

    labels: Labels
    """Without `other`; of bins their names."""
    bins: tuple[float, ...] | None
    other: bool
    column: str | None
    """What the column of labels is called, for tables that must have it."""

    def __init__(
        self,
        labels: int | Iterable[Label] | Labels | None = None,
        *,
        bins: Sequence[float] | None = None,
        other: bool = False,
        column: str | None = None,
    ) -> None:
        if (labels is None) == (bins is None):
            raise ParameterError(
                "missing-argument" if labels is None else "conflicting-arguments",
                "Categories needs labels, a list or a number, or else bins, the edges of intervals",
            )
        if not isinstance(other, bool | np.bool_):
            raise ParameterError("wrong-type", f"other is {shown(other)}; it must be True or False")
        edges = None if bins is None else _edges(bins)
        if edges is not None:
            labels = [f"{_number(low)} to {_number(high)}" for low, high in pairwise(edges)]
        listed = base.listed_for("Categories", 0 if labels is None else labels, bool(other))
        if other and listed.code(OTHER) >= 0:
            raise ParameterError(
                "conflicting-arguments", f"{OTHER!r} is one of the labels already; leave it out, or other=True"
            )
        set_fields(self, labels=listed, bins=edges, other=bool(other), column=checked_column(column))

    @property
    def cells(self) -> int:
        """How many labels are counted, `other` among them."""
        return len(self.labels) + self.other

    @property
    def cell_labels(self) -> tuple[Label, ...]:
        """The labels as they were given, `other` last where there is one."""
        return (*self.labels.values, *([OTHER] if self.other else []))

    @property
    def names(self) -> tuple[str, ...]:
        """The labels as text, `other` last where there is one."""
        return (*self.labels.texts, *([OTHER] if self.other else []))

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise: a label moves one count to
        another, at distance sqrt(2) or 2."""
        return 2.0 * self.cells, 4.0 * self.cells

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing that all labels are equally frequent, at the worst."""
        return 1.0 - 1.0 / self.cells

    def rows(self, values: Any) -> Rows | LabelRows:
        """One value for each user; arrays of numbers, memory-mapped or not, are not copied."""
        return label_rows(values) if self.bins is None else _numbers(values)

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about values beyond the bins and missing ones; `other` takes them in."""
        base.refuse_for_labels(clip=clip and self.bins is None, missing=missing, remedy=_REMEDY)

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Cells:
        """The cell of each user, (m,): integers of any type; never changes `rows`.

        `clip` moves numbers to the nearest bin; labels have no nearest. Integers under the labels 0 to D - 1 without
        `other` are handed through, neither copied nor looked at: whoever reads the codes compares them
        with `cells` and calls `refuse`. All else is checked here, and comes as unsigned 32-bit numbers.
        """
        return Cells(self._codes(rows, first_row, clip, missing), first_row, self.cells, self.refuse)

    def _codes(self, values: Any, first_row: int, clip: bool, missing: Missing) -> NDArray[Any]:
        self.check_options(clip=clip, missing=missing)
        if self.bins is not None:
            return self._binned(values, first_row, clip)
        rows = label_rows(values)
        if self.labels.plain and isinstance(rows, np.ndarray) and rows.dtype.kind in "iu":
            numbers = rows.astype(rows.dtype.newbyteorder("="), copy=False)
            return self._with_other(numbers) if self.other else numbers
        if self.other:
            codes = self.labels.codes(rows, first_row)
            return np.where(codes < 0, len(self.labels), codes).astype(np.uint32)
        return self.labels.known(rows, first_row, remedy=_REMEDY).astype(np.uint32)

    def refuse(self, codes: NDArray[Any], first_row: int = 0) -> NoReturn:
        """Raise the `DataError` for the first code that is no cell; `codes` are those of a block."""
        row = int(np.flatnonzero((codes < 0) | (codes >= self.cells))[0])
        self.labels.refuse(value_at(codes, row), first_row + row, _REMEDY)

    @property
    def column_layout(self) -> ColumnLayout:
        """One column, of labels or of numbers in bins."""
        if self.bins is None:
            return ColumnLayout(labels=True, column=self.column)
        return ColumnLayout(numbers=(), single=True, column=self.column)

    def coercion(self) -> InputCoercion:
        """Numbers are moved to the nearest bin, or into `other`; an unknown label only where there is `other`."""
        if self.bins is None:
            return InputCoercion(lambda held: [held], lambda rows: self.block(rows).check())
        clip = not self.other  # which takes in what is in no bin

        def wrap_one(held: Any) -> NDArray[Any]:
            return real_array(np.nan if held is None else held, DataError, "vector")[np.newaxis]

        return InputCoercion(wrap_one, lambda rows: self.block(rows, clip=clip), clip=clip)

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], list[Any]]:
        """Something of each label."""
        held = [self.example(cells=[cell]) for cell in range(self.cells)]
        return lambda users: [held[code] for code in base.made_up_codes(random, self.cells, users, distribution)]

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> Categories:
        """Labels or bins."""
        if "labels" in given and "bins" in given:
            raise ParameterError("conflicting-arguments", "--labels and --bins exclude each other; leave one out")
        other = given.get("other", False)
        if "bins" in given:
            return cls(bins=given["bins"], other=other, column=column)
        remedy = ", or edges of bins for numbers (--bins 0,18,65,120)"
        return cls(listed_labels(given, "--categories", remedy), other=other, column=column)

    def encodings(self) -> tuple[Encoding, ...]:
        """One cell of as many as there are labels; or one coordinate with as many values."""
        return OneHot(self.cells), Levels(1, levels=self.cells - 1)

    def example(self, *, cells: Any = (), values: Any = None) -> Label | float:
        """Something that a user in this cell may hold."""
        cell = int(cells[0])
        if self.bins is not None:
            return self.bins[-1] + 1 if cell == len(self.labels) else (self.bins[cell] + self.bins[cell + 1]) / 2
        if cell == len(self.labels):  # whatever is none of the labels
            return max(map(len, self.labels.texts)) * "?" + "?"
        return self.labels.values[cell]

    @property
    def bin_edges(self) -> tuple[float, ...] | None:
        """Those of the bins, unless numbers beyond them are counted, nobody knows on which side."""
        return None if self.other else self.bins

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal categories."""
        what = {"labels": self.labels.to_json()} if self.bins is None else {"bins": list(self.bins)}
        return {"kind": "categories", **what, "other": self.other} | self._column_field()

    _fields: ClassVar[str] = '"labels" or "bins", "other" and perhaps "column"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> Categories | None:
        match fields:
            case {"labels": labels, "other": bool(other), **rest}:
                return cls(Labels.from_json(labels), other=other, column=column_from_json(rest))
            case {"bins": list(bins), "other": bool(other), **rest}:
                return cls(bins=bins, other=other, column=column_from_json(rest))
        return None

    def _with_other(self, numbers: NDArray[Any]) -> NDArray[Any]:
        other = len(self.labels)
        if other > np.iinfo(numbers.dtype).max:  # not to be told from negative numbers without their sign
            numbers = numbers.astype(np.int64)
        unsigned = numbers.view(numbers.dtype.str.replace("i", "u"))  # where negative numbers are above all labels
        return np.asarray(np.minimum(unsigned, other), dtype=np.uint32)

    def _binned(self, values: Any, first_row: int, clip: bool) -> NDArray[Any]:
        numbers = real_array(_numbers(values), DataError, "numbers").reshape(-1)
        # In the precision of the data, or the single-precision number written for an edge would miss its bin.
        with np.errstate(over="ignore"):  # an edge beyond what this precision holds is beyond all its numbers
            edges = np.asarray(self.bins).astype(numbers.dtype)
        if clip:
            numbers = np.clip(numbers, edges[0], edges[-1])
        bins = np.searchsorted(edges, numbers, side="right") - 1
        bins[numbers == edges[-1]] = len(edges) - 2
        bins[~((numbers >= edges[0]) & (numbers <= edges[-1]))] = UNKNOWN
        bins[np.isnan(numbers)] = MISSING
        if self.other:
            bins[bins < 0] = len(self.labels)
        elif (bins < 0).any():
            row = int(np.flatnonzero(bins < 0)[0])
            if bins[row] == MISSING:
                raise DataError(
                    "missing-value",
                    f"row {first_row + row}: the value is NaN (missing); {LEFT_OUT}{_BINS_REMEDY}",
                    row=first_row + row,
                )
            raise DataError(
                "out-of-bounds",
                f"row {first_row + row}: the value is in no bin, allowed is [{_number(edges[0])}, "
                f"{_number(edges[-1])}]; pass clip=True to move it to the nearest bin, or plan with wider "
                f"public bins (bins=){_BINS_REMEDY}",
                value=str(numbers[row]),
                row=first_row + row,
            )
        return bins.astype(np.uint32)


def _numbers(values: ArrayLike) -> Rows:
    rows = users_rows(values)
    if rows.ndim != 1 and rows.shape[1:] != (1,):
        raise DataError(
            "wrong-shape", f"numbers has shape {rows.shape}, but (m,) is expected, one number for each of m users"
        )
    if len(rows) == 0:
        raise DataError("no-rows", "numbers: no rows; pass one number for each of at least one user")
    return rows


def _edges(bins: Sequence[float]) -> tuple[float, ...]:
    edges = real_array(bins, ParameterError, "bins").astype(np.float64) + 0.0  # one zero
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise ParameterError(
            "bad-bounds", f"bins is {shown(bins)}; give at least two finite edges, each above the one before"
        )
    return tuple(edges.tolist())


def _number(value: float) -> str:
    plain = float(f"{value:.15g}")  # an edge may be the next number above a plain one, so that its bin holds that, too
    value = plain if math.isfinite(plain) and math.nextafter(plain, math.inf) == value else float(value)
    return f"{int(value):,}" if math.floor(value) == value and abs(value) < 1e15 else f"{value:,}"
