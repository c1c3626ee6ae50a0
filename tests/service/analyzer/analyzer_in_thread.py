"""An analyzer that runs in a thread, as its shuffler sees it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import numpy as np
import uvicorn

from shufflesum import Plan, Reports
from shufflesum.keys import generate_private_key
from shufflesum.sealing import Opener, encode_reports, seal_info, seal_many
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Task

__all__ = ["KEY", "SECRET", "TASK", "USERS", "Remote", "honest_cells", "plan_of", "running", "sealed", "task_of"]

KEY = generate_private_key()
SECRET = "a secret of both servers"
USERS = 6
LEVELS = 10


def task_of(plan: Plan) -> Task:
    return UnprotectedTask(
        name="analyzer test",
        plan=plan,
        analyzer_key=KEY.public_key().public_bytes_raw(),
        shuffler="http://127.0.0.1:1",
        expires=datetime(2099, 1, 1, tzinfo=UTC),
    )


def plan_of(**changes: Any) -> Plan:
    return unprotected_plan(**{"users": USERS, "shape": 4, "coordinates": 2, "levels": LEVELS, **changes})


TASK = task_of(plan_of(rounds=2))


def sealed(task: Task, cells: list[tuple[int, int]], round_number: int = 1) -> bytes:
    coordinates, values = np.array(cells, dtype=np.uint32).T
    reports = Reports(task.plan.id, coordinates * np.uint32(LEVELS + 1) + values)
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

    def estimate(self, **query: int) -> dict[str, Any]:
        document: dict[str, Any] = self.http.get(f"/tasks/{self.task.id}/estimate", params=query).json()
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
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
            yield Remote(task, http)
    finally:
        web.should_exit = True
        thread.join(10)
