from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shufflesum.explorer.lane import Job, Lane
from shufflesum.explorer.work import begin


class Told:
    """Jobs of a lane and what they said, in order."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
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
    lane = Lane(begin)
    yield Told(lane)
    lane.close()


def test_what_is_wanted_is_computed_in_its_order_and_failures_are_told(told: Told) -> None:
    told.lane.want([told.job(math.sqrt, 4), told.job(math.sqrt, -1), told.job(math.sqrt, 9)])
    two, refused, three = told.until(3)
    assert (two, three) == (2, 3)
    assert isinstance(refused, ValueError)


def test_what_nobody_waits_for_any_more_is_not_begun_and_what_runs_is_not_begun_twice(told: Told) -> None:
    running = told.job(time.sleep, 0.3)
    told.lane.want([running, told.job(math.sqrt, 4)])
    told.lane.want([running, told.job(math.sqrt, 9)])
    told.lane.want([running, told.job(math.sqrt, 16), told.job(math.sqrt, 25)])
    assert told.until(3) == [None, 4, 5]
