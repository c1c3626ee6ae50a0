"""The chances of rows off the levels, where rounding enters: the honest keep them, and a little to the side shows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.audit.audited_plans import SETTINGS, planned

import shufflesum as ss
from shufflesum.audit.findings import Sums, Watch, judged
from shufflesum.mechanisms.auditing import BETWEEN, SINGLE, off_levels, positions_of

USERS = 40_000
NAMES = (
    "randomized-response",
    "randomized response, blocks",
    "randomized response, subsets",
    "noisy-counts",
    "groups",
    "bounds about zero",
    "one digit",
)
MORE: dict[str, dict[str, Any]] = {
    "bounds about zero": {
        "users": 1_000,
        "shape": 5,
        "bounds": (-1.0, 1.0),
        "mechanism": ss.RandomizedResponse.Options(coordinates=5, levels=3),
    },
    "one digit": {"users": 1_000, "shape": 3, "mechanism": ss.NoisyCounts.Options(digits=1)},
}


def plan_of(name: str) -> ss.Plan:
    return planned(name) if name in SETTINGS else ss.plan(epsilon=1.0, delta=1e-6, **MORE[name])


def findings(plan: ss.Plan, moved: float) -> tuple[str, ...]:
    """Of honest users whose values lie so much of the bounds' width nearer to the middle than is thought."""
    attack = plan.mechanism.attack(
        plan.encoding, plan.domain, plan.guarantee, lambda row: np.zeros(plan.cells, dtype=np.int64)
    )
    sums = Sums()
    watch, randomizer = Watch(attack, sums, "closely", plan.honest_users), ss.Randomizer(plan)
    box = plan.domain.numbers
    middle = (box.lower + box.upper) / 2
    for number, (kind, row) in enumerate(attack.variants):
        if kind in (BETWEEN, SINGLE):
            rows = plan.domain.repeated(row, USERS)
            values = rows[1] if isinstance(plan.domain, ss.GroupBy) else rows
            values += np.sign(middle - values) * np.minimum(moved * box.width, np.abs(middle - values))
            watch.held(number, randomizer.randomize(rows).cells.reshape(USERS, -1))
    return judged(list(sums.counts().items()), 1e-6).findings


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_honest_users_keep_the_chances_and_those_a_little_to_the_side_do_not(name: str) -> None:
    """False alarms once in a million."""
    plan = plan_of(name)
    assert not findings(plan, 0.0)
    assert findings(plan, 0.03)


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0), (2.0, 5.0)])
def test_single_entries_are_in_different_places_on_levels_and_off_them(bounds: tuple[float, float]) -> None:
    box: Any = ss.plan(
        users=1_000,
        shape=6,
        bounds=bounds,
        epsilon=1.0,
        delta=1e-6,
        mechanism=ss.RandomizedResponse.Options(coordinates=6, levels=3),
    ).domain
    zero = np.clip(0.0, *bounds)
    rows = [row for kind, row in off_levels(box, 3) if kind == SINGLE]
    entries = [np.flatnonzero(row != zero) for row in rows]
    assert {entry.size for entry in entries} == {1}
    assert len({int(entry[0]) for entry in entries}) == len(rows)
    values = [float(row[entry[0]]) for row, entry in zip(rows, entries, strict=True)]
    places = positions_of(box, np.array(values + 2 * [zero]), 3)[: len(values)]
    assert places[0] in (0.0, 3.0)
    assert places[1] in (1.0, 2.0)
    assert all(place % 1 for place in places[2:])
