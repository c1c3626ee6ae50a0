"""The error that is seen, beside what is predicted for that data and what the plan says at most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from tests.stat_tests import FALSE_ALARM

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.plans import Plan
from shufflesum.testing import SeededSource

_KINDS = 20  # users hold one of so many vectors


def kinds_of(data: str, dimension: int) -> NDArray[np.float64]:
    """Vectors of the unit ball: all different, all the same at full norm, or sparse and short."""
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(_KINDS, dimension))
    if data == "alike":
        vectors[:] = vectors[0]
    if data == "sparse":
        vectors *= rng.uniform(size=vectors.shape) < 3 / dimension
        vectors[:, 0] += 1e-3
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / lengths * (0.3 if data == "sparse" else 1.0))


def batches(kinds: NDArray[np.float64], users: int) -> Iterator[NDArray[np.float32]]:
    """Never more than a few users' vectors at a time."""
    single = kinds.astype(np.float32)
    for start in range(0, users, 500):
        yield single[np.arange(start, min(users, start + 500)) % _KINDS]


def walsh(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Hadamard's transform of rows, by halves."""
    size = vectors.shape[1]
    if size == 1:
        return vectors
    left, right = walsh(vectors[:, : size // 2]), walsh(vectors[:, size // 2 :])
    return np.hstack([left + right, left - right])


def predicted(plan: Plan, kinds: NDArray[np.float64], amplitude: float) -> tuple[float, float]:
    """The expected squared error for these vectors, each held by as many users, and its variance.

    In rotated coordinates, in units of the clipping norm: bits of variance 1 - (a y)^2, and what clipping takes off.
    """
    domain, mechanism = plan.domain, plan.mechanism
    assert isinstance(domain, ss.L2Ball)
    assert isinstance(mechanism, ss.OneBit)
    padded = np.zeros((len(kinds), domain.padded))
    padded[:, : domain.dimension] = kinds * domain.signs()
    bound = mechanism.tau / math.sqrt(domain.padded)
    rotated = walsh(padded) / math.sqrt(domain.padded)
    clipped = np.clip(rotated, -bound, bound)
    lost = (rotated - clipped).mean(axis=0)
    bias = walsh(lost[None])[0, : domain.dimension] / math.sqrt(domain.padded)
    signs = 1 - (mechanism.amplitude * clipped / bound) ** 2
    variance = (bound / amplitude) ** 2 * signs.mean() / (plan.users * mechanism.bits)
    size, square = domain.dimension, float(bias @ bias)
    return size * variance + square, 2 * size * variance**2 + 4 * variance * square


CASES = [
    pytest.param(1000, 8192, "different", 6, marks=pytest.mark.slow),
    pytest.param(1000, 8192, "alike", 6),
    pytest.param(1000, 7850, "sparse", 6, marks=pytest.mark.slow),
    pytest.param(2000, 500, "alike", 16, marks=pytest.mark.slow),
    pytest.param(10_000, 16_384, "alike", 3, marks=pytest.mark.slow),
    pytest.param(10_000, 16_384, "different", 3, marks=pytest.mark.slow),
]


@pytest.mark.long
@pytest.mark.parametrize(("users", "dimension", "data", "repeats"), CASES)
def test_the_error_is_the_one_predicted_and_within_the_plans(
    users: int, dimension: int, data: str, repeats: int
) -> None:
    """Squared errors of some batches, nearly normal; twins of a tenth more or less amplitude must be caught."""
    plan = ss.plan(users=users, domain=ss.L2Ball(dimension, clipping_norm=1.0, seed=bytes(16)), epsilon=4.0, delta=1e-6)
    kinds = kinds_of(data, dimension)
    truth = kinds.astype(np.float32).astype(np.float64).mean(axis=0)
    seen = 0.0
    for seed in range(repeats):
        estimate = aggregate_batches(batches(kinds, users), plan, source=SeededSource(seed), clip=True)
        seen += float(np.sum((estimate.mean - truth) ** 2)) / repeats
    mechanism: Any = plan.mechanism

    def score(amplitude: float) -> float:
        expected, variance = predicted(plan, kinds, amplitude)
        return (seen - expected) / math.sqrt(variance / repeats)

    limit = float(norm.isf(FALSE_ALARM / 2))
    assert abs(score(mechanism.amplitude)) < limit
    assert score(mechanism.amplitude * 1.1) > limit
    assert score(mechanism.amplitude / 1.1) < -limit
    expected, variance = predicted(plan, kinds, mechanism.amplitude)
    assert expected <= plan.expected_error.total
    assert seen <= plan.expected_error.total + limit * math.sqrt(variance / repeats)
    assert plan.expected_error.total < 1.3 * expected
