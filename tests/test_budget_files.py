"""The file of a budget: never begun anew, never guessed, and whatever is wrong with it refuses everything."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from tests.budgets import DELTA, EPSILON, SMALL, THRICE
from tests.fuzz import damaged_bytes
from tests.refusals import refusal

from shufflesum._documents import encode_checked
from shufflesum.budget import Budget
from shufflesum.domains import Categories
from shufflesum.errors import FileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.json"


def test_a_file_is_never_begun_anew_and_never_guessed(path: Path) -> None:
    with refusal("unreadable", "budget.json"):
        Budget.open(path)
    budget = Budget.create(path, EPSILON, DELTA)
    with refusal("exists"):
        Budget.create(path, EPSILON, DELTA)
    path.unlink()
    for act in (lambda: budget.begin(SMALL), lambda: budget.spent, lambda: budget.fits(SMALL)):
        with refusal("unreadable"):
            act()
    assert not path.exists()


def test_a_damaged_file_refuses_everything(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    budget.begin(SMALL)
    whole = path.read_bytes()
    source = random.Random(1)
    for damaged in [*(damaged_bytes(source, whole) for _ in range(60)), b"", whole[:-1], whole + b" "]:
        path.write_bytes(damaged)
        for act in (lambda: budget.begin(SMALL), lambda: Budget.open(path), lambda: budget.spent):
            with refusal(("damaged", "format-mismatch"), error=FileError):
                act()
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert len(Budget.open(path).entries) == 1


ENTRY = {"plan": "x", "epsilon": 1.0, "delta": 0.1, "users": 9, "rounds": 2, "begun": 1, "runs": [], "entered": ""}
ENTRY |= {"collection": None, "loss_cost": 0.1, "delta_cost": 0.0}
CONTENT = {
    "epsilon": EPSILON,
    "delta": DELTA,
    "closed": False,
    "limits": {"delta_share": 0.5, "order": 3.0},
    "entries": [ENTRY],
    "changes": ["00c0ffee"],
}


def test_what_the_next_test_damages_is_whole(path: Path) -> None:
    for limits in ({"delta_share": 0.5, "order": 3.0}, {"delta_share": 0.25, "order": None}):
        path.write_text(encode_checked("shufflesum-budget-4", CONTENT | {"limits": limits}))
        assert Budget.open(path).entries[0].plan == "x"
    path.write_text(encode_checked("shufflesum-budget-4", CONTENT | {"limits": None, "entries": []}))
    assert Budget.open(path).spent == 0


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": -1.0},
        {"epsilon": -1.0, "limits": None, "entries": []},
        {"limits": {"delta_share": 0.5, "order": 1.0}},
        {"limits": {"delta_share": 1.0, "order": 3.0}},
        {"limits": {"delta_share": 0.0, "order": None}},
        {"limits": None},
        {"closed": True},
        {"entries": []},
        {"entries": [{"plan": "x"}]},
        {"entries": [ENTRY | {"begun": -1}]},
        {"entries": [ENTRY | {"begun": 3}]},
        {"entries": [ENTRY | {"runs": ["a", "b"]}]},
        {"entries": [ENTRY | {"begun": 2, "runs": ["a", "a"]}]},
        {"entries": [ENTRY | {"delta_cost": -1e-9}]},
        {"closed": "no"},
        {"changes": []},
        {"changes": [1]},
        {"more": 1},
    ],
)
def test_what_no_budget_can_say_is_damage_too(path: Path, change: dict[str, Any]) -> None:
    path.write_text(encode_checked("shufflesum-budget-4", CONTENT | change))
    with refusal("damaged"):
        Budget.open(path)


def test_an_open_budget_refuses_an_older_copy_of_its_file(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    older = path.read_bytes()
    budget.begin(SMALL)
    newest = path.read_bytes()
    path.write_bytes(older)
    for act in (
        lambda: budget.begin(SMALL),
        lambda: budget.enter(SMALL, "task"),
        lambda: budget.ask(users=500, domain=Categories(3)),
        lambda: budget.fits(SMALL),
        lambda: budget.entries,
        lambda: str(budget),
    ):
        with refusal("rolled-back", "budget.json", error=FileError):
            act()
    assert path.read_bytes() == older
    path.write_bytes(newest)
    assert len(budget.entries) == 1


def test_what_others_entered_since_does_not_hide_that_a_copy_was_older(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    budget.begin(THRICE)
    older = path.read_bytes()
    budget.begin(THRICE)
    path.write_bytes(older)
    Budget.open(path).begin(THRICE)  # as many rounds as before, but another one
    with refusal("rolled-back", error=FileError):
        budget.begin(THRICE)


def test_a_budget_made_anew_in_the_same_place_is_refused(path: Path) -> None:
    budget = Budget.create(path, EPSILON, DELTA)
    path.unlink()
    Budget.create(path, EPSILON, DELTA)
    with refusal("rolled-back", error=FileError):
        budget.begin(SMALL)


def test_an_older_copy_is_refused_by_whoever_only_read_the_newer_one(path: Path) -> None:
    reader, writer = Budget.create(path, EPSILON, DELTA), Budget.open(path)
    older = path.read_bytes()
    writer.begin(SMALL)
    assert len(reader.entries) == 1
    path.write_bytes(older)
    with refusal("rolled-back", error=FileError):
        reader.fits(SMALL)


def test_a_disk_that_fails_enters_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget.create(path, EPSILON, DELTA)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, refusal("unwritable", "No space", error=FileError):
        patched.setattr(os, "replace", fail)
        budget.begin(SMALL)
    assert budget.entries == ()
