from __future__ import annotations

import math
from typing import Any

import pytest
from tests.refusals import refusal
from tests.service.client.stand_in import Shuffler

from shufflesum.service.client import (
    RefusedError,
    fetch_estimate,
)
from shufflesum.wire import Task


def answer_of(task: Task, **changes: Any) -> dict[str, Any]:
    """An answer as an analyzer's; None takes something out of its only round."""
    found = {
        "round": 1,
        "users": 1,
        "rejected_reports": 0,
        "mean": [0.5, None, 0.5],
        "sum": [0.5, None, 0.5],
        "standard_error": [0.1, None, 0.1],
        "confidence_interval": [[0.3, None, 0.3], [0.7, None, 0.7]],
        "confidence_level": 0.95,
        "guarantee": {"holds": True},
    } | changes
    return {"task": task.id, "rounds": [{key: value for key, value in found.items() if value is not None}]}


def test_an_estimate_is_handed_on_as_it_came(shuffler: Shuffler, task: Task) -> None:
    shuffler.document = answer_of(task)
    assert fetch_estimate(task, shuffler.url) == answer_of(task)


def test_another_round_than_the_one_asked_for_is_refused(shuffler: Shuffler, task: Task) -> None:
    shuffler.document = answer_of(task)
    assert fetch_estimate(task, shuffler.url, round_number=1) == answer_of(task)
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url, round_number=2)


@pytest.mark.parametrize("document", [None, [], "x", {"task": "another"}, {"rounds": []}, {"task": None, "rounds": []}])
def test_an_answer_that_is_no_estimate_is_refused(shuffler: Shuffler, task: Task, document: object) -> None:
    named = isinstance(document, dict) and "task" in document and document["task"] is None
    shuffler.document = {"task": task.id, "rounds": []} if named else document
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url)


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": [0.5]},
        {"mean": ["a", "b", "c"]},
        {"sum": None},
        {"standard_error": [math.nan, 0.1, 0.1]},
        {"confidence_interval": [[0.3, 0.3, 0.3]]},
        {"confidence_interval": 7},
        {"users": "many"},
        {"guarantee": {}},
        {"guarantee": {"holds": "yes"}},
    ],
)
def test_an_estimate_that_is_not_whole_is_refused(shuffler: Shuffler, task: Task, changes: dict[str, Any]) -> None:
    shuffler.document = answer_of(task, **changes)
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url)
