from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal
from tests.service.client.scripted_shuffler import LOST, Shuffler, task_for

from shufflesum.errors import MissingExtraError, ParameterError
from shufflesum.service.client import (
    Client,
    RefusedError,
    UnreachableError,
)
from shufflesum.service.http.messages import WebClient
from shufflesum.wire import Task, TaskError


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


def test_the_server_says_how_long_to_wait(connect: Callable[..., Client], shuffler: Shuffler, clock: FakeClock) -> None:
    connect().upload([0.1, 0.2, 0.3], user="Ada")
    assert clock.monotonic() == 0
    shuffler.script, shuffler.headers = ["overloaded"], {"Retry-After": "7"}
    connect().upload([0.1, 0.2, 0.3], user="Grace")
    assert 7 <= clock.monotonic() <= 14


def test_a_client_that_gave_up_sends_the_same_bytes_later(
    connect: Callable[..., Client], shuffler: Shuffler, clock: FakeClock
) -> None:
    shuffler.script = [LOST] * 30
    with refusal("unreachable", error=UnreachableError):
        connect(timeout=60).upload([0.1, 0.2, 0.3])
    assert 30 < clock.monotonic() <= 60
    assert 5 < len(shuffler.bodies) < 12  # pauses grow, to ten seconds
    shuffler.script = ["repeated"]  # it had arrived: only the answer was lost
    assert connect().upload([0.9, 0.9, 0.9]).contribution == "repeated"
    assert len(set(shuffler.bodies)) == 1


def test_a_shuffler_that_does_not_listen_is_unreachable(connect: Callable[..., Client]) -> None:
    nobody = task_for(Shuffler("http://127.0.0.1:1"))
    with refusal("unreachable", error=UnreachableError):
        connect(nobody, timeout=0.3).upload([0.1, 0.2, 0.3])


def test_what_answers_in_the_shufflers_place_acknowledges_nothing(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    client = connect()
    shuffler.script = [200]
    with refusal("bad-answer", error=RefusedError) as refused:
        client.upload([0.1, 0.2, 0.3])
    assert refused.value.problem == "bad-answer"
    assert client.upload([0.9, 0.9, 0.9]).contribution == "accepted"
    assert shuffler.bodies[0] == shuffler.bodies[1]


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
    with refusal("conflicting-arguments", error=ParameterError):
        connect().upload_many(rows[:2], ["same", "same"])


def test_a_refusal_among_many_loses_no_acknowledgement(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    shuffler.script = [201, "wrong-length", 201]
    users = [str(i) for i in range(40)]
    with refusal("wrong-length", error=RefusedError):
        connect().upload_many(np.zeros((40, 3)), users)
    acknowledged = len(shuffler.bodies) - 1
    receipts = connect().upload_many(np.zeros((40, 3)), users)
    assert sum(receipt.contribution == "earlier" for receipt in receipts) == acknowledged
    assert len(set(shuffler.bodies)) == 40
    assert len(shuffler.bodies) == 41


def test_many_uploads_to_nobody_share_one_timeout(connect: Callable[..., Client], clock: FakeClock) -> None:
    client = connect(task_for(Shuffler("http://127.0.0.1:1")), timeout=60)
    with pytest.raises(UnreachableError):
        client.upload_many(np.zeros((200, 3)), [str(i) for i in range(200)])
    assert clock.monotonic() < 10 * 60  # eight senders wait by this clock; one after another would take 25 times 60


def test_tokens_go_with_their_uploads(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    connect().upload([0.1, 0.2, 0.3], token="0123")
    assert shuffler.requests[0]["Authorization"] == "Token 0123"
    with refusal("too-few-tokens", "2 tokens", "for 1", error=ParameterError):
        connect().upload_many(np.zeros((1, 3)), ["Grace"], tokens=["1", "2"])


@pytest.mark.parametrize("token", ["a\nb", "a b", "\xe9", "\x00"])
def test_what_is_no_token_is_refused_before_anything_is_sent(
    connect: Callable[..., Client], shuffler: Shuffler, token: str
) -> None:
    with refusal("malformed", error=ParameterError):
        connect().upload([0.1, 0.2, 0.3], token=token)
    assert shuffler.bodies == []


def test_a_request_tells_nothing_about_its_sender(
    connect: Callable[..., Client], shuffler: Shuffler, task: Task
) -> None:
    connect().upload([0.1, 0.2, 0.3])
    (headers,) = shuffler.requests
    assert headers.pop("Host") == shuffler.url.removeprefix("http://")
    assert headers == {
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "keep-alive",
        "Content-Length": str(task.upload_bytes),
        "Content-Type": "application/octet-stream",
        "User-Agent": "shufflesum",
    }


def test_an_expired_task_is_refused(connect: Callable[..., Client], task: Task) -> None:
    connect(clock=FakeClock(task.expires - timedelta(seconds=1)))
    with refusal("expired", error=TaskError):
        connect(clock=FakeClock(task.expires))


def test_plain_http_to_another_machine_is_refused_unless_allowed() -> None:
    with refusal("untrusted", "allow_plain_http=True", error=ParameterError):
        WebClient("http://shuffler.example.org")
    WebClient("http://shuffler.example.org", allow_plain_http=True).close()


def test_a_missing_library_is_said_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with refusal("missing-extra", "install 'shufflesum[client]'", error=MissingExtraError):
        WebClient("https://shuffler.example.org")
