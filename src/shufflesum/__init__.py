"""Private sums, means and histograms of what users hold, in the shuffle model of differential privacy."""

from __future__ import annotations

from shufflesum import privacy
from shufflesum.aggregation import aggregate
from shufflesum.domain import Ball, Categories, Choices, Groups, Hashed, Span, Symmetric
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import BallEstimate, CountEstimate, Estimate, GroupEstimate, HashedEstimate
from shufflesum.mechanisms import Add, AddSlots, Replace, ReplaceBits
from shufflesum.planning import plan
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.reports import Reports
from shufflesum.rounds import RoundsUsed

__all__ = [
    "Add",
    "AddSlots",
    "Analyzer",
    "Ball",
    "BallEstimate",
    "Categories",
    "Choices",
    "CountEstimate",
    "Estimate",
    "GroupEstimate",
    "Groups",
    "Guarantee",
    "Hashed",
    "HashedEstimate",
    "Plan",
    "Randomizer",
    "Replace",
    "ReplaceBits",
    "Reports",
    "RoundsUsed",
    "ShufflesumError",
    "Span",
    "Symmetric",
    "aggregate",
    "plan",
    "privacy",
    "shuffle",
]
__version__ = "0.1.0"
