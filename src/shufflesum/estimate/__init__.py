"""What a release gives: means, counts and group means with error bars."""

from shufflesum.estimate.base import Released
from shufflesum.estimate.means import Estimate

__all__ = ["Estimate", "Released"]
