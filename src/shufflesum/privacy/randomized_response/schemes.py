"""Certified privacy of many reports: t coordinates per user in each of T rounds, t*T reports composed.

What composes with what. In the stratified scheme a block is one run of the t = 1 protocol with all n users, on
randomness of its own; so is every round. For data sets that are adjacent, so that they differ in one user (in all
blocks and rounds), the released tables are a product of t*T independent parts, and each part is dominated by the pair
of `blanket` (for any data of the other users), or, for K = 2 and blocks of one coordinate, by the maximum over all
adjacent data sets as well. Where a part is dominated in this sense (its privacy profile delta(epsilon) is below that of
one convex profile, at every epsilon and in both directions), the product is dominated by the product: the others' data
may differ from block to block, and the worst case may be another one at each epsilon. Rounds may be chosen adaptively.

Upper bounds sample the single profile on a grid, join the points, and convolve; lower bounds do the same
from below with one concrete pair of adjacent data sets. Errors of truncation, grid and
rounding can only widen the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shufflesum._search import bisect, bracket, geometric_mean, times_odds
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy.accountant import local_epsilon
from shufflesum.privacy.engine import composition
from shufflesum.privacy.engine.laws import Floats, Mixture, binomial_window, cell_edges, evaluate_upper, slack
from shufflesum.privacy.engine.pld import PrivacyLossDistribution, dominating
from shufflesum.privacy.randomized_response import blanket, direct

_NODES = 40  # of the grid per deviation of a concrete pair's loss: cheap, because it is listed outcome by outcome
_SMALL_CROWD = 1000  # up to here the grid of single blocks may lose more than throwing all blocks into one pool does


@dataclass(frozen=True, slots=True)
class Blocks:
    """So many independent blocks in which each of the honest users sends one report: t*T of a stratified plan.

    `single_coordinate`: each block is one coordinate (t = d), which admits the tighter direct bound for levels = 1.
    """

    honest_users: int
    levels: int
    count: int
    single_coordinate: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be certified at any noise."""
        check_compositions(self.count)
        blanket.check_parameters(self.honest_users, self.levels, 1.0)

    @property
    def has_direct_bound(self) -> bool:
        """Whether the bound of `binary` holds, beside the blanket's."""
        return self.levels == 1 and self.single_coordinate

    def delta_upper(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta for which all reports together are certainly (epsilon, delta)-private."""
        if self.count == 1:  # needs no grid
            return float(self._profile(noise_probability)(np.array([composition.check_epsilon(epsilon)]))[0])
        return self.upper(noise_probability).delta(epsilon)

    def delta_lower(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        if self.count == 1:
            return blanket.delta_lower(
                self.honest_users, self.levels, noise_probability, composition.check_epsilon(epsilon)
            )
        found = self.lower(noise_probability).delta(epsilon)
        if self.honest_users > _SMALL_CROWD:
            return found
        return max(found, direct.pooled_delta_lower(*self._pool, noise_probability, epsilon))

    def epsilon_upper(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon for which all reports together are certainly (epsilon, delta)-private."""
        if self.count == 1 and not self.has_direct_bound:
            return blanket.epsilon_upper(self.honest_users, self.levels, noise_probability, delta)
        return self.upper(noise_probability).epsilon(delta)

    def epsilon_lower(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        if self.count == 1:
            return blanket.epsilon_lower(self.honest_users, self.levels, noise_probability, delta)
        found = self.lower(noise_probability).epsilon(delta)
        if self.honest_users > _SMALL_CROWD:
            return found
        return max(found, direct.pooled_epsilon_lower(*self._pool, noise_probability, delta))

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly enough, within 1e-4 of the least that can be certified.

        A multiple of 2**-53, at which delta_upper <= delta was evaluated. It exists: 1 is always enough.
        """
        if self.count == 1 and not self.has_direct_bound:
            return blanket.smallest_noise_probability(self.honest_users, self.levels, epsilon, delta)
        guess = self._guess(epsilon, delta, 1 if self.has_direct_bound else self.levels + 1)
        return bracket_noise_probability(self.delta_upper, epsilon, delta, guess=guess, first_factor=1.03)[1]

    def noise_probability_lower_bound(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly too small, and so is every smaller one; 0 if none is known."""
        if self.count == 1:
            return blanket.noise_probability_lower_bound(self.honest_users, self.levels, epsilon, delta)
        guess = self._guess(epsilon, delta, 1 if self.levels == 1 else self.levels + 1)
        return bracket_noise_probability(self.delta_lower, epsilon, delta, guess=guess, first_factor=1.03)[0]

    def upper(self, noise_probability: float, *, interval: float | None = None) -> composition.ComposedUpper:
        """Bound all blocks together from above, for every data set, on a grid of `interval` x a power of two."""
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        highest = local_epsilon(levels=self.levels, noise_probability=noise_probability)
        single, rough = self._profile(noise_probability), self._blanket(noise_probability)
        deviation = deviation_of_loss(self.honest_users, self.levels, noise_probability)
        return composition.compose_profiles(
            [composition.Factor(single, deviation, highest, self.count, rough=rough)], interval=interval
        )

    def lower(self, noise_probability: float) -> composition.ComposedLower:
        """Bound the worst case of all blocks from below: by one pair of data sets, the same in all blocks.

        K >= 3: x against x' among users at a third value. K = 2: 0 against 1 among users at 0, either way round. With
        larger blocks all coordinates hold that value, and forgetting the coordinate leaves the same pairs.
        """
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        if noise_probability == 1.0:
            return composition.ComposedLower((composition.pure_noise(),))
        # few outcomes are not smooth: a finer grid then keeps more of them apart
        deviation = deviation_of_loss(self.honest_users, self.levels, noise_probability)
        step = deviation / (_NODES * min(8.0, max(1.0, 64.0 / self.count)))
        if self.levels == 1:
            singles = direct.one_value_plds(self.honest_users, noise_probability, step)
            return composition.compose_pairs([(single, self.count)] for single in singles)
        single = direct.third_value_pld(self.honest_users, self.levels + 1, noise_probability, step)
        return composition.compose_pairs([[(single, self.count)]])

    def pld(self, noise_probability: float, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all reports of a user."""
        return self.upper(noise_probability, interval=interval).pld

    @property
    def _pool(self) -> tuple[int, int, int]:
        return self.honest_users, self.levels + 1, self.count

    def _guess(self, epsilon: float, delta: float, values: int) -> float:
        return guess_noise_probability(self.honest_users / (values * self.count), epsilon, delta)

    def _profile(self, noise_probability: float) -> composition.PrivacyProfile:
        """The upper bound of delta of one report."""
        general = self._blanket(noise_probability)

        def both(epsilons: Floats) -> Floats:
            bound = direct.binary_profile_upper(self.honest_users, noise_probability, epsilons)
            return np.minimum(general(epsilons), bound)

        return both if self.has_direct_bound and noise_probability < 1.0 else general

    def _blanket(self, noise_probability: float) -> composition.PrivacyProfile:
        return lambda epsilons: blanket.profile_upper(self.honest_users, self.levels, noise_probability, epsilons)


def deviation_of_loss(honest_users: float, levels: int, noise_probability: float) -> float:
    """Return roughly the standard deviation of one report's loss: it sets grids, never bounds."""
    blanket_reports = honest_users * noise_probability
    return min(1.0, (1.0 - noise_probability) * math.sqrt(2.0 * (levels + 1) / blanket_reports))


def check_compositions(count: int) -> None:
    """Refuse fewer than one or too many coordinates x rounds."""
    if not 1 <= count <= composition.MOST_COMPOSITIONS:
        raise ParameterError(
            "out-of-range",
            f"coordinates x rounds = {count}: must lie in 1..{composition.MOST_COMPOSITIONS}; change coordinates or "
            "rounds",
        )


# ---------------------------------------------------------------------------------------------------------------------
# `uniform` sampling of several coordinates per user: a certified bound, for comparison with the paper.
#
# Show the adversary the victim's t coordinates, the coordinates of all others, and their true reports as such. What
# remains in coordinate l of the victim is its own report among m_l uniform ones, and given all m_l the t coordinates
# are independent pairs of worlds, each as in `blanket` at a fixed number m_l. The m_l depend on each other, so their
# laws must not be composed one by one; but each is Binomial(n - 1, gamma t/d), and delta falls in each. For any m0,
#     delta <= t T P[Binomial(n - 1, gamma t/d) < m0] + delta of the t T-fold product of the pair at m0,
# with T rounds: the union bound counts all coordinates of all rounds, whose blanket reports are drawn afresh.


_OUTSIDE = 1e-21
_CELL = 5e-5  # width of a cell of s relative to s
_GIVEN_UP = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11, 1e-13, 1e-15)  # union bounds at which m0 is tried
_LARGEST_LOSS, _FAR_DELTA, _SUBSET_NODES = 300.0, 1e-12, 64  # of a pair: how far it reaches, and how many nodes it has
_LARGEST_EPSILON = 700.0  # beyond, e^epsilon leaves double precision


@dataclass(frozen=True, slots=True)
class Subsets:
    """Each honest user reports a random subset of the coordinates, in each round; the counterpart of `Blocks`.

    One coordinate, or all of them, are blocks too and get a sharper bound there.
    """

    honest_users: int
    levels: int
    coordinates: int
    dimension: int
    rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse what cannot be certified at any noise."""
        if not 1 <= self.coordinates <= self.dimension:
            raise ParameterError(
                "out-of-range",
                f"coordinates = {self.coordinates}: must lie in 1..dimension = {self.dimension}; change coordinates",
            )
        check_compositions(self.compositions)
        blanket.check_parameters(self.honest_users, self.levels, 1.0)

    @property
    def compositions(self) -> int:
        """The reports of a user in all rounds."""
        return int(self.coordinates) * int(self.rounds)

    def delta_upper(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta for which all reports of all rounds together are certainly (epsilon, delta)-private."""
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        composition.check_epsilon(epsilon)
        if noise_probability == 1.0:
            return 0.0  # nothing but noise
        best = 1.0
        chance = noise_probability, self.coordinates, self.dimension
        for least, given_up in _thresholds(self.honest_users - 1, *chance, self.compositions):
            if given_up < best:
                product = _fixed_delta(least, self.levels, noise_probability, epsilon, self.compositions)
                best = min(best, given_up + product)
        return best

    def epsilon_upper(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon for which all reports together are certainly (epsilon, delta)-private; infinity if none."""
        composition.check_delta(delta)
        if self.delta_upper(noise_probability, 0.0) <= delta:
            return 0.0
        return bracket(
            lambda epsilon: self.delta_upper(noise_probability, epsilon),
            delta,
            guess=1.0,
            highest=_LARGEST_EPSILON,
            tolerance=1e-4,
        )[1]

    def delta_lower(self, noise_probability: float, epsilon: float) -> float:
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some adjacent data sets."""
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        pool = self.honest_users, self.levels + 1, self.compositions
        return direct.pooled_delta_lower(*pool, noise_probability, composition.check_epsilon(epsilon))

    def epsilon_lower(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        pool = self.honest_users, self.levels + 1, self.compositions
        return direct.pooled_epsilon_lower(*pool, noise_probability, composition.check_delta(delta))

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly enough, within 1e-4 of the least that can be certified."""
        return bracket_noise_probability(self.delta_upper, epsilon, delta, guess=0.5, first_factor=1.5)[1]

    def pld(self, noise_probability: float, interval: float) -> PrivacyLossDistribution:
        """A symmetric PLD, on a grid of `interval` x a power of two, that dominates all reports of a user.

        The union bound holds at every epsilon by itself, so that the pair lies above its values at the grid's nodes.
        """
        highest = self.compositions * local_epsilon(levels=self.levels, noise_probability=noise_probability)
        reach = min(_LARGEST_LOSS, highest, self.epsilon_upper(noise_probability, _FAR_DELTA))
        step = interval * 2.0 ** max(0, math.ceil(math.log2(max(reach / interval / _SUBSET_NODES, 1.0))))
        nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64) * (1.0 - 2.0**-51)
        return dominating(step, np.array([self.delta_upper(noise_probability, node) for node in nodes]), 0.0)


def _thresholds(
    others: int, noise_probability: float, coordinates: int, dimension: int, compositions: int
) -> list[tuple[int, float]]:
    """Return pairs of m0 and an upper bound of compositions x P[Binomial(others, gamma t/d) < m0]."""
    blanket_reports = noise_probability * coordinates * (1.0 - 2.0**-51)  # rounded down: fewer of them are worse
    odds = blanket_reports / (dimension - blanket_reports) * (1.0 - 2.0**-50)
    lowest, terms, total, tail = binomial_window(others, blanket_reports / dimension, odds, _OUTSIDE)
    below = (np.append(0.0, np.cumsum(terms[:-1])) + tail) / total * (1.0 + slack(2 * terms.size))
    union = compositions * below
    found = {0: 0.0}
    for limit in _GIVEN_UP:
        index = int(np.searchsorted(union, limit, side="right")) - 1
        if index >= 0:
            found[lowest + index] = float(union[index])
    return sorted(found.items(), key=lambda pair: pair[1])


def _fixed_delta(least: int, levels: int, noise_probability: float, epsilon: float, compositions: int) -> float:
    """Return delta of the product of pairs with exactly `least` uniform reports beside the victim's."""
    profile = _fixed_profile(least + 1, levels + 1, noise_probability)
    # as many users as would make that many blanket reports
    deviation = deviation_of_loss((least + 1) / noise_probability, levels, noise_probability)
    highest = local_epsilon(levels=levels, noise_probability=noise_probability)
    return composition.compose_profiles([composition.Factor(profile, deviation, highest, compositions)]).delta(epsilon)


def _fixed_profile(count: int, cells: int, gamma: float) -> composition.PrivacyProfile:
    """Return the profile of the blanket pair at M = count uniform reports: s ~ Bin(M, 2/K) hit the two cells."""
    if cells == 2:
        lowest, masses, outside, steps = count, np.ones(1), 0.0, 1
    else:
        lowest, terms, total, tail = binomial_window(count, 2.0 / cells, 2.0 / (cells - 2.0), _OUTSIDE / cells)
        masses, outside, steps = terms / total, tail / total * cells, terms.size
    edges = cell_edges(lowest, masses.size, _CELL)
    # a cell counts with the drift of its least s and the variance of its greatest
    mixture = Mixture(
        factor=(1.0 - gamma) * cells,
        sizes=lowest + edges[1:] - 1,
        drifts=lowest + edges[:-1],
        first_nodes=np.arange(edges.size, dtype=np.int64),
        shifts=np.full(edges.size - 1, gamma / ((1.0 - gamma) * cells) * count * (1.0 - 2.0**-50)),
        weights=np.add.reduceat(masses, edges[:-1]) / count,
        outside=outside,
        steps=steps,
    )
    return lambda epsilons: evaluate_upper(mixture, epsilons)


# ---------------------------------------------------------------------------------------------------------------------
# How little noise is enough: a guess for where to look, and the search for the noise of a composition.


_TOLERANCE = 1e-4  # relative width of the bracket around a noise probability


def bracket_noise_probability(
    bound: Callable[[float, float], float], epsilon: float, delta: float, *, guess: float, first_factor: float
) -> tuple[float, float]:
    """Return noise probabilities (low, high), within 1e-4, with bound(low, epsilon) > delta >= bound(high, epsilon).

    Both are multiples of 2**-53 and evaluated as such; low is 0 if none is known to be too small.
    """
    composition.check_delta(delta)
    if composition.check_epsilon(epsilon) == 0.0:
        raise PrivacyError("out-of-range", "epsilon = 0: a target must be positive; raise epsilon")
    return bracket(
        lambda noise_probability: bound(noise_probability, epsilon),
        delta,
        guess=guess,
        highest=1.0,
        tolerance=_TOLERANCE,
        first_factor=first_factor,
        times=times_odds,
    )


def guess_noise_probability(users_per_loss: float, epsilon: float, delta: float) -> float:
    """Guess gamma as if the sum of losses were normal, of variance mu^2 = 2(1 - gamma)^2/(gamma users_per_loss).

    For K values and so many compositions that is honest users / (K compositions). Only a guess: nothing is certified.
    """

    def too_far_apart(mu: float) -> bool:
        near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
        return 0.5 * (math.erfc(near) - math.exp(min(epsilon, 700.0)) * math.erfc(far)) > delta

    mu, _ = bisect(too_far_apart, 1e-9, 1e3, middle=geometric_mean)
    c = mu * mu * users_per_loss / 2
    return 2.0 / (2.0 + c + math.sqrt(c * c + 4.0 * c))
