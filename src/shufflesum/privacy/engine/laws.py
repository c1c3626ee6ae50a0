"""Binomial-like laws as windows of positive terms, with proven tails and counted rounding.

No logarithms of factorials: terms follow from their neighbours by the ratio of consecutive probabilities,
starting near the mode, and are normalised by their own sum. After j steps the relative error is below
10 j u (u = 2**-53), the sum of N positive terms adds N u; callers widen by `slack` for all of it at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shufflesum._compiled import kernel

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROUNDING = 2.0**-53
_REACH = 7.0  # half-width of a fair binomial's table in units of sqrt(s), that is 14 standard deviations


def slack(steps: int) -> float:
    """Bound the relative rounding error of a chain of `steps` recurrence steps, normalised by its sum."""
    return 32.0 * ROUNDING * (steps + 64)


@kernel
def _fill(
    terms: Floats,
    used: int,
    start: float,
    edge: float,
    last: float,
    shift: float,
    odds: float,
    biased: bool,
    total: float,
    cut: float,
) -> tuple[int, float, float]:
    """Write neighbouring terms from start towards edge until they end, fill the array, or leave too little to go on.

    Returns how many are written, the new total, and the tail bound (negative: the array is full).
    """
    rising = edge >= start
    term = terms[used - 1]
    while used < terms.size:
        j = start + (used - 1) if rising else start - used  # the ratio between j and j + 1 is the next one
        if (rising and j >= edge) or (not rising and j <= edge):
            return used, total, 0.0
        over = odds * (last - j)
        under = j + 1.0 - shift
        if biased:
            over *= j + 1.0
            under *= j
        ratio = over / under if rising else under / over
        if ratio < 1.0 and term * ratio <= cut * total * (1.0 - ratio):
            return used, total, term * ratio / (1.0 - ratio)
        term *= ratio
        total += term
        terms[used] = term
        used += 1
    return used, total, -1.0


@kernel
def _walk(
    start: int, edge: int, last: int, shift: int, odds: float, biased: bool, total: float, cut: float
) -> tuple[Floats, float, float]:
    """Collect the terms from start (1) towards edge; returns them, the new total and a bound on the rest."""
    terms = np.empty(256)
    terms[0] = 1.0
    used = 1
    while True:
        used, total, tail = _fill(
            terms, used, float(start), float(edge), float(last), float(shift), odds, biased, total, cut
        )
        if tail >= 0.0:
            return terms[:used], total, tail
        grown = np.empty(4 * terms.size)
        for i in range(used):  # as a slice, numba's message for unequal lengths takes 2 s more to compile
            grown[i] = terms[i]
        terms = grown


@kernel
def log_concave_window(
    first: int, last: int, shift: int, odds: float, biased: bool, start: int, cut: float, high_cut: float
) -> tuple[int, Floats, float, float, float]:
    """Walk both ways from `start` through the law on first..last with the ratio p(j+1)/p(j) =
    odds (last - j)/(j + 1 - shift), times (j + 1)/j if `biased`, until each tail is below cut x the sum
    (the high one below high_cut x the sum, if that is larger).

    The ratio falls with j, so the terms outside are below a geometric series from the edge. Returns the lowest
    index, the terms (relative to the one at start), their sum, and bounds on the low and the high tail.
    """
    down, total, low_tail = _walk(start, first - 1, last, shift, odds, biased, 1.0, cut)
    up, total, high_tail = _walk(start, last, last, shift, odds, biased, total, max(cut, high_cut))
    below = down.size - 1
    terms = np.empty(below + up.size)
    for i in range(below):
        terms[i] = down[below - i]
    for i in range(up.size):
        terms[below + i] = up[i]
    return start - below, terms, total, low_tail, high_tail


@kernel
def binomial_window(trials: int, probability: float, odds: float, cut: float) -> tuple[int, Floats, float, float]:
    """Return lowest index, terms, their sum and a bound on everything outside, for Binomial(trials, probability).

    `odds` = probability/(1 - probability) is given apart because the caller knows it without cancellation.
    """
    start = min(trials, max(0, int((trials + 1) * probability)))
    lowest, terms, total, low_tail, high_tail = log_concave_window(0, trials, 0, odds, False, start, cut, cut)
    return lowest, terms, total, low_tail + high_tail


@kernel
def excess_table(size: int, upper: bool) -> Floats:
    """Return T with T[i] = E (a - floor(size/2) - i)+ for a ~ Binomial(size, 1/2), bounded above or below.

    Between integers the mean is linear, so (1 - f) T[i] + f T[i + 1] is the mean at i + f, without cancellation.
    T(j) = T(j + 1) + P(a > j) and P(a > j) = P(a > j + 1) + P(a = j + 1): sums of positive terms from the top.
    """
    base = size // 2
    length = min(size - base, int(_REACH * np.sqrt(float(size))) + 2)
    terms = np.empty(length + 1)
    terms[0] = 1.0
    above = 0.0
    for i in range(length):
        terms[i + 1] = terms[i] * ((size - base - i) / (base + i + 1))
        above += terms[i + 1]
    ratio = (size - base - length) / (base + length + 1)
    beyond = terms[length] * ratio / (1.0 - ratio)  # geometric bound on P(a > top), relative to the mode
    total = 2.0 * above + (1.0 if size % 2 == 0 else 0.0)
    if not upper:
        total += 2.0 * beyond
    table = np.empty(length + 1)
    greater = beyond / total if upper else 0.0
    table[length] = greater / (1.0 - ratio)
    for i in range(length - 1, -1, -1):
        greater += terms[i + 1] / total
        table[i] = table[i + 1] + greater
    return table


# ---------------------------------------------------------------------------------------------------------------------
# One shape for both bounds: a mixture of means of (a - s/2 - tanh(eps/2)(s/2 + y))+ over cells (s, y).
#
# Two worlds that differ in how often each of two cells is hit, a and b times of s, have with w = e^eps
#     delta(eps) = factor (1 + w) sum_i weight_i E(x_i - tanh(eps/2)(drift_i/2 + y_i))+,   x = a - s/2, a ~ Bin(s, 1/2),
# so a mixture is computed once and read at any number of epsilons. Where many s share a cell [s0, s1], x_s is a
# martingale in s and (.)+ is convex: variance at s1 and drift at s0 is an upper bound, the reverse a lower one.


_ALLOWANCE = 32.0 * ROUNDING
# From here on 1 - tanh(eps/2) is lost in double precision, and only a = s can contribute.
_LARGE_EPSILON = 20.0
_LARGEST_SIZE_THERE = 1000
_UNDERFLOW = 1e-250


@dataclass(frozen=True, slots=True)
class Mixture:
    """Cells of s with their nodes in y; `outside` bounds what the mixture left out, `steps` its recurrences."""

    factor: float
    sizes: Integers
    drifts: Integers
    first_nodes: Integers
    shifts: Floats
    weights: Floats
    outside: float
    steps: int


def cell_edges(first: int, count: int, width: float) -> Integers:
    """Cut s = first, first + 1, ... into cells of `width` x s, at least 1; return where they start, and the end."""
    starts = [0]
    while starts[-1] < count:
        starts.append(min(count, starts[-1] + max(1, int(width * (first + starts[-1])))))
    return np.array(starts, dtype=np.int64)


@kernel
def _positive_parts(
    sizes: Integers,
    drifts: Integers,
    first_nodes: Integers,
    shifts: Floats,
    weights: Floats,
    tangents: Floats,
    upper: bool,
) -> tuple[Floats, int]:
    """Sum weight E(x - tangent (drift/2 + shift))+ for ascending tangents; also the longest table used."""
    sums = np.zeros(tangents.size)
    longest = 0
    for cell in range(sizes.size):
        size = sizes[cell]
        table = excess_table(size, upper)
        length = table.size - 1
        longest = max(longest, length)
        complete = length == size - size // 2
        odd = 0.5 * (size % 2)
        for node in range(first_nodes[cell], first_nodes[cell + 1]):
            weight = weights[node]
            height = 0.5 * drifts[cell] + shifts[node]
            for e in range(tangents.size):
                threshold = tangents[e] * height
                position = threshold + odd
                i = int(min(position, 1e15))
                if i < length:
                    part = position - i
                    sums[e] += weight * ((1.0 - part) * table[i] + part * table[i + 1])
                elif upper and not complete:
                    # Hoeffding: P(x > t) <= exp(-2 t^2/s), integrated from the threshold on
                    exponent = 2.0 * threshold * threshold / size
                    if exponent > 700.0:
                        break
                    sums[e] += weight * np.exp(-exponent) * size / (4.0 * threshold)
                else:
                    break
    return sums, longest


@kernel
def _extreme_parts(
    sizes: Integers, first_nodes: Integers, shifts: Floats, weights: Floats, growths: Floats, allowance: float
) -> Floats:
    """Sum weight 2^-s (s(1 + allowance) - (w - 1) shift)+: the only outcome left is a = s."""
    sums = np.zeros(growths.size)
    for cell in range(sizes.size):
        size = sizes[cell]
        if size > _LARGEST_SIZE_THERE:
            continue
        probability = 0.5**size
        top = size * (1.0 + allowance)
        for node in range(first_nodes[cell], first_nodes[cell + 1]):
            for e in range(growths.size):
                value = top - growths[e] * shifts[node]
                if value > 0.0:
                    sums[e] += weights[node] * probability * value
    return sums


def _evaluate(mixture: Mixture, epsilons: Floats, upper: bool) -> tuple[Floats, float]:
    """Return the sums with their factors, and the relative rounding they may carry; epsilons ascend."""
    against = -1.0 if upper else 1.0
    moderate = epsilons <= _LARGE_EPSILON
    result = np.zeros(epsilons.size)
    small, large = epsilons[moderate], epsilons[~moderate]
    tangents = np.tanh(0.5 * small) * (1.0 + against * _ALLOWANCE)
    sums, longest = _positive_parts(
        mixture.sizes, mixture.drifts, mixture.first_nodes, mixture.shifts, mixture.weights, tangents, upper
    )
    result[moderate] = mixture.factor * (1.0 + np.exp(small)) * sums
    if large.size:
        with np.errstate(over="ignore"):
            growths = np.expm1(large) * (1.0 + against * _ALLOWANCE)
        if upper:
            growths = np.minimum(growths, 1e300)
        result[~moderate] = mixture.factor * _extreme_parts(
            mixture.sizes, mixture.first_nodes, mixture.shifts, mixture.weights, growths, -against * _ALLOWANCE
        )
    return result, slack(mixture.steps + 3 * longest + mixture.weights.size)


def evaluate_upper(mixture: Mixture, epsilons: Floats) -> Floats:
    """Bound delta at ascending epsilons from above: rounding and everything outside the mixture is added."""
    values, widening = _evaluate(mixture, epsilons, upper=True)
    bounded: Floats = values * (1.0 + widening) + (mixture.outside + _UNDERFLOW)
    return bounded


def evaluate_lower(mixture: Mixture, epsilons: Floats) -> Floats:
    """Bound delta at ascending epsilons from below: what lies outside the mixture is dropped."""
    values, widening = _evaluate(mixture, epsilons, upper=False)
    bounded: Floats = np.maximum(values * (1.0 - widening) - _UNDERFLOW, 0.0)
    return bounded
