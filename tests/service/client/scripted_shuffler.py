"""A shuffler that answers as a script says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.plan_builders import replace_of

from shufflesum.keys import generate_private_key
from shufflesum.sealing import Opener
from shufflesum.service.http.messages import PROBLEMS
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Task, Upload

__all__ = ["LOST", "Shuffler", "running", "task_for"]

KEY = generate_private_key()
LOST = "the connection ends before an answer"


@dataclass
class Shuffler:
    """Answers uploads as a script says, then accepts everything; keeps what it was sent.

    Whoever asks gets what `first` says, then the document.
    """

    url: str
    script: list[int | str] = field(default_factory=list)
    first: list[int | str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    document: Any = None

    def reports(self, task: Task) -> list[list[tuple[int, int]]]:
        """What is in each upload, which only a test may know."""
        values = replace_of(task.plan).values
        return [[(cell // values, cell % values) for cell in cells] for cells in self.cells(task)]

    def cells(self, task: Task) -> list[list[int]]:
        """The same as the numbers of cells, rising, blanks last."""
        return [sorted(_open(task, body)) for body in self.bodies]


def _open(task: Task, body: bytes) -> list[int]:
    upload = Upload.decode(body, task)
    reports, rejected = task.open_reports(upload.sealed, upload.round_number, Opener(KEY, processes=1))
    assert rejected == 0
    cells: list[int] = reports.cells.tolist()
    return cells


@contextmanager
def running() -> Iterator[Shuffler]:
    """A shuffler on this machine that does as its script says."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if known.first:
                self._step(known.first.pop(0))
            else:
                self._answer(200, json.dumps(known.document).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                known.bodies.append(body)
                known.requests.append(dict(self.headers.items()))
                step = known.script.pop(0) if known.script else 201
            self._step(step)

        def _step(self, step: int | str) -> None:
            if step == LOST:
                self.close_connection = True
            elif isinstance(step, int):
                self._answer(step, b"")
            else:
                self._answer(PROBLEMS[step].status, PROBLEMS[step].encode("as scripted"))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in known.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known = Shuffler(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield known
        server.shutdown()
        thread.join()


def task_for(shuffler: Shuffler, **changes: Any) -> Task:
    plan = unprotected_plan(users=1, shape=3, coordinates=3, levels=10)
    arguments: dict[str, Any] = {
        "name": "client test",
        "plan": plan,
        "analyzer_key": KEY.public_key().public_bytes_raw(),
        "shuffler": shuffler.url,
        "expires": datetime(2099, 1, 1, tzinfo=UTC),
    }
    return UnprotectedTask(**arguments | changes)
