"""Rounds counted by processes that are killed, and by several at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.forked_processes import forked, killed_at, killed_everywhere, start_forked, unlock_ledgers
from tests.refusals import refusal

from shufflesum import RoundCounter
from shufflesum.errors import FileError, PrivacyError
from shufflesum.plans import Plan
from shufflesum.testing import unprotected_plan

ONE = unprotected_plan(users=1, shape=1, rounds=1)


def with_rounds(rounds: int) -> Plan:
    return replace(ONE, guarantee=replace(ONE.guarantee, rounds=rounds))


def release(path: Path, number: int) -> None:
    """What must happen at most once for each round: it becomes public."""
    with path.with_name("released").open("a") as file:
        file.write(f"{number}\n")


def released(path: Path) -> list[int]:
    place = path.with_name("released")
    return [int(line) for line in place.read_text().split()] if place.exists() else []


def enter_first(path: Path, plan: Plan, call: int) -> None:
    rounds = RoundCounter(path, plan)
    killed_at(call)
    release(path, rounds.begin())


def release_first(path: Path, plan: Plan, call: int) -> None:
    """As it must not be done."""
    rounds = RoundCounter(path, plan)
    killed_at(call)
    release(path, rounds.used + 1)
    rounds.begin()


def kill_everywhere(path: Path, work: Callable[[Path, Plan, int], None]) -> tuple[int, list[int]]:
    """How many were killed, each one call later than the one before, and what was released by all."""
    return killed_everywhere(path.with_name("log"), partial(work, path, with_rounds(200))), released(path)


def test_a_process_killed_at_any_step_never_leaves_a_round_that_is_taken_twice(tmp_path: Path) -> None:
    path = tmp_path / "rounds.db"
    killed, numbers = kill_everywhere(path, enter_first)
    rounds = RoundCounter(path, with_rounds(200))
    assert killed >= 10
    assert len(set(numbers)) == len(numbers) >= 1
    assert numbers == sorted(numbers)
    # Some were killed after the round was on the disk and before they could use it: it is spent all the same.
    assert rounds.used == max(numbers) > len(numbers)
    assert rounds.begin() == rounds.used == max(numbers) + 1


def test_a_process_that_enters_a_round_too_late_is_caught_by_the_same_test(tmp_path: Path) -> None:
    _, numbers = kill_everywhere(tmp_path / "rounds.db", release_first)
    assert len(set(numbers)) < len(numbers)


def take_all(path: Path, plan: Plan, locked: bool) -> None:
    if not locked:
        unlock_ledgers()
    try:
        rounds = RoundCounter(path, plan)
        while True:
            release(path, rounds.begin())
    except PrivacyError:
        return
    except FileError:  # damaged by the others
        release(path, -1)


def all_at_once(path: Path, *, locked: bool) -> list[int]:
    plan = with_rounds(60)
    work = partial(take_all, path, plan, locked)
    processes = [start_forked(path.with_name("log"), work) for _ in range(3)]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0, path.with_name("log").read_text()
    if locked:
        with refusal("rounds-spent", error=PrivacyError):
            RoundCounter(path, plan).begin()
    return released(path)


def test_processes_never_take_the_same_round(tmp_path: Path) -> None:
    assert sorted(all_at_once(tmp_path / "rounds.db", locked=True)) == list(range(1, 61))


def test_processes_without_a_lock_would_be_caught(tmp_path: Path) -> None:
    """The file is damaged, or numbers are taken twice, or both."""
    assert sorted(all_at_once(tmp_path / "rounds.db", locked=False)) != list(range(1, 61))


@pytest.mark.parametrize("call", [20, 90])
def test_what_a_killed_process_leaves_does_not_stop_the_next(tmp_path: Path, call: int) -> None:
    path = tmp_path / "rounds.db"
    assert forked(tmp_path / "log", partial(enter_first, path, with_rounds(5), call)) == -signal.SIGKILL
    rounds = RoundCounter(path, with_rounds(5))
    begun = rounds.begin()
    assert begun in (1, 2)
    assert RoundCounter(path, with_rounds(5)).used == begun
