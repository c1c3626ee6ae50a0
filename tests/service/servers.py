"""A deployment for tests: its files, its servers as processes, and a stand-in analyzer."""

from __future__ import annotations

import json
import secrets
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.forked_processes import wait_until
from tests.service.processes import ServerProcess

from shufflesum.keys import generate_private_key, write_key_pair
from shufflesum.plans import Plan
from shufflesum.sealing import SEALED_BYTES
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Task, Upload

__all__ = ["Deployment", "Received", "StandInAnalyzer", "fake_upload", "replace_secret"]


def fake_upload(task: Task, round_number: int = 1, *, sealed: bytes | None = None) -> Upload:
    """An upload that looks right and that nobody can open: enough for a shuffler, and quick to make."""
    body = secrets.token_bytes(task.plan.reports * SEALED_BYTES) if sealed is None else sealed
    return Upload(task.id, round_number, secrets.token_bytes(16), body)


def replace_secret(path: Path, *lines: str) -> None:
    """As an operator does while servers run: the file is whole at any time."""
    new = path.with_name(f"{path.name}.new")
    new.touch(0o600)
    new.write_text("\n".join(lines))
    new.replace(path)


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
        plan = unprotected_plan(users=users, shape=max(reports, 4), coordinates=reports, levels=3, rounds=rounds)
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
    def operator_file(self) -> Path:
        path = self.folder / "operator"
        path.write_text(secrets.token_hex(16))
        path.chmod(0o600)
        return path

    @cached_property
    def key_file(self) -> Path:
        private, _ = write_key_pair(self.folder / "analyzer", self.key)
        return private

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    @property
    def operator(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.operator_file.read_text()}"}

    def shuffler(
        self, analyzer: str, *options: str, store: str | None = None, folder: Path | None = None, **rest: Any
    ) -> ServerProcess:
        """A shuffler with its log, and its store unless given, in `folder`."""
        return self._server("shuffler", folder or self.folder, store, "--analyzer", analyzer, *options, **rest)

    def analyzer(self, *options: str, store: str | None = None, **rest: Any) -> ServerProcess:
        return self._server("analyzer", self.folder, store, "--key", str(self.key_file), *options, **rest)

    def _server(self, role: str, folder: Path, store: str | None, *options: str, **rest: Any) -> ServerProcess:
        address = store or f"sqlite:{folder / f'{role}.db'}"
        common = ["--task", str(self.task_file), "--store", address]
        if "--secret-file" not in options:
            common += ["--secret-file", str(self.secret_file)]
        return ServerProcess(folder / f"{role}.log", [role, *common, *options], **rest)


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
