from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum.domain import Box, EveryCoordinate, Symmetric
from shufflesum.errors import PlanError
from shufflesum.mechanisms import Replace
from shufflesum.privacy import Guarantee, Setting, local_epsilon

MECHANISM = Replace(2, 3, 0.25, "uniform")
GUARANTEE = Guarantee(1.0, 1e-6, users=5000, honest_fraction=0.9, rounds=4)
SETTING = Setting(users=5000, levels=3, coordinates=2, rounds=4, dimension=6, sampling="uniform", honest_fraction=0.9)


def test_every_number_that_privacy_depends_on_reaches_the_accountant() -> None:
    """Symmetric 3 x 3 matrices have six coordinates, in which neighbours may differ."""
    neighbours = Box.of(Symmetric(3), (-5.0, 5.0)).neighbours
    assert neighbours == EveryCoordinate(6)
    accounting = MECHANISM.accounting(neighbours, GUARANTEE)
    assert accounting.setting == SETTING
    assert accounting.noise_probability == 0.25


@pytest.mark.parametrize(
    "change",
    [{"users": 5001}, {"honest_fraction": 0.8}, {"rounds": 5}],
    ids=str,
)
def test_another_guarantee_is_another_setting(change: dict[str, Any]) -> None:
    accounting = MECHANISM.accounting(EveryCoordinate(6), replace(GUARANTEE, **change))
    assert accounting.setting == replace(SETTING, **change)


def test_answers_are_those_of_the_setting_at_the_noise_really_drawn_with() -> None:
    mechanism, guarantee = Replace(2, 3, 0.25), Guarantee(1.0, 1e-6, users=500)
    setting = Setting(users=500, levels=3, coordinates=2, dimension=6)
    accounting = mechanism.accounting(EveryCoordinate(6), guarantee)
    assert accounting.delta(0.5) == setting.delta(0.25, 0.5)
    assert accounting.epsilon(1e-4) == setting.epsilon(0.25, 1e-4)
    assert accounting.local_epsilon == local_epsilon(levels=3, noise_probability=0.25, coordinates=2, rounds=1)
    ours, its = (
        part.get_epsilon_for_delta(1e-4)
        for part in (
            accounting.to_dp_accounting(value_discretization_interval=1e-2),
            setting.to_dp_accounting(0.25, value_discretization_interval=1e-2),
        )
    )
    assert ours == its >= accounting.epsilon(1e-4).upper


def test_a_claim_is_confirmed_by_the_accountant_it_names_and_none_confirms_nothing() -> None:
    mechanism = Replace(1, 3, 0.25)
    certified = mechanism.accounting(EveryCoordinate(6), GUARANTEE)
    epsilon = certified.epsilon(1e-6).upper
    certified.check_claim(replace(GUARANTEE, epsilon=epsilon))
    for false in (
        replace(GUARANTEE, epsilon=0.98 * epsilon),
        replace(GUARANTEE, epsilon=epsilon, delta=0.98e-6),
    ):
        with refusal("claim-not-confirmed", error=PlanError):
            certified.check_claim(false)
    published = replace(GUARANTEE, users=50_000, epsilon=0.9, rounds=1, accountant="paper")
    mechanism.accounting(EveryCoordinate(6), published).check_claim(published)
    with refusal("claim-not-confirmed", error=PlanError):
        mechanism.accounting(EveryCoordinate(6), published).check_claim(replace(published, epsilon=0.5))
    with refusal("no-guarantee", error=PlanError):
        certified.check_claim(replace(GUARANTEE, accountant="none"))
