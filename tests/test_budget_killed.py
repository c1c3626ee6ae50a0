"""A budget that is spent by processes that are killed, and by several at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.forked_processes import forked, killed_at, killed_everywhere, start_forked, unlock_ledgers
from tests.refusals import refusal

import shufflesum as ss
from shufflesum import budget as budget_module
from shufflesum.budget import Budget
from shufflesum.errors import FileError, PrivacyError
from shufflesum.plans import Plan
from shufflesum.privacy.engine.filters import PrivacyCost, PrivacyFilter

PLAN = Plan(ss.Categories(2), ss.NoisySlots(1, 0.5), ss.Guarantee(0.5, 1e-3, 200))
EPSILON, DELTA = 2.0, 1e-3
TIMES = 40  # so often does the plan fit, by the charge below


def cheap(_: Plan) -> Callable[[PrivacyFilter], PrivacyCost]:
    return lambda within: PrivacyCost(within.loss_limit / (TIMES + 0.5), 0.0)


def release(path: Path) -> None:
    """What must not happen more often than was entered: something becomes public."""
    with path.with_name("released").open("a") as file:
        file.write("1\n")


def released(path: Path) -> int:
    place = path.with_name("released")
    return len(place.read_text().split()) if place.exists() else 0


def a_copy(path: Path, call: int) -> Path:
    """The same budget for each call, so that each is made the same calls with."""
    place = path.with_name(str(call))
    place.mkdir()
    shutil.copy(path, place)
    return place / path.name


def enter_first(path: Path, call: int) -> None:
    vars(budget_module).update(costs_of=cheap)
    copy = a_copy(path, call)
    budget = Budget.open(copy)
    killed_at(call)
    budget.begin(PLAN)
    release(copy)


def release_first(path: Path, call: int) -> None:
    """As it must not be done."""
    vars(budget_module).update(costs_of=cheap)
    copy = a_copy(path, call)
    budget = Budget.open(copy)
    killed_at(call)
    release(copy)
    budget.begin(PLAN)


def spent_and_released(path: Path) -> set[tuple[int, int]]:
    """How often something was entered, and released, in each of the copies."""
    return {(len(Budget.open(copy).entries) - 1, released(copy)) for copy in path.parent.glob("*/budget.db")}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a budget that says already what the plan costs."""
    monkeypatch.setattr(budget_module, "costs_of", cheap)
    Budget.create(tmp_path / "budget.db", EPSILON, DELTA).begin(PLAN)
    return tmp_path / "budget.db"


def test_a_process_killed_at_any_step_leaves_what_it_entered_spent(path: Path) -> None:
    assert killed_everywhere(path.with_name("log"), partial(enter_first, path), step=3) >= 20
    # some were killed after the entry was on the disk and before anything was released
    assert spent_and_released(path) == {(0, 0), (1, 0), (1, 1)}


@pytest.mark.slow
def test_a_process_that_releases_before_it_enters_is_caught_by_the_same_test(path: Path) -> None:
    killed_everywhere(path.with_name("log"), partial(release_first, path))
    assert (0, 1) in spent_and_released(path)


def prepare(locked: bool) -> None:
    vars(budget_module).update(costs_of=cheap)
    if not locked:
        unlock_ledgers()


def take_all(path: Path, locked: bool, _: int) -> None:
    prepare(locked)
    try:
        budget = Budget.open(path)
        while True:
            budget.begin(PLAN)
            release(path)
    except PrivacyError:
        return
    except FileError:  # damaged by the others: more than could be
        for _ in range(2 * TIMES):
            release(path)


def enter_tasks(path: Path) -> None:
    prepare(locked=True)
    for task in range(8):
        Budget.open(path).enter(PLAN, f"task {task}")


def take_tasks(path: Path, locked: bool, number: int) -> None:
    """Each task by a store of this process, and by one that all share."""
    prepare(locked)
    budget = Budget.open(path)
    for task in range(8):
        for store in (f"store of {number}", "shared store"):
            budget.begin(PLAN, collection=f"task {task}", run=store, rounds=PLAN.rounds)


def all_at_once(path: Path, *, locked: bool, work: Any = take_all) -> int:
    Budget.create(path, EPSILON, DELTA)
    if work is take_tasks:
        assert forked(path.with_name("log"), partial(enter_tasks, path)) == 0
    processes = [start_forked(path.with_name("log"), partial(work, path, locked, number)) for number in range(3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, path.with_name("log").read_text()
    return released(path)


def test_processes_never_spend_the_same_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "budget.db"
    assert all_at_once(path, locked=True) == TIMES == len(Budget.open(path).entries)
    monkeypatch.setattr(budget_module, "costs_of", cheap)
    with refusal("budget-spent"):
        Budget.open(path).begin(PLAN)


def test_processes_without_a_lock_would_be_caught(tmp_path: Path) -> None:
    """The file is damaged, or more is released than was entered, or both."""
    assert all_at_once(tmp_path / "budget.db", locked=False) != TIMES


def held_by(path: Path) -> list[tuple[str | None, tuple[str, ...]]]:
    return sorted((entry.collection, entry.runs) for entry in Budget.open(path).entries)


def test_what_a_task_was_entered_for_is_taken_by_one_store_and_each_store_is_found_once(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    all_at_once(path, locked=True, work=take_tasks)
    stores = ("shared store", *(f"store of {number}" for number in range(3)))
    assert held_by(path) == [(f"task {task}", (store,)) for task in range(8) for store in stores]
