"""Arrays in a box: bounds on each coordinate of a structure, and the way from arrays to coordinates and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from shufflesum._checks import shown
from shufflesum.domain._arrays import LEFT_OUT, ROUNDING, Floats, Rows, check_stack, users_rows
from shufflesum.domain.bounds import Bounds, BoundsLike
from shufflesum.domain.frames import FrameRows, entry_names
from shufflesum.domain.neighbours import EveryCoordinate, Neighbours
from shufflesum.domain.structure import Structure, structure_from_json, structure_of
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["Box", "Missing"]

Missing: TypeAlias = Literal["refuse", "midpoint"]


@dataclass(frozen=True, slots=True)
class Box:
    """A structure with bounds on its coordinates: what every user's array must satisfy."""

    structure: Structure
    bounds: Bounds
    columns: tuple[str, ...] | None = None
    """What the entries are called, for tables that must have just these columns."""

    def __post_init__(self) -> None:
        """Check that structure, bounds and columns belong together."""
        self.bounds.check_dimension(self.structure.dimension)
        if self.columns is not None:
            object.__setattr__(self, "columns", _column_names(self.columns, self.structure))

    @classmethod
    def of(
        cls,
        shape: int | Sequence[int] | Structure,
        bounds: BoundsLike,
        columns: Sequence[str] | None = None,
    ) -> Box:
        """Build from what a caller of `plan` gives."""
        structure = structure_of(shape)
        return cls(structure, Bounds.of(bounds, structure, columns), columns)  # type: ignore[arg-type]  # made a tuple at construction

    def with_bounds(self, bounds: BoundsLike) -> Box:
        """Arrays of the same structure, within these bounds."""
        return Box.of(self.structure, bounds, self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one user's array."""
        return self.structure.shape

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.structure.dimension

    @property
    def neighbours(self) -> Neighbours:
        """How neighbouring data sets differ."""
        return EveryCoordinate(self.dimension)

    @property
    def curator_weights(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise, shared out as is best.

        Variances are in proportion to the width for Gaussian noise, scales to its third root for Laplace noise.
        """
        width = self.width
        return float(np.sum(width)) ** 2, float(np.sum(width ** (2 / 3))) ** 3

    @property
    def lower(self) -> NDArray[np.float64]:
        """Lower bounds, (d,), made afresh at each call."""
        return self.bounds.lower_array(self.dimension)

    @property
    def upper(self) -> NDArray[np.float64]:
        """Upper bounds, (d,), made afresh at each call."""
        return self.bounds.upper_array(self.dimension)

    @property
    def width(self) -> NDArray[np.float64]:
        """Upper minus lower bounds, (d,), made afresh at each call; finite and positive."""
        return self.upper - self.lower

    def limits(self, dtype: DTypeLike) -> tuple[Floats, Floats]:
        """Bounds in the precision of the data, each (d,): what values of that data type are compared with.

        The single-precision number written for 0.1 is above 0.1; it must not count as out of bounds (0, 0.1).
        Unit coordinates of accepted values can therefore leave [0, 1] by rounding, and need clamping.
        """
        lower, upper = self._limits(np.dtype(dtype))
        return np.full(self.dimension, lower), np.full(self.dimension, upper)

    @property
    def entries(self) -> int:
        """How many numbers a user holds."""
        return self.dimension

    @property
    def unit(self) -> float:
        """The widest of the bounds."""
        return float(np.max(self.width))

    @property
    def guess_error(self) -> float:
        """Squared error of guessing the middle of the bounds, at the worst."""
        return float(np.sum(self.width**2)) / 4

    def rows(self, arrays: ArrayLike) -> Rows:
        """The arrays as (m, *shape), shape checked; what is an array already, memory-mapped or not, is not copied.

        Nor is a table of pandas, Polars or PyArrow: columns of numbers, or one column of lists. A row with as many
        numbers as the shape has entries is taken in the order of the entries, the last index changing fastest.
        A box with `columns` refuses tables of others; what has no names passes.
        """
        stacked = users_rows(arrays, self.shape)
        if isinstance(stacked, FrameRows):
            self.check_names(stacked.names)
        elif isinstance(arrays, list | tuple) and arrays and entry_names(arrays[0]) is not None:
            for row in arrays:
                self.check_names(entry_names(row))
        check_stack(stacked, self.shape)
        return stacked

    def check_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse entries of other names, or in another order; None is for those without names."""
        if self.columns is not None and names not in (None, self.columns):
            raise DataError(
                "other-columns",
                f"arrays: the columns are {shown(list(names or ()))}, but the plan is for "
                f"{shown(list(self.columns))}; pass just these in this order, or plan for the others",
            )

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing values; any can be clipped."""
        if missing not in ("refuse", "midpoint"):
            raise ParameterError(
                "unknown-choice", f"missing={missing!r} is not allowed: give 'refuse' or 'midpoint' (--missing)"
            )
        if missing == "midpoint" and self.structure.mixes:
            raise ParameterError(
                "impossible-combination",
                "missing='midpoint' is not possible with a Span, whose coefficients need every entry; "
                "use missing='refuse' (--missing refuse) and fill in or leave out incomplete rows",
            )

    def prepare(self, arrays: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Floats:
        """(m, *shape) arrays to (m, d) coordinates in the user's units, contiguous; never changes `arrays`.

        `clip` moves values (infinities too) to the nearest bound. `missing="midpoint"` replaces NaN by the
        middle of its coordinate's bounds, which pulls that coordinate's mean towards the middle by the
        missing fraction. Without either, contiguous dense single or double precision is passed on uncopied.
        What is left outside the bounds is not looked for here: whoever reads the coordinates compares them
        with `limits` and calls `refuse`.
        """
        coordinates = self.structure.coordinates(arrays, first_row)
        lower, upper = self._limits(coordinates.dtype)
        if missing == "midpoint" and (gaps := np.isnan(coordinates)).any():
            coordinates = np.where(gaps, lower / 2 + upper / 2, coordinates)
        if clip:
            return np.clip(coordinates, lower, upper)
        if self.structure.mixes:
            # Least squares rounds: a coefficient that is 1 on paper comes out as 1 + 2e-16.
            nearest = np.clip(coordinates, lower, upper)
            slack = ROUNDING * np.maximum(np.abs(lower), np.abs(upper))
            with np.errstate(over="ignore", invalid="ignore"):
                return np.where(np.abs(coordinates - nearest) <= slack, nearest, coordinates)
        return coordinates

    def check_within(self, coordinates: Floats, first_row: int = 0) -> None:
        """Refuse what is outside the bounds; `coordinates` came from `prepare`."""
        lower, upper = self._limits(coordinates.dtype)
        if not ((coordinates >= lower) & (coordinates <= upper)).all():
            self.refuse(coordinates, first_row)

    def refuse(self, coordinates: Floats, first_row: int = 0) -> NoReturn:
        """Raise the `DataError` for the first value that is NaN, infinite or out of bounds.

        `coordinates` came from `prepare`, and something in them was found outside `limits`.
        """
        lower, upper = self._limits(coordinates.dtype)
        inside = (coordinates >= lower) & (coordinates <= upper)
        if inside.all():
            raise DataError(
                "out-of-bounds",
                f"rows {first_row} to {first_row + len(coordinates) - 1}: a value was refused at its bound "
                "by rounding; pass clip=True (--clip), or plan with wider bounds (bounds=, --bounds)",
            )
        row, place = (int(index) for index in np.argwhere(~inside)[0])
        value = coordinates[row, place]
        where = f"row {first_row + row}, {self._describe(place)}"
        if np.isnan(value):
            raise DataError(
                "missing-value",
                f'{where}: the value is NaN (missing); pass missing="midpoint" (--missing midpoint) to put '
                f"the middle of the bounds in its place, or fill it in, or {LEFT_OUT}",
                row=first_row + row,
            )
        low, high = (np.full(self.dimension, b)[place] for b in (lower, upper))
        kind = "infinite" if np.isinf(value) else "out of bounds"
        raise DataError(
            "out-of-bounds",
            f"{where}: the value is {kind}, allowed is [{low}, {high}]; pass clip=True (--clip) to "
            "move such values to the nearest bound, or plan with wider public bounds (bounds=, --bounds)",
            value=str(value),
            row=first_row + row,
        )

    def _describe(self, place: int) -> str:
        return self.structure.describe(place) if self.columns is None else f"column {self.columns[place]!r}"

    def to_user_mean(self, unit_mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means of unit coordinates, (d,), to the user's units and shape.

        NaN stays NaN, in just those entries that depend on it.
        """
        return self.structure.restore(self.lower + self.width * unit_mean)

    def to_user_variance(self, unit_variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variances of independent unit coordinates, (d,), to the user's squared units and shape."""
        return self.structure.restore_variance(self.width**2 * unit_variance)

    def of_round(self, number: int) -> Box:
        """The same: nothing changes from round to round."""
        return self

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal box."""
        named = {} if self.columns is None else {"columns": list(self.columns)}
        return {"kind": "box", "structure": self.structure.to_json(), "bounds": self.bounds.to_json(), **named}

    @classmethod
    def from_json(cls, value: object) -> Box:
        """Undo `to_json`; raises `PlanError` for anything else."""
        match value:
            case {"kind": "box", "structure": structure, "bounds": bounds, **rest} if not rest.keys() - {"columns"}:
                try:
                    return cls(structure_from_json(structure), Bounds.from_json(bounds), _names_from_json(rest))
                except ParameterError as error:
                    raise PlanError(error.problem, f"the plan's domain is not valid: {error}") from error
        raise PlanError(
            "malformed", f'a domain must be {{"kind": "box", "structure", "bounds"}}, not {str(value)[:80]}'
        )

    def _limits(self, dtype: np.dtype[Any]) -> tuple[Floats, Floats]:
        # Bounds beyond the data type's range stop at its largest number, or infinity would pass.
        largest = float(np.finfo(dtype).max)
        lower, upper = (
            np.asarray(np.clip(values, -largest, largest), dtype=dtype)
            for values in (self.bounds.lower_values, self.bounds.upper_values)
        )
        return lower, upper


def _names_from_json(rest: dict[Any, Any]) -> tuple[str, ...] | None:
    if rest and not isinstance(rest["columns"], list):
        raise PlanError("malformed", f"columns must be a list of names, not {shown(rest['columns'])}")
    return tuple(rest["columns"]) if rest else None


def _column_names(columns: Sequence[str], structure: Structure) -> tuple[str, ...]:
    """One name for each entry, all different."""
    names = tuple(columns)
    if isinstance(columns, str) or not all(isinstance(name, str) and name for name in names):
        raise ParameterError("wrong-type", f"columns is {shown(columns)}; give a list of names")
    if structure.mixes or len(structure.shape) > 1 or len(names) != structure.dimension:
        raise ParameterError(
            "wrong-shape",
            f"{len(names)} columns are named, {shown(list(names))}, but the arrays have shape {structure.shape}; only "
            "the entries of vectors have names, one each",
        )
    if len(set(names)) < len(names):
        raise ParameterError("ambiguous-column", f"columns names one twice: {shown(list(names))}")
    return names
