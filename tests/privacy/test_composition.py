from __future__ import annotations

import itertools
import math
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.oracles.enumeration import worst_delta

from shufflesum.errors import MissingExtraError, ParameterError, PrivacyError
from shufflesum.privacy import blanket
from shufflesum.privacy.composition import (
    composed_delta_lower,
    composed_delta_upper,
    composed_epsilon_lower,
    composed_epsilon_upper,
    composed_lower,
    composed_upper,
    noise_probability_lower_bound,
    smallest_noise_probability,
    to_dp_accounting,
    uniform_delta_upper,
)

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.5)

# users, dimension, levels: two blocks, of one coordinate each or of one and two
ENUMERABLE = [
    (1, 2, 1),
    (2, 2, 1),
    (3, 2, 1),
    (4, 2, 1),
    (1, 2, 2),
    (2, 2, 2),
    (3, 2, 2),
    (2, 2, 3),
    (2, 3, 1),
    (3, 3, 1),
]


@pytest.mark.parametrize(("users", "dimension", "levels"), ENUMERABLE)
@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_enumeration_of_two_blocks_lies_between_the_bounds(
    users: int, dimension: int, levels: int, gamma: float
) -> None:
    truth = worst_delta(
        users=users, dimension=dimension, levels=levels, noise_probability=gamma, epsilons=EPSILONS, reports=2
    )
    alone = dimension == 2
    upper = composed_upper(users, levels, gamma, 2, single_coordinate_blocks=alone)
    lower = composed_lower(users, levels, gamma, 2)
    for epsilon, exact in zip(EPSILONS, truth, strict=True):
        assert lower.delta(epsilon) <= exact * (1 + 1e-9) + 1e-13
        assert upper.delta(epsilon) >= exact * (1 - 1e-12)
    if levels == 1 and alone:  # the direct bound is nearly the worst case itself
        assert upper.delta(0.0) <= truth[0] * 1.1


def test_too_little_noise_in_the_accountant_would_be_seen_by_the_enumeration() -> None:
    truth = worst_delta(users=3, dimension=2, levels=1, noise_probability=0.5, epsilons=EPSILONS, reports=2)
    flattering = composed_upper(3, 1, 0.55, 2, single_coordinate_blocks=True)
    assert any(flattering.delta(epsilon) < exact for epsilon, exact in zip(EPSILONS, truth, strict=True))
    pessimistic = composed_lower(3, 1, 0.4, 2)
    assert any(pessimistic.delta(epsilon) > exact for epsilon, exact in zip(EPSILONS, truth, strict=True))


def smallest(users: int, levels: int, epsilon: float, delta: float, copies: int, alone: bool) -> tuple[float, float]:
    return (
        smallest_noise_probability(users, levels, epsilon, delta, copies, single_coordinate_blocks=alone),
        noise_probability_lower_bound(users, levels, epsilon, delta, copies),
    )


def test_one_hundred_reports_need_the_noise_computed_independently() -> None:
    upper, lower = smallest(50_000, 3, 0.95, 1e-6, 100, True)
    assert 0.2005 <= lower <= upper <= 0.203
    upper, lower = smallest(50_000, 1, 0.95, 1e-6, 100, False)
    assert 0.1210 <= upper <= 0.1225
    upper, lower = smallest(50_000, 1, 0.95, 1e-6, 100, True)
    assert upper == pytest.approx(0.0715, abs=1.5e-4)
    assert lower == pytest.approx(0.0707, abs=0.5e-4)


def nearly_exact(users: int, values: int, gamma: float, copies: int, epsilon: float) -> float:
    """Compose the pair of a third value by plain FFT on a fine grid, rounding losses without bias."""
    step, size = 2e-5, 2**18
    beta, r = (1 - gamma) * values / gamma, gamma / (values * (1 - gamma) + gamma)
    other = gamma * (values - 3) / (values - 2 * gamma)
    mean = users * 2 * gamma / values
    grid = np.zeros(size)
    for s in range(int(mean - 8 * mean**0.5), int(mean + 8 * mean**0.5)):
        a = np.arange(max(0, int(s / 2 - 4 * s**0.5)), min(s, int(s / 2 + 4 * s**0.5)) + 1)
        rest = s + (users - s) * other
        constant = rest + r * (users - rest)
        p, q = (beta * a + constant) / users, (beta * (s - a) + constant) / users
        place = np.log(p / q) / step
        index = np.floor(place).astype(int)
        masses = binom.pmf(s, users, 2 * gamma / values) * binom.pmf(a, s, 0.5) * p
        np.add.at(grid, index % size, masses * (1 - (place - index)))
        np.add.at(grid, (index + 1) % size, masses * (place - index))
    composed = np.fft.irfft(np.fft.rfft(grid) ** copies, size)
    losses = np.fft.fftfreq(size, 1 / size) * step
    above = losses > epsilon
    return float(np.sum(composed[above] * -np.expm1(epsilon - losses[above])))


def test_both_bounds_embrace_a_plain_computation_closely() -> None:
    users, gamma, copies = 4000, 0.3, 20
    upper = composed_upper(users, 3, gamma, copies, single_coordinate_blocks=True)
    lower = composed_lower(users, 3, gamma, copies)
    for epsilon in (0.2, 0.6, 1.0):
        plain = nearly_exact(users, 4, gamma, copies, epsilon)
        assert plain * 0.99 <= lower.delta(epsilon) <= plain * 1.001
        assert plain * 0.999 <= upper.delta(epsilon) <= plain * 1.02


PRACTICAL = [
    (1000, 3, 1.0, 1e-6, 2),
    (1000, 2, 4.0, 1e-5, 20),
    (5000, 9, 2.0, 1e-8, 5),
    (50_000, 20, 0.95, 1e-6, 10),
    (10**6, 9, 1.0, 1e-12, 1000),
    (10**8, 3, 0.95, 1e-6, 10_000),
    (10**10, 3, 0.1, 1e-12, 100),
    (1000, 3, 0.5, 1e-6, 1000),
]


@pytest.mark.parametrize(("users", "levels", "epsilon", "delta", "copies"), PRACTICAL)
def test_the_gap_between_the_bounds_is_below_two_percent_of_the_noise(
    users: int, levels: int, epsilon: float, delta: float, copies: int
) -> None:
    upper, lower = smallest(users, levels, epsilon, delta, copies, False)
    assert lower < upper < lower * 1.005  # 0.02 is promised


@pytest.mark.parametrize(
    ("users", "epsilon", "delta", "copies"),
    [
        (1000, 1.0, 1e-6, 1),
        (1000, 1.0, 1e-6, 3),
        (5000, 0.5, 1e-6, 10),
        (50_000, 0.95, 1e-12, 100),
        (10**6, 2.0, 1e-6, 500),
    ],
)
def test_two_values_in_blocks_of_one_coordinate_have_a_gap_below_three_percent(
    users: int, epsilon: float, delta: float, copies: int
) -> None:
    upper, lower = smallest(users, 1, epsilon, delta, copies, True)
    assert lower < upper < lower * 1.02
    assert upper < smallest_noise_probability(users, 1, epsilon, delta, copies, single_coordinate_blocks=False)


def test_the_smallest_noise_is_a_grid_point_that_holds_and_hardly_less_does_not() -> None:
    gamma = smallest_noise_probability(20_000, 4, 1.0, 1e-7, 30, single_coordinate_blocks=False)
    assert (gamma * 2**53).is_integer()

    def delta(noise_probability: float) -> float:
        return composed_delta_upper(20_000, 4, noise_probability, 1.0, 30, single_coordinate_blocks=False)

    assert delta(gamma) <= 1e-7 < delta(gamma * (1 - 2e-4))


@settings(max_examples=15, deadline=None)
@given(
    users=st.integers(1, 10**5),
    levels=st.integers(1, 12),
    gamma=st.floats(1e-4, 1.0),
    copies=st.integers(2, 300),
    epsilon=st.floats(0.0, 5.0),
    alone=st.booleans(),
)
def test_delta_falls_in_epsilon_users_and_noise_and_rises_with_reports(
    users: int, levels: int, gamma: float, copies: int, epsilon: float, alone: bool
) -> None:
    def upper(n: int, g: float, t: int) -> float:
        return composed_delta_upper(n, levels, g, epsilon, t, single_coordinate_blocks=alone)

    here = upper(users, gamma, copies)
    slack = here * 1e-3 + 1e-14  # what the grids may differ by
    assert upper(2 * users, gamma, copies) <= here + slack
    assert upper(users, min(1.0, 1.1 * gamma), copies) <= here + slack
    assert upper(users, gamma, 2 * copies) >= here - slack
    bound = composed_upper(users, levels, gamma, copies, single_coordinate_blocks=alone)
    assert bound.delta(epsilon + 0.1) <= bound.delta(epsilon)
    assert composed_delta_lower(users, levels, gamma, epsilon, copies) <= here


def test_epsilon_and_delta_are_inverse_and_directed() -> None:
    upper = composed_upper(50_000, 3, 0.2, 100, single_coordinate_blocks=True)
    lower = composed_lower(50_000, 3, 0.2, 100)
    for delta in (1e-3, 1e-6, 1e-9, 1e-12):
        high, low = upper.epsilon(delta), lower.epsilon(delta)
        assert upper.delta(high) <= delta < upper.delta(high * (1 - 1e-9))
        assert lower.delta(low) >= delta
        assert low < high < low * 1.005
    assert upper.epsilon(0.9) == lower.epsilon(0.9) == 0.0
    assert composed_epsilon_upper(50_000, 3, 0.2, 1e-6, 100, single_coordinate_blocks=True) == upper.epsilon(1e-6)
    assert composed_epsilon_lower(50_000, 3, 0.2, 1e-6, 100) == lower.epsilon(1e-6)


def test_one_report_is_what_blanket_says() -> None:
    assert composed_delta_upper(1000, 3, 0.1, 0.5, 1, single_coordinate_blocks=False) == blanket.delta_upper(
        1000, 3, 0.1, 0.5
    )
    assert composed_epsilon_lower(1000, 3, 0.1, 1e-6, 1) == blanket.epsilon_lower(1000, 3, 0.1, 1e-6)
    gridded = composed_upper(1000, 3, 0.1, 1, single_coordinate_blocks=False).delta(0.5)
    assert gridded == pytest.approx(blanket.delta_upper(1000, 3, 0.1, 0.5), rel=3e-3)


def test_pure_noise_hides_everything_and_one_user_nothing_but_its_own_noise() -> None:
    assert composed_delta_upper(10, 3, 1.0, 0.5, 100, single_coordinate_blocks=True) == 0.0
    assert composed_delta_lower(10, 3, 1.0, 0.0, 100) <= 1e-12
    # alone, each report is randomized response: delta(0) of one is 1 - gamma
    found = composed_upper(1, 1, 0.5, 2, single_coordinate_blocks=True)
    p = np.outer([0.75, 0.25], [0.75, 0.25]).ravel()
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = np.maximum(p - math.exp(epsilon) * p[::-1], 0.0).sum()
        assert exact <= found.delta(epsilon) <= exact + 2e-3


def test_rounds_are_more_reports() -> None:
    once = composed_delta_upper(10**5, 3, 0.1, 0.5, 10, single_coordinate_blocks=True)
    assert composed_delta_upper(10**5, 3, 0.1, 0.5, 40, single_coordinate_blocks=True) > 4 * once


# --- uniform sampling


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
        assert uniform_delta_upper(2, 3, 2, 1, gamma, epsilon) >= exact


def test_uniform_sampling_costs_more_than_stratified_and_falls_with_noise() -> None:
    def uniform(gamma: float, rounds: int = 1) -> float:
        return uniform_delta_upper(50_000, 100, 99, 3, gamma, 0.95, rounds)

    stratified = composed_delta_upper(50_000, 3, 0.25, 0.95, 99, single_coordinate_blocks=False)
    assert stratified < uniform(0.25) < 1e-6
    assert uniform(0.3) < uniform(0.25) < uniform(0.25, rounds=2)
    assert uniform(1.0) == 0.0
    ends = uniform_delta_upper(5000, 10, 10, 1, 0.2, 0.5), uniform_delta_upper(5000, 10, 1, 1, 0.2, 0.5)
    assert ends[0] == composed_delta_upper(5000, 1, 0.2, 0.5, 10, single_coordinate_blocks=True)
    assert ends[1] == blanket.delta_upper(5000, 1, 0.2, 0.5)


def test_the_pair_at_a_fixed_count_is_the_plain_sum() -> None:
    # with the union bound at zero the certificate is the product of local guarantees: two randomized responses
    users, gamma, epsilon = 2, 0.5, 1.0
    p = np.outer([0.75, 0.25], [0.75, 0.25]).ravel()
    exact = np.maximum(p - math.exp(epsilon) * p[::-1], 0.0).sum()
    assert exact <= uniform_delta_upper(users, 1000, 2, 1, gamma, epsilon) <= exact + 2e-3


# --- dp_accounting


def test_dp_accounting_composes_the_exported_distribution_to_the_same_delta() -> None:
    pytest.importorskip("dp_accounting")
    single = to_dp_accounting(50_000, 3, 0.2, 1, single_coordinate_blocks=True)
    theirs = single.self_compose(100)
    ours = composed_upper(50_000, 3, 0.2, 100, single_coordinate_blocks=True)
    below = composed_lower(50_000, 3, 0.2, 100)
    for epsilon in (0.2, 0.6, 0.95):
        assert theirs.get_delta_for_epsilon(epsilon) == pytest.approx(ours.delta(epsilon), rel=0.01)
        assert theirs.get_delta_for_epsilon(epsilon) >= below.delta(epsilon)
    whole = to_dp_accounting(50_000, 3, 0.2, 100, single_coordinate_blocks=True, value_discretization_interval=1e-3)
    assert whole.get_delta_for_epsilon(0.95) == pytest.approx(ours.delta(0.95), rel=0.01)
    assert whole.get_delta_for_epsilon(0.95) >= below.delta(0.95)


def test_the_export_composes_with_other_mechanisms() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    gaussian = pld.from_gaussian_mechanism(5.0, value_discretization_interval=1e-3)
    ours = to_dp_accounting(1000, 1, 0.2, 4, single_coordinate_blocks=True, value_discretization_interval=1e-3)
    both = ours.compose(gaussian)
    for epsilon in (0.5, 1.0):
        alone = max(ours.get_delta_for_epsilon(epsilon), gaussian.get_delta_for_epsilon(epsilon))
        assert alone < both.get_delta_for_epsilon(epsilon) < 1.0


def test_dp_accounting_agrees_about_a_concrete_pair() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    users, gamma, copies = 400, 0.2, 10
    z = binom.pmf(np.arange(users), users - 1, gamma / 2)
    padded = np.pad(z, 1)
    zero = (1 - gamma / 2) * padded[1:] + gamma / 2 * padded[:-1]
    one = gamma / 2 * padded[1:] + (1 - gamma / 2) * padded[:-1]
    laws = [{i: math.log(x) for i, x in enumerate(law) if x > 1e-60} for law in (zero, one)]
    theirs = {
        pessimistic: [
            pld.from_two_probability_mass_functions(b, a, pessimistic, 1e-5).self_compose(copies)
            for a, b in (laws, laws[::-1])
        ]
        for pessimistic in (True, False)
    }
    lower = composed_lower(users, 1, gamma, copies)
    upper = composed_upper(users, 1, gamma, copies, single_coordinate_blocks=True)
    for epsilon in (0.3, 1.0, 2.0):
        above = max(float(one.get_delta_for_epsilon(epsilon)) for one in theirs[True])
        below = max(float(one.get_delta_for_epsilon(epsilon)) for one in theirs[False])
        assert 0.95 * below <= lower.delta(epsilon) <= above
        assert below <= upper.delta(epsilon)


def test_a_missing_dp_accounting_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.pld_pmf", None)
    with pytest.raises(MissingExtraError, match="accounting"):
        to_dp_accounting(1000, 3, 0.2, 1, single_coordinate_blocks=True)


# --- refusals and speed


def test_what_cannot_be_certified_is_refused_with_the_knob_to_turn() -> None:
    good = composed_upper(100, 3, 0.5, 2, single_coordinate_blocks=False)
    with pytest.raises(PrivacyError, match="delta = 1e-13"):
        good.epsilon(1e-13)
    with pytest.raises(PrivacyError, match="epsilon = -1"):
        good.delta(-1.0)
    with pytest.raises(ParameterError, match="change reports or rounds"):
        composed_upper(100, 3, 0.5, 0, single_coordinate_blocks=False)
    with pytest.raises(PrivacyError, match="noise_probability = 0"):
        composed_lower(100, 3, 0.0, 2)
    with pytest.raises(ParameterError, match="honest_users is 0"):
        composed_upper(0, 3, 0.5, 2, single_coordinate_blocks=False)
    with pytest.raises(PrivacyError, match="raise epsilon"):
        smallest_noise_probability(100, 3, 0.0, 1e-6, 2, single_coordinate_blocks=False)
    with pytest.raises(ParameterError, match="reports = 11"):
        uniform_delta_upper(100, 10, 11, 3, 0.5, 1.0)
    with pytest.raises(ParameterError, match="value_discretization_interval"):
        to_dp_accounting(100, 3, 0.5, 1, single_coordinate_blocks=False, value_discretization_interval=0.0)
