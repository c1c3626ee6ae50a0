"""The law of the other users' ones in one coordinate, and what it lets a victim's bit show.

Of the others, h report a one with probability p = (1 + a)/2 and the rest with q = (1 - a)/2; any data set is a mixture
of these (docs/privacy-ball.md, 2). With W the law of their ones, u(j) = (W(j - 1) + W(j))/2 is the law of the count
with a fair bit of the victim's, and z(j) = (W(j - 1) - W(j))/(W(j - 1) + W(j)) rises from -1 to 1. All that is needed
is the call function C(x) = E_u (z - x)+ for the worst h.

The ratios r_k = W(k + 1)/W(k) follow from each other: the generating function (q + p t)^h (p + q t)^m satisfies
    (k + 1) r_k = (p/q)(h - k) + (q/p)(m - k) + (h + m - k + 1)/r_(k-1),
a sum of positive terms as long as the first part is positive. Counting zeros instead of ones, the same recurrence runs
from the other end, and between them they meet. An error of r_(k-1) reaches r_k only in part, so that a chain forgets
how it was begun: two ends enclose the ratio, and come together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._compiled import kernel
from shufflesum._search import bisect, geometric_mean
from shufflesum.privacy.engine.gaussian import FAR, ROOT_HALF, relative_error_bound
from shufflesum.privacy.engine.laws import ROUNDING, Floats

MOST_WIDENING = 1e-3  # relative error of a law; one that errs more is not used

_CELLS = 400  # of h in 0..(n - 1)/2: each forgets 1/800 of the users, which costs half of that in mu
_FEWEST_CELLS = 32
_WORK = 3e7  # terms of all laws together
_NEAR, _FAR = 45.0, 90.0  # Bernstein: beyond 45 + 12 deviations there is less than exp(-64)
_NEAR_DEVIATIONS, _FAR_DEVIATIONS = 12.0, 20.0


def cells_of(honest_users: int, amplitude: float, most: int = _CELLS) -> Iterator[tuple[int, int]]:
    """Yield (h, m): for every h in 0..(n - 1)/2 there is a pair with at most as many users of either kind.

    Leaving users out only raises what is shown, and swapping ones and zeros covers the upper half.
    """
    others = honest_users - 1
    half = others // 2
    deviation = float(np.sqrt(honest_users * (1.0 - amplitude**2))) + 10.0
    count = int(min(half + 1, most, max(_FEWEST_CELLS, _WORK / (20.0 * deviation))))
    starts = np.unique(np.rint(np.linspace(0.0, half + 1.0, count + 1)).astype(np.int64))
    for start, stop in itertools.pairwise(starts):
        yield int(start), others - int(stop) + 1


@kernel
def _ratios(high: int, low: int, odds: float, start: int, stop: int, ratios: Floats) -> int:
    """Enclose r_k for k in start..stop - 1 of the law of `high` users' Bern(p) and `low` users' Bern(q), p/q = odds.

    Stops early where the first part of the recurrence is no longer positive, and returns where. `ratios` gets lower
    and upper ends: r_k falls in r_(k-1), so each end follows from the other one, rounded outwards.
    """
    total = high + low
    # each ratio lies between (total - k)/(k + 1) times 1/odds and times odds; W(-1) = 0
    small = np.inf if start == 0 else (total - start + 1.0) / start / odds * (1.0 - 1e-9)
    large = np.inf if start == 0 else (total - start + 1.0) / start * odds * (1.0 + 1e-9)
    for k in range(start, stop):
        first, second = odds * (high - k), (low - k) / odds
        part = first + second
        if part <= 0.0:
            return k
        relative_error_bound = 8.0 * ROUNDING * (abs(first) + abs(second))
        room = total - k + 1.0
        small, large = (
            max(part - relative_error_bound + room / large * (1.0 - 4.0 * ROUNDING), 0.0)
            / (k + 1.0)
            * (1.0 - 4.0 * ROUNDING),
            (part + relative_error_bound + room / small * (1.0 + 4.0 * ROUNDING)) / (k + 1.0) * (1.0 + 4.0 * ROUNDING),
        )
        ratios[k - start, 0] = small
        ratios[k - start, 1] = large
    return stop


@kernel
def law_window(high: int, low: int, amplitude: float) -> tuple[float, float, int, int]:
    """The mean and deviation of W, and the first and last count of the window that `law` gives it on."""
    p, q = 0.5 * (1.0 + amplitude), 0.5 * (1.0 - amplitude)
    mean, deviation = high * p + low * q, np.sqrt((high + low) * p * q)
    near = _NEAR + _NEAR_DEVIATIONS * deviation
    return mean, deviation, max(0, int(mean - near)), min(high + low, int(mean + near) + 1)


@kernel
def law(high: int, low: int, amplitude: float) -> tuple[Floats, Floats, float, float, float, float]:
    """Return W on a window, z at its inner steps, and bounds of what is outside and of the errors.

    W has terms for lo..hi; z[i] belongs to the step from W[i] to W[i + 1]. Then follow the masses below and above the
    window, relative to the sum of the terms, the relative error of the terms (normalised by their sum), and the error
    of the logarithm of each ratio. The ratios that make W and z fall exactly, as the true ones do.
    """
    total = high + low
    odds = (1.0 + amplitude) / (1.0 - amplitude)
    mean, deviation, lo, hi = law_window(high, low, amplitude)
    far = _FAR + _FAR_DEVIATIONS * deviation
    # from above, in numbers of zeros
    start = max(0, total - int(mean + far) - 1)
    down = np.empty((total - lo - start, 2))
    reached = _ratios(low, high, odds, start, total - lo, down)
    joint = total - reached  # W(joint) is the last term known from above
    steps = hi - lo
    ratios = np.empty(steps)
    errors = np.empty(steps)
    for k in range(joint, hi):
        i = total - k - 1 - start
        ratios[k - lo] = 1.0 / down[i, 0]
        errors[k - lo] = (down[i, 1] - down[i, 0]) / down[i, 0] + 4.0 * ROUNDING
    if joint > lo:
        start = max(0, int(mean - far))
        up = np.empty((joint - start, 2))
        reached = _ratios(high, low, odds, start, joint, up)
        for k in range(lo, joint):
            i = k - start
            ratios[k - lo] = up[i, 1]
            errors[k - lo] = (up[i, 1] - up[i, 0]) / up[i, 0] + 4.0 * ROUNDING if k < reached else np.inf
    for i in range(1, steps):  # the true ratios fall, so the smaller of two neighbours' is right for the second
        if ratios[i] > ratios[i - 1]:
            ratios[i] = ratios[i - 1]
            errors[i] = max(errors[i], errors[i - 1])
    mode = 0
    while mode < steps and ratios[mode] > 1.0:
        mode += 1
    terms = np.empty(steps + 1)
    terms[mode] = 1.0
    for i in range(mode, steps):
        terms[i + 1] = terms[i] * ratios[i]
    for i in range(mode - 1, -1, -1):
        terms[i] = terms[i + 1] / ratios[i]
    error = 0.0 if steps == 0 else np.max(errors)
    drift = max(np.sum(errors[:mode]), np.sum(errors[mode:]))  # of a term relative to the one at the mode
    total_mass = np.sum(terms)
    below = 0.0
    if lo > 0:
        ratio = np.exp(error) / ratios[0]
        below = terms[0] * ratio / (1.0 - ratio) if ratio < 1.0 else np.inf
    above = 0.0
    if hi < total:
        ratio = np.exp(error) * ratios[steps - 1]
        above = terms[steps] * ratio / (1.0 - ratio) if ratio < 1.0 else np.inf
    steepness = (1.0 - ratios) / (1.0 + ratios)
    widening = 2.0 * drift * (1.0 + drift) + 32.0 * ROUNDING * (steps + 64)
    return terms / total_mass, steepness, below / total_mass, above / total_mass, widening, error


@kernel
def _raise_calls(
    terms: Floats, z: Floats, tail: float, widening: float, shift: float, grid: Floats, out: Floats
) -> None:
    """Raise `out` to upper bounds of C at the points of the grid; what is beyond the window counts at z = 1."""
    last = terms.size - 1
    mass = 0.5 * terms[last] + tail  # U, of all outcomes from some z on
    height = 0.0  # C there
    point = 1.0
    step = last - 1  # the next vertex below is z[step]
    for g in range(grid.size - 1, -1, -1):
        x = grid[g] - shift
        while step >= 0 and z[step] >= x:
            height += (point - z[step]) * mass
            point = z[step]
            mass += 0.5 * (terms[step] + terms[step + 1])
            step -= 1
        value = (height + max(point - x, 0.0) * mass) * (1.0 + 2.0 * widening) + 1e-300
        out[g] = max(out[g], value)


def worst_calls(honest_users: int, amplitude: float, grid: Floats) -> Floats:
    """Bound C(x) = E_u (z - x)+ from above at rising x in [0, 1], for every h, and for -z as well.

    Infinite where rounding errors are too large.
    """
    calls = np.zeros(grid.size)
    for high, low in cells_of(honest_users, amplitude):
        terms, z, below, above, widening, error = law(high, low, amplitude)
        if not widening < MOST_WIDENING:
            return np.full(grid.size, np.inf)
        shift = error + 8.0 * ROUNDING
        _raise_calls(terms, z, above, widening, shift, grid, calls)
        _raise_calls(terms[::-1].copy(), -z[::-1], below, widening, shift, grid, calls)
    return calls


# ---------------------------------------------------------------------------------------------------------------------
# Gaussian domination: a number m such that every coordinate's pair is below a Gaussian pair.
#
# For all w >= 1, h, and |s|, |s'| <= a, with v^2 = 2 (s^2 + s'^2), G_mu the profile of N(mu, 1) against N(0, 1),
#     E_u (1 + s z - w (1 + s' z))+  <=  G_(m v)(w) + delta0                                            (domination)
# follows (docs/privacy-ball.md, 4) from a condition on one variable x in (0, 1),
#     C(x)  <=  x G_(2 a m)(e^(2 a E))/(e^(2 a E) - 1) + delta0 (1 - x a)/(2 a),                         (condition)
#     E^2 = ((A/a)^2 + B^2)/2,   A = log((1 + x a)/(1 - x a)) - x a/(1 + x a),   B = x/(1 + x a).
# Both sides fall in x: the left one at the lower end of a cell against the right one at its upper end is enough.


_STEP = 1e-3  # of the grid in deviations of z, for x below 4 of them
_GROWTH = 2.5e-4  # of the grid's points beyond
_FINE = 4.0
_FLOOR = 1e-28  # times 1 - a, of C: smaller than any delta0 would pay for
_TOLERANCE = 1e-6  # of m
_LARGEST_SHIFT = 32.0  # of mu = 2 a m for one coordinate: nothing is private there
_REMEMBERED = 64
_ULP = 2.0**-52


@dataclass(frozen=True, slots=True)
class Thresholds:
    """C at the points of a grid, for the worst h and sign of z, and what the condition compares it with."""

    amplitude: float
    grid: Floats
    calls: Floats
    steepest: Floats  # x a, rounded up
    exponents: Floats  # E

    def holds(self, m: float, delta0: float) -> bool:
        """Tell whether the condition certainly holds for all x: up to the last point by cells, beyond by delta0."""
        spared = delta0 * (1.0 - self.steepest) / (2.0 * self.amplitude) * (1.0 - 8.0 * _ULP)
        # C is convex with C(1) = 0: where delta0 alone pays for it, it does from there on
        paid = np.flatnonzero(self.calls <= spared)
        if not paid.size:
            return False
        end = int(paid[0]) + 1
        right = side_lower(m, self.amplitude, self.grid[:end], self.exponents[:end]) + spared[:end]
        return bool(np.all(self.calls[: end - 1] <= right[1:]))


@lru_cache(maxsize=_REMEMBERED)
def thresholds(honest_users: int, amplitude: float) -> Thresholds:
    """Lay out the condition for these users and this amplitude."""
    deviation = min(0.25, 1.0 / math.sqrt(honest_users * (1.0 - amplitude**2)))  # about that of z; only sets the grid
    fine = np.arange(0.0, min(_FINE, 1.0 / deviation), _STEP) * deviation
    beyond = max(0, math.ceil(math.log(1.0 / (_FINE * deviation)) / _GROWTH)) if _FINE * deviation < 1.0 else 0
    coarse = _FINE * deviation * np.exp(_GROWTH * np.arange(beyond))
    grid = np.append(np.concatenate([fine, coarse[coarse < 1.0]]), 1.0)
    calls = worst_calls(honest_users, amplitude, grid)
    if np.isfinite(calls[0]):
        calls[-1] = 0.0  # z never exceeds 1
    low = np.flatnonzero(calls <= _FLOOR * (1.0 - amplitude))
    kept = int(low[0]) + 1 if low.size else grid.size
    grid, calls = grid[:kept], calls[:kept]
    y = np.minimum(grid * amplitude * (1.0 + 4.0 * _ULP), amplitude)  # E rises with it; at x = 1 it is exact
    first = np.log1p(2.0 * y / (1.0 - y)) - y / (1.0 + y)
    exponents = np.sqrt(0.5 * ((first / amplitude) ** 2 + (y / amplitude / (1.0 + y)) ** 2)) * (1.0 + 32.0 * _ULP)
    return Thresholds(amplitude, grid, calls, y, exponents)


@lru_cache(maxsize=16 * _REMEMBERED)
def gdp_mu_per_unit(honest_users: int, amplitude: float, delta0: float) -> float:
    """Return an m, nearly the least, for which (domination) holds; infinite if none was found."""
    laid = thresholds(honest_users, amplitude)
    guess = 1.0 / math.sqrt(honest_users * (1.0 - amplitude**2))
    most = _LARGEST_SHIFT / (2.0 * amplitude)
    low = 0.5 * min(guess, most)
    return bisect(lambda m: laid.holds(m, delta0), low, most, tolerance=_TOLERANCE, middle=geometric_mean)[1]


# ---------------------------------------------------------------------------------------------------------------------
# The Gaussian side of the condition of `domination`, bounded from below in double precision.


@kernel
def side_lower(m: float, amplitude: float, grid: Floats, exponents: Floats) -> Floats:
    """Bound x G_(2am)(w)/(w - 1), w = e^(2aE), from below for x of the grid, but for its first point.

    With b = a m, t = E/m and Mills' ratio M(x) = Q(x)/density(x) it is, without cancelling exponentials,
        x exp(-(t^2 + b^2)/2) (M(t - b) - M(t + b)) / (2 sqrt(2 pi) sinh(a E)).
    """
    b = amplitude * m
    out = np.zeros(grid.size)
    for i in range(1, grid.size):
        t = exponents[i] / m
        if t + b > FAR:
            break
        error = 2.0 * relative_error_bound(t + b)
        difference = _mills(t - b) * (1.0 - error) - _mills(t + b) * (1.0 + error)
        factor = grid[i] * math.exp(-0.5 * (t * t + b * b)) / (2.0 * math.sinh(amplitude * exponents[i]))
        value = factor / math.sqrt(2.0 * math.pi) * difference * (1.0 - 4.0 * error)
        out[i] = max(value, 0.0)
    return out


@kernel
def _mills(x: float) -> float:
    return math.sqrt(0.5 * math.pi) * math.erfc(x * ROOT_HALF) * math.exp(0.5 * x * x)


# ---------------------------------------------------------------------------------------------------------------------
# Renyi moments of a coordinate's pair: a certificate that asks nothing of the law of z.
#
# For alpha in (1, 2] or alpha >= 3 and |s|, |s'| <= a, F(s, s') = E_u (1 + s z)^alpha (1 + s' z)^(1 - alpha) satisfies
#     F(s, s') - 1  <=  H (s - s')^2,
#     H = max { alpha (alpha - 1)/2 E z^2/(1 + a z),  alpha (alpha - 1)/2 E z^2/(1 - a z),
#               (F(a, -a) - 1)/(4 a^2),  (F(-a, a) - 1)/(4 a^2) },
# hence a round's log-moment is at most D r log(1 + 4 H a^2/tau^2) (docs/privacy-ball.md, 6). As E z = 0,
#     F(a, -a) - 1 = E (1 + a z) K(2 a z/(1 + a z)),    K(y) = (1 - y)^(1 - alpha) - 1 - (alpha - 1) y >= 0.


# 11/10 to 20/10, divided: a sum of tenths ends above 2, and between 2 and 3 nothing is proved
ORDERS = np.concatenate([np.arange(11, 21) / 10.0, 3.0 * np.exp(0.08 * np.arange(90))])
_MOMENT_WORK = 1e7  # terms x orders of all laws together
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
            point = -1.0 if i == 0 else 1.0
        else:
            masses[i] = 0.5 * (terms[i - 1] + terms[i])
            point = min(1.0, z[i - 1] + shift) if z[i - 1] > 0.0 else max(-1.0, z[i - 1] - shift)
        weights[i] = 1.0 + a * point
        slopes[i] = 2.0 * a * point / weights[i]
        losses[i] = math.log1p(a * point) - math.log1p(-a * point)
        squares += masses[i] * point**2 / weights[i]
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
            relative_error_bound = (
                16.0 * ROUNDING * ((1.0 + abs(exponent)) * (abs(raised) + abs(exponent)) + abs(linear))
            )
            total += masses[i] * weights[i] * max(raised - linear + relative_error_bound, 0.0)
        out[o] = max(out[o], 0.5 * orders[o] * tilt * squares * up, total / (4.0 * a * a) * up)


@lru_cache(maxsize=64)
def _curvatures(honest_users: int, amplitude: float) -> Floats:
    """H for each of the orders: the worst over all h, both signs of z."""
    size = 24.0 * math.sqrt(0.25 * honest_users * (1.0 - amplitude**2)) + 90.0
    if size > _LONGEST:
        return np.full(ORDERS.size, np.inf)
    most = int(min(_MOST_CELLS, max(4.0, _MOMENT_WORK / (2.0 * size * ORDERS.size))))
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
    excess = _curvatures(honest_users, amplitude) * squares
    moments: Floats = copies * np.log1p(excess) * (1.0 + 64.0 * ROUNDING)
    return moments


def renyi_profile_upper(honest_users: int, amplitude: float, squares: float, copies: int, epsilons: Floats) -> Floats:
    """Bound delta at each epsilon: for all r, w > 0 and any alpha > 1,
    (r - w)+ <= r^alpha w^(1 - alpha) (alpha - 1)^(alpha - 1)/alpha^alpha.
    """
    moments = _log_moments(honest_users, amplitude, squares, copies)
    tilt = ORDERS - 1.0
    powers = tilt * np.log(tilt), ORDERS * np.log(ORDERS)
    fixed = moments + powers[0] - powers[1]
    relative_error_bound = 16.0 * ROUNDING * (moments + np.abs(powers[0]) + np.abs(powers[1]) + 1.0)
    result = np.ones(epsilons.size)
    for order, constant in zip(tilt, fixed + relative_error_bound, strict=True):
        exponents = constant - order * epsilons * (1.0 - 16.0 * ROUNDING)
        np.minimum(result, np.exp(np.minimum(exponents, 0.0)), out=result)
    return np.minimum(result + 1e-300, 1.0)


def renyi_epsilon_upper(honest_users: int, amplitude: float, squares: float, copies: int, delta: float) -> float:
    """Return an epsilon whose delta was seen to be small enough; infinite if there is none up to 700."""

    def enough(epsilon: float) -> bool:
        return bool(renyi_profile_upper(honest_users, amplitude, squares, copies, np.array([epsilon]))[0] <= delta)

    return bisect(enough, 0.0, 700.0, tolerance=1e-12)[1]
