"""The shuffler as a process: what it takes, what it refuses, and what it lets out."""

from __future__ import annotations

import http.client
import math
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.clocks import ServerClock
from tests.forked_processes import wait_until
from tests.refusals import refusal
from tests.service.distinct_users import dependence
from tests.service.http_requests import Answer
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from shufflesum.cli.serve import serve_command as command
from shufflesum.errors import FileError, ParameterError, ShufflesumError
from shufflesum.sealing import SEALED_BYTES, WIRE_VERSION
from shufflesum.service.http.app import Limits, valid_secrets
from shufflesum.service.shuffler import server as shuffler_module
from shufflesum.service.shuffler.release import AnalyzerAddress
from shufflesum.service.shuffler.server import ShufflerOptions
from shufflesum.wire import Task, Upload

USERS = 6
Busy = tuple[Deployment, ServerProcess]


@pytest.fixture(scope="module")
def analyzer() -> Iterator[StandInAnalyzer]:
    with StandInAnalyzer() as running:
        yield running


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory, analyzer: StandInAnalyzer) -> Iterator[Busy]:
    """A shuffler that many tests talk to and that never has enough users."""
    deployment = Deployment.small(tmp_path_factory.mktemp("busy"), users=10**6, reports=2, rounds=2)
    with deployment.shuffler(analyzer.url, "--operator-secret-file", str(deployment.operator_file)) as server:
        yield deployment, server


def post(server: ServerProcess, deployment: Deployment, body: bytes, **rest: Any) -> Answer:
    return server.request("POST", f"/tasks/{deployment.task.id}/uploads", body, **rest)


def refused(answer: Answer, status: int, problem: str) -> bool:
    return (
        (answer.status, answer.problem) == (status, problem)
        and answer.headers["content-type"] == "application/problem+json"
        and answer.json["status"] == status
    )


def test_an_upload_is_taken_once_and_its_repetition_recognised(busy: Busy) -> None:
    deployment, server = busy
    upload = fake_upload(deployment.task)
    before = server.metric("shufflesum_uploads_total")
    assert server.upload(upload).status == 201
    assert refused(server.upload(upload), 409, "repeated")
    assert refused(server.upload(replace(upload, sealed=os.urandom(len(upload.sealed)))), 409, "repeated")
    assert server.metric("shufflesum_uploads_total") == before + 1


def test_each_bad_upload_has_a_problem_of_its_own(busy: Busy) -> None:
    deployment, server = busy
    good = fake_upload(deployment.task).encode()
    other = Deployment.small(deployment.folder, users=7).task
    assert refused(post(server, deployment, bytes([0, WIRE_VERSION + 1]) + good[2:]), 400, "wrong-version")
    assert refused(post(server, deployment, good[:-1]), 400, "wrong-length")
    assert refused(post(server, deployment, b""), 400, "wrong-length")
    assert refused(post(server, deployment, good + b"\0"), 400, "wrong-length")
    assert refused(post(server, deployment, good + bytes(SEALED_BYTES)), 400, "wrong-length")  # one report too many
    assert refused(post(server, deployment, good + bytes(SEALED_BYTES + 1)), 413, "too-large")
    assert refused(post(server, deployment, good[:2] + bytes.fromhex(other.id) + good[34:]), 404, "wrong-task")
    assert refused(server.request("POST", f"/tasks/{other.id}/uploads", good), 404, "wrong-task")
    assert refused(server.upload(fake_upload(deployment.task, 3)), 400, "wrong-round")
    assert refused(server.upload(fake_upload(deployment.task, 0)), 400, "wrong-round")
    early = server.upload(fake_upload(deployment.task, 2))
    assert refused(early, 409, "round-not-open")
    assert early.json["retry"] == "not-yet"
    assert refused(server.request("GET", "/"), 404, "not-found")
    assert refused(server.request("PUT", "/healthz"), 405, "wrong-method")


def test_the_server_says_how_it_is_and_what_it_serves(busy: Busy) -> None:
    deployment, server = busy
    assert server.request("GET", "/healthz").status == 200
    assert server.request("GET", "/readyz").status == 200
    assert server.request("GET", f"/tasks/{deployment.task.id}").body == deployment.task.to_json().encode()
    assert server.request("GET", f"/tasks/{deployment.task.id}/round").json["open_round"] == 1
    assert refused(server.request("GET", f"/tasks/{'0' * 64}"), 404, "wrong-task")


def test_how_many_users_there_are_is_told_in_steps_and_only_if_the_operator_wants_it(
    tmp_path: Path, busy: Busy
) -> None:
    quiet, server = busy
    assert "users_at_least" not in server.request("GET", f"/tasks/{quiet.task.id}/round").json
    deployment = Deployment.small(tmp_path, users=400)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, "--show-progress") as server:
        seen = []
        for users in range(1, 42):
            assert server.upload(fake_upload(deployment.task)).status == 201
            if users in (19, 20, 39, 41):
                seen.append(server.request("GET", f"/tasks/{deployment.task.id}/round").json["users_at_least"])
        assert seen == [0, 20, 20, 40]


def test_only_the_operator_can_ask_for_a_release(busy: Busy, tmp_path: Path, analyzer: StandInAnalyzer) -> None:
    deployment, server = busy
    path = f"/tasks/{deployment.task.id}/release"
    for headers in (None, {"Authorization": "Bearer x"}, deployment.bearer):
        assert refused(server.request("POST", path, headers=headers), 401, "wrong-secret")
    answer = server.request("POST", path, headers=deployment.operator)
    assert refused(answer, 409, "batch-too-small")
    assert answer.json["retry"] == "not-yet"
    # The shared secret does not open it from the operator's file either.
    former = deployment.operator_file.read_text()
    deployment.operator_file.write_text(f"{deployment.secret}\n{former}")
    assert refused(server.request("POST", path, headers=deployment.bearer), 401, "wrong-secret")
    assert refused(server.request("POST", path, headers={"Authorization": f"Bearer {former}"}), 409, "batch-too-small")
    deployment.operator_file.write_text(former)
    without = Deployment.small(tmp_path, users=2)
    with without.shuffler(analyzer.url) as server:
        path = f"/tasks/{without.task.id}/release"
        for headers in (None, without.bearer, {"Authorization": "Bearer "}):
            assert refused(server.request("POST", path, headers=headers), 401, "wrong-secret")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_full_round_is_released_whole_and_the_next_one_opens(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, reports=2, rounds=2)
    store = None
    if kind == "postgres":
        running: Postgres = request.getfixturevalue("postgres")
        store = running.address
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, store=store) as server:
        for round_number in (1, 2):
            uploads = [fake_upload(deployment.task, round_number) for _ in range(USERS)]
            for upload in uploads[:-1]:
                assert server.upload(upload).status == 201
                assert refused(server.upload(upload), 409, "repeated")  # repetitions are no users
            assert len(analyzer.attempts) == round_number - 1
            assert server.upload(uploads[-1]).status == 201
            batch = analyzer.wait_for(round_number)[-1]
            assert (batch.round_number, batch.users) == (round_number, USERS)
            assert batch.authorization == f"Bearer {deployment.secret}"
            assert sorted(batch.reports) == sorted(reports_of(uploads))
            wait_until(lambda n=round_number: server.metric("shufflesum_batches_released_total") == n)
            assert refused(server.upload(fake_upload(deployment.task, round_number)), 409, "round-closed")
            assert refused(server.upload(uploads[0]), 409, "repeated")
        assert server.request("GET", f"/tasks/{deployment.task.id}/round").json["open_round"] is None
        assert len({batch.batch_id for batch in analyzer.attempts}) == 2
        assert server.stop() == 0


def reports_of(uploads: list[Upload]) -> list[bytes]:
    return [u.sealed[i : i + SEALED_BYTES] for u in uploads for i in range(0, len(u.sealed), SEALED_BYTES)]


def test_copies_of_a_victims_reports_never_fill_a_batch(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=USERS, reports=3)
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        victim = fake_upload(deployment.task)
        assert server.upload(victim).status == 201
        one = victim.sealed[SEALED_BYTES : 2 * SEALED_BYTES]
        for sealed in (victim.sealed, one + fake_upload(deployment.task).sealed[SEALED_BYTES:], one * 3) * USERS:
            answer = server.upload(replace(victim, upload_id=secrets.token_bytes(16), sealed=sealed))
            assert (answer.status, answer.problem) == (409, "duplicate-report")
        assert server.upload(victim).problem == "repeated"
        assert server.metric("shufflesum_uploads_total") == 1
        others = [fake_upload(deployment.task) for _ in range(USERS - 1)]
        assert [server.upload(upload).status for upload in others] == [201] * (USERS - 1)
        (batch,) = analyzer.wait_for(1)
    assert batch.users == USERS
    assert len(set(batch.reports)) == len(batch.reports) == 3 * USERS


def test_release_waits_for_more_users_unless_asked(tmp_path: Path, analyzer: StandInAnalyzer) -> None:
    deployment = Deployment.small(tmp_path, users=3, reports=1)
    known = len(analyzer.attempts)
    operator = ("--operator-secret-file", str(deployment.operator_file))
    with deployment.shuffler(analyzer.url, "--release-at", "50", *operator) as server:
        for _ in range(4):
            server.upload(fake_upload(deployment.task))
        time.sleep(0.3)
        assert len(analyzer.attempts) == known
        assert server.request("POST", f"/tasks/{deployment.task.id}/release", headers=deployment.operator).status == 202
        wait_until(lambda: len(analyzer.attempts) > known)
        assert analyzer.attempts[-1].users == 4
        wait_until(lambda: server.metric("shufflesum_batches_released_total") == 1)
        last = server.request("POST", f"/tasks/{deployment.task.id}/release", headers=deployment.operator)
        assert last.problem == "round-closed"


def test_nothing_links_a_released_batch_to_its_senders(tmp_path: Path) -> None:
    """The order is independent of arrival: a true shuffle is beyond 4.9 standard deviations with probability 1e-6."""
    deployment = Deployment.small(tmp_path, users=300, reports=2)
    uploads = [fake_upload(deployment.task) for _ in range(300)]
    agent = f"agent-{secrets.token_hex(8)}"
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url) as server:
        for upload in uploads:
            assert server.upload(upload, source="127.0.0.77", headers={"User-Agent": agent}).status == 201
        batch = analyzer.wait_for(1)[0]
        wait_until(lambda: server.metric("shufflesum_batches_released_total") == 1)
        # While it runs, log and write-ahead log included, and after it has stopped.
        for _ in range(2):
            contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
            assert "shuffler.db" in contents
            assert "shuffler.log" in contents
            for trace in (b"127.0.0.77", socket.inet_aton("127.0.0.77"), agent.encode(), *reports_of(uploads)):
                assert not [name for name, content in contents.items() if trace in content], trace
            server.stop()
    arrival = {report: place for place, report in enumerate(reports_of(uploads))}
    order = [arrival[report] for report in batch.reports]
    assert sorted(order) == list(range(600))
    assert abs(dependence(order)) < 4.9
    # Nor are the two reports of a user near each other: their mean distance is that of two random places.
    where = np.argsort(order).reshape(-1, 2)
    distances = np.abs(where[:, 0] - where[:, 1])
    assert abs(distances.mean() - 601 / 3) / (600 / math.sqrt(18 * 300)) < 4.9
    # Rows shuffled as pairs, or sent as they came, would show.
    assert abs(dependence(list(range(600)))) > 4.9
    assert abs(1 - 601 / 3) / (600 / math.sqrt(18 * 300)) > 4.9


def test_an_expired_task_takes_nothing_releases_what_it_may_and_forgets_the_rest(
    tmp_path: Path,
) -> None:
    deployment = Deployment.small(tmp_path, users=2, rounds=2)
    over = tmp_path / "over"
    with (
        StandInAnalyzer() as analyzer,
        deployment.shuffler(analyzer.url, "--release-at", "4", clock=ServerClock(over)) as server,
    ):
        uploads = [fake_upload(deployment.task) for _ in range(4)]
        assert [server.upload(upload).status for upload in uploads] == [201] * 4
        analyzer.wait_for(1)
        uploads = [fake_upload(deployment.task, 2) for _ in range(3)]  # enough for a batch, not for --release-at
        wait_until(lambda: server.upload(uploads[0]).status in (201, 409))
        assert [server.upload(upload).status for upload in uploads] == [409, 201, 201]
        assert len(analyzer.attempts) == 1
        over.touch()
        answer = server.upload(fake_upload(deployment.task, 2))
        assert refused(answer, 410, "expired")
        assert answer.json["retry"] == "never"
        assert sorted(analyzer.wait_for(2)[1].reports) == sorted(reports_of(uploads))
        wait_until(lambda: any("deleted" in event["event"] for event in server.events()))
        server.stop()
    contents = (tmp_path / "shuffler.db").read_bytes()
    assert not any(upload.upload_id in contents for upload in uploads)


def test_too_few_users_at_expiry_are_deleted_not_released(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=3)
    over = tmp_path / "over"
    with StandInAnalyzer() as analyzer, deployment.shuffler(analyzer.url, clock=ServerClock(over)) as server:
        uploads = [fake_upload(deployment.task) for _ in range(2)]
        assert [server.upload(upload).status for upload in uploads] == [201] * 2
        assert uploads[0].sealed in b"".join(path.read_bytes() for path in tmp_path.glob("shuffler.db*"))
        over.touch()
        wait_until(lambda: any("deleted" in event["event"] for event in server.events()))
        contents = b"".join(path.read_bytes() for path in tmp_path.glob("shuffler.db*"))
        assert not any(upload.sealed in contents or upload.upload_id in contents for upload in uploads)
        assert analyzer.attempts == []


def test_too_many_waiting_uploads_are_told_to_come_back(tmp_path: Path, analyzer: StandInAnalyzer) -> None:
    deployment = Deployment.small(tmp_path, users=1000)
    with deployment.shuffler(analyzer.url, "--max-pending", "2") as server:
        blocker = sqlite3.connect(tmp_path / "shuffler.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        waiting = []
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            path = f"/tasks/{deployment.task.id}/uploads"
            connection.request("POST", path, fake_upload(deployment.task).encode())
            waiting.append(connection)
        time.sleep(0.3)
        answer = server.upload(fake_upload(deployment.task))
        assert refused(answer, 429, "overloaded")
        assert int(answer.headers["retry-after"]) > 0
        blocker.execute("ROLLBACK")
        blocker.close()
        assert [connection.getresponse().status for connection in waiting] == [201, 201]
        for connection in waiting:
            connection.close()
        assert server.upload(fake_upload(deployment.task)).status == 201


def test_a_polite_stop_finishes_what_is_under_way(tmp_path: Path, analyzer: StandInAnalyzer) -> None:
    deployment = Deployment.small(tmp_path, users=1000)
    with deployment.shuffler(analyzer.url) as server:
        blocker = sqlite3.connect(tmp_path / "shuffler.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        upload = fake_upload(deployment.task)
        connection.request("POST", f"/tasks/{deployment.task.id}/uploads", upload.encode())
        time.sleep(0.3)
        assert server.process is not None
        server.process.terminate()
        time.sleep(0.5)
        blocker.execute("ROLLBACK")
        blocker.close()
        assert connection.getresponse().status == 201
        connection.close()
        assert server.process.wait(20) == 0
        server.restart()
        assert refused(server.upload(upload), 409, "repeated")
    assert [event["event"] for event in server.events()].count("stopped") == 1


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (("--analyzer", "http://analyzer.example.org"), ("untrusted", "--allow-plain-http")),
        (("--release-at", "1"), ("out-of-range", "--release-at", "5 users")),
        (("--tls-cert", "cert.pem"), ("missing-argument", "--tls-cert", "--tls-key")),
        (("--tokens", "/nowhere"), ("unreadable", "/nowhere")),
        (("--store", "mysql://x"), ("unknown-choice", "'mysql'", "sqlite:", "postgresql:")),
    ],
)
def test_a_wrong_configuration_ends_at_once_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Task, "_verify_plan", lambda _: None)
    deployment = Deployment.small(tmp_path)
    files = ["--task", str(deployment.task_file), "--secret-file", str(deployment.secret_file)]
    given = {"--store": f"sqlite:{tmp_path / 'store.db'}", "--analyzer": "http://127.0.0.1:1"}
    given[options[0]] = options[1]
    rest = [word for option in given.items() for word in option]
    with refusal(*refused, error=ShufflesumError):
        command.main(["shuffler", *files, *rest], standalone_mode=False)


def test_options_come_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "_verify_plan", lambda _: None)
    deployment = Deployment.small(tmp_path, users=40)
    values = {
        "TASK": deployment.task_file,
        "SECRET_FILE": deployment.secret_file,
        "STORE": f"sqlite:{tmp_path / 'store.db'}",
        "ANALYZER": "https://analyzer.example.org/",
        "RELEASE_AT": "50",
        "MAX_PENDING": "7",
        "CONNECTIONS_PER_ADDRESS": "3",
        "ADDRESS_HEADER": "X-Real-IP",
        "HOST": "127.0.0.9",
        "PORT": "4",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"SHUFFLESUM_{name}", str(value))
    given: list[Any] = []
    monkeypatch.setattr(shuffler_module, "run_shuffler", lambda *all_of_it: given.extend(all_of_it))
    command.main(["shuffler"], standalone_mode=False)
    task, store, options, server, _, begin = given
    assert begin is None
    assert (task.id, store) == (deployment.task.id, values["STORE"])
    assert options.analyzer.url == "https://analyzer.example.org"
    assert valid_secrets(options.analyzer.secret) == (deployment.secret,)
    assert options.limits == Limits(3, 6000, "X-Real-IP")
    assert (options.release_at, options.max_pending) == (50, 7)
    assert (server.host, server.port) == ("127.0.0.9", 4)


def test_options_that_contradict_the_task_are_refused(tmp_path: Path) -> None:
    task = Deployment.small(tmp_path).task
    with refusal("out-of-range", error=ParameterError):
        ShufflerOptions(AnalyzerAddress("http://127.0.0.1:1", "s"), max_pending=0).check(task)
    same = AnalyzerAddress("http://127.0.0.1:1", "s" * 16)
    with refusal("conflicting-arguments", "operator_secret_file", error=ParameterError):
        ShufflerOptions(same, operator_secret="s" * 16).check(task)
    with refusal("missing-argument", "secret_file", "client_cert", error=ParameterError):
        ShufflerOptions(AnalyzerAddress("http://127.0.0.1:1")).check(task)
    half = AnalyzerAddress("https://127.0.0.1:1", client_cert=tmp_path / "cert.pem")
    with refusal("missing-argument", "client_key", error=ParameterError):
        ShufflerOptions(half).check(task)
    plain = AnalyzerAddress("http://127.0.0.1:1", client_cert=tmp_path / "a", client_key=tmp_path / "b")
    with refusal("conflicting-arguments", "client_cert", "https://", error=ParameterError):
        ShufflerOptions(plain).check(task)
    with refusal("malformed", "no.pem", error=FileError):
        ShufflerOptions(AnalyzerAddress("https://127.0.0.1:1", "s", tmp_path / "no.pem")).check(task)
