"""Who waits for what in the explorer: lanes that do nothing until a test lets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

import shufflesum as ss
from shufflesum.cli.plan import _plain_card
from shufflesum.explorer import explorer as explorer_module
from shufflesum.explorer.explorer import Explorer, Job
from shufflesum.explorer.questions import DEFAULTS, Question, begin, warm_up

ASKED = Question.of({**DEFAULTS, "shape": "2", "users": "2000"})
LABELS = Question.of({**DEFAULTS, "holds": "labels"})


class HeldLane:
    """Remembers what is wanted; only the lane of first answers does it, and at once."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self.quick = ready is begin
        self.wanted: list[Job] = []

    def replace_queue(self, jobs: Iterable[Job]) -> None:
        self.wanted = list(jobs)
        if self.quick:
            self.work()

    def work(self) -> None:
        for job in self.wanted:
            if job.work is not warm_up:
                job.done(job.work(*job.arguments))


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Explorer:
    monkeypatch.setattr(explorer_module, "Worker", HeldLane)
    return Explorer(_plain_card)


def search(explorer: Explorer) -> HeldLane:
    worker = explorer._search
    assert isinstance(worker, HeldLane)
    return worker


@pytest.mark.parametrize("asked", [ASKED, LABELS], ids=["numbers", "labels"])
def test_a_near_question_waits_for_no_search(explorer: Explorer, asked: Question) -> None:
    assert explorer.ask(asked).planned is None
    search(explorer).work()
    known = explorer.ask(asked)
    assert known.planned is not None
    assert not known.first
    assert explorer.ask(replace(asked, rounds=7)).planned is None  # its search is left behind, and never ends
    near = explorer.ask(replace(asked, users=asked.users + 1), patience=60)
    assert near.planned is not None
    assert near.planned.plan.users == asked.users + 1
    near.planned.plan.verify()
    # the search for a better plan is the only one that is wanted now; labels need none
    wanted = [job.arguments[0].users for job in search(explorer).wanted if job.arguments[0].rounds == 1]
    assert wanted == ([asked.users + 1] if asked is ASKED else [])
    assert near.first == (asked is ASKED)


def test_what_is_not_near_begins_a_search_and_is_not_waited_for(explorer: Explorer) -> None:
    explorer.ask(ASKED)
    search(explorer).work()
    for other in (replace(ASKED, users=2 * ASKED.users), replace(ASKED, delta=1e-7), replace(ASKED, epsilon=0.5)):
        assert explorer.ask(other, patience=60).planned is None
        assert [job.arguments[0] for job in search(explorer).wanted] == [other]


def test_formulas_are_there_at_once_and_are_the_planners(explorer: Explorer) -> None:
    answer = explorer.ask(ASKED)
    lines = {point.line for point in (*answer.by_epsilon, *answer.by_users)}
    assert lines == {"the paper's formula", "trusted curator"}
    (curator,) = (point for point in answer.by_epsilon if point.line == "trusted curator" and point.epsilon == 1.0)
    plan = ss.plan(users=2000, epsilon=1.0, **ASKED.arguments())
    assert curator.error == (plan.curator_error / 2) ** 0.5
