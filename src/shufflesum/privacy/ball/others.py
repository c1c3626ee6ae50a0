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
from collections.abc import Iterator

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import ROUNDING, Floats

__all__ = ["MOST_WIDENING", "cells_of", "law", "worst_calls"]

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
    spread = float(np.sqrt(honest_users * (1.0 - amplitude**2))) + 10.0
    count = int(min(half + 1, most, max(_FEWEST_CELLS, _WORK / (20.0 * spread))))
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
        doubt = 8.0 * ROUNDING * (abs(first) + abs(second))
        room = total - k + 1.0
        small, large = (
            max(part - doubt + room / large * (1.0 - 4.0 * ROUNDING), 0.0) / (k + 1.0) * (1.0 - 4.0 * ROUNDING),
            (part + doubt + room / small * (1.0 + 4.0 * ROUNDING)) / (k + 1.0) * (1.0 + 4.0 * ROUNDING),
        )
        ratios[k - start, 0] = small
        ratios[k - start, 1] = large
    return stop


@kernel
def law(high: int, low: int, amplitude: float) -> tuple[Floats, Floats, float, float, float, float]:
    """Return W on a window, z at its inner steps, and bounds of what is outside and of the errors.

    W has terms for lo..hi; z[i] belongs to the step from W[i] to W[i + 1]. Then follow the masses below and above the
    window, relative to the sum of the terms, the relative error of the terms (normalised by their sum), and the error
    of the logarithm of each ratio. The ratios that make W and z fall exactly, as the true ones do.
    """
    total = high + low
    p, q = 0.5 * (1.0 + amplitude), 0.5 * (1.0 - amplitude)
    odds = p / q
    mean = high * p + low * q
    deviation = np.sqrt(total * p * q)
    near = _NEAR + _NEAR_DEVIATIONS * deviation
    far = _FAR + _FAR_DEVIATIONS * deviation
    lo, hi = max(0, int(mean - near)), min(total, int(mean + near) + 1)
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
    place = 1.0
    step = last - 1  # the next vertex below is z[step]
    for g in range(grid.size - 1, -1, -1):
        x = grid[g] - shift
        while step >= 0 and z[step] >= x:
            height += (place - z[step]) * mass
            place = z[step]
            mass += 0.5 * (terms[step] + terms[step + 1])
            step -= 1
        value = (height + max(place - x, 0.0) * mass) * (1.0 + 2.0 * widening) + 1e-300
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
