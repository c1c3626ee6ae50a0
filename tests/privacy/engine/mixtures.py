"""The smallest mixtures, of which every outcome is known."""

from __future__ import annotations

import numpy as np

from shufflesum.privacy.engine.laws import Mixture

__all__ = ["one_cell"]


def one_cell(weight: float, size: int = 4, shift: float = 0.25, *, factor: float = 0.5) -> Mixture:
    """One law of so many fair coins, between two nodes."""
    return Mixture(
        factor=factor,
        sizes=np.array([size]),
        drifts=np.array([size]),
        first_nodes=np.arange(2),
        shifts=np.array([shift]),
        weights=np.array([weight]),
        outside=0.0,
        steps=size,
    )
