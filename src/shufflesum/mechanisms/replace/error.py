"""How far the mean estimated under `replace` will be from the users' true mean (docs/accuracy.md).

All values are in the unit interval here; a plan scales them by its bounds. Symbols: k levels, gamma noise probability,
p the chance that a user reports a given coordinate, c ~ Binomial(users, p) the reports it gets, f = frac(k x).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shufflesum.mechanisms.mechanism import ExpectedError

__all__ = ["coordinate_error", "expected_inverse_count", "report_variance", "rounding_variance"]


def rounding_variance(x: ArrayLike, levels: int) -> NDArray[np.float64]:
    """f (1 - f) / k^2: what random rounding alone adds to one report of x in [0, 1]."""
    scaled = np.asarray(x, dtype=np.float64) * levels
    fraction = scaled - np.floor(scaled)
    return fraction * (1 - fraction) / levels**2


def report_variance(x: ArrayLike, levels: int, noise_probability: float) -> NDArray[np.float64]:
    """The variance of one debiased report of x in [0, 1], rounding and noise together.

    Var = [(1-gamma)(x^2 + f(1-f)/k^2) + gamma(2k+1)/(6k) - ((1-gamma)x + gamma/2)^2] / (1-gamma)^2, written so that
    gamma = 0 leaves the rounding alone without rounding error; infinite for gamma = 1.
    """
    x = np.asarray(x, dtype=np.float64)
    gamma, keep = noise_probability, 1 - noise_probability
    if keep == 0:
        return np.full(x.shape, math.inf)
    uniform_square = (2 * levels + 1) / (6 * levels)
    noise = gamma * (keep * (x * x - x) + uniform_square - gamma / 4) / keep**2
    return np.asarray(rounding_variance(x, levels) / keep + noise)


def expected_inverse_count(users: int, probability: float) -> float:
    """E[1/c] for c ~ Binomial(users, p), given that anybody reports the coordinate at all.

    Summed term by term where few reports are expected, by its expansion (relative error below 1e-5) otherwise.
    """
    expected = users * probability
    if probability >= 1:
        return 1 / users
    if expected >= 1000:
        ratio = (1 - probability) / expected
        return (1 + ratio * (1 + 2 * ratio)) / expected
    log_term = users * math.log1p(-probability)  # log P[c = 0], then each next term by its ratio
    log_odds = math.log(probability) - math.log1p(-probability)
    some = inverse = 0.0
    for count in range(1, min(users, int(expected + 40 * math.sqrt(expected) + 100)) + 1):
        log_term += math.log((users - count + 1) / count) + log_odds
        term = math.exp(log_term)
        some += term
        inverse += term / count
    return inverse / some


def coordinate_error(
    users: int,
    probability: float,
    levels: int,
    noise_probability: float,
    spread: float | None = None,
) -> ExpectedError:
    """Expected squared error of one coordinate's estimated mean, at the worst data.

    The error is (mean Var + S^2) E[1/c] - S^2/users with S^2 the users' variance. Without a spread, the law of the data
    that makes the total largest is used, and the parts are reported at it: by symmetry and convexity it puts half the
    users at some x and half at 1 - x, so one number x is to be found, and on each rounding interval the total is a
    concave parabola in x. With a spread (the users' standard deviation), S is that spread and each other part is at its
    own worst, unless the worst of all data does better. A coordinate that nobody reports has no estimate; it is charged
    to sampling as an error of the whole width, so that plans too small to cover their coordinates do not look good.
    """
    unreported = math.exp(users * math.log1p(-probability)) if probability < 1 else 0.0
    inverse_count = expected_inverse_count(users, probability)
    sampled = max(0.0, inverse_count - 1 / users)
    gamma, keep = noise_probability, 1 - noise_probability
    if keep == 0:
        return ExpectedError(0.0, 0.0, math.inf)
    if spread is not None:
        worst_rounding = 1 / (4 * levels**2)
        worst_noise = float(report_variance(0.0, levels, gamma)) + worst_rounding / keep - worst_rounding
        reported = ExpectedError(sampled * spread**2, inverse_count * worst_rounding, inverse_count * worst_noise)
        bound = reported * (1 - unreported) + ExpectedError(unreported, 0.0, 0.0)
        worst_of_all = coordinate_error(users, probability, levels, noise_probability)
        return min(bound, worst_of_all, key=lambda error: error.total)
    # The vertex of: inverse_count Var(x) + sampled (x - 1/2)^2 on [j/k, (j+1)/k], whose quadratic coefficient is
    # -1/users.
    steps = np.arange((levels + 1) // 2)
    slope = inverse_count * ((2 * steps + 1) / levels - gamma) / keep - sampled
    vertex = np.clip(slope * users / 2, steps / levels, (steps + 1) / levels)
    x = np.concatenate([vertex, steps / levels])
    total = inverse_count * report_variance(x, levels, gamma) + sampled * (x - 0.5) ** 2
    worst = float(x[np.argmax(total)])
    rounding = float(rounding_variance(worst, levels))
    noise = float(report_variance(worst, levels, gamma)) - rounding
    apart = abs(worst - 0.5) if abs(worst - 0.5) > 1e-9 else 0.0
    reported = ExpectedError(sampled * apart**2, inverse_count * rounding, inverse_count * noise)
    return reported * (1 - unreported) + ExpectedError(unreported, 0.0, 0.0)
