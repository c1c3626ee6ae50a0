"""Load on the servers, on loopback, with client and server sharing the machine's cores.

Ratios are to bare equivalents measured in the same minutes: a server that only writes the same bytes durably, and
processes that only open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from tests.forked_processes import wait_until
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, StandInAnalyzer, fake_upload

from benchmarks.timing import Row, at_most
from shufflesum._machine import cores as machine_cores
from shufflesum.protocol import Randomizer
from shufflesum.sealing import SEALED_BYTES, encode_reports, seal_info, seal_many
from shufflesum.service.stores.store import ArrivingUpload, open_store
from shufflesum.testing import unprotected_plan

UPLOADS, CONNECTIONS, RUNS = 20_000, 64, 5
OPENED, DISTINCT, PAIRS = 40_000, 2_000, 10
STORED, MEGABYTES = 1_000_000, 500
FEW, FILLED, LAST = 500, 20_000, 400


def ingest() -> list[Row]:
    """Single-user uploads with t = 1: our shuffler against the bare server, alternately; the median of pairs."""
    ours: list[float] = []
    bare: list[float] = []
    busy = {"ours": 0.0, "bare": 0.0}
    with tempfile.TemporaryDirectory() as name:
        deployment = Deployment.small(Path(name), users=10**9)
        path = f"/tasks/{deployment.task.id}/uploads"
        with (
            deployment.shuffler("http://127.0.0.1:1", fresh=True) as shuffler,
            _bare_server(Path(name) / "bytes") as (port, pid),
        ):
            for _ in range(RUNS):
                bodies = [fake_upload(deployment.task).encode() for _ in range(UPLOADS)]
                before = _busy(shuffler.pid), _busy(pid)
                ours.append(_upload_rate(shuffler.port, path, bodies))
                bare.append(_upload_rate(port, path, bodies))
                busy["ours"] += _busy(shuffler.pid) - before[0]
                busy["bare"] += _busy(pid) - before[1]
    ratio = median(mine / other for mine, other in zip(ours, bare, strict=True))
    return [
        Row(
            f"shuffler: uploads of one user with t = 1, {CONNECTIONS} connections, against a bare server that writes "
            "the same bytes durably",
            f"{ratio:.2f}x ({median(ours):,.0f} against {median(bare):,.0f} uploads a second; "
            f"{busy['bare'] / busy['ours']:.2f}x for each second of the server's processor time)",
            "at least 0.5x",
            ratio >= 0.5,
        )
    ]


def opening() -> list[Row]:
    """A whole batch through the analyzer, HTTP, counting and durable table included, and through bare processes."""
    cores = machine_cores()
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        plan = unprotected_plan(users=OPENED, shape=10, levels=3, rounds=PAIRS + 1)
        deployment = Deployment(Path(name), plan)
        key = deployment.key
        rows = np.random.default_rng(1).random((DISTINCT, 10), dtype=np.float32)
        encoded = encode_reports(Randomizer(plan).randomize(rows))
        with deployment.analyzer(fresh=True) as analyzer, ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            for number in range(1, PAIRS + 2):
                info = seal_info(deployment.task.id, number)
                sealed = seal_many(encoded, key.public_key(), info).tobytes()
                batch = sealed * (OPENED // DISTINCT)
                start = time.perf_counter()
                _post_batch(analyzer, deployment, number, batch)
                middle = time.perf_counter()
                shares = [sealed * (OPENED // DISTINCT // cores)] * cores
                opened = sum(pool.map(_bare_open, shares, repeat(key.private_bytes_raw()), repeat(info + bytes(4))))
                ours.append(OPENED / (middle - start))
                bare.append(opened / (time.perf_counter() - middle))
    # The first pair starts the processes of both. Rates of the same seconds are compared; the median pair counts.
    ratios = [mine / other for mine, other in zip(ours[1:], bare[1:], strict=True)]
    return [
        Row(
            f"analyzer: a batch of {OPENED:,} reports opened and counted on {cores} cores, against {cores} bare "
            "processes that only open as many",
            f"{median(ratios):.2f}x, the median of {PAIRS} pairs of {min(ratios):.2f} to {max(ratios):.2f}x "
            f"({median(ours[1:]):,.0f} against {median(bare[1:]):,.0f} reports a second)",
            "at least 0.85x",
            median(ratios) >= 0.85,
        )
    ]


_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def _bare_open(sealed: bytes, key: bytes, info: bytes) -> int:
    private = X25519PrivateKey.from_private_bytes(key)
    for start in range(0, len(sealed), SEALED_BYTES):
        _SUITE.decrypt(sealed[start : start + SEALED_BYTES], private, info)
    return len(sealed) // SEALED_BYTES


def memory() -> list[Row]:
    """One million stored users of t = 1, released; the most memory that each server ever held."""
    with tempfile.TemporaryDirectory() as name:
        deployment = Deployment.small(Path(name), users=STORED)
        store = open_store(f"sqlite:{name}/shuffler.db", deployment.task)
        for _ in range(STORED // 10_000):
            store.take(
                [ArrivingUpload(1, secrets.token_bytes(16), secrets.token_bytes(SEALED_BYTES)) for _ in range(10_000)]
            )
        store.close()
        with deployment.analyzer(fresh=True) as analyzer, deployment.shuffler(analyzer.url, fresh=True) as shuffler:
            wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1, 900)
            peaks = {"shuffler": _peak(shuffler.pid), "analyzer with its processes": _peak(analyzer.pid)}
    return [
        Row(
            f"{role}: most memory while {STORED:,} users of t = 1 are released",
            f"{peak:.0f} MB",
            f"below {MEGABYTES} MB",
            peak < MEGABYTES,
        )
        for role, peak in peaks.items()
    ]


def filling(most: int = FILLED) -> list[Row]:
    """Rounds of few and of many users of a plan with 200 reports, in shufflers of their own, up to the release."""
    busy: dict[int, float] = {}
    written: dict[int, float] = {}
    for users in (FEW, most):
        with tempfile.TemporaryDirectory() as name, StandInAnalyzer() as analyzer:
            deployment = Deployment(
                Path(name), unprotected_plan(users=users, shape=200, coordinates=200, levels=3, rounds=2)
            )
            path = f"/tasks/{deployment.task.id}/uploads"
            with deployment.shuffler(analyzer.url, fresh=True) as shuffler:
                received, begun = users * deployment.task.upload_bytes, 0.0
                for start in range(0, users, 100):
                    bodies = [fake_upload(deployment.task).encode() for _ in range(100)]
                    if start == users - LAST:
                        begun = _run_seconds(shuffler.pid)
                    _upload_rate(shuffler.port, path, bodies[:-1])
                    if start + 100 == users:  # the last one begins the release
                        busy[users] = (_run_seconds(shuffler.pid) - begun) / (LAST - 1)
                    _upload_rate(shuffler.port, path, bodies[-1:])
                wait_until(lambda: shuffler.metric("shufflesum_batches_released_total") == 1, 600)
                counters = Path(f"/proc/{shuffler.pid}/io").read_text().split()
                written[users] = int(counters[counters.index("wchar:") + 1]) / received
                # What it has sent to the analyzer, and its answers, are counted with what it has written to files.
                written[users] -= 200 * SEALED_BYTES * users / received
    return [
        at_most(
            f"shuffler: processor time of an upload of 200 reports where {most:,} users are there, against {FEW}",
            busy[most] / busy[FEW],
            1.2,
            f" ({1000 * busy[most]:.2f} against {1000 * busy[FEW]:.2f} ms)",
        ),
        at_most(
            f"shuffler: bytes written for a byte received, release included, {most:,} users of 200 reports",
            written[most],
            4.0,
            f" ({written[FEW]:.2f}x for {FEW} users)",
        ),
    ]


def rows() -> list[Row]:
    return [*ingest(), *opening(), *memory(), *filling()]


def _post_batch(analyzer: ServerProcess, deployment: Deployment, number: int, body: bytes) -> None:
    answer = httpx.post(
        f"{analyzer.url}/tasks/{deployment.task.id}/batches/{secrets.token_hex(16)}",
        params={"round": number, "users": OPENED},
        content=body,
        headers=deployment.bearer,
        timeout=600,
        trust_env=False,
    )
    assert answer.status_code == 201, answer.text


def _peak(pid: int) -> float:
    """Megabytes of resident memory at the most, of a process and its children, as Linux counts them."""
    status = Path(f"/proc/{pid}/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1000
    return own + sum(_peak(child) for child in _children(pid))


def _busy(pid: int) -> float:
    """Seconds of processor time of a process and its children so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_busy(child) for child in _children(pid))


def _run_seconds(pid: int) -> float:
    """Processor time of a process's threads so far, to the microsecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")  # listed by the thread that started them
    return [int(child) for task in tasks for child in task.read_text().split()]


def _upload_rate(port: int, path: str, bodies: list[bytes]) -> float:
    """Uploads a second over connections that are kept; each sends its next upload when the last is acknowledged."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(bodies[0])}\r\n\r\n".encode()
    waiting = iter(bodies)

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in waiting:
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
        writer.close()

    async def all_connections() -> None:
        await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))

    start = time.perf_counter()
    asyncio.run(all_connections())
    return len(bodies) / (time.perf_counter() - start)


@contextlib.contextmanager
def _bare_server(file: Path) -> Iterator[tuple[int, int]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.service", str(port), str(file)])
    try:
        wait_until(lambda: _listens(port))
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class _Bare:
    """The least that can be done with an upload: read it, write it, sync together with those that came meanwhile."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((body, written))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        await written
        await send({"type": "http.response.start", "status": 201, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            await asyncio.to_thread(self._sync, b"".join(body for body, _ in group))
            for _, written in group:
                written.set_result(None)
        self._writer = None

    def _sync(self, data: bytes) -> None:
        self._file.write(data)
        os.fsync(self._file.fileno())


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(
        _Bare(Path(sys.argv[2])),
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
    )
