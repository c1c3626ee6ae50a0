"""The formulas of Scott, Cormode and Maple (2021), exactly as published; docs/privacy.md says where they need care.

In their symbols: n users, d dimension, k levels, t coordinates that a user reports, gamma noise probability; log is
natural. All bounds have one form for epsilon < 1 and another for 1 <= epsilon < 6, and none beyond.
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
    low = check_covered(users, dimension, epsilon, delta, coordinates=coordinates, levels=levels)
    constant = 56.0 if low else 2016.0
    return constant * dimension * levels * logs(coordinates, delta) / ((users - 1) * epsilon**2)


def improved_noise_probability(*, users: int, dimension: int, levels: int, epsilon: float, delta: float) -> float:
    """Return gamma of "Improved bounds for t = 1": the larger of two terms in each range of epsilon.

    The value may exceed 1: then the section offers nothing (`published_noise_probability` refuses it).
    """
    low = check_covered(users, dimension, epsilon, delta, levels=levels)
    first, second = (14.0, 27.0) if low else (80.0, 36.0 / 11.0)
    scale = dimension * levels / ((users - 1) * epsilon)
    return max(first * scale * math.log(2.0 / delta) / epsilon, second * scale)


def published_noise_probability(
    *, users: int, dimension: int, levels: int, coordinates: int, epsilon: float, delta: float
) -> float:
    """Return the published gamma for a plan: the improved one for one coordinate, the main theorem's otherwise.

    A value above 1 is no probability: refused, with what would bring it down.
    """
    check_covered(users, dimension, epsilon, delta, coordinates=coordinates, levels=levels)
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
    low = check_covered(users, dimension, epsilon, delta, coordinates=coordinates)
    half_constant = 28.0 if low else 1008.0
    product = logs(coordinates, delta)
    if product == 0.0:
        return math.inf
    return math.cbrt((users - 1) * epsilon**2 / (4.0 * half_constant * dimension * product))


def improved_levels(*, users: int, dimension: int, epsilon: float, delta: float) -> float:
    """Return k of "Improved bounds for t = 1": the smaller of two cube roots in each range of epsilon."""
    low = check_covered(users, dimension, epsilon, delta)
    log = math.log(2.0 / delta)
    if low:
        return min(
            math.cbrt(users * epsilon**2 / (28.0 * dimension * log)), math.cbrt(users * epsilon / (54.0 * dimension))
        )
    return min(
        math.cbrt(users * epsilon**2 / (160.0 * dimension * log)),
        math.cbrt(11.0 * users * epsilon / (72.0 * dimension)),
    )


def published_levels(*, users: int, dimension: int, coordinates: int, epsilon: float, delta: float) -> int:
    """Return the published k for a plan: rounded down, at least 1."""
    check_covered(users, dimension, epsilon, delta, coordinates=coordinates)
    if coordinates == 1:
        return max(1, math.floor(improved_levels(users=users, dimension=dimension, epsilon=epsilon, delta=delta)))
    levels = theorem_mse_levels(users=users, dimension=dimension, coordinates=coordinates, epsilon=epsilon, delta=delta)
    if math.isinf(levels):
        raise PrivacyError(
            "out-of-range", f"delta = {delta}: the published levels are unbounded there; lower delta below 1"
        )
    return max(1, math.floor(levels))


def logs(coordinates: int, delta: float) -> float:
    """log(1/delta) log(2t/delta), which several of the formulas have."""
    return math.log(1.0 / delta) * math.log(2.0 * coordinates / delta)


def check_covered(
    users: int, dimension: int, epsilon: float, delta: float, *, coordinates: int = 1, levels: int = 1
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
    return epsilon < 1.0
