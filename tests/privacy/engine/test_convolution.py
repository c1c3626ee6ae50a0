from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refusal

from shufflesum.errors import PrivacyError
from shufflesum.privacy.engine.pld import (
    PrivacyLossDistribution,
    coarsen_above,
    dominated,
    dominating,
    power_above,
    power_below,
)

Floats = npt.NDArray[np.float64]


def profile_of_atoms(upper: Floats, lower: Floats, epsilons: Floats) -> Floats:
    return np.array([np.maximum(upper - math.exp(e) * lower, 0.0).sum() for e in epsilons])


def product(upper: Floats, lower: Floats, copies: int) -> tuple[Floats, Floats]:
    p, q = np.ones(1), np.ones(1)
    for _ in range(copies):
        p, q = np.outer(p, upper).ravel(), np.outer(q, lower).ravel()
    return p, q


def symmetric_pair(half: list[float], other: list[float]) -> tuple[Floats, Floats]:
    weights = np.array(half + other)
    mirrored = np.array(other + half)
    order = np.argsort(weights / mirrored)
    return weights[order] / weights.sum(), mirrored[order] / weights.sum()


masses = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5)
pairs = masses.flatmap(
    lambda half: st.tuples(st.just(half), st.lists(st.floats(0.01, 1.0), min_size=len(half), max_size=len(half)))
)
EPSILONS: Floats = np.concatenate([np.linspace(-3, 0, 7), np.linspace(0.05, 9, 40)])


@settings(max_examples=60, deadline=None)
@given(pairs, st.sampled_from([0.5, 0.1, 0.03]), st.integers(1, 3))
def test_a_dominated_pair_and_its_powers_stay_below_the_atoms(
    pair: tuple[list[float], list[float]], step: float, copies: int
) -> None:
    upper, lower = (np.array(part) / sum(part) for part in pair)  # not symmetric
    order = np.argsort(upper / lower)
    composed = power_below(dominated(step, upper[order], lower[order], 0.0), copies, 1e-15)
    truth = profile_of_atoms(*product(upper, lower, copies), EPSILONS)
    found = np.array([composed.delta_lower(e) for e in EPSILONS])
    assert np.all(found <= truth * (1 + 1e-9) + 1e-14)
    assert np.all(found >= truth - 3 * step * copies)


@settings(max_examples=60, deadline=None)
@given(pairs, st.sampled_from([0.5, 0.1, 0.03]), st.integers(1, 3))
def test_a_dominating_pair_and_its_powers_stay_above_the_atoms(
    pair: tuple[list[float], list[float]], step: float, copies: int
) -> None:
    upper, lower = symmetric_pair(*pair)
    nodes = step * np.arange(math.ceil(5.0 / step) + 1, dtype=np.float64)
    single = dominating(step, profile_of_atoms(upper, lower, nodes), 0.0)
    composed = power_above(single, copies, 1e-15)
    truth = profile_of_atoms(*product(upper, lower, copies), EPSILONS)
    found = np.array([composed.delta_upper(e) for e in EPSILONS])
    assert np.all(found >= truth * (1 - 1e-12))
    assert np.all(found <= truth + 3 * step * copies)


@settings(max_examples=40, deadline=None)
@given(pairs, st.lists(st.floats(0.0, 0.2), min_size=51, max_size=51))
def test_a_ragged_upper_bound_still_gives_a_dominating_pair(
    pair: tuple[list[float], list[float]], rag: list[float]
) -> None:
    upper, lower = symmetric_pair(*pair)
    nodes = 0.1 * np.arange(51, dtype=np.float64)
    exact = profile_of_atoms(upper, lower, nodes)
    ragged = exact * (1.0 + np.array(rag))
    single = dominating(0.1, ragged, 0.0)
    found = np.array([single.delta_upper(e) for e in EPSILONS])
    assert np.all(found >= profile_of_atoms(upper, lower, EPSILONS) * (1 - 1e-12))
    assert single.upper_masses().sum() + single.infinity_mass == pytest.approx(1.0, abs=1e-12)
    # the hull may only have improved on the bounds
    assert all(single.delta_upper(e) <= bound * (1 + 1e-9) + 1e-12 for e, bound in zip(nodes, ragged, strict=True))


def gaussian_pair(step: float, deviation: float) -> PrivacyLossDistribution:
    epsilons = step * np.arange(int(10 * deviation / step) + 1)
    return dominating(step, np.array([gaussian_delta(float(e), deviation) for e in epsilons]), 0.0)


def gaussian_delta(epsilon: float, mu: float) -> float:
    near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
    return 0.5 * (math.erfc(near) - math.exp(epsilon) * math.erfc(far))


@pytest.mark.parametrize("copies", [2, 7, 100, 1000])
def test_composed_gaussians_are_gaussian_down_to_tiny_deltas(copies: int) -> None:
    mu = 0.02
    single = gaussian_pair(mu / 40, mu)
    above = power_above(single, copies, 1e-17)
    together = mu * math.sqrt(copies)
    for epsilon in np.linspace(0.5, 7, 8) * together:
        truth = gaussian_delta(float(epsilon), together)
        found = above.delta_upper(float(epsilon))
        assert truth <= found <= truth * 1.01 + 2e-17 + single.infinity_mass * copies
    upper = single.upper_masses()
    below = power_below(dominated(mu / 40, upper, upper * np.exp(-single.losses()), 0.0), copies, 1e-17)
    for epsilon in np.linspace(0.5, 7, 8) * together:
        assert gaussian_delta(float(epsilon), together) * 0.96 <= below.delta_lower(float(epsilon)) + 1e-16
        assert below.delta_lower(float(epsilon)) <= above.delta_upper(float(epsilon))


def test_coarsening_upwards_keeps_the_mass_and_raises_the_profile() -> None:
    fine = gaussian_pair(0.01, 0.3)
    coarse = coarsen_above(fine)
    assert coarse.step == 2 * fine.step
    assert coarse.upper_masses().sum() == pytest.approx(fine.upper_masses().sum(), rel=1e-13)
    for epsilon in np.linspace(0, 2, 41):
        assert coarse.hockey_stick_divergence(float(epsilon)) >= fine.hockey_stick_divergence(float(epsilon)) * (
            1 - 1e-13
        )
    # strictly, where a node was given up
    assert coarse.hockey_stick_divergence(0.01) > fine.hockey_stick_divergence(0.01) * (1 + 1e-9)


def test_errors_add_up_and_are_refused_when_they_matter() -> None:
    single = gaussian_pair(0.01, 0.1)
    rough = PrivacyLossDistribution(single.step, single.lowest, single.symmetrised, single.infinity_mass, 1e-6)
    assert power_above(rough, 10, 1e-15).error >= 1e-5
    with refusal("not-certified", error=PrivacyError):
        power_above(rough, 1000, 1e-15)


def test_powers_do_not_depend_on_the_order_of_multiplication() -> None:
    single = gaussian_pair(0.005, 0.1)
    deltas = [power_above(single, copies, 1e-17).delta_upper(1.0) for copies in range(1, 40)]
    assert all(later > earlier for earlier, later in itertools.pairwise(deltas))


def test_losses_beyond_all_bounds_count_as_infinite_and_no_mass_is_lost() -> None:
    single = gaussian_pair(0.05, 1.0)
    for copies in (500, 800, 5000):  # mean losses of 250, 400 and 2500
        composed = power_above(single, copies, 1e-15)
        assert composed.upper_masses().sum() + composed.infinity_mass == pytest.approx(1.0, abs=1e-9)
        assert composed.delta_upper(0.0) >= 1.0 - 1e-12
