"""How little noise is enough: a guess for where to look, and the search for the noise of a composition."""

from __future__ import annotations

import math
from collections.abc import Callable

from shufflesum._search import bisect, bracket, geometric_mean, times_odds
from shufflesum.errors import PrivacyError
from shufflesum.privacy.engine.composition import check_delta, check_epsilon

__all__ = ["bracket_noise_probability", "guess_noise_probability"]

_TOLERANCE = 1e-4  # relative width of the bracket around a noise probability


def bracket_noise_probability(
    bound: Callable[[float, float], float], epsilon: float, delta: float, *, guess: float, spread: float
) -> tuple[float, float]:
    """Return noise probabilities (low, high), within 1e-4, with bound(low, epsilon) > delta >= bound(high, epsilon).

    Both are multiples of 2**-53 and evaluated as such; low is 0 if none is known to be too small.
    """
    check_delta(delta)
    if check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    return bracket(
        lambda noise_probability: bound(noise_probability, epsilon),
        delta,
        guess=guess,
        highest=1.0,
        tolerance=_TOLERANCE,
        spread=spread,
        times=times_odds,
    )


def guess_noise_probability(users_per_loss: float, epsilon: float, delta: float) -> float:
    """Guess gamma as if the sum of losses were normal, of variance mu^2 = 2(1 - gamma)^2/(gamma users_per_loss).

    For K values and so many compositions that is honest users / (K compositions). Only a guess: nothing is certified.
    """

    def too_far_apart(mu: float) -> bool:
        near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
        return 0.5 * (math.erfc(near) - math.exp(min(epsilon, 700.0)) * math.erfc(far)) > delta

    mu, _ = bisect(too_far_apart, 1e-9, 1e3, middle=geometric_mean)
    c = mu * mu * users_per_loss / 2
    return 2.0 / (2.0 + c + math.sqrt(c * c + 4.0 * c))
