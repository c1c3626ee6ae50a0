from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.aggregation import aggregate_batches
from shufflesum.errors import DataError, ParameterError, ReportsError
from shufflesum.testing import SeededSource, unprotected_plan


@pytest.fixture(scope="module")
def crowd() -> Any:
    return np.random.default_rng(0).random((4000, 2, 3))


@pytest.mark.long
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)])
def test_any_shape_comes_back_with_its_mean(shape: tuple[int, ...]) -> None:
    arrays = np.random.default_rng(1).uniform(-5, 5, (4000, *shape))
    estimate = ss.aggregate(arrays, epsilon=2.0, delta=1e-6, bounds=(-5, 5), source=SeededSource(2))
    assert estimate.mean.shape == shape
    assert estimate.users == 4000
    assert estimate.rejected == 0
    truth = arrays.mean(axis=0)
    # 24 normal errors within 6 standard errors: missed once in 10^7; seeded, so always or never
    assert (np.abs(estimate.mean - truth) < 6 * estimate.standard_error).all()
    assert np.sum((estimate.mean - truth) ** 2) < 4 * estimate.plan.expected_error.total


def test_the_plan_is_that_of_plan_with_the_same_words(crowd: Any) -> None:
    words: dict[str, Any] = {
        "epsilon": 1.5,
        "delta": 1e-5,
        "bounds": (-1.0, 2.0),
        "mechanism": ss.RandomizedResponse.Options(coordinates=2, levels=3, sampling="uniform"),
        "max_reports": 4,
        "accountant": "exact",
        "honest_fraction": 0.9,
        "rounds": 2,
    }
    assert ss.aggregate(crowd, **words).plan == ss.plan(users=4000, shape=(2, 3), **words)


def test_seeded_runs_repeat_and_default_runs_do_not(crowd: Any) -> None:
    def run(source: Any = None) -> Any:
        return ss.aggregate(
            crowd,
            epsilon=1.0,
            delta=1e-6,
            mechanism=ss.RandomizedResponse.Options(coordinates=1, levels=2),
            source=source,
        ).table.tolist()

    assert run(SeededSource(1)) == run(SeededSource(1))
    assert run(SeededSource(1)) != run(SeededSource(2))
    assert run() != run()


@pytest.mark.long
def test_structures_are_aggregated_by_name() -> None:
    rng = np.random.default_rng(2)
    half = rng.random((3000, 2, 2)) / 2
    symmetric = ss.aggregate(half + half.transpose(0, 2, 1), epsilon=2, delta=1e-6, shape=ss.Symmetric(2))
    assert symmetric.plan.dimension == 3
    assert symmetric.mean.shape == (2, 2)
    vectors = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    coefficients = rng.random((3000, 2))
    spanned = ss.aggregate(
        coefficients @ vectors, epsilon=2, delta=1e-6, shape=ss.Span(vectors), source=SeededSource(1)
    )
    assert spanned.plan.dimension == 2
    assert (np.abs(spanned.mean - coefficients.mean(axis=0) @ vectors) < 6 * spanned.standard_error).all()


def test_one_user_may_be_aggregated_though_it_says_little() -> None:
    with pytest.warns(UserWarning, match="worse than guessing"):
        estimate = ss.aggregate([[0.5]], epsilon=1.0, delta=1e-6)
    assert estimate.users == 1
    assert np.isfinite(estimate.mean).all()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_count_every_row_once(workers: int) -> None:
    plan = unprotected_plan(users=1000, shape=3, coordinates=3, levels=10)
    rows = np.random.default_rng(3).integers(0, 11, (1000, 3)) / 10
    done: list[int] = []
    batches = (rows[i : i + 37] for i in range(0, 1000, 37))
    estimate = aggregate_batches(batches, plan, workers=workers, progress=done.append)
    assert estimate.users == 1000
    np.testing.assert_allclose(estimate.mean, rows.mean(axis=0))
    assert done == [*range(37, 1000, 37), 1000]


def test_few_batches_wait_in_memory_at_any_time() -> None:
    plan = unprotected_plan(users=1, shape=1)
    made = 0
    finished: list[int] = []

    def batches() -> Iterator[Any]:
        nonlocal made
        for _ in range(50):
            made += 1
            assert made - len(finished) <= 2 * 2 + 2
            yield np.zeros((10, 1))

    aggregate_batches(batches(), plan, workers=2, progress=finished.append)
    assert len(finished) == 50


@pytest.mark.parametrize("workers", [1, 4])
def test_the_first_bad_row_is_named_by_its_number_in_the_whole(workers: int) -> None:
    plan = unprotected_plan(users=1, shape=2)
    rows = np.zeros((1000, 2))
    rows[[333, 700], 1] = np.nan
    threads = threading.active_count()
    with refusal("missing-value", "row 333", "coordinate 1", error=DataError):
        aggregate_batches((rows[i : i + 50] for i in range(0, 1000, 50)), plan, workers=workers)
    assert threading.active_count() == threads


def test_clipping_and_missing_values_are_handed_on() -> None:
    plan = unprotected_plan(users=2, shape=1, levels=2, bounds=(0, 2))
    estimate = aggregate_batches([np.array([[9.0], [np.nan]])], plan, clip=True, missing="midpoint")
    assert estimate.mean.tolist() == [1.5]
    with refusal("missing-value", error=DataError):
        aggregate_batches([np.array([[9.0], [np.nan]])], plan, clip=True)


def test_fewer_rows_than_the_plans_users_are_refused() -> None:
    plan = unprotected_plan(users=11, shape=2)
    with refusal("too-few-users", "10 reports", error=ReportsError):
        aggregate_batches([np.zeros((10, 2))], plan)
    with refusal("too-few-users", "0 reports", error=ReportsError):
        aggregate_batches([], plan)


@pytest.mark.parametrize(
    ("arrays", "refused"),
    [
        (np.zeros((0, 3)), ("no-rows",)),
        (3.0, ("no-rows",)),
        ([], ("no-rows",)),
        ([[1.0, 2.0], [1.0]], ("not-numbers",)),
        ([["a"]], ("not-numbers",)),
        (np.array([["a"]]), ("not-numbers",)),
        (np.ma.masked_array(np.full((3000, 1), 0.5), mask=True), ("not-numbers", "values.filled(np.nan)")),
        (np.full((3000, 1), 2.0), ("out-of-bounds", "row 0", "coordinate 0", "2.0")),
        (np.full((3000, 1), np.nan), ("missing-value", "row 0", "coordinate 0")),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.filterwarnings("ignore:with this plan the estimate can be worse")
def test_what_cannot_be_aggregated_is_refused(arrays: Any, refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=DataError):
        ss.aggregate(arrays, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(("workers", "problem"), [(0, "out-of-range"), (-1, "out-of-range"), (1.5, "wrong-type")])
def test_workers_must_be_a_positive_number(workers: Any, problem: str) -> None:
    with refusal(problem, f"workers is {workers}", error=ParameterError):
        aggregate_batches([np.zeros((10, 2))], unprotected_plan(users=1, shape=2), workers=workers)


def test_a_shape_that_does_not_fit_the_arrays_is_refused() -> None:
    with refusal("wrong-shape", error=DataError):
        ss.aggregate(np.zeros((3000, 3)), epsilon=1.0, delta=1e-6, shape=4)


@pytest.mark.long
def test_a_plan_made_before_takes_the_place_of_all_that_it_fixes(crowd: Any) -> None:
    plan = ss.plan(users=3000, shape=(2, 3), epsilon=1.0, delta=1e-6, rounds=2)
    estimate = ss.aggregate(crowd, plan=plan, round_number=2, source=SeededSource(1))
    assert estimate.plan is plan
    assert (estimate.users, estimate.round_number) == (4000, 2)
    assert (np.abs(estimate.mean - crowd.mean(axis=0)) < 7 * estimate.standard_error).all()
    groups = ss.plan(users=600, domain=ss.GroupBy(["a", "b"], ()), epsilon=4.0, delta=1e-4)
    grouped = ss.aggregate(np.full(600, 0.5), group_by=["a", "b"] * 300, plan=groups)
    assert isinstance(grouped, ss.GroupEstimate)


@pytest.mark.parametrize(
    "given",
    [{"epsilon": 1.0}, {"delta": 1e-6}, {"shape": (2, 3)}, {"bounds": (0, 1)}, {"rounds": 2}, {"noise_by": "users"}],
)
def test_what_a_plan_fixes_is_refused_beside_it(crowd: Any, given: dict[str, Any]) -> None:
    plan = ss.plan(users=3000, shape=(2, 3), epsilon=1.0, delta=1e-6)
    with refusal("conflicting-arguments", *given, error=ParameterError):
        ss.aggregate(crowd, plan=plan, **given)


def test_a_plan_needs_its_users_its_shape_and_its_rounds_and_without_one_epsilon_and_delta_are_needed(
    crowd: Any,
) -> None:
    plan = ss.plan(users=3000, shape=(2, 3), epsilon=1.0, delta=1e-6)
    with refusal("too-few-users", "2999 rows", "3000", error=DataError):
        ss.aggregate(crowd[:2999], plan=plan)
    with refusal("wrong-shape", error=DataError):
        ss.aggregate(crowd[:, :1], plan=plan)
    with refusal("out-of-range", "round_number", error=ParameterError):
        ss.aggregate(crowd, plan=plan, round_number=2)
    with refusal("missing-argument", "group", error=ParameterError):
        ss.aggregate(crowd, plan=plan, group_by=["a"] * 4000)
    wrong: Any = "plan.json"
    with refusal("wrong-type", "str", error=ParameterError):
        ss.aggregate(crowd, plan=wrong)
    with refusal("missing-argument", "delta", error=ParameterError):
        ss.aggregate(crowd, epsilon=1.0)
    with refusal("missing-argument", "epsilon", error=ParameterError):
        ss.aggregate(crowd, delta=1e-6)


@pytest.mark.parametrize("ask", [ss.aggregate, ss.moments])
def test_a_value_outside_of_bounds_that_nobody_gave_is_told_that_they_are_the_default(ask: Any) -> None:
    for bounds, told in ((None, True), ((0, 1), False), ((0.0, 1.5), False)):
        with refusal("out-of-bounds") as caught:
            ask(np.full(500, 2.0), epsilon=1.0, delta=1e-6, **({} if bounds is None else {"bounds": bounds}))
        assert ("is the default" in str(caught.value)) == told
    with refusal("out-of-bounds") as caught:
        ss.aggregate(np.full(500, 2.0), domain=ss.Categories(bins=[0, 0.5, 1]), epsilon=1.0, delta=1e-6)
    assert "is the default" not in str(caught.value)
