"""Renyi moments of a coordinate's pair: a certificate that asks nothing of the law of z.

For alpha in (1, 2] or alpha >= 3 and |s|, |s'| <= a, F(s, s') = E_u (1 + s z)^alpha (1 + s' z)^(1 - alpha) satisfies
    F(s, s') - 1  <=  H (s - s')^2,
    H = max { alpha (alpha - 1)/2 E z^2/(1 + a z),  alpha (alpha - 1)/2 E z^2/(1 - a z),
              (F(a, -a) - 1)/(4 a^2),  (F(-a, a) - 1)/(4 a^2) },
hence a round's log-moment is at most D r log(1 + 4 H a^2/tau^2) (docs/privacy-ball.md, 6). As E z = 0,
    F(a, -a) - 1 = E (1 + a z) K(2 a z/(1 + a z)),    K(y) = (1 - y)^(1 - alpha) - 1 - (alpha - 1) y >= 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from shufflesum._compiled import kernel
from shufflesum._search import bisect
from shufflesum.privacy.ball.others import MOST_WIDENING, cells_of, law
from shufflesum.privacy.engine.laws import ROUNDING, Floats

__all__ = ["epsilon_upper", "profile_upper"]

# 11/10 to 20/10, divided: a sum of tenths ends above 2, and between 2 and 3 nothing is proved
ORDERS = np.concatenate([np.arange(11, 21) / 10.0, 3.0 * np.exp(0.08 * np.arange(90))])
_WORK = 1e7  # terms x orders of all laws together
_MOST_CELLS = 64
_LONGEST = 6e4  # terms of a law: with so many users the Gaussian bound is better anyway, and moments are left out
_LARGEST_EXPONENT = 600.0
_VANISHED = 1e-300  # what terms and tails below the smallest double come to, counted where it weighs most


@kernel
def _raise_curvatures(
    terms: Floats, z: Floats, tail: float, widening: float, shift: float, a: float, orders: Floats, out: Floats
) -> None:
    """Raise `out` to upper bounds of alpha (alpha - 1)/2 E z^2/(1 + a z) and of (F(a, -a) - 1)/(4 a^2).

    Both rise with |z| on either side of 0, so that the error of z is added to it. The outermost half terms, and what
    is beyond them, count at z = -1 and z = 1.
    """
    size = terms.size + 1
    masses = np.empty(size)
    weights = np.empty(size)  # 1 + a z
    slopes = np.empty(size)  # 2 a z/(1 + a z)
    losses = np.empty(size)  # log((1 + a z)/(1 - a z))
    squares = 0.0
    for i in range(size):
        if i == 0 or i == size - 1:
            masses[i] = 0.5 * terms[max(i - 1, 0)] + tail + _VANISHED
            place = -1.0 if i == 0 else 1.0
        else:
            masses[i] = 0.5 * (terms[i - 1] + terms[i])
            place = min(1.0, z[i - 1] + shift) if z[i - 1] > 0.0 else max(-1.0, z[i - 1] - shift)
        weights[i] = 1.0 + a * place
        slopes[i] = 2.0 * a * place / weights[i]
        losses[i] = math.log1p(a * place) - math.log1p(-a * place)
        squares += masses[i] * place**2 / weights[i]
    up = 1.0 + 2.0 * widening
    for o in range(orders.size):
        tilt = orders[o] - 1.0
        if tilt * losses[size - 1] > _LARGEST_EXPONENT:
            out[o] = math.inf
            continue
        total = 0.0
        for i in range(size):
            exponent = tilt * losses[i]
            raised = math.expm1(exponent)
            linear = tilt * slopes[i]
            doubt = 16.0 * ROUNDING * ((1.0 + abs(exponent)) * (abs(raised) + abs(exponent)) + abs(linear))
            total += masses[i] * weights[i] * max(raised - linear + doubt, 0.0)
        out[o] = max(out[o], 0.5 * orders[o] * tilt * squares * up, total / (4.0 * a * a) * up)


@lru_cache(maxsize=64)
def _curvatures(honest_users: int, amplitude: float) -> Floats:
    """H for each of the orders: the worst over all h, both signs of z."""
    size = 24.0 * math.sqrt(0.25 * honest_users * (1.0 - amplitude**2)) + 90.0
    if size > _LONGEST:
        return np.full(ORDERS.size, np.inf)
    most = int(min(_MOST_CELLS, max(4.0, _WORK / (2.0 * size * ORDERS.size))))
    result = np.zeros(ORDERS.size)
    for high, low in cells_of(honest_users, amplitude, most):
        terms, z, below, above, widening, error = law(high, low, amplitude)
        if not widening < MOST_WIDENING:
            return np.full(ORDERS.size, np.inf)
        arguments = below + above, widening, error + 8.0 * ROUNDING, amplitude, ORDERS, result
        _raise_curvatures(terms, z, *arguments)
        _raise_curvatures(terms[::-1].copy(), -z[::-1], *arguments)
    return result


@lru_cache(maxsize=256)
def _log_moments(honest_users: int, amplitude: float, squares: float, copies: int) -> Floats:
    """log E (P/Q)^(alpha - 1) under P for all copies, where (s - s')^2 is `squares` in each at most on average."""
    spread = _curvatures(honest_users, amplitude) * squares
    moments: Floats = copies * np.log1p(spread) * (1.0 + 64.0 * ROUNDING)
    return moments


def profile_upper(honest_users: int, amplitude: float, squares: float, copies: int, epsilons: Floats) -> Floats:
    """Bound delta at each epsilon: for all r, w > 0 and any alpha > 1,
    (r - w)+ <= r^alpha w^(1 - alpha) (alpha - 1)^(alpha - 1)/alpha^alpha.
    """
    moments = _log_moments(honest_users, amplitude, squares, copies)
    tilt = ORDERS - 1.0
    powers = tilt * np.log(tilt), ORDERS * np.log(ORDERS)
    fixed = moments + powers[0] - powers[1]
    doubt = 16.0 * ROUNDING * (moments + np.abs(powers[0]) + np.abs(powers[1]) + 1.0)
    result = np.ones(epsilons.size)
    for order, constant in zip(tilt, fixed + doubt, strict=True):
        exponents = constant - order * epsilons * (1.0 - 16.0 * ROUNDING)
        np.minimum(result, np.exp(np.minimum(exponents, 0.0)), out=result)
    return np.minimum(result + 1e-300, 1.0)


def epsilon_upper(honest_users: int, amplitude: float, squares: float, copies: int, delta: float) -> float:
    """Return an epsilon whose delta was seen to be small enough; infinite if there is none up to 700."""

    def enough(epsilon: float) -> bool:
        return bool(profile_upper(honest_users, amplitude, squares, copies, np.array([epsilon]))[0] <= delta)

    return bisect(enough, 0.0, 700.0, tolerance=1e-12)[1]
