"""The figures that docs/federated.md promises, on MNIST itself: a folder named by SHUFFLESUM_MNIST."""

from __future__ import annotations

import os
import statistics

import pytest

from experiments.federated.data import Pictures, load_mnist
from experiments.federated.methods import BOX, CURATOR, OURS, Setting
from experiments.federated.runs import Run, train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("SHUFFLESUM_MNIST" not in os.environ, reason="SHUFFLESUM_MNIST names no folder of idx files"),
]

SEEDS = 3
SETTING = Setting(users=6_000, rounds=30, clipping_norm=0.5, epsilon=2.0, delta=1e-6)


@pytest.fixture(scope="module")
def mnist() -> Pictures:
    return load_mnist(os.environ["SHUFFLESUM_MNIST"])


@pytest.fixture(scope="module")
def curator(mnist: Pictures) -> float:
    return accuracy(mnist, CURATOR)


def accuracy(mnist: Pictures, method: str, seeds: int = SEEDS) -> float:
    """After the last round, mean over seeds; everything is seeded, so it is the same every time."""
    runs = [Run("softmax", method, SETTING, each=10, labels_each=None, seed=seed) for seed in range(seeds)]
    return statistics.fmean(train(mnist, run)[-1] for run in runs)


def test_softmax_regression_at_epsilon_2_is_within_a_point_of_the_trusted_curators(
    mnist: Pictures, curator: float
) -> None:
    ours = accuracy(mnist, OURS)
    print(f"ours {ours:.4f}, curator {curator:.4f}")
    assert abs(ours - curator) <= 0.01
    assert min(ours, curator) >= 0.89


def test_charged_for_every_coordinate_it_would_not_be(mnist: Pictures, curator: float) -> None:
    assert accuracy(mnist, BOX, seeds=1) < curator - 0.01
