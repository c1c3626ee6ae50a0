"""One user in a thousand without noise: the audit looks for it, and where it cannot see it, what it costs is computed.

The victim is silent for certain, and so is every thousandth of the others. Under `noisy-counts` what is left is the
noise of 999 in 1000, less the victim's. Under `randomized-response` a victim who is never replaced sends its cell among
the others' blanket: what `NoisySlotsAccountant` bounds, with a trial for each of the others, and a round for each
block.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.audit.reference_clients import Wrapped
from tests.plan_builders import replace_of

import shufflesum as ss
from shufflesum.audit import audit
from shufflesum.audit.findings import RareEventTest, deviation, rare_event
from shufflesum.mechanisms import NoisyCounts, NoisySlots
from shufflesum.mechanisms.auditing import Attack
from shufflesum.privacy.noisy_slots import NoisySlotsAccountant

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
        users=users,
        shape=6,
        epsilon=1.0,
        delta=DELTA,
        mechanism=ss.RandomizedResponse.Options(coordinates=coordinates, levels=levels),
    )
    mechanism = replace_of(plan)
    chance = mechanism.noise_probability * honest_noise(users) * users / (users - 1)
    silent = NoisySlotsAccountant(users - 1, chance, mechanism.values, rounds=coordinates)
    assert most - 0.03 < silent.epsilon_upper(DELTA) <= most


def test_under_add_it_costs_next_to_nothing() -> None:
    for domain in (ss.Arrays(4), ss.Categories(5)):
        plan = ss.plan(users=10_000, domain=domain, epsilon=1.0, delta=DELTA, mechanism="noisy-counts")
        assert isinstance(plan.mechanism, NoisyCounts | NoisySlots)
        left = replace(plan.guarantee, honest_fraction=plan.guarantee.honest_fraction * honest_noise(10_000))
        assert 1.0 < replace(plan, guarantee=left).privacy.epsilon(DELTA).upper < 1.001


def attack_of(plan: ss.Plan) -> Attack:
    return plan.mechanism.attack(plan.encoding, plan.domain, plan.guarantee, lambda _: np.arange(plan.cells))


def event_of(plan: ss.Plan) -> RareEventTest:
    attack = attack_of(plan)
    assert attack.silent is not None
    found = rare_event(attack.cell_groups(0)[0], attack.silent)
    assert found is not None
    return found


def replaced(coordinates: int = 6) -> ss.Plan:
    return ss.plan(
        users=1_000,
        shape=6,
        epsilon=1.0,
        delta=DELTA,
        mechanism=ss.RandomizedResponse.Options(coordinates=coordinates, levels=3),
    )


@pytest.mark.parametrize("coordinates", [2, 6])
def test_under_replace_it_is_that_a_user_sends_nothing_but_the_truth(coordinates: int) -> None:
    plan = replaced(coordinates)
    event = event_of(plan)
    assert (event.edge, event.few) == (0, True)
    noise = replace_of(plan).noise_probability
    assert event.chance == pytest.approx((1 - noise * 3 / 4) ** coordinates, rel=1e-12)
    seen = event.chance + 0.001 * (1 - event.chance)
    assert deviation(event.users * seen, event.users, event.chance) == pytest.approx(50)
    honest = ss.Randomizer(plan).randomize(np.zeros((40, 6))).cells.reshape(40, -1)
    true = (honest % 4 == 0).all(axis=1)
    crowd = int(np.argmax([event.counted[cell] == 0 for cell in range(4)]))  # the value that crowd 0 holds
    assert event.happened(honest // 4 * 4 + (honest % 4 + crowd) % 4) == np.count_nonzero(true)
    assert event.happened(np.full((3, 2), plan.cells + 5, dtype=np.uint32)) == 3  # no cells at all are no noise


def test_in_a_ball_it_is_that_more_bits_agree_than_chance_allows() -> None:
    event = event_of(ss.plan(users=500, domain=ss.L2Ball(60, clipping_norm=2.0), epsilon=1.0, delta=DELTA))
    assert not event.few
    assert event.chance < 1e-4
    assert event.users == pytest.approx(50_000)


def test_where_it_costs_nothing_it_is_not_looked_for() -> None:
    for domain in (ss.Arrays(4), ss.Categories(5)):
        assert (
            attack_of(ss.plan(users=1_000, domain=domain, epsilon=1.0, delta=DELTA, mechanism="noisy-counts")).silent
            is None
        )


class FewTruthful(Wrapped):
    """One user in a thousand, our own randomizer for the others."""

    def spoilt(self, cells: NDArray[np.uint32], rows: NDArray[np.float64]) -> NDArray[np.uint32]:
        levels = replace_of(self.plan).levels
        few = self.rng.random(len(cells)) < 0.001
        held = np.rint(np.asarray(rows)[few] * levels).astype(np.uint32)
        cells[few] = cells[few] // (levels + 1) * (levels + 1) + held  # every coordinate is reported, in order
        return cells


@pytest.mark.slow
@pytest.mark.parametrize("client", [FewTruthful, Wrapped])
def test_it_is_seen_where_it_matters_most(client: type[Wrapped]) -> None:
    """In a small part of the default time, where nobody else uses the machine."""
    plan = replaced()
    result = audit(plan, randomize=client(plan), trials=20, seconds=200)
    assert result.passed == (client is Wrapped)
    assert all("at most 0 times" in finding for finding in result.findings)
