"""Layers of a model as one vector, and the public signs of its rotation.

With a Hadamard matrix signs spread any vector evenly over all coordinates. They come from HMAC-SHA-512, because every
standard library and every browser has it, so that all clients agree. Nobody needs to trust the seed: privacy does not
depend on it.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum.domains.structure import Floats, check_dimension, checked_shape, describe_entry, real_array
from shufflesum.errors import DataError, ParameterError, PlanError
from shufflesum.estimate import index_names

SEED_BYTES = 16
_SIGNS = 512  # in one digest


def padded_size(dimension: int) -> int:
    """The power of two that so many numbers are padded to with zeros, at least 2."""
    return max(2, 1 << (dimension - 1).bit_length())


def signs(seed: bytes, round_number: int, size: int) -> NDArray[np.int8]:
    """The first signs of a round, 1 or -1: bits of HMAC-SHA-512(seed, round, block), highest first; 1 means minus.

    Round and block (from 0, of 512 signs each) are four bytes, highest first.
    """
    blocks = -(-size // _SIGNS)
    digests = b"".join(
        hmac.digest(seed, round_number.to_bytes(4, "big") + block.to_bytes(4, "big"), "sha512")
        for block in range(blocks)
    )
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8), count=size)
    return np.where(bits, np.int8(-1), np.int8(1))


Update: TypeAlias = Any
"""One user's arrays: an array, or a list or a dictionary of them; PyTorch's tensors pass for arrays."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Shapes of a user's arrays; each is flattened with its last index changing fastest.

    A single array has neither names nor companions; a list of layers has no `names`.
    """

    shapes: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] | None = None
    single: bool = False

    @staticmethod
    def of(shape: int | Sequence[Any] | Mapping[str, Any] | Layers) -> Layers:
        """What a caller gives: a shape, a list of shapes, or a dictionary from names to shapes."""
        if isinstance(shape, Layers):
            return shape
        if isinstance(shape, Mapping):
            names = tuple(shape)
            if not names or not all(isinstance(name, str) and name for name in names):
                raise ParameterError("wrong-type", f"layers are {shown(names)}; each needs a name that is a text")
            layers = Layers(tuple(checked_shape(each) for each in shape.values()), tuple(map(str, names)))
        elif isinstance(shape, list) and any(isinstance(each, tuple | list) for each in shape):
            layers = Layers(tuple(checked_shape(each) for each in shape))
        else:
            layers = Layers((checked_shape(shape),), single=True)
        check_dimension(layers.dimension, "L2Ball")
        return layers

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each layer has."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def dimension(self) -> int:
        """How many numbers there are in all."""
        return sum(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a single array; layers are one vector."""
        return self.shapes[0] if self.single else (self.dimension,)

    def flatten(self, update: Update, what: str = "the update") -> Floats:
        """All arrays of an update as one vector, single precision if all are; another shape or order is refused."""
        arrays = self._arrays(update, what)
        flat: list[Floats] = []
        for number, (array, shape) in enumerate(zip(arrays, self.shapes, strict=True)):
            where = what if self.single else f"{what}, {self._name(number)}"
            values = real_array(as_numpy(array), DataError, where)
            if values.shape != shape:
                raise DataError(
                    "wrong-shape",
                    f"{where} has shape {values.shape}, but the plan has {shape}; pass such arrays, or plan for others",
                )
            flat.append(values.reshape(-1))
        return flat[0] if len(flat) == 1 else np.concatenate(flat)

    def unflatten(self, vector: NDArray[Any]) -> Any:
        """A flat vector as the shape was given: an array, or a list or a dictionary of them."""
        ends = np.cumsum(self.sizes)
        arrays = [
            vector[end - size : end].reshape(shape)
            for end, size, shape in zip(ends, self.sizes, self.shapes, strict=True)
        ]
        if self.single:
            return arrays[0]
        return arrays if self.names is None else dict(zip(self.names, arrays, strict=True))

    def describe(self, index: int) -> str:
        """Name an entry as the user would, from its index in the flat vector."""
        layer, within = self._locate(index)
        entry = describe_entry(self.shapes[layer], within)
        return entry if self.single else f"{self._name(layer)}, {entry}"

    def names_of(self, indices: Sequence[int]) -> list[str]:
        """Entries of the flat vector by layer and index, "w[0, 1]"; of a single array by index alone."""
        if self.single:
            return index_names(self.shape, indices)
        names = self.names or [f"layer {number}" for number in range(len(self.shapes))]
        located = map(self._locate, indices)
        return [f"{names[layer]}[{index_names(self.shapes[layer], [within])[0]}]" for layer, within in located]

    def _locate(self, index: int) -> tuple[int, int]:
        """The layer of an entry of the flat vector, and its index within that."""
        ends = np.cumsum(self.sizes)
        layer = int(np.searchsorted(ends, index, side="right"))
        return layer, index - int(ends[layer]) + self.sizes[layer]

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into equal layers; a list keeps their order."""
        if self.single:
            return {"shape": list(self.shapes[0])}
        if self.names is None:
            return {"layers": [{"shape": list(shape)} for shape in self.shapes]}
        named = zip(self.names, self.shapes, strict=True)
        return {"layers": [{"name": name, "shape": list(shape)} for name, shape in named]}

    @staticmethod
    def from_json(value: dict[Any, Any]) -> Layers:
        """Undo `to_json`; raises `PlanError` for anything else."""
        match value:
            case {"shape": list(shape), **rest} if not rest:
                return Layers.of(tuple(shape))
            case {"layers": list(layers), **rest} if not rest and layers:
                shapes = [_shape_of(layer) for layer in layers]
                names = [layer["name"] for layer in layers if "name" in layer]
                if not names:
                    return Layers.of(shapes)
                if len(names) == len(set(map(str, names))) == len(shapes):
                    return Layers.of(dict(zip(names, shapes, strict=True)))
        raise PlanError(
            "malformed", f'a ball has a "shape", or "layers" with a "shape" each and all or none named: {shown(value)}'
        )

    def _arrays(self, update: Update, what: str) -> list[Any]:
        if self.single:
            return [update]
        if self.names is not None:
            if not isinstance(update, Mapping) or tuple(update) != self.names:
                given = list(update) if isinstance(update, Mapping) else type(update).__name__
                raise DataError(
                    "layers-mismatch",
                    f"{what} has the layers {shown(given)}, but the plan has {shown(list(self.names))}; pass a "
                    "dictionary with just these in this order",
                )
            return list(update.values())
        if not isinstance(update, list | tuple) or len(update) != len(self.shapes):
            given = f"{len(update)} arrays" if isinstance(update, list | tuple) else type(update).__name__
            raise DataError(
                "layers-mismatch",
                f"{what} is {given}, but the plan has {len(self.shapes)} layers; pass a list of their arrays in order",
            )
        return list(update)

    def _name(self, number: int) -> str:
        return f"layer {number}" if self.names is None else f"layer {self.names[number]!r}"


def as_numpy(array: Any) -> Any:
    """A tensor of PyTorch as NumPy's array, asked for by its methods so that PyTorch is never imported."""
    return array.detach().cpu().numpy() if hasattr(array, "detach") and hasattr(array, "cpu") else array


def _shape_of(layer: object) -> tuple[Any, ...]:
    match layer:
        case {"shape": list(shape), **rest} if not rest.keys() - {"name"}:
            return tuple(shape)
    raise PlanError("malformed", f'a layer must be {{"shape"}} or {{"name", "shape"}}, not {shown(layer)}')
