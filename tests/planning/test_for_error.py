from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import plan_for_error

Z = 1.959963984540054  # standard errors on either side of a mean at 95 %


def test_a_target_error_at_an_assumed_std_needs_fewer_users() -> None:
    target: dict[str, Any] = {
        "shape": 10,
        "epsilon": 1.0,
        "delta": 1e-6,
        "mechanism": ss.RandomizedResponse.Options(coordinates=1, levels=3),
    }
    cautious, narrow = plan_for_error(1e-2, **target), plan_for_error(1e-2, **target, assumed_std=0.05)
    assert narrow.users < 0.8 * cautious.users
    assert narrow.error_at_std(0.05).total <= 1e-2


@pytest.mark.long
def test_a_margin_of_each_column_is_kept_by_all_and_just_reached_by_one() -> None:
    bounds = {"age": (0.0, 120.0), "income": (0.0, 200_000.0)}
    asked: dict[str, Any] = {"shape": 2, "columns": list(bounds), "bounds": bounds, "users": 3000, "delta": 1e-6}
    found = plan_for_error(margin={"income": 1e9, "age": 2.0}, **asked, mechanism=ss.NoisyCounts.Options(digits=3))
    part = math.sqrt(found.error_in_widths.total / 2)
    assert 0.98 * 2.0 <= Z * 120 * part <= 2.0


@pytest.mark.parametrize(
    "held",
    [
        {"shape": 4, "bounds": (0, 10), "mechanism": ss.NoisyCounts.Options(digits=3)},
        {"domain": ss.Categories(["yes", "no", "unsure"])},
        pytest.param({"domain": ss.GroupBy(["at", "de"], 2), "bounds": (0, 10)}, marks=pytest.mark.slow),
    ],
    ids=["numbers", "labels", "groups"],
)
def test_one_margin_for_all_is_that_of_each(held: dict[str, Any]) -> None:
    found = plan_for_error(margin=0.05, epsilon=1.0, delta=1e-6, **held)
    assert 0.98 * 0.05 <= Z * math.sqrt(found.expected_error.total / found.dimension) <= 0.05


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({}, "conflicting-arguments"),
        ({"target_error": 0.1, "margin": 0.1}, "conflicting-arguments"),
        ({"margin": 0.1, "assumed_std": 0.1}, "conflicting-arguments"),
        ({"margin": 0.0}, "out-of-range"),
        ({"margin": {"age": -1.0}, "columns": ["age"]}, "out-of-range"),
        ({"margin": "x"}, "wrong-type"),
        ({"margin": {"age": 1.0}}, "unknown-column"),
        ({"margin": {"agee": 1.0}, "columns": ["age"]}, "unknown-column"),
        ({"margin": {}, "columns": ["age"]}, "unknown-column"),
    ],
    ids=str,
)
def test_a_margin_that_cannot_be_meant_is_refused(asked: dict[str, Any], problem: str) -> None:
    with refusal(problem, error=ParameterError):
        plan_for_error(**asked, shape=1, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        ({"target_error": 0.0, "epsilon": 1.0}, ("out-of-range", "target_error is 0.0")),
        ({"target_error": float("inf"), "epsilon": 1.0}, ("out-of-range", "target_error is inf")),
        ({"target_error": float("nan"), "epsilon": 1.0}, ("out-of-range", "target_error is nan")),
        ({"target_error": 0.1}, ("conflicting-arguments", "users", "epsilon")),
        ({"target_error": 0.1, "epsilon": 1.0, "users": 100}, ("conflicting-arguments", "users", "epsilon")),
        ({"target_error": 0.1, "users": 100, "accountant": "paper"}, ("impossible-combination", "accountant='paper'")),
    ],
    ids=str,
)
def test_what_cannot_be_looked_for_is_refused(asked: dict[str, Any], refused: tuple[str, ...]) -> None:
    with refusal(*refused, error=ParameterError):
        plan_for_error(**asked, shape=3, delta=1e-6)


def test_an_error_out_of_reach_is_said_to_be() -> None:
    with refusal("error-out-of-reach", "1e-30", "32", error=PrivacyError):
        plan_for_error(1e-30, users=10, shape=3, delta=1e-6, mechanism=ss.RandomizedResponse.Options(levels=1))


@pytest.mark.parametrize(
    ("held", "margin", "facts"),
    [
        (
            {"shape": 2, "columns": ["age", "hours"], "bounds": {"age": (0, 120), "hours": (0, 24)}},
            {"age": 1e-9, "hours": 1e9},
            ("1e-09", "age", "at best"),
        ),
        ({"shape": 2}, 1e-9, ("1e-09", "each mean", "at best")),
        ({"domain": ss.Categories(3)}, 1e-20, ("1e-20", "share", "at best")),
    ],
)
def test_a_margin_out_of_reach_is_said_as_it_was_asked(
    held: dict[str, Any], margin: Any, facts: tuple[str, ...]
) -> None:
    with refusal("error-out-of-reach", *facts, "users", "delta", error=PrivacyError) as caught:
        plan_for_error(margin=margin, users=10, delta=1e-6, **held)
    assert "squared" not in str(caught.value)
    assert "hours" not in str(caught.value)
    best = float(str(caught.value).split("at best ± ")[1].split(")")[0])
    # what is said to be the best can be had, and hardly less
    plan_for_error(margin=_scaled(margin, 1.02 * best), users=10, delta=1e-6, **held)
    with refusal("error-out-of-reach"):
        plan_for_error(margin=_scaled(margin, 0.98 * best), users=10, delta=1e-6, **held)


def _scaled(margin: Any, error: float) -> Any:
    return margin | {"age": error} if isinstance(margin, dict) else error
