"""What the shuffle model is compared with from below: reports that nobody shuffles."""

from __future__ import annotations

import math

import numpy as np

from shufflesum._search import bisect, geometric_mean
from shufflesum.mechanisms import Replace
from shufflesum.mechanisms.replace import on_grid
from shufflesum.mechanisms.replace.error import coordinate_error

__all__ = ["local_choice", "local_delta", "local_noise_probability"]

_TOLERANCE = 1e-12


def local_delta(levels: int, coordinates: int, noise_probability: float, epsilon: float) -> float:
    """The exact delta of a user's reports when nobody shuffles them: the t-fold composition of randomized response.

    Of two values one report speaks for the first, for the second, or (another value) for neither; so the privacy loss
    is a whole multiple of eps0, and composing is convolving three numbers t times.
    """
    other = noise_probability / (levels + 1)
    same = 1 - noise_probability + other
    law = np.array([other, (levels - 1) * other, same])
    composed, power, left = np.ones(1), law, coordinates
    while left:
        if left % 2:
            composed = np.convolve(composed, power)
        power, left = np.convolve(power, power), left // 2
    losses = np.arange(-coordinates, coordinates + 1) * math.log(same / other)
    return float(np.sum(composed * -np.expm1(np.minimum(epsilon - losses, 0.0))))


def local_noise_probability(levels: int, coordinates: int, epsilon: float, delta: float) -> float:
    """The least noise probability for (epsilon, delta) without a shuffler."""

    def enough(noise_probability: float) -> bool:
        return local_delta(levels, coordinates, noise_probability, epsilon) <= delta

    return bisect(enough, 1e-9, 1.0, tolerance=_TOLERANCE, middle=geometric_mean)[1]


def local_choice(users: int, dimension: int, epsilon: float, delta: float) -> Replace:
    """The mechanism with the least worst-case error without a shuffler."""

    def error(choice: Replace) -> float:
        sampled = choice.coordinates / dimension
        return coordinate_error(users, sampled, choice.levels, choice.noise_probability).total

    counts = sorted({max(1, round(dimension / divisor)) for divisor in (1, 2, 5, 10, 20, 50, dimension)})
    choices = (Replace(t, k, on_grid(local_noise_probability(k, t, epsilon, delta))) for t in counts for k in (1, 2, 3))
    return min(choices, key=error)
