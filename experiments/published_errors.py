"""The squared errors that Scott, Cormode and Maple (2021) prove, exactly as published, normalized by (n/d)^2."""

from __future__ import annotations

import math

from shufflesum.errors import ParameterError
from shufflesum.privacy.randomized_response import published


def theorem_mse(
    *, users: int, dimension: int, coordinates: int, epsilon: float, delta: float, noise_probability: float
) -> float:
    """Return the normalized MSE bound of the MSE theorem:
    c t d^(8/3) (b log(1/delta) log(2t/delta))^(2/3) / ((1 - gamma)^2 n^(5/3) eps^(4/3)), (c, b) = (2, 14) or (8, 63).
    """
    low = _check(users, dimension, epsilon, delta, coordinates, noise_probability)
    outer, inner = (2.0, 14.0) if low else (8.0, 63.0)
    numerator = (
        outer * coordinates * math.pow(dimension, 8 / 3) * math.pow(inner * published.logs(coordinates, delta), 2 / 3)
    )
    return numerator / ((1.0 - noise_probability) ** 2 * math.pow(users, 5 / 3) * math.pow(epsilon, 4 / 3))


def improved_mse(*, users: int, dimension: int, epsilon: float, delta: float, noise_probability: float) -> float:
    """Return the normalized MSE bound of "Improved bounds for t = 1": the larger of two terms in each range."""
    low = _check(users, dimension, epsilon, delta, 1, noise_probability)
    log = math.log(2.0 / delta)
    scale = math.pow(dimension, 8 / 3) / ((1.0 - noise_probability) ** 2 * math.pow(users, 5 / 3))
    if low:
        return scale * max(
            math.pow(98.0, 1 / 3) * math.pow(log, 2 / 3) / math.pow(epsilon, 4 / 3),
            18.0 / math.pow(4.0 * epsilon, 2 / 3),
        )
    return scale * max(
        2.0 * math.pow(20.0 * log, 2 / 3) / math.pow(epsilon, 4 / 3),
        2.0 * math.pow(9.0, 2 / 3) / math.pow(11.0 * epsilon, 2 / 3),
    )


def _check(
    users: int, dimension: int, epsilon: float, delta: float, coordinates: int, noise_probability: float
) -> bool:
    """Refuse what the theorems do not cover; return whether epsilon lies in the lower range."""
    if not 0.0 <= noise_probability < 1.0:
        raise ParameterError(
            "out-of-range",
            f"noise_probability = {noise_probability}: the published errors need it in [0, 1); change it",
        )
    return published.check_covered(users, dimension, epsilon, delta, coordinates=coordinates)
