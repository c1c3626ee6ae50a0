"""The laws behind intervals, of one cell and of sums, beside direct convolutions; and coverage by enumeration."""

import numpy as np
import pytest
from scipy.stats import binom

from shufflesum.mechanisms.frequencies import Frequencies, ends_of
from shufflesum.mechanisms.noisy_table.noise import Draws, TableNoise, cumulant_generator, weighted_reach
from shufflesum.privacy import NoiseDistribution

LAPLACE, GAUSSIAN = NoiseDistribution(1.0, 2.0, 29), NoiseDistribution(1.9, 9.0, 60)


def law(distribution: NoiseDistribution) -> np.ndarray:
    return np.array([weight / 2**128 for weight in distribution.weights])


def summed(distribution: NoiseDistribution, draws: int) -> np.ndarray:
    found = np.ones(1)
    for _ in range(draws):
        found = np.convolve(found, law(distribution))
    return found


@pytest.mark.parametrize("distribution", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(("cells", "draws"), [(1, 1), (1, 2), (3, 1), (7, 2)])
def test_tails_of_sums_of_cells_are_exact(distribution: NoiseDistribution, cells: int, draws: int) -> None:
    noise = TableNoise(distribution, draws).law(cells)
    exact = summed(distribution, cells * draws)
    for tail in (0.3, 0.025, 1e-4, 1e-8):
        low, high = ends_of(noise, tail)
        assert exact[:low].sum() <= tail < exact[: low + 1].sum()
        assert exact[high + 1 :].sum() <= tail < exact[high:].sum()
        assert noise.reach(tail) == high - (len(exact) - 1) // 2


def test_cumulants_are_those_of_the_table() -> None:
    values, chances = np.arange(59) - 29, law(LAPLACE)
    for tilt in (0.01, 0.3, 2.0):
        assert cumulant_generator(LAPLACE, np.array([tilt]))[0] == pytest.approx(
            np.log(np.exp(tilt * values) @ chances), rel=1e-9
        )
    noise = TableNoise(LAPLACE, 2)
    assert noise.variance == pytest.approx(2 * values**2 @ chances)
    assert noise.fourth == pytest.approx(2 * (values**4 @ chances - 3 * (values**2 @ chances) ** 2))


def test_weighted_sums_have_the_tails_of_a_direct_convolution() -> None:
    """Of 3 N - 5 M, whose values are whole numbers; the grid makes it a little wider."""
    exact = np.zeros(16 * 29 + 1)
    for one, chance in enumerate(law(LAPLACE)):
        exact[3 * one : 3 * one + 5 * 59 : 5] += chance * law(LAPLACE)
    for tail in (0.1, 0.025, 1e-3, 1e-6):
        reach = weighted_reach([Draws(LAPLACE, 1, np.array([3.0, 0.0, -5.0]))], 0.0, tail)
        middle = len(exact) // 2
        true = next(far for far in range(middle + 1) if exact[middle + far + 1 :].sum() <= tail)
        assert true <= reach <= 1.02 * true + 1


def test_many_different_weights_are_nearly_normal() -> None:
    weights = np.linspace(0.1, 1.0, 500)
    deviation = float(np.sqrt(weights @ weights * LAPLACE.variance))
    assert weighted_reach([Draws(LAPLACE, 1, weights)], 0.0, 0.025) == pytest.approx(1.96 * deviation, rel=0.01)
    more = weighted_reach([Draws(LAPLACE, 1, weights)], 3 * deviation**2, 0.025)
    assert more == pytest.approx(2 * 1.96 * deviation, rel=0.01)


@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("users", [1, 2, 5, 20, 100])
def test_intervals_hold_as_often_as_said(users: int, draws: int) -> None:
    """All counts of users and all noise: for these users, and for a population they are drawn from."""
    noise, outcomes = TableNoise(LAPLACE, draws), summed(LAPLACE, draws)
    counts = np.arange(users + len(outcomes))
    found = Frequencies(counts, users, noise)
    for tail in (0.025, 1e-3):
        low, high = found.interval(tail, "users")
        for held in range(users + 1):
            missed = low[held : held + len(outcomes)] * users > held + 1e-9
            assert outcomes[missed].sum() <= tail
            missed = high[held : held + len(outcomes)] * users < held - 1e-9
            assert outcomes[missed].sum() <= tail
        low, high = found.interval(tail, "population")
        for frequency in (0.0, 0.03, 0.3, 0.8, 1.0):
            seen = np.convolve(binom.pmf(np.arange(users + 1), users, frequency), outcomes)
            assert seen[low > frequency + 1e-12].sum() <= 1.1 * tail
            assert seen[high < frequency - 1e-12].sum() <= 1.1 * tail
