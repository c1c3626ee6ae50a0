"""Commands and servers as processes, to be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.clocks import ServerClock
from tests.forked_processes import Work, start_forked
from tests.service.http_requests import Answer, request

from shufflesum._machine import Clock
from shufflesum.wire import Task, Upload

__all__ = ["Program", "ServerProcess"]

_START_SECONDS = 60.0


def _run(arguments: list[str], clock: Clock | None, prepare: Work | None) -> None:
    """In the new process: the command line on tasks without a guarantee."""
    from shufflesum.cli import main

    for name in [name for name in os.environ if name.startswith("SHUFFLESUM_")]:
        del os.environ[name]
    Task._verify_plan = lambda self: None  # type: ignore[method-assign]
    if prepare is not None:
        prepare()
    sys.argv = ["shufflesum", *arguments]
    main(clock)


class Program:
    """`shufflesum ARGUMENTS`, started; it has the methods of Popen that tests need.

    A server is handed `clock`, and `prepare` runs before the command does.
    """

    def __init__(
        self, log: Path, arguments: list[str], *, clock: Clock | None = None, prepare: Work | None = None
    ) -> None:
        log.touch()
        self._process = start_forked(log, partial(_run, arguments, clock, prepare))
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.kill = self._process.kill
        self.terminate = self._process.terminate

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, "the process did not end in time"
        return code


class ServerProcess:
    """A server as a process; `port` stays the same when it is started again. Use it in a `with` block.

    `fresh` starts an interpreter of its own, as a user would, to measure it.
    """

    def __init__(
        self, log: Path, arguments: list[str], *, wait: bool = True, fresh: bool = False, **handed_in: Any
    ) -> None:
        self.log = log
        self.port = 0
        self._arguments = arguments
        self._fresh = fresh
        self._handed_in = {"clock": ServerClock()} | handed_in
        self.process: Program | subprocess.Popen[bytes] | None = None
        self.start(wait=wait)

    def start(self, *, wait: bool = True) -> None:
        assert self.process is None or self.process.poll() is not None
        seen = self.log.stat().st_size if self.log.exists() else 0
        arguments = ["serve", *self._arguments, "--port", str(self.port)]
        if self._fresh:
            script = "import sys; from tests.service.processes import _run; _run(sys.argv[1:], None, None)"
            with self.log.open("ab") as log:
                self.process = subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=log, stderr=log)
        else:
            self.process = Program(self.log, arguments, **self._handed_in)
        if wait:
            self.wait_until_listening(seen)

    def wait_until_listening(self, seen: int = 0) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            lines = self.log.read_bytes()[seen:].splitlines() if self.log.exists() else []
            for line in lines:
                if b'"listening"' in line:
                    self.port = json.loads(line)["port"]
                    return
            assert self.process is not None
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.kill()
        raise AssertionError(f"the server did not start: {self.log.read_text()[-2000:]}")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def most_memory(self) -> int:
        """The most memory, in bytes, that it has had at any moment."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))

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
        """Its log; every line of standard error is one of it."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def request(self, method: str, path: str, body: bytes | None = None, **rest: Any) -> Answer:
        return request(self.port, method, path, body, **rest)

    def upload(self, upload: Upload, **rest: Any) -> Answer:
        return self.request("POST", f"/tasks/{upload.task_id}/uploads", upload.encode(), **rest)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = self.request("GET", "/metrics", headers=self._operator()).body.decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.split("{")[0].split(" ")[0] == name)

    def _operator(self) -> dict[str, str]:
        """What opens the metrics of a server that has an operator's secret."""
        option = "--operator-secret-file"
        if option not in self._arguments:
            return {}
        secrets = Path(self._arguments[self._arguments.index(option) + 1]).read_text().split()
        return {"Authorization": f"Bearer {secrets[-1]}"}

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
