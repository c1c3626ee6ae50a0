"""What every release gives: estimates with error bars, as one tidy table. Their kinds stand with their domains."""

from __future__ import annotations

from shufflesum.estimate.base import (
    Adjustment,
    AnyEstimate,
    BaseEstimate,
    Floats,
    Linear,
    MeanEstimate,
    adjusted_by,
    estimate_of,
    tail_of,
)
from shufflesum.estimate.bins import QUANTILE_BINS, WIDE_BINS, BinBounds, Binned, Quantile, check_cover
from shufflesum.estimate.ranking import Top, TopRow, nearest_counts, top_of
from shufflesum.estimate.table import EstimateTable

__all__ = [
    "QUANTILE_BINS",
    "WIDE_BINS",
    "Adjustment",
    "AnyEstimate",
    "BaseEstimate",
    "BinBounds",
    "Binned",
    "EstimateTable",
    "Floats",
    "Linear",
    "MeanEstimate",
    "Quantile",
    "Top",
    "TopRow",
    "adjusted_by",
    "check_cover",
    "estimate_of",
    "nearest_counts",
    "tail_of",
    "top_of",
]
