"""Whoever asks a server takes a bounded number of bytes of its answer, and waits a bounded time for it."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.clocks import FakeClock
from tests.forked_processes import wait_until
from tests.service.client.scripted_shuffler import KEY
from tests.service.hostile_server import HUGE, HostileServer
from tests.service.servers import Deployment, fake_upload

from shufflesum.service import client as client_module
from shufflesum.service.analyzer.page import ShufflerProgress
from shufflesum.service.client import (
    Client,
    Contributions,
    RefusedError,
    UnreachableError,
    fetch_estimate,
    fetch_status,
)
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Task

TOO_MUCH = ("compressed", "endless")
DRIPPING = ("dripping head", "dripping body")
FEW_BYTES = 24 << 20


def task_at(server: HostileServer, rounds: int = 1) -> Task:
    return UnprotectedTask(
        name="hostile",
        plan=unprotected_plan(users=1, shape=3, coordinates=3, levels=10, rounds=rounds),
        analyzer_key=KEY.public_key().public_bytes_raw(),
        shuffler=server.url,
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )


@contextmanager
def little_memory() -> Iterator[None]:
    """Fails where more than a few megabytes are held at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < FEW_BYTES
    finally:
        tracemalloc.stop()


QUESTIONS: dict[str, Callable[[Task], object]] = {
    "estimate": lambda task: fetch_estimate(task, task.shuffler, clock=FakeClock()),
    "round": lambda task: fetch_status(task, task.shuffler, "shuffler"),
    "status": lambda task: fetch_status(task, task.shuffler, "analyzer"),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("manner", [*TOO_MUCH, "nested"])
def test_an_answer_that_is_too_much_is_refused_long_before_its_end(manner: str, question: str) -> None:
    with HostileServer(manner, 200) as server, little_memory():
        with pytest.raises(RefusedError) as refused:
            QUESTIONS[question](task_at(server))
        assert (refused.value.problem, refused.value.final) == ("bad-answer", True)
    assert server.sent < HUGE / 8


@pytest.mark.parametrize("manner", TOO_MUCH)
@pytest.mark.parametrize("status", [201, 409, 503])
def test_an_upload_is_acknowledged_by_no_such_answer_and_kept(tmp_path: Path, manner: str, status: int) -> None:
    with HostileServer(manner, status) as server, little_memory():
        task = task_at(server)
        with Client(task, contributions=tmp_path / "contributions") as client:
            with pytest.raises(RefusedError) as refused:
                client.upload([0.1, 0.2, 0.3])
            assert refused.value.problem == "bad-answer"
            assert client.acknowledged(["me"], 1) == 0
    with Contributions(tmp_path / "contributions") as kept:
        assert kept.known(task, ["me"], 1)["me"]


@pytest.mark.parametrize("manner", DRIPPING)
def test_an_answer_that_drips_in_for_ever_is_given_up(
    tmp_path: Path, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_LONGEST_ANSWER", 0.3)
    monkeypatch.setattr(client_module, "_SECONDS", 0.3)
    begun = time.monotonic()
    with HostileServer(manner) as server:
        task = task_at(server)
        with (
            Client(task, contributions=tmp_path / "contributions", timeout=1, clock=FakeClock()) as client,
            pytest.raises(UnreachableError) as gone,
        ):
            client.upload([0.1, 0.2, 0.3])
        assert gone.value.problem == "unreachable"
        for question in ("estimate", "status"):
            with pytest.raises(UnreachableError):
                QUESTIONS[question](task)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("manner", [*TOO_MUCH, *DRIPPING])
def test_a_page_is_shown_without_the_progress_that_such_a_shuffler_tells(manner: str) -> None:
    begun = time.monotonic()
    with HostileServer(manner, 200) as server, little_memory():
        assert asyncio.run(ShufflerProgress(task_at(server, rounds=2)).latest()) is None
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("manner", [*TOO_MUCH, "nested"])
def test_a_shuffler_keeps_its_memory_and_its_batch_from_such_an_analyzer(tmp_path: Path, manner: str) -> None:
    deployment = Deployment.small(tmp_path, users=2)
    with HostileServer(manner) as analyzer, deployment.shuffler(analyzer.url) as server:
        before = server.most_memory()
        for _ in range(2):
            assert server.upload(fake_upload(deployment.task)).status == 201
        wait_until(lambda: sum(event["event"].startswith("release failed") for event in server.events()) >= 3)
        assert server.most_memory() - before < 64 << 20
        server.stop()
    with HostileServer(manner) as analyzer, deployment.shuffler(analyzer.url) as server:
        assert server.request("GET", "/readyz").status == 200
        wait_until(lambda: any(event["event"].startswith("release failed") for event in server.events()))
