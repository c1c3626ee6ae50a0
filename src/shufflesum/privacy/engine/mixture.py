"""One shape for both bounds: a mixture of means of (a - s/2 - tanh(eps/2)(s/2 + y))+ over cells (s, y).

Two worlds that differ in how often each of two cells is hit, a and b times of s, have with w = e^eps
    delta(eps) = factor (1 + w) sum_i weight_i E(x_i - tanh(eps/2)(drift_i/2 + y_i))+,   x = a - s/2, a ~ Bin(s, 1/2),
so a mixture is computed once and read at any number of epsilons. Where many s share a cell [s0, s1], x_s is a
martingale in s and (.)+ is convex: variance at s1 and drift at s0 is an upper bound, the reverse a lower one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import ROUNDING, Floats, Integers, excess_table, slack

__all__ = ["Mixture", "cell_edges", "evaluate_lower", "evaluate_upper"]

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
    sizes: Integers,
    first_nodes: Integers,
    shifts: Floats,
    weights: Floats,
    growths: Floats,
    allowance: float,
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
    tangents = np.tanh(0.5 * small) * (1.0 + against * 32.0 * ROUNDING)
    sums, longest = _positive_parts(
        mixture.sizes,
        mixture.drifts,
        mixture.first_nodes,
        mixture.shifts,
        mixture.weights,
        tangents,
        upper,
    )
    result[moderate] = mixture.factor * (1.0 + np.exp(small)) * sums
    if large.size:
        with np.errstate(over="ignore"):
            growths = np.expm1(large) * (1.0 + against * 32.0 * ROUNDING)
        if upper:
            growths = np.minimum(growths, 1e300)
        result[~moderate] = mixture.factor * _extreme_parts(
            mixture.sizes,
            mixture.first_nodes,
            mixture.shifts,
            mixture.weights,
            growths,
            -against * 32.0 * ROUNDING,
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
