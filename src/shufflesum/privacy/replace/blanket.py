"""Certified privacy of one report per user: bounds on delta(epsilon), epsilon(delta) and the noise they need.

Upper bounds hold for every data set and every pair of neighbours (the privacy blanket, docs/privacy.md); lower bounds
come from concrete pairs of neighbouring data sets, so no analysis can do better. Every error of truncation, grids and
floating point goes against us: added to what is called upper, taken from what is called lower.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shufflesum._checks import check_number, check_size
from shufflesum._search import GRID, bisect, bracket, times_odds
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.engine.composition import Profile, check_single_delta
from shufflesum.privacy.engine.laws import ROUNDING, Floats
from shufflesum.privacy.engine.mixture import evaluate_lower, evaluate_upper
from shufflesum.privacy.guarantees import MOST_USERS
from shufflesum.privacy.replace.local import local_epsilon
from shufflesum.privacy.replace.one_value import one_value_lower
from shufflesum.privacy.replace.pairs import blanket_mixture, third_value_mixture

__all__ = [
    "MOST_LEVELS",
    "MOST_USERS",
    "MOST_VALUES",
    "check_parameters",
    "delta_lower",
    "delta_upper",
    "epsilon_lower",
    "epsilon_upper",
    "noise_probability_lower_bound",
    "profile_lower",
    "profile_upper",
    "smallest_noise_probability",
]

MOST_VALUES = 2**32 - 2  # as many as there are cells; sums and windows would hold beyond
MOST_LEVELS = 999  # of a number: planners look no further, because finer levels gain nothing
# Beyond this many blanket reports cells of s are coarser than one, so a finer search would only chase the grid.
_FINE_REPORTS = 20_000
_MANY_REPORTS = 1_000


def profile_upper(honest_users: int, levels: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta(epsilon) from above for many epsilons >= 0 in one pass, in the order given."""
    ordered, order = _ascending(epsilons)
    return _restore(_upper(honest_users, levels, noise_probability)(ordered), order)


def profile_lower(honest_users: int, levels: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound the worst case of delta(epsilon) from below for many epsilons >= 0 in one pass, in the order given."""
    ordered, order = _ascending(epsilons)
    return _restore(_lower(honest_users, levels, noise_probability)(ordered), order)


def _upper(honest_users: int, levels: int, noise_probability: float) -> Profile:
    """The upper bound, to be read at ascending epsilons as often as one likes."""
    users, cells = check_parameters(honest_users, levels, noise_probability)
    if noise_probability == 1.0:
        return np.zeros_like
    mixture = blanket_mixture(users, cells, noise_probability)
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    # a report that is noise says nothing, so delta never exceeds 1 - gamma
    limit = min(1.0, (1.0 - noise_probability) * (1.0 + 2.0 * ROUNDING))

    def profile(epsilons: Floats) -> Floats:
        result = np.zeros(epsilons.size)
        # from the local epsilon on, no outcome is more likely by more than e^epsilon
        open_ = epsilons < highest
        if open_.any():
            result[open_] = np.minimum(evaluate_upper(mixture, epsilons[open_]), limit)
        return result

    return profile


def _lower(honest_users: int, levels: int, noise_probability: float) -> Profile:
    """The lower bound, to be read at ascending epsilons as often as one likes."""
    users, cells = check_parameters(honest_users, levels, noise_probability)
    if noise_probability == 1.0:
        return np.zeros_like
    mixture = third_value_mixture(users, cells, noise_probability) if cells > 2 else None
    # with a third value and many reports in each cell the other pair is about half as telling: not worth its time
    few = mixture is None or users * noise_probability / cells < _MANY_REPORTS

    def profile(epsilons: Floats) -> Floats:
        result = one_value_lower(users, cells, noise_probability, epsilons) if few else np.zeros(epsilons.size)
        return result if mixture is None else np.maximum(result, evaluate_lower(mixture, epsilons))

    return profile


def delta_upper(honest_users: int, levels: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta for which the shuffled reports are certainly (epsilon, delta)-private."""
    return float(profile_upper(honest_users, levels, noise_probability, np.array([epsilon]))[0])


def delta_lower(honest_users: int, levels: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
    return float(profile_lower(honest_users, levels, noise_probability, np.array([epsilon]))[0])


def epsilon_upper(honest_users: int, levels: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon for which the shuffled reports are certainly (epsilon, delta)-private."""
    check_single_delta(delta)
    return _crossing(_upper(honest_users, levels, noise_probability), levels, noise_probability, delta)[1]


def epsilon_lower(honest_users: int, levels: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if no such epsilon is known."""
    check_single_delta(delta)
    return _crossing(_lower(honest_users, levels, noise_probability), levels, noise_probability, delta)[0]


def _crossing(profile: Profile, levels: int, noise_probability: float, delta: float) -> tuple[float, float]:
    """Return epsilons (low, high) with profile(low) > delta >= profile(high), or (0, 0) if never above."""

    def height(epsilon: float) -> float:
        return float(profile(np.array([epsilon]))[0])

    if height(0.0) <= delta:
        return 0.0, 0.0
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    return bracket(height, delta, guess=min(1.0, 0.5 * highest), highest=highest, tolerance=1e-11)


def smallest_noise_probability(honest_users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return the least noise probability that is certainly enough: a multiple of 2**-53, evaluated as such.

    delta_upper at the returned value is at most delta. There always is one, at most K/(e^epsilon - 1 + K).
    """
    _check_target(honest_users, levels, epsilon, delta)
    guess = noise_probability_lower_bound(honest_users, levels, epsilon, delta)
    _, high = bracket(
        lambda gamma: delta_upper(honest_users, levels, gamma, epsilon),
        delta,
        guess=guess * (1.0 + 1e-6),
        highest=_enough(levels, epsilon),
        tolerance=_tolerance(honest_users, guess),
        spread=1.0003 if levels > 1 else 1.1,
        times=times_odds,
    )
    return high


def noise_probability_lower_bound(honest_users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return a noise probability that is certainly too small, and so is every smaller one; 0 if none is known.

    delta_lower there exceeds delta, and the true delta only falls when more reports are replaced by noise.
    """
    _check_target(honest_users, levels, epsilon, delta)
    highest = _enough(levels, epsilon)
    guess = _gaussian_guess(honest_users, levels + 1, epsilon, delta, highest)
    low, _ = bracket(
        lambda gamma: delta_lower(honest_users, levels, gamma, epsilon),
        delta,
        guess=guess,
        highest=highest,
        tolerance=_tolerance(honest_users, guess),
        spread=1.01,
        times=times_odds,
    )
    return low


def _gaussian_guess(users: int, cells: int, epsilon: float, delta: float, highest: float) -> float:
    """Guess the noise probability from the limit of many reports; only where a search starts depends on it."""
    tangent = math.tanh(0.5 * epsilon)

    def enough(gamma: float) -> bool:
        count = 1.0 + (users - 1) * gamma
        spread = math.sqrt((0.25 if cells == 2 else 0.5) * count / cells)  # without a third value only one cell moves
        z = tangent * count / cells / (1.0 - gamma) / spread if gamma < 1.0 else math.inf
        mean = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - 0.5 * z * math.erfc(z / math.sqrt(2.0))
        scale = (1.0 - gamma) * (1.0 + math.exp(min(epsilon, 700.0))) * spread * cells / count
        return z >= 30.0 or scale * mean <= delta

    def middle(low: float, high: float) -> float:
        return 0.5 * (low + high) if low > 0.0 else 0.03 * high

    return min(bisect(enough, 0.0, highest, steps=40, middle=middle)[1], highest)


def _enough(levels: int, epsilon: float) -> float:
    """Return a noise probability at which even the unshuffled reports are epsilon-private, so that delta is 0."""
    point = math.ceil((levels + 1) / (math.expm1(min(epsilon, 700.0)) + levels + 1) * GRID)
    step = 1
    while point < GRID and local_epsilon(levels=levels, noise_probability=point / GRID) > epsilon:
        point, step = min(GRID, point + step), 2 * step
    return point / GRID


def _tolerance(honest_users: int, noise_probability: float) -> float:
    return 1e-9 if honest_users * noise_probability < _FINE_REPORTS else 1e-6


def _ascending(epsilons: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    points = np.asarray(epsilons, dtype=np.float64)
    if points.ndim != 1 or not bool(np.all(np.isfinite(points) & (points >= 0.0))):
        raise ParameterError(
            "out-of-range", f"epsilons = {epsilons}: expected one dimension of finite numbers >= 0; change epsilon"
        )
    order = np.argsort(points, kind="stable")
    return points[order], order


def _restore(result: Floats, order: npt.NDArray[np.intp]) -> Floats:
    restored = np.empty_like(result)
    restored[order] = result
    return restored


def check_parameters(honest_users: int, levels: int, noise_probability: float) -> tuple[int, int]:
    """Refuse what cannot be certified; return the number of users and of values, K = levels + 1."""
    check_size("honest_users", honest_users, 1, MOST_USERS)
    check_size("levels", levels, 1, MOST_VALUES - 1)
    check_number("noise_probability", noise_probability)
    if not 1.0 / GRID <= noise_probability <= 1.0:
        raise PrivacyError(
            "not-certified",
            f"noise_probability = {noise_probability}: must lie in [2**-53, 1], the values a randomizer can draw; "
            "without noise nothing is private: raise noise_probability",
        )
    return int(honest_users), int(levels) + 1


def _check_target(honest_users: int, levels: int, epsilon: float, delta: float) -> None:
    check_parameters(honest_users, levels, 1.0)
    if not 0.0 < epsilon < math.inf:
        raise PrivacyError("out-of-range", f"epsilon = {epsilon}: must be positive and finite; change epsilon")
    check_single_delta(delta)
