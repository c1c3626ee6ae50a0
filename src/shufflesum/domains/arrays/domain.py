"""Arrays with bounds: bounds on each coordinate of a structure, and the way from arrays to coordinates and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from shufflesum._checks import set_fields, shown
from shufflesum.domains.base import NUMBER_DISTRIBUTIONS, ArrayDomain, ColumnLayout, InputCoercion, Missing
from shufflesum.domains.bounds import DEFAULT_BOUNDS, Bounds, BoundsLike
from shufflesum.domains.frames import FrameRows, entry_names
from shufflesum.domains.structure import (
    LEFT_OUT,
    ROUNDING,
    Floats,
    Rows,
    Structure,
    check_stack,
    real_array,
    structure_from_json,
    structure_of,
    users_rows,
)
from shufflesum.encodings import Encoding, Levels, MultiHot, Residues, Values
from shufflesum.errors import DataError, ParameterError, PlanError


@dataclass(frozen=True, slots=True, init=False)
class Arrays(ArrayDomain):
    """Arrays of one shape or structure with public bounds on every coordinate.

    `bounds` are a pair for all coordinates, one for each, ([lo, ...], [hi, ...]), or one for each of `columns`; 0 and 1
    unless given.
    """

    kind: ClassVar[str] = "arrays"
    parts: ClassVar[tuple[str, str]] = ("arrays.estimate:Estimate", "wording:ArraysWording")

    structure: Structure
    bounds: Bounds
    columns: tuple[str, ...] | None
    """What the entries are called, for tables that must have just these columns."""

    def __init__(
        self,
        shape: int | Sequence[int] | Structure = (),
        bounds: BoundsLike = DEFAULT_BOUNDS,
        columns: Sequence[str] | None = None,
    ) -> None:
        structure = structure_of(shape)
        names = None if columns is None else _column_names(columns, structure)
        set_fields(self, structure=structure, bounds=Bounds.of(bounds, structure, columns), columns=names)

    def with_bounds(self, bounds: BoundsLike) -> Arrays:
        """Arrays of the same structure, within these bounds."""
        return Arrays(self.structure, bounds, self.columns)

    @property
    def default_bounds(self) -> bool:
        """Whether nobody gave bounds: then values beyond 0 and 1 are refused, and never moved there."""
        return self.bounds is DEFAULT_BOUNDS

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one user's array."""
        return self.structure.shape

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return self.structure.dimension

    @property
    def central_sensitivity(self) -> tuple[float, float]:
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
    def unit(self) -> float:
        """The widest of the bounds."""
        return float(np.max(self.width))

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing the middle of the bounds, at the worst."""
        return float(np.sum(self.width**2)) / 4

    def rows(self, arrays: ArrayLike) -> Rows:
        """The arrays as (m, *shape), shape checked; what is an array already, memory-mapped or not, is not copied.

        Nor is a table of pandas, Polars or PyArrow: columns of numbers, or one column of lists. A row with as many
        numbers as the shape has entries is taken in the order of the entries, the last index changing fastest.
        Arrays with `columns` refuse tables of others; what has no names passes.
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
                "columns-mismatch",
                f"arrays: the columns are {shown(list(names or ()))}, but the plan is for "
                f"{shown(list(self.columns))}; pass just these in this order, or plan for the others",
            )

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing values; any can be clipped."""
        if missing not in ("refuse", "midpoint"):
            raise ParameterError("unknown-choice", f"missing={missing!r} is not allowed: give 'refuse' or 'midpoint'")
        if missing == "midpoint" and self.structure.mixes:
            raise ParameterError(
                "impossible-combination",
                "missing='midpoint' is not possible with a Span, whose coefficients need every entry; "
                "use missing='refuse' and fill in or leave out incomplete rows",
            )

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Values:
        """(m, *shape) arrays to (m, d) coordinates in the user's units, contiguous; never changes `rows`.

        `clip` moves values (infinities too) to the nearest bound. `missing="midpoint"` replaces NaN by the
        middle of its coordinate's bounds, which pulls that coordinate's mean towards the middle by the
        missing fraction. Without either, contiguous dense single or double precision is passed on uncopied.
        What is left outside the bounds is not looked for here: whoever reads the values compares them with `limits`.
        """
        return Values(self._coordinates(rows, first_row, clip, missing), first_row, self)

    def _coordinates(self, rows: Any, first_row: int, clip: bool, missing: Missing) -> Floats:
        coordinates = self.structure.coordinates(rows, first_row)
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

    def refuse(self, coordinates: Floats, first_row: int = 0) -> NoReturn:
        """Raise the `DataError` for the first value that is NaN, infinite or out of bounds.

        `coordinates` are those of a block, and something in them was found outside `limits`.
        """
        lower, upper = self._limits(coordinates.dtype)
        inside = (coordinates >= lower) & (coordinates <= upper)
        if inside.all():
            raise DataError(
                "out-of-bounds",
                f"rows {first_row} to {first_row + len(coordinates) - 1}: a value was refused at its bound "
                "by rounding; pass clip=True, or plan with wider bounds (bounds=)",
            )
        row, entry = (int(index) for index in np.argwhere(~inside)[0])
        value = coordinates[row, entry]
        where = f"row {first_row + row}, {self._describe(entry)}"
        if np.isnan(value):
            raise DataError(
                "missing-value",
                f'{where}: the value is NaN (missing); pass missing="midpoint" to put '
                f"the middle of the bounds in its place, or fill it in, or {LEFT_OUT}",
                row=first_row + row,
            )
        low, high = (np.full(self.dimension, b)[entry] for b in (lower, upper))
        kind = "infinite" if np.isinf(value) else "out of bounds"
        raise DataError(
            "out-of-bounds",
            f"{where}: the value is {kind}, allowed is [{low}, {high}]; pass clip=True to "
            "move such values to the nearest bound, or plan with wider public bounds (bounds=)",
            value=str(value),
            row=first_row + row,
        )

    def _describe(self, entry: int) -> str:
        return self.structure.describe(entry) if self.columns is None else f"column {self.columns[entry]!r}"

    @property
    def column_layout(self) -> ColumnLayout:
        """Columns of numbers."""
        return ColumnLayout(numbers=self.shape, names=self.columns)

    def names_in(self, rows: Any) -> tuple[str, ...] | None:
        """The names of a table's columns, where each entry of a vector is one and none has a name yet."""
        plain = not self.structure.mixes and len(self.shape) <= 1 and self.columns is None
        names = rows.names if plain and isinstance(rows, FrameRows) else None
        return names if names and len(names) == self.dimension else None

    def coercion(self) -> InputCoercion:
        """Whatever numbers a user holds, there are nearest ones within the bounds; missing ones are in the middle.

        The row of a table must have the names that the plan has.
        """

        def wrap_one(held: Any) -> Floats:
            self.check_names(entry_names(held))
            return real_array(held, DataError, "vector")[np.newaxis]

        lower, upper = self.lower, self.lower + self.width

        def clamp(rows: Any) -> NDArray[np.float64]:
            row = np.asarray(real_array(rows, DataError, "arrays")[0], dtype=np.float64)
            return self.structure.nearest(row, lower, upper)[np.newaxis]

        missing: Missing = "refuse" if self.structure.mixes else "midpoint"
        return InputCoercion(wrap_one, lambda _: None, clamp, clip=True, missing=missing)

    def describe_distribution(self, distribution: str) -> str:
        """Where in the bounds numbers are."""
        return f"numbers {distribution} ({NUMBER_DISTRIBUTIONS[distribution]})"

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], NDArray[np.float64]]:
        """Independent coordinates, all of one distribution between their bounds."""
        lower, width = self.lower, self.width

        def sample(users: int) -> NDArray[np.float64]:
            units = _made_up_units(random, distribution, (users, self.dimension))
            coordinates = np.clip(lower + width * units, lower, lower + width)
            if len(self.shape) <= 1 and not self.structure.mixes:
                return coordinates.reshape(users, *self.shape)
            return np.stack([self.structure.restore(row) for row in coordinates])

        return sample

    def encodings(self) -> tuple[Encoding, ...]:
        """Values in levels, for randomized response; their digits, for noisy counts; integers, for noisy sums."""
        mixes = self.structure.mixes
        return (
            Levels(self.dimension, scale=self, mixes=mixes),
            MultiHot(self.dimension, scale=self, mixes=mixes),
            Residues(self.dimension, scale=self, mixes=mixes),
        )

    def example(self, *, cells: Any = (), values: Any = None) -> NDArray[np.float64]:
        """The array with these coordinates."""
        return self.structure.restore(np.asarray(values, dtype=np.float64))

    @property
    def numbers(self) -> Arrays:
        """These."""
        return self

    def with_numbers(self, bounds: BoundsLike | None, columns: Sequence[str] | None) -> Arrays:
        """The same with these bounds and columns, where they are given."""
        named = Arrays(self.structure, self.bounds, self.columns if columns is None else columns)
        return named if bounds is None else named.with_bounds(bounds)

    def bounds_text(self) -> str:
        """One pair of bounds for all, or that each number has its own."""
        if not self.bounds.uniform:
            return ", bounds of each number its own"
        return f", bounds {self.lower[0]:.12g} to {self.upper[0]:.12g}"

    def in_units(self) -> Arrays:
        """Values between 0 and 1."""
        return self.with_bounds((0.0, 1.0))

    def to_user_mean(self, unit_mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Means of unit coordinates, (d,), to the user's units and shape.

        NaN stays NaN, in just those entries that depend on it.
        """
        return self.structure.restore(self.lower + self.width * unit_mean)

    def to_user_variance(self, unit_variance: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variances of independent unit coordinates, (d,), to the user's squared units and shape."""
        return self.structure.restore_variance(self.width**2 * unit_variance)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal arrays."""
        named = {} if self.columns is None else {"columns": list(self.columns)}
        return {"kind": "arrays", "structure": self.structure.to_json(), "bounds": self.bounds.to_json(), **named}

    _fields: ClassVar[str] = '"structure", "bounds" and perhaps "columns"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> Arrays | None:
        match fields:
            case {"structure": structure, "bounds": bounds, **rest} if not rest.keys() - {"columns"}:
                return cls(structure_from_json(structure), Bounds.from_json(bounds), _names_from_json(rest))
        return None

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
    return tuple(map(str, names))  # not NumPy's: what a plan's file gives back is Python's own


def _made_up_units(random: np.random.Generator, distribution: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers between 0 and 1."""
    match distribution:
        case "uniform":
            return random.random(shape)
        case "normal":
            return np.clip(random.normal(0.4, 0.15, shape), 0, 1)
        case "skewed":
            return random.random(shape) ** 8
    return np.full(shape, 0.4)
