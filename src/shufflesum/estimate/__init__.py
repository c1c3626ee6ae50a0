"""What a release gives: means, counts, group means and counts of words, each with error bars."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shufflesum.domain import Ball, Categories, Choices, Groups, Hashed
from shufflesum.estimate.ball import BallEstimate
from shufflesum.estimate.base import Released
from shufflesum.estimate.bins import WIDE_BINS, Binned, Quantile, SuggestedBounds, check_cover
from shufflesum.estimate.coefficients import Coefficients
from shufflesum.estimate.counts import CountEstimate
from shufflesum.estimate.groups import GroupEstimate
from shufflesum.estimate.hashed import HashedEstimate, WordCounts
from shufflesum.estimate.linear import Linear
from shufflesum.estimate.means import Estimate
from shufflesum.estimate.top import Top, TopRow
from shufflesum.plans import Plan

__all__ = [
    "WIDE_BINS",
    "BallEstimate",
    "Binned",
    "Coefficients",
    "CountEstimate",
    "Estimate",
    "GroupEstimate",
    "HashedEstimate",
    "Linear",
    "Quantile",
    "Released",
    "SuggestedBounds",
    "Top",
    "TopRow",
    "WordCounts",
    "check_cover",
    "estimate_of",
]


def estimate_of(
    plan: Plan, users: int, rejected: int, table: NDArray[np.int64], broken: str | None = None, round_number: int = 1
) -> Estimate:
    """What a table says under its plan: the kind of estimate that belongs to the plan's domain."""
    kind: type[Estimate]
    match plan.domain:
        case Ball():
            kind = BallEstimate
        case Categories() | Choices():
            kind = CountEstimate
        case Groups():
            kind = GroupEstimate
        case Hashed():
            kind = HashedEstimate
        case _:
            kind = Estimate
    return kind(plan, users, rejected, table, broken, round_number)
