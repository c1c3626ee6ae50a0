"""Compiles most kernels and keeps them, so that two test processes do not both do it; a core is free during lint."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import shufflesum as ss
from shufflesum.protocol import Tally
from shufflesum.release import release

USERS = 60


def use(mechanism: Any, shape: Any, rows: Any, **choices: Any) -> None:
    """As one process does it, and as reports that are sent and shuffled."""
    plan = ss.plan(users=USERS, shape=shape, epsilon=2.0, delta=1e-3, mechanism=mechanism, **choices)
    tally = Tally(plan)
    tally.add(rows)
    release(tally.counts())
    ss.Analyzer(plan).analyze(ss.shuffle(ss.Randomizer(plan).randomize(rows)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # so few users learn next to nothing
    labels = np.zeros(USERS, dtype=int)
    for dtype in (np.float64, np.float32):
        rows = np.full((USERS, 3), 0.5, dtype=dtype)
        for levels in (1, 3):
            for coordinates in (None, 2):
                use("replace", 3, rows, levels=levels, coordinates=coordinates)
        use("add", 3, rows)
        use("add", ss.Groups(2, 3), (labels, rows))
        use(None, ss.Ball(3, radius=1.0), rows)
    for mechanism in ("add", "replace"):
        use(mechanism, ss.Categories(4), labels)
    use("add", ss.Choices(3, most=1), rows < 0)
    use("add", ss.Hashed(50, 4, bytes(16)), ["word"] * USERS)
