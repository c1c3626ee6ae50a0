"""How much less noise than planned shows among so many users, by the number of all their noise reports."""

from __future__ import annotations

import math

import numpy as np

from shufflesum._search import bisect
from shufflesum.audit.evidence import deviation
from shufflesum.audit.findings.laws import Floats
from shufflesum.mechanisms import Places

__all__ = ["EVIDENCE", "less_noise_shown", "users_to_show"]

EVIDENCE = 50.0  # deviation of the mean, beside some 25 that the confidence asks for: missed hardly ever


def less_noise_shown(places: Places, silent: Floats | None, users: int) -> float | None:
    """The least part of their noise that so many users cannot lack unseen; None where they may lack all of it.

    A user lacks a part x of it whose counts have the chances (1 - x) p + x s, with s those of who adds none: `silent`,
    or 0 where noise is beside what is held.
    """
    found = bisect(lambda part: _evidence(places, silent, part) * users >= EVIDENCE, 0.0, 1.0, tolerance=1e-3)[1]
    return found if math.isfinite(found) else None


def users_to_show(places: Places, silent: Floats | None, part: float) -> float:
    """How many users are enough for such a part; infinitely many where it makes no difference."""
    evidence = _evidence(places, silent, part)
    return EVIDENCE / evidence if evidence > 0 else math.inf


def _evidence(places: Places, silent: Floats | None, part: float) -> float:
    """What one user adds to the deviation of the number of all counts."""
    trials = places.trials.astype(np.float64)
    planned, quiet = float(trials @ places.chances), 0.0 if silent is None else float(trials @ silent)
    return float(deviation((1 - part) * planned + part * quiet, trials.sum(), planned / trials.sum()))
