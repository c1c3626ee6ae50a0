"""What a release gives: means and sums with error bars."""

from shufflesum.estimate.means import Estimate

__all__ = ["Estimate"]
