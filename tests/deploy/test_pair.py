"""A pair started by the compose file's commands: as a user without rights, on a root that cannot be written to."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import signal
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray
from tests.deploy.containers import Composed, image, why_no_containers
from tests.forked_processes import wait_until
from tests.service.http_requests import Answer
from tests.service.postgres import Postgres, why_no_postgres

from shufflesum.cells import BLANK
from shufflesum.reports import Reports
from shufflesum.service.stores.tables import BatchStore, open_tables
from shufflesum.wire import Task, Upload

USERS, ROUNDS = 20, 1000


class Pair:
    """Both servers of compose.yaml, prepared by its one-shot service, with their databases."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.composed = Composed(folder)
        self.composed.variables = {
            "USERS": str(USERS),
            "ROUNDS": str(ROUNDS),
            "DIMENSION": "1",
            "EPSILON": "20",
            "DELTA": "0.1",
            "SHUFFLER_URL": f"https://{self.composed.addresses['shuffler']}:8443",
        }
        self.prepared = self.composed.run("prepare")
        assert self.prepared.returncode == 0, self.prepared.stdout.decode()
        names = ("shuffler", "analyzer")
        hosts = [self.composed.addresses[f"{name}-database"] for name in names]
        self._database = stack.enter_context(Postgres(",".join(hosts), 5432))
        self._make_databases(names)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for name in names:
            self.start(name)
            stack.callback(self.kill, name)
        for name in names:
            self.wait_until_healthy(name)

    def _make_databases(self, names: tuple[str, ...]) -> None:
        """As the databases' image does with the same variables, and with passwords that are asked for."""
        with psycopg.connect(self._database.address, autocommit=True) as connection:
            for name in names:
                said = self.composed.environment(f"{name}-database")
                file = self.composed.volume(f"{name}-db") / Path(said["POSTGRES_PASSWORD_FILE"]).name
                assert file.stat().st_mode & 0o777 == 0o444  # the database is another user
                if name != "shuffler":
                    connection.execute(f"CREATE ROLE {said['POSTGRES_USER']} LOGIN")
                connection.execute(f"ALTER ROLE {said['POSTGRES_USER']} PASSWORD '{file.read_text().strip()}'")
                connection.execute(f"CREATE DATABASE {said['POSTGRES_DB']} OWNER {said['POSTGRES_USER']}")
            hba = self._database.data / "pg_hba.conf"
            hba.write_text("host all all 127.0.0.0/8 scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")

    def log(self, name: str) -> Path:
        return self.composed.folder / f"{name}.log"

    def start(self, name: str) -> None:
        with self.log(name).open("ab") as log:
            self.processes[name] = self.composed.start(name, stdout=log, stderr=log)

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        self.processes[name].send_signal(number)
        return self.processes[name].wait(60)

    def ready(self, name: str) -> bool:
        try:
            return self.request(name, "GET", "/readyz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_until_healthy(self, name: str) -> None:
        """As the image's own check sees it, which is asked once: it starts a process."""
        wait_until(lambda: self.ready(name), 120)
        assert self.composed.healthy(name)

    @property
    def task(self) -> Task:
        return Task.load(self.composed.volume("public") / "task.json")

    @property
    def authority(self) -> Path:
        return self.composed.volume("public") / "ca.pem"

    @property
    def analyzer_url(self) -> str:
        """Its certificate is for the name `analyzer`, which only the services know; and for localhost."""
        return f"https://{self.composed.addresses['analyzer']}:8443"

    @cached_property
    def tables(self) -> BatchStore:
        """The analyzer's store, seen beside it."""
        address = self.composed.environment("analyzer")["SHUFFLESUM_STORE"].replace(
            "analyzer-database", self.composed.addresses["analyzer-database"]
        )
        password = (self.composed.volume("analyzer-db") / "password").read_text().strip()
        return open_tables(address.replace("analyzer@", f"analyzer:{password}@"), self.task)

    def request(self, role: str, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        trusted = ssl.create_default_context(cafile=self.authority)
        trusted.check_hostname = role == "shuffler"
        connection = http.client.HTTPSConnection(self.composed.addresses[role], 8443, timeout=10, context=trusted)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    reason = why_no_containers() or why_no_postgres()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("pair")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # another user goes in
    with contextlib.ExitStack() as stack:
        yield Pair(folder, stack)


def cells_of(task: Task, user: int) -> NDArray[np.uint32]:
    """What a user says: cells of the user's own choice, so that any report lost or counted twice shows; then blanks."""
    cells = np.full(task.plan.reports, BLANK, dtype=np.uint32)
    cells[: 1 + user % 3] = user % task.plan.cells
    return cells


def expected(task: Task) -> NDArray[np.int64]:
    said = np.concatenate([cells_of(task, user) for user in range(USERS)])
    return np.bincount(said[said != BLANK], minlength=task.plan.cells)


class Crowd(threading.Thread):
    """All users, round after round, each upload again and again with the same bytes until its outcome is known."""

    def __init__(self, pair: Pair, first: int) -> None:
        super().__init__()
        self._pair = pair
        self._task = pair.task
        self.rounds = first - 1
        self.taken = 0
        self.stopped = threading.Event()
        self.failures: list[str] = []

    def run(self) -> None:
        while not self.stopped.is_set() and not self.failures:
            number = self.rounds + 1
            for user in range(USERS):
                reports = Reports(self._task.plan.id, cells_of(self._task, user), number)
                self._send(Upload.seal(self._task, reports, number).encode())
            self.rounds = number

    def _send(self, upload: bytes) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                answer = self._pair.request("shuffler", "POST", f"/tasks/{self._task.id}/uploads", upload)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)
                continue
            if answer.status == 201 or answer.problem == "repeated":
                self.taken += 1
                return
            if answer.problem not in ("store-unavailable", "overloaded", "round-not-open"):
                self.failures.append(f"{answer.status} {answer.problem}")
                return
            time.sleep(0.05)
        self.failures.append("no answer in time")


def check(pair: Pair, rounds: int) -> None:
    """Every round is there once, and every user's reports once in it."""
    wait_until(lambda: len(pair.tables.batch_ids()) >= rounds, 120)
    counted = pair.tables.counted()
    assert [batch.round_number for batch in counted] == list(range(1, rounds + 1))
    assert len({batch.batch_id for batch in counted}) == rounds
    for batch in counted:
        assert (batch.users, batch.rejected) == (USERS, 0)
        assert np.array_equal(batch.table, expected(pair.task)), batch.round_number


def test_the_commands_of_the_compose_file_make_a_working_pair(pair: Pair) -> None:
    crowd = Crowd(pair, 1)
    crowd.stopped.set()
    for user in range(USERS):
        reports = Reports(pair.task.plan.id, cells_of(pair.task, user), 1)
        crowd._send(Upload.seal(pair.task, reports, 1).encode())
    assert not crowd.failures
    check(pair, 1)
    status = Path(f"/proc/{pair.processes['shuffler'].pid}/status").read_text()
    assert f"Uid:\t{image().user}\t{image().user}" in status
    assert "CapBnd:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    tried = pair.composed.run(
        "analyzer", ["sh", "-c", "touch /x /etc/shufflesum/analyzer/x; ls /etc/shufflesum/shuffler"]
    )
    assert tried.stdout.count(b"Read-only file system") == 2
    assert b"No such file or directory" in tried.stdout
    asked = pair.composed.run("shuffler", ["shufflesum", "status", "--ca", "/etc/shufflesum/public/ca.pem"])
    assert asked.returncode == 0, asked.stdout
    for words in (f"open round    2 of {ROUNDS:,}", "1 released", "1 counted", "waiting batch none"):
        assert words.encode() in asked.stdout
    assert b"prepared already" in pair.composed.run("prepare").stdout
    assert pair.kill("analyzer", signal.SIGTERM) == 0
    assert not pair.composed.healthy("analyzer")
    pair.start("analyzer")
    wait_until(lambda: pair.ready("analyzer"), 60)


class Killer:
    """Kills one server or both, mostly of a pair at work: while it takes uploads, or while it releases a round."""

    def __init__(self, pair: Pair, crowd: Crowd, source: random.Random) -> None:
        self._pair, self._crowd, self._random = pair, crowd, source
        self.kills: Counter[str] = Counter()
        begun = time.monotonic()
        self._wait_for_a_round()
        filled = time.monotonic()
        wait_until(lambda: not self._amid_a_release(), 60)
        self._seconds = {"starting": 2.0, "taking": filled - begun, "releasing": time.monotonic() - filled}

    def kill_some(self) -> None:
        moment = self._random.choices(["starting", "taking", "releasing"], [1, 4, 5])[0]
        if moment != "starting":
            self._wait_until_working()
        if moment == "releasing":
            self._wait_for_a_round()
        time.sleep(self._random.uniform(0, self._seconds[moment]))
        victims = self._random.choice([["shuffler"], ["analyzer"], ["shuffler", "analyzer"]])
        for name in victims:
            self._pair.kill(name)
        if moment == "releasing" and not self._amid_a_release():
            moment = "released"
        self.kills[moment] += len(victims)
        for name in victims:
            self._pair.start(name)

    def _amid_a_release(self) -> bool:
        """Whether a round has all its users and is in no table yet."""
        return len(self._pair.tables.batch_ids()) < self._crowd.rounds

    def _wait_for_a_round(self) -> None:
        now = self._crowd.rounds
        wait_until(lambda: self._crowd.rounds > now or self._crowd.failures, 120)

    def _wait_until_working(self) -> None:
        wait_until(lambda: all(map(self._pair.ready, self._pair.processes)), 120)
        now = self._crowd.taken
        wait_until(lambda: self._crowd.taken > now or self._crowd.failures, 120)


@pytest.mark.slow
def test_nothing_is_lost_or_twice_through_a_hundred_kills(pair: Pair) -> None:
    source = random.Random(seed := random.SystemRandom().randrange(2**32))
    crowd = Crowd(pair, len(pair.tables.batch_ids()) + 1)
    first = crowd.rounds
    crowd.start()
    try:
        killer = Killer(pair, crowd, source)
        deadline = time.monotonic() + 3600
        while killer.kills.total() < 100 or killer.kills["releasing"] < 20 or crowd.rounds < first + 50:
            killer.kill_some()
            assert not crowd.failures
            assert time.monotonic() < deadline, f"too few rounds: {crowd.rounds - first}, kills {dict(killer.kills)}"
    finally:
        crowd.stopped.set()
        crowd.join(300)
    print(f"seed {seed}: kills {dict(killer.kills)}, {crowd.rounds - first} rounds")
    assert not crowd.failures
    check(pair, crowd.rounds)
    for name in ("shuffler", "analyzer"):
        assert pair.processes[name].poll() is None
        for line in pair.log(name).read_text().splitlines():
            assert json.loads(line)["event"]
