"""All three parties on this machine: two servers as processes, a crowd of made-up users, and what each party saw."""

from __future__ import annotations

import json
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

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as RichTable

from shufflesum._clock import SYSTEM_CLOCK
from shufflesum._rounding import upwards
from shufflesum.errors import ShufflesumError
from shufflesum.planning import plan as make_plan
from shufflesum.plans import Plan
from shufflesum.service import require_service
from shufflesum.service.client import Client, RefusedError, fetch_estimate
from shufflesum.service.client.web import web_client
from shufflesum.synthetic import heartbeats
from shufflesum.wire import SEALED_BYTES, Task, generate_private_key, load_public_key, write_key_pair

__all__ = ["run_service_demo"]

_SAMPLES, _COORDINATES = 20, 4
_SECONDS = 120.0
_SERVE = "from shufflesum.cli.serve import command; command(prog_name='shufflesum serve')"


@dataclass(frozen=True, slots=True)
class _Server:
    """A server under way, and where its log is."""

    process: subprocess.Popen[bytes]
    log: Path

    def events(self) -> list[dict[str, Any]]:
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
        raise ShufflesumError(
            "server-failed", f"a server of the demo did not start; it said: {self.log.read_text()[-500:]}"
        )


def run_service_demo(console: Console, *, users: int) -> None:
    """Start shuffler and analyzer, send a synthetic crowd, print the estimate and what each party saw, stop all."""
    require_service()
    plan = make_plan(users=users, shape=_SAMPLES, epsilon=1.0, delta=1e-6, coordinates=_COORDINATES)
    beats = heartbeats(users, _SAMPLES)
    with tempfile.TemporaryDirectory(prefix="shufflesum-demo-") as name:
        folder = Path(name)
        key, public = write_key_pair(folder / "analyzer", generate_private_key())
        task = _make_task(plan, public, folder)
        common = ["--task", str(folder / "task.json"), "--secret-file", str(folder / "secret"), "--store"]
        arguments = [*common, f"sqlite:{folder}/tables", "--key", str(key), "--port", "0"]
        with _server(folder, "analyzer", arguments) as analyzer:
            analyzer_url = analyzer.url()
            port = task.shuffler.rpartition(":")[2]
            arguments = [*common, f"sqlite:{folder}/uploads", "--analyzer", analyzer_url, "--port", port]
            with _server(folder, "shuffler", arguments) as shuffler:
                shuffler.url()
                console.print(f"analyzer, shuffler and {users:,} users run on this machine, each with files of its own")
                start = SYSTEM_CLOCK.monotonic()
                with Client(task, contributions=folder / "contributions") as client:
                    client.upload_many(beats, [f"user {i}" for i in range(users)])
                console.print(
                    f"{users:,} uploads randomized, sealed and acknowledged in {SYSTEM_CLOCK.monotonic() - start:.1f} s"
                )
                document = _wait_for_estimate(task, analyzer_url)
                _print_estimate(console, task, document["rounds"][0], beats.mean(axis=0, dtype=np.float64))
                _print_views(console, task, document["rounds"][0], shuffler)
    console.print("both servers have stopped, and their files are gone")


def _make_task(plan: Plan, public: Path, folder: Path) -> Task:
    task = Task(
        name="demo",
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
def _server(folder: Path, role: str, arguments: list[str]) -> Iterator[_Server]:
    log = folder / f"{role}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, role, *arguments], stdout=file, stderr=file, stdin=subprocess.DEVNULL
        )
    try:
        yield _Server(process, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_estimate(task: Task, url: str) -> dict[str, Any]:
    end = SYSTEM_CLOCK.monotonic() + _SECONDS
    while True:
        try:
            return fetch_estimate(task, url)
        except RefusedError as error:
            if error.final or SYSTEM_CLOCK.monotonic() > end:
                raise
        SYSTEM_CLOCK.wait(0.1)


def _print_estimate(console: Console, task: Task, found: dict[str, Any], truth: NDArray[np.float64]) -> None:
    plan = task.plan
    console.print(
        f"\n[bold]What the analyzer publishes[/bold]: {found['users']:,} users, epsilon {upwards(plan.epsilon)}, "
        f"delta {upwards(plan.delta)}"
    )
    table = RichTable(box=None, header_style="bold")
    for title in ("sample", "mean", "standard error", "true mean"):
        table.add_column(title, justify="right")
    for i in range(0, _SAMPLES, 3):
        table.add_row(str(i), f"{found['mean'][i]:.3f}", f"{found['standard_error'][i]:.3f}", f"{truth[i]:.3f}")
    console.print(table)
    console.print("(the true mean is known only because the crowd is made up)")


def _print_views(console: Console, task: Task, found: dict[str, Any], shuffler: _Server) -> None:
    end = SYSTEM_CLOCK.monotonic() + _SECONDS
    while not any(event["event"] == "batch released" for event in shuffler.events()) and SYSTEM_CLOCK.monotonic() < end:
        SYSTEM_CLOCK.wait(0.05)
    with web_client(task.shuffler) as http:
        metrics = http.get(f"{task.shuffler}/metrics").text.splitlines()
    console.print("\n[bold]What the shuffler saw[/bold]: sizes only")
    console.print(
        f"  {found['uploads']:,} uploads of exactly {task.upload_bytes} bytes, every report sealed for the analyzer; "
        "after the release it keeps upload ids and no reports",
        markup=False,
    )
    for line in metrics:
        if line.startswith(("shufflesum_uploads_total", "shufflesum_batches_released_total")):
            console.print(f"  metric: {line}", markup=False)
    for event in shuffler.events():
        console.print(f"  log: {json.dumps(event)}", markup=False)
    console.print("[bold]What the analyzer saw[/bold]: unlinked reports")
    console.print(
        f"  one batch of {found['uploads'] * task.plan.reports:,} reports of {SEALED_BYTES} bytes in random order, "
        f"{found['rejected_reports']} rejected; it keeps only how often each value came for each sample\n"
        f"  reports for each sample: {found['report_counts']}",
        markup=False,
    )
