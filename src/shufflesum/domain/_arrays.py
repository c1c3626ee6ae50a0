"""Arrays and shapes as callers give them, checked in the same words for every domain."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.domain.frames import FrameRows, frame_rows
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = [
    "LEFT_OUT",
    "ROUNDING",
    "Floats",
    "Rows",
    "check_dimension",
    "check_stack",
    "checked_shape",
    "describe_entry",
    "one_or_all",
    "real_array",
    "stack",
    "users_rows",
]

Floats: TypeAlias = NDArray[np.floating[Any]]
"""Single or double precision, as the user's data came."""

Rows: TypeAlias = NDArray[Any] | FrameRows
"""One array for each user, in memory or converted as it is read."""

ROUNDING = 1e-6
"""Relative difference that is taken for rounding of the user's data (single precision has 6e-8)."""

LEFT_OUT = "leave the row out (--missing drop of shufflesum run)"
"""What to do about a missing value, for messages."""

_MAX_DIMENSION = 2**31 - 1  # a report numbers d * K < 2**32 cells, and K is at least 2


def real_array(values: ArrayLike, error: type[DataError | ParameterError | PlanError], what: str) -> Floats:
    """Native, aligned, C-contiguous single or double precision; copies only what is not so already."""
    if isinstance(values, np.ma.MaskedArray):
        raise error("not-numbers", f"{what}: a masked array would lose its mask; pass values.filled(np.nan)")
    if type(values).__module__.startswith("scipy.sparse"):
        raise error(
            "not-numbers",
            f"{what}: a SciPy sparse matrix ({type(values).__name__}) is not read, because users report zeros like all "
            "else; pass matrix.toarray(), or parts of it to aggregate_batches",
        )
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as problem:
        raise error("not-numbers", f"{what}: not a rectangular array of numbers", value=str(problem)) from None
    if array.dtype.kind not in "biuf":
        raise error("not-numbers", f"{what}: {array.dtype} values are not real numbers; convert them, dtype=float")
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        return np.require(array, np.float32 if single else np.float64, ["C", "A"])


def users_rows(arrays: ArrayLike | FrameRows, shape: tuple[int, ...] | None = None) -> Rows:
    """The users' arrays, uncopied where they are an array or a table already; rows of tables are fitted to `shape`."""
    if isinstance(arrays, np.ndarray):  # a masked array stays one, and is refused with its rows
        return arrays
    rows = arrays if isinstance(arrays, FrameRows) else frame_rows(arrays)
    if rows is None:
        return real_array(arrays, DataError, "arrays")
    return rows if shape is None else rows.fitted(shape)


def stack(arrays: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Arrays of `shape`, one for each of m >= 1 users, as `real_array` gives them."""
    stacked = real_array(users_rows(arrays, shape), DataError, "arrays")
    check_stack(stacked, shape)
    return stacked


def check_stack(stacked: Rows, shape: tuple[int, ...]) -> None:
    """Refuse what is not (m, *shape) with m >= 1."""
    if stacked.ndim == 0 or stacked.shape[1:] != shape:
        expected = "(" + ", ".join(["m", *map(str, shape)]) + ("," if not shape else "") + ")"
        hint = "; for a single user pass array[None]" if stacked.shape == shape else ""
        raise DataError(
            "wrong-shape",
            f"arrays has shape {stacked.shape}, but {expected} is expected, one array of shape {shape} for "
            f"each of m users{hint}; reshape the arrays, or plan with another shape",
        )
    if len(stacked) == 0:
        raise DataError("no-rows", f"arrays has shape {stacked.shape}: no rows; pass at least one user's array")


def one_or_all(values: NDArray[np.float64], dimension: int, otherwise: str) -> NDArray[np.float64]:
    """One number per coordinate, from one number for all or one each."""
    if values.ndim > 0 and values.shape != (dimension,):
        raise ParameterError("wrong-shape", f"shape {values.shape} does not fit: give one number, or {otherwise}")
    return np.array(np.broadcast_to(values, (dimension,)))


def checked_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple of sizes, each at least 1."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    try:
        if any(isinstance(size, bool | np.bool_) for size in sizes):
            raise TypeError
        checked = tuple(operator.index(size) for size in sizes)
    except TypeError:
        raise ParameterError(
            "wrong-type",
            f"shape {shape!r} is not allowed: give an int, a tuple of ints, Symmetric(size) or Span(vectors)",
        ) from None
    if any(size < 1 for size in checked):
        raise ParameterError("out-of-range", f"shape {shape!r} is not allowed: every size must be at least 1")
    return checked


def check_dimension(dimension: int, what: str) -> None:
    """Refuse more coordinates than reports can number."""
    if dimension > _MAX_DIMENSION:
        raise ParameterError(
            "too-many-cells",
            f"{what} has {dimension} coordinates, but reports can number at most {_MAX_DIMENSION}; "
            "plan with a smaller shape",
        )


def describe_entry(shape: tuple[int, ...], index: int) -> str:
    """Name the entry of an array as the user would, from its place in the flattened array."""
    if not shape:
        return "the value"
    if len(shape) == 1:
        return f"coordinate {index}"
    return f"entry {[int(place) for place in np.unravel_index(index, shape)]}"
