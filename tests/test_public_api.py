"""The names and calls that users' programs rely on."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import ParameterError
from shufflesum.planning import plan_for_error
from shufflesum.privacy.randomized_response.accountant import Sampling

TARGET: dict[str, Any] = {"epsilon": 8.0, "delta": 0.1}
SMALL = ss.plan(users=9, shape=1, **TARGET)


@pytest.fixture(scope="module")
def arrays() -> np.ndarray:
    return np.random.default_rng(0).random((50_000, 100), dtype=np.float32)


@pytest.mark.long
def test_the_five_lines_of_the_example_run(arrays: np.ndarray) -> None:
    plan = ss.plan(users=50_000, shape=100, epsilon=1.0, delta=1e-6, bounds=(0.0, 1.0))
    reports = ss.Randomizer(plan).randomize(arrays)
    assert isinstance(reports, ss.Reports)
    shuffled = ss.shuffle(reports)
    estimate = ss.Analyzer(plan).analyze(shuffled)
    assert isinstance(estimate, ss.Estimate)
    assert estimate.mean.shape == estimate.sum.shape == estimate.standard_error.shape == (100,)
    assert estimate.users == 50_000
    low, high = estimate.confidence_interval(0.95)
    assert (low < estimate.mean).all()
    assert (estimate.mean < high).all()
    assert estimate.report_counts.shape == (100,)
    # Blanks are not counted; how many there are varies by less than 5,000 (a standard deviation).
    assert abs(estimate.report_counts.sum() - 50_000 * (plan.reports - plan.blanks)) < 7 * 5_000
    np.testing.assert_allclose(estimate.sum, 50_000 * estimate.mean)
    truth = arrays.mean(axis=0, dtype=np.float64)
    # 100 errors of a normal law: beyond 7 standard errors once in 10^9 runs
    assert (np.abs(estimate.mean - truth) < 7 * estimate.standard_error).all()
    assert np.sum((estimate.mean - truth) ** 2) < 2 * plan.expected_error.total


def test_the_three_roles_in_one_process_take_whole_bounds(arrays: np.ndarray) -> None:
    estimate = ss.aggregate(arrays[:5000], epsilon=1.0, delta=1e-6, bounds=(0, 1))
    assert estimate.mean.shape == (100,)
    assert estimate.plan.users == estimate.users == 5000


@pytest.mark.parametrize("shape", [7, (7,), [7], (2, 3), (), ss.Symmetric(5), ss.Span(np.eye(3))])
def test_a_shape_is_a_number_a_tuple_or_a_structure(shape: object) -> None:
    plan = ss.plan(
        users=2000,
        shape=shape,  # type: ignore[arg-type]
        epsilon=1.0,
        delta=1e-6,
        bounds=(0.0, 1.0),
        mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=1),
    )
    assert plan.users == 2000


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_plan_takes_every_keyword(sampling: Sampling) -> None:
    plan = ss.plan(
        users=4000,
        shape=(2, 3),
        epsilon=2.0,
        delta=1e-5,
        bounds=(-1.0, 1.0),
        mechanism=ss.RandomizedResponse.Options(coordinates=2, levels=2, sampling=sampling),
        max_reports=3,
        accountant="exact",
        honest_fraction=0.75,
        rounds=2,
        assumed_std=0.5,
    )
    assert (plan.users, plan.shape, plan.dimension, plan.reports, plan.cells) == (4000, (2, 3), 6, 2, 18)
    assert (plan.epsilon, plan.delta, plan.accountant) == (2.0, 1e-5, "exact")
    assert (plan.honest_fraction, plan.honest_users, plan.rounds) == (0.75, 3000, 2)
    assert isinstance(plan.mechanism, ss.RandomizedResponse)
    gamma = plan.mechanism.noise_probability
    assert plan.mechanism == ss.RandomizedResponse(coordinates=2, levels=2, noise_probability=gamma, sampling=sampling)
    assert 0 < gamma < 1
    assert ss.Plan.from_json(plan.to_json()) == plan


def test_privacy_is_asked_of_the_plan_itself() -> None:
    plan = ss.plan(
        users=2000, shape=3, epsilon=1.0, delta=1e-6, mechanism=ss.RandomizedResponse.Options(coordinates=3, levels=1)
    )
    certified = plan.privacy.epsilon(1e-6)
    assert 0 < certified.lower <= certified.upper <= 1.0
    assert plan.privacy.delta(1.0).upper <= 1e-6
    assert plan.privacy.local_epsilon == plan.local_epsilon


def test_all_public_names_exist_and_plan_is_called_by_keyword_only() -> None:
    assert all(hasattr(ss, name) for name in ss.__all__)
    kinds = {parameter.kind for parameter in inspect.signature(ss.plan).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


WRONG: dict[str, Any] = {"x": "x", "pairs": [(0, 5), (1, 9)], "none": None, "half": 0.5}
MISUSES: dict[str, Any] = {
    "plan fraction": (
        lambda: ss.plan(users=9, shape=1, epsilon=1, delta=0.1, honest_fraction=WRONG["x"]),
        ("wrong-type", "honest_fraction is 'x'"),
    ),
    "plan bounds": (
        lambda: ss.plan(users=9, shape=2, epsilon=1, delta=0.1, bounds=WRONG["pairs"]),
        ("bad-bounds", "[(0, 5), (1, 9)]"),
    ),
    "analyzer": (lambda: ss.Analyzer(WRONG["none"]), ("wrong-type", "plan", "NoneType")),
    "merge": (lambda: ss.Analyzer(SMALL).merge(WRONG["none"]), ("wrong-type", "analyzer", "NoneType")),
    "level": (
        lambda: ss.aggregate(np.zeros((9, 1)), **TARGET).confidence_interval(WRONG["x"]),
        ("wrong-type", "level is 'x'"),
    ),
    "target error": (
        lambda: plan_for_error(WRONG["x"], shape=1, epsilon=1.0, delta=0.1),
        ("wrong-type", "target_error is 'x'"),
    ),
    "users": (
        lambda: ss.privacy.RandomizedResponseAccountant(WRONG["half"], 2, 0.5).delta(1.0),
        ("wrong-type", "users is 0.5"),
    ),
    "rounds": (
        lambda: ss.privacy.RandomizedResponseAccountant(2, 2, 0.5, rounds=WRONG["half"]),
        ("wrong-type", "rounds is 0.5"),
    ),
    "epsilon": (
        lambda: ss.privacy.RandomizedResponseAccountant(2, 2, 0.5).delta(WRONG["x"]),
        ("wrong-type", "epsilon is 'x'"),
    ),
    "noise": (lambda: ss.RandomizedResponse(1, 1, WRONG["x"]), ("wrong-type", "noise_probability is 'x'")),
    "randomizer": (lambda: ss.Randomizer(WRONG["none"]), ("wrong-type", "plan", "NoneType")),
}


@pytest.mark.parametrize("name", MISUSES)
def test_wrong_types_are_refused_by_name(name: str) -> None:
    misuse, refused = MISUSES[name]
    with refusal(*refused, error=ParameterError):
        misuse()


def test_a_shuffled_batch_may_be_counted_in_pieces() -> None:
    reports = ss.shuffle(ss.Randomizer(SMALL).randomize(np.full((9, 1), 0.5)))
    pieces, whole = ss.Analyzer(SMALL), ss.Analyzer(SMALL)
    pieces.add(reports[:4])
    pieces.add(reports[4:])
    assert len(reports[:4]) == 4
    np.testing.assert_array_equal(pieces.estimate().mean, whole.analyze(reports).mean)
