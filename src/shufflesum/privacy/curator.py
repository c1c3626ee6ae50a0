"""What a curator would need whom all users trust with their data: the least error any of this is measured against."""

from __future__ import annotations

import math

from shufflesum._search import bisect, geometric_mean

__all__ = ["curator_error", "gaussian_noise"]

_TOLERANCE = 1e-12


def gaussian_noise(epsilon: float, delta: float) -> float:
    """The least standard deviation of Gaussian noise for (epsilon, delta) at sensitivity 1 (Balle and Wang, 2018).

    It solves Phi(1/(2 s) - epsilon s) - e^epsilon Phi(-1/(2 s) - epsilon s) = delta.
    """
    growth = math.exp(min(epsilon, 700.0))

    def enough(deviation: float) -> bool:
        half, shift = 1 / (2 * deviation), epsilon * deviation
        return _normal(half - shift) - growth * _normal(-half - shift) <= delta

    return bisect(enough, 1e-3, 1e6, tolerance=_TOLERANCE, middle=geometric_mean)[1]


def curator_error(users: int, weights: tuple[float, float], epsilon: float, delta: float, rounds: int = 1) -> float:
    """Squared error of the means from a trusted curator who adds Gaussian or Laplace noise once a round.

    Whichever is better. `weights` say what one unit of either noise costs for how neighbours differ, summed over all
    that is estimated (`curator_weights` of the domain).
    """
    gaussian = rounds * gaussian_noise(epsilon, delta) ** 2 * weights[0]
    laplace = 2 * (rounds / epsilon) ** 2 * weights[1]
    return min(gaussian, laplace) / users**2


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
