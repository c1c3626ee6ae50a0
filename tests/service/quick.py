"""Programs that start in a moment: real processes, forked from one that has imported everything already."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.service.launch import end_with_parent
from tests.service.servers import Deployment, ServerProcess

from shufflesum.wire import Task

__all__ = ["QuickProcess", "QuickServer", "quick_shuffler"]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.service.quick", "tests.service.warm"])

Sabotage = Callable[[], None]


def _run(arguments: list[str], log: Path, over: Path | None, sabotage: Sabotage | None) -> None:
    """In the new process: the command line on tasks without a guarantee, with what it says in the log."""
    from shufflesum.cli import main

    end_with_parent()
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    for name in [name for name in os.environ if name.startswith("SHUFFLESUM_")]:
        del os.environ[name]
    Task._verify_plan = lambda self: None  # type: ignore[method-assign]
    if over is not None:
        Task.expired_at = lambda self, moment: over.exists()  # type: ignore[method-assign]
    if sabotage is not None:
        sabotage()
    sys.argv = ["shufflesum", *arguments]
    main()


class QuickProcess:
    """`shufflesum ARGUMENTS`, started; it has the methods of Popen that tests need.

    The task has expired once the file `over` exists, and `sabotage` runs before the command does.
    """

    def __init__(
        self, log: Path, arguments: list[str], *, over: Path | None = None, sabotage: Sabotage | None = None
    ) -> None:
        log.touch()
        self._process = _FORKS.Process(target=_run, args=(arguments, log, over, sabotage))
        self._process.start()
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


class QuickServer(ServerProcess):
    """As its parent, but started in a moment; see `QuickProcess`."""

    def __init__(self, log: Path, arguments: list[str], **rest: Any) -> None:
        self._rest = rest
        super().__init__(log, arguments)

    def start(self, *, wait: bool = True) -> None:
        assert self.process is None or self.process.poll() is not None
        seen = self.log.stat().st_size if self.log.exists() else 0
        started: Any = QuickProcess(self.log, ["serve", *self._arguments, "--port", str(self.port)], **self._rest)
        self.process = started
        if wait:
            self.wait_until_listening(seen)


def quick_shuffler(deployment: Deployment, folder: Path, analyzer: str, *options: str, **rest: Any) -> QuickServer:
    """A shuffler of this deployment with its store and its log in `folder`."""
    files = ["--task", str(deployment.task_file), "--secret-file", str(deployment.secret_file)]
    store = ["--store", f"sqlite:{folder / 'shuffler.db'}", "--analyzer", analyzer]
    return QuickServer(folder / "shuffler.log", ["shuffler", *files, *store, *options], **rest)
