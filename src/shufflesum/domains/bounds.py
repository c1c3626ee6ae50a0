"""Public bounds on each coordinate, one pair for all or one pair per coordinate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.domains.structure import Dense, Structure, real_array
from shufflesum.errors import DataError, ParameterError, PlanError

_WIDTHS = (1e-150, 1e150)  # squared, as variances need them, they neither overflow nor vanish


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower and upper bounds: two numbers, or two tuples with one number per coordinate.

    They are public: choose them from what the values can be, never from the private data.
    """

    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    lower_values: NDArray[np.float64] = field(init=False, compare=False, repr=False)
    """The lower bounds as one array: () when uniform, else (d,). Read-only."""
    upper_values: NDArray[np.float64] = field(init=False, compare=False, repr=False)
    """The upper bounds as one array: () when uniform, else (d,). Read-only."""

    def __post_init__(self) -> None:
        """Check the numbers; equal pairs are stored as one, so that equal bounds compare equal."""
        lower, upper = _numbers(self.lower, "lower"), _numbers(self.upper, "upper")
        if lower.shape != upper.shape or lower.ndim > 1 or lower.size == 0:
            raise ParameterError(
                "bad-bounds",
                f"lower and upper bounds have shapes {lower.shape} and {upper.shape}: "
                "give two numbers, or two tuples with one number per coordinate",
            )
        _check(lower, upper, "coordinate {}".format)
        if lower.ndim and (lower == lower[0]).all() and (upper == upper[0]).all():
            lower, upper = np.array(lower[0]), np.array(upper[0])
        for name, values in (("lower", lower), ("upper", upper)):
            values.setflags(write=False)
            plain = values.tolist()
            object.__setattr__(self, name, tuple(plain) if values.ndim else plain)
            object.__setattr__(self, f"{name}_values", values)

    @classmethod
    def of(cls, bounds: BoundsLike, structure: Structure, columns: Sequence[str] | None = None) -> Bounds:
        """Read `(lo, hi)`: numbers, or arrays that fit the structure; or a pair for each column, by its name.

        Arrays broadcast to the user's shape; a `Symmetric` takes a symmetric matrix or one number per
        coordinate, a `Span` one number per coefficient.
        """
        if isinstance(bounds, Mapping):
            pairs = [cls._of_column(name, pair) for name, pair in _in_order(bounds, columns)]
            return cls(*(tuple(end) for end in zip(*pairs, strict=True)))
        if isinstance(bounds, Bounds):
            bounds.check_dimension(structure.dimension)
            return bounds
        if isinstance(bounds, list) and all(isinstance(pair, tuple) for pair in bounds):
            raise ParameterError(
                "bad-bounds",
                f"bounds is {str(bounds)[:80]}, a list of pairs; give all lower ones, then all upper ones: "
                "([lo, ...], [hi, ...])",
            )
        try:
            low, high = bounds
        except (TypeError, ValueError):
            raise ParameterError(
                "bad-bounds",
                f"bounds must be a pair (lo, hi), or ([lo, ...], [hi, ...]) with one for each coordinate, not "
                f"{str(bounds)[:80]}",
            ) from None
        lower, upper = _numbers(low, "lower"), _numbers(high, "upper")
        if lower.ndim or upper.ndim:
            lower, upper = (_fit(values, structure) for values in (lower, upper))
            _check(lower, upper, structure.describe)
        return cls(*(tuple(v.tolist()) if v.ndim else v.item() for v in (lower, upper)))

    @classmethod
    def _of_column(cls, name: str, pair: Any) -> tuple[float, float]:
        try:
            one = cls.of(pair, Dense(()))
        except ParameterError as error:
            raise ParameterError(error.problem, f"column {name!r}: {error}") from None
        return float(one.lower_values), float(one.upper_values)

    @property
    def uniform(self) -> bool:
        """Whether one pair holds for every coordinate."""
        return self.lower_values.ndim == 0

    def check_dimension(self, dimension: int) -> None:
        """Refuse bounds made for another number of coordinates."""
        if not self.uniform and len(self.lower_values) != dimension:
            raise ParameterError(
                "bad-bounds",
                f"bounds hold {len(self.lower_values)} pairs, but the arrays have {dimension} coordinates; "
                "give one pair, or one per coordinate",
            )

    def lower_array(self, dimension: int) -> NDArray[np.float64]:
        """Lower bounds, (d,)."""
        return np.full(dimension, self.lower_values)

    def upper_array(self, dimension: int) -> NDArray[np.float64]:
        """Upper bounds, (d,)."""
        return np.full(dimension, self.upper_values)

    def to_json(self) -> list[Any]:
        """`[lower, upper]`, numbers or lists; `from_json` gives back equal bounds."""
        return [self.lower_values.tolist(), self.upper_values.tolist()]

    @classmethod
    def from_json(cls, value: object) -> Bounds:
        """Undo `to_json`; raises `PlanError` or `ParameterError` for anything else."""
        match value:
            case [list(lower), list(upper)]:
                return cls(tuple(lower), tuple(upper))
            case [int() | float() as low, int() | float() as high]:
                return cls(low, high)
        raise PlanError("malformed", f"bounds must be [lower, upper], two numbers or two lists, not {str(value)[:80]}")


BoundsLike: TypeAlias = tuple[ArrayLike, ArrayLike] | Mapping[str, tuple[float, float]] | Bounds
"""A pair for all or for each coordinate, or a pair for each column by its name."""


def _in_order(bounds: Mapping[str, Any], columns: Sequence[str] | None) -> list[tuple[str, Any]]:
    """A pair for each column, in the columns' order."""
    if columns is None:
        raise ParameterError(
            "bad-bounds",
            f"bounds are given for {', '.join(map(repr, bounds))}, but the arrays have no columns with names of their "
            "own; name them (columns=, a header), or give one pair for all",
        )
    unknown = next((name for name in bounds if name not in columns), None)
    if unknown is not None:
        raise ParameterError(
            "unknown-column",
            f"bounds are given for {unknown!r}, but the columns are {str(list(columns))[:200]}; correct the name, or "
            "choose the columns (columns=)",
        )
    lacking = next((name for name in columns if name not in bounds), None)
    if lacking is not None:
        raise ParameterError(
            "bad-bounds",
            f"column {lacking!r} has no bounds; give them (bounds={{{lacking!r}: (LO, HI)}}), or leave the column "
            "out (columns=)",
        )
    return [(name, bounds[name]) for name in columns]


def _numbers(values: ArrayLike, which: str) -> NDArray[np.float64]:
    array = real_array(values, ParameterError, f"{which} bound")
    if np.asarray(values).dtype.kind == "b":
        raise ParameterError("bad-bounds", f"{which} bound: {str(values)[:80]} is true or false; give numbers")
    return np.asarray(array.astype(np.float64) + 0.0)  # -0.0 and 0.0 are one bound and must be one in JSON


def _fit(values: NDArray[np.float64], structure: Structure) -> NDArray[np.float64]:
    try:
        return structure.per_coordinate(values)
    except ParameterError as error:
        raise ParameterError("bad-bounds", f"bounds: {error}") from None


def _check(lower: NDArray[np.float64], upper: NDArray[np.float64], describe: Callable[[int], str]) -> None:
    """Refuse the first pair that is not finite, not increasing, or of a width that squares badly."""
    least, most = _WIDTHS
    with np.errstate(over="ignore", invalid="ignore"):
        width = upper - lower
        good = np.isfinite(lower) & np.isfinite(upper) & (width >= least) & (width <= most)
    if good.all():
        return
    index = int(np.flatnonzero(~good)[0])
    low, high = float(lower.flat[index]), float(upper.flat[index])
    named = f" for {describe(index)}" if lower.ndim else ""
    if not (np.isfinite(low) and np.isfinite(high)):
        rule = "both must be finite"
    elif low >= high:
        rule = "the lower bound must be below the upper one"
    else:
        rule = f"upper - lower must lie between {least:g} and {most:g}; change the unit of the values"
    raise ParameterError("bad-bounds", f"bounds ({low!r}, {high!r}){named} are not allowed: {rule} (bounds=)")


DEFAULT_BOUNDS = Bounds(0.0, 1.0)
"""What stands where nobody gave bounds; told by identity from the same bounds that were given."""


@contextmanager
def explicit_bounds(unbounded: bool, *, clip: bool) -> Iterator[None]:
    """Where no bounds were given, refuse to clip, and say with a value outside that the bounds are the default."""
    if clip and unbounded:
        raise ParameterError(
            "missing-argument",
            "clip=True moves values to the nearest bound, but no bounds were given; say what values can be (bounds=), "
            "such as 0 to 120",
        )
    try:
        yield
    except DataError as error:
        if unbounded and error.problem == "out-of-bounds":
            raise error.ending("[0, 1] is the default, because no bounds were given") from None
        raise
