"""Compiles most kernels and keeps them, so that two test processes do not both do it; a core is free during lint."""

from __future__ import annotations

import numpy as np

from shufflesum import aggregate

if __name__ == "__main__":
    for levels in (1, 3):
        for coordinates, dtype in ((None, np.float64), (2, np.float32)):
            rows = np.full((60, 3), 0.5, dtype=dtype)
            aggregate(rows, epsilon=2.0, delta=1e-3, levels=levels, coordinates=coordinates)
