"""Linear functions of an estimate: a difference of two groups, a sum over labels, an average over entries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shufflesum.domain import real_array
from shufflesum.errors import ParameterError
from shufflesum.estimate.base import Floats
from shufflesum.mechanisms.linear import Combined

__all__ = ["Linear", "weights_of"]


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of public weights times what was estimated, with its standard error and the ends of its interval."""

    value: float
    standard_error: float
    lower: float
    upper: float
    level: float

    @staticmethod
    def of(found: Combined, level: float, offset: float = 0.0, scale: float = 1.0) -> Linear:
        """What a mechanism combined, in the users' units."""
        value, lower, upper = (offset + scale * part for part in (found.value, found.lower, found.upper))
        return Linear(value, scale * math.sqrt(found.variance), lower, upper, level)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends that hold the true sum with at least the probability `level`."""
        return self.lower, self.upper


def weights_of(weights: Any, shape: tuple[int, ...]) -> Floats:
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
