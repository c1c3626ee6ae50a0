"""PostgreSQL for tests, in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["Postgres", "why_no_postgres"]

_START_SECONDS = 60.0
_PG_FOLDERS = ("/usr/lib/postgresql", "/usr/local/pgsql", "/usr/pgsql-15", "/opt/homebrew/opt/postgresql@15")


class Postgres:
    """PostgreSQL from the machine's binaries in a temporary folder, on loopback; use it in a `with` block."""

    def __init__(self, addresses: str = "127.0.0.1", port: int | None = None) -> None:
        binaries = _postgres_binaries()
        self._folder = Path(tempfile.mkdtemp(prefix="shufflesum-postgres-"))
        self._data = self._folder / "data"
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.getuid() == 0 else None
        self._postgres = str(binaries / "postgres")
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            entry = pwd.getpwnam(self._user)
            os.chown(self._folder, entry.pw_uid, entry.pw_gid)
        self._addresses = addresses  # with commas between
        self.port = port or _free_port()
        self._make()
        self.start()

    def _make(self) -> None:
        self._run([self.binary("initdb"), "-D", str(self._data), "-A", "trust", "-U", "shuffler", "--no-sync"])

    def binary(self, name: str) -> str:
        """One of the programs that come with it."""
        return str(Path(self._postgres).resolve().with_name(name))

    @property
    def address(self) -> str:
        return f"postgresql://shuffler@{self._addresses.partition(',')[0]}:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self._data

    def _identity(self) -> dict[str, Any]:
        return {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}

    def _run(self, command: list[str]) -> None:
        subprocess.run(
            command, check=True, capture_output=True, timeout=120, cwd=self._folder, env=_plain(), **self._identity()
        )

    def start(self) -> None:
        """Start it unless it runs."""
        import psycopg

        if self._process is not None and self._process.poll() is None:
            return
        self._process = subprocess.Popen(
            [
                *(*_ending_with_parent(), self._postgres, "-D", str(self._data), "-k", str(self._folder)),
                *("-p", str(self.port), "-c", f"listen_addresses={self._addresses}", "-c", "shared_buffers=16MB"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=_plain(),
            **self._identity(),
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.address, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "PostgreSQL did not start"
                assert self._process.poll() is None, "PostgreSQL ended at once"
                time.sleep(0.05)

    def stop(self) -> None:
        """At once, as a crash would; it recovers at the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def why_no_postgres() -> str | None:
    """Why PostgreSQL cannot be started here, or None where it can."""
    try:
        _postgres_binaries()
        if os.getuid() == 0:
            pwd.getpwnam("postgres")
    except (FileNotFoundError, KeyError) as error:
        return f"PostgreSQL is not installed ({error}); make setup-postgres installs it"
    return None


def _postgres_binaries() -> Path:
    on_path = shutil.which("initdb")
    found = [Path(on_path).parent] if on_path else []
    for folder in _PG_FOLDERS:
        found += sorted((initdb.parent for initdb in Path(folder).glob("**/bin/initdb")), reverse=True)
    if not found:
        raise FileNotFoundError("no initdb")
    return found[0]


def _ending_with_parent() -> list[str]:
    """A test run that is killed must not leave a database behind; the servers see to it themselves."""
    return ["setpriv", "--pdeathsig", "QUIT"] if shutil.which("setpriv") else []


def _plain() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
