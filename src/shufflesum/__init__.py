"""Private sums and means of vectors, matrices and tensors in the shuffle model of differential privacy."""

from __future__ import annotations

from shufflesum import privacy
from shufflesum.aggregation import aggregate
from shufflesum.domain import Span, Symmetric
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import Estimate
from shufflesum.mechanisms import Replace
from shufflesum.planning import plan
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.reports import Reports

__all__ = [
    "Analyzer",
    "Estimate",
    "Guarantee",
    "Plan",
    "Randomizer",
    "Replace",
    "Reports",
    "ShufflesumError",
    "Span",
    "Symmetric",
    "aggregate",
    "plan",
    "privacy",
    "shuffle",
]
__version__ = "0.1.0"
