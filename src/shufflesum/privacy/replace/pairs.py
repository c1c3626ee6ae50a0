"""Mixtures of the two pairs of worlds: the blanket pair (an upper bound) and a concrete pair (a lower bound)."""

from __future__ import annotations

import numpy as np

from shufflesum._compiled import kernel
from shufflesum.privacy.engine.laws import ROUNDING, Floats, Integers, binomial_window, log_concave_window
from shufflesum.privacy.engine.mixture import Mixture

__all__ = ["blanket_mixture", "third_value_mixture"]

_OUTSIDE = 1e-21  # absolute size, in delta, of what a window may leave out
_CELL = 5e-5  # width of a cell of s relative to s; about that much is lost in noise probability
_BLOCK = 5e-5  # how far s may move, relative to the other count, before the other count's law is refreshed
_NODE = 4e-3  # distance of nodes relative to the count of blanket reports; its square over 12 is lost in delta
_NODE_VARIANCE = 1.5e-5  # variance that nodes may add to (or take from) x, relative to x's own
_MEAN_VARIANCE = 2e-4  # the same, for replacing the whole law by its mean in a lower bound
_CHEAP_TAIL = 1e-12  # share of the other count's law that may be cut where cutting costs next to nothing
_FAR = 9.5  # standard deviations beyond which delta is below anything that is asked for


@kernel
def _node_distance(size: int, count: float, slope: float) -> float:
    """Say how far apart nodes of the other count may be: y = slope x count moves x's threshold by tanh x slope."""
    tangent = min(1.0, _FAR * np.sqrt(float(size)) / (size + 2.0 * slope * count))
    return float(np.sqrt(_NODE_VARIANCE * size) / (tangent * slope))


@kernel
def _chords(users: int, cells: int, gamma: float, size: int, start: int, cut: float) -> tuple[Floats, Floats, int]:
    """Return nodes of M and their shares of the law of M given s = size, and the number of steps taken.

    Given s, the mean of (1/M)(x - tanh (s/2 + c M))+ is convex and falls in M: spreading each M linearly over its
    two neighbouring nodes is an upper bound. The high tail is charged at the last node below it, the low one at
    the least M there is.
    """
    odds = gamma * (cells - 2) / ((1.0 - gamma) * cells)
    least = max(size, 1)
    lowest, terms, total, low_tail, high_tail = log_concave_window(
        least, users, size, odds, True, start, cut, _CHEAP_TAIL
    )
    widest = _node_distance(size, float(start), gamma / ((1.0 - gamma) * cells))
    distance = int(max(1.0, min(widest, _NODE * start)))
    nodes = (terms.size - 1) // distance + 2
    counts = np.empty(nodes + 1)
    shares = np.zeros(nodes + 1)
    counts[nodes - 1] = lowest + (nodes - 1) * distance
    for node in range(nodes - 1):
        begin = node * distance
        counts[node] = lowest + begin
        near = 0.0
        far = 0.0
        step = 0.0
        for term in terms[begin : begin + distance]:
            near += term * (distance - step)
            far += term * step
            step += 1.0
        shares[node] += near / distance / total
        shares[node + 1] += far / distance / total
    shares[nodes - 2] += high_tail / total
    counts[nodes] = least
    shares[nodes] = low_tail / total
    return counts, shares, terms.size


@kernel
def _groups(users: int, size: int, odds: float, slope: float) -> tuple[Floats, Floats, int]:
    """Return the means of groups of neighbouring N and their shares of the law of N given s = size, and the steps.

    Given s, the mean of (x - tanh (s/2 + y(N)))+ is convex in N: each group's mean is a lower bound (Jensen). Tails
    are dropped. Where N hardly matters all of it is one group.
    """
    others = odds / (1.0 + odds)
    mean = size + (users - size) * others
    spread = np.sqrt((users - size) * others * (1.0 - others))
    widest = _node_distance(size, mean, slope)
    if widest * np.sqrt(_MEAN_VARIANCE / _NODE_VARIANCE) > 2.0 * spread:
        return np.full(1, mean), np.ones(1), 1
    start = min(users, max(size, int(mean)))
    lowest, terms, total, low_tail, high_tail = log_concave_window(
        size, users, size, odds, False, start, _CHEAP_TAIL, _CHEAP_TAIL
    )
    distance = int(max(1.0, min(widest, float(terms.size))))
    nodes = (terms.size - 1) // distance + 1
    counts = np.empty(nodes)
    shares = np.empty(nodes)
    for node in range(nodes):
        begin = node * distance
        moment = 0.0
        whole = 0.0
        step = 0.0
        for term in terms[begin : begin + distance]:
            whole += term
            moment += term * step
            step += 1.0
        shares[node] = whole / (total + low_tail + high_tail)
        counts[node] = lowest + begin + moment / whole
    return counts, shares, terms.size


@kernel
def _grown(array: Floats, needed: int) -> Floats:
    if needed <= array.size:
        return array
    grown = np.empty(max(needed, 2 * array.size))
    for i in range(array.size):
        grown[i] = array[i]
    return grown


@kernel
def _blanket_cells(
    users: int, cells: int, gamma: float, first: int, masses: Floats
) -> tuple[Integers, Integers, Integers, Floats, Floats, int]:
    """Lay cells over s = first.. with the given masses; variance at a cell's largest s, drift at its smallest.

    M given s grows stochastically with s and the mean falls with M, so its law at the smallest s of a block of
    cells serves the whole block.
    """
    c = gamma / ((1.0 - gamma) * cells)
    others = gamma * (cells - 2) / (cells - 2.0 * gamma) if cells > 2 else 0.0
    sizes = np.empty(masses.size, np.int64)
    drifts = np.empty(masses.size, np.int64)
    first_nodes = np.zeros(masses.size + 1, np.int64)
    shifts = np.empty(1024)
    weights = np.empty(1024)
    counts = np.empty(0)
    shares = np.empty(0)
    used, cell, longest, begin = 0, 0, 0, 0
    renew = -1.0
    while begin < masses.size:
        low = first + begin
        end = min(masses.size, begin + max(1, int(_CELL * low)))
        mass = np.sum(masses[begin:end])
        if mass > 0.0:
            if low > renew:
                start = min(users, max(low, 1, int(low + (users - low) * others)))
                renew = low + _BLOCK * start
                served = np.sum(masses[begin : max(end, int(renew) - first + 1)])
                cut = min(1e-3, 1e-2 * _OUTSIDE / (served * cells))
                counts, shares, steps = _chords(users, cells, gamma, low, start, cut)
                longest = max(longest, steps)
            sizes[cell] = first + end - 1
            drifts[cell] = low
            shifts = _grown(shifts, used + counts.size)
            weights = _grown(weights, used + counts.size)
            for node in range(counts.size):
                if shares[node] > 0.0:
                    shifts[used] = c * counts[node] * (1.0 - 8.0 * ROUNDING)
                    weights[used] = mass * shares[node] / counts[node]
                    used += 1
            cell += 1
            first_nodes[cell] = used
        begin = end
    return sizes[:cell], drifts[:cell], first_nodes[: cell + 1], shifts[:used], weights[:used], longest


@kernel
def _third_value_cells(
    users: int, cells: int, gamma: float, first: int, masses: Floats
) -> tuple[Integers, Integers, Integers, Floats, Floats, int]:
    """Lay cells over s = first.. from the top; variance at a cell's smallest s, drift at its largest.

    N given s grows stochastically with s and the mean falls with N, so its law at the largest s of a block of
    cells serves the whole block.
    """
    stay = 1.0 - gamma + gamma / cells
    beta = (1.0 - gamma) * cells / gamma
    slope = (1.0 - gamma) / (stay * beta)  # (1 - r)/beta with r = (gamma/K)/stay
    floor = gamma / cells / stay * users / beta
    odds = gamma * (cells - 3) / cells / stay
    sizes = np.empty(masses.size, np.int64)
    drifts = np.empty(masses.size, np.int64)
    first_nodes = np.zeros(masses.size + 1, np.int64)
    shifts = np.empty(1024)
    weights = np.empty(1024)
    counts = np.empty(0)
    shares = np.empty(0)
    used, cell, longest, end = 0, 0, 0, masses.size
    renew = np.inf
    while end > 0:
        high = first + end - 1
        begin = max(0, end - max(1, int(_CELL * high)))
        mass = np.sum(masses[begin:end])
        if mass > 0.0:
            if high < renew:
                counts, shares, steps = _groups(users, high, odds, slope)
                longest = max(longest, steps)
                renew = high - _BLOCK * counts[0]
            sizes[cell] = first + begin
            drifts[cell] = high
            shifts = _grown(shifts, used + counts.size)
            weights = _grown(weights, used + counts.size)
            for node in range(counts.size):
                shifts[used] = (slope * counts[node] + floor) * (1.0 + 32.0 * ROUNDING * (longest + 64))
                weights[used] = mass * shares[node]
                used += 1
            cell += 1
            first_nodes[cell] = used
        end = begin
    return sizes[:cell], drifts[:cell], first_nodes[: cell + 1], shifts[:used], weights[:used], longest


def blanket_mixture(users: int, cells: int, gamma: float) -> Mixture:
    """Describe the blanket pair: s of M = m + 1 uniform reports hit the two cells, m ~ Bin(users - 1, gamma).

    delta = (1 - gamma) K (1 + w) E (1/M)(x - tanh(eps/2)(s/2 + c M))+ with c = gamma/((1 - gamma)K). Of the m,
    s' ~ Bin(users - 1, 2 gamma/K) hit; the victim's own blanket report adds one with probability 2/K. Worlds where
    s' lies outside its window add at most (1 - gamma) E[K a/M] <= (1 - gamma) K/2 x their probability.
    """
    lowest, terms, total, tail = binomial_window(
        users - 1, 2.0 * gamma / cells, 2.0 * gamma / (cells - 2.0 * gamma), _OUTSIDE / cells
    )
    own = 2.0 / cells
    masses = np.zeros(terms.size + 1)
    masses[:-1] = (1.0 - own) * terms
    masses[1:] += own * terms
    masses /= total
    if lowest == 0:
        masses, lowest = masses[1:], 1  # s = 0: no report in either cell, which tells nothing
    sizes, drifts, first_nodes, shifts, weights, longest = _blanket_cells(users, cells, gamma, lowest, masses)
    return Mixture(
        factor=(1.0 - gamma) * cells,
        sizes=sizes,
        drifts=drifts,
        first_nodes=first_nodes,
        shifts=shifts,
        weights=weights,
        outside=cells * tail / total,
        steps=terms.size + longest,
    )


def third_value_mixture(users: int, cells: int, gamma: float) -> Mixture:
    """Describe the pair where all others hold a third value v (K >= 3): x against x' among users - 1 times v.

    Relative to `users` reports of v, the worlds weigh (beta a + N + r(users - N))/users and the same with b, where
    N reports are not v, s = a + b ~ Bin(users, 2 gamma/K) hit x or x', beta = (1 - gamma)K/gamma and
    r = (gamma/K)/(1 - gamma + gamma/K). Given s, the other N - s are binomial.
    """
    lowest, terms, total, tail = binomial_window(
        users, 2.0 * gamma / cells, 2.0 * gamma / (cells - 2.0 * gamma), _OUTSIDE / cells
    )
    masses = terms / (total + tail)
    if lowest == 0:
        masses, lowest = masses[1:], 1
    sizes, drifts, first_nodes, shifts, weights, longest = _third_value_cells(users, cells, gamma, lowest, masses)
    return Mixture(
        factor=(1.0 - gamma) * cells / gamma / users,
        sizes=sizes,
        drifts=drifts,
        first_nodes=first_nodes,
        shifts=shifts,
        weights=weights,
        outside=0.0,
        steps=terms.size + longest,
    )
