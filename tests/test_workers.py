from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from shufflesum._machine import Workers


def test_results_come_in_the_order_of_the_jobs() -> None:
    def slower_first(_: int, job: int) -> int:
        time.sleep(0.001 * (20 - job))
        return job

    with Workers(range(4)) as pool:
        assert list(pool.map(slower_first, range(20))) == list(range(20))


def test_no_two_jobs_have_a_state_at_once() -> None:
    def count(state: list[int], job: int) -> None:
        (before,) = state
        time.sleep(0.0005)
        state[0] = before + job

    with Workers([[0] for _ in range(4)]) as pool:
        for _ in pool.map(count, range(100)):
            pass
    assert sum(state[0] for state in pool.states) == sum(range(100))


def test_jobs_are_taken_only_a_few_ahead() -> None:
    taken: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(100):
            taken.append(job)
            yield job

    with Workers([None, None]) as pool:
        for ahead in (0, 1, 5):
            taken.clear()
            results = pool.map(lambda _, job: job, jobs(), ahead=ahead)
            assert next(results) == 0
            assert len(taken) == ahead + 1
            assert list(results) == list(range(1, 100))


def test_one_map_may_feed_another() -> None:
    with Workers([None]) as pool:
        squares = pool.map(lambda _, job: job * job, range(50))
        assert list(pool.map(lambda _, job: job + 1, squares)) == [job * job + 1 for job in range(50)]


def test_an_error_comes_out_and_what_has_not_begun_is_dropped() -> None:
    begun: list[int] = []
    go_on = threading.Event()

    def work(_: None, job: int) -> None:
        begun.append(job)
        if job == 0:
            raise KeyError(job)
        go_on.wait(10)

    def run() -> None:
        with Workers([None, None]) as pool:
            for _ in pool.map(work, range(100), ahead=50):
                pass

    threading.Timer(0.2, go_on.set).start()
    with pytest.raises(KeyError):
        run()
    assert len(begun) < 50
