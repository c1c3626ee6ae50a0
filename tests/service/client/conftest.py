from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import FakeClock
from tests.service.client.scripted_shuffler import Shuffler, running, task_for

from shufflesum.service.client import Client
from shufflesum.wire import Task


@pytest.fixture
def shuffler() -> Iterator[Shuffler]:
    with running() as found:
        yield found


@pytest.fixture
def task(shuffler: Shuffler) -> Task:
    return task_for(shuffler)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def connect(task: Task, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Client]]:
    """Makes clients that never wait for real."""
    made: list[Client] = []

    def call(other: Task | None = None, **options: Any) -> Client:
        arguments: dict[str, Any] = {"contributions": tmp_path / "contributions", "timeout": 60, "clock": clock}
        made.append(Client(other or task, **arguments | options))
        return made[-1]

    yield call
    for client in made:
        client.close()
