"""The file of a budget: never begun anew, never guessed, and whatever is wrong with it refuses everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.budgets import DELTA, EPSILON, SMALL, THRICE, limits_of
from tests.refusals import refusal

from shufflesum.budget import Budget
from shufflesum.domains import Categories
from shufflesum.errors import FileError
from shufflesum.ledger import Ledger
from shufflesum.privacy.engine.filters import BasicFilter, GaussianFilter, RenyiFilter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.db"


def test_a_file_is_never_begun_anew_and_never_guessed(path: Path) -> None:
    with refusal("unreadable", "budget.db"):
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
    place = whole.index(b'"epsilon"')
    for damaged in (b"", whole[:-1], whole[:place] + b"*" + whole[place + 1 :]):
        path.write_bytes(damaged)
        for act in (lambda: budget.begin(SMALL), lambda: Budget.open(path), lambda: budget.spent):
            with refusal("damaged", "take all of the budget for spent", error=FileError):
                act()
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert len(Budget.open(path).entries) == 1


ENTRY = {"plan": "x", "epsilon": 1.0, "delta": 0.1, "users": 9, "rounds": 2, "begun": 1, "runs": [], "entered": ""}
ENTRY |= {"collection": None, "loss_cost": 0.1, "delta_cost": 0.0}
START: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "closed": False, "limits": None, "entries": []}
LIMITS = {"delta_share": 0.5, "order": 3.0}
ENTERED = {"place": 0, "entry": ENTRY, "limits": LIMITS}


def written(path: Path, *records: dict[str, Any]) -> Path:
    Ledger(path, "shufflesum-budget-5", "budget", "").create(*records)
    return path


def test_what_the_next_test_damages_is_whole(tmp_path: Path) -> None:
    assert Budget.open(written(tmp_path / "empty", START)).spent == 0
    for share, order, kind in ((0.5, 3.0, RenyiFilter), (0.25, None, GaussianFilter), (1.0, None, BasicFilter)):
        limits = {"delta_share": share, "order": order}
        path = written(tmp_path / kind.__name__, START, *(ENTERED | {"place": at, "limits": limits} for at in (0, 1)))
        budget = Budget.open(path)
        assert [entry.plan for entry in budget.entries] == ["x", "x"]
        assert type(limits_of(budget)) is kind


@pytest.mark.parametrize(
    "change",
    [
        {"limits": {"delta_share": 0.5, "order": 1.0}},
        {"limits": {"delta_share": 1.0, "order": 3.0}},
        {"limits": {"delta_share": 0.0, "order": None}},
        {"limits": None},
        {"place": 1},
        {"place": -1},
        {"entry": {"plan": "x"}},
        {"entry": ENTRY | {"begun": -1}},
        {"entry": ENTRY | {"begun": 3}},
        {"entry": ENTRY | {"runs": ["a", "b"]}},
        {"entry": ENTRY | {"begun": 2, "runs": ["a", "a"]}},
        {"entry": ENTRY | {"delta_cost": -1e-9}},
        {"more": 1},
    ],
)
def test_what_no_entry_can_say_is_damage_too(path: Path, change: dict[str, Any]) -> None:
    with refusal("damaged"):
        Budget.open(written(path, START, ENTERED | change))


@pytest.mark.parametrize(
    "change", [{"epsilon": -1.0}, {"closed": "no"}, {"closed": True}, {"limits": LIMITS}, {"entries": [ENTRY]}]
)
def test_what_no_budget_can_say_is_damage_too(path: Path, change: dict[str, Any]) -> None:
    with refusal("damaged"):
        Budget.open(written(path, START | change, *([ENTERED] if "closed" in change else [])))


def test_a_file_without_any_record_is_no_budget(path: Path) -> None:
    with refusal("damaged"):
        Budget.open(written(path))


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
        with refusal("rolled-back", "budget.db", error=FileError):
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
