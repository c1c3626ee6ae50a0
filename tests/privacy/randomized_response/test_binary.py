from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from shufflesum.privacy.randomized_response import blanket, direct

Floats = npt.NDArray[np.float64]
EPSILONS = np.array([0.0, 0.01, 0.1, 0.3, 1.0, 2.0, 4.0])


def worlds(zeros: int, ones: int, gamma: float) -> tuple[Floats, Floats]:
    """Laws of the number of ones when the victim holds 0, and 1."""
    rho = gamma / 2
    others = np.convolve(binom.pmf(np.arange(zeros + 1), zeros, rho), binom.pmf(np.arange(ones + 1), ones, 1 - rho))
    padded = np.pad(others, 1)
    return (1 - rho) * padded[1:] + rho * padded[:-1], rho * padded[1:] + (1 - rho) * padded[:-1]


def divergence(p: Floats, q: Floats, epsilons: Floats) -> Floats:
    return np.array([np.maximum(p - math.exp(e) * q, 0.0).sum() for e in epsilons])


def worst(users: int, gamma: float, epsilons: Floats) -> Floats:
    best = np.zeros(epsilons.size)
    for zeros in range(users):
        p, q = worlds(zeros, users - 1 - zeros, gamma)
        best = np.maximum(best, np.maximum(divergence(p, q, epsilons), divergence(q, p, epsilons)))
    return best


@pytest.mark.parametrize("users", [1, 2, 3, 10, 57, 150])
@pytest.mark.parametrize("gamma", [0.01, 0.2, 0.7, 1 - 2**-20])
def test_the_bound_is_the_exact_worst_case_while_cells_hold_one_count(users: int, gamma: float) -> None:
    truth = worst(users, gamma, EPSILONS)
    found = direct.binary_profile_upper(users, gamma, EPSILONS)
    assert np.all(found >= truth * (1 - 1e-12) - 1e-15)
    assert np.allclose(found, truth, rtol=1e-9, atol=1e-14)


@pytest.mark.slow
def test_wider_cells_cost_little_and_stay_above_every_data_set() -> None:
    users, gamma = 2000, 0.08
    truth = worst(users, gamma, EPSILONS[:4])
    found = direct.binary_profile_upper(users, gamma, EPSILONS[:4])
    assert np.all(found >= truth)
    # no more than what 2% fewer users would cost
    assert np.all(found <= worst(round(0.98 * users), gamma, EPSILONS[:4]))


@pytest.mark.long
def test_sampling_a_long_law_costs_little_and_never_undercuts_the_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    users, gamma = 200_000, 0.1
    epsilons = np.linspace(0.0, 8.0, 60) / math.sqrt(users * gamma / 2)
    full = direct.binary_profile_upper(users, gamma, epsilons)
    monkeypatch.setattr(direct, "_DENSE", 0)
    sampled = direct.binary_profile_upper(users, gamma, epsilons)
    assert np.all(sampled >= full * (1 - 1e-11))
    assert np.all(sampled <= full * 1.04)


def test_users_beyond_the_longest_law_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    epsilons = np.array([0.0, 0.05])
    monkeypatch.setattr(direct, "_LARGEST_DEVIATION", 50.0)
    enough = direct.binary_profile_upper(25_001, 0.2, epsilons)
    assert np.array_equal(direct.binary_profile_upper(10**9, 0.2, epsilons), enough)
    assert np.all(enough < direct.binary_profile_upper(20_000, 0.2, epsilons))


def test_deep_tails_keep_their_relative_precision() -> None:
    users, gamma = 180, 0.5
    epsilons = np.array([0.9])
    truth = worst(users, gamma, epsilons)
    assert truth[0] < 1e-10
    assert direct.binary_profile_upper(users, gamma, epsilons)[0] == pytest.approx(truth[0], rel=1e-5)


def test_the_direct_bound_beats_the_blanket_by_far_and_never_undercuts_the_concrete_pair() -> None:
    epsilons = np.linspace(0.0, 1.0, 11)
    for users, gamma in ((1000, 0.05), (50_000, 0.0015), (50_000, 0.07), (10**7, 0.001)):
        bound = direct.binary_profile_upper(users, gamma, epsilons)
        assert np.all(bound >= blanket.profile_lower(users, 1, gamma, epsilons))
        assert bound[3] < 0.7 * blanket.profile_upper(users, 1, gamma, epsilons)[3]


def test_nothing_exceeds_the_local_epsilon() -> None:
    gamma = 0.5
    local = math.log(1 + 2 * (1 - gamma) / gamma)
    found = direct.binary_profile_upper(40, gamma, np.array([local - 1e-6, local + 1e-6, 700.0]))
    assert found[0] > 0.0
    assert found[1] == found[2] == 0.0


@pytest.mark.parametrize("users", [1, 2, 5, 40, 300, 5000])
def test_one_value_pairs_lie_below_the_enumerated_ones_and_close_to_them(users: int) -> None:
    gamma = 0.2
    p, q = worlds(users - 1, 0, gamma)
    step = 0.002
    up, down = direct.one_value_plds(users, gamma, step)
    for pair, truth in ((up, divergence(p, q, EPSILONS)), (down, divergence(q, p, EPSILONS))):
        found = np.array([pair.delta_lower(e) for e in EPSILONS])
        assert np.all(found <= truth * (1 + 1e-9) + 1e-15)
        assert np.all(found >= truth - step)
