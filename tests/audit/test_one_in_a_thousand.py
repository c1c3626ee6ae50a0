"""One user in a thousand without noise: where the audit cannot see it, what it costs is computed.

The victim is silent for certain, and so is every thousandth of the others. Under `add` what is left is the noise of
999 in 1000, less the victim's. Under `replace` a victim who is never replaced sends its cell among the others' blanket:
what `Slots` bounds, with a trial for each of the others, and a round for each block.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.replaced import replace_of

import shufflesum as ss
from shufflesum.mechanisms import Add, AddSlots
from shufflesum.privacy.slots import Slots

DELTA = 1e-6


def honest_noise(users: int) -> float:
    """The part of all users whose noise is left."""
    return (users - 1 - math.ceil(users / 1000)) / users


@pytest.mark.parametrize(
    ("users", "coordinates", "levels", "most"),
    [(10_000, 1, 1, 1.02), (10_000, 4, 4, 1.08), (10_000, 6, 3, 1.09), (1_000, 1, 1, 1.11), (1_000, 6, 3, 1.63)],
)
def test_under_replace_the_silent_user_loses_the_more_the_more_reports_are_noise(
    users: int, coordinates: int, levels: int, most: float
) -> None:
    """Little among many users; among few, whose reports are noise more often, not."""
    plan = ss.plan(
        users=users, shape=6, epsilon=1.0, delta=DELTA, coordinates=coordinates, levels=levels, mechanism="replace"
    )
    mechanism = replace_of(plan)
    chance = mechanism.noise_probability * honest_noise(users) * users / (users - 1)
    silent = Slots(users - 1, chance, mechanism.values, rounds=coordinates)
    assert most - 0.03 < silent.epsilon_upper(DELTA) <= most


def test_under_add_it_costs_next_to_nothing() -> None:
    for shape in (4, ss.Categories(5)):
        plan = ss.plan(users=10_000, shape=shape, epsilon=1.0, delta=DELTA, mechanism="add")
        mechanism = plan.mechanism
        assert isinstance(mechanism, Add | AddSlots)
        left = replace(plan.guarantee, honest_fraction=plan.guarantee.honest_fraction * honest_noise(10_000))
        assert 1.0 < mechanism.accounting(plan.domain.neighbours, left).epsilon(DELTA).upper < 1.001
