from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.plan_builders import encoding_for
from tests.refusals import refusal

from shufflesum.domains import Arrays, Symmetric
from shufflesum.encodings import Levels
from shufflesum.errors import PlanError
from shufflesum.mechanisms import RandomizedResponse
from shufflesum.privacy import Guarantee, RandomizedResponseAccountant, local_epsilon

SIX = Levels(6)
MECHANISM = RandomizedResponse(2, 3, 0.25, "uniform")
GUARANTEE = Guarantee(1.0, 1e-6, users=5000, honest_fraction=0.9, rounds=4)
ACCOUNTANT = RandomizedResponseAccountant(
    users=5000,
    levels=3,
    noise_probability=0.25,
    coordinates=2,
    rounds=4,
    dimension=6,
    sampling="uniform",
    honest_fraction=0.9,
)


def test_every_number_that_privacy_depends_on_reaches_the_accountant() -> None:
    """Symmetric 3 x 3 matrices have six coordinates, in all of which adjacent data sets may differ."""
    encoding = encoding_for(Arrays(Symmetric(3), (-5.0, 5.0)), RandomizedResponse)
    assert MECHANISM.accountant(encoding, GUARANTEE) == ACCOUNTANT


@pytest.mark.parametrize("change", [{"users": 5001}, {"honest_fraction": 0.8}, {"rounds": 5}], ids=str)
def test_another_guarantee_is_another_accountant(change: dict[str, Any]) -> None:
    assert MECHANISM.accountant(Levels(6), replace(GUARANTEE, **change)) == replace(ACCOUNTANT, **change)


def test_local_epsilon_adds_up_over_coordinates_and_rounds() -> None:
    found = MECHANISM.accountant(Levels(6), GUARANTEE).local_epsilon
    assert found == local_epsilon(levels=3, noise_probability=0.25, coordinates=2, rounds=4)


def test_a_claim_is_confirmed_by_the_accountant_it_names_and_none_confirms_nothing() -> None:
    mechanism = RandomizedResponse(1, 3, 0.25)
    certified = mechanism.accountant(Levels(6), GUARANTEE)
    epsilon = certified.epsilon(1e-6).upper
    certified.check_claim(replace(GUARANTEE, epsilon=epsilon))
    for false in (
        replace(GUARANTEE, epsilon=0.98 * epsilon),
        replace(GUARANTEE, epsilon=epsilon, delta=0.98e-6),
    ):
        with refusal("claim-not-confirmed", error=PlanError):
            certified.check_claim(false)
    published = replace(GUARANTEE, users=50_000, epsilon=0.9, rounds=1, accountant="paper")
    mechanism.accountant(Levels(6), published).check_claim(published)
    with refusal("claim-not-confirmed", error=PlanError):
        mechanism.accountant(Levels(6), published).check_claim(replace(published, epsilon=0.5))
    with refusal("no-guarantee", error=PlanError):
        certified.check_claim(replace(GUARANTEE, accountant="none"))
