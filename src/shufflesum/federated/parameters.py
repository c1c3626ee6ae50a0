"""A model's parameters as frameworks hold them, an array, a list or a dictionary of arrays: to a vector and back.

Arrays are NumPy's, or tensors that can be detached and copied as PyTorch's can; PyTorch itself is never imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.domain import Ball
from shufflesum.errors import DataError

__all__ = ["Parameters", "ball_of", "difference", "like", "vector_of"]

Parameters: TypeAlias = Any
"""An array, a list of arrays, or a dictionary of arrays by name: NumPy arrays or PyTorch tensors."""


def ball_of(parameters: Parameters, *, radius: float, center: ArrayLike | Parameters | None = None) -> Ball:
    """The domain of updates of a model that looks like these parameters, of norm `radius` at most, layer by layer."""
    arrays = _arrays(parameters)
    if isinstance(arrays, Mapping):
        return Ball({name: array.shape for name, array in arrays.items()}, radius=radius, center=center)
    if isinstance(arrays, list):
        return Ball([array.shape for array in arrays], radius=radius, center=center)
    return Ball(arrays.shape, radius=radius, center=center)


def vector_of(parameters: Parameters) -> NDArray[np.float64]:
    """All parameters as one vector, layer after layer, each in C order."""
    arrays = _arrays(parameters)
    layers = list(arrays.values()) if isinstance(arrays, Mapping) else arrays
    layers = layers if isinstance(layers, list) else [layers]
    return np.concatenate([np.asarray(layer, dtype=np.float64).reshape(-1) for layer in layers])


def like(parameters: Parameters, vector: NDArray[Any]) -> Parameters:
    """A vector in the shape, order and kind of these parameters: tensors where they are tensors, of the same type."""
    layers = _layers(parameters)
    sizes = [int(np.prod(layer.shape)) for layer in layers]
    if vector.shape != (sum(sizes),):
        raise DataError(
            "wrong-shape", f"a vector of shape {vector.shape} for {sum(sizes)} parameters; the model is another one"
        )
    pieces = np.split(vector, np.cumsum(sizes)[:-1])
    made = [_as(layer, piece.reshape(tuple(layer.shape))) for layer, piece in zip(layers, pieces, strict=True)]
    if isinstance(parameters, Mapping):
        return dict(zip(parameters, made, strict=True))
    return made if isinstance(parameters, list | tuple) else made[0]


def difference(after: Parameters, before: Parameters) -> Parameters:
    """What local training changed: after minus before, layer by layer, in NumPy arrays."""
    one, other = _arrays(after), _arrays(before)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if list(one) != list(other):
            raise DataError(
                "other-layers", f"layers {list(one)[:5]} after training and {list(other)[:5]} before; keep their order"
            )
        return {name: _minus(one[name], other[name]) for name in one}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [_minus(a, b) for a, b in zip(one, other, strict=True)]
    return _minus(one, other)


def _minus(one: Any, other: Any) -> NDArray[Any]:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        raise DataError("wrong-shape", f"a layer has shape {one.shape} after training and {other.shape} before")
    difference: NDArray[Any] = one - other
    return difference


def _layers(parameters: Parameters) -> list[Any]:
    if isinstance(parameters, Mapping):
        return list(parameters.values())
    return list(parameters) if isinstance(parameters, list | tuple) else [parameters]


def _arrays(parameters: Parameters) -> Any:
    """The same container with NumPy arrays in it."""
    if isinstance(parameters, Mapping):
        return {str(name): _array(layer) for name, layer in parameters.items()}
    if isinstance(parameters, list | tuple):
        layers: Sequence[Any] = parameters
        return [_array(layer) for layer in layers]
    return _array(parameters)


def _array(layer: Any) -> NDArray[Any]:
    if hasattr(layer, "detach"):  # a tensor, maybe on another device and part of a graph
        layer = layer.detach().cpu().numpy()
    array = np.asarray(layer)
    if array.dtype.kind != "f":
        raise DataError(
            "not-numbers",
            f"a layer holds {array.dtype}; only floating-point parameters are trained: leave counters and buffers out",
        )
    return array


def _as(layer: Any, values: NDArray[Any]) -> Any:
    """Values as this layer is: a tensor of its type and device, or an array of its type."""
    if hasattr(layer, "new_tensor"):
        return layer.new_tensor(values)
    return values.astype(np.asarray(layer).dtype)
