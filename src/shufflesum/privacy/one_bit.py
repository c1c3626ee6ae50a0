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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shufflesum._checks import check_number, check_size
from shufflesum._compiled import kernel
from shufflesum._search import GRID, bisect, bracket, geometric_mean
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import MOST_USERS, PrivacyAccountant, local_epsilon
from shufflesum.privacy.engine import composition, pld
from shufflesum.privacy.engine.gaussian import (
    FAR,
    ROOT_HALF,
    gaussian_noise,
    gaussian_profile_upper,
    relative_error_bound,
)
from shufflesum.privacy.engine.laws import ROUNDING, Floats
from shufflesum.privacy.engine.pld import PrivacyLossDistribution

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


# ---------------------------------------------------------------------------------------------------------------------
# The accountant of vectors in a Euclidean ball, sent as single random bits.
#
# A user's vector, of norm C at most, is rotated, its D coordinates are clipped to C tau/sqrt(D) and divided by that: y
# in [-1, 1]^D with |y|^2 <= D/tau^2. Of each coordinate r bits are sent, each a one with probability (1 + a y)/2, and
# only the counts of ones are seen. The coin of this rounding is the privacy, so it must be exact and secret. Statement
# and proof: docs/privacy-ball.md.

MOST_COPIES = 10**12  # coordinates x bits x rounds
_CHARGED = 2  # decades below delta: what delta0 may cost of it
_LEAST_CHARGE = 1e-18
_LEAST_DELTA0 = 1e-26
_EXPORT_CHARGES = tuple(10.0**-decade for decade in range(2, 15))  # each is best near a delta of its own
_EXPORT_NODES = 20_000
_LARGEST_LOSS = 300.0  # of an export: what is beyond counts as infinite


@dataclass(frozen=True, slots=True)
class OneBitAccountant(PrivacyAccountant):
    """So many honest users, coordinates (after padding), bits of each and rounds, at an amplitude and a tau.

    At amplitude 1 bits carry no noise, as in plans for tests: nothing is certified then.
    """

    honest_users: int
    coordinates: int
    amplitude: float
    tau: float
    rounds: int = 1
    bits: int = 1

    def __post_init__(self) -> None:
        """Refuse what is no such protocol."""
        check_size("honest_users", self.honest_users, 1, MOST_USERS)
        for name in ("coordinates", "rounds", "bits"):
            check_size(name, getattr(self, name), 1, MOST_COPIES)
        check_size("coordinates x bits x rounds", self.copies, 1, MOST_COPIES)
        check_number("amplitude", self.amplitude)
        check_number("tau", self.tau)
        if not (2.0**-40 <= self.amplitude <= 1.0 - 2.0**-40 or self._noiseless):
            raise ParameterError(
                "out-of-range",
                f"amplitude is {self.amplitude}; it must lie between 2**-40 and 1 - 2**-40, or be 1: no noise",
            )
        if not 1.0 <= self.tau < math.inf:
            raise ParameterError("out-of-range", f"tau is {self.tau}; it must be at least 1, and finite")

    @property
    def copies(self) -> int:
        """How many counts are seen in all rounds."""
        return self.coordinates * self.bits * self.rounds

    @property
    def local_epsilon(self) -> float:
        """What is left for a user if shuffler and analyzer collude, over all reports and rounds."""
        noise, reports = 1.0 - self.amplitude, self.coordinates * self.bits
        return local_epsilon(levels=1, noise_probability=noise, coordinates=reports, rounds=self.rounds)

    def delta_upper(self, epsilon: float) -> float:
        """Return a delta for which all rounds together are certainly (epsilon, delta)-private."""
        epsilon = composition.check_epsilon(epsilon)
        if self._noiseless:
            return 1.0
        rough = self._gaussian_delta(epsilon, _LEAST_CHARGE)
        charges = _charges_near(rough)
        return min(rough, self._renyi_delta(epsilon), *(self._gaussian_delta(epsilon, charge) for charge in charges))

    def delta_lower(self, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        return self._lower.delta(composition.check_epsilon(epsilon))

    def epsilon_upper(self, delta: float) -> float:
        """Return an epsilon for which all rounds together are certainly (epsilon, delta)-private; may be infinite."""
        delta = composition.check_delta(delta)
        if self._noiseless:
            return math.inf
        charge = _charge_of(delta)
        mu = self.mu(charge)
        highest = min(1e6, mu * (0.5 * mu + 40.0))
        gaussian = bisect(lambda eps: self._gaussian_delta(eps, charge) <= delta, 0.0, highest, tolerance=1e-12)[1]
        return min(gaussian, renyi_epsilon_upper(*self._moments, delta))

    def epsilon_lower(self, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        return self._lower.epsilon(composition.check_delta(delta))

    def mu(self, charge: float) -> float:
        """Return a mu such that all rounds are dominated by N(mu, 1) against N(0, 1), with `charge` added to delta.

        Coordinate c is below the pair with mu_c = m v_c, v_c^2 = 2 a^2 (y_c^2 + y'_c^2), and the v_c^2 of a round add
        up to 4 a^2 D r/tau^2 at most. Infinite if no m was found.
        """
        m = gdp_mu_per_unit(self.honest_users, self.amplitude, self._delta0(charge))
        return m * 2.0 * self.amplitude * math.sqrt(self.copies) / self.tau * (1.0 + 16.0 * _ULP)

    def pld(self, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all rounds."""
        if self._noiseless:
            raise PrivacyError("not-certified", "bits without noise have no privacy loss distribution")
        mu = self.mu(_EXPORT_CHARGES[-1])
        reach = min(_LARGEST_LOSS, mu * (0.5 * mu + 9.0) + interval)
        step = interval * 2.0 ** max(0, math.ceil(math.log2(reach / interval / _EXPORT_NODES)))
        nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64)
        arguments = nodes * (1.0 - 2.0**-51)  # a node's own loss is rounded: charge the smaller side
        heights = renyi_profile_upper(*self._moments, arguments)
        for charge in _EXPORT_CHARGES:
            np.minimum(heights, self._gaussian_profile(arguments, charge), out=heights)
        return pld.dominating(step, heights, 0.0)

    def dominating_gaussian(self, delta: float) -> tuple[float, float] | None:
        """A mu and a chance: N(mu, 1) against N(0, 1) dominates up to that chance, for a plan of this delta."""
        charge = _charge_of(delta)
        mu = math.inf if self._noiseless else self.mu(charge)
        return (mu, self._charged(charge)) if math.isfinite(mu) else None

    @property
    def _noiseless(self) -> bool:
        return self.amplitude == 1.0

    @property
    def _lower(self) -> composition.ComposedLower:
        if self._noiseless:
            return composition.ComposedLower((composition.pure_noise(),))
        return adjacent_pairs_below(
            self.honest_users, self.coordinates, self.amplitude, self.tau, self.bits, self.rounds
        )

    @property
    def _moments(self) -> tuple[int, float, float, int]:
        squares = 4.0 * self.amplitude**2 / self.tau**2 * (1.0 + 8.0 * _ULP)
        return self.honest_users, self.amplitude, squares, self.copies

    def _renyi_delta(self, epsilon: float) -> float:
        return float(renyi_profile_upper(*self._moments, np.array([epsilon]))[0])

    def _gaussian_delta(self, epsilon: float, charge: float) -> float:
        return float(self._gaussian_profile(np.array([epsilon]), charge)[0])

    def _gaussian_profile(self, epsilons: Floats, charge: float) -> Floats:
        mu = self.mu(charge)
        if not math.isfinite(mu):
            return np.ones(epsilons.size)
        return np.minimum(gaussian_profile_upper(mu, epsilons) + self._charged(charge), 1.0)

    def _delta0(self, charge: float) -> float:
        return max(charge / self.copies, _LEAST_DELTA0)

    def _charged(self, charge: float) -> float:
        """(1 + delta0)^copies - 1, or somewhat more."""
        return math.expm1(self.copies * self._delta0(charge)) * (1.0 + 1e-12)


def largest_amplitude(
    *,
    honest_users: int,
    coordinates: int,
    tau: float,
    epsilon: float,
    delta: float,
    rounds: int = 1,
    bits: int = 1,
    tolerance: float = 1e-4,
) -> float:
    """Return an amplitude, nearly the largest, with which all rounds are certainly (epsilon, delta)-private.

    It is a multiple of 2**-53, so that the noise probability 1 - a is one, and it was seen to be enough.
    """
    epsilon, delta = composition.check_epsilon(epsilon), composition.check_delta(delta)
    charge = _charge_of(delta)

    def at(noise_odds: float) -> OneBitAccountant:
        return OneBitAccountant(honest_users, coordinates, _amplitude(noise_odds), tau, rounds, bits)

    def search(falling: Callable[[float], float]) -> float:
        # to first order mu^2 = 4 D r T a^2/(tau^2 n (1 - a^2)); noise_odds = (1 - a)/a
        curator = min(gaussian_noise(epsilon, delta), 1e6)
        squared = tau**2 * honest_users / (4.0 * coordinates * bits * rounds * curator**2)
        guess = min(math.sqrt((1.0 + squared) / squared) - 1.0, 2.0**39)
        found = bracket(falling, delta, guess=guess, highest=2.0**39, tolerance=tolerance, first_factor=1.05)[1]
        if not math.isfinite(found):
            raise PrivacyError(
                "privacy-out-of-reach",
                f"no amplitude down to 2**-40 makes {coordinates * bits * rounds} bits of {honest_users} users "
                f"({epsilon}, {delta})-private: raise epsilon or tau, or collect less",
            )
        return found

    found = search(lambda noise_odds: at(noise_odds)._gaussian_delta(epsilon, charge))
    # moments certify less and less as the amplitude grows: if not here, they do not help
    if at(found)._renyi_delta(epsilon) < delta:
        found = search(
            lambda noise_odds: min(
                at(noise_odds)._gaussian_delta(epsilon, charge), at(noise_odds)._renyi_delta(epsilon)
            )
        )
    return _amplitude(found)


def _amplitude(noise_odds: float) -> float:
    return min(math.floor(GRID / (1.0 + noise_odds)) / GRID, 1.0 - 2.0**-40)


def _charge_of(delta: float) -> float:
    return max(_LEAST_CHARGE, 10.0 ** (math.floor(math.log10(delta)) - _CHARGED))


def _charges_near(delta: float) -> Iterator[float]:
    """The charges that `_charge_of` takes for a delta near this one, so that what one finds the other confirms."""
    decade = math.floor(math.log10(max(delta, _LEAST_CHARGE)))
    for near in (decade - 1, decade, decade + 1):
        yield max(_LEAST_CHARGE, 10.0 ** (near - _CHARGED))


# ---------------------------------------------------------------------------------------------------------------------
# What concrete adjacent data sets show: a vector against its opposite, in some of the coordinates.
#
# In the rotated coordinates the victim holds y in so many of them, against -y, and 0 elsewhere; the others hold the one
# or the other as well, all the same or half of them each. Any rotation maps some vectors of the ball to these. Only how
# many ones there are in a coordinate is seen, among all its bits.


_PARTS_CHANGED = (1.0, 1 / 2, 1 / 5, 1 / 9)  # parts of the coordinates; and as few as the norm allows
_NODES = 40  # of the grid per deviation of one loss
_TELLING_LOSS = 20.0  # expected in all: worlds that differ by so much are told apart
_MOST_SUMMED = 10**11  # bits of one coordinate: the law of the ones among them is then listed over millions of counts
_KEPT_ERROR = 0.2 * pld.MOST_ERROR


@lru_cache(maxsize=64)
def adjacent_pairs_below(
    honest_users: int, coordinates: int, amplitude: float, tau: float, bits: int, rounds: int
) -> composition.ComposedLower:
    """Compose all of these pairs, each coordinate once in every round, from below."""
    half = (honest_users - 1) // 2
    alternatives: list[list[composition.Copies]] = []
    for changed, y in _changed_coordinates(coordinates, tau) if bits * honest_users <= _MOST_SUMMED else ():
        for high in sorted({0, half}):
            worlds = [(high + 1, honest_users - 1 - high), (high, honest_users - high)]
            for first, second in (worlds, worlds[::-1]) if 2 * high != honest_users - 1 else (worlds,):
                upper, lower, error = _shown(first, second, bits, amplitude * y)
                if not error < _KEPT_ERROR:
                    continue
                losses = np.log(upper / lower)
                # so many that rounding errors stay small; and, where few say it all and many lose it on the grid,
                # few: fewer coordinates are adjacent data sets as well
                most = min(changed * rounds, max(1, int(_KEPT_ERROR / error)))
                for copies in {most, min(most, math.ceil(_TELLING_LOSS / float(np.dot(upper, losses))))}:
                    finer = _NODES * min(8.0, max(1.0, 64.0 / copies))
                    step = float(np.sqrt(np.dot(upper, losses**2))) / finer
                    alternatives.append([(pld.grid_of_atoms(upper, lower, step, error), copies)])
    return (
        composition.compose_pairs(alternatives)
        if alternatives
        else composition.ComposedLower((composition.pure_noise(),))
    )


def _changed_coordinates(coordinates: int, tau: float) -> Iterator[tuple[int, float]]:
    """Numbers of coordinates, and the largest y that the norm allows there: changed y^2 <= coordinates/tau^2."""
    fewest = min(coordinates, math.ceil(coordinates / tau**2))
    for changed in sorted({max(fewest, math.ceil(part * coordinates)) for part in (*_PARTS_CHANGED, 0.0)}):
        yield changed, min(1.0, math.sqrt(coordinates / changed) / tau * (1.0 - 2.0**-50))


def _shown(first: tuple[int, int], second: tuple[int, int], bits: int, bias: float) -> tuple[Floats, Floats, float]:
    """The laws of the ones in a coordinate in two worlds, where both are known, and their relative error.

    In a world so many users are at y and so many at -y, and bits of theirs are ones with (1 + bias)/2, or (1 - bias)/2.
    The first law is rounded down, the second up, by what is outside of its window.
    """
    (one, below, above, error, start), (other, _, _, other_error, other_start) = (
        _ones(bits * high, bits * low, bias) for high, low in (first, second)
    )
    begin = max(start, other_start)
    end = min(start + one.size, other_start + other.size)
    upper = one[begin - start : end - start] / (1.0 + below + above)
    lower = other[begin - other_start : end - other_start]
    both = (upper > 1e-290) & (lower > 1e-290)  # an outcome may be left out
    return upper[both], lower[both], error + other_error + 1e-14


def _ones(high: int, low: int, bias: float) -> tuple[Floats, float, float, float, int]:
    """The law of the ones among so many bits; what is below and above it, its error, and its first count."""
    terms, _, below, above, widening, _ = law(high, low, bias)
    return terms, below, above, widening, law_window(high, low, bias)[2]
