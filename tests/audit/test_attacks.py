"""The auditor must clear the honest and convict the broken.

Every audit here has confidence 1 - 1e-6, so an honest randomizer is accused with probability below 1e-6; sources are
seeded besides. The twins of the honest runs are sabotaged randomizers that the same code must catch.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import beta, binom

import shufflesum as ss
from shufflesum._evidence import chances, honest_law, noise_simulated
from shufflesum.audit import AuditResult, _log_likelihood_ratio, audit
from shufflesum.errors import ParameterError, PlanError, PrivacyError
from shufflesum.protocol import Counts, Randomizer, Reports
from shufflesum.protocol.randomness import Words
from shufflesum.testing import SeededSource, unprotected_plan

SETTINGS: dict[str, dict[str, Any]] = {
    "every coordinate, two values": {"users": 1_000, "shape": 4, "levels": 1, "reports": 4},
    "every coordinate, four values": {"users": 1_000, "shape": 5, "levels": 3, "reports": 5},
    "blocks, five values": {"users": 1_000, "shape": 6, "levels": 4, "reports": 2},
    "one report, two values": {"users": 1_000, "shape": 3, "levels": 1, "reports": 1},
    "one report, many values": {"users": 500, "shape": 2, "levels": 12, "reports": 1},
    "honest part, rounds": {"users": 2_000, "shape": 2, "levels": 2, "honest_fraction": 0.5, "rounds": 3, "reports": 2},
}
OVERLAPPING = {"users": 2_000, "shape": 4, "levels": 2, "reports": 2, "sampling": "uniform"}


def planned(**settings: Any) -> ss.Plan:
    return ss.plan(**{"epsilon": 1.0, "delta": 1e-6, **settings})


def audited(randomizer: Randomizer, *, samples: int = 2_000_000, trials: int = 0) -> AuditResult:
    return audit(randomizer.plan, randomize=randomizer.randomize, samples=samples, trials=trials, seconds=math.inf)


class HalfTheNoise(Randomizer):
    def __init__(self, plan: ss.Plan, **options: Any) -> None:
        super().__init__(plan, **options)
        self._noise_numerator //= np.uint64(2)


class NoNoise(HalfTheNoise):
    def __init__(self, plan: ss.Plan, **options: Any) -> None:
        super().__init__(plan, **options)
        self._noise_numerator = np.uint64(0)


class NoiseOnTheLowerHalf(Randomizer):
    """Replaces as often as planned, but never by the largest values."""

    def _privatize(self, positions: NDArray[np.float64]) -> NDArray[np.uint16]:
        values = super()._privatize(positions)
        replaced = values != np.rint(positions)
        return np.where(replaced, np.minimum(values, self.plan.levels // 2), values).astype(np.uint16)


class NoNoiseOnTheLastCoordinate(Randomizer):
    def _randomize_block(self, rows: NDArray[Any], first_row: int) -> Reports:
        reports = super()._randomize_block(rows, first_row)
        last = reports.coordinates == self.plan.dimension - 1
        truth = np.rint(rows.reshape(len(rows), -1)[:, -1] * self.plan.levels)
        owners = np.arange(len(reports)) // self.plan.reports
        values = np.where(last, truth[owners], reports.values).astype(np.uint16)
        return Reports(reports.plan_id, reports.coordinates, values)


class LopsidedCoordinates(Randomizer):
    """Now and then reports the first coordinate of a block instead of the one that was drawn."""

    def _sample_coordinates(self, users: int) -> Words:
        drawn = super()._sample_coordinates(users).copy()
        starts = np.arange(self.plan.reports) * self.plan.dimension // self.plan.reports
        drawn[::50] = starts
        return drawn


class CuriousCoordinates(Randomizer):
    """Prefers a coordinate with a large value: which one is reported then says something of the data."""

    def _randomize_block(self, rows: NDArray[Any], first_row: int) -> Reports:
        self._largest = rows.reshape(len(rows), -1).argmax(axis=1)
        self._unequal = np.ptp(rows.reshape(len(rows), -1), axis=1) > 0
        return super()._randomize_block(rows, first_row)

    def _sample_coordinates(self, users: int) -> Words:
        drawn = super()._sample_coordinates(users).copy()
        chosen = self._unequal & (np.arange(users) % 10 == 0)
        drawn[chosen, 0] = self._largest[chosen]
        return drawn


class SameDrawsEveryTime(Randomizer):
    def _randomize_block(self, rows: NDArray[Any], first_row: int) -> Reports:
        self._source = SeededSource(7)
        return super()._randomize_block(rows, first_row)


class ValuesOutside(Randomizer):
    def _privatize(self, positions: NDArray[np.float64]) -> NDArray[np.uint16]:
        values = super()._privatize(positions)
        values[::1000] = self.plan.levels + 1
        return values


@pytest.mark.parametrize("name", SETTINGS)
def test_an_honest_randomizer_passes_and_the_attack_comes_close_to_the_certificate(name: str) -> None:
    plan = planned(**SETTINGS[name])
    result = audited(Randomizer(plan, source=SeededSource(1)), trials=100)
    result.require()
    assert result.passed
    assert not result.crossed
    assert result.epsilon_upper <= plan.epsilon
    # K = 2 in larger blocks: there the certificate itself is not tight
    assert result.epsilon_lower > (0.7 if name == "one report, two values" else 0.9) * result.epsilon_upper
    assert result.report_attack.noise_probability > plan.noise_probability


@pytest.mark.parametrize("name", SETTINGS)
def test_half_the_noise_crosses_the_certificate(name: str) -> None:
    plan = planned(**SETTINGS[name])
    result = audited(HalfTheNoise(plan, source=SeededSource(2)))
    assert result.crossed
    assert not result.passed
    assert result.report_attack.epsilon_lower > 1.3 * result.epsilon_upper
    with pytest.raises(PrivacyError, match="above the certified"):
        result.require()


def test_ten_per_cent_less_noise_is_enough_to_be_caught() -> None:
    plan = planned(**SETTINGS["every coordinate, four values"])
    randomizer = Randomizer(plan, source=SeededSource(3))
    randomizer._noise_numerator = np.uint64(0.9 * int(randomizer._noise_numerator))
    assert audited(randomizer, samples=12_000_000).crossed


def test_overlapping_subsets_have_no_lower_bound_but_their_law_is_checked() -> None:
    plan = planned(**OVERLAPPING)
    honest = audited(Randomizer(plan, source=SeededSource(4)), trials=50)
    assert honest.passed
    assert honest.report_attack.epsilon_lower == 0
    broken = audited(HalfTheNoise(plan, source=SeededSource(4)))
    assert not broken.crossed
    assert broken.findings
    assert not broken.passed


@pytest.mark.slow
def test_rare_noise_is_missed_first_in_all_reports_together() -> None:
    """Some 220 of 40 million reports should be noise, too few in any one place; half of them are missing."""
    plan = planned(users=10**8, shape=1, levels=12)
    assert audited(Randomizer(plan, source=SeededSource(12)), samples=40_000_000).passed
    broken = audited(HalfTheNoise(plan, source=SeededSource(12)), samples=40_000_000)
    assert not broken.crossed
    assert any("the value held" in finding for finding in broken.findings)


@pytest.mark.parametrize(
    ("sabotage", "settings", "finding"),
    [
        (NoiseOnTheLowerHalf, {"users": 1_000, "shape": 5, "levels": 4, "reports": 5}, "value"),
        (NoNoiseOnTheLastCoordinate, {"users": 5_000, "shape": 40, "levels": 3, "reports": 40}, "coordinate 39 with"),
        (LopsidedCoordinates, {"users": 1_000, "shape": 8, "levels": 2, "reports": 2}, "coordinate"),
        (CuriousCoordinates, {"users": 1_000, "shape": 8, "levels": 2, "reports": 1}, "coordinate"),
        (ValuesOutside, {"users": 1_000, "shape": 4, "levels": 2, "reports": 4}, "outside the plan's domain"),
    ],
)
def test_other_sabotage_is_found_where_the_honest_twin_passes(
    sabotage: type[Randomizer], settings: dict[str, Any], finding: str
) -> None:
    plan = planned(**settings)
    assert audited(Randomizer(plan, source=SeededSource(5))).findings == ()
    result = audited(sabotage(plan, source=SeededSource(5)))
    assert not result.passed
    assert any(finding in text for text in result.findings)
    with pytest.raises(PrivacyError, match=finding):
        result.require()


@pytest.mark.parametrize("sabotage", [NoiseOnTheLowerHalf, SameDrawsEveryTime])
def test_defects_that_no_honest_noise_resembles_are_proved_by_telling_batches_apart(sabotage: type[Randomizer]) -> None:
    plan = planned(users=300, shape=3, levels=4, reports=3)
    result = audited(sabotage(plan, source=SeededSource(6)), samples=1, trials=400)
    assert result.batch_attack.epsilon_lower > result.epsilon_upper
    assert result.crossed


@pytest.mark.parametrize("levels", [1, 3])
def test_without_noise_telling_batches_apart_is_enough(levels: int) -> None:
    plan = planned(users=300, shape=2, levels=levels, reports=2)
    broken = audited(NoNoise(plan, source=SeededSource(7)), samples=1, trials=400)
    assert broken.batch_attack.batches == 400
    assert broken.batch_attack.epsilon_lower > broken.epsilon_upper
    honest = audited(Randomizer(plan, source=SeededSource(7)), samples=1, trials=400)
    assert honest.batch_attack.epsilon_lower <= honest.epsilon_upper


def test_batches_alone_prove_a_positive_bound_where_little_is_hidden() -> None:
    """At epsilon 4 and delta 0.01 honest batches differ plainly, and the bound must not exceed the certificate."""
    plan = planned(users=20, shape=1, levels=2, reports=1, epsilon=4.0, delta=0.01)
    result = audited(Randomizer(plan, source=SeededSource(8)), samples=1, trials=4_000)
    assert 0.3 < result.batch_attack.epsilon_lower <= result.epsilon_upper


@pytest.mark.parametrize(
    ("shape", "bounds"),
    [
        (ss.Symmetric(3), (-1.0, 2.5)),
        (ss.Span([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), (0.1, 0.7)),
        ((2, 2), (np.array([[0.0, -5.0], [0.3, 1e-3]]), np.array([[0.1, 5.0], [1e6, 2e-3]]))),
    ],
)
def test_any_shape_and_bounds_can_be_audited(shape: Any, bounds: Any) -> None:
    plan = planned(users=1_000, shape=shape, levels=3, reports=2, bounds=bounds)
    assert audited(Randomizer(plan, source=SeededSource(9)), samples=500_000, trials=20).passed
    assert audited(HalfTheNoise(plan, source=SeededSource(9)), samples=500_000).crossed


def test_the_installed_randomizer_is_attacked_by_default_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(users=1_000, shape=2, levels=2, reports=2)
    parts: list[float] = []
    result = audit(plan, seconds=1.0, progress=parts.append)
    assert result.passed
    assert result.report_attack.reports > 0
    assert parts
    assert all(0 <= part <= 1 for part in parts)
    monkeypatch.setattr("shufflesum.audit.Randomizer", HalfTheNoise)
    assert audit(plan, seconds=1.0).crossed


def test_a_batch_too_large_for_the_time_is_given_up() -> None:
    plan = planned(users=10**10, shape=1, levels=2)
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
    with pytest.raises(ParameterError, match=knob):
        audit(planned(users=1_000, shape=1, levels=2), **options)


def test_a_plan_without_a_guarantee_has_nothing_to_audit() -> None:
    with pytest.raises(PlanError, match="no privacy guarantee"):
        audit(unprotected_plan(users=10, shape=1, noise_probability=0.5))


@given(
    trials=st.integers(1, 40),
    chance=st.floats(0.001, 0.999),
    chance_of_error=st.sampled_from([1e-7, 1e-3, 0.05, 0.3]),
)
@settings(max_examples=20, deadline=None)
def test_chances_are_enclosed_as_often_as_stated(trials: int, chance: float, chance_of_error: float) -> None:
    """By summing the binomial law itself, so without luck: each side fails with at most the stated probability."""
    bounds = [chances(successes, trials, chance_of_error) for successes in range(trials + 1)]
    law = binom.pmf(np.arange(trials + 1), trials, chance)
    assert sum(mass for mass, (lower, _) in zip(law, bounds, strict=True) if chance < lower - 1e-12) <= chance_of_error
    assert sum(mass for mass, (_, upper) in zip(law, bounds, strict=True) if chance > upper + 1e-12) <= chance_of_error


def test_chances_are_enclosed_almost_as_tightly_as_can_be() -> None:
    for successes, trials in [(0, 100), (3, 50), (5_000, 10**6), (10**6, 3 * 10**6)]:
        lower, upper = chances(successes, trials, 1e-7)
        exact_upper = beta.ppf(1 - 1e-7, successes + 1, trials - successes)
        exact_lower = beta.ppf(1e-7, successes, trials - successes + 1) if successes else 0.0
        assert lower <= exact_lower * (1 + 1e-9)
        assert upper >= exact_upper * (1 - 1e-9)
        centre = successes / trials
        assert upper - centre <= 1.3 * (exact_upper - centre)
        assert centre - lower <= 1.3 * (centre - exact_lower)


@pytest.mark.parametrize(("cells", "size"), [(2, 2), (3, 3), (7, 3)])
@pytest.mark.parametrize("gamma", [0.003, 0.2, 0.7])
def test_an_honest_law_known_exactly_simulates_just_itself(cells: int, size: int, gamma: float) -> None:
    law = honest_law(cells, size, gamma)
    assert noise_simulated(cells, law, law) == pytest.approx(gamma, rel=1e-6)
    assert noise_simulated(cells, 0.98 * law, 1.02 * law) > 1.01 * gamma
    assert noise_simulated(cells, np.zeros_like(law), np.ones_like(law)) == 1


@given(seed=st.integers(0, 2**32 - 1), cells=st.sampled_from([2, 3, 5]), gamma=st.floats(0.01, 0.6))
@settings(max_examples=30, deadline=None)
def test_every_law_of_the_enclosure_becomes_honest_by_a_channel(seed: int, cells: int, gamma: float) -> None:
    size = min(cells, 3)
    law = honest_law(cells, size, gamma)
    generator = np.random.default_rng(seed)
    lower, upper = law * generator.uniform(0.8, 1, law.shape), law * generator.uniform(1, 1.2, law.shape)
    found = noise_simulated(cells, lower, upper)
    if found == 1:
        return
    worst = 0.0
    for _ in range(50):
        inside = generator.uniform(lower, upper)
        np.fill_diagonal(inside, 0)
        np.fill_diagonal(inside, 1 - inside.sum(axis=1))
        channel = np.linalg.solve(inside, honest_law(cells, size, found))
        assert np.allclose(channel.sum(axis=1), 1)
        assert channel.min() > -1e-9
        worst = min(worst, float(np.linalg.solve(inside, honest_law(cells, size, found * 0.6)).min()))
    assert worst < 0  # with much less noise some law of the enclosure has no channel


def test_a_law_that_simulates_honest_noise_reveals_at_least_as_much() -> None:
    """All tables of three users, by hand: victim at 0 or 1, others at 2, noise of many shapes."""
    generator = np.random.default_rng(10)
    for _ in range(10):
        law = generator.uniform(0.0, 0.15, (3, 3))
        np.fill_diagonal(law, 0)
        np.fill_diagonal(law, 1 - law.sum(axis=1))
        honest = honest_law(3, 3, noise_simulated(3, law, law))
        ours, simulated = ([_tables([part[x], part[2], part[2]]) for x in (0, 1)] for part in (law, honest))
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            assert _divergence(epsilon, *ours) >= _divergence(epsilon, *simulated) - 1e-12
            assert _divergence(epsilon, *ours[::-1]) >= _divergence(epsilon, *simulated[::-1]) - 1e-12


def _tables(laws: list[NDArray[np.float64]]) -> dict[tuple[int, ...], float]:
    """The law of the table of counts when each user reports by a law of their own."""
    result: dict[tuple[int, ...], float] = defaultdict(float)
    for values in itertools.product(range(len(laws[0])), repeat=len(laws)):
        table = tuple(np.bincount(values, minlength=len(laws[0])))
        result[table] += math.prod(law[value] for law, value in zip(laws, values, strict=True))
    return result


def _divergence(epsilon: float, first: dict[tuple[int, ...], float], second: dict[tuple[int, ...], float]) -> float:
    return sum(max(0.0, chance - math.exp(epsilon) * second[table]) for table, chance in first.items())


@pytest.mark.parametrize(("levels", "values"), [(1, (0, 1, 0)), (2, (0, 2, 1)), (3, (3, 0, 1))])
def test_batches_are_scored_by_their_likelihood_ratio(levels: int, values: tuple[int, int, int]) -> None:
    plan = unprotected_plan(users=3, shape=1, levels=levels, noise_probability=0.3)
    law = 0.7 * np.eye(levels + 1) + 0.3 / (levels + 1)
    x, other_x, v = values
    first, second = (_tables([law[victim], law[v], law[v]]) for victim in (x, other_x))
    for table, chance in first.items():
        counts = Counts(plan)
        counts.table[0] = table
        assert _log_likelihood_ratio(plan, counts, values) == pytest.approx(math.log(chance / second[table]))


def test_scores_of_blocks_add_up() -> None:
    whole = unprotected_plan(users=5, shape=4, reports=2, levels=2, noise_probability=0.3)
    part = unprotected_plan(users=5, shape=1, levels=2, noise_probability=0.3)
    both = _scored(whole, [[1, 0, 1], [2, 1, 0], [0, 1, 1], [1, 2, 0]])
    assert both == pytest.approx(_scored(part, [[3, 1, 1]]) + _scored(part, [[1, 3, 1]]))


def _scored(plan: ss.Plan, table: list[list[int]]) -> float:
    counts = Counts(plan)
    counts.table[:] = table
    return _log_likelihood_ratio(plan, counts, (0, 2, 1))
