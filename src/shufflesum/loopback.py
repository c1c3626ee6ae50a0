"""Whole deployments on this machine: both servers as processes, as long as a demo or an audit needs them.

In an audit every user of a round holds the same, one of the rows that the audit of the plan's mechanism attacks. Looked
at are the tables of counts that the analyzer keeps (noise in all, its variance and parity, batch by batch), what every
upload is long, and what is in the files of both servers: no user's label while a round is open, and after a batch is
released none of its sealed reports (256 of them are looked for). The order in which the shuffler hands reports on is
not seen.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from shufflesum._machine import SYSTEM_CLOCK
from shufflesum.audit.findings import Sums, Tested, Watch, judged
from shufflesum.errors import PlanError, PrivacyError, ShufflesumError
from shufflesum.keys import RoundKeys, generate_private_key, load_public_keys, write_key_pair
from shufflesum.mechanisms.auditing import Attack
from shufflesum.noise_keys import NoiseKey
from shufflesum.plans import Plan
from shufflesum.service import require_service
from shufflesum.service.client import Client
from shufflesum.service.stores.store import split
from shufflesum.service.stores.tables import CountedBatch, open_tables
from shufflesum.wire import Task, Upload

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
        noise: dict[str, list[str]] = {"analyzer": [], "shuffler": []}
        if plan.noise_by == "users":
            key, public = write_key_pair(folder / "analyzer", generate_private_key())
        else:
            key, public = RoundKeys.write(folder / "analyzer", plan.rounds)
            noise = {role: ["--noise-key", str(NoiseKey.write(folder / role)[0])] for role in noise}
        task = _make_task(name, plan, public, folder)
        common = ["--task", str(folder / "task.json"), "--secret-file", str(folder / "secret"), "--store"]
        arguments = [*common, f"sqlite:{folder}/tables", "--key", str(key), "--port", "0", *noise["analyzer"]]
        with _serving(folder, "analyzer", arguments) as analyzer:
            url = analyzer.url()
            port = task.shuffler.rpartition(":")[2]
            arguments = [*common, f"sqlite:{folder}/uploads", "--analyzer", url, "--port", port, *noise["shuffler"]]
            with _serving(folder, "shuffler", arguments) as shuffler:
                shuffler.url()
                yield Deployment(task, folder, shuffler, url)


def _make_task(name: str, plan: Plan, public: Path, folder: Path) -> Task:
    task = Task(
        name=name,
        plan=plan,
        analyzer_key=load_public_keys(public),
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


_RELEASED_SECONDS = 60.0
_PIECE = 24  # bytes of a sealed report that are looked for in files: no two reports share them by chance

_MOST_PIECES = 256  # of a batch, evenly: files are searched for each


@dataclass(frozen=True, slots=True)
class ServiceAudit:
    """What an audit of a deployment saw. One that follows its plan passes with probability `confidence` or more."""

    plan: Plan
    confidence: float
    batches: int
    uploads: int
    findings: tuple[str, ...]
    tested: tuple[Tested, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the deployment."""
        return not self.findings


class _Recording(Client):
    """A client that remembers what it sent."""

    def __init__(self, task: Task, **options: Any) -> None:
        super().__init__(task, **options)
        self.sent: list[bytes] = []

    def _send(self, body: bytes, token: str | None, stop: threading.Event) -> Any:
        self.sent.append(body)
        return super()._send(body, token, stop)


def audit_service(
    plan: Plan, *, confidence: float = 1 - 1e-6, seconds: float = 20.0, client: type[Client] = Client
) -> ServiceAudit:
    """Send all users of the plan through real servers, round after round, until `seconds` are over or no round is left.

    At least one round is sent, and time counts from when the servers have started. `client` is the kind of client that
    sends.
    """
    require_service()
    plan.verify()
    if plan.noise_by != "users":
        raise PlanError(
            "impossible-combination",
            f"noise by {plan.noise_by!r} is the servers' own, and the audit of a deployment looks at users' noise; "
            "audit the plan in memory, or plan with noise_by='users'",
        )
    sums = Sums()
    recording = type("Recording", (_Recording, client), {})
    batches = uploads = 0
    with (
        deployed("audit", plan) as deployment,
        recording(deployment.task, contributions=deployment.contributions) as sender,
    ):
        end = SYSTEM_CLOCK.monotonic() + seconds
        for round_number in range(1, plan.rounds + 1):
            _look_at_round(deployment, sender, round_number, sums)
            batches, uploads = batches + 1, uploads + plan.users
            if SYSTEM_CLOCK.monotonic() > end:
                break
    found = judged(list(sums.counts().items()), 1 - confidence)
    return ServiceAudit(plan, confidence, batches, uploads, found.findings, found.tested)


def _look_at_round(deployment: Deployment, sender: Any, round_number: int, sums: Sums) -> None:
    plan, attack = deployment.task.plan, _attack(deployment.task.plan, round_number)
    number = (round_number - 1) % len(attack.crowds)
    labels = [f"known user {user:09d}" for user in range(plan.users)]
    sender.sent.clear()
    row, last = attack.crowds[number], plan.domain.repeated(attack.crowds[number], 1)
    if plan.users > 1:
        rows = plan.domain.repeated(row, plan.users - 1)
        sender.upload_many(rows, labels[:-1], round_number=round_number)
        held = b"".join(deployment.files_of("uploads").values())
        named = sum(label.encode() in held for label in labels)
        sums.add(
            "files while a round is open", "a user's label in the shuffler's files happened", named, len(labels), 0.0
        )
    sender.upload_many(last, labels[-1:], round_number=round_number)
    counted = _released(deployment, round_number)
    _look_at_uploads(deployment, sender.sent, sums)
    _look_at_table(plan, attack, number, counted, sums)


def _attack(plan: Plan, round_number: int) -> Attack:
    """What there is to see in a round; nothing is scouted for, any of the attack's rows will do."""
    domain = plan.domain.of_round(round_number)
    return plan.mechanism.attack(
        plan.encoding_of(domain), domain, plan.guarantee, lambda row: np.zeros(plan.cells, dtype=np.int64)
    )


def _released(deployment: Deployment, round_number: int) -> CountedBatch:
    """The counted batch of a round, once the analyzer has it."""
    end = SYSTEM_CLOCK.monotonic() + _RELEASED_SECONDS
    while SYSTEM_CLOCK.monotonic() < end:
        counted = open_tables(deployment.tables, deployment.task).counted()
        if len(counted) >= round_number:
            return counted[round_number - 1]
        SYSTEM_CLOCK.wait(0.1)
    raise PrivacyError(
        "audit-failed",
        f"round {round_number} has all its users, but no batch was released within {_RELEASED_SECONDS:g} s; the "
        f"shuffler's log ends with {deployment.shuffler.log.read_text(encoding='utf-8')[-300:]!r}",
    )


def _look_at_uploads(deployment: Deployment, sent: list[bytes], sums: Sums) -> None:
    """Sizes of uploads, that no two reports are sealed alike, and that none is kept by anybody after the release."""
    task = deployment.task
    other = sum(len(body) != task.upload_bytes for body in sent)
    sums.add("sizes of uploads", f"an upload of other than {task.upload_bytes} bytes happened", other, len(sent), 0.0)
    sealed = [piece for body in sent for piece in split(Upload.decode(body, task).sealed)]
    pieces = {piece[-_PIECE:] for piece in sealed[:: 1 + len(sealed) // _MOST_PIECES]}
    sums.add("sealed reports", "two reports sealed alike happened", len(sealed) - len(set(sealed)), len(sealed), 0.0)
    end = SYSTEM_CLOCK.monotonic() + _RELEASED_SECONDS
    while (kept := _kept(deployment, pieces)) and SYSTEM_CLOCK.monotonic() < end:
        SYSTEM_CLOCK.wait(0.2)  # what is deleted is overwritten soon after
    sums.add("files after the release", "a sealed report kept after its release happened", kept, len(pieces), 0.0)


def _kept(deployment: Deployment, pieces: set[bytes]) -> int:
    """How many of these bytes are in the files of either server."""
    whole = b"".join([*deployment.files_of("uploads").values(), *deployment.files_of("tables").values()])
    return sum(piece in whole for piece in pieces)


def _look_at_table(plan: Plan, attack: Attack, number: int, counted: CountedBatch, sums: Sums) -> None:
    """Users and reports must all be there, and the table must follow the distribution that the plan gives it."""
    sums.add("batches", "a batch of other users happened", counted.users != plan.users, 1, 0.0)
    sums.add("batches", "a rejected report happened", counted.rejected, plan.users * plan.reports, 0.0)
    missing = int(counted.table.sum()) + counted.blanks + counted.rejected != plan.users * plan.reports
    sums.add("batches", "a batch with more or fewer reports than were sent happened", missing, 1, 0.0)
    Watch(attack, sums, "service", plan.honest_users).tables(number, [counted.table], counted.users)
