"""Tasks for tests of the browser client, which leaves it to the servers to compute what a plan claims."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.service.client.scripted_shuffler import KEY, Shuffler

from shufflesum.plans import Plan
from shufflesum.privacy import Guarantee
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Task

__all__ = ["claimed", "task_claimed"]


def claimed(plan: Plan) -> Plan:
    """The same plan with a claim, which is false; servers of tests do not look."""
    return Plan(plan.domain, plan.mechanism, Guarantee(1.0, 1e-6, plan.users, 1.0, plan.rounds, "exact"))


def task_claimed(shuffler: Shuffler, *, rounds: int = 1, **changes: Any) -> Task:
    """Three reports of three coordinates without noise, each of its value on a scale to ten."""
    arguments: dict[str, Any] = {
        "name": "client test",
        "plan": claimed(unprotected_plan(users=1, shape=3, coordinates=3, levels=10, rounds=rounds)),
        "analyzer_key": KEY.public_key().public_bytes_raw(),
        "shuffler": shuffler.url,
        "expires": datetime(2099, 1, 1, tzinfo=UTC),
    }
    return UnprotectedTask(**arguments | changes)
