"""Distributions of made-up users that several domains share: of numbers between 0 and 1, and of labels."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

NUMBER_DISTRIBUTIONS: Mapping[str, str] = MappingProxyType(
    {
        "normal": "around 40 % of the way through the bounds, give or take 15 %",
        "uniform": "anywhere within the bounds",
        "skewed": "mostly near the lower bound, a few far above it",
        "constant": "the same for everybody",
    }
)
"""In words, as parts of the width of the bounds."""

LABEL_DISTRIBUTIONS = ("zipf", "uniform")


def made_up_units(random: np.random.Generator, distribution: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Numbers between 0 and 1."""
    match distribution:
        case "uniform":
            return random.random(shape)
        case "normal":
            return np.clip(random.normal(0.4, 0.15, shape), 0, 1)
        case "skewed":
            return random.random(shape) ** 8
    return np.full(shape, 0.4)


def made_up_codes(random: np.random.Generator, labels: int, users: int, distribution: str) -> NDArray[np.int64]:
    """The number of each user's label; under Zipf's law label number i is held in proportion to 1 / i."""
    if distribution == "uniform":
        return random.integers(0, labels, users)
    ends = np.cumsum(1 / np.arange(1, labels + 1))
    found: NDArray[np.int64] = np.searchsorted(ends, random.random(users) * ends[-1], side="right")
    return found.clip(max=labels - 1)
