from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.federated.data import blobs, clients_of
from experiments.federated.methods import CURATOR, LOCAL, NO_PRIVACY, OURS, Setting, l2_ball_plan, method
from experiments.federated.models import Softmax, Updates

SETTING = Setting(users=1_000, rounds=5, clipping_norm=0.3, epsilon=3.0)
MODEL = Softmax(64)


def updates() -> Updates:
    clients = clients_of(blobs(), users=SETTING.users, each=5, seed=3)
    return MODEL.updates(np.zeros(MODEL.dimension, dtype=np.float32), clients.images, clients.labels)


def mean(name: str, number: int = 1) -> NDArray[np.float64]:
    return method(name, MODEL, SETTING).mean([updates()], number, [4])


@pytest.fixture(scope="module")
def exact() -> NDArray[np.float64]:
    rows = updates().rows().astype(np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.median(norms) > SETTING.clipping_norm  # the clip is felt
    clipped: NDArray[np.float64] = (rows * np.minimum(1, SETTING.clipping_norm / norms)).mean(axis=0)
    return clipped


def test_without_privacy_it_is_the_mean_of_the_clipped_updates(exact: NDArray[np.float64]) -> None:
    np.testing.assert_allclose(mean(NO_PRIVACY), exact, atol=1e-6)


@pytest.mark.parametrize(("name", "factor"), [(CURATOR, 1), (LOCAL, SETTING.users)])
def test_gaussian_noise_is_as_large_as_a_curators_or_as_all_users_own(
    name: str, factor: int, exact: NDArray[np.float64]
) -> None:
    expected = factor * l2_ball_plan(MODEL, SETTING).curator_error
    error = float(np.sum((mean(name) - exact) ** 2))
    # A sum of 650 squares of normal errors has a relative deviation of sqrt(2/650) = 0.055; seeded, so no false alarms.
    assert abs(error / expected - 1) < 0.3


def test_ours_errs_as_planned_and_each_round_by_itself(exact: NDArray[np.float64]) -> None:
    plan = l2_ball_plan(MODEL, SETTING)
    errors = [mean(OURS, number) - exact for number in (1, 2)]
    noise = plan.expected_error.noise
    for error in errors:
        assert 0.7 * noise < float(np.sum(error**2)) < 1.3 * plan.expected_error.total
    cosine = float(errors[0] @ errors[1]) / math.prod(float(np.linalg.norm(error)) for error in errors)
    assert abs(cosine) < 0.3  # about 1/sqrt(650) each
