from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import numpy as np
import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal
from tests.service.client.scripted_shuffler import LOST, Shuffler, task_for

from shufflesum import Categories, GroupBy, MultiChoice, OpenVocabulary
from shufflesum.domains import Arrays, Domain
from shufflesum.domains.counts import CountEstimate
from shufflesum.domains.group_by.estimate import GroupEstimate
from shufflesum.domains.open_vocabulary.estimate import VocabularyEstimate
from shufflesum.estimate import estimate_of
from shufflesum.mechanisms import NoisyCounts, NoisySlots
from shufflesum.mechanisms.mechanism import Mechanism
from shufflesum.plans import Plan
from shufflesum.service.client import RefusedError, UnreachableError, estimates_in, fetch_estimate
from shufflesum.service.http.messages import round_to_json
from shufflesum.testing import no_guarantee
from shufflesum.wire import Task


def answer_of(task: Task, reports: Any = None, **changes: Any) -> dict[str, Any]:
    """An answer as an analyzer's; None takes something out of its only round."""
    counts = np.arange(task.plan.cells) % 7 if reports is None else np.asarray(reports)
    found = round_to_json(estimate_of(task.plan, 50, 0, counts.astype(np.int64)), 0.95)
    found |= {"round": 1, "uploads": 50, "guarantee": {"holds": True}, **changes}
    return {"task": task.id, "rounds": [{key: value for key, value in found.items() if value is not None}]}


def test_an_estimate_is_handed_on_as_it_came(shuffler: Shuffler, task: Task) -> None:
    shuffler.document = answer_of(task)
    assert fetch_estimate(task, shuffler.url) == answer_of(task)


def test_another_round_than_the_one_asked_for_is_refused(shuffler: Shuffler, task: Task) -> None:
    shuffler.document = answer_of(task)
    assert fetch_estimate(task, shuffler.url, round_number=1) == answer_of(task)
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url, round_number=2)


@pytest.mark.parametrize("first", ["no-estimate-yet", "store-unavailable", 502, LOST])
def test_an_estimate_that_is_not_there_yet_is_waited_for(shuffler: Shuffler, task: Task, first: int | str) -> None:
    shuffler.document = answer_of(task)
    shuffler.first = [first, first]
    assert fetch_estimate(task, shuffler.url, wait=60, clock=FakeClock()) == answer_of(task)
    shuffler.first = [first, first]
    with pytest.raises((RefusedError, UnreachableError)):
        fetch_estimate(task, shuffler.url)
    assert shuffler.first == [first]


def test_waiting_for_an_estimate_has_an_end(shuffler: Shuffler, task: Task) -> None:
    shuffler.first = ["no-estimate-yet"] * 100
    clock = FakeClock()
    with refusal("no-estimate-yet", error=RefusedError):
        fetch_estimate(task, shuffler.url, wait=10, clock=clock)
    assert 9 <= clock.monotonic() <= 10
    assert shuffler.first


def test_nobody_waits_where_the_answer_will_never_be_another(shuffler: Shuffler, task: Task) -> None:
    shuffler.first = ["guarantee-broken"]
    clock = FakeClock()
    with refusal("guarantee-broken", error=RefusedError):
        fetch_estimate(task, shuffler.url, wait=60, clock=clock)
    assert clock.monotonic() == 0


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
        {"mean": [0.5, 0.5, 0.5]},
        {"sum": None},
        {"standard_error": [math.nan, 0.1, 0.1]},
        {"confidence_interval": [[0.3, 0.3, 0.3]]},
        {"confidence_interval": 7},
        {"users": "many"},
        {"users": 0},
        {"users": 51},
        {"rejected_reports": -1},
        {"confidence_level": 1.0},
        {"guarantee": {}},
        {"guarantee": {"holds": "yes"}},
        {"table": None},
        {"table": 7},
        {"table": {"bytes": 4}},
        {"table": {"bytes": 3, "zlib": ""}},
        {"table": {"bytes": 4, "zlib": "no base64"}},
        {"table": {"bytes": 4, "zlib": base64.b64encode(bytes(132)).decode()}},
        {"table": {"bytes": 4, "zlib": base64.b64encode(zlib.compress(bytes(131))).decode()}},
        {"table": {"bytes": 4, "zlib": base64.b64encode(zlib.compress(bytes(10**8))).decode()}},
        {"table": {"bytes": 8, "zlib": base64.b64encode(zlib.compress(b"\xff" * 264)).decode()}},
        {"table": {"bytes": 4, "zlib": base64.b64encode(zlib.compress(b"\1\0\0\0" * 33)).decode()}},
    ],
)
def test_an_estimate_that_is_not_whole_is_refused(shuffler: Shuffler, task: Task, changes: dict[str, Any]) -> None:
    shuffler.document = answer_of(task, **changes)
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url)


SLOTS = NoisySlots(2, 0.25)
LABELS: list[tuple[Domain, Mechanism, type]] = [
    (Categories(["yes", "no", "unsure"], other=True), SLOTS, CountEstimate),
    (MultiChoice(["a", "b", "c"], max_choices=2), NoisyCounts(1, (1,), (0.25,), 4), CountEstimate),
    (GroupBy(["at", "de"], Arrays(2, bounds=(0, 3))), NoisyCounts(2, (1, 1, 1), (0.25, 0.25, 0.25), 4), GroupEstimate),
    (OpenVocabulary(width=10, depth=3, key=bytes(16)), SLOTS, VocabularyEstimate),
]


@pytest.mark.parametrize(("domain", "mechanism", "kind"), LABELS)
def test_an_answer_becomes_an_estimate_again(
    shuffler: Shuffler, domain: Domain, mechanism: Mechanism, kind: type
) -> None:
    task = task_for(shuffler, plan=Plan(domain, mechanism, no_guarantee(1)))
    table = np.random.default_rng(1).integers(0, 2**34, task.plan.cells)  # more than four bytes hold
    shuffler.document = answer_of(task, table)
    document = fetch_estimate(task, shuffler.url)
    assert document == shuffler.document
    (estimate,) = estimates_in(task, document).values()
    assert type(estimate) is kind
    assert (estimate.users, estimate.rejected, estimate.plan) == (50, 0, task.plan)
    assert np.array_equal(estimate.table, table)


@pytest.mark.parametrize(("domain", "mechanism"), [case[:2] for case in LABELS[:3]])
@pytest.mark.parametrize("name", ["counts", "count_interval", "labels", "groups"])
def test_labels_and_counts_that_do_not_follow_from_the_table_are_refused(
    shuffler: Shuffler, domain: Domain, mechanism: Mechanism, name: str
) -> None:
    task = task_for(shuffler, plan=Plan(domain, mechanism, no_guarantee(1)))
    answer = answer_of(task, 40 + np.arange(task.plan.cells))
    (found,) = answer["rounds"]
    if name not in found:
        assert name == ("labels" if isinstance(domain, GroupBy) else "groups")
        return
    found[name] = found[name][::-1]
    shuffler.document = answer
    with refusal("bad-answer", error=RefusedError):
        fetch_estimate(task, shuffler.url)
