"""Any array of the right shape, moved into a task's structure: nobody's data must keep them from taking part."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Box, Domain, Span, Symmetric

__all__ = ["fitting"]

_FAR = 1e100  # stands for infinity where coordinates are mixtures of entries


def fitting(domain: Domain) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """What moves any array of the right shape into the structure: the nearest, or about the nearest, that is in it."""
    if not isinstance(domain, Box):  # a vector that is too long is scaled down where it is randomized
        return lambda row: row
    structure = domain.structure
    if isinstance(structure, Symmetric):

        def mirrored(row: NDArray[np.float64]) -> NDArray[np.float64]:
            filled = np.where(np.isnan(row), row.T, row)
            with np.errstate(invalid="ignore"):
                return filled / 2 + filled.T / 2

        return mirrored
    if isinstance(structure, Span):
        inverse = np.linalg.pinv(structure.vectors.reshape(structure.dimension, -1))

        def projected(row: NDArray[np.float64]) -> NDArray[np.float64]:
            entries = np.clip(np.nan_to_num(row, nan=0.0), -_FAR, _FAR).reshape(-1)
            return structure.restore(np.clip(entries @ inverse, domain.lower, domain.lower + domain.width))

        return projected
    return lambda row: row
