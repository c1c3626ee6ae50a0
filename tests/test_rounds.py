from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.refusals import refusal

from shufflesum import RoundCounter
from shufflesum.errors import FileError, PrivacyError, ReportsError
from shufflesum.ledger import Ledger
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=1, rounds=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rounds.db"


def test_rounds_are_numbered_from_one_and_the_round_after_the_last_is_refused(path: Path) -> None:
    rounds = RoundCounter(path, PLAN)
    assert (rounds.used, rounds.left) == (0, 3)
    assert [rounds.begin() for _ in range(3)] == [1, 2, 3]
    assert (rounds.used, rounds.left) == (3, 0)
    for again in (rounds, RoundCounter(path, PLAN)):
        with refusal("rounds-spent", "rounds.db", "all 3 rounds", error=PrivacyError):
            again.begin()
    assert rounds.used == 3


def test_what_else_is_entered_goes_before_and_only_where_a_round_is_left(path: Path) -> None:
    entered = list[int]()
    rounds = RoundCounter(path, PLAN)
    for number in (1, 2, 3):
        assert rounds.begin(lambda: entered.append(rounds.used)) == number
    with refusal("rounds-spent"):
        rounds.begin(lambda: entered.append(rounds.used))
    assert entered == [0, 1, 2]


def test_where_something_else_refuses_to_be_entered_no_round_is_begun(path: Path) -> None:
    def refuse() -> None:
        raise PrivacyError("budget-spent", "too much")

    with refusal("budget-spent"):
        RoundCounter(path, PLAN).begin(refuse)
    assert RoundCounter(path, PLAN).used == 0


def test_a_restart_forgets_nothing_and_leaves_nothing_lying_about(path: Path) -> None:
    assert [RoundCounter(path, PLAN).begin() for _ in range(2)] == [1, 2]
    assert RoundCounter(str(path), PLAN).used == 2
    assert [entry.name for entry in path.parent.iterdir()] == ["rounds.db"]


def test_a_damaged_file_and_an_older_copy_refuse_everything(path: Path) -> None:
    rounds = RoundCounter(path, PLAN)
    rounds.begin()
    older = path.read_bytes()
    rounds.begin()
    newest = path.read_bytes()
    for data, problem in ((newest[:-1], "damaged"), (b"", "damaged"), (older, "rolled-back")):
        path.write_bytes(data)
        with refusal(problem, "rounds.db", "take them all for spent", error=FileError):
            rounds.begin()
        with refusal(problem, "rounds.db", "take them all for spent", error=FileError):
            assert rounds.used == 2
        assert path.read_bytes() == data
    path.write_bytes(newest)
    assert rounds.begin() == 3


@pytest.mark.parametrize(
    "change", [*({"round": wrong} for wrong in (0, 2, -1, "1", None)), {"rounds": 4}, {"rounds": "3"}, {"more": 1}]
)
def test_counts_that_make_no_sense_are_refused_whatever_their_checksum(path: Path, change: dict[str, Any]) -> None:
    good = {"plan": PLAN.id, "rounds": 3, "round": 1}
    Ledger(path, "shufflesum-rounds-2", "count", "").create(good | change)
    with refusal("damaged", error=FileError):
        RoundCounter(path, PLAN)
    path.unlink()
    Ledger(path, "shufflesum-rounds-2", "count", "").create(good)
    assert RoundCounter(path, PLAN).used == 1


def test_another_plans_rounds_are_refused(path: Path) -> None:
    RoundCounter(path, PLAN).begin()
    more = replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=4))
    with refusal("plan-mismatch", PLAN.id[:12], more.id[:12], error=ReportsError):
        RoundCounter(path, more)
