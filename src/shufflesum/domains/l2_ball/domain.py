"""Vectors with a bounded Euclidean norm, model updates above all: around a public centre, and no farther than a radius.

A user's arrays become one vector; before bits are drawn, a public rotation spreads it over all coordinates. Privacy
depends on the norm alone, which the mechanism enforces once more in whole numbers.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number, check_size, set_fields, shown
from shufflesum._compiled import kernel
from shufflesum.domains.base import (
    ArrayDomain,
    ColumnLayout,
    Domain,
    InputCoercion,
    Missing,
    key_from_hex,
    refuse_midpoint,
)
from shufflesum.domains.l2_ball.layers import SEED_BYTES, Layers, Update, as_numpy, padded_size, signs
from shufflesum.domains.options import Option, read_array
from shufflesum.domains.structure import LEFT_OUT, ROUNDING, Floats, Rows, check_stack, real_array, users_rows
from shufflesum.encodings import Encoding, Residues, SignBits, Values
from shufflesum.errors import DataError, ParameterError
from shufflesum.privacy.engine.gaussian import curator_error

_MOST_ROUND = 2**32 - 1
_CHECKED_AT_ONCE = 64  # updates
_NOISY_COUNTS_TIMES_CURATOR = 1.1  # about what noisy counts cost beside a trusted curator's noise


@dataclass(frozen=True, slots=True)
class UpdateRows:
    """Updates of several users as they came, flattened when they are needed."""

    updates: Sequence[Update]

    def __len__(self) -> int:
        """How many users there are."""
        return len(self.updates)

    def __getitem__(self, part: slice) -> UpdateRows:
        """Some of them."""
        return UpdateRows(self.updates[part])


@dataclass(frozen=True, slots=True, init=False, repr=False)
class L2Ball(ArrayDomain):
    """Arrays of a `shape`, all within `clipping_norm` of a `center` (zero unless given), in Euclidean norm.

    `shape` may also be a list of shapes, or a dictionary from names to shapes: layers, flattened one after another in
    this order. `center` has the same form, is public and subtracted first: whatever is closer to the users than zero
    allows a smaller radius, and with it a smaller error. `seed` is drawn by the planner where it is None.
    """

    kind: ClassVar[str] = "l2-ball"
    parts: ClassVar[tuple[str, str]] = ("l2_ball.estimate:L2BallEstimate", "wording:L2BallWording")
    excludes: ClassVar[tuple[str, ...]] = (
        "bounds",
        "columns",
        "column",
        "digits",
        "coordinates",
        "levels",
        "sampling",
        "assumed_std",
    )
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "clipping-norm",
            "Vectors with a bounded norm, such as model updates: the public bound, instead of --bounds.",
            "C",
            float,
        ),
        Option(
            "center", "With --clipping-norm: a public array that norms are measured from.  [zero]", "FILE.npy", Path
        ),
    )

    structure: Layers
    clipping_norm: float
    seed: bytes | None
    round_number: int
    _center: bytes | None  # as bytes, so that equality and hash go by value
    center: NDArray[np.float64] | None = field(compare=False)
    """The flat public centre, or None for zero."""

    def __init__(
        self,
        shape: int | Sequence[Any] | Mapping[str, Any] | Layers,
        clipping_norm: float,
        center: Any = None,
        seed: bytes | None = None,
        round_number: int = 1,
    ) -> None:
        """Check the numbers; refuse a radius of 0 and a centre of another shape."""
        structure = Layers.of(shape)
        check_number("clipping_norm", clipping_norm, least=1e-100, most=1e100)  # squares stay within double precision
        if seed is not None and (not isinstance(seed, bytes) or len(seed) != SEED_BYTES):
            raise ParameterError("malformed-key", f"the seed of a rotation is {SEED_BYTES} bytes, not {shown(seed)}")
        check_size("round_number", round_number, 1, _MOST_ROUND)
        flat = None if center is None else _center_of(structure, center)
        set_fields(self, structure=structure, clipping_norm=float(clipping_norm), seed=seed)
        set_fields(self, round_number=int(round_number), center=flat)
        set_fields(self, _center=None if flat is None else flat.astype("<f8").tobytes())

    def __repr__(self) -> str:
        """Say the sizes; a centre may be long."""
        centred = "" if self.center is None else ", center=..."
        return f"L2Ball({self.dimension} numbers, shape={self.shape}, radius={self.clipping_norm!r}{centred})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the estimate: of one user's array, or of all layers as one vector."""
        return self.structure.shape

    @property
    def layers(self) -> Any:
        """The shapes as they were given: one, or a list or dictionary of them."""
        if self.structure.single:
            return self.structure.shapes[0]
        if self.structure.names is None:
            return list(self.structure.shapes)
        return dict(zip(self.structure.names, self.structure.shapes, strict=True))

    @property
    def dimension(self) -> int:
        """How many numbers a user holds."""
        return self.structure.dimension

    @property
    def padded(self) -> int:
        """How many coordinates there are after the rotation: a power of two."""
        return padded_size(self.dimension)

    @property
    def unit(self) -> float:
        """The radius."""
        return self.clipping_norm

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing the centre, at the worst."""
        return self.clipping_norm**2

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise: two vectors of the ball are
        2 radii apart, and in the sum of absolute values sqrt(d) times as much."""
        gaussian = self.dimension * (2.0 * self.clipping_norm) ** 2
        return gaussian, gaussian * self.dimension

    def of_round(self, number: int) -> L2Ball:
        """The same ball with the rotation of another round."""
        if number == self.round_number:
            return self
        return L2Ball(self.structure, self.clipping_norm, self.center, self.seed, number)

    def seeded(self, seed: bytes) -> L2Ball:
        """The same ball with this seed."""
        return L2Ball(self.structure, self.clipping_norm, self.center, seed, self.round_number)

    def drawn_seed(self) -> bytes:
        """The seed, which must have been drawn."""
        if self.seed is None:
            raise ParameterError("missing-argument", "the seed is drawn when a plan is made; take plan.domain")
        return self.seed

    def signs(self) -> NDArray[np.int8]:
        """This round's signs of all entries, 1 or -1."""
        return signs(self.drawn_seed(), self.round_number, self.dimension)

    def flatten(self, update: Update) -> Floats:
        """One user's arrays as a vector of d numbers; other shapes, layers or orders are refused."""
        return self.structure.flatten(update)

    def unflatten(self, vector: NDArray[Any]) -> Any:
        """A vector of d numbers as the shape was given: an array, or a list or a dictionary of them."""
        return self.structure.unflatten(vector)

    def rows(self, values: Any) -> Rows | UpdateRows:
        """Arrays (m, *shape), for layers (m, d), or a list of m updates; an array is not copied."""
        if isinstance(values, UpdateRows):
            return values
        values = as_numpy(values)
        if isinstance(values, list | tuple) and (
            not self.structure.single or any(hasattr(v, "detach") for v in values)
        ):
            if not values:
                raise DataError("no-rows", "no updates; pass those of at least one user")
            return UpdateRows(values)
        if isinstance(values, Mapping):
            raise DataError("wrong-type", "one update is given; pass a list of updates, one for each user")
        stacked = users_rows(values, self.shape)
        check_stack(stacked, self.shape)
        return stacked

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing values; any row can be clipped."""
        refuse_midpoint(missing, "for updates with a bounded norm; use missing='refuse' and leave incomplete ones out")

    def block(self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse") -> Values:
        """(m, d) differences to the centre, each within the clipping norm but for rounding; never changes `rows`.

        A longer one is refused, or scaled down to it with `clip`. NaN and infinity are always refused. Without
        centre and clipping, arrays of single or double precision are passed on uncopied.
        """
        self.check_options(clip=clip, missing=missing)
        flat = self._flat(rows, first_row)
        if self.center is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused
                flat = np.subtract(flat, self.center, dtype=np.float64).astype(flat.dtype)
        squares = np.empty(len(flat))
        _squared_norms(flat, squares)
        most = (self.clipping_norm * (1.0 + ROUNDING)) ** 2
        if (squares <= most).all():
            return Values(flat, first_row)
        if not clip:
            self._refuse(flat, squares, most, first_row)
        self._refuse_unless_finite(flat, first_row)
        return Values(self._clipped(flat, squares), first_row)

    @property
    def column_layout(self) -> ColumnLayout:
        """Columns of numbers; the entries of updates have no names."""
        return ColumnLayout(numbers=self.shape)

    def value_at(self, rows: Any, row: int) -> Any:
        """A user's update as it came."""
        return rows.updates[row] if isinstance(rows, UpdateRows) else Domain.value_at(self, rows, row)

    def coercion(self) -> InputCoercion:
        """A vector that is too long is scaled down where it is randomized; other layers and NaN are refused.

        A user holds an array of the shape; of layers a list or dictionary of them, or all in one vector.
        """

        def wrap_one(held: Any) -> Floats:
            held = as_numpy(held)
            if not self.structure.single and isinstance(held, np.ndarray) and held.shape == self.shape:
                return real_array(held, DataError, "the update")[np.newaxis]
            return self.flatten(held).reshape(1, *self.shape)

        def validate(rows: Any) -> None:
            for start in range(0, len(rows), _CHECKED_AT_ONCE):  # without a copy of all
                self.block(rows[start : start + _CHECKED_AT_ONCE], start, clip=True)

        return InputCoercion(wrap_one, validate, clip=True)

    def describe_distribution(self, distribution: str) -> str:
        """Of vectors."""
        return f"vectors {distribution}"

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], NDArray[np.float64]]:
        """A common direction with differences, any directions, few large entries, or all equal."""
        size = self.dimension
        common = random.standard_normal(size)
        common = common / np.linalg.norm(common)

        def sample(users: int) -> NDArray[np.float64]:
            scattered = random.standard_normal((users, size))
            scattered /= np.linalg.norm(scattered, axis=1, keepdims=True)
            match distribution:
                case "uniform":
                    vectors = scattered * random.random((users, 1))
                case "normal":
                    vectors = 0.5 * common + 0.5 * scattered
                case "skewed":
                    vectors = scattered * (1 / np.arange(1, size + 1))
                    vectors *= 0.9 / np.linalg.norm(vectors, axis=1, keepdims=True)
                case _:
                    vectors = np.broadcast_to(0.5 * common, (users, size))
            vectors = self.clipping_norm * (1 - 1e-9) * vectors
            return (vectors if self.center is None else vectors + self.center).reshape(users, *self.shape)

        return sample

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> L2Ball:
        """Vectors of the shape of `numbers`, around a centre from a file."""
        if "clipping_norm" not in given:
            raise ParameterError("missing-argument", "--center needs --clipping-norm: how far from it a vector may be")
        if numbers is None:
            raise ParameterError("missing-argument", "--clipping-norm needs --dimension D or --shape D,D,...")
        return cls(numbers.shape, given["clipping_norm"], read_array(given["center"]) if "center" in given else None)

    def encodings(self) -> tuple[Encoding, ...]:
        """Bits of the rotated coordinates, or integers."""
        return (
            SignBits(self.dimension, self.padded, self.clipping_norm, self.signs),
            Residues(self.dimension, clipping_norm=self.clipping_norm),
        )

    trivial_guess: ClassVar[str] = "the centre"

    def better_domain(self, plan: Any) -> str | None:
        """`Arrays` that just hold the ball, as they may be better for few coordinates.

        There neighbours differ by twice the norm in each coordinate, but nothing is lost by rounding to bits, and few
        coordinates get Laplace noise.
        """
        alone = plan.noise_by == "curator"
        width, size = 2.0 * self.clipping_norm, self.dimension
        weights = ((width * size) ** 2, width**2 * size**3)
        as_arrays = curator_error(plan.users, weights, plan.epsilon, plan.delta, plan.rounds)
        if (1.0 if alone else _NOISY_COUNTS_TIMES_CURATOR) * as_arrays >= plan.expected_error.total:
            return None
        mechanism = "" if alone else ", mechanism='noisy-counts'"
        return (
            f"for {size} numbers `Arrays` serve better: plan with shape={size}{mechanism} and bounds of minus and plus "
            "the clipping norm around the centre"
        )

    def check_complete(self) -> None:
        """The seed must have been drawn."""
        self.drawn_seed()

    def completed(self, encoding: Encoding) -> L2Ball:
        """With the seed of the rotation, which is public and needs no trust."""
        return self if self.seed is not None else self.seeded(secrets.token_bytes(SEED_BYTES))

    def example(self, *, cells: Any = (), values: Any = None) -> NDArray[np.float64]:
        """The array whose difference to the centre is this vector."""
        vector: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
        return (vector if self.center is None else vector + self.center).reshape(self.shape)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal ball, in its first round; the seed in hexadecimal."""
        return {
            "kind": "l2-ball",
            **self.structure.to_json(),
            "clipping_norm": self.clipping_norm,
            "center": None if self.center is None else self.center.tolist(),
            "seed": None if self.seed is None else self.seed.hex(),
        }

    _fields: ClassVar[str] = '"shape" or "layers", "clipping_norm", "center" and "seed"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> L2Ball | None:
        match fields:
            case {
                "clipping_norm": float() | int() as norm,
                "center": list() | None as center,
                "seed": str() | None as seed,
                **shape,
            }:
                flat = None if center is None else real_array(center, ParameterError, "the centre")
                return cls(Layers.from_json(shape), norm, flat, None if seed is None else key_from_hex(seed))
        return None

    def _flat(self, rows: Any, first_row: int) -> Floats:
        if isinstance(rows, UpdateRows):
            vectors = [self._one(update, f"row {first_row + row}") for row, update in enumerate(rows.updates)]
            return np.stack(vectors)
        stacked = real_array(rows, DataError, "arrays")
        check_stack(stacked, self.shape)
        return stacked.reshape(len(stacked), -1)

    def _one(self, update: Update, what: str) -> Floats:
        """Layers, or what is flat already."""
        if isinstance(update, np.ndarray) and update.shape == (self.dimension,):
            return real_array(update, DataError, what)
        return self.structure.flatten(update, what)

    def _clipped(self, flat: Floats, squares: NDArray[np.float64]) -> Floats:
        factors = np.where(
            squares > self.clipping_norm**2, self.clipping_norm / np.sqrt(np.maximum(squares, 1e-300)), 1.0
        )
        for row in np.flatnonzero(np.isinf(squares)):
            # by the largest entry first: squares of large numbers are infinite
            largest = float(np.abs(flat[row]).max())
            factors[row] = self.clipping_norm / float(np.linalg.norm(flat[row] / largest)) / largest
        clipped = np.empty_like(flat)
        _scale(flat, factors, clipped)
        return clipped

    def _refuse_unless_finite(self, flat: Floats, first_row: int) -> None:
        finite = np.isfinite(flat)
        if finite.all():
            return
        row, entry = (int(index) for index in np.argwhere(~finite)[0])
        missing = np.isnan(flat[row, entry])
        raise DataError(
            "missing-value" if missing else "out-of-bounds",
            f"row {first_row + row}, {self.structure.describe(entry)}: the value is "
            + (f"NaN (missing); {LEFT_OUT}" if missing else "infinite; every entry must be finite: leave the row out"),
            row=first_row + row,
        )

    def _refuse(self, flat: Floats, squares: NDArray[np.float64], most: float, first_row: int) -> NoReturn:
        self._refuse_unless_finite(flat, first_row)
        row = int(np.flatnonzero(~(squares <= most))[0])
        around = "" if self.center is None else " of the difference to the centre"
        raise DataError(
            "out-of-bounds",
            f"row {first_row + row}: the norm{around} is above the clipping norm {self.clipping_norm:g}; pass "
            "clip=True to scale such rows down, or plan with a larger public clipping norm",
            value=f"a norm of {math.sqrt(squares[row]):.6g}",
            row=first_row + row,
        )


def _center_of(structure: Layers, center: Any) -> NDArray[np.float64]:
    given = as_numpy(center)
    try:
        flat = given if isinstance(given, np.ndarray) and given.shape == (structure.dimension,) else None
        flat = structure.flatten(center, "the centre") if flat is None else real_array(flat, DataError, "the centre")
    except DataError as error:
        raise ParameterError(error.problem, str(error)) from error
    copied = flat.astype(np.float64) + 0.0  # one zero
    if not np.isfinite(copied).all():
        raise ParameterError("bad-bounds", "the centre holds NaN or infinity; every entry must be finite")
    copied.setflags(write=False)
    return copied


@kernel
def _squared_norms(rows: NDArray[Any], out: NDArray[np.float64]) -> None:
    """Each row's sum of squares, in eight sums at a time so that it is vectorised; NaN or infinity if one is in it."""
    lanes = np.empty(8)
    for i in range(rows.shape[0]):
        row = rows[i]
        whole = row.size - row.size % 8
        lanes[:] = 0.0
        for j in range(0, whole, 8):
            for k in range(8):
                value = np.float64(row[j + k])
                lanes[k] += value * value
        total = 0.0
        for j in range(whole, row.size):
            value = np.float64(row[j])
            total += value * value
        for k in range(8):
            total += lanes[k]
        out[i] = total


@kernel
def _scale(rows: NDArray[Any], factors: NDArray[np.float64], out: NDArray[Any]) -> None:
    for i in range(rows.shape[0]):
        row, scaled, factor = rows[i], out[i], factors[i]
        for j in range(row.size):
            scaled[j] = np.float64(row[j]) * factor
