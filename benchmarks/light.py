"""What a device spends before its first report is sent: with the extra `client`, and with all that servers need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import shufflesum as ss
from benchmarks.timing import Row, at_least, at_most, processor_times
from shufflesum.keys import generate_private_key
from shufflesum.wire import Task

ROOT = Path(__file__).parents[1]
LIBRARIES = ("httpx", "cryptography", "msgspec", "numpy")  # what the extra `client` is made of
UPLOAD = """
import sys
from shufflesum.service.client import Client
from shufflesum.wire import Task

task, contributions, verify = sys.argv[1:]
with Client(Task.load(task, verify=verify == "verify"), contributions=contributions) as client:
    client.upload([0.5] * 100)
"""


class _Shuffler(BaseHTTPRequestHandler):
    """Takes every upload."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _task(folder: Path) -> Iterator[Path]:
    """A task whose shuffler is here."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Shuffler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        task = Task(
            name="first upload",
            plan=ss.plan(users=50_000, shape=100, epsilon=1.0, delta=1e-6, mechanism="randomized-response"),
            analyzer_key=generate_private_key().public_key().public_bytes_raw(),
            shuffler=f"http://127.0.0.1:{server.server_port}",
            expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=1),
        )
        (folder / "task.json").write_text(task.to_json())
        yield folder / "task.json"
        server.shutdown()


def _pip(*arguments: str | Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments], check=True, capture_output=True
    )


def _install(environment: Path, *packages: str) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    _pip("--python", environment / "bin" / "python", "install", "--quiet", *packages)


def _send(environment: Path, task: Path, verify: str) -> None:
    with tempfile.TemporaryDirectory() as empty:
        subprocess.run(
            [environment / "bin" / "python", "-c", UPLOAD, task, Path(empty) / "contributions", verify],
            check=True,
            env=os.environ | {"NUMBA_CACHE_DIR": empty},
        )


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source"
        source.mkdir()
        for part in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / part, source / part)
        shutil.copytree(ROOT / "src", source / "src")
        _pip("wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)  # as an index has it
        (wheel,) = folder.glob("*.whl")
        kinds = {"client": "believe", "service": "verify"}
        *installed, bare = processor_times(
            *(partial(_install, folder / extra, f"{wheel}[{extra}]") for extra in kinds),
            partial(_install, folder / "bare", *LIBRARIES),
            repeats=1,
        )
        with _task(folder) as task:
            sends: list[Callable[[], None]] = [
                partial(_send, folder / extra, task, how) for extra, how in kinds.items()
            ]
            light, heavy = processor_times(*sends, repeats=3)
    both = [installed[0] + light, installed[1] + heavy]
    return [
        at_least(
            "import and first upload, d = 100, extra `client` against extra `service`, which compiles and verifies",
            heavy / light,
            5.0,
            f" less ({light:.2f} s of processor time against {heavy:.2f} s)",
        ),
        Row(
            "the same with installation in a new environment",
            f"{both[1] / both[0]:.1f}x less ({both[0]:.1f} s of processor time against {both[1]:.1f} s)",
            "below 15 s",
            both[0] < 15.0,
        ),
        at_most(
            "installing the extra `client`, against installing the four libraries that it needs and nothing of ours",
            installed[0] / bare,
            1.5,
            f" ({installed[0]:.1f} s of processor time against {bare:.1f} s)",
        ),
    ]
