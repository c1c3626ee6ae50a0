"""Whether measured errors agree with predicted ones."""

from __future__ import annotations

from scipy.stats import chi2

from experiments.trials import Prediction

__all__ = ["p_value"]

_SLACK = 1.15
"""On the standard deviation: squares of errors of few, skewed reports vary a little more than those of normal ones."""


def p_value(mean_error: float, repeats: int, prediction: Prediction) -> float:
    """Two-sided p-value of the mean over the repeats: a sum of nearly normal squares is nearly a chi-square."""
    each = prediction.coordinates
    freedom = repeats * float(each.sum()) ** 2 / float((each**2).sum()) / _SLACK**2  # the same mean and variance
    statistic = freedom * mean_error / prediction.parts.total
    return float(2 * min(chi2.cdf(statistic, freedom), chi2.sf(statistic, freedom)))
