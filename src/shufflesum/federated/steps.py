"""The server's step: what an estimated mean update does to the model. Nothing here sees a user's data.

An update is what is added to the parameters: after minus before, or minus a gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_number
from shufflesum.errors import ParameterError

__all__ = ["Adam", "Memory", "Momentum", "Plain", "Step"]

_Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a step keeps from round to round: how many there were, and its running means."""

    steps: int = 0
    means: tuple[NDArray[np.float64], ...] = field(default=())


class Step(Protocol):
    """A rule for a server's step."""

    def move(self, update: _Floats, memory: Memory) -> tuple[_Floats, Memory]:
        """What to add to the parameters for this round's mean update, and what to remember."""


@dataclass(frozen=True, slots=True)
class Plain:
    """parameters += rate x update."""

    rate: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        _check_rate(self.rate)

    def move(self, update: _Floats, memory: Memory) -> tuple[_Floats, Memory]:
        """The update, times the rate."""
        return self.rate * update, Memory(memory.steps + 1)


@dataclass(frozen=True, slots=True)
class Momentum:
    """velocity = momentum x velocity + update; parameters += rate x velocity."""

    rate: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what is no rate, and a momentum that never fades."""
        _check_rate(self.rate)
        _check_fading("momentum", self.momentum)

    def move(self, update: _Floats, memory: Memory) -> tuple[_Floats, Memory]:
        """The velocity, times the rate."""
        velocity = update + (self.momentum * memory.means[0] if memory.means else 0.0)
        return self.rate * velocity, Memory(memory.steps + 1, (velocity,))


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam (Kingma and Ba, 2015) with the mean update in the place of minus the gradient.

    The squares hold the square of the noise as well: `floor` of about its standard error keeps coordinates that are
    all noise from being scaled up.
    """

    rate: float
    first: float = 0.9
    second: float = 0.99
    floor: float = 1e-8

    def __post_init__(self) -> None:
        """Refuse what is no rate, and means that never fade."""
        _check_rate(self.rate)
        _check_fading("first", self.first)
        _check_fading("second", self.second)
        check_number("floor", self.floor)
        if not 0 < self.floor < math.inf:
            raise ParameterError("out-of-range", f"floor is {self.floor}; it must be positive, and finite")

    def move(self, update: _Floats, memory: Memory) -> tuple[_Floats, Memory]:
        """The mean of updates over the root of the mean of their squares, both corrected for their start at 0."""
        mean, square = memory.means or (np.zeros_like(update), np.zeros_like(update))
        steps = memory.steps + 1
        mean = self.first * mean + (1 - self.first) * update
        square = self.second * square + (1 - self.second) * update**2
        scale = np.sqrt(square / (1 - self.second**steps)) + self.floor
        return self.rate * mean / (1 - self.first**steps) / scale, Memory(steps, (mean, square))


def _check_rate(rate: Any) -> None:
    check_number("rate", rate)
    if not 0 < rate < math.inf:
        raise ParameterError("out-of-range", f"rate is {rate}; it must be positive, and finite")


def _check_fading(name: str, value: Any) -> None:
    check_number(name, value)
    if not 0 <= value < 1:
        raise ParameterError("out-of-range", f"{name} is {value}; it must be at least 0 and below 1")
