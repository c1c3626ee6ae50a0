from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.plan_builders import replace_of
from tests.refusals import refusal

import shufflesum
from shufflesum import Plan
from shufflesum.errors import ParameterError, PlanError
from shufflesum.randomness import random_uints
from shufflesum.testing import SeededSource, unprotected_plan


def test_a_seed_decides_all_words_and_different_seeds_differ() -> None:
    first, second, other = (random_uints(SeededSource(seed), 100, np.uint32).tolist() for seed in (1, 1, 2))
    assert first == second != other


def test_a_seeded_source_goes_on_and_does_not_start_again() -> None:
    source = SeededSource(1)
    assert random_uints(source, 100, np.uint32).tolist() != random_uints(source, 100, np.uint32).tolist()


def test_the_seeded_source_is_not_among_the_public_names() -> None:
    assert "SeededSource" not in dir(shufflesum)
    assert "SeededSource" not in dir(shufflesum.protocol)
    assert "SeededSource" not in dir(shufflesum.randomness)


def test_an_unprotected_plan_claims_nothing_and_cannot_be_loaded() -> None:
    plan = unprotected_plan(users=3, shape=(2, 2))
    assert (plan.accountant, plan.epsilon, plan.delta) == ("none", math.inf, 1.0)
    assert replace_of(plan).noise_probability == 0
    assert plan.local_epsilon == math.inf
    with refusal("no-guarantee", error=PlanError):
        Plan.from_json(plan.to_json())


@pytest.mark.parametrize("noise_probability", [0.0, 1e-20, 1 / 3, 0.1, 1.0])
def test_the_noise_probability_is_rounded_up_to_the_grid(noise_probability: float) -> None:
    stored = replace_of(unprotected_plan(users=1, shape=1, noise_probability=noise_probability)).noise_probability
    assert (stored * 2**53).is_integer()
    assert Fraction(noise_probability) <= Fraction(stored) < Fraction(noise_probability) + Fraction(1, 2**53)


@pytest.mark.parametrize("noise_probability", [-0.1, 1.1, math.nan, math.inf])
def test_what_is_no_probability_is_refused(noise_probability: float) -> None:
    with refusal("out-of-range", "noise_probability is", error=ParameterError):
        unprotected_plan(users=1, shape=1, noise_probability=noise_probability)
