"""What a user's array looks like, and which independent coordinates of it are aggregated.

`Dense` takes every entry, `Symmetric` one triangle of a symmetric matrix, `Span` the coefficients of an array in a
public subspace (the paper's matrix reduction). All three offer the same attributes and methods; rows are counted from
0. Arrays and shapes are checked here in the same words for every domain.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum._checks import set_fields
from shufflesum.domains.frames import FrameRows, frame_rows
from shufflesum.errors import DataError, ParameterError, PlanError

Floats: TypeAlias = NDArray[np.floating[Any]]
"""Single or double precision, as the user's data came."""

Rows: TypeAlias = NDArray[Any] | FrameRows
"""One array for each user, in memory or converted as it is read."""

ROUNDING = 1e-6
"""Relative difference that is taken for rounding of the user's data (single precision has 6e-8)."""

LEFT_OUT = "leave the row out (missing='drop')"
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


def weights_of(weights: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """One finite number for each entry; anything else is refused."""
    found = real_array(weights, ParameterError, "weights").astype(np.float64)
    if found.shape != shape:
        raise ParameterError(
            "wrong-shape",
            f"weights have shape {found.shape}, but what is estimated has shape {shape}; give one for each",
        )
    if not np.isfinite(found).all():
        raise ParameterError("out-of-range", "weights hold NaN or infinity; all of them must be finite")
    return found


def users_rows(arrays: ArrayLike | FrameRows, shape: tuple[int, ...] | None = None) -> Rows:
    """The users' arrays, uncopied where they are an array or a table already; rows of tables are fitted to `shape`."""
    if isinstance(arrays, np.ndarray):  # a masked array stays one, and is refused with its rows
        one_each = (arrays.ndim == 1 and shape == (1,)) or (arrays.shape[1:] == (1,) and shape == ())
        return arrays.reshape(len(arrays), *shape) if one_each and shape is not None else arrays
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
    """Name the entry of an array as the user would, from its index in the flattened array."""
    if not shape:
        return "the value"
    if len(shape) == 1:
        return f"coordinate {index}"
    return f"entry {[int(part) for part in np.unravel_index(index, shape)]}"


_RANK_TOLERANCE = 1e-10
_MAX_CONDITION = 1e8
_FAR = 1e100  # stands for infinity, since coordinates are mixtures of entries
_SPAN_MAGNITUDES = (1e-100, 1e100)  # squares, as variances need them, stay within double precision


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Span:
    """Arrays known to be combinations of public `vectors` (r, *shape); the coefficients are the coordinates.

    Dependent vectors are dropped: `kept` holds the indices, in order, of an independent subset that spans the
    same space, and `vectors` the subset itself. Bounds apply to its coefficients. Never pass vectors computed
    from private data.
    """

    shape: tuple[int, ...]
    kept: tuple[int, ...]
    mixes: ClassVar[bool] = True
    _content: bytes  # the kept vectors once more, so that equality and hash go by value
    _flat: NDArray[np.float64] = field(compare=False)  # (d, entries), the kept vectors
    _inverse: NDArray[np.float64] = field(compare=False)  # (entries, d), least squares as one product

    def __init__(self, vectors: ArrayLike) -> None:
        """Reduce a public spanning set; refuse one that is empty, zero or ill-conditioned."""
        given = real_array(vectors, ParameterError, "the vectors of Span").astype(np.float64)
        if given.ndim == 0 or given.size == 0:
            raise ParameterError(
                "bad-span", f"Span needs vectors of shape (r, *shape) with r >= 1, not shape {given.shape}"
            )
        flat = given.reshape(len(given), -1) + 0.0  # -0.0 and 0.0 are one value and must be one in JSON
        if not np.isfinite(flat).all():
            index = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
            raise ParameterError(
                "bad-span", f"vector {index} of Span holds NaN or infinity; all entries must be finite"
            )
        least, most = _SPAN_MAGNITUDES
        if not least <= np.abs(flat).max() <= most:
            raise ParameterError(
                "bad-span",
                f"the largest entry of Span's vectors is {np.abs(flat).max():g}, allowed is {least:g} to "
                f"{most:g}; scale the vectors (they must not all be zero)",
            )
        kept = _independent_rows(flat)
        flat = np.ascontiguousarray(flat[kept])
        condition = float(np.linalg.cond(flat))
        if not condition <= _MAX_CONDITION:
            raise ParameterError(
                "bad-span",
                f"the {len(kept)} independent vectors of Span have condition number {condition:.2g}, above "
                f"{_MAX_CONDITION:g}: scale them to similar lengths, or leave out nearly dependent ones",
            )
        orthonormal, triangle = np.linalg.qr(flat.T)
        inverse = np.ascontiguousarray(np.linalg.solve(triangle, orthonormal.T).T)
        flat.setflags(write=False)
        inverse.setflags(write=False)
        set_fields(self, shape=given.shape[1:], kept=tuple(kept), _flat=flat, _inverse=inverse)
        set_fields(self, _content=flat.astype("<f8").tobytes())

    def __repr__(self) -> str:
        """Say the sizes; the vectors themselves may be long."""
        return f"Span({self.dimension} independent vectors, shape={self.shape})"

    @property
    def vectors(self) -> NDArray[np.float64]:
        """The kept vectors, (d, *shape)."""
        return self._flat.reshape(self.dimension, *self.shape)

    @property
    def dimension(self) -> int:
        """Number of coordinates: the rank of the spanning set."""
        return len(self.kept)

    def coordinates(self, arrays: ArrayLike, first_row: int = 0) -> Floats:
        """(m, *shape) to (m, d) least-squares coefficients; refuses an array that lies outside the span."""
        stacked = stack(arrays, self.shape)
        entries = stacked.reshape(len(stacked), -1).astype(np.float64)
        finite = np.isfinite(entries)
        if not finite.all():
            row, entry = np.argwhere(~finite)[0]
            raise DataError(
                "missing-value",
                f"row {first_row + row}, {describe_entry(self.shape, int(entry))}: the value is missing or infinite, "
                "but a Span needs every entry finite; fill it in or leave the row out",
                value=str(entries[row, entry]),
                row=first_row + int(row),
            )
        # Powers of two scale each row to about 1, exactly, so that no norm below over- or underflows.
        exponents = np.frexp(np.abs(entries).max(axis=1))[1][:, None]
        scaled = np.ldexp(entries, -exponents)
        coefficients = scaled @ self._inverse
        residuals = np.linalg.norm(scaled - coefficients @ self._flat, axis=1)
        norms = np.linalg.norm(scaled, axis=1)
        outside = ~(residuals <= ROUNDING * norms)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise DataError(
                "outside-span",
                f"row {first_row + row}: the array lies outside the span of {self.dimension} public vectors by "
                f"more than rounding (relative {ROUNDING:g}); project arrays onto the span first, or add the missing "
                "directions to Span(vectors)",
                value=f"a relative residual of {residuals[row] / norms[row]:.3g}",
                row=first_row + row,
            )
        with np.errstate(over="ignore"):  # an infinite coefficient is refused with the bounds in hand
            return np.asarray(np.ldexp(coefficients, exponents), dtype=np.float64)

    def describe(self, coordinate: int) -> str:
        """Name a coordinate as the user would, with the vector's index in the given set where it differs."""
        vector = self.kept[coordinate]
        return f"coefficient {coordinate}" + ("" if vector == coordinate else f" (of vector {vector})")

    def nearest(self, row: NDArray[np.float64], lower: Floats, upper: Floats) -> NDArray[np.float64]:
        """About the nearest array of the span to a user's, with coefficients in bounds; missing entries count as 0."""
        entries = np.clip(np.nan_to_num(row, nan=0.0), -_FAR, _FAR).reshape(-1)
        return self.restore(np.clip(entries @ self._inverse, lower, upper))

    def per_coordinate(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """One public number per coefficient, from one number or d numbers."""
        return one_or_all(values, self.dimension, f"{self.dimension} numbers, one for each kept vector (see Span.kept)")

    def restore(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of coefficient times vector; NaN reaches only entries where its vector is not zero."""
        return self._combine(values, self._flat)

    def restore_variance(self, variances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Variances of the entries of `restore`, if coefficients are independent: weights are squared."""
        return self._combine(variances, self._flat**2)

    def gather(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of entries to weights of coefficients: the sum over `restore`d entries is that over coefficients."""
        return np.asarray(self._flat @ weights.reshape(-1))

    def _combine(self, values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore", invalid="ignore"):
            terms = np.multiply(values[:, None], weights, out=np.zeros_like(weights), where=self._flat != 0)
            return np.asarray(terms.sum(axis=0)).reshape(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `structure_from_json` turns back into an equal structure: only what was kept."""
        vectors = self._flat.tolist()
        return {"kind": "span", "shape": list(self.shape), "kept": list(self.kept), "vectors": vectors}


def span_from_json(shape: tuple[int, ...], kept: list[Any], vectors: list[Any]) -> Span:
    """A span whose independent vectors were already found, as `to_json` wrote it."""
    flat = real_array(vectors, PlanError, "the vectors of the span")
    indices = all(type(index) is int and index >= 0 for index in kept)
    if not indices or kept != sorted(set(kept)) or flat.shape != (len(kept), math.prod(shape)):
        raise PlanError(
            "malformed",
            f"a span of shape {shape} needs increasing indices 'kept' and as many vectors of "
            f"{math.prod(shape)} numbers, not {len(kept)} indices and numbers of shape {flat.shape}",
        )
    span = Span(flat.reshape(len(kept), *shape))
    # A condition number within _MAX_CONDITION keeps every pivot far above _RANK_TOLERANCE.
    if span.dimension != len(kept):
        raise PlanError(
            "malformed", f"the {len(kept)} vectors of the span are dependent: their rank is {span.dimension}"
        )
    object.__setattr__(span, "kept", tuple(kept))
    return span


def _independent_rows(rows: NDArray[np.float64]) -> list[int]:
    """Indices of an independent subset with the same span: Gram-Schmidt, largest remainder first."""
    rest = rows / np.abs(rows).max()
    kept: list[int] = []
    threshold = 0.0
    for _ in range(min(rest.shape)):
        lengths = np.linalg.norm(rest, axis=1)
        threshold = threshold or _RANK_TOLERANCE * float(lengths.max())
        if lengths.max() <= threshold:
            break
        # Near ties go to the earliest row, so that rounding does not decide which vectors are kept.
        pivot = int(np.flatnonzero(lengths >= (1 - ROUNDING) * lengths.max())[0])
        direction = rest[pivot] / lengths[pivot]
        rest -= np.outer(rest @ direction, direction)
        rest[pivot] = 0.0
        kept.append(pivot)
    return sorted(kept)


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

    def nearest(self, row: NDArray[np.float64], lower: Floats, upper: Floats) -> NDArray[np.float64]:
        """A user's array as it is: any fits, and values are moved to their bounds where they are randomized."""
        return row

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

    def nearest(self, row: NDArray[np.float64], lower: Floats, upper: Floats) -> NDArray[np.float64]:
        """The symmetric matrix nearest to a user's; where one of two mirrored entries is missing, the other."""
        filled = np.where(np.isnan(row), row.T, row)
        with np.errstate(invalid="ignore"):
            return filled / 2 + filled.T / 2

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
