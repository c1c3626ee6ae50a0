from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal

from shufflesum import RoundCounter
from shufflesum._documents import encode_checked
from shufflesum._machine import SYSTEM_CLOCK, locked
from shufflesum.errors import FileError, PrivacyError, ReportsError
from shufflesum.testing import unprotected_plan

PLAN = unprotected_plan(users=1, shape=1, rounds=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rounds.json"


def test_rounds_are_numbered_from_one_and_the_round_after_the_last_is_refused(path: Path) -> None:
    rounds = RoundCounter(path, PLAN)
    assert (rounds.used, rounds.left) == (0, 3)
    assert [rounds.begin() for _ in range(3)] == [1, 2, 3]
    assert (rounds.used, rounds.left) == (3, 0)
    for again in (rounds, RoundCounter(path, PLAN)):
        with refusal("rounds-spent", "rounds.json", "all 3 rounds", error=PrivacyError):
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
    assert not path.exists()


def test_a_restart_forgets_nothing_and_leaves_nothing_lying_about(path: Path) -> None:
    assert [RoundCounter(path, PLAN).begin() for _ in range(2)] == [1, 2]
    assert RoundCounter(str(path), PLAN).used == 2
    assert [entry.name for entry in path.parent.iterdir()] == ["rounds.json"]


def test_a_round_is_on_the_disk_before_it_is_begun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is, before it takes the old one's place; and then the folder that names it."""
    steps: list[str] = []

    def fsync(descriptor: int, real: Any = os.fsync) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real(descriptor)

    def put(source: Any, target: Any, real: Any = os.replace) -> None:
        steps.append("replace")
        real(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", put)
    RoundCounter(path, PLAN).begin()
    assert steps == ["file", "replace", "folder"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_disk_that_fails_begins_no_round(path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    rounds = RoundCounter(path, PLAN)
    rounds.begin()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, refusal("unwritable", "round 2", "No space", error=FileError):
        patched.setattr(os, failing, fail)
        rounds.begin()
    assert rounds.begin() == 2


def test_a_round_that_may_be_on_the_disk_is_spent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file is in its place, but nobody can say whether a crash would bring the old one back."""
    rounds = RoundCounter(path, PLAN)

    def fail(descriptor: int, real: Any = os.fsync) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patched, refusal("unwritable", "round 1", error=FileError):
        patched.setattr(os, "fsync", fail)
        rounds.begin()
    assert rounds.begin() == 2


@pytest.mark.long
def test_every_flipped_bit_and_every_cut_refuses_everything(path: Path) -> None:
    rounds = RoundCounter(path, PLAN)
    rounds.begin()
    good = path.read_bytes()
    damaged = [good[:length] for length in range(len(good))] + [good + b"\n", good + good]
    for place in range(len(good)):
        for bit in range(8):
            changed = bytearray(good)
            changed[place] ^= 1 << bit
            damaged.append(bytes(changed))
    for data in damaged:
        path.write_bytes(data)
        with refusal(("damaged", "format-mismatch"), "rounds.json", error=FileError):
            rounds.begin()
        with refusal(("damaged", "format-mismatch"), "rounds.json", error=FileError):
            RoundCounter(path, PLAN)
        assert path.read_bytes() == data
    path.write_bytes(good)
    assert rounds.begin() == 2


@pytest.mark.parametrize(
    "change",
    [*({"used": wrong} for wrong in (0, 4, -1, "1", 1.0, True, None)), {"rounds": 4}, {"rounds": "3"}],
)
def test_counts_that_make_no_sense_are_refused_whatever_their_checksum(path: Path, change: dict[str, Any]) -> None:
    content = {"plan": PLAN.id, "rounds": 3, "used": 1}
    path.write_text(encode_checked("shufflesum-rounds-1", content))
    assert RoundCounter(path, PLAN).used == 1
    path.write_text(encode_checked("shufflesum-rounds-1", content | change))
    with refusal("damaged", error=FileError):
        RoundCounter(path, PLAN)


def test_a_field_that_is_missing_is_damage(path: Path) -> None:
    path.write_text(encode_checked("shufflesum-rounds-1", {"plan": PLAN.id, "rounds": 3}))
    with refusal("damaged", error=FileError):
        RoundCounter(path, PLAN)


def test_another_plans_rounds_are_refused(path: Path) -> None:
    RoundCounter(path, PLAN).begin()
    more = replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=4))
    with refusal("plan-mismatch", PLAN.id[:12], more.id[:12], error=ReportsError):
        RoundCounter(path, more)


def test_a_link_is_the_file_it_points_to(path: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.json"
    link.symlink_to(path)
    assert RoundCounter(link, PLAN).begin() == 1
    assert link.is_symlink()
    assert RoundCounter(path, PLAN).begin() == 2
    assert RoundCounter(link, PLAN).used == 2


def test_places_where_no_file_can_be_are_refused(tmp_path: Path) -> None:
    with refusal("unreadable", error=FileError):
        RoundCounter(tmp_path, PLAN)
    with refusal("unwritable", error=FileError):
        RoundCounter(tmp_path / "missing" / "rounds.json", PLAN).begin()


def test_threads_never_take_the_same_round(path: Path) -> None:
    many = replace(PLAN, guarantee=replace(PLAN.guarantee, rounds=40))
    rounds = RoundCounter(path, many)
    with ThreadPoolExecutor(4) as pool:
        begun = sorted(pool.map(lambda _: rounds.begin(), range(40)))
    assert begun == list(range(1, 41))


def test_one_that_holds_the_file_forever_is_not_waited_for_forever(path: Path) -> None:
    clock = FakeClock()
    with locked(path, SYSTEM_CLOCK), refusal("in-use", "rounds.json", error=FileError):
        RoundCounter(path, PLAN, clock=clock).begin()
    assert RoundCounter(path, PLAN).begin() == 1
