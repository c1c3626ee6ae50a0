from __future__ import annotations

import errno
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shufflesum.errors import ShufflesumError
from shufflesum.explorer.explorer import Job, Worker
from shufflesum.explorer.questions import begin


class Told:
    """Jobs of a lane and what they said, in order."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.said: list[Any] = []
        self._more = threading.Condition()

    def job(self, work: Any, *arguments: Any) -> Job:
        return Job(work, arguments, self._hear, self._hear)

    def _hear(self, found: Any) -> None:
        with self._more:
            self.said.append(found)
            self._more.notify_all()

    def until(self, many: int) -> list[Any]:
        with self._more:
            assert self._more.wait_for(lambda: len(self.said) >= many, 120)
            return self.said


@pytest.fixture
def told() -> Iterator[Told]:
    worker = Worker(begin)
    yield Told(worker)
    worker.close()


def test_what_is_wanted_is_computed_in_its_order_and_failures_are_told(told: Told) -> None:
    told.worker.replace_queue([told.job(math.sqrt, 4), told.job(math.sqrt, -1), told.job(math.sqrt, 9)])
    two, refused, three = told.until(3)
    assert (two, three) == (2, 3)
    assert isinstance(refused, ValueError)


def test_what_nobody_waits_for_any_more_is_not_begun_and_what_runs_is_not_begun_twice(told: Told) -> None:
    running = told.job(time.sleep, 0.3)
    told.worker.replace_queue([running, told.job(math.sqrt, 4)])
    told.worker.replace_queue([running, told.job(math.sqrt, 9)])
    told.worker.replace_queue([running, told.job(math.sqrt, 16), told.job(math.sqrt, 25)])
    assert told.until(3) == [None, 4, 5]


def test_what_a_killed_process_was_at_is_done_by_another(told: Told) -> None:
    told.worker.replace_queue([told.job(os.getpid), told.job(time.sleep, 1.0), told.job(math.sqrt, 4)])
    (pid,) = told.until(1)[:1]
    os.kill(pid, signal.SIGKILL)
    assert told.until(3) == [pid, None, 2]


def test_a_process_that_is_killed_while_nothing_is_wanted_is_replaced(told: Told) -> None:
    told.worker.replace_queue([told.job(os.getpid)])
    (pid,) = told.until(1)
    os.kill(pid, signal.SIGKILL)
    told.worker.replace_queue([told.job(math.sqrt, 4)])
    assert told.until(2) == [pid, 2]


def test_work_that_ends_its_process_is_told_to_have_failed_and_the_next_is_done(told: Told) -> None:
    told.worker.replace_queue([told.job(os._exit, 1), told.job(math.sqrt, 4)])
    failed, two = told.until(2)
    assert isinstance(failed, ShufflesumError)
    assert (failed.problem, two) == ("stopped", 2)


def test_where_no_process_can_be_started_work_fails_until_one_can(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: object) -> None:
        raise OSError(errno.EAGAIN, "too many processes")

    told.worker.replace_queue([told.job(os.getpid)])
    (pid,) = told.until(1)
    with monkeypatch.context() as patched:
        patched.setattr("multiprocessing.context.SpawnProcess.start", start)
        os.kill(pid, signal.SIGKILL)
        told.worker.replace_queue([told.job(math.sqrt, 4), told.job(math.sqrt, 9)])
        assert [failed.problem for failed in told.until(3)[1:]] == ["stopped", "stopped"]
    told.worker.replace_queue([told.job(math.sqrt, 16)])
    assert told.until(4)[-1] == 4


def test_a_lane_is_closed_whatever_its_process_does() -> None:
    for work in ((), (time.sleep, 600)):
        told = Told(worker := Worker(begin))
        worker.replace_queue([told.job(*work)] if work else [])
        worker.close()
        assert told.said == []
