"""Compiles most kernels and keeps them, so that two test processes do not both do it; a core is free during lint."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from tests.plan_builders import held

import shufflesum as ss
from shufflesum.protocol import Tally
from shufflesum.release import release

USERS = 60


def use(mechanism: Any, shape: Any, rows: Any) -> None:
    """As one process does it, and as reports that are sent and shuffled."""
    plan = ss.plan(users=USERS, **held(shape), epsilon=2.0, delta=1e-3, mechanism=mechanism)
    plan.privacy.epsilon(1e-3)  # from both sides
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
                use(ss.RandomizedResponse.Options(coordinates, levels), 3, rows)
        use("noisy-counts", 3, rows)
        use("noisy-counts", ss.GroupBy(2, 3), (labels, rows))
        use(None, ss.L2Ball(3, clipping_norm=1.0), rows)
    for mechanism in ("noisy-counts", "randomized-response"):
        use(mechanism, ss.Categories(4), labels)
    use("noisy-counts", ss.MultiChoice(3, max_choices=1), rows < 0)
    use("noisy-counts", ss.OpenVocabulary(50, 4, bytes(16)), ["word"] * USERS)
