"""Private sums, means and histograms of what users hold, in the shuffle model of differential privacy."""

from __future__ import annotations

from shufflesum import privacy
from shufflesum.aggregation import aggregate
from shufflesum.bounds import FoundBounds, suggest_bounds
from shufflesum.budget import Budget
from shufflesum.cautions import ShufflesumWarning
from shufflesum.domain import Ball, Categories, Choices, Groups, Hashed, Span, Symmetric
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import WIDE_BINS, BallEstimate, CountEstimate, Estimate, GroupEstimate, HashedEstimate
from shufflesum.mechanisms import Add, AddSlots, Replace, ReplaceBits
from shufflesum.moments import Moments, moments
from shufflesum.planning import plan
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.reports import Reports
from shufflesum.rounds import RoundsUsed
from shufflesum.simulation import simulate

__all__ = [
    "WIDE_BINS",
    "Add",
    "AddSlots",
    "Analyzer",
    "Ball",
    "BallEstimate",
    "Budget",
    "Categories",
    "Choices",
    "CountEstimate",
    "Estimate",
    "FoundBounds",
    "GroupEstimate",
    "Groups",
    "Guarantee",
    "Hashed",
    "HashedEstimate",
    "Moments",
    "Plan",
    "Randomizer",
    "Replace",
    "ReplaceBits",
    "Reports",
    "RoundsUsed",
    "ShufflesumError",
    "ShufflesumWarning",
    "Span",
    "Symmetric",
    "aggregate",
    "moments",
    "plan",
    "privacy",
    "shuffle",
    "simulate",
    "suggest_bounds",
]
__version__ = "0.1.0"
