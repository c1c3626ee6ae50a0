"""The smallest noise probability for a target over many reports, and what is certainly too small."""

from __future__ import annotations

import math
from collections.abc import Callable

from shufflesum.errors import PrivacyError
from shufflesum.privacy import blanket
from shufflesum.privacy._composed import (
    check_compositions,
    check_delta,
    check_epsilon,
    composed_delta_lower,
    composed_delta_upper,
)
from shufflesum.privacy._search import GRID, crossing_probability

__all__ = ["guess_noise_probability", "noise_probability_lower_bound", "smallest_noise_probability"]

_TOLERANCE = 1e-4  # relative width of the bracket around a noise probability


def smallest_noise_probability(
    honest_users: int,
    levels: int,
    epsilon: float,
    delta: float,
    compositions: int,
    *,
    single_coordinate_blocks: bool,
) -> float:
    """Return a noise probability that is certainly enough, within 1e-4 of the least that can be certified.

    A multiple of 2**-53, at which composed_delta_upper <= delta was evaluated. It exists: 1 is always enough.
    """
    direct = levels == 1 and single_coordinate_blocks
    if compositions == 1 and not direct:
        return blanket.smallest_noise_probability(honest_users, levels, epsilon, delta)
    _check(honest_users, levels, epsilon, delta, compositions)

    def bound(noise_probability: float) -> float:
        return composed_delta_upper(
            honest_users,
            levels,
            noise_probability,
            epsilon,
            compositions,
            single_coordinate_blocks=single_coordinate_blocks,
        )

    spread = 1.0 if direct else levels + 1.0
    return _bracket(bound, honest_users / (spread * compositions), epsilon, delta)[1]


def noise_probability_lower_bound(
    honest_users: int,
    levels: int,
    epsilon: float,
    delta: float,
    compositions: int,
) -> float:
    """Return a noise probability that is certainly too small, and so is every smaller one; 0 if none is known."""
    if compositions == 1:
        return blanket.noise_probability_lower_bound(honest_users, levels, epsilon, delta)
    _check(honest_users, levels, epsilon, delta, compositions)

    def bound(noise_probability: float) -> float:
        return composed_delta_lower(honest_users, levels, noise_probability, epsilon, compositions)

    spread = 1.0 if levels == 1 else levels + 1.0
    return _bracket(bound, honest_users / (spread * compositions), epsilon, delta)[0]


def _check(honest_users: int, levels: int, epsilon: float, delta: float, compositions: int) -> None:
    check_compositions(compositions)
    blanket.check_protocol(honest_users, levels, 1.0)
    check_delta(delta)
    if check_epsilon(epsilon) == 0.0:
        raise PrivacyError("epsilon = 0: a target must be positive; raise epsilon")


def _bracket(
    bound: Callable[[float], float], users_per_loss: float, epsilon: float, delta: float
) -> tuple[float, float]:
    guess = guess_noise_probability(users_per_loss, epsilon, delta)
    low, high = crossing_probability(bound, delta, guess, GRID, _TOLERANCE, spread=1.03)
    return low / GRID, high / GRID


def guess_noise_probability(users_per_loss: float, epsilon: float, delta: float) -> float:
    """Guess gamma as if the sum of losses were normal, of variance mu^2 = 2(1 - gamma)^2/(gamma users_per_loss).

    For K values and so many compositions that is honest users / (K compositions). Only a guess: nothing is certified.
    """
    low, high = 1e-9, 1e3
    for _ in range(60):
        mu = math.sqrt(low * high)
        near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
        above = 0.5 * (math.erfc(near) - math.exp(min(epsilon, 700.0)) * math.erfc(far)) > delta
        low, high = (low, mu) if above else (mu, high)
    c = low * low * users_per_loss / 2
    return 2.0 / (2.0 + c + math.sqrt(c * c + 4.0 * c))
