"""What a user's array looks like, and which independent coordinates of it are aggregated.

`Dense` takes every entry, `Symmetric` one triangle of a symmetric matrix, `Span` the coefficients of an array
in a public subspace. All three offer the same attributes and methods; rows are counted from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.domain._arrays import (
    ROUNDING,
    Floats,
    check_dimension,
    checked_shape,
    describe_entry,
    one_or_all,
    stack,
)
from shufflesum.domain.span import Span, span_from_json
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["Dense", "Span", "Structure", "Symmetric", "structure_from_json", "structure_of"]


@dataclass(frozen=True, slots=True)
class Dense:
    """Arrays of one shape, each entry a coordinate of its own; `Dense(())` is one number per user."""

    shape: tuple[int, ...]
    mixes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the shape."""
        object.__setattr__(self, "shape", checked_shape(self.shape))
        check_dimension(self.dimension, f"shape {self.shape}")

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return math.prod(self.shape)

    def coordinates(self, arrays: ArrayLike, first_row: int = 0) -> Floats:
        """(m, *shape) to (m, d); no copy of contiguous single or double precision."""
        stacked = stack(arrays, self.shape)
        return stacked.reshape(len(stacked), self.dimension)

    def describe(self, coordinate: int) -> str:
        """Name a coordinate as the user would."""
        return describe_entry(self.shape, coordinate)

    def per_coordinate(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """One public number per coordinate, from anything that broadcasts to the shape."""
        try:
            return np.ascontiguousarray(np.broadcast_to(values, self.shape)).reshape(self.dimension)
        except ValueError:
            raise ParameterError(
                "wrong-shape",
                f"an array of shape {values.shape} does not fit shape {self.shape}: "
                "give one number, or an array that broadcasts to that shape",
            ) from None

    def restore(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(d,) coordinates back to an array of the user's shape."""
        return values.reshape(self.shape)

    restore_variance = restore  # each entry is one coordinate

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of entries to weights of coordinates: the sum over `restore`d entries is that over coordinates."""
        return weights.reshape(self.dimension)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `structure_from_json` turns back into an equal structure."""
        return {"kind": "dense", "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Symmetric:
    """Symmetric (size, size) matrices: each pair of mirrored entries is one coordinate."""

    size: int
    mixes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the size."""
        if isinstance(self.size, tuple | list):
            raise ParameterError(
                "wrong-type", f"Symmetric({self.size!r}) is not allowed: give one int, the number of rows"
            )
        object.__setattr__(self, "size", checked_shape(self.size)[0])
        check_dimension(self.dimension, f"Symmetric({self.size})")

    @property
    def shape(self) -> tuple[int, ...]:
        """The user's array shape."""
        return (self.size, self.size)

    @property
    def dimension(self) -> int:
        """Number of coordinates, size * (size + 1) / 2."""
        return self.size * (self.size + 1) // 2

    def coordinates(self, arrays: ArrayLike, first_row: int = 0) -> Floats:
        """(m, size, size) to (m, d); refuses a matrix whose mirrored entries differ by more than rounding."""
        stacked = stack(arrays, self.shape)
        rows, columns = np.triu_indices(self.size)
        upper, lower = stacked[:, rows, columns], stacked[:, columns, rows]
        with np.errstate(over="ignore", invalid="ignore"):
            gap = np.abs(upper - lower)
            rounding = ROUNDING * np.maximum(np.abs(upper), np.abs(lower))
        # An infinite gap must not pass for rounding of an infinite entry.
        same = (upper == lower) | (np.isnan(upper) & np.isnan(lower)) | (np.isfinite(gap) & (gap <= rounding))
        if not same.all():
            row, pair = np.argwhere(~same)[0]
            i, j = rows[pair], columns[pair]
            raise DataError(
                "not-symmetric",
                f"row {first_row + row}: entries [{i}, {j}] and [{j}, {i}] differ, but Symmetric({self.size}) allows "
                f"only rounding (relative {ROUNDING:g}); pass (a + a.T) / 2, or plan with shape={self.shape} for other "
                "matrices",
                value=f"{upper[row, pair]} and {lower[row, pair]}",
                row=first_row + int(row),
            )
        return np.ascontiguousarray(upper)

    def describe(self, coordinate: int) -> str:
        """Name a coordinate as the user would, by its entry in the upper triangle."""
        rows, columns = np.triu_indices(self.size)
        return f"entry [{rows[coordinate]}, {columns[coordinate]}]"

    def per_coordinate(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """One public number per coordinate, from one number, a symmetric matrix, or d numbers."""
        if values.shape == self.shape:
            try:
                return self.coordinates(values[None]).astype(np.float64).reshape(-1)
            except DataError:
                raise ParameterError(
                    "not-symmetric", f"a matrix for Symmetric({self.size}) must itself be symmetric"
                ) from None
        return one_or_all(
            values, self.dimension, f"a symmetric matrix of shape {self.shape}, or {self.dimension} numbers"
        )

    def restore(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(d,) coordinates back to a full symmetric matrix."""
        rows, columns = np.triu_indices(self.size)
        matrix = np.empty(self.shape)
        matrix[rows, columns] = values
        matrix[columns, rows] = values
        return matrix

    restore_variance = restore  # each entry is one coordinate

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of entries to weights of coordinates: those of mirrored entries are added."""
        rows, columns = np.triu_indices(self.size)
        return np.where(rows == columns, 1.0, 2.0) / 2 * (weights[rows, columns] + weights[columns, rows])

    def to_json(self) -> dict[str, Any]:
        """Plain values that `structure_from_json` turns back into an equal structure."""
        return {"kind": "symmetric", "size": self.size}


Structure: TypeAlias = Dense | Symmetric | Span


def structure_of(shape: int | Sequence[int] | Structure) -> Structure:
    """Turn what a caller gives as `shape` (an int, a tuple, or a structure) into a structure."""
    if isinstance(shape, Dense | Symmetric | Span):
        return shape
    return Dense(checked_shape(shape))


def structure_from_json(value: object) -> Structure:
    """Undo `to_json`; raises `PlanError` or `ParameterError` for anything else."""
    match value:
        case {"kind": "dense", "shape": list(shape), **rest} if not rest:
            return Dense(tuple(shape))
        case {"kind": "symmetric", "size": int(size), **rest} if not rest:
            return Symmetric(size)
        case {"kind": "span", "shape": list(shape), "kept": list(kept), "vectors": list(vectors), **rest} if not rest:
            return span_from_json(checked_shape(shape), kept, vectors)
    raise PlanError(
        "malformed",
        'a structure must be {"kind": "dense", "shape"}, {"kind": "symmetric", "size"} or '
        f'{{"kind": "span", "shape", "kept", "vectors"}}, not {str(value)[:80]}',
    )
