"""The auditor must clear the honest and convict the broken.

Every audit here has confidence 1 - 1e-6, so an honest randomizer is accused with probability below 1e-6; sources are
seeded besides. The twins of the honest runs are sabotaged randomizers that the same code must catch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.audit.reference_clients import SeededPerProcess
from tests.plan_builders import replace_of
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import Randomizer
from shufflesum.audit import AuditResult, audit
from shufflesum.cells import BLANK
from shufflesum.encodings import Levels, Values
from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.mechanisms.randomized_response.randomize import RandomizedResponseEncoder
from shufflesum.randomness import UInts
from shufflesum.testing import SeededSource, unprotected_plan

SETTINGS: dict[str, dict[str, Any]] = {
    "every coordinate, two values": {
        "users": 1_000,
        "shape": 4,
        "mechanism": ss.RandomizedResponse.Options(coordinates=4, levels=1),
    },
    "every coordinate, four values": {
        "users": 1_000,
        "shape": 5,
        "mechanism": ss.RandomizedResponse.Options(coordinates=5, levels=3),
    },
    "blocks, five values": {
        "users": 1_000,
        "shape": 6,
        "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=4),
    },
    "one report, two values": {
        "users": 1_000,
        "shape": 3,
        "mechanism": ss.RandomizedResponse.Options(coordinates=1, levels=1),
    },
    "one report, many values": {
        "users": 500,
        "shape": 2,
        "mechanism": ss.RandomizedResponse.Options(coordinates=1, levels=12),
    },
    "honest part, rounds": {
        "users": 2_000,
        "shape": 2,
        "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=2),
        "honest_fraction": 0.5,
        "rounds": 3,
    },
}
EVERY_SETTING = [
    pytest.param(
        name, marks=pytest.mark.slow if name not in ("every coordinate, four values", "honest part, rounds") else ()
    )
    for name in SETTINGS
]
OVERLAPPING = {
    "users": 2_000,
    "shape": 4,
    "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=2, sampling="uniform"),
}


def planned(**settings: Any) -> ss.Plan:
    return ss.plan(**{"epsilon": 1.0, "delta": 1e-6, **settings})


def audited(randomizer: Randomizer, *, samples: int = 2_000_000, trials: int = 0) -> AuditResult:
    """Many rows in one call; tests/audit/test_paths.py is about the other paths."""
    return audit(
        randomizer.plan,
        randomize=randomizer.randomize,
        one_row={},
        samples=samples,
        trials=trials,
        seconds=math.inf,
    )


def honest(plan: ss.Plan, seed: int) -> Randomizer:
    return Randomizer(plan, source=SeededPerProcess(seed))


def sabotaged(plan: ss.Plan, encoder: type[RandomizedResponseEncoder], seed: int) -> Randomizer:
    randomizer = Randomizer(plan)
    randomizer._encoder = encoder(replace_of(plan), plan.domain.numbers, plan.dimension, SeededPerProcess(seed))
    return randomizer


class HalfTheNoise(RandomizedResponseEncoder):
    part = 0.5

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._noise_numerator = np.uint64(self.part * int(self._noise_numerator))


class TenPerCentLessNoise(HalfTheNoise):
    part = 0.9


class NoNoise(HalfTheNoise):
    part = 0.0


class NoiseOnTheLowerHalf(RandomizedResponseEncoder):
    """Replaces as often as planned, but never by the largest values."""

    def _privatize(self, first_cells: UInts, positions: NDArray[np.float64]) -> NDArray[np.uint32]:
        values = super()._privatize(first_cells, positions) - first_cells
        replaced = values != np.rint(positions)
        values = np.where(replaced, np.minimum(values, self._mechanism.levels // 2), values)
        return (first_cells + values).astype(np.uint32)


class NoNoiseOnTheLastCoordinate(RandomizedResponseEncoder):
    def encode(self, block: Values) -> NDArray[np.uint32]:
        cells = super().encode(block)
        first = (self._dimension - 1) * self._mechanism.values
        truth = first + np.rint(block.values[:, -1] * self._mechanism.levels)
        owners = np.arange(len(cells)) // self._mechanism.coordinates
        return np.where(cells >= first, truth[owners], cells).astype(np.uint32)


class LopsidedCoordinates(RandomizedResponseEncoder):
    """Now and then reports the first coordinate of a block instead of the one that was drawn."""

    def _sample(self, users: int) -> UInts:
        drawn = super()._sample(users)
        drawn[::50] = self._mechanism.block_starts(Levels(self._dimension))
        return drawn


class CuriousCoordinates(RandomizedResponseEncoder):
    """Prefers a coordinate with a large value: which one is reported then says something of the data."""

    def encode(self, block: Values) -> NDArray[np.uint32]:
        self._largest = block.values.argmax(axis=1)
        self._unequal = np.ptp(block.values, axis=1) > 0
        return super().encode(block)

    def _sample(self, users: int) -> UInts:
        drawn = super()._sample(users)
        chosen = self._unequal & (np.arange(users) % 10 == 0)
        drawn[chosen, 0] = self._largest[chosen]
        return drawn


class SameDrawsEveryTime(RandomizedResponseEncoder):
    def encode(self, block: Values) -> NDArray[np.uint32]:
        self._source = SeededSource(7)
        return super().encode(block)


class Overwritten(RandomizedResponseEncoder):
    """Every thousandth report is another one."""

    def encode(self, block: Values) -> NDArray[np.uint32]:
        cells = super().encode(block)
        cells[::1000] = self._other()
        return cells

    def _other(self) -> int:
        """The first number that is no cell."""
        return self._mechanism.cells(Levels(self._dimension))


class NowAndThenABlank(Overwritten):
    def _other(self) -> int:
        return BLANK


class ValuesBeyondTheLevels(RandomizedResponseEncoder):
    """One value too many, which is the next coordinate's first."""

    def _privatize(self, first_cells: UInts, positions: NDArray[np.float64]) -> NDArray[np.uint32]:
        cells = super()._privatize(first_cells, positions)
        cells[::1000] = first_cells[::1000] + self._mechanism.values
        return cells


@pytest.mark.parametrize("name", EVERY_SETTING)
def test_an_honest_randomizer_passes_and_the_attack_comes_close_to_the_certificate(name: str) -> None:
    plan = planned(**SETTINGS[name])
    result = audited(honest(plan, 1), trials=100)
    result.require()
    assert result.passed
    assert not result.crossed
    assert result.epsilon_upper <= plan.epsilon
    # K = 2 in larger blocks: there the certificate itself is not tight
    assert result.epsilon_lower > (0.7 if name == "one report, two values" else 0.9) * result.epsilon_upper
    assert result.report_attack.noise > 1


@pytest.mark.parametrize("name", EVERY_SETTING)
def test_half_the_noise_crosses_the_certificate(name: str) -> None:
    plan = planned(**SETTINGS[name])
    result = audited(sabotaged(plan, HalfTheNoise, 2))
    assert result.crossed
    assert not result.passed
    assert result.report_attack.epsilon_lower > 1.3 * result.epsilon_upper
    with refusal("audit-failed", error=PrivacyError):
        result.require()


def test_ten_per_cent_less_noise_is_enough_to_be_caught() -> None:
    plan = planned(**SETTINGS["every coordinate, four values"])
    assert audited(sabotaged(plan, TenPerCentLessNoise, 3), samples=12_000_000).crossed


def test_overlapping_subsets_have_no_lower_bound_but_their_law_is_checked() -> None:
    plan = planned(**OVERLAPPING)
    cleared = audited(honest(plan, 4), trials=50)
    assert cleared.passed
    assert not cleared.lower_bound_known
    assert cleared.report_attack.epsilon_lower == 0
    broken = audited(sabotaged(plan, HalfTheNoise, 4))
    assert not broken.crossed
    assert broken.findings
    assert not broken.passed


@pytest.mark.slow
def test_rare_noise_is_missed_first_in_all_reports_together() -> None:
    """Some 220 of 40 million reports should be noise, too few in any one place; half of them are missing."""
    plan = planned(users=10**8, shape=1, mechanism=ss.RandomizedResponse.Options(levels=12))
    assert audited(honest(plan, 12), samples=40_000_000).passed
    broken = audited(sabotaged(plan, HalfTheNoise, 12), samples=40_000_000)
    assert not broken.crossed
    assert any("the value held" in finding for finding in broken.findings)


@pytest.mark.parametrize(
    ("sabotage", "settings", "finding"),
    [
        pytest.param(
            NoiseOnTheLowerHalf,
            {"users": 1_000, "shape": 5, "mechanism": ss.RandomizedResponse.Options(coordinates=5, levels=4)},
            "value",
            marks=pytest.mark.slow,
        ),
        (
            NoNoiseOnTheLastCoordinate,
            {"users": 5_000, "shape": 40, "mechanism": ss.RandomizedResponse.Options(coordinates=40, levels=3)},
            "coordinate 39 with",
        ),
        pytest.param(
            LopsidedCoordinates,
            {"users": 1_000, "shape": 8, "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=2)},
            "coordinate",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            CuriousCoordinates,
            {"users": 1_000, "shape": 8, "mechanism": ss.RandomizedResponse.Options(coordinates=1, levels=2)},
            "coordinate",
            marks=pytest.mark.slow,
        ),
        (
            Overwritten,
            {"users": 1_000, "shape": 4, "mechanism": ss.RandomizedResponse.Options(coordinates=4, levels=2)},
            "name no cell of the plan",
        ),
        (
            NowAndThenABlank,
            {"users": 1_000, "shape": 8, "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=2)},
            "a cell was reported",
        ),
        pytest.param(
            ValuesBeyondTheLevels,
            {"users": 1_000, "shape": 4, "mechanism": ss.RandomizedResponse.Options(coordinates=4, levels=2)},
            "coordinate",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_sabotage_is_found_where_the_honest_twin_passes(
    sabotage: type[RandomizedResponseEncoder], settings: dict[str, Any], finding: str
) -> None:
    plan = planned(**settings)
    assert audited(honest(plan, 5), samples=500_000).findings == ()
    result = audited(sabotaged(plan, sabotage, 5), samples=500_000)
    assert not result.passed
    assert any(finding in text for text in result.findings)
    with refusal("audit-failed", finding, error=PrivacyError):
        result.require()


@pytest.mark.parametrize("sabotage", [NoiseOnTheLowerHalf, SameDrawsEveryTime])
def test_defects_that_no_honest_noise_resembles_are_proved_by_telling_batches_apart(
    sabotage: type[RandomizedResponseEncoder],
) -> None:
    plan = planned(users=300, shape=3, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=4))
    result = audited(sabotaged(plan, sabotage, 6), samples=1, trials=400)
    assert result.batch_attack.epsilon_lower > result.epsilon_upper
    assert result.crossed


@pytest.mark.parametrize("levels", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_without_noise_telling_batches_apart_is_enough(levels: int) -> None:
    plan = planned(users=300, shape=2, mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=levels))
    broken = audited(sabotaged(plan, NoNoise, 7), samples=1, trials=400)
    assert broken.batch_attack.batches == 400
    assert broken.batch_attack.epsilon_lower > broken.epsilon_upper
    cleared = audited(honest(plan, 7), samples=1, trials=400)
    assert cleared.batch_attack.epsilon_lower <= cleared.epsilon_upper


def test_batches_alone_prove_a_positive_bound_where_little_is_hidden() -> None:
    """At epsilon 4 and delta 0.01 honest batches differ plainly, and the bound must not exceed the certificate."""
    plan = planned(
        users=20, shape=1, mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=2), epsilon=4.0, delta=0.01
    )
    result = audited(honest(plan, 8), samples=1, trials=4_000)
    assert 0.3 < result.batch_attack.epsilon_lower <= result.epsilon_upper


@pytest.mark.parametrize(
    ("shape", "bounds"),
    [
        pytest.param(ss.Symmetric(3), (-1.0, 2.5), marks=pytest.mark.slow),
        pytest.param(ss.Span([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), (0.1, 0.7), marks=pytest.mark.slow),
        ((2, 2), (np.array([[0.0, -5.0], [0.3, 1e-3]]), np.array([[0.1, 5.0], [1e6, 2e-3]]))),
    ],
)
def test_any_shape_and_bounds_can_be_audited(shape: Any, bounds: Any) -> None:
    plan = planned(
        users=1_000, shape=shape, mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=3), bounds=bounds
    )
    assert audited(honest(plan, 9), samples=500_000, trials=20).passed
    assert audited(sabotaged(plan, HalfTheNoise, 9), samples=500_000).crossed


def test_the_installed_randomizer_is_attacked_by_default_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(users=1_000, shape=2, mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=2))
    parts: list[float] = []
    result = audit(plan, seconds=1.0, progress=parts.append)
    assert result.passed
    assert result.report_attack.reports > 0
    assert parts
    assert all(0 <= part <= 1 for part in parts)
    monkeypatch.setattr("shufflesum.mechanisms.randomized_response.mechanism.RandomizedResponseEncoder", HalfTheNoise)
    assert audit(plan, seconds=1.0).crossed


def test_a_batch_too_large_for_the_time_is_given_up() -> None:
    plan = planned(users=10**10, shape=1, mechanism=ss.RandomizedResponse.Options(levels=2))
    assert audit(plan, seconds=0.5, samples=1).batch_attack.batches == 0


@pytest.mark.parametrize(
    ("options", "knob"),
    [
        ({"confidence": 1.0}, "confidence"),
        ({"seconds": 0.0}, "seconds"),
        ({"samples": 0}, "samples"),
        ({"trials": -1}, "trials"),
    ],
)
def test_options_out_of_range_are_refused_by_name(options: dict[str, Any], knob: str) -> None:
    with refusal("out-of-range", knob, error=ParameterError):
        audit(planned(users=1_000, shape=1, mechanism=ss.RandomizedResponse.Options(levels=2)), **options)


def test_a_plan_without_a_guarantee_has_nothing_to_audit() -> None:
    with refusal("no-guarantee", error=PlanError):
        audit(unprotected_plan(users=10, shape=1, noise_probability=0.5))
