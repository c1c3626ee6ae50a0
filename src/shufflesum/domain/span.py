"""Arrays known to lie in a public subspace: the paper's matrix reduction."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.domain._arrays import ROUNDING, Floats, describe_entry, one_or_all, real_array, stack
from shufflesum.errors import DataError, ParameterError, PlanError

__all__ = ["Span", "span_from_json"]

_RANK_TOLERANCE = 1e-10
_MAX_CONDITION = 1e8
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
        content = flat.astype("<f8").tobytes()
        values = (given.shape[1:], tuple(kept), content, flat, inverse)
        for name, value in zip(("shape", "kept", "_content", "_flat", "_inverse"), values, strict=True):
            object.__setattr__(self, name, value)

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
        """Name a coordinate as the user would, with the vector's place in the given set where it differs."""
        place = self.kept[coordinate]
        return f"coefficient {coordinate}" + ("" if place == coordinate else f" (of vector {place})")

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
