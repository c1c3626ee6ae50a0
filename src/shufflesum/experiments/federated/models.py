"""Two small classifiers in plain NumPy, with the update of each client from its own pictures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Classifier", "Network", "Softmax"]

_Floats: TypeAlias = NDArray[np.float32]
_CLASSES = 10


class Classifier(Protocol):
    """A model whose parameters are one vector, layer after layer."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of its layers, in order."""

    @property
    def dimension(self) -> int:
        """How many parameters it has."""

    def start(self, random: np.random.Generator) -> _Floats:
        """Parameters to begin with."""

    def scores(self, parameters: _Floats, images: _Floats) -> _Floats:
        """A score for each label."""

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> _Floats:
        """Minus the gradient of each client's mean cross-entropy: images (clients, each, pixels) -> (clients, d)."""


@dataclass(frozen=True, slots=True)
class Softmax:
    """Multinomial logistic regression: 10 (pixels + 1) parameters, 7,850 on MNIST."""

    pixels: int
    name: str = "softmax"

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Weights and biases."""
        return {"weight": (self.pixels, _CLASSES), "bias": (_CLASSES,)}

    @property
    def dimension(self) -> int:
        """Weights and biases together."""
        return (self.pixels + 1) * _CLASSES

    def start(self, random: np.random.Generator) -> _Floats:
        """Zeros: the loss is convex."""
        return np.zeros(self.dimension, dtype=np.float32)

    def scores(self, parameters: _Floats, images: _Floats) -> _Floats:
        """Images times weights plus biases."""
        weight, bias = parameters[: -_CLASSES].reshape(self.pixels, _CLASSES), parameters[-_CLASSES:]
        return images @ weight + bias

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> _Floats:
        """Each picture adds the outer product of itself and how far its probabilities are off."""
        off = _off(self.scores(parameters, images.reshape(-1, self.pixels)), labels)
        made = np.empty((len(images), self.dimension), dtype=np.float32)
        made[:, : -_CLASSES] = (images.transpose(0, 2, 1) @ off).reshape(len(images), -1)
        made[:, -_CLASSES:] = off.sum(axis=1)
        return made


@dataclass(frozen=True, slots=True)
class Network:
    """One hidden layer of 32 units on MNIST: 25,450 parameters.

    The hyperbolic tangent keeps activations, and so updates, bounded: under a clip it learns more than rectified units.
    """

    pixels: int
    hidden: int = 32
    name: str = "network"

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Weights and biases of both layers."""
        hidden = self.hidden
        return {
            "hidden.weight": (self.pixels, hidden),
            "hidden.bias": (hidden,),
            "output.weight": (hidden, _CLASSES),
            "output.bias": (_CLASSES,),
        }

    @property
    def dimension(self) -> int:
        """All layers together."""
        return sum(math.prod(shape) for shape in self.layers.values())

    def start(self, random: np.random.Generator) -> _Floats:
        """Weights at random, so that units differ; biases 0."""
        drawn = [
            random.normal(0, 1 / math.sqrt(shape[0]), shape) if len(shape) > 1 else np.zeros(shape)
            for shape in self.layers.values()
        ]
        return np.concatenate([layer.reshape(-1) for layer in drawn]).astype(np.float32)

    def _split(self, parameters: _Floats) -> list[_Floats]:
        sizes = [math.prod(shape) for shape in self.layers.values()]
        pieces = np.split(parameters, np.cumsum(sizes)[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.layers.values(), strict=True)]

    def scores(self, parameters: _Floats, images: _Floats) -> _Floats:
        """Forwards through both layers."""
        weight, bias, out_weight, out_bias = self._split(parameters)
        return np.tanh(images @ weight + bias) @ out_weight + out_bias

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> _Floats:
        """Backwards through both layers."""
        clients, each, _ = images.shape
        weight, bias, out_weight, out_bias = self._split(parameters)
        active = np.tanh(images.reshape(-1, self.pixels) @ weight + bias)
        off = _off(active @ out_weight + out_bias, labels)
        back = ((off.reshape(-1, _CLASSES) @ out_weight.T) * (1 - active**2)).reshape(clients, each, -1)
        pieces = (
            images.transpose(0, 2, 1) @ back,
            back.sum(axis=1),
            active.reshape(clients, each, -1).transpose(0, 2, 1) @ off,
            off.sum(axis=1),
        )
        made = np.empty((clients, self.dimension), dtype=np.float32)
        done = 0
        for piece in pieces:
            flat = piece.reshape(clients, -1)
            made[:, done : done + flat.shape[1]] = flat
            done += flat.shape[1]
        return made


def _off(scores: _Floats, labels: NDArray[np.uint8]) -> _Floats:
    """The right label's indicator minus the probabilities, over the pictures of a client: (clients, each, 10)."""
    clients, each = labels.shape
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    off = -weights / weights.sum(axis=1, keepdims=True)
    off[np.arange(len(off)), labels.reshape(-1)] += 1
    return (off / np.float32(each)).reshape(clients, each, _CLASSES)
