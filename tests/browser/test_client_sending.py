"""The browser client sends as the Python client does: once, the same bytes, until it is acknowledged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from tests.browser.claims import task_claimed
from tests.browser.node import Node, needs_node
from tests.service.client.scripted_shuffler import LOST, Shuffler, running
from tests.service.hostile_server import HUGE, HostileServer

from shufflesum.wire import Task

pytestmark = needs_node

VALUES = [0.0, 0.3, 1.0]
CELLS = [0, 14, 32]  # of three coordinates, on a scale to ten


@pytest.fixture
def shuffler() -> Iterator[Shuffler]:
    with running() as found:
        yield found


@pytest.fixture
def task(shuffler: Shuffler) -> Task:
    return task_claimed(shuffler)


def send(node: Node, task: Task, *all_: dict[str, Any], **options: Any) -> tuple[list[Any], list[float]]:
    answer = node.ask("contribute", text=task.to_json(), options=options, all=list(all_ or [{"held": VALUES}]))
    return answer["told"], answer["waited"]


def test_an_array_arrives_sealed_and_whole(node: Node, shuffler: Shuffler, task: Task) -> None:
    told, waited = send(node, task)
    assert (told, waited) == ([{"round": 1, "contribution": "accepted"}], [])
    assert shuffler.cells(task) == [CELLS]


def test_nothing_tells_who_sends(node: Node, shuffler: Shuffler, task: Task) -> None:
    send(node, task, {"held": VALUES, "user": "Ada"})
    (headers,) = shuffler.requests
    told = {name.lower(): value for name, value in headers.items()}
    assert told["content-type"] == "application/octet-stream"
    assert not {"cookie", "referer", "authorization"} & told.keys()
    assert b"Ada" not in shuffler.bodies[0]


def test_a_token_goes_along(node: Node, shuffler: Shuffler, task: Task) -> None:
    send(node, task, {"held": VALUES, "token": "ab" * 16})
    assert shuffler.requests[0]["Authorization"] == f"Token {'ab' * 16}"


def test_what_is_no_token_is_not_sent(node: Node, shuffler: Shuffler, task: Task) -> None:
    for token in ("", "a b", "ä", "a\nb"):
        ((refused,), _) = send(node, task, {"held": VALUES, "token": token})
        assert refused["problem"] == "malformed"
    assert shuffler.bodies == []


@pytest.mark.parametrize("step", [LOST, "store-unavailable", "overloaded", "round-not-open", 502, 504, 429])
def test_what_may_pass_is_tried_again_with_the_same_bytes(
    step: int | str, node: Node, shuffler: Shuffler, task: Task
) -> None:
    shuffler.script = [step, step]
    told, waited = send(node, task)
    assert told == [{"round": 1, "contribution": "accepted"}]
    assert len(shuffler.bodies) == 3
    assert len(set(shuffler.bodies)) == 1
    assert 0.1 <= waited[0] <= 0.2 <= waited[1] <= 0.4


@pytest.mark.parametrize(
    "step", ["round-closed", "expired", "token-spent", "wrong-task", "origin-refused", 400, 404, 200]
)
def test_what_will_never_pass_is_not_tried_again(step: int | str, node: Node, shuffler: Shuffler, task: Task) -> None:
    shuffler.script = [step, step]
    ((refused,), _) = send(node, task)
    name = "bad-answer" if step == 200 else step if isinstance(step, str) else f"http-{step}"
    assert (refused["problem"], refused["final"]) == (name, True)
    assert len(shuffler.bodies) == 1


@pytest.mark.parametrize("manner", ["compressed", "endless"])
def test_an_answer_that_is_too_long_acknowledges_nothing(manner: str, node: Node) -> None:
    with HostileServer(manner) as server:
        told, _ = send(node, task_claimed(Shuffler(server.url)))
    assert told[0]["problem"] == "bad-answer"
    assert server.sent < HUGE / 8


def test_the_server_says_how_long_to_wait(node: Node, shuffler: Shuffler, task: Task) -> None:
    shuffler.script, shuffler.headers = ["overloaded"], {"Retry-After": "7"}
    _, waited = send(node, task)
    assert len(waited) == 1
    assert 7 <= waited[0] <= 14


def test_a_client_that_gave_up_sends_the_same_bytes_later(
    node: Node, shuffler: Shuffler, task: Task, tmp_path: Path
) -> None:
    shuffler.script = [LOST] * 30
    ((refused,), waited) = send(node, task, folder=str(tmp_path))
    assert (refused["problem"], refused["final"]) == ("unreachable", False)
    assert 30 < sum(waited) <= 60
    assert 5 < len(shuffler.bodies) < 12  # pauses grow, to ten seconds
    shuffler.script = ["repeated"]  # it had arrived: only the answer was lost
    told, _ = send(node, task, {"ask": "state"}, {"held": [0.9] * 3}, {"ask": "state"}, folder=str(tmp_path))
    assert told == ["pending", {"round": 1, "contribution": "repeated"}, "duplicate-contribution"]
    assert len(set(shuffler.bodies)) == 1


def test_each_counts_once_in_a_round(node: Node, shuffler: Shuffler, task: Task, tmp_path: Path) -> None:
    mine, other = {"held": VALUES}, {"held": VALUES, "user": "other"}
    told, _ = send(node, task, mine, mine, other, {"ask": "resume"}, folder=str(tmp_path))
    assert [each and each.get("problem") for each in told] == [None, "duplicate-contribution", None, None]
    assert told[3] is None  # nothing is pending
    assert len(shuffler.bodies) == 2
    again, _ = send(node, task, mine, folder=str(tmp_path))  # in another process, as it were
    assert again[0]["problem"] == "duplicate-contribution"
    assert len(shuffler.bodies) == 2


def test_what_was_made_is_sent_again_without_the_values(
    node: Node, shuffler: Shuffler, task: Task, tmp_path: Path
) -> None:
    shuffler.script = ["internal"] * 30
    send(node, task, folder=str(tmp_path))
    shuffler.script = []
    told, _ = send(node, task, {"ask": "resume"}, folder=str(tmp_path))
    assert told == [{"round": 1, "contribution": "accepted"}]
    assert len(set(shuffler.bodies)) == 1
    assert shuffler.cells(task)[-1] == CELLS


def test_files_are_for_their_owner_and_keep_no_bytes_afterwards(
    node: Node, shuffler: Shuffler, task: Task, tmp_path: Path
) -> None:
    shuffler.script = [LOST] * 30
    send(node, task, folder=str(tmp_path / "kept"))
    (file,) = (tmp_path / "kept").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size == 8 + task.upload_bytes
    shuffler.script = []
    send(node, task, folder=str(tmp_path / "kept"))
    (file,) = (tmp_path / "kept").iterdir()
    assert file.stat().st_size == 8


def test_what_can_never_be_sent_is_not_kept(node: Node, shuffler: Shuffler, tmp_path: Path) -> None:
    task = task_claimed(shuffler, expires=datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2))
    shuffler.script = [LOST] * 30
    send(node, task, folder=str(tmp_path), timeout=1)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 8 + task.upload_bytes
    sleep(max(0.0, (task.expires - datetime.now(UTC)).total_seconds()) + 0.1)
    send(node, task_claimed(shuffler), {"ask": "state"}, folder=str(tmp_path))
    assert file.stat().st_size == 8


def test_nothing_is_sent_that_cannot_be_kept(node: Node, shuffler: Shuffler, task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ((refused,), _) = send(node, task, folder=str(tmp_path / "file"))
    assert refused["problem"] == "unreadable"
    assert shuffler.bodies == []


def test_the_open_round_is_asked_for(node: Node, shuffler: Shuffler) -> None:
    task = task_claimed(shuffler, rounds=3)
    for document, problem in (
        ({"open_round": 2}, None),
        ({"open_round": None}, "round-closed"),
        ({"open_round": "2"}, "wrong-round"),
        ({}, "wrong-round"),
        ({"open_round": 4}, "wrong-round"),
    ):
        shuffler.document = document
        ((told,), _) = send(node, task)
        assert told.get("problem") == problem
        assert problem or told["round"] == 2
    told, _ = send(node, task, {"held": VALUES, "round": 3}, {"held": VALUES, "round": 4})
    assert (told[0].get("round"), told[1].get("problem")) == (3, "wrong-round")


def test_nothing_is_sent_under_an_expired_task(node: Node, shuffler: Shuffler) -> None:
    task = task_claimed(shuffler, expires=datetime(2020, 1, 1, tzinfo=UTC))
    ((told,), _) = send(node, task)
    assert told["problem"] == "expired"
    assert shuffler.bodies == []


def test_a_task_is_loaded_from_its_address(node: Node, shuffler: Shuffler) -> None:
    task = task_claimed(shuffler)
    shuffler.document = json.loads(task.to_json())
    ask = {"all": [{"held": VALUES}]}
    for url in (f"{shuffler.url}/tasks/{task.id}", f"{shuffler.url}/task.json"):
        assert node.ask("contribute", url=url, **ask)["told"] == [{"round": 1, "contribution": "accepted"}]
    assert node.problem("contribute", url=f"{shuffler.url}/tasks/{'0' * 64}", **ask) == "task-mismatch"
    assert (
        node.problem("contribute", url=f"{shuffler.url}/task.json", options={"id": "0" * 64}, **ask) == "task-mismatch"
    )
    shuffler.document = "nothing"
    assert node.problem("contribute", url=f"{shuffler.url}/task.json", **ask) == "format-mismatch"


def test_plain_http_is_for_this_machine(node: Node) -> None:
    task = task_claimed(Shuffler("http://shuffler.example.org"))
    assert node.problem("parse", text=task.to_json()) == "untrusted"
    assert node.ask("parse", text=task_claimed(Shuffler("http://localhost:8080/a")).to_json())
