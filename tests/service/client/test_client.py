from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shufflesum import Span, Symmetric
from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.service.client import RefusedError, UnreachableError, fetch_estimate
from shufflesum.service.client.contributions import Contributions
from shufflesum.service.client.sending import Client, ContributedError
from shufflesum.service.client.web import web_client
from shufflesum.service.http.problems import PROBLEMS
from shufflesum.testing import UnprotectedTask, unprotected_plan
from shufflesum.wire import Opener, Task, TaskError, Upload, UploadError, generate_private_key

KEY = generate_private_key()
LOST = "the connection ends before an answer"


@dataclass
class Shuffler:
    """Answers uploads as a script says, then accepts everything; keeps what it was sent."""

    url: str
    script: list[int | str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[bytes] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    document: Any = None

    def reports(self, task: Task) -> list[list[tuple[int, int]]]:
        """What is in each upload, which only a test may know."""
        return [sorted(_open(task, body)) for body in self.bodies]


def _open(task: Task, body: bytes) -> list[tuple[int, int]]:
    upload = Upload.decode(body, task)
    reports, rejected = task.open_reports(upload.sealed, upload.round_number, Opener(KEY, processes=1))
    assert rejected == 0
    return list(zip(reports.coordinates.tolist(), reports.values.tolist(), strict=True))


@pytest.fixture
def shuffler() -> Iterator[Shuffler]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, json.dumps(known.document).encode())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                known.bodies.append(body)
                known.requests.append(dict(self.headers.items()))
                step = known.script.pop(0) if known.script else 201
            if step == LOST:
                self.close_connection = True
            elif isinstance(step, int):
                self._answer(step, b"")
            else:
                self._answer(PROBLEMS[step].status, PROBLEMS[step].encode("as scripted"))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in known.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        known = Shuffler(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield known
        server.shutdown()
        thread.join()


def task_for(shuffler: Shuffler, **changes: Any) -> Task:
    plan = unprotected_plan(users=1, shape=3, reports=3, levels=10)
    arguments: dict[str, Any] = {
        "name": "client test",
        "plan": plan,
        "analyzer_key": KEY.public_key().public_bytes_raw(),
        "shuffler": shuffler.url,
        "expires": datetime(2099, 1, 1, tzinfo=UTC),
    }
    return UnprotectedTask(**arguments | changes)


@pytest.fixture
def task(shuffler: Shuffler) -> Task:
    return task_for(shuffler)


@pytest.fixture
def connect(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Client]]:
    monkeypatch.setattr("shufflesum.service.client.sending._FIRST_PAUSE", 0.01)
    made: list[Client] = []

    def call(other: Task | None = None, **options: Any) -> Client:
        arguments: dict[str, Any] = {"contributions": tmp_path / "contributions", "timeout": 5}
        made.append(Client(other or task, **arguments | options))
        return made[-1]

    yield call
    for client in made:
        client.close()


def test_an_array_arrives_sealed_and_whole(connect: Callable[..., Client], shuffler: Shuffler, task: Task) -> None:
    receipt = connect().upload([0.0, 0.3, 1.0])
    assert (receipt.contribution, receipt.round_number) == ("accepted", 1)
    assert shuffler.reports(task) == [[(0, 0), (1, 3), (2, 10)]]


@pytest.mark.parametrize("step", [LOST, "store-unavailable", "overloaded", "round-not-open", 502, 504, 429])
def test_what_may_pass_is_tried_again_with_the_same_bytes(
    connect: Callable[..., Client], shuffler: Shuffler, step: int | str
) -> None:
    shuffler.script = [step, step]
    connect().upload([0.1, 0.2, 0.3])
    assert len(shuffler.bodies) == 3
    assert len(set(shuffler.bodies)) == 1


@pytest.mark.parametrize("step", ["round-closed", "expired", "token-spent", "wrong-task", "wrong-length", 400, 404])
def test_what_will_never_pass_is_not_tried_again(
    connect: Callable[..., Client], shuffler: Shuffler, step: int | str
) -> None:
    shuffler.script = [step, step]
    with pytest.raises(RefusedError) as refused:
        connect().upload([0.1, 0.2, 0.3])
    assert refused.value.problem == (step if isinstance(step, str) else f"http-{step}")
    assert refused.value.final
    assert len(shuffler.bodies) == 1


def test_the_server_says_how_long_to_wait(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    shuffler.script, shuffler.headers = ["overloaded"], {"Retry-After": "1"}
    start = time.monotonic()
    connect().upload([0.1, 0.2, 0.3])
    assert time.monotonic() - start >= 1


def test_patience_ends_and_a_later_attempt_sends_the_same_bytes(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    shuffler.script = [LOST] * 20
    with pytest.raises(UnreachableError, match="the same bytes will go"):
        connect(timeout=0.5).upload([0.1, 0.2, 0.3])
    shuffler.script = ["repeated"]  # it had arrived: only the answer was lost
    assert connect().upload([0.9, 0.9, 0.9]).contribution == "repeated"
    assert len(set(shuffler.bodies)) == 1


def test_a_shuffler_that_does_not_listen_is_unreachable(connect: Callable[..., Client]) -> None:
    nobody = task_for(Shuffler("http://127.0.0.1:1"))
    with pytest.raises(UnreachableError, match="did not answer"):
        connect(nobody, timeout=0.3).upload([0.1, 0.2, 0.3])


def test_nobody_contributes_twice_to_a_round(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    connect().upload([0.1, 0.2, 0.3], user="Ada")
    with pytest.raises(ContributedError, match="'Ada' has contributed to round 1"):
        connect().upload([0.1, 0.2, 0.3], user="Ada")
    connect().upload([0.1, 0.2, 0.3], user="Grace")
    assert len(shuffler.bodies) == 2


def test_another_round_or_task_is_another_contribution(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    plan = unprotected_plan(users=1, shape=3, reports=3, levels=10)
    object.__setattr__(plan, "rounds", 2)
    several = task_for(shuffler, plan=plan)
    client = connect(several)
    client.upload([0.1, 0.2, 0.3], round_number=1)
    shuffler.document = {"open_round": 2}
    assert client.upload([0.1, 0.2, 0.3]).round_number == 2
    assert shuffler.bodies[0] != shuffler.bodies[1]
    with pytest.raises(ContributedError):
        client.upload([0.1, 0.2, 0.3], round_number=1)
    with pytest.raises(UploadError, match="rounds 1 to 2"):
        client.upload([0.1, 0.2, 0.3], round_number=3)
    shuffler.document = {"open_round": None}
    with pytest.raises(RefusedError, match="all 2 rounds"):
        client.upload([0.1, 0.2, 0.3])
    shuffler.document = {"open_round": "two"}
    with pytest.raises(RefusedError, match="did not say which round"):
        client.upload([0.1, 0.2, 0.3])
    assert connect(task_for(shuffler, name="another")).upload([0.1, 0.2, 0.3]).contribution == "accepted"


def test_an_upload_is_among_the_contributions_before_it_is_sent(
    connect: Callable[..., Client], shuffler: Shuffler, tmp_path: Path
) -> None:
    shuffler.script = ["round-closed"]
    with pytest.raises(RefusedError):
        connect().upload([0.1, 0.2, 0.3])
    with sqlite3.connect(tmp_path / "contributions") as connection:
        ((pending,),) = connection.execute("SELECT upload FROM contributions").fetchall()
    connection.close()
    assert pending == shuffler.bodies[0]


def test_an_acknowledged_upload_leaves_no_bytes_behind(
    connect: Callable[..., Client], shuffler: Shuffler, tmp_path: Path
) -> None:
    client = connect()
    client.upload([0.1, 0.2, 0.3])
    client.close()
    sealed = shuffler.bodies[0][54:]
    assert all(sealed[:54] not in file.read_bytes() for file in tmp_path.iterdir())
    assert (tmp_path / "contributions").stat().st_mode & 0o077 == 0


def test_nothing_is_sent_without_contributions(task: Task, tmp_path: Path, shuffler: Shuffler) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FileError, match="nothing is sent without them"):
        Client(task, contributions=tmp_path / "file" / "contributions")
    (tmp_path / "broken").write_text("this is no database " * 100)
    with pytest.raises(FileError, match="nothing is sent without them"):
        Client(task, contributions=tmp_path / "broken")
    assert shuffler.bodies == []


def test_contributions_of_another_version_are_refused(task: Task, tmp_path: Path) -> None:
    """The first version had no format, and called the file a ledger."""
    path = tmp_path / "ledger.sqlite"
    for statements in (
        ["CREATE TABLE contributions (task TEXT)"],
        ["CREATE TABLE format (name TEXT)", "INSERT INTO format VALUES ('shufflesum-contributions-2')"],
    ):
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)
        before = path.read_bytes()
        with pytest.raises(FileError, match=r"no contributions in the format .*--contributions"):
            Client(task, contributions=path)
        assert path.read_bytes() == before
        path.unlink()


def test_two_clients_at_once_send_one_contribution(task: Task, tmp_path: Path) -> None:
    with Contributions(tmp_path / "contributions") as one, Contributions(tmp_path / "contributions") as two:
        assert one.claim(task, 1, {"Ada": b"first"}) == {"Ada": b"first"}
        assert two.claim(task, 1, {"Ada": b"second", "Grace": b"third"}) == {"Ada": b"first", "Grace": b"third"}
        one.acknowledge(task, 1, ["Ada"])
        assert two.known(task, ["Ada", "Grace"], 1) == {"Ada": None, "Grace": b"third"}
        assert two.claim(task, 1, {"Ada": b"fourth"}) == {"Ada": None}


@pytest.mark.parametrize("label", ["", "  ", "x" * 1001])
def test_a_label_says_something(task: Task, tmp_path: Path, label: str) -> None:
    with Contributions(tmp_path / "contributions") as made, pytest.raises(ParameterError, match="user label"):
        made.claim(task, 1, {label: b""})


def test_taking_part_does_not_depend_on_the_data(
    connect: Callable[..., Client], shuffler: Shuffler, task: Task
) -> None:
    connect().upload([-7.0, np.inf, np.nan])
    ((low, high, middle),) = shuffler.reports(task)
    assert (low, high, middle) == ((0, 0), (1, 10), (2, 5))
    assert len(shuffler.bodies[0]) == task.upload_bytes


@pytest.mark.parametrize(
    "vector",
    [
        np.ma.masked_array([0.1, 0.2, 0.3], mask=[False, True, False]),
        ["a", "b", "c"],
        [0.1, [0.2], 0.3],
        [0.1, 0.2j, 0.3],
    ],
    ids=["masked", "words", "ragged", "complex"],
)
def test_what_is_no_array_of_numbers_is_refused_and_nothing_sent(
    connect: Callable[..., Client], shuffler: Shuffler, vector: Any
) -> None:
    with pytest.raises(DataError, match="vector: "):
        connect().upload(vector)
    assert shuffler.bodies == []


def test_masked_matrices_keep_what_they_withhold(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    plan = unprotected_plan(users=1, shape=Symmetric(2), reports=3, levels=10)
    client = connect(task_for(shuffler, plan=plan))
    with pytest.raises(DataError, match="would lose its mask"):
        client.upload_many(np.ma.masked_array([np.eye(2)], mask=[[[True, False], [False, False]]]), ["anna"])
    assert shuffler.bodies == []


@pytest.mark.parametrize("row", [[np.nan, np.inf, -1e300], [1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [5, 5, 0]])
def test_an_array_outside_the_span_is_moved_onto_it(
    connect: Callable[..., Client], shuffler: Shuffler, row: list[float]
) -> None:
    plan = unprotected_plan(users=1, shape=Span(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])), reports=2, levels=10)
    spanned = task_for(shuffler, plan=plan)
    connect(spanned).upload(row)
    assert [coordinate for coordinate, _ in shuffler.reports(spanned)[0]] == [0, 1]


def test_a_matrix_that_is_not_symmetric_is_averaged_with_its_mirror(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    plan = unprotected_plan(users=1, shape=Symmetric(2), reports=3, levels=10)
    mirrored = task_for(shuffler, plan=plan)
    connect(mirrored).upload([[0.0, 0.2], [0.4, np.nan]])
    assert shuffler.reports(mirrored) == [[(0, 0), (1, 3), (2, 5)]]


def test_many_rows_are_one_user_each_and_a_second_run_sends_what_is_missing(
    connect: Callable[..., Client], shuffler: Shuffler, task: Task
) -> None:
    rows = np.arange(30)[:, None] / np.array([[30, 40, 50]])
    users = [f"user {i}" for i in range(30)]
    first = connect().upload_many(rows[:20], users[:20])
    assert {receipt.contribution for receipt in first} == {"accepted"}
    second = connect().upload_many(rows, users)
    assert [receipt.contribution for receipt in second] == ["earlier"] * 20 + ["accepted"] * 10
    assert len(shuffler.bodies) == len(set(shuffler.bodies)) == 30
    with pytest.raises(ParameterError, match="a label of its own"):
        connect().upload_many(rows[:2], ["same", "same"])


def test_a_refusal_among_many_loses_no_acknowledgement(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    shuffler.script = [201, "wrong-length", 201]
    users = [str(i) for i in range(40)]
    with pytest.raises(RefusedError, match="wrong-length"):
        connect().upload_many(np.zeros((40, 3)), users)
    acknowledged = len(shuffler.bodies) - 1
    receipts = connect().upload_many(np.zeros((40, 3)), users)
    assert sum(receipt.contribution == "earlier" for receipt in receipts) == acknowledged
    assert len(set(shuffler.bodies)) == 40
    assert len(shuffler.bodies) == 41


def test_many_uploads_to_nobody_share_one_patience(connect: Callable[..., Client]) -> None:
    client = connect(task_for(Shuffler("http://127.0.0.1:1")), timeout=0.5)
    start = time.monotonic()
    with pytest.raises(UnreachableError):
        client.upload_many(np.zeros((200, 3)), [str(i) for i in range(200)])
    assert time.monotonic() - start < 5


def test_tokens_go_with_their_uploads(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    connect().upload([0.1, 0.2, 0.3], token="0123")
    assert shuffler.requests[0]["Authorization"] == "Token 0123"
    with pytest.raises(ParameterError, match="2 tokens for 1 rows"):
        connect().upload_many(np.zeros((1, 3)), ["Grace"], tokens=["1", "2"])


@pytest.mark.parametrize("token", ["a\nb", "a b", "\xe9", "\x00"])
def test_what_is_no_token_is_refused_before_anything_is_sent(
    connect: Callable[..., Client], shuffler: Shuffler, token: str
) -> None:
    with pytest.raises(ParameterError, match=r"the token .* is none"):
        connect().upload([0.1, 0.2, 0.3], token=token)
    assert shuffler.bodies == []


def test_a_request_tells_nothing_about_its_sender(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    connect().upload([0.1, 0.2, 0.3])
    (headers,) = shuffler.requests
    assert headers.pop("Host") == shuffler.url.removeprefix("http://")
    assert headers == {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive",
        "Content-Length": "216",
        "Content-Type": "application/octet-stream",
        "User-Agent": "shufflesum",
    }


def test_an_expired_task_is_refused(shuffler: Shuffler, connect: Callable[..., Client]) -> None:
    with pytest.raises(TaskError, match="expired"):
        connect(task_for(shuffler, expires=datetime(2020, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize("url", ["http://shuffler.example.org", "http://10.0.0.1:80", "http://localhost.example.org"])
def test_plain_http_to_another_machine_is_refused_unless_told(url: str) -> None:
    with pytest.raises(ParameterError, match="--allow-plain-http"):
        web_client(url)
    web_client(url, allow_plain_http=True).close()


@pytest.mark.parametrize("url", ["http://127.0.0.1:5", "http://[::1]:5", "http://localhost", "https://example.org"])
def test_this_machine_and_https_need_no_permission(url: str) -> None:
    web_client(url).close()


def answer_of(task: Task, **changes: Any) -> dict[str, Any]:
    """An answer as an analyzer's; None takes something out of its only round."""
    found = {
        "round": 1,
        "users": 1,
        "rejected_reports": 0,
        "mean": [0.5, None, 0.5],
        "sum": [0.5, None, 0.5],
        "standard_error": [0.1, None, 0.1],
        "confidence_interval": [[0.3, None, 0.3], [0.7, None, 0.7]],
        "confidence_level": 0.95,
        "guarantee": {"holds": True},
    } | changes
    return {"task": task.id, "rounds": [{key: value for key, value in found.items() if value is not None}]}


def test_an_estimate_is_handed_on_as_it_came(shuffler: Shuffler, task: Task) -> None:
    shuffler.document = answer_of(task)
    assert fetch_estimate(task, shuffler.url) == answer_of(task)


@pytest.mark.parametrize("document", [None, [], "x", {"task": "another"}, {"rounds": []}, {"task": None, "rounds": []}])
def test_an_answer_that_is_no_estimate_is_refused(shuffler: Shuffler, task: Task, document: object) -> None:
    named = isinstance(document, dict) and "task" in document and document["task"] is None
    shuffler.document = {"task": task.id, "rounds": []} if named else document
    with pytest.raises(RefusedError, match="did not answer as an analyzer"):
        fetch_estimate(task, shuffler.url)


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": [0.5]},
        {"mean": ["a", "b", "c"]},
        {"sum": None},
        {"standard_error": [math.nan, 0.1, 0.1]},
        {"confidence_interval": [[0.3, 0.3, 0.3]]},
        {"confidence_interval": 7},
        {"users": "many"},
        {"guarantee": {}},
        {"guarantee": {"holds": "yes"}},
    ],
)
def test_an_estimate_that_is_not_whole_is_refused(shuffler: Shuffler, task: Task, changes: dict[str, Any]) -> None:
    shuffler.document = answer_of(task, **changes)
    with pytest.raises(RefusedError, match="did not answer as an analyzer"):
        fetch_estimate(task, shuffler.url)


def test_what_answers_in_the_shufflers_place_acknowledges_nothing(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    client = connect()
    shuffler.script = [200]
    with pytest.raises(RefusedError, match="or in between") as refused:
        client.upload([0.1, 0.2, 0.3])
    assert refused.value.problem == "bad-answer"
    assert client.upload([0.9, 0.9, 0.9]).contribution == "accepted"
    assert shuffler.bodies[0] == shuffler.bodies[1]


def test_an_answer_that_cannot_be_read_is_none(connect: Callable[..., Client], shuffler: Shuffler, task: Task) -> None:
    shuffler.headers = {"Content-Encoding": "gzip"}
    shuffler.document = {"open_round": 1}
    with pytest.raises(UnreachableError):
        connect(task_for(shuffler, plan=replace(task.plan, rounds=2)), timeout=0.1).open_round()
    with pytest.raises(UnreachableError):
        fetch_estimate(task, shuffler.url)
