"""Linear functions: standard errors are those of repeated runs, and intervals hold the truth as often as they say.

Seeded, so always or never. Each case repeats a run RUNS times; squared errors over squared standard errors add up to a
chi-square variable, which leaves the range asked for with a probability below 1e-6; so do the misses of intervals. The
twin of each case is what somebody would compute from the standard errors of single entries: it must leave the range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2
from tests.plan_builders import held
from tests.refusals import refusal
from tests.slow_params import slow_but_for

import shufflesum as ss
from shufflesum.errors import ParameterError
from shufflesum.testing import SeededSource, unprotected_plan

RUNS, LEVEL, ALARM = 400, 0.9, 5e-7
RNG = np.random.default_rng(8)
VECTORS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])


def independent(estimate: Any, weights: Any) -> float:
    """What the errors of entries would give if they had nothing to do with each other."""
    return float(np.sqrt(np.sum((np.asarray(weights) * estimate.standard_error) ** 2)))


def in_step(estimate: Any, weights: Any) -> float:
    """And if they were all the same."""
    return float(np.sum(np.abs(weights) * estimate.standard_error))


@dataclass(frozen=True)
class Case:
    """Rows that are the same in every run; `exact` where the standard error is not only an upper bound."""

    plan: Any
    rows: Any
    weights: Any
    truth: float
    twin: Callable[[Any, Any], float]
    exact: bool = True
    group_by: Any = None

    def run(self, seed: int) -> Any:
        return ss.aggregate(self.rows, plan=self.plan, group_by=self.group_by, source=SeededSource(seed), workers=1)


def plan(users: int, shape: Any, **choices: Any) -> Any:
    return ss.plan(users=users, **held(shape), epsilon=1.0, delta=1e-4, **choices)


def vectors() -> Case:
    rows, weights = RNG.uniform(-2, 5, (400, 4)), np.array([1.0, -2.0, 0.0, 0.5])
    return Case(
        plan(400, 4, bounds=(-2, 5), mechanism=ss.NoisyCounts.Options(digits=6)),
        rows,
        weights,
        rows.mean(axis=0) @ weights,
        in_step,
    )


def symmetric() -> Case:
    half = RNG.random((400, 2, 2))
    rows, weights = (half + half.transpose(0, 2, 1)) / 2, np.array([[0.0, 1.0], [1.0, 0.0]])
    made = plan(400, ss.Symmetric(2), mechanism=ss.NoisyCounts.Options(digits=6))
    return Case(made, rows, weights, float(np.sum(rows.mean(axis=0) * weights)), independent)


def span() -> Case:
    rows, weights = RNG.random((400, 2)) @ VECTORS, np.ones(3)
    made = plan(400, ss.Span(VECTORS), mechanism=ss.NoisyCounts.Options(digits=6))
    return Case(made, rows, weights, float(rows.mean(axis=0) @ weights), independent)


def sampled() -> Case:
    """Each user reports one of two coordinates, which add up to 1: errors of sampling go together, without any noise.

    With the correction for a finite crowd, as single entries have it, the variance would be half of what it is.
    """
    first = (np.arange(400) % 2).astype(float)
    rows, weights = np.stack([first, 1 - first], axis=1), np.ones(2)
    made = unprotected_plan(users=400, shape=2, coordinates=1, levels=20)
    return Case(made, rows, weights, 1.0, independent)


def replaced() -> Case:
    rows, weights = RNG.random((400, 3)), np.array([1.0, 1.0, -1.0])
    made = plan(400, 3, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=3))
    return Case(made, rows, weights, float(rows.mean(axis=0) @ weights), in_step, exact=False)


def labels() -> Case:
    """Two of three labels: what they are together is as certain as the third."""
    rows = RNG.choice(3, 400, p=[0.5, 0.3, 0.2])
    weights = np.array([1.0, 1.0, 0.0])
    return Case(plan(400, ss.Categories(3)), rows, weights, float((rows < 2).mean()), independent)


def scores() -> Case:
    """An average grade: unequal weights."""
    rows = RNG.choice(5, 400, p=[0.1, 0.3, 0.3, 0.2, 0.1])
    weights = np.arange(1.0, 6.0)
    return Case(plan(400, ss.Categories(5)), rows, weights, float(np.mean(rows + 1)), independent)


def replaced_labels() -> Case:
    rows, weights = RNG.choice(4, 1000, p=[0.6, 0.2, 0.1, 0.1]), np.array([1.0, 1.0, 1.0, 0.0])
    made = plan(1000, ss.Categories(4), mechanism="randomized-response")
    return Case(made, rows, weights, float((rows < 3).mean()), independent)


def chosen() -> Case:
    rows, weights = [["a", "b"], ["a"]] * 200, np.array([1.0, -1.0, 3.0])
    return Case(plan(400, ss.MultiChoice(["a", "b", "c"], max_choices=2)), rows, weights, 0.5, in_step)


def groups() -> Case:
    """Both entries of one group, whose size is uncertain: its noise moves them together; and another group's."""
    group_by, weights = ["x", "y"] * 150, np.array([[1.0, 1.0], [-0.2, 0.0], [0.0, 0.0]])
    rows = np.tile([[0.9, 0.95]], (300, 1))
    made = plan(300, ss.GroupBy(["x", "y", "nobody"], 2), mechanism="noisy-counts")
    return Case(made, rows, weights, 0.9 + 0.95 - 0.2 * 0.9, independent, group_by=group_by)


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (vectors, symmetric, span, sampled, replaced, labels, scores, replaced_labels, chosen, groups)
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.ShufflesumWarning")
@pytest.mark.parametrize(
    "name",
    slow_but_for(CASES, ["labels", "groups"]),
)
def test_errors_are_those_of_repeated_runs(name: str) -> None:
    case = CASES[name]()
    found, twins = [], []
    for seed in range(RUNS):
        estimate = case.run(seed)
        found.append(estimate.linear(case.weights, level=LEVEL))
        twins.append(case.twin(estimate, case.weights))
    errors = np.array([one.value for one in found]) - case.truth
    low, high = chi2.ppf(ALARM, RUNS), chi2.isf(ALARM, RUNS)
    square = float(np.sum((errors / [one.standard_error for one in found]) ** 2))
    assert square < high
    assert square > low or not case.exact
    twin = float(np.sum((errors / twins) ** 2))
    assert not low < twin < high
    missed = sum(not one.lower <= case.truth <= one.upper for one in found)
    assert missed <= binom.isf(ALARM, RUNS, 1 - LEVEL)
    # and no wider than they should be: an interval of half the width misses more often than allowed
    half = np.array(
        [[one.value - (one.value - one.lower) / 2, one.value + (one.upper - one.value) / 2] for one in found]
    )
    assert np.sum((half[:, 0] > case.truth) | (half[:, 1] < case.truth)) > missed


IN_STEP = np.array([1.0, 1.0, 1.0, 1.0])  # how a population's coordinates go together, at the worst
POPULATIONS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "labels": (lambda rng: rng.choice(3, 400, p=[0.5, 0.3, 0.2]), 0.8),
    "replaced_labels": (lambda rng: rng.choice(4, 1000, p=[0.6, 0.2, 0.1, 0.1]), 0.9),
    "vectors": (lambda rng: 7 * rng.random((400, 1)) * IN_STEP - 2, -0.5 * 1.5),
    "replaced": (lambda rng: rng.random((400, 1)) * IN_STEP[:3], 0.5),
    "chosen": (lambda rng: [["a", "b"] if both else ["c"] for both in rng.random(400) < 0.5], 1.5),
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::shufflesum.cautions.ShufflesumWarning")
@pytest.mark.parametrize(
    "name",
    slow_but_for(POPULATIONS, ["labels", "vectors"]),
)
def test_populations_are_covered_too(name: str) -> None:
    rng, case = np.random.default_rng(5), CASES[name]()
    draw, truth = POPULATIONS[name]
    missed, square = 0, 0.0
    for seed in range(RUNS):
        estimate = ss.aggregate(draw(rng), plan=case.plan, source=SeededSource(seed), workers=1)
        found = estimate.linear(case.weights, level=LEVEL, target="population")
        missed += not found.lower <= truth <= found.upper
        square += ((found.value - truth) / found.standard_error) ** 2
        assert found.standard_error >= estimate.linear(case.weights).standard_error
    assert missed <= binom.isf(ALARM, RUNS, 1 - LEVEL)
    assert square < chi2.isf(ALARM, RUNS)


def single(name: str) -> tuple[Any, Any]:
    case = CASES[name]()
    weights = np.zeros_like(np.asarray(case.weights, dtype=float))
    weights.flat[0] = 1.0
    return case.run(1), weights


@pytest.mark.filterwarnings("ignore::shufflesum.cautions.ShufflesumWarning")
@pytest.mark.parametrize("target", ["users", "population"])
@pytest.mark.parametrize("name", [name for name in CASES if name != "span"])
def test_one_entry_alone_has_the_error_that_it_has(name: str, target: Any) -> None:
    estimate, weights = single(name)
    found = estimate.linear(weights, target=target)
    assert found.value == pytest.approx(np.ravel(estimate.mean)[0])
    assert found.standard_error == pytest.approx(np.ravel(estimate.standard_error_of(target))[0], rel=0.1)
    if target == "users":
        assert found.standard_error == pytest.approx(np.ravel(estimate.standard_error)[0])
        low, high = (np.ravel(end)[0] for end in estimate.confidence_interval(0.95))
        assert found.upper - found.lower == pytest.approx(high - low, rel=0.15)
    assert found.interval == (found.lower, found.upper)


def test_what_is_certain_has_no_error() -> None:
    counts = labels().run(1)
    everybody = counts.count_linear(np.ones(3))
    assert everybody.value == pytest.approx(400)
    assert everybody.standard_error == pytest.approx(0, abs=1e-9)
    assert everybody.upper - everybody.lower == pytest.approx(0, abs=1e-9)
    two = counts.count_linear([1, 1, 0])
    assert two.value == pytest.approx(counts.counts[:2].sum())
    assert two.standard_error == pytest.approx(counts.count_standard_error[2])
    nothing = span().run(1).linear([1, 1, -1])
    assert (nothing.value, nothing.standard_error) == pytest.approx((0, 0), abs=1e-12)


def test_groups_compare_and_one_with_too_few_users_makes_no_sum() -> None:
    estimate = groups().run(1)
    sizes = estimate.count_linear([1, -1, 0])
    assert sizes.value == pytest.approx(estimate.counts[0] - estimate.counts[1])
    assert sizes.standard_error == pytest.approx(np.hypot(*estimate.count_standard_error[:2]))
    weights = np.zeros((3, 2))
    weights[2, 0] = 1
    lost = estimate.linear(weights)
    assert np.isnan([lost.value, lost.standard_error]).all()
    assert lost.interval == (-np.inf, np.inf)


@pytest.mark.parametrize("target", ["users", "population"])
def test_the_error_of_means_of_groups_grows_in_proportion_to_their_weights(target: Any) -> None:
    estimate = groups().run(1)
    weights = np.zeros((3, 2))
    weights[:2] = [[1, 0], [-1, 0]]
    once, thrice = (estimate.linear(times * weights, target=target) for times in (1, -3))
    assert thrice.value == pytest.approx(-3 * once.value)
    assert thrice.standard_error == pytest.approx(3 * once.standard_error)


def test_coordinates_that_nobody_reported_matter_where_they_have_a_weight() -> None:
    made = unprotected_plan(users=1, shape=2, coordinates=1, levels=1)
    with pytest.warns(ss.ShufflesumWarning):
        estimate = ss.aggregate(np.array([[0.0, 1.0]]), plan=made, source=SeededSource(1))
    missing = np.isnan(estimate.mean).astype(float)
    assert np.isnan(estimate.linear(missing).value)
    assert np.isfinite(estimate.linear(1 - missing).value)


def test_a_span_hands_back_its_coefficients_with_errors() -> None:
    case = span()
    found = case.run(1).coefficients
    truth = np.linalg.lstsq(VECTORS.T, case.rows.mean(axis=0), rcond=None)[0]
    assert found.kept == (0, 1)
    assert (np.abs(found.mean - truth) < 6 * found.standard_error).all()
    np.testing.assert_allclose(case.run(1).mean, found.mean @ VECTORS)
    np.testing.assert_allclose(case.run(1).standard_error[2], np.hypot(*found.standard_error))
    low, high = found.confidence_interval(0.95)
    lower, upper = found.confidence_interval(0.95, simultaneous=True)
    assert ((lower < low) & (low < found.mean) & (found.mean < high) & (high < upper)).all()
    with refusal("impossible-combination", "Dense", error=ParameterError):
        _ = vectors().run(1).coefficients


def test_other_weights_are_refused() -> None:
    estimate = labels().run(1)
    with refusal("wrong-shape", "(2,)", "(3,)", error=ParameterError):
        estimate.linear([1, 2])
    with refusal("out-of-range", error=ParameterError):
        estimate.linear([1, 2, np.inf])
    with refusal("not-numbers", "weights", error=ParameterError):
        estimate.linear(["a", "b", "c"])
    with refusal("unknown-choice", "target", error=ParameterError):
        estimate.linear([1, 2, 3], target="everybody")
    with refusal("out-of-range", "level", error=ParameterError):
        estimate.linear([1, 2, 3], level=1.0)
