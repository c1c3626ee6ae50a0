"""The shuffler killed at random moments, its disk full, its database away: nothing is lost, nothing counted twice."""

from __future__ import annotations

import contextlib
import http.client
import random
import resource
import sqlite3
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.forked_processes import wait_until
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.service.stores.store import ArrivingUpload, open_store, split
from shufflesum.wire import UPLOAD_ID_BYTES, Task, Upload

USERS, ROUNDS = 12, 100_000
LOST = (OSError, http.client.HTTPException)


def reports_of(uploads: list[Upload]) -> Counter[bytes]:
    return Counter(report for upload in uploads for report in split(upload.sealed))


class Crowd:
    """Threads that send uploads without end, each again and again with the same bytes until it knows the outcome."""

    def __init__(self, server: ServerProcess, task: Task, threads: int = 4) -> None:
        self._server = server
        self._task = task
        self._stop = threading.Event()
        self.accepted: dict[int, list[Upload]] = defaultdict(list)
        self.refused: list[Upload] = []
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._send_all) for _ in range(threads)]

    def _send_all(self) -> None:
        round_number = 1
        while not self._stop.is_set():
            upload = fake_upload(self._task, round_number)
            if self._send(upload):
                self.accepted[round_number].append(upload)
            else:
                self.refused.append(upload)
                round_number += 1

    def _send(self, upload: Upload) -> bool:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                answer = self._server.upload(upload, seconds=10)
            except LOST:
                time.sleep(0.02)
                continue
            if answer.status == 201 or answer.problem == "repeated":
                return True
            if answer.problem == "round-closed":
                return False
            if answer.problem not in ("store-unavailable", "overloaded"):
                self.failures.append(f"{answer.status} {answer.problem}")
            time.sleep(0.02)
        self.failures.append("no answer in time")
        return False

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class Inside:
    """Looks into a shuffler's store from outside."""

    def __init__(self, store: str, task: Task) -> None:
        self._sqlite = store.removeprefix("sqlite:") if store.startswith("sqlite:") else None
        self._address = store
        self._schema = "" if self._sqlite else "shufflesum."
        self._task = task.id

    def _rows(self, query: str) -> list[Any]:
        if self._sqlite:
            with contextlib.closing(sqlite3.connect(self._sqlite)) as connection:
                return connection.execute(query).fetchall()
        with psycopg.connect(self._address, client_encoding="utf8") as database:
            return database.execute(query).fetchall()

    def settled(self) -> bool:
        """Whether no batch waits and none is about to."""
        rows = self._rows(self._rounds("users, state", "state != 'released'"))
        return all(state == "open" and users < USERS for users, state in rows)

    def open_round(self) -> tuple[int, int]:
        """The number of the open round, and how many users it has."""
        ((number, users),) = self._rows(self._rounds("number, users", "state = 'open'"))
        return number, users

    def _rounds(self, columns: str, condition: str) -> str:
        return f"SELECT {columns} FROM {self._schema}round WHERE task = '{self._task}' AND {condition}"

    def kept(self) -> Counter[bytes]:
        """The reports of the open round."""
        rows = self._rows(f"SELECT upload FROM {self._schema}uploads_{self._task[:32]}_{self.open_round()[0]}")
        return Counter(report for (upload,) in rows for report in split(upload[UPLOAD_ID_BYTES:]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("kills", [100])
def test_nothing_is_lost_or_counted_twice_through_crashes(
    kind: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, reports=2, rounds=ROUNDS)
    store = None
    if kind == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        store = postgres.address
    source = random.Random(kills)
    answers: list[int | str] = [201, 201, 200, "drop", 503]
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, store=store) as server:
        inside = Inside(store or f"sqlite:{tmp_path / 'shuffler.db'}", deployment.task)
        with Crowd(server, deployment.task) as crowd:
            for _ in range(kills):
                analyzer.answer = source.choice(answers)
                known = len(analyzer.attempts)
                wait_until(lambda known=known: len(analyzer.attempts) > known)
                time.sleep(source.uniform(0, 0.2))
                server.kill()
                server.restart()
            analyzer.answer = 201
        assert not crowd.failures
        wait_until(inside.settled)
        number, users = inside.open_round()
        for _ in range(USERS - 1 - users):
            last = fake_upload(deployment.task, number)
            assert server.upload(last).status == 201
            crowd.accepted[number].append(last)
        server.stop()
    for batch in analyzer.received.values():
        assert USERS <= batch.users == len(crowd.accepted[batch.round_number])
        assert Counter(batch.reports) == reports_of(crowd.accepted[batch.round_number])
    released = [batch.round_number for batch in analyzer.received.values()]
    assert released == list(range(1, len(released) + 1))
    waiting = [upload for number in crowd.accepted if number > len(released) for upload in crowd.accepted[number]]
    assert inside.kept() == reports_of(waiting)
    assert waiting
    members = {(attempt.batch_id, frozenset(attempt.reports)) for attempt in analyzer.attempts}
    assert len(members) == len({batch_id for batch_id, _ in members})


def test_a_batch_is_sent_again_under_its_id_until_the_analyzer_has_it(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        analyzer.answer = 503
        uploads = [fake_upload(deployment.task) for _ in range(USERS)]
        assert [server.upload(upload).status for upload in uploads] == [201] * USERS
        wait_until(lambda: len(analyzer.attempts) >= 2)
        server.kill()
        server.restart()
        analyzer.answer = "drop"
        wait_until(lambda: len(analyzer.received) == 1 and len(analyzer.attempts) >= 4)
        analyzer.answer = 200
        wait_until(lambda: server.metric("shufflesum_batches_released_total") == 1)
    assert len({attempt.batch_id for attempt in analyzer.attempts}) == 1
    assert {frozenset(attempt.reports) for attempt in analyzer.attempts} == {
        frozenset(upload.sealed for upload in uploads)
    }


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are set with prlimit")
def test_a_full_disk_refuses_uploads_and_recovers_by_itself(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=10**6, reports=50)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        first = fake_upload(deployment.task)
        assert server.upload(first).status == 201
        largest = max(path.stat().st_size for path in tmp_path.glob("shuffler.db*"))
        before = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (largest + 20_000, before[1]))
        sent = []
        for _ in range(40):
            sent.append(fake_upload(deployment.task))
            answer = server.upload(sent[-1])
            if answer.status != 201:
                break
        assert (answer.status, answer.problem, answer.json["retry"]) == (503, "store-unavailable", "not-yet")
        assert server.upload(first).problem == "repeated"
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, before)
        assert server.upload(sent[-1]).status == 201  # it was not acknowledged, and it was not stored
        assert [server.upload(upload).problem for upload in sent] == ["repeated"] * len(sent)
        server.stop()
    inside = Inside(f"sqlite:{tmp_path / 'shuffler.db'}", deployment.task)
    assert inside.kept() == reports_of([first, *sent])


def test_a_database_that_is_away_refuses_uploads_and_recovers_by_itself(tmp_path: Path, postgres: Postgres) -> None:
    deployment = Deployment.small(tmp_path, users=4, reports=2)
    postgres.stop()
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, store=postgres.address) as server:
        uploads = [fake_upload(deployment.task) for _ in range(4)]
        # It starts before its database, and loses it again.
        assert server.upload(uploads[0]).status == 503
        postgres.start()
        wait_until(lambda: server.upload(uploads[0]).status in (201, 409))
        postgres.stop()
        answer = server.upload(uploads[1])
        assert (answer.status, answer.problem) == (503, "store-unavailable")
        assert "retry-after" in answer.headers
        assert server.request("GET", "/readyz").status == 503
        assert server.request("GET", "/healthz").status == 200
        postgres.start()
        wait_until(lambda: server.request("GET", "/readyz").status == 200)
        assert [server.upload(upload).status for upload in uploads] == [409, 201, 201, 201]
        assert Counter(analyzer.wait_for(1)[0].reports) == reports_of(uploads)


@pytest.mark.slow
def test_a_million_users_are_released_in_little_memory(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=10**6)
    address = f"sqlite:{tmp_path / 'shuffler.db'}"
    store = open_store(address, deployment.task)
    for _ in range(100):
        uploads = [fake_upload(deployment.task) for _ in range(10_000)]
        store.take([ArrivingUpload(1, upload.upload_id, upload.sealed) for upload in uploads])
    store.close()
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        assert analyzer.wait_for(1, 120)[0].users == 10**6
        wait_until(lambda: server.metric("shufflesum_batches_released_total") == 1, 120)
        status = Path(f"/proc/{server.pid}/status").read_text()
        (peak,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        assert peak < 400 * 1024, f"{peak} kB"
    assert len(set(analyzer.attempts[0].reports)) == 10**6
