"""Both servers of a deployment as processes on this machine, with files of their own, as long as they are needed."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from shufflesum._clock import SYSTEM_CLOCK
from shufflesum.errors import ShufflesumError
from shufflesum.plans import Plan
from shufflesum.wire import Task, generate_private_key, load_public_key, write_key_pair

__all__ = ["Deployment", "Server", "deployed"]

_SECONDS = 120.0
_SERVE = "from shufflesum.cli import main; main()"


@dataclass(frozen=True, slots=True)
class Server:
    """A server under way, and where its log is."""

    process: subprocess.Popen[bytes]
    log: Path

    def events(self) -> list[dict[str, Any]]:
        """What its log says so far."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def url(self) -> str:
        """Where it listens, once it does."""
        end = SYSTEM_CLOCK.monotonic() + _SECONDS
        while SYSTEM_CLOCK.monotonic() < end and self.process.poll() is None:
            for event in self.events():
                if event["event"] == "listening":
                    return f"http://127.0.0.1:{event['port']}"
            SYSTEM_CLOCK.wait(0.05)
        raise ShufflesumError("server-failed", f"a server did not start; it said: {self.log.read_text()[-500:]}")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A task, its two servers, and the folder with all their files."""

    task: Task
    folder: Path
    shuffler: Server
    analyzer_url: str

    @property
    def contributions(self) -> Path:
        """Where a client remembers what it sent."""
        return self.folder / "contributions"

    @property
    def tables(self) -> str:
        """The analyzer's store."""
        return f"sqlite:{self.folder}/tables"

    def files_of(self, store: str) -> dict[str, bytes]:
        """The files of a store, `uploads` or `tables`, byte for byte."""
        return {path.name: path.read_bytes() for path in sorted(self.folder.glob(f"{store}*")) if path.is_file()}


@contextmanager
def deployed(name: str, plan: Plan) -> Iterator[Deployment]:
    """Start analyzer and shuffler on loopback; both stop, and their files go, at the end."""
    with tempfile.TemporaryDirectory(prefix=f"shufflesum-{name}-") as made:
        folder = Path(made)
        key, public = write_key_pair(folder / "analyzer", generate_private_key())
        task = _make_task(name, plan, public, folder)
        common = ["--task", str(folder / "task.json"), "--secret-file", str(folder / "secret"), "--store"]
        arguments = [*common, f"sqlite:{folder}/tables", "--key", str(key), "--port", "0"]
        with _serving(folder, "analyzer", arguments) as analyzer:
            url = analyzer.url()
            port = task.shuffler.rpartition(":")[2]
            arguments = [*common, f"sqlite:{folder}/uploads", "--analyzer", url, "--port", port]
            with _serving(folder, "shuffler", arguments) as shuffler:
                shuffler.url()
                yield Deployment(task, folder, shuffler, url)


def _make_task(name: str, plan: Plan, public: Path, folder: Path) -> Task:
    task = Task(
        name=name,
        plan=plan,
        analyzer_key=load_public_key(public),
        shuffler=f"http://127.0.0.1:{_free_port()}",
        expires=SYSTEM_CLOCK.now().replace(microsecond=0) + timedelta(hours=1),
    )
    (folder / "task.json").write_text(task.to_json(), encoding="utf-8")
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text(secrets.token_hex(32), encoding="ascii")
    return task


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def _serving(folder: Path, role: str, arguments: list[str]) -> Iterator[Server]:
    log = folder / f"{role}.log"
    # what is set for the servers of a deployment, a budget above all, is not for made-up users
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SHUFFLESUM_")}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, "serve", role, *arguments],
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    try:
        yield Server(process, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
