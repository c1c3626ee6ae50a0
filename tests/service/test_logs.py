"""Whatever happens to a server or to its worker processes, every line on standard error is one of its log."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.forked_processes import forked, wait_until
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, fake_upload

from shufflesum import cli
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.logs import log, own_standard_error

WORKING = 12_000  # reports that two processes open for a second or so


def children(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(stat.parent.name), *children(int(stat.parent.name))]
    return found


def at_work(server: ServerProcess, deployment: Deployment) -> None:
    """Have an analyzer open reports in processes of its own; nobody waits for the answer."""
    path = f"/tasks/{deployment.task.id}/batches/{'ab' * 16}?round=1&users={WORKING}"
    body = bytes(WORKING * SEALED_BYTES)

    def send() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            server.request("POST", path, body, headers=deployment.bearer, seconds=120)

    threading.Thread(target=send, daemon=True).start()
    wait_until(lambda: len(children(server.pid)) >= 3, 60)  # two that open reports, one that tracks what they share


def only_json(log_file: Path) -> list[dict[str, object]]:
    lines = log_file.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert all({"event", "level", "timestamp"} <= set(event) for event in events)
    return events


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize(
    "fate",
    [
        "workers",
        *(
            pytest.param(fate, marks=pytest.mark.slow)
            for fate in ("server", "worker", "all", "polite", "interrupt", "interrupts")
        ),
    ],
)
def test_every_line_is_json_whatever_is_killed(tmp_path: Path, fate: str) -> None:
    deployment = Deployment.small(tmp_path, users=WORKING)
    with deployment.analyzer("--processes", "2", fresh=True) as server:
        at_work(server, deployment)
        below = children(server.pid)
        kinds = {"polite": signal.SIGTERM, "interrupt": signal.SIGINT, "interrupts": signal.SIGINT}
        victims = {"worker": below[-1:], "workers": below, "all": [*below, server.pid]}.get(fate, [server.pid])
        for _ in range(5 if fate == "interrupts" else 1):
            for victim in victims:
                os.kill(victim, kinds.get(fate, signal.SIGKILL))
            time.sleep(0.1)
        if fate in ("worker", "workers"):  # the server does the work by itself then
            wait_until(lambda: server.metric("shufflesum_batches_total") == 1, 120)
            server.stop()
        assert server.process is not None
        server.process.wait(60)
        wait_until(lambda: not [pid for pid in below if Path(f"/proc/{pid}").exists()], 60)
    events = only_json(server.log)
    assert [event["event"] for event in events][:2] == ["task is read and its plan verified", "analyzer starts"]


def noisy() -> None:
    own_standard_error()
    print("from 192.0.2.1", file=sys.stderr, flush=True)
    time.sleep(0.3)
    subprocess.run([sys.executable, "-c", "raise ValueError('of 192.0.2.2')"], check=False)
    time.sleep(0.3)
    os.write(2, b"Fatal 192.0.2.3\n")
    time.sleep(0.3)
    log.info("done")
    raise KeyError("192.0.2.4")


def test_what_others_write_is_reduced_to_what_names_nobody(tmp_path: Path) -> None:
    assert forked(tmp_path / "log", noisy) == 1
    said, *_ = kept = only_json(tmp_path / "log")
    assert (said["event"], said["lines"]) == ("library message", 1)
    assert (kept[1]["error"], kept[1]["where"]) == ("ValueError", "<string>:1")
    assert kept[3]["event"] == "done"
    assert "192.0.2" not in (tmp_path / "log").read_text()


def interrupted_with_work_left() -> None:
    sys.argv = ["shufflesum", "serve"]

    def serving(**_: object) -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise KeyboardInterrupt

    cli._group = serving  # type: ignore[assignment]
    cli.main()


def test_a_server_that_is_interrupted_waits_for_nothing(tmp_path: Path) -> None:
    assert forked(tmp_path / "log", interrupted_with_work_left) == 130
    assert only_json(tmp_path / "log")[-1]["problem"] == "stopped"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--max-pending", "many"), "bad-arguments"),
        (("--no-such-option",), "bad-arguments"),
        (("--release-at", "1"), "out-of-range"),
        (("--tokens", "/nowhere"), "unreadable"),
    ],
)
def test_a_server_that_cannot_start_says_why_in_its_log(tmp_path: Path, options: tuple[str, ...], problem: str) -> None:
    deployment = Deployment.small(tmp_path)
    server = deployment.shuffler("http://127.0.0.1:1", *options, wait=False)
    assert server.process is not None
    assert server.process.wait(60) == 2
    assert only_json(server.log)[-1]["problem"] == problem


@pytest.mark.slow
def test_nothing_but_the_log_when_a_shuffler_is_stopped_at_any_moment(tmp_path: Path) -> None:
    deployment = Deployment.small(tmp_path, users=1000)
    for number, pause in ((signal.SIGTERM, 0.3), (signal.SIGINT, 0.6), (signal.SIGTERM, 1.0), (signal.SIGINT, 1.4)):
        server = deployment.shuffler("http://127.0.0.1:1", wait=False, fresh=True)
        try:
            wait_until(lambda log=server.log: "verified" in log.read_text(), 60)
            time.sleep(pause - 0.3)
            if server.process is not None and '"listening"' in server.log.read_text():
                server.wait_until_listening()
                server.upload(fake_upload(deployment.task))
            os.kill(server.pid, number)
            assert server.process is not None
            server.process.wait(60)
        finally:
            server.kill()
        only_json(server.log)
        server.log.unlink()
