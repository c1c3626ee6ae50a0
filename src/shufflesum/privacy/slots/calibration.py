"""How little noise in slots is enough."""

from __future__ import annotations

import math
from functools import lru_cache

from shufflesum._checks import check_size
from shufflesum._search import GRID, bracket
from shufflesum.errors import PrivacyError
from shufflesum.privacy.curator import gaussian_noise
from shufflesum.privacy.engine.composition import check_delta, check_epsilon, check_single_delta
from shufflesum.privacy.guarantees import MOST_USERS
from shufflesum.privacy.slots.composed import MOST_HITS, Slots

__all__ = ["noise_per_cell_guess", "rough_noise_per_cell", "smallest_chance"]

_FINE_NOISE = 10_000.0  # per cell; from about twice that on cells of s are coarser than one
_MANY_TRIALS = 2**20  # for each noise report of a cell: its law is then as good as Poisson's


def smallest_chance(
    *, honest_users: int, slots: int, cells: int, epsilon: float, delta: float, rounds: int = 1
) -> float:
    """Return the least chance of a slot that is certainly enough, a multiple of 2**-53; infinity if 1 is too little.

    `delta_upper` at the returned value is at most delta. It is within 1e-9 of the least one (1e-6 where cells hold more
    than 10,000 noise reports, 1e-4 in several rounds).
    """
    check_size("honest_users", honest_users, 1, MOST_USERS)
    check_size("slots", slots, 1, MOST_USERS)
    _check_target(epsilon, delta, rounds)
    trials = int(honest_users) * int(slots)
    Slots(trials, 1.0 / GRID, cells, rounds)  # refuses what no chance can make right
    if cells == 1:
        return 1.0 / GRID
    guess = noise_per_cell_guess(epsilon, delta, rounds)
    return _least_chance(trials, cells, epsilon, delta, rounds, guess) if math.isfinite(guess) else math.inf


def rough_noise_per_cell(epsilon: float, delta: float, rounds: int = 1) -> float:
    """The same as `noise_per_cell_guess` at once, and the closer the more it is: what Gaussian noise would take."""
    _check_target(epsilon, delta, rounds)
    # two counts move by one, each with its own noise; and an empty cell gives itself away
    return max(2.0 * rounds * gaussian_noise(epsilon, delta) ** 2, math.log(rounds / delta))


@lru_cache(maxsize=1024)
def noise_per_cell_guess(epsilon: float, delta: float, rounds: int = 1) -> float:
    """Guess the noise reports per cell that (epsilon, delta) takes: it depends on nothing else when slots are many.

    So many slots with a small chance each need this much, and fewer with a larger chance hardly less. Only a guess, for
    planning: `smallest_chance` certifies. Infinity where it is more than can be certified.
    """
    guess = rough_noise_per_cell(epsilon, delta, rounds)
    if guess > MOST_HITS / 2:  # more than can be certified, and to find that out would list tens of millions of counts
        return math.inf
    trials = min(2**52, math.ceil(guess) * _MANY_TRIALS)
    return _least_chance(trials, 2, epsilon, delta, rounds, guess) * (trials / 2)


def _least_chance(trials: int, cells: int, epsilon: float, delta: float, rounds: int, guess: float) -> float:
    """The same, given a guess of the noise per cell."""
    _, high = bracket(
        lambda chance: Slots(trials, chance, cells, rounds).delta_upper(epsilon),
        delta,
        guess=min(1.0, guess * cells / trials),
        highest=min(1.0, 0.49 * MOST_HITS * cells / trials),  # what can be certified
        tolerance=1e-4 if rounds > 1 else 1e-9 if guess < _FINE_NOISE else 1e-6,
        spread=1.01,
    )
    return high


def _check_target(epsilon: float, delta: float, rounds: int) -> None:
    if check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    (check_single_delta if rounds == 1 else check_delta)(delta)
