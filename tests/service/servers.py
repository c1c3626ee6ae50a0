"""Real processes for tests: servers started and killed, PostgreSQL in a temporary folder, and a stand-in analyzer."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shufflesum.contract import Plan
from shufflesum.service.http.problems import parse_problem
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import SEALED_BYTES, Task, Upload, generate_private_key, write_key_pair

__all__ = ["Answer", "Deployment", "ServerProcess", "StandInAnalyzer", "fake_upload", "request"]

_LAUNCH = Path(__file__).with_name("launch.py")
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> str | None:
        return parse_problem(self.body)[0]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    *,
    source: str | None = None,
    seconds: float = 30.0,
) -> Answer:
    """One request on a connection of its own; `source` is the loopback address it comes from."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=seconds, source_address=(source, 0) if source else None
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())


def fake_upload(task: Task, round_number: int = 1, *, sealed: bytes | None = None) -> Upload:
    """An upload that looks right and that nobody can open: enough for a shuffler, and quick to make."""
    body = secrets.token_bytes(task.plan.reports * SEALED_BYTES) if sealed is None else sealed
    return Upload(task.id, round_number, secrets.token_bytes(16), body)


@dataclass
class Deployment:
    """The files of a deployment in a folder; its task may claim nothing."""

    folder: Path
    plan: Plan
    life: timedelta = timedelta(days=1)
    key: X25519PrivateKey = field(default_factory=generate_private_key)
    shuffler_url: str = "http://127.0.0.1:1"

    @staticmethod
    def small(folder: Path, *, users: int = 5, reports: int = 1, rounds: int = 1, **rest: Any) -> Deployment:
        plan = unprotected_plan(users=users, shape=max(reports, 4), reports=reports, levels=3)
        if rounds > 1:
            plan = replace(plan, rounds=rounds)
        return Deployment(folder, plan, **rest)

    @cached_property
    def task(self) -> Task:
        return UnprotectedTask(
            name="test",
            plan=self.plan,
            analyzer_key=self.key.public_key().public_bytes_raw(),
            shuffler=self.shuffler_url,
            expires=datetime.now(UTC).replace(microsecond=0) + self.life,
        )

    @cached_property
    def secret(self) -> str:
        return secrets.token_hex(16)

    @cached_property
    def task_file(self) -> Path:
        path = self.folder / "task.json"
        path.write_text(self.task.to_json())
        return path

    @cached_property
    def secret_file(self) -> Path:
        path = self.folder / "secret"
        path.write_text(self.secret)
        path.chmod(0o600)
        return path

    @cached_property
    def key_file(self) -> Path:
        private, _ = write_key_pair(self.folder / "analyzer", self.key)
        return private

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def shuffler(self, analyzer: str, *options: str, store: str | None = None, **rest: Any) -> ServerProcess:
        address = store or f"sqlite:{self.folder / 'shuffler.db'}"
        return self._server("shuffler", address, "--analyzer", analyzer, *options, **rest)

    def analyzer(self, *options: str, store: str | None = None, **rest: Any) -> ServerProcess:
        address = store or f"sqlite:{self.folder / 'analyzer.db'}"
        return self._server("analyzer", address, "--key", str(self.key_file), *options, **rest)

    def _server(self, role: str, store: str, *options: str, **rest: Any) -> ServerProcess:
        common = ["--task", str(self.task_file), "--secret-file", str(self.secret_file), "--store", store]
        return ServerProcess(self.folder / f"{role}.log", [role, *common, *options], **rest)


class ServerProcess:
    """A server as a process; `port` stays the same when it is started again. Use it in a `with` block."""

    def __init__(self, log: Path, arguments: list[str], *, wait: bool = True, prefix: tuple[str, ...] = ()) -> None:
        self.log = log
        self.port = 0
        self._arguments = arguments
        self._prefix = prefix
        self.process: subprocess.Popen[bytes] | None = None
        self.start(wait=wait)

    def start(self, *, wait: bool = True) -> None:
        assert self.process is None or self.process.poll() is not None
        seen = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._prefix, sys.executable, str(_LAUNCH), *self._arguments, "--port", str(self.port)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={k: v for k, v in os.environ.items() if not k.startswith("SHUFFLESUM_")},
            )
        if wait:
            self.wait_until_listening(seen)

    def wait_until_listening(self, seen: int = 0) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            for line in self.log.read_bytes()[seen:].splitlines():
                if b'"listening"' in line:
                    self.port = json.loads(line)["port"]
                    return
            assert self.process is not None
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As a crash: nothing can be tidied up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, seconds: float = 30.0) -> int:
        """Politely; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(seconds)

    def restart(self) -> None:
        self.start()

    def events(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def request(self, method: str, path: str, body: bytes | None = None, **rest: Any) -> Answer:
        return request(self.port, method, path, body, **rest)

    def upload(self, upload: Upload, **rest: Any) -> Answer:
        return self.request("POST", f"/tasks/{upload.task_id}/uploads", upload.encode(), **rest)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.request("GET", "/metrics").body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@dataclass(frozen=True)
class Received:
    """A batch as the stand-in analyzer got it."""

    batch_id: str
    round_number: int
    users: int
    body: bytes
    authorization: str

    @property
    def reports(self) -> list[bytes]:
        return [self.body[start : start + SEALED_BYTES] for start in range(0, len(self.body), SEALED_BYTES)]


class StandInAnalyzer:
    """Takes batches as an analyzer does, once per batch id, without opening them; can be told to misbehave.

    `answer` is what happens to a complete batch: a status, "drop" (taken, but the answer is lost) or "page" (not taken,
    and something in between answers 200).
    """

    def __init__(self) -> None:
        self.received: dict[str, Received] = {}
        self.attempts: list[Received] = []
        self.answer: int | str = 201
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                parts = urlsplit(self.path)
                query = parse_qs(parts.query)
                size = int(self.headers["Content-Length"])
                body = self.rfile.read(size)
                if len(body) != size:
                    return
                batch = Received(
                    parts.path.rpartition("/")[2],
                    int(query["round"][0]),
                    int(query["users"][0]),
                    body,
                    self.headers["Authorization"],
                )
                outer.attempts.append(batch)
                answer = outer.answer
                if answer in (200, 201, "drop"):
                    outer.received.setdefault(batch.batch_id, batch)
                if answer == "drop":
                    self.close_connection = True
                    return
                status, document = (200, b"<html>") if answer == "page" else (int(answer), b"")
                if answer in (200, 201):
                    document = json.dumps({"batch": batch.batch_id, "answer": "counted"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def wait_for(self, batches: int, seconds: float = 30.0) -> list[Received]:
        wait_until(lambda: len(self.received) >= batches, seconds)
        return list(self.received.values())

    def __enter__(self) -> StandInAnalyzer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def unique_reports(task: Task, user: int) -> np.ndarray[Any, Any]:
    """Sealed-looking bytes that name their user and place, to recognise each report wherever it turns up."""
    rows = np.zeros((task.plan.reports, SEALED_BYTES), dtype=np.uint8)
    rows[:, :8] = np.frombuffer(user.to_bytes(8), dtype=np.uint8)
    rows[:, 8:12] = np.arange(task.plan.reports, dtype=">u4").view(np.uint8).reshape(-1, 4)
    return rows


@contextlib.contextmanager
def servers(*started: ServerProcess) -> Iterator[None]:
    """Kill these at the end, whatever happens."""
    try:
        yield
    finally:
        for server in started:
            server.kill()
