"""Whatever is asked of a shuffler, in whatever order and through crashes: nothing of a round shows before it is full.

Every answer is foretold to the last byte from public facts (which round is open, how many uploads came), so nothing
else can be in it; and every byte that reaches the analyzer is accounted for.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.clocks import ServerClock
from tests.forked_processes import wait_until
from tests.service.http_requests import Answer
from tests.service.processes import ServerProcess
from tests.service.servers import Deployment, fake_upload
from tests.service.shuffler.recorded_deliveries import Recorder, named

from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.http.messages import PROBLEMS
from shufflesum.service.http.openapi import figures
from shufflesum.service.shuffler.interface import ShufflerStatus
from shufflesum.wire import Task, Upload, UploadError

SMALLEST, RELEASE_AT, ROUNDS, REPORTS = 3, 5, 3, 2
SHOWN = "see /openapi.json for what this server answers"


def reports_of(uploads: list[Upload]) -> Counter[bytes]:
    return Counter(u.sealed[i : i + SEALED_BYTES] for u in uploads for i in range(0, len(u.sealed), SEALED_BYTES))


class Shared:
    """What all examples of a test share: one task, one recording analyzer's address, and how the shuffler cheats."""

    deployment: Deployment
    sabotage: Callable[[], None] | None = None
    waits: tuple[float, ...] = (0.0, 0.1)


class NothingEarly(RuleBasedStateMachine):
    """A shuffler in a folder of its own, and what is publicly known of it."""

    server: ServerProcess

    def __init__(self) -> None:
        super().__init__()
        self.task = Shared.deployment.task
        self.stack = contextlib.ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.recorder = Recorder()
        self.stack.callback(self.recorder.close)
        self.accepted: dict[int, list[Upload]] = {number: [] for number in range(1, ROUNDS + 1)}
        self.full = 0  # rounds that are closed: 1 to this
        self.expired = False
        self.fresh_counts()

    @initialize()
    def begin(self) -> None:
        self.server = Shared.deployment.shuffler(
            self.recorder.url,
            "--release-at",
            str(RELEASE_AT),
            "--operator-secret-file",
            str(Shared.deployment.operator_file),
            folder=self.folder,
            clock=ServerClock(self.folder / "over"),
            prepare=Shared.sabotage,
        )
        self.stack.callback(self.server.kill)

    def teardown(self) -> None:
        with self.stack:
            if hasattr(self, "server"):
                self.server.kill()
                self.nothing_written_down()

    def nothing_written_down(self) -> None:
        """The log tells of rounds and batches, never of an upload."""
        allowed = {"shuffler starts", "listening", "batch released", "release failed, will be tried again"}
        allowed |= {"task is read and its plan verified"}
        allowed |= {"task has expired already, uploads are refused"}
        allowed |= {"task expired, everything left of it is deleted"}
        allowed |= {"task expired, everything is deleted but the batch that waits"}
        assert {event["event"] for event in self.server.events()} <= allowed
        log = self.server.log.read_bytes()
        for upload in (upload for uploads in self.accepted.values() for upload in uploads):
            assert upload.upload_id.hex().encode() not in log

    # What is publicly known.

    @property
    def open_round(self) -> int | None:
        return self.full + 1 if self.full < ROUNDS and not self.expired else None

    @property
    def waiting(self) -> int:
        """Users of the open round."""
        return len(self.accepted[self.open_round]) if self.open_round else 0

    def fresh_counts(self) -> None:
        """A server's counts begin anew with its process."""
        self.taken = 0
        self.refusals: Counter[str] = Counter()
        self.released_before = self.full

    # Every answer, foretold.

    def check(self, answer: Answer, status: int, body: bytes) -> None:
        assert (answer.status, answer.body) == (status, body)
        allowed = {"date", "content-length", "content-type", "allow", "www-authenticate", "connection"}
        assert answer.headers.keys() <= allowed

    def check_refused(self, answer: Answer, name: str, detail: str) -> None:
        self.refusals[name] += 1
        self.check(answer, PROBLEMS[name].status, PROBLEMS[name].encode(detail))

    def check_expired(self, answer: Answer) -> None:
        when = f"{self.task.expires:%Y-%m-%d %H:%M:%S} UTC"
        self.check_refused(answer, "expired", f"this task ended on {when}; use a newer one")

    def metrics(self) -> dict[str, float]:
        lines = self.server.request("GET", "/metrics", headers=Shared.deployment.operator).body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def settle(self) -> None:
        """Wait until every round that is full has been taken by the analyzer and deleted here."""
        wait_until(lambda: self.metrics()["shufflesum_batches_released_total"] >= self.full - self.released_before, 60)

    # What may be done.

    @rule()
    def upload(self) -> None:
        upload = fake_upload(self.task, self.open_round or ROUNDS)
        answer = self.server.upload(upload)
        if self.expired:
            self.check_expired(answer)
        elif self.open_round is None:
            self.check_refused(answer, "round-closed", self.closed(ROUNDS))
        else:
            self.check(answer, 201, b"")
            self.taken += 1
            self.accepted[self.open_round].append(upload)
            if self.waiting == RELEASE_AT:
                self.full += 1
                self.settle()

    @precondition(lambda self: self.open_round is not None)
    @rule(moment=st.floats(0, 0.12))
    def fill_and_crash(self, moment: float) -> None:
        """Everybody is there, and the server dies while it releases."""
        assert self.open_round is not None
        while self.waiting < RELEASE_AT:
            upload = fake_upload(self.task, self.open_round)
            self.check(self.server.upload(upload), 201, b"")
            self.accepted[self.open_round].append(upload)
        self.full += 1
        time.sleep(moment)
        self.crash()

    @precondition(lambda self: any(self.accepted.values()))
    @rule(data=st.data(), other_bytes=st.booleans())
    def repeat(self, data: st.DataObject, other_bytes: bool) -> None:
        known = [(number, i) for number, uploads in self.accepted.items() for i in range(len(uploads))]
        number, place = data.draw(st.sampled_from(known))
        upload = self.accepted[number][place]
        if other_bytes:  # whoever guesses an id neither replaces what is there nor is told that it differs
            upload = fake_upload_with(self.task, number, upload.upload_id)
        answer = self.server.upload(upload)
        if self.expired:
            self.check_expired(answer)
        else:
            self.check_refused(answer, "repeated", "this upload counts already, once; nothing is to be done")

    @rule(kind=st.sampled_from(["short", "empty", "version", "task", "more", "long"]))
    def malformed(self, kind: str) -> None:
        good = fake_upload(self.task, self.open_round or 1).encode()
        bad = {
            "short": good[:-1],
            "empty": b"",
            "version": b"\xff" + good[1:],
            "task": good[:2] + secrets.token_bytes(32) + good[34:],
            "more": good + bytes(SEALED_BYTES),
            "long": good + bytes(SEALED_BYTES + 1),
        }[kind]
        answer = self.server.request("POST", f"/tasks/{self.task.id}/uploads", bad)
        if self.expired:
            self.check_expired(answer)
        elif kind == "long":
            most = self.task.upload_bytes + SEALED_BYTES
            self.check_refused(answer, "too-large", f"a body of {len(bad)} bytes; at most {most} are taken")
        else:
            with pytest.raises(UploadError) as error:
                Upload.decode(bad, self.task)
            self.check_refused(answer, error.value.problem, str(error.value))

    @rule(number=st.integers(0, ROUNDS + 1))
    def another_round(self, number: int) -> None:
        if number == self.open_round:
            return
        answer = self.server.upload(fake_upload(self.task, number))
        if self.expired:
            self.check_expired(answer)
        elif not 1 <= number <= ROUNDS:
            detail = f"round {number}; this task covers rounds 1 to {ROUNDS}: make a new task"
            self.check_refused(answer, "wrong-round", detail)
        elif self.open_round is None or number < self.open_round:
            self.check_refused(answer, "round-closed", self.closed(number))
        else:
            detail = f"round {number} is not open yet; send the same upload once it is"
            self.check_refused(answer, "round-not-open", detail)

    @staticmethod
    def closed(number: int) -> str:
        return f"round {number} is closed; take part in the open round, if there is one"

    @rule()
    def ask_for_the_task(self) -> None:
        self.check(self.server.request("GET", f"/tasks/{self.task.id}"), 200, self.task.to_json().encode())

    @rule()
    def ask_for_the_round(self) -> None:
        answer = self.server.request("GET", f"/tasks/{self.task.id}/round")
        facts = {"task": self.task.id, "open_round": self.open_round, "rounds": ROUNDS}
        self.check(answer, 200, json.dumps(facts, separators=(",", ":")).encode())

    @rule()
    def ask_how_it_is(self) -> None:
        self.check(self.server.request("GET", "/healthz"), 200, b"ok\n")
        self.check(self.server.request("GET", "/readyz"), 200, b"ready\n")

    @rule(place=st.sampled_from(["estimate", "batches", "users", "uploads/1"]))
    def ask_for_more(self, place: str) -> None:
        answer = self.server.request("GET", f"/tasks/{self.task.id}/{place}", headers=Shared.deployment.bearer)
        self.check_refused(answer, "not-found", SHOWN)

    @rule(place=st.sampled_from(["uploads", "release"]))
    def read_what_is_only_written(self, place: str) -> None:
        answer = self.server.request("GET", f"/tasks/{self.task.id}/{place}", headers=Shared.deployment.bearer)
        self.check_refused(answer, "wrong-method", SHOWN)

    @rule()
    def ask_for_release_without_the_secret(self) -> None:
        detail = (
            "give the operator's secret as 'Authorization: Bearer ...'; the one that both servers share is not it "
            "(serve shuffler --operator-secret-file; without it nobody can ask)"
        )
        here = f"/tasks/{self.task.id}"
        for method, path in (("POST", f"{here}/release"), ("GET", f"{here}/status"), ("GET", "/metrics")):
            for headers in ({"Authorization": "Bearer x"}, Shared.deployment.bearer):
                self.check_refused(self.server.request(method, path, headers=headers), "wrong-secret", detail)

    @rule()
    def ask_for_release(self) -> None:
        answer = self.server.request("POST", f"/tasks/{self.task.id}/release", headers=Shared.deployment.operator)
        if self.open_round is None:
            self.check_refused(answer, "round-closed", "no round of this task is open any more")
        elif self.waiting < SMALLEST:
            detail = f"the open round has fewer than {SMALLEST} users; wait for more"
            self.check_refused(answer, "batch-too-small", detail)
        else:
            facts = {"round": self.open_round, "users": self.waiting}
            self.check(answer, 202, json.dumps(facts, separators=(",", ":")).encode())
            self.full += 1
            self.settle()

    @rule(status=st.sampled_from([0, 201, 503]))
    def lose_the_next_batch(self, status: int) -> None:
        """The next batch is refused, or taken while its answer is lost: either way it comes again."""
        self.recorder.fault = status

    @rule()
    def crash(self) -> None:
        self.server.kill()
        self.fresh_counts()
        with contextlib.closing(sqlite3.connect(self.folder / "shuffler.db")) as store:
            ((done,),) = store.execute("SELECT count(*) FROM round WHERE state = 'released'").fetchall()
        assert self.full - 1 <= done <= self.full
        self.released_before = done
        self.server.restart()
        self.settle()

    @rule(data=st.data())
    def wait(self, data: st.DataObject) -> None:
        time.sleep(data.draw(st.sampled_from(Shared.waits)))

    @precondition(lambda self: not self.expired and self.waiting)
    @rule()
    def let_it_expire(self) -> None:
        """What is enough for a batch leaves, what is not is deleted."""
        release_now = self.waiting >= SMALLEST
        (self.folder / "over").touch()
        self.full += release_now
        self.expired = True
        wait_until(lambda: any("deleted" in event["event"] for event in self.server.events()))
        self.settle()

    # What must hold after every step.

    @invariant()
    def metrics_tell_counts_and_nothing_else(self) -> None:
        if not hasattr(self, "server"):
            return
        found = self.metrics()
        status = {name: found.pop(name) for name in list(found) if name.startswith("shufflesum_status_")}
        assert status.keys() == {f"shufflesum_status_{name}" for name in figures(ShufflerStatus)}
        if not self.expired:
            shown = tuple(status[f"shufflesum_status_{name}"] for name in ("open_round", "users", "release_at"))
            assert shown == (self.open_round or 0, self.waiting, RELEASE_AT)
        failures = found.pop("shufflesum_release_failures_total")
        assert failures <= len(self.recorder.batches)
        released = range(self.released_before + 1, self.full + 1)
        expected = {f'shufflesum_refused_total{{problem="{name}"}}': n for name, n in self.refusals.items()}
        expected["shufflesum_uploads_total"] = self.taken
        expected["shufflesum_batches_released_total"] = len(released)
        expected["shufflesum_users_released_total"] = sum(len(self.accepted[number]) for number in released)
        assert found == expected

    @invariant()
    def only_full_rounds_reach_the_analyzer(self) -> None:
        """Not a byte, not even a connection, before the first round is full; then whole batches of full rounds."""
        assert self.full or not self.recorder.connections
        for head in self.recorder.heads:
            _, number, users = named(head)
            assert number <= self.full
            assert users == len(self.accepted[number]) >= SMALLEST

    @invariant()
    def batches_are_whole_and_leave_once(self) -> None:
        ids: dict[int, str] = {}
        for batch in self.recorder.batches:
            assert ids.setdefault(batch.round_number, batch.batch_id) == batch.batch_id
            assert Counter(batch.reports) == reports_of(self.accepted[batch.round_number])
        assert len(set(ids.values())) == len(ids) <= ROUNDS
        assert sorted(ids) == list(range(1, self.full + 1))


def fake_upload_with(task: Task, number: int, upload_id: bytes) -> Upload:
    return Upload(task.id, number, upload_id, secrets.token_bytes(REPORTS * SEALED_BYTES))
