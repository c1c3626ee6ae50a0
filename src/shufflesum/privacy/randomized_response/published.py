"""The formulas of Scott, Cormode and Maple (2021), exactly as published; docs/privacy.md says where they need care.

In their symbols: n users, d dimension, k levels, t coordinates that a user reports, gamma noise probability; log is
natural. All bounds have one form for epsilon < 1 and another for 1 <= epsilon < 6, and none beyond. Squared errors are
normalized by (n/d)^2.
"""

from __future__ import annotations

import math

from shufflesum.errors import ParameterError, PrivacyError


def theorem_main_noise_probability(
    *, users: int, dimension: int, levels: int, coordinates: int, epsilon: float, delta: float
) -> float:
    """Return gamma of the main theorem: c d k log(1/delta) log(2t/delta) / ((n - 1) eps^2), c = 56 or 2016.

    The value may exceed 1: then the theorem offers nothing (`published_noise_probability` refuses it).
    """
    low = _check(users, dimension, epsilon, delta, coordinates=coordinates, levels=levels)
    constant = 56.0 if low else 2016.0
    return constant * dimension * levels * _logs(coordinates, delta) / ((users - 1) * epsilon**2)


def improved_noise_probability(*, users: int, dimension: int, levels: int, epsilon: float, delta: float) -> float:
    """Return gamma of "Improved bounds for t = 1": the larger of two terms in each range of epsilon.

    The value may exceed 1: then the section offers nothing (`published_noise_probability` refuses it).
    """
    low = _check(users, dimension, epsilon, delta, levels=levels)
    first, second = (14.0, 27.0) if low else (80.0, 36.0 / 11.0)
    scale = dimension * levels / ((users - 1) * epsilon)
    return max(first * scale * math.log(2.0 / delta) / epsilon, second * scale)


def published_noise_probability(
    *, users: int, dimension: int, levels: int, coordinates: int, epsilon: float, delta: float
) -> float:
    """Return the published gamma for a plan: the improved one for one coordinate, the main theorem's otherwise.

    A value above 1 is no probability: refused, with what would bring it down.
    """
    _check(users, dimension, epsilon, delta, coordinates=coordinates, levels=levels)
    if coordinates == 1:
        gamma = improved_noise_probability(
            users=users, dimension=dimension, levels=levels, epsilon=epsilon, delta=delta
        )
    else:
        gamma = theorem_main_noise_probability(
            users=users, dimension=dimension, levels=levels, coordinates=coordinates, epsilon=epsilon, delta=delta
        )
    if gamma > 1.0:
        raise PrivacyError(
            "privacy-out-of-reach",
            f"the published noise probability is {gamma:.4g}, and must be at most 1, for users = {users} (n), "
            f"dimension = {dimension} (d), levels = {levels} (k), epsilon = {epsilon}, delta = {delta}: "
            f"raise users to about {math.ceil((users - 1) * gamma) + 1}, or lower dimension or levels, "
            "or raise epsilon or delta, or choose accountant='exact'",
        )
    return gamma


def theorem_mse_levels(*, users: int, dimension: int, coordinates: int, epsilon: float, delta: float) -> float:
    """Return k of the MSE theorem: ((n - 1) eps^2 / (4 A d log(1/delta) log(2t/delta)))^(1/3), A = 28 or 1008.

    The proof prints it without the cube root, but only with it do the bounds of the theorem follow. delta = 1 asks
    for no noise and gives infinity.
    """
    low = _check(users, dimension, epsilon, delta, coordinates=coordinates)
    half_constant = 28.0 if low else 1008.0
    logs = _logs(coordinates, delta)
    if logs == 0.0:
        return math.inf
    return math.cbrt((users - 1) * epsilon**2 / (4.0 * half_constant * dimension * logs))


def improved_levels(*, users: int, dimension: int, epsilon: float, delta: float) -> float:
    """Return k of "Improved bounds for t = 1": the smaller of two cube roots in each range of epsilon."""
    low = _check(users, dimension, epsilon, delta)
    log = math.log(2.0 / delta)
    if low:
        return min(
            math.cbrt(users * epsilon**2 / (28.0 * dimension * log)),
            math.cbrt(users * epsilon / (54.0 * dimension)),
        )
    return min(
        math.cbrt(users * epsilon**2 / (160.0 * dimension * log)),
        math.cbrt(11.0 * users * epsilon / (72.0 * dimension)),
    )


def published_levels(*, users: int, dimension: int, coordinates: int, epsilon: float, delta: float) -> int:
    """Return the published k for a plan: rounded down, at least 1."""
    _check(users, dimension, epsilon, delta, coordinates=coordinates)
    if coordinates == 1:
        return max(1, math.floor(improved_levels(users=users, dimension=dimension, epsilon=epsilon, delta=delta)))
    levels = theorem_mse_levels(users=users, dimension=dimension, coordinates=coordinates, epsilon=epsilon, delta=delta)
    if math.isinf(levels):
        raise PrivacyError(
            "out-of-range", f"delta = {delta}: the published levels are unbounded there; lower delta below 1"
        )
    return max(1, math.floor(levels))


def theorem_mse(
    *, users: int, dimension: int, coordinates: int, epsilon: float, delta: float, noise_probability: float
) -> float:
    """Return the normalized MSE bound of the MSE theorem:
    c t d^(8/3) (b log(1/delta) log(2t/delta))^(2/3) / ((1 - gamma)^2 n^(5/3) eps^(4/3)), (c, b) = (2, 14) or (8, 63).
    """
    low = _check(users, dimension, epsilon, delta, coordinates=coordinates, noise_probability=noise_probability)
    outer, inner = (2.0, 14.0) if low else (8.0, 63.0)
    numerator = outer * coordinates * math.pow(dimension, 8 / 3) * math.pow(inner * _logs(coordinates, delta), 2 / 3)
    return numerator / ((1.0 - noise_probability) ** 2 * math.pow(users, 5 / 3) * math.pow(epsilon, 4 / 3))


def corollary_query_standard_deviation(
    *, users: int, dimension: int, coordinates: int, epsilon: float, delta: float, noise_probability: float
) -> float:
    """Return the standard deviation of the query corollary:
    (c t)^(1/2) d^(4/3) (b log(1/delta) log(2t/delta))^(1/3) / ((1 - gamma) n^(5/6) eps^(2/3)), (c, b) as in the MSE.
    """
    low = _check(users, dimension, epsilon, delta, coordinates=coordinates, noise_probability=noise_probability)
    outer, inner = (2.0, 14.0) if low else (8.0, 63.0)
    numerator = (
        math.sqrt(outer * coordinates) * math.pow(dimension, 4 / 3) * math.cbrt(inner * _logs(coordinates, delta))
    )
    return numerator / ((1.0 - noise_probability) * math.pow(users, 5 / 6) * math.pow(epsilon, 2 / 3))


def improved_mse(*, users: int, dimension: int, epsilon: float, delta: float, noise_probability: float) -> float:
    """Return the normalized MSE bound of "Improved bounds for t = 1": the larger of two terms in each range."""
    low = _check(users, dimension, epsilon, delta, noise_probability=noise_probability)
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


def improved_standard_deviation(
    *, users: int, dimension: int, epsilon: float, delta: float, noise_probability: float
) -> float:
    """Return the standard deviation of "Improved bounds for t = 1": the larger of two terms in each range."""
    low = _check(users, dimension, epsilon, delta, noise_probability=noise_probability)
    log = math.log(2.0 / delta)
    scale = math.pow(dimension, 4 / 3) / ((1.0 - noise_probability) * math.pow(users, 5 / 6))
    if low:
        return scale * max(
            math.pow(98.0, 1 / 6) * math.cbrt(log) / math.pow(epsilon, 2 / 3),
            math.sqrt(18.0) / math.cbrt(4.0 * epsilon),
        )
    return scale * max(
        math.sqrt(2.0) * math.cbrt(20.0 * log) / math.pow(epsilon, 2 / 3),
        math.sqrt(2.0) * math.cbrt(9.0) / math.cbrt(11.0 * epsilon),
    )


def _logs(coordinates: int, delta: float) -> float:
    return math.log(1.0 / delta) * math.log(2.0 * coordinates / delta)


def _check(
    users: int,
    dimension: int,
    epsilon: float,
    delta: float,
    *,
    coordinates: int = 1,
    levels: int = 1,
    noise_probability: float = 0.0,
) -> bool:
    """Refuse what the theorems do not cover; return whether epsilon lies in the lower range."""
    for name, count, least in (
        ("users", users, 2),
        ("dimension", dimension, 1),
        ("levels", levels, 1),
        ("coordinates", coordinates, 1),
    ):
        if count < least:
            raise ParameterError(
                "out-of-range", f"{name} = {count}: the published bounds need at least {least}; raise {name}"
            )
    if coordinates > dimension:
        raise ParameterError(
            "out-of-range", f"coordinates = {coordinates}: at most dimension = {dimension}; lower coordinates"
        )
    if not 0.0 < epsilon < 6.0:
        raise PrivacyError(
            "out-of-range", f"epsilon = {epsilon}: the published bounds hold for 0 < epsilon < 6; change epsilon"
        )
    if not 0.0 < delta <= 1.0:
        raise PrivacyError(
            "out-of-range", f"delta = {delta}: the published bounds hold for 0 < delta <= 1; change delta"
        )
    if not 0.0 <= noise_probability < 1.0:
        raise ParameterError(
            "out-of-range",
            f"noise_probability = {noise_probability}: the published errors need it in [0, 1); change it",
        )
    return epsilon < 1.0
