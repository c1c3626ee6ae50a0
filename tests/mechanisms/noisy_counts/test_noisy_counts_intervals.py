"""Intervals of a mean under `noisy-counts` hold as often as they say for few users too: all outcomes enumerated."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

import shufflesum as ss
from shufflesum.mechanisms import NoisyCounts
from shufflesum.mechanisms.noisy_counts.mechanism import NoisyCountsMeans


def law_of_sum(mechanism: NoisyCounts, users: int, fraction: float) -> NDArray[np.float64]:
    """Of all digits and noise, digit j counted 2^j times, where every user is that far above a whole number."""
    law = np.asarray(binom.pmf(np.arange(users + 1), users, fraction))
    for digit, (trials, p) in enumerate(zip(mechanism.trials, mechanism.probabilities, strict=True)):
        noise = np.zeros((users * trials << digit) + 1)
        noise[:: 1 << digit] = binom.pmf(np.arange(users * trials + 1), users * trials, p)
        law = np.convolve(law, noise)
    return law


def coverage(plan: ss.Plan, fraction: float, level: float, *, continuity: bool = True) -> float:
    mechanism, users = plan.mechanism, plan.users
    assert isinstance(mechanism, NoisyCounts)
    means = NoisyCountsMeans(mechanism, np.zeros((1, len(mechanism.trials)), dtype=np.int64), users, mixes=False)
    (lower,), (upper,) = means.interval((1 - level) / 2, "users")
    step = 1 / (mechanism.levels * users)
    narrower = 0.0 if continuity else step / 2
    law = law_of_sum(mechanism, users, fraction)
    noise = sum(
        users * q * p * 2**j for j, (q, p) in enumerate(zip(mechanism.trials, mechanism.probabilities, strict=True))
    )
    off = step * (np.arange(len(law)) - noise - users * fraction)  # the estimate less the truth
    mean = means.mean[0]
    return float(law[(mean - upper + narrower <= off) & (off <= mean - lower - narrower)].sum())


CASES = list(product((2, 20), (2.0, 6.0), (1e-1, 1e-3), (1, 2)))


@pytest.mark.parametrize(("users", "epsilon", "delta", "digits"), CASES)
@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
def test_few_users_are_held_as_often_as_said(users: int, epsilon: float, delta: float, digits: int) -> None:
    plan = ss.plan(
        users=users,
        shape=(),
        epsilon=epsilon,
        delta=delta,
        mechanism=ss.NoisyCounts.Options(digits=digits),
    )
    for fraction, level in product((0.0, 0.1, 0.5), (0.5, 0.8, 0.95, 0.9999)):
        assert coverage(plan, fraction, level) >= level, (fraction, level)


@pytest.mark.filterwarnings("ignore::shufflesum.ShufflesumWarning")
def test_without_half_a_step_they_would_not_be() -> None:
    plan = ss.plan(users=20, shape=(), epsilon=6, delta=1e-3, mechanism=ss.NoisyCounts.Options(digits=1))
    assert coverage(plan, 0.5, 0.95, continuity=False) < 0.94
