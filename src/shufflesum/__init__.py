"""Private sums and means of vectors, matrices and tensors in the shuffle model of differential privacy."""

from __future__ import annotations

from shufflesum import privacy
from shufflesum.aggregate import aggregate
from shufflesum.contract import Guarantee, Plan
from shufflesum.domain import Span, Symmetric
from shufflesum.errors import ShufflesumError
from shufflesum.estimation import Analyzer, Estimate
from shufflesum.planning import plan
from shufflesum.protocol import Randomizer, Reports, shuffle

__all__ = [
    "Analyzer",
    "Estimate",
    "Guarantee",
    "Plan",
    "Randomizer",
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
