"""Two small classifiers in plain NumPy, with the update of each client from its own pictures.

Of each layer a client's gradient is a product of two thin matrices, one row for each picture: what enters the layer,
and how far its output is off. Norms and weighted sums come from these, without the gradients themselves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

_Floats: TypeAlias = NDArray[np.float32]
_CLASSES = 10


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of some clients: each layer's is the product of what enters it and how far its output is off."""

    factors: tuple[tuple[_Floats, _Floats], ...]

    def __len__(self) -> int:
        """How many clients there are."""
        return len(self.factors[0][0])

    def rows(self) -> _Floats:
        """Every client's update as a row of d numbers."""
        sizes = [enters.shape[2] * off.shape[2] for enters, off in self.factors]
        made = np.empty((len(self), sum(sizes)), dtype=np.float32)
        done = 0
        for size, (enters, off) in zip(sizes, self.factors, strict=True):
            made[:, done : done + size] = (enters.transpose(0, 2, 1) @ off).reshape(len(self), -1)
            done += size
        return made

    def norms(self) -> _Floats:
        """Every client's Euclidean norm: |A'B|^2 is the sum of the entries of AA' times those of BB'."""
        squares = np.zeros(len(self), dtype=np.float32)
        for enters, off in self.factors:
            squares += np.einsum("uij,uij->u", enters @ enters.transpose(0, 2, 1), off @ off.transpose(0, 2, 1))
        return np.sqrt(np.maximum(squares, 0))

    def clipped_sum(self, clipping_norm: float) -> NDArray[np.float64]:
        """The sum of all updates, each shortened to the clipping norm if it is longer."""
        with np.errstate(divide="ignore"):
            weights = np.minimum(np.float32(1), np.float32(clipping_norm) / self.norms())[:, np.newaxis, np.newaxis]
        sums = [
            (enters.reshape(-1, enters.shape[2]).T @ (weights * off).reshape(-1, off.shape[2])).reshape(-1)
            for enters, off in self.factors
        ]
        return np.concatenate(sums).astype(np.float64)


class Classifier(Hashable, Protocol):
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

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> Updates:
        """Minus the gradient of each client's mean cross-entropy, from images (clients, each, pixels)."""


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
        return _size(self.layers)

    def start(self, random: np.random.Generator) -> _Floats:
        """Zeros: the loss is convex."""
        return np.zeros(self.dimension, dtype=np.float32)

    def scores(self, parameters: _Floats, images: _Floats) -> _Floats:
        """Images times weights plus biases."""
        weight, bias = _split(parameters, self.layers)
        return images @ weight + bias

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> Updates:
        """From how far the probabilities of each picture are off."""
        off = _off(self.scores(parameters, images.reshape(-1, self.pixels)), labels)
        return Updates(((images, off), (_ones(images), off)))


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
        return _size(self.layers)

    def start(self, random: np.random.Generator) -> _Floats:
        """Weights at random, so that units differ; biases 0."""
        drawn = [
            random.normal(0, 1 / math.sqrt(shape[0]), shape) if len(shape) > 1 else np.zeros(shape)
            for shape in self.layers.values()
        ]
        return np.concatenate([layer.reshape(-1) for layer in drawn]).astype(np.float32)

    def scores(self, parameters: _Floats, images: _Floats) -> _Floats:
        """Forwards through both layers."""
        weight, bias, out_weight, out_bias = _split(parameters, self.layers)
        scores: _Floats = np.tanh(images @ weight + bias) @ out_weight + out_bias
        return scores

    def updates(self, parameters: _Floats, images: _Floats, labels: NDArray[np.uint8]) -> Updates:
        """Backwards through both layers."""
        clients, each, _ = images.shape
        weight, bias, out_weight, out_bias = _split(parameters, self.layers)
        active = np.tanh(images.reshape(-1, self.pixels) @ weight + bias)
        off = _off(active @ out_weight + out_bias, labels)
        back = ((off.reshape(-1, _CLASSES) @ out_weight.T) * (1 - active**2)).reshape(clients, each, -1)
        ones = _ones(images)
        return Updates(((images, back), (ones, back), (active.reshape(clients, each, -1), off), (ones, off)))


def _size(layers: dict[str, tuple[int, ...]]) -> int:
    return sum(math.prod(shape) for shape in layers.values())


def _split(parameters: _Floats, layers: dict[str, tuple[int, ...]]) -> list[_Floats]:
    pieces = np.split(parameters, np.cumsum([math.prod(shape) for shape in layers.values()])[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, layers.values(), strict=True)]


def _ones(images: _Floats) -> _Floats:
    """What enters a bias."""
    return np.ones((*images.shape[:2], 1), dtype=np.float32)


def _off(scores: _Floats, labels: NDArray[np.uint8]) -> _Floats:
    """The right label's indicator minus the probabilities, over the pictures of a client: (clients, each, 10)."""
    clients, each = labels.shape
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    off = -weights / weights.sum(axis=1, keepdims=True)
    off[np.arange(len(off)), labels.reshape(-1)] += 1
    shares: _Floats = (off / np.float32(each)).reshape(clients, each, _CLASSES)
    return shares
