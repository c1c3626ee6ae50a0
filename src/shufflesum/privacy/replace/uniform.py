"""`uniform` sampling of several coordinates per user: a certified bound, for comparison with the paper.

Show the adversary the victim's t coordinates, the coordinates of all others, and their true reports as such. What
remains in coordinate l of the victim is its own report among m_l uniform ones, and given all m_l the t coordinates
are independent pairs of worlds, each as in `blanket` at a fixed number m_l. The m_l depend on each other, so their
laws must not be composed one by one; but each is Binomial(n - 1, gamma t/d), and delta falls in each. For any m0,
    delta <= t T P[Binomial(n - 1, gamma t/d) < m0] + delta of the t T-fold product of the pair at m0,
with T rounds: the union bound counts all coordinates of all rounds, whose blanket reports are drawn afresh.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from shufflesum._search import bracket
from shufflesum.errors import ParameterError
from shufflesum.privacy.engine.composition import Factor, Profile, check_delta, check_epsilon, compose_profiles
from shufflesum.privacy.engine.laws import binomial_window, slack
from shufflesum.privacy.engine.losses import GridLosses, dominating
from shufflesum.privacy.engine.mixture import Mixture, cell_edges, evaluate_upper
from shufflesum.privacy.replace import blanket
from shufflesum.privacy.replace.calibration import bracket_noise_probability
from shufflesum.privacy.replace.composed import check_compositions, deviation_of_loss
from shufflesum.privacy.replace.local import local_epsilon
from shufflesum.privacy.replace.pooled import pooled_delta_lower, pooled_epsilon_lower

__all__ = ["Subsets"]

_OUTSIDE = 1e-21
_CELL = 5e-5  # width of a cell of s relative to s
_GIVEN_UP = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11, 1e-13, 1e-15)  # union bounds at which m0 is tried
_LARGEST_LOSS, _FAR_DELTA, _NODES = 300.0, 1e-12, 64  # of a pair: how far it reaches, and how many nodes it has
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
        check_epsilon(epsilon)
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
        check_delta(delta)
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
        """Return a delta below which (epsilon, delta)-privacy certainly fails for some neighbouring data sets."""
        blanket.check_parameters(self.honest_users, self.levels, noise_probability)
        pool = self.honest_users, self.levels + 1, self.compositions
        return pooled_delta_lower(*pool, noise_probability, check_epsilon(epsilon))

    def epsilon_lower(self, noise_probability: float, delta: float) -> float:
        """Return an epsilon below which (epsilon, delta)-privacy certainly fails; 0 if none is known."""
        pool = self.honest_users, self.levels + 1, self.compositions
        return pooled_epsilon_lower(*pool, noise_probability, check_delta(delta))

    def smallest_noise_probability(self, epsilon: float, delta: float) -> float:
        """Return a noise probability that is certainly enough, within 1e-4 of the least that can be certified."""
        return bracket_noise_probability(self.delta_upper, epsilon, delta, guess=0.5, spread=1.5)[1]

    def losses(self, noise_probability: float, interval: float) -> GridLosses:
        """A symmetric pair on a grid of `interval` x a power of two that dominates all reports of a user.

        The union bound holds at every epsilon by itself, so that the pair lies above its values at the grid's nodes.
        """
        highest = self.compositions * local_epsilon(levels=self.levels, noise_probability=noise_probability)
        reach = min(_LARGEST_LOSS, highest, self.epsilon_upper(noise_probability, _FAR_DELTA))
        step = interval * 2.0 ** max(0, math.ceil(math.log2(max(reach / interval / _NODES, 1.0))))
        nodes = step * np.arange(math.ceil(reach / step) + 1, dtype=np.float64) * (1.0 - 2.0**-51)
        return dominating(step, np.array([self.delta_upper(noise_probability, node) for node in nodes]), 0.0)

    def to_dp_accounting(self, noise_probability: float, *, value_discretization_interval: float = 1e-4) -> NoReturn:
        """Refuse: the union bound has no privacy loss distribution."""
        raise ParameterError(
            "impossible-combination",
            "uniform sampling of several coordinates has no privacy loss distribution: use stratified",
        )


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
    return compose_profiles([Factor(profile, deviation, highest, compositions)]).delta(epsilon)


def _fixed_profile(count: int, cells: int, gamma: float) -> Profile:
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
