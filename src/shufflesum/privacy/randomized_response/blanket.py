"""Certified privacy of one report per user: bounds on delta(epsilon), epsilon(delta) and the noise they need.

Upper bounds hold for every data set and every pair of neighbours (the privacy blanket, docs/privacy.md); lower bounds
come from concrete pairs of neighbouring data sets, so no analysis can do better. Every error of truncation, grids and
floating point goes against us: added to what is called upper, taken from what is called lower.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shufflesum._checks import check_number, check_size
from shufflesum._compiled import kernel
from shufflesum._search import GRID, bisect, bracket, times_odds
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import MOST_USERS, local_epsilon
from shufflesum.privacy.engine.composition import PrivacyProfile, check_single_delta
from shufflesum.privacy.engine.laws import (
    ROUNDING,
    Floats,
    Integers,
    Mixture,
    binomial_window,
    evaluate_lower,
    evaluate_upper,
    log_concave_window,
    slack,
)

MOST_VALUES = 2**32 - 2  # as many as there are cells; sums and windows would hold beyond
MOST_LEVELS = 999  # of a number: planners look no further, because finer levels gain nothing
# Beyond this many blanket reports cells of s are coarser than one, so a finer search would only chase the grid.
_FINE_REPORTS = 20_000
_MANY_REPORTS = 1_000


def profile_upper(honest_users: int, levels: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound delta(epsilon) from above for many epsilons >= 0 in one pass, in the order given."""
    ordered, order = _ascending(epsilons)
    return _restore(_upper(honest_users, levels, noise_probability)(ordered), order)


def profile_lower(honest_users: int, levels: int, noise_probability: float, epsilons: Floats) -> Floats:
    """Bound the worst case of delta(epsilon) from below for many epsilons >= 0 in one pass, in the order given."""
    ordered, order = _ascending(epsilons)
    return _restore(_lower(honest_users, levels, noise_probability)(ordered), order)


def _upper(honest_users: int, levels: int, noise_probability: float) -> PrivacyProfile:
    """The upper bound, to be read at ascending epsilons as often as one likes."""
    users, cells = check_parameters(honest_users, levels, noise_probability)
    if noise_probability == 1.0:
        return np.zeros_like
    mixture = blanket_mixture(users, cells, noise_probability)
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    # a report that is noise says nothing, so delta never exceeds 1 - gamma
    limit = min(1.0, (1.0 - noise_probability) * (1.0 + 2.0 * ROUNDING))

    def profile(epsilons: Floats) -> Floats:
        result = np.zeros(epsilons.size)
        # from the local epsilon on, no outcome is more likely by more than e^epsilon
        open_ = epsilons < highest
        if open_.any():
            result[open_] = np.minimum(evaluate_upper(mixture, epsilons[open_]), limit)
        return result

    return profile


def _lower(honest_users: int, levels: int, noise_probability: float) -> PrivacyProfile:
    """The lower bound, to be read at ascending epsilons as often as one likes."""
    users, cells = check_parameters(honest_users, levels, noise_probability)
    if noise_probability == 1.0:
        return np.zeros_like
    mixture = third_value_mixture(users, cells, noise_probability) if cells > 2 else None
    # with a third value and many reports in each cell the other pair is about half as telling: not worth its time
    few = mixture is None or users * noise_probability / cells < _MANY_REPORTS

    def profile(epsilons: Floats) -> Floats:
        result = one_value_lower(users, cells, noise_probability, epsilons) if few else np.zeros(epsilons.size)
        return result if mixture is None else np.maximum(result, evaluate_lower(mixture, epsilons))

    return profile


def delta_upper(honest_users: int, levels: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta for which the shuffled reports are certainly (epsilon, delta)-private."""
    return float(profile_upper(honest_users, levels, noise_probability, np.array([epsilon]))[0])


def delta_lower(honest_users: int, levels: int, noise_probability: float, epsilon: float) -> float:
    """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
    return float(profile_lower(honest_users, levels, noise_probability, np.array([epsilon]))[0])


def epsilon_upper(honest_users: int, levels: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon for which the shuffled reports are certainly (epsilon, delta)-private."""
    check_single_delta(delta)
    return _crossing(_upper(honest_users, levels, noise_probability), levels, noise_probability, delta)[1]


def epsilon_lower(honest_users: int, levels: int, noise_probability: float, delta: float) -> float:
    """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if no such epsilon is known."""
    check_single_delta(delta)
    return _crossing(_lower(honest_users, levels, noise_probability), levels, noise_probability, delta)[0]


def _crossing(profile: PrivacyProfile, levels: int, noise_probability: float, delta: float) -> tuple[float, float]:
    """Return epsilons (low, high) with profile(low) > delta >= profile(high), or (0, 0) if never above."""

    def height(epsilon: float) -> float:
        return float(profile(np.array([epsilon]))[0])

    if height(0.0) <= delta:
        return 0.0, 0.0
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    return bracket(height, delta, guess=min(1.0, 0.5 * highest), highest=highest, tolerance=1e-11)


def smallest_noise_probability(honest_users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return the least noise probability that is certainly enough: a multiple of 2**-53, evaluated as such.

    delta_upper at the returned value is at most delta. There always is one, at most K/(e^epsilon - 1 + K).
    """
    _check_target(honest_users, levels, epsilon, delta)
    guess = noise_probability_lower_bound(honest_users, levels, epsilon, delta)
    _, high = bracket(
        lambda gamma: delta_upper(honest_users, levels, gamma, epsilon),
        delta,
        guess=guess * (1.0 + 1e-6),
        highest=_enough(levels, epsilon),
        tolerance=_tolerance(honest_users, guess),
        first_factor=1.0003 if levels > 1 else 1.1,
        times=times_odds,
    )
    return high


def noise_probability_lower_bound(honest_users: int, levels: int, epsilon: float, delta: float) -> float:
    """Return a noise probability that is certainly too small, and so is every smaller one; 0 if none is known.

    delta_lower there exceeds delta, and the true delta only falls when more reports are replaced by noise.
    """
    _check_target(honest_users, levels, epsilon, delta)
    highest = _enough(levels, epsilon)
    guess = _gaussian_guess(honest_users, levels + 1, epsilon, delta, highest)
    low, _ = bracket(
        lambda gamma: delta_lower(honest_users, levels, gamma, epsilon),
        delta,
        guess=guess,
        highest=highest,
        tolerance=_tolerance(honest_users, guess),
        first_factor=1.01,
        times=times_odds,
    )
    return low


def _gaussian_guess(users: int, cells: int, epsilon: float, delta: float, highest: float) -> float:
    """Guess the noise probability from the limit of many reports; only where a search starts depends on it."""
    tangent = math.tanh(0.5 * epsilon)

    def enough(gamma: float) -> bool:
        count = 1.0 + (users - 1) * gamma
        deviation = math.sqrt(
            (0.25 if cells == 2 else 0.5) * count / cells
        )  # without a third value only one cell moves
        z = tangent * count / cells / (1.0 - gamma) / deviation if gamma < 1.0 else math.inf
        mean = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) - 0.5 * z * math.erfc(z / math.sqrt(2.0))
        scale = (1.0 - gamma) * (1.0 + math.exp(min(epsilon, 700.0))) * deviation * cells / count
        return z >= 30.0 or scale * mean <= delta

    def middle(low: float, high: float) -> float:
        return 0.5 * (low + high) if low > 0.0 else 0.03 * high

    return min(bisect(enough, 0.0, highest, steps=40, middle=middle)[1], highest)


def _enough(levels: int, epsilon: float) -> float:
    """Return a noise probability at which even the unshuffled reports are epsilon-private, so that delta is 0."""
    point = math.ceil((levels + 1) / (math.expm1(min(epsilon, 700.0)) + levels + 1) * GRID)
    step = 1
    while point < GRID and local_epsilon(levels=levels, noise_probability=point / GRID) > epsilon:
        point, step = min(GRID, point + step), 2 * step
    return point / GRID


def _tolerance(honest_users: int, noise_probability: float) -> float:
    return 1e-9 if honest_users * noise_probability < _FINE_REPORTS else 1e-6


def _ascending(epsilons: Floats) -> tuple[Floats, npt.NDArray[np.intp]]:
    points = np.asarray(epsilons, dtype=np.float64)
    if points.ndim != 1 or not bool(np.all(np.isfinite(points) & (points >= 0.0))):
        raise ParameterError(
            "out-of-range", f"epsilons = {epsilons}: expected one dimension of finite numbers >= 0; change epsilon"
        )
    order = np.argsort(points, kind="stable")
    return points[order], order


def _restore(result: Floats, order: npt.NDArray[np.intp]) -> Floats:
    restored = np.empty_like(result)
    restored[order] = result
    return restored


def check_parameters(honest_users: int, levels: int, noise_probability: float) -> tuple[int, int]:
    """Refuse what cannot be certified; return the number of users and of values, K = levels + 1."""
    check_size("honest_users", honest_users, 1, MOST_USERS)
    check_size("levels", levels, 1, MOST_VALUES - 1)
    check_number("noise_probability", noise_probability)
    if not 1.0 / GRID <= noise_probability <= 1.0:
        raise PrivacyError(
            "not-certified",
            f"noise_probability = {noise_probability}: must lie in [2**-53, 1], the values a randomizer can draw; "
            "without noise nothing is private: raise noise_probability",
        )
    return int(honest_users), int(levels) + 1


def _check_target(honest_users: int, levels: int, epsilon: float, delta: float) -> None:
    check_parameters(honest_users, levels, 1.0)
    if not 0.0 < epsilon < math.inf:
        raise PrivacyError("out-of-range", f"epsilon = {epsilon}: must be positive and finite; change epsilon")
    check_single_delta(delta)


# ---------------------------------------------------------------------------------------------------------------------
# Mixtures of the two pairs of worlds: the blanket pair (an upper bound) and a concrete pair (a lower bound).


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
    deviation = np.sqrt((users - size) * others * (1.0 - others))
    widest = _node_distance(size, mean, slope)
    if widest * np.sqrt(_MEAN_VARIANCE / _NODE_VARIANCE) > 2.0 * deviation:
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


# ---------------------------------------------------------------------------------------------------------------------
# The pair of worlds where all other users hold the value x of one of the two: a lower bound, exact for K = 2.
#
# Relative to world x, world x' weighs 1 + ((R - 1) b - (1 - r) h)/users with b ~ Bin(users, gamma/K) reports of x',
# h of x, r = (gamma/K)/(1 - gamma + gamma/K) and R = 1/r. The divergence is taken in both directions.


_ALLOWANCE = 32.0 * ROUNDING
# up to here the third count is summed over, too; it costs about the product of both windows
_MOST_HITS = 300.0
_MOST_NOISE = 20_000.0
_LARGEST_EPSILON = 600.0  # beyond, e^epsilon leaves double precision; the bound there is 0


def one_value_lower(users: int, cells: int, gamma: float, epsilons: Floats) -> Floats:
    """Bound delta at these epsilons from below by the larger of both directions."""
    growths = np.exp(np.minimum(epsilons, _LARGEST_EPSILON))
    if cells > 2 and users * gamma / cells < _MOST_HITS and users * gamma < _MOST_NOISE:
        down, up, steps = _sum_over_both(users, cells, gamma, growths)
    else:
        down, up, steps = _sum_over_hits(users, cells, gamma, growths)
    bounded = np.maximum(np.maximum(down, up) * (1.0 - slack(4 * steps)), 0.0)
    return np.where(epsilons > _LARGEST_EPSILON, 0.0, bounded)


@kernel
def _means(lowest: int, probabilities: Floats) -> tuple[Floats, Floats]:
    """Return E(j - b)+ and E(b - j)+ at j = lowest, lowest + 1, ..., one past the last index of the window."""
    size = probabilities.size
    falling = np.zeros(size + 1)
    rising = np.zeros(size + 1)
    mass = 0.0
    for i in range(size):
        mass += probabilities[i]
        falling[i + 1] = falling[i] + mass
    mass = 0.0
    for i in range(size - 1, -1, -1):
        rising[i] = rising[i + 1] + mass
        mass += probabilities[i]
    return falling, rising


@kernel
def _below(position: float, falling: Floats, mass: float) -> float:
    """Read E(position - b)+, which is linear between integers and from the last one on."""
    last = falling.size - 1
    if position <= 0.0:
        return 0.0
    if position >= last:
        return float(falling[last] + (position - last) * mass)
    i = int(position)
    return float((1.0 - (position - i)) * falling[i] + (position - i) * falling[i + 1])


@kernel
def _above(position: float, rising: Floats, mass: float) -> float:
    """Read E(b - position)+, which is linear between integers and up to the first one."""
    if position <= 0.0:
        return float(rising[0] - position * mass)
    if position >= rising.size - 1:
        return 0.0
    i = int(position)
    return float((1.0 - (position - i)) * rising[i] + (position - i) * rising[i + 1])


@kernel
def _sum_over_hits(users: int, cells: int, gamma: float, growths: Floats) -> tuple[Floats, Floats, int]:
    """Sum over b with h at its mean given b (Jensen; for K = 2 there is nothing to replace).

    World x' then weighs u0 + u1 b, with u0 = gamma(1 - 1/K)/(1 - gamma/K) and
    u1 users = (R - 1) + (1 - gamma)/(1 - gamma/K), so both directions are a mean of (j - b)+ or (b - j)+.
    """
    lowest, terms, total, tail = binomial_window(users, gamma / cells, gamma / (cells - gamma), _OUTSIDE)
    probabilities = terms / (total + tail)
    mass = np.sum(probabilities)
    falling, rising = _means(lowest, probabilities)
    u0 = gamma * (cells - 1) / (cells - gamma)
    u1 = ((1.0 - gamma) * cells / gamma + (1.0 - gamma) * cells / (cells - gamma)) / users
    down = np.zeros(growths.size)
    up = np.zeros(growths.size)
    for e in range(growths.size):
        w = growths[e]
        # rounding moves the thresholds so that the sums only shrink
        j = (1.0 - w * u0 - _ALLOWANCE * (1.0 + w * u0)) / (w * u1)
        down[e] = w * u1 * _below(j - lowest - _ALLOWANCE * (abs(j) + lowest), falling, mass)
        j = (w - u0 + _ALLOWANCE * w) / u1
        up[e] = u1 * _above(j - lowest + _ALLOWANCE * (abs(j) + lowest), rising, mass)
    return down, up, terms.size


@kernel
def _sum_over_both(users: int, cells: int, gamma: float, growths: Floats) -> tuple[Floats, Floats, int]:
    """Sum over b and over o, the reports that are neither x nor x': o given b is binomial.

    World x' weighs v + s o with v = (r(users - b) + R b)/users and s = (1 - r)/users.
    """
    lowest, terms, total, tail = binomial_window(users, gamma / cells, gamma / (cells - gamma), _OUTSIDE)
    stay = 1.0 - gamma + gamma / cells
    r = gamma / cells / stay
    slope = (1.0 - gamma) / stay / users
    probability = gamma * (cells - 2) / (cells - gamma)
    odds = gamma * (cells - 2) / cells / stay
    down = np.zeros(growths.size)
    up = np.zeros(growths.size)
    longest = 0
    for i in range(terms.size):
        b = lowest + i
        weight = terms[i] / (total + tail)
        first, inner, inner_total, inner_tail = binomial_window(users - b, probability, odds, _OUTSIDE)
        longest = max(longest, inner.size)
        probabilities = inner / (inner_total + inner_tail)
        mass = np.sum(probabilities)
        falling, rising = _means(first, probabilities)
        v = (r * (users - b) + b / r) / users
        for e in range(growths.size):
            w = growths[e]
            j = (1.0 - w * v - _ALLOWANCE * (1.0 + w * v)) / (w * slope)
            if j > 0.0:
                down[e] += weight * w * slope * _below(j - first - _ALLOWANCE * (j + first), falling, mass)
            j = (w - v + _ALLOWANCE * (w + v)) / slope
            up[e] += weight * slope * _above(j - first + _ALLOWANCE * (abs(j) + first), rising, mass)
    return down, up, terms.size + longest
