"""Errors of linear functions of what is estimated, whatever the mechanism (docs/accuracy.md, linear functions)."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Combined", "outwards", "quantile", "reach"]


class Combined(NamedTuple):
    """The sum of weights times means: its estimate, squared standard error, and ends for the tail asked for."""

    value: float
    variance: float
    lower: float
    upper: float


def quantile(tail: float) -> float:
    """The normal quantile that is exceeded with this probability."""
    return -NormalDist().inv_cdf(max(tail, 1e-300))


def outwards(z: float, skewness: Any) -> Any:
    """By how much quantiles of a nearly normal law move outwards at most (Cornish and Fisher).

    For sums of independent reports each of which moves the sum by at most s, of standard deviation d: the third
    cumulant is within s d^2 and the fourth below s^2 d^2, so `skewness` s/d bounds skewness, and its square the excess.
    """
    further = (z**2 - 1) * skewness / 6 + (max(z**3 - 3 * z, 0.0) / 24 + z / 36) * skewness**2
    return np.maximum(further, 0)


def reach(variance: float, report: float, tail: float) -> float:
    """How far such a sum is off with probability `tail` at most, on either side; half a report is for continuity."""
    if variance <= 0:
        return report / 2
    z, deviation = quantile(tail), math.sqrt(variance)
    return deviation * z + max(deviation * float(outwards(z, report / deviation)), report / 2)
