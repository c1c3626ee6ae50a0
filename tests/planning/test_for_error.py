from __future__ import annotations

from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum.errors import ParameterError, PrivacyError
from shufflesum.planning import plan_for_error


def test_a_target_error_at_a_spread_needs_fewer_users() -> None:
    target: dict[str, Any] = {"shape": 10, "epsilon": 1.0, "delta": 1e-6, "coordinates": 1, "levels": 3}
    cautious, narrow = plan_for_error(1e-2, **target), plan_for_error(1e-2, **target, spread=0.05)
    assert narrow.users < 0.8 * cautious.users
    assert narrow.error_at_spread(0.05).total <= 1e-2


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
        plan_for_error(1e-30, users=10, shape=3, delta=1e-6, levels=1)
