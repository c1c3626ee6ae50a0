from __future__ import annotations

import contextlib
import resource
import secrets
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
import uvicorn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from shufflesum.estimation import estimate
from tests.service.postgres import Postgres

from shufflesum import Plan, Reports
from shufflesum.errors import FileError, ParameterError
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.stores.store import StoreError, WrongStoreError, open_store
from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Opener, Task, encode_reports, generate_private_key, seal_info
from shufflesum.wire.sealing import seal_many

KEY = generate_private_key()
SECRET = "a secret of both servers"
USERS = 6


def task_of(plan: Plan) -> Task:
    return UnprotectedTask(
        name="analyzer test",
        plan=plan,
        analyzer_key=KEY.public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )


def plan_of(**changes: Any) -> Plan:
    plan = unprotected_plan(users=USERS, shape=4, reports=2, levels=10)
    return replace(plan, **changes)


TASK = task_of(plan_of(rounds=2))


def sealed(task: Task, cells: list[tuple[int, int]], round_number: int = 1) -> bytes:
    coordinates, values = np.array(cells, dtype=np.uint32).T
    reports = Reports(task.plan.id, coordinates, values.astype(np.uint16))
    info = seal_info(task.id, round_number)
    return seal_many(encode_reports(reports), KEY.public_key(), info).tobytes()


def honest_cells(users: int) -> list[tuple[int, int]]:
    """Two reports a user, one in each block of two coordinates."""
    return [cell for user in range(users) for cell in ((user % 2, user % 11), (2 + user % 2, (3 * user) % 11))]


class Remote:
    """A shuffler's view of an analyzer."""

    def __init__(self, task: Task, http: httpx.Client) -> None:
        self.task = task
        self.http = http

    def post(
        self, body: bytes | Iterator[bytes], *, users: int = USERS, batch: str = "", round_number: int = 1, **extra: str
    ) -> tuple[int, dict[str, Any]]:
        answer = self.http.post(
            f"/tasks/{extra.get('task', self.task.id)}/batches/{batch or secrets.token_hex(16)}",
            params={"round": round_number, "users": users},
            content=body,
            headers={"Authorization": extra.get("authorization", f"Bearer {SECRET}")},
        )
        return answer.status_code, answer.json()

    def problem(self, body: bytes | Iterator[bytes], **arguments: Any) -> str:
        status, document = self.post(body, **arguments)
        assert document["status"] == status
        assert document["retry"] in ("not-yet", "never")
        return str(document["type"]).removeprefix("urn:shufflesum:problem:")

    def estimate(self) -> dict[str, Any]:
        document: dict[str, Any] = self.http.get(f"/tasks/{self.task.id}/estimate").json()
        return document

    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.http.get("/metrics").text.splitlines() if not line.startswith("#")]
        values = (line.rsplit(" ", 1) for line in lines)
        return {name: float(value) for name, value in values if name.endswith("_total")}


@contextlib.contextmanager
def running(task: Task, address: str, **options: Any) -> Iterator[Remote]:
    server = AnalyzerServer(task, Opener(KEY, processes=1), open_tables(address, task), secret=SECRET, **options)
    web = uvicorn.Server(uvicorn.Config(server.app(), port=0, log_config=None, lifespan="on", ws="none"))
    thread = threading.Thread(target=web.run)
    thread.start()
    try:
        while not web.started:
            assert thread.is_alive()
            time.sleep(0.005)
        port = web.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            yield Remote(task, http)
    finally:
        web.should_exit = True
        thread.join(10)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty store; both kinds must behave alike."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/analyzer.sqlite"
    database: Postgres = request.getfixturevalue("postgres")
    with psycopg.connect(database.address) as connection:
        connection.execute("DROP TABLE IF EXISTS shufflesum_tables_1")
    return database.address


@pytest.fixture
def remote(address: str) -> Iterator[Remote]:
    with running(TASK, address) as remote:
        yield remote


def test_a_batch_becomes_its_table_of_counts(remote: Remote, address: str) -> None:
    cells = honest_cells(USERS)
    assert remote.post(sealed(TASK, cells))[0] == 201
    (result,) = open_tables(address, TASK).counted()
    expected = np.zeros((4, 11), dtype=np.int64)
    for coordinate, value in cells:
        expected[coordinate, value] += 1
    assert np.array_equal(result.table, expected)
    (found,) = remote.estimate()["rounds"]
    values = np.arange(11) / 10
    assert found["mean"] == pytest.approx(expected @ values / expected.sum(axis=1))
    assert (found["users"], found["rejected_reports"], found["round"]) == (USERS, 0, 1)
    assert found["guarantee"] == {
        "epsilon": None,
        "delta": 1.0,
        "unit": "one user, in all rounds of the task",
        "holds": True,
    }
    lower, upper = found["confidence_interval"]
    assert np.all(np.less(lower, found["mean"]))
    assert np.all(np.greater(upper, found["mean"]))
    assert found["sum"] == pytest.approx(USERS * np.array(found["mean"]))


def test_a_batch_sent_again_counts_once(remote: Remote) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    assert remote.post(body, batch=batch) == (201, {"batch": batch, "answer": "counted"})
    first = remote.estimate()
    assert remote.post(body, batch=batch) == (200, {"batch": batch, "answer": "repeated"})
    assert remote.estimate() == first
    assert remote.metrics()["shufflesum_batches_total"] == 1


def test_what_is_counted_survives_the_server(address: str) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    with running(TASK, address) as remote:
        remote.post(body, batch=batch)
        before = remote.estimate()
    with running(TASK, address) as remote:
        assert remote.estimate() == before
        assert remote.post(body, batch=batch)[0] == 200


def test_each_round_has_one_batch(remote: Remote) -> None:
    batch = secrets.token_hex(16)
    assert remote.post(sealed(TASK, honest_cells(USERS)), batch=batch)[0] == 201
    second = sealed(TASK, honest_cells(USERS), round_number=2)
    assert remote.problem(sealed(TASK, honest_cells(USERS))) == "wrong-batch"
    assert remote.problem(second, batch=batch, round_number=2) == "wrong-batch"
    assert remote.post(second, round_number=2)[0] == 201
    assert [found["round"] for found in remote.estimate()["rounds"]] == [1, 2]
    assert remote.problem(second, round_number=3) == "wrong-round"
    assert remote.problem(second, round_number=0) == "wrong-round"


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {SECRET}", SECRET])
def test_only_the_shuffler_may_hand_in_batches(remote: Remote, authorization: str) -> None:
    assert remote.problem(sealed(TASK, honest_cells(USERS)), authorization=authorization) == "wrong-secret"
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"


def test_batches_that_do_not_fit_are_refused_by_name(remote: Remote) -> None:
    body = sealed(TASK, honest_cells(USERS))
    few = body[: -2 * 54]
    assert remote.problem(few, users=USERS - 1) == "batch-too-small"
    assert remote.problem(few) == "wrong-length"
    assert remote.problem(iter([few])) == "wrong-length"
    assert remote.problem(iter([body, b"x"])) == "wrong-length"
    assert remote.problem(body[:-1]) == "wrong-length"
    assert remote.problem(body + few) == "wrong-length"
    assert remote.problem(body, task="0" * 64) == "wrong-task"
    assert remote.problem(body, batch="A" * 32) == "bad-request"
    assert remote.problem(body, users=-1) == "bad-request"
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"
    assert remote.post(iter([body[:7], body[7:]]))[0] == 201


def test_reports_sealed_for_another_round_or_outside_the_domain_are_rejected_and_counted(address: str) -> None:
    cells = honest_cells(10)
    cells[0], cells[2] = (4, 0), (1, 11)
    foreign = sealed(TASK, honest_cells(1), round_number=2)
    with running(TASK, address, without_guarantee=True) as remote:
        assert remote.post(sealed(TASK, cells) + foreign, users=11)[0] == 201
        (found,) = remote.estimate()["rounds"]
        assert found["rejected_reports"] == 4
        assert found["users"] == 9
        assert remote.metrics()["shufflesum_reports_rejected_total"] == 4


@pytest.mark.parametrize(("bad_users", "holds"), [(0, True), (2, True), (3, False)])
def test_more_rejected_than_the_honest_fraction_allows_withholds_the_estimate(
    tmp_path: Path, bad_users: int, holds: bool
) -> None:
    """Of ten users 80% are honest: two may send what cannot be read."""
    task = task_of(plan_of(users=10, honest_fraction=0.8))
    body = sealed(task, honest_cells(10 - bad_users)) + bytes(54 * 2 * bad_users)
    with running(task, f"sqlite:{tmp_path}/strict") as remote:
        assert remote.post(body, users=10)[0] == 201
        document = remote.estimate()
        if holds:
            assert document["rounds"][0]["guarantee"]["holds"] is True
        else:
            assert document["type"] == "urn:shufflesum:problem:guarantee-broken"
            assert document["retry"] == "never"
            assert "no longer holds" in document["detail"]
            assert "mean" not in str(document)
    with running(task, f"sqlite:{tmp_path}/insisting", without_guarantee=True) as remote:
        remote.post(body, users=10)
        (found,) = remote.estimate()["rounds"]
        assert found["guarantee"]["holds"] is holds
        assert found["rejected_reports"] == 2 * bad_users


def test_a_coordinate_nobody_reported_is_null(remote: Remote) -> None:
    cells = [cell for _ in range(USERS) for cell in ((0, 5), (2, 5))]
    remote.post(sealed(TASK, cells))
    (found,) = remote.estimate()["rounds"]
    assert found["mean"] == [0.5, None, 0.5, None]


def test_the_wrong_key_is_noticed_before_anything_is_served(address: str) -> None:
    other = generate_private_key()
    with pytest.raises(ParameterError, match="give the key that the task was made for"):
        AnalyzerServer(TASK, Opener(other, processes=1), open_tables(address, TASK), secret=SECRET)


def test_a_database_that_crashed_means_not_yet_and_comes_back_without_help(postgres: Postgres) -> None:
    task = replace(TASK, name="crash")
    body, batch = sealed(task, honest_cells(USERS)), secrets.token_hex(16)
    with running(task, postgres.address) as remote:
        postgres.stop()
        try:
            status, document = remote.post(body, batch=batch)
            assert (status, document["type"]) == (503, "urn:shufflesum:problem:store-unavailable")
        finally:
            postgres.start()
        assert remote.post(body, batch=batch)[0] == 201
        assert remote.post(body, batch=batch)[0] == 200


def test_a_server_may_start_before_its_database(postgres: Postgres) -> None:
    task = replace(TASK, name="before its database")
    postgres.stop()
    try:
        tables = open_tables(postgres.address, task)
        with pytest.raises(StoreError, match="in PostgreSQL cannot be used"):
            tables.check()
    finally:
        postgres.start()
    tables.check()
    assert tables.counted() == []


def test_a_store_that_is_gone_means_not_yet_and_comes_back_without_help(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    with running(TASK, f"sqlite:{folder}/tables") as remote:
        folder.rename(tmp_path / "away")
        status, document = remote.post(body, batch=batch)
        assert (status, document["retry"]) == (503, "not-yet")
        assert remote.http.get("/readyz").status_code == 503
        assert remote.http.get("/healthz").status_code == 200
        assert remote.http.get(f"/tasks/{TASK.id}/estimate").status_code == 503
        (tmp_path / "away").rename(folder)
        assert remote.http.get("/readyz").status_code == 200
        assert remote.post(body, batch=batch)[0] == 201


def test_a_shufflers_store_is_not_taken_for_the_analyzers(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'store.db'}"
    open_store(address, TASK).close()
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(ParameterError, match=r"store.db is a shuffler's store; give the analyzer a --store of its own"):
        open_tables(address, TASK)
    assert (tmp_path / "store.db").read_bytes() == before
    with pytest.raises(FileError, match=r"the analyzer's store .*no/such/file cannot be made: No such file"):
        open_tables(f"sqlite:{tmp_path}/no/such/file", TASK)


def test_a_store_of_another_version_is_refused(address: str) -> None:
    """Before version 1 the table was called shufflesum_results; a later one will have a later number."""
    for name in ("shufflesum_results", "shufflesum_tables_2"):
        other = connect(address)
        with contextlib.closing(other), other:
            other.execute(f"CREATE TABLE {name} (task TEXT)")
        with pytest.raises(WrongStoreError, match=rf"\({name}; this one reads shufflesum_tables_1\)"):
            open_tables(address, TASK)
        other = connect(address)
        with contextlib.closing(other), other:
            other.execute(f"DROP TABLE {name}")
    open_tables(address, TASK)


def connect(address: str) -> Any:
    return sqlite3.connect(address.removeprefix("sqlite:")) if "sqlite" in address else psycopg.connect(address)


def test_tables_that_vanished_are_not_replaced_by_an_empty_file(tmp_path: Path) -> None:
    tables = open_tables(f"sqlite:{tmp_path / 'tables'}", TASK)
    (tmp_path / "tables").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="cannot be used"):
        tables.check()
    assert not (tmp_path / "tables").exists()


def test_an_answer_is_computed_once(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counted(*arguments: Any, **options: Any) -> Any:
        computed.append(arguments)
        return estimate(*arguments, **options)

    monkeypatch.setattr("shufflesum.service.analyzer.server.estimate", counted)
    body = sealed(TASK, honest_cells(USERS))
    assert remote.post(body)[0] == 201
    first = remote.estimate()
    assert [remote.estimate() for _ in range(3)] == [first] * 3
    assert len(computed) == 1
    assert remote.post(sealed(TASK, honest_cells(USERS), 2), round_number=2)[0] == 201
    assert [found["round"] for found in remote.estimate()["rounds"]] == [1, 2]


def test_a_store_that_cannot_write_acknowledges_nothing(tmp_path: Path) -> None:
    """The largest size of a file stands in for a full disk."""
    with running(TASK, f"sqlite:{tmp_path}/tables") as remote:
        full_disk(remote)


def full_disk(remote: Remote) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # Too little for the store's journal, but not for what the test run itself writes down meanwhile.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        status, document = remote.post(body, batch=batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert (status, document["type"]) == (503, "urn:shufflesum:problem:store-unavailable")
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"
    assert remote.post(body, batch=batch)[0] == 201


@pytest.mark.parametrize("cases", [600, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_damaged_seal_is_ever_counted(cases: int) -> None:
    """Each case is a good sealed report with one bit turned over, anywhere."""
    generator = np.random.default_rng(9)
    good = np.frombuffer(sealed(TASK, honest_cells(100)), dtype=np.uint8).reshape(200, 54)
    damaged = good[generator.integers(0, 200, cases)]
    damaged[np.arange(cases), generator.integers(0, 54, cases)] ^= (1 << generator.integers(0, 8, cases)).astype(
        np.uint8
    )
    reports, rejected = TASK.open_reports(damaged, 1, Opener(KEY, processes=1))
    assert (len(reports), rejected) == (0, cases)


class NothingEarly(RuleBasedStateMachine):
    """Whatever is sent, nothing of a batch shows before all of it is in, from at least the smallest number of users."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.stack = contextlib.ExitStack()
        self.remote = self.stack.enter_context(running(TASK, f"sqlite:{self.folder.name}/tables"))
        self.batches = [secrets.token_hex(16) for _ in range(3)]
        self.body = sealed(TASK, honest_cells(USERS))
        self.complete = False

    @rule(users=st.integers(0, USERS - 1), batch=st.integers(0, 2))
    def too_few(self, users: int, batch: int) -> None:
        body = self.body[: users * 108]
        assert self.remote.post(body, users=users, batch=self.batches[batch])[0] >= 400

    @rule(
        length=st.integers(0, 6 * 108 - 1), users=st.integers(USERS, 9), batch=st.integers(0, 2), stream=st.booleans()
    )
    def cut_short(self, length: int, users: int, batch: int, stream: bool) -> None:
        piece = self.body[:length]
        known = self.complete and batch == 0
        status, _ = self.remote.post(iter([piece]) if stream else piece, users=users, batch=self.batches[batch])
        assert status >= 400 or known

    @rule(batch=st.integers(0, 2))
    def without_the_secret(self, batch: int) -> None:
        assert self.remote.post(self.body, batch=self.batches[batch], authorization="Bearer no")[0] == 401

    @rule()
    def whole(self) -> None:
        assert self.remote.post(self.body, batch=self.batches[0])[0] == (200 if self.complete else 201)
        self.complete = True

    @invariant()
    def nothing_shows(self) -> None:
        document, metrics = self.remote.estimate(), self.remote.metrics()
        counted = {name: value for name, value in metrics.items() if not name.startswith("shufflesum_refused")}
        if self.complete:
            assert document["rounds"][0]["users"] == USERS
            assert sum(counted.values()) == 1 + 2 * USERS
        else:
            assert document["type"] == "urn:shufflesum:problem:no-estimate-yet"
            assert set(counted.values()) == {0}

    def teardown(self) -> None:
        self.stack.close()
        self.folder.cleanup()


NothingEarly.TestCase.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)
TestNothingEarly = NothingEarly.TestCase
