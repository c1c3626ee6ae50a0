"""`uniform` sampling with several reports per user: a certified bound, for comparison with the paper.

Show the adversary the victim's t coordinates, the coordinates of all others, and their true reports as such. What
remains in coordinate l of the victim is its own report among m_l uniform ones, and given all m_l the t coordinates
are independent pairs of worlds, each as in `blanket` at a fixed number m_l. The m_l depend on each other, so their
laws must not be composed one by one; but each is Binomial(n - 1, gamma t/d), and delta falls in each. For any m0,
    delta <= t T P[Binomial(n - 1, gamma t/d) < m0] + delta of the t T-fold product of the pair at m0,
with T rounds: the union bound counts all coordinates of all rounds, whose blanket reports are drawn afresh.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shufflesum.errors import ParameterError
from shufflesum.privacy import blanket
from shufflesum.privacy._binomial import binomial_window, slack
from shufflesum.privacy._composed import (
    Profile,
    check_compositions,
    check_epsilon,
    compose_profile,
    composed_delta_upper,
    deviation_of_loss,
)
from shufflesum.privacy._mixture import Mixture, evaluate_upper
from shufflesum.privacy.local import local_epsilon

__all__ = ["uniform_delta_upper"]

Floats = npt.NDArray[np.float64]

_OUTSIDE = 1e-21
_CELL = 5e-5  # width of a cell of s relative to s
_GIVEN_UP = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11, 1e-13, 1e-15)  # union bounds at which m0 is tried


def uniform_delta_upper(
    honest_users: int,
    dimension: int,
    reports: int,
    levels: int,
    noise_probability: float,
    epsilon: float,
    rounds: int = 1,
) -> float:
    """Return a delta for which all reports of all rounds together are certainly (epsilon, delta)-private.

    reports = 1 and reports = dimension are also stratified schemes and get their sharper bound.
    """
    if not 1 <= reports <= dimension:
        raise ParameterError(f"reports = {reports}: must lie in 1..dimension = {dimension}; change reports")
    compositions = reports * rounds
    check_compositions(compositions)
    blanket.check_protocol(honest_users, levels, noise_probability)
    check_epsilon(epsilon)
    if reports in (1, dimension):
        return composed_delta_upper(
            honest_users,
            levels,
            noise_probability,
            epsilon,
            compositions,
            single_coordinate_blocks=reports == dimension,
        )
    if noise_probability == 1.0:
        return 0.0  # nothing but noise
    best = 1.0
    tries = _thresholds(honest_users - 1, noise_probability, reports, dimension, compositions)
    for least, given_up in tries:
        if given_up < best:
            best = min(best, given_up + _fixed_delta(least, levels, noise_probability, epsilon, compositions))
    return best


def _thresholds(
    others: int, noise_probability: float, reports: int, dimension: int, compositions: int
) -> list[tuple[int, float]]:
    """Return pairs of m0 and an upper bound of compositions x P[Binomial(others, gamma t/d) < m0]."""
    blanket_reports = noise_probability * reports * (1.0 - 2.0**-51)  # rounded down: fewer of them are worse
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
    return compose_profile(profile, deviation, highest, compositions).delta(epsilon)


def _fixed_profile(count: int, cells: int, gamma: float) -> Profile:
    """Return the profile of the blanket pair at M = count uniform reports: s ~ Bin(M, 2/K) hit the two cells."""
    if cells == 2:
        lowest, masses, outside, steps = count, np.ones(1), 0.0, 1
    else:
        lowest, terms, total, tail = binomial_window(count, 2.0 / cells, 2.0 / (cells - 2.0), _OUTSIDE / cells)
        masses, outside, steps = terms / total, tail / total * cells, terms.size
    starts = [0]
    while starts[-1] < masses.size:
        starts.append(min(masses.size, starts[-1] + max(1, int(_CELL * (lowest + starts[-1])))))
    edges = np.array(starts, dtype=np.int64)
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
