"""A pair under load while its secrets are replaced and strangers send garbage: nothing lost, twice, early or linked."""

from __future__ import annotations

import random
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.forked_processes import wait_until
from tests.service.distinct_users import check_rounds, dependence, rows_of
from tests.service.http.bad_requests import bad_for_a_shuffler, bad_for_an_analyzer
from tests.service.http.raw_connections import Line, Target
from tests.service.postgres import Postgres
from tests.service.processes import ServerProcess
from tests.service.proxy import LossyProxy
from tests.service.servers import Deployment, replace_secret

from shufflesum import Randomizer
from shufflesum.service.stores.store import split
from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Upload

USERS, GARBAGE, ROTATIONS = 4, 10_000, 20


class Recording(LossyProxy):
    """Loses nothing, and keeps what the shuffler says to the analyzer, connection by connection."""

    def __init__(self, target: Callable[[], int]) -> None:
        self.said: dict[int, bytearray] = {}
        super().__init__(target, loss=0, seed=0)

    def passing(self, source: socket.socket, what: str, piece: bytes) -> None:
        if what == "request":
            self.said.setdefault(id(source), bytearray()).extend(piece)

    def batches(self) -> dict[int, list[bytes]]:
        """The reports of each round in the order that they were sent in last."""
        found = {}
        for said in self.said.values():
            for head, body in requests_in(bytes(said)):
                number = int(head.partition(b"round=")[2].partition(b"&")[0].split()[0])
                found[number] = split(body)
        return found


def requests_in(said: bytes) -> Iterator[tuple[bytes, bytes]]:
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        if len(rest) >= size:
            yield head, rest[:size]
        said = rest[size:]


class Crowd:
    """Sends round after round, each user once; `arrived` is in which order the reports of a round came."""

    def __init__(self, deployment: Deployment, shuffler: ServerProcess, counted: Callable[[], int]) -> None:
        self.deployment, self.shuffler, self.counted = deployment, shuffler, counted
        self.arrived: dict[int, list[bytes]] = {}
        self.statuses: Counter[int] = Counter()

    def fill_round(self, number: int) -> None:
        task = self.deployment.task
        uploads = [
            Upload.seal(task, Randomizer(task.plan, round_number=number).randomize(row[None]), number)
            for row in rows_of(USERS)
        ]
        for upload in uploads:
            assert self.counted() < number  # nothing of the round is out before all are in
            wait_until(lambda upload=upload: self.taken(upload))
        self.arrived[number] = [report for upload in uploads for report in split(upload.sealed)]

    def taken(self, upload: Upload) -> bool:
        answer = self.shuffler.upload(upload)
        self.statuses[answer.status] += 1
        return answer.status == 201 or answer.problem == "repeated"


def send_garbage(target: Target, bad: Callable[[random.Random, Target], bytes], seed: int, said: Counter[int]) -> None:
    source = random.Random(seed)
    with Line(target.server.port) as line:
        for _ in range(GARBAGE // 4):
            answer = line.ask(bad(source, target))
            said[answer.status if answer is not None else 0] += 1


def rotate(files: list[Path], current: str) -> None:
    """Replace a secret as docs/deploy.md says, again and again, in any order of the two machines."""
    source = random.Random(1)
    for _ in range(ROTATIONS):
        new = secrets.token_hex(16)
        for lines in ((new, current), (new,)):
            for path in source.sample(files, 2):
                replace_secret(path, *lines)
                time.sleep(source.uniform(0, 0.3))
        current = new


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_secrets_are_replaced_under_load_and_garbage(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    plan = unprotected_plan(users=USERS, shape=2, coordinates=2, levels=USERS, rounds=1000)  # as garbage expects
    deployment = Deployment(tmp_path, plan)
    files = [tmp_path / "shuffler.secret", tmp_path / "analyzer.secret"]
    for path in files:
        replace_secret(path, deployment.secret)
    store = f"sqlite:{tmp_path / 'analyzer.db'}"
    uploads = None
    if kind == "postgres":
        running: Postgres = request.getfixturevalue("postgres")
        store = uploads = running.address
    given = [("--secret-file", str(path)) for path in files]
    with (
        deployment.analyzer("--processes", "1", *given[1], store=store) as analyzer,
        Recording(lambda: analyzer.port) as between,
        deployment.shuffler(between.url, *given[0], store=uploads) as shuffler,
    ):
        tables = open_tables(store, deployment.task)
        crowd = Crowd(deployment, shuffler, lambda: len(tables.batch_ids()))
        said: Counter[int] = Counter()
        garbage = [
            (Target(deployment, server), bad, seed, said)
            for server, bad in ((shuffler, bad_for_a_shuffler), (analyzer, bad_for_an_analyzer))
            for seed in (1, 2)
        ]
        works = [threading.Thread(target=send_garbage, args=one) for one in garbage]
        works.append(threading.Thread(target=rotate, args=(files, deployment.secret)))
        for work in works:
            work.start()
        rounds = 0
        while any(work.is_alive() for work in works) or rounds < 20:
            rounds += 1
            crowd.fill_round(rounds)
            wait_until(lambda rounds=rounds: crowd.counted() == rounds)
        for work in works:
            work.join()
        check_rounds(tables.counted(), rounds, USERS)
        batches = between.batches()
        print(f"{rounds} rounds, garbage {dict(said)}, uploads {dict(crowd.statuses)}")
        assert sum(said.values()) == GARBAGE
        assert all(400 <= status < 500 for status in said)
        assert set(crowd.statuses) <= {201, 409}
        for server in (shuffler, analyzer):
            assert not [event for event in server.events() if event["level"] == "error"]
            assert sum(event["event"] == "secret replaced" for event in server.events()) > ROTATIONS / 2
            assert server.stop() == 0
    assert set(batches) == set(range(1, rounds + 1))
    assert all(sorted(batches[number]) == sorted(crowd.arrived[number]) for number in batches)
    # The order out is independent of the order in: beyond 4.9 standard deviations with probability 1e-6.
    orders = [[crowd.arrived[number].index(report) for report in batches[number]] for number in batches]
    assert abs(sum(map(dependence, orders))) / np.sqrt(rounds) < 4.9
    assert sum(dependence(sorted(order)) for order in orders) / np.sqrt(rounds) > 4.9  # as they came, it would show
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("shuffler.db*"))
    assert not [report for reports in crowd.arrived.values() for report in reports if report in kept]
