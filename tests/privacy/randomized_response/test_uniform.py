from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.privacy import RandomizedResponseAccountant
from shufflesum.privacy.randomized_response.schemes import Blocks, Subsets


def uniform_worst(users: int, dimension: int, reports: int, gamma: float, epsilons: tuple[float, ...]) -> np.ndarray:
    """Largest divergence over all data sets of `uniform` sampling with two values, by enumeration of all tables."""

    def law(vector: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        found: Counter[tuple[int, ...]] = Counter()
        subsets = list(itertools.combinations(range(dimension), reports))
        for subset in subsets:
            for values in itertools.product((0, 1), repeat=reports):
                table = [0] * (2 * dimension)
                chance = 1 / len(subsets)
                for coordinate, value in zip(subset, values, strict=True):
                    table[2 * coordinate + value] += 1
                    chance *= gamma / 2 + (1 - gamma) * (value == vector[coordinate])
                found[tuple(table)] += chance  # type: ignore[assignment]
        return found

    def plus(a: Counter[tuple[int, ...]], b: Counter[tuple[int, ...]]) -> Counter[tuple[int, ...]]:
        total: Counter[tuple[int, ...]] = Counter()
        for (x, p), (y, q) in itertools.product(a.items(), b.items()):
            total[tuple(i + j for i, j in zip(x, y, strict=True))] += p * q
        return total

    vectors = list(itertools.product((0, 1), repeat=dimension))
    laws = [law(vector) for vector in vectors]
    worst = np.zeros(len(epsilons))
    for others in itertools.combinations_with_replacement(laws, users - 1):
        base = Counter({(0,) * (2 * dimension): 1})
        for other in others:
            base = plus(base, other)
        # by symmetry the victim may hold zeros in one of the worlds
        worlds = [plus(base, one) for one in laws]
        for a, b in itertools.permutations(worlds, 2):
            for i, epsilon in enumerate(epsilons):
                worst[i] = max(worst[i], sum(max(0.0, p - math.exp(epsilon) * b[x]) for x, p in a.items()))
    return worst


@pytest.mark.parametrize("gamma", [0.3, 0.8])
def test_uniform_sampling_is_bounded_by_its_certificate(gamma: float) -> None:
    epsilons = (0.0, 0.5, 1.5)
    truth = uniform_worst(2, 3, 2, gamma, epsilons)
    for epsilon, exact in zip(epsilons, truth, strict=True):
        assert Subsets(2, 1, 2, 3).delta_upper(gamma, epsilon) >= exact


def test_uniform_sampling_costs_more_than_stratified_and_falls_with_noise() -> None:
    def uniform(gamma: float, rounds: int = 1) -> float:
        return Subsets(50_000, 3, 99, 100, rounds).delta_upper(gamma, 0.95)

    stratified = Blocks(50_000, 3, 99).delta_upper(0.25, 0.95)
    assert stratified < uniform(0.25) < 1e-6
    assert uniform(0.3) < uniform(0.25) < uniform(0.25, rounds=2)
    assert uniform(1.0) == 0.0


def test_the_pair_at_a_fixed_count_is_the_plain_sum() -> None:
    # with the union bound at zero the certificate is the product of local guarantees: two randomized responses
    users, gamma, epsilon = 2, 0.5, 1.0
    p = np.outer([0.75, 0.25], [0.75, 0.25]).ravel()
    exact = np.maximum(p - math.exp(epsilon) * p[::-1], 0.0).sum()
    assert exact <= Subsets(users, 1, 2, 1000).delta_upper(gamma, epsilon) <= exact + 2e-3


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6])
def test_epsilon_is_certified_and_hardly_less_is_not(delta: float) -> None:
    subsets = Subsets(2000, 2, 3, 5)
    epsilon = subsets.epsilon_upper(0.3, delta)
    assert subsets.delta_upper(0.3, epsilon) <= delta
    assert epsilon == 0.0 or subsets.delta_upper(0.3, epsilon * (1 - 2e-4)) > delta


def test_without_an_epsilon_within_double_precision_there_is_none() -> None:
    assert Subsets(1, 1, 500, 1000).epsilon_upper(2.0**-53, 1e-6) == math.inf


def test_what_cannot_be_certified_of_subsets_is_refused_with_the_knob_to_turn() -> None:
    with refusal("out-of-range", "11", error=ParameterError):
        Subsets(100, 3, 11, 10)
    with refusal("out-of-range", error=ParameterError):
        Subsets(100, 3, 1000, 2000, rounds=1001)
    with refusal("not-certified", "0", error=PrivacyError):
        Subsets(100, 3, 2, 10).epsilon_upper(0.5, 0.0)
    with refusal("impossible-combination", error=ParameterError):
        RandomizedResponseAccountant(100, 3, 0.5, 2, dimension=10, sampling="uniform").to_dp_accounting()
