"""Private sums, means and histograms of what users hold, in the shuffle model of differential privacy."""

from __future__ import annotations

from shufflesum import privacy
from shufflesum.aggregation import aggregate
from shufflesum.bounds import SuggestedBounds, suggest_bounds
from shufflesum.budget import Budget
from shufflesum.cautions import ShufflesumWarning
from shufflesum.discovery import discover
from shufflesum.domains import (
    Arrays,
    Categories,
    GroupBy,
    L2Ball,
    MultiChoice,
    OpenVocabulary,
    Question,
    Span,
    Survey,
    Symmetric,
    UnlistedLabels,
)
from shufflesum.domains.arrays.estimate import Estimate
from shufflesum.domains.counts import QUANTILE_BINS, WIDE_BINS, CountEstimate
from shufflesum.domains.group_by.estimate import GroupEstimate
from shufflesum.domains.l2_ball.estimate import L2BallEstimate
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate
from shufflesum.domains.survey.estimate import SurveyEstimate
from shufflesum.domains.unlisted_labels.estimate import DiscoveryEstimate
from shufflesum.errors import ShufflesumError
from shufflesum.estimate import BaseEstimate, EstimateTable
from shufflesum.mechanisms import (
    NoisyCounts,
    NoisySlots,
    NoisySums,
    NoisyTable,
    OneBit,
    PartitionSelection,
    RandomizedResponse,
)
from shufflesum.moments import Moments, moments
from shufflesum.planning import plan
from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee, NoiseDistribution
from shufflesum.protocol import Analyzer, Randomizer, shuffle
from shufflesum.reports import Reports
from shufflesum.rounds import RoundCounter
from shufflesum.simulation import simulate

__all__ = [
    "QUANTILE_BINS",
    "WIDE_BINS",
    "Analyzer",
    "Arrays",
    "BaseEstimate",
    "Budget",
    "Categories",
    "CountEstimate",
    "DiscoveryEstimate",
    "Estimate",
    "EstimateTable",
    "GroupBy",
    "GroupEstimate",
    "Guarantee",
    "L2Ball",
    "L2BallEstimate",
    "Moments",
    "MultiChoice",
    "NoiseDistribution",
    "NoisyCounts",
    "NoisySlots",
    "NoisySums",
    "NoisyTable",
    "OneBit",
    "OpenVocabulary",
    "PartitionSelection",
    "Plan",
    "Question",
    "RandomizedResponse",
    "Randomizer",
    "Reports",
    "RoundCounter",
    "ShufflesumError",
    "ShufflesumWarning",
    "Span",
    "SuggestedBounds",
    "Survey",
    "SurveyEstimate",
    "Symmetric",
    "UnlistedLabels",
    "VocabularyEstimate",
    "aggregate",
    "discover",
    "moments",
    "plan",
    "privacy",
    "shuffle",
    "simulate",
    "suggest_bounds",
]
__version__ = "0.1.0"
