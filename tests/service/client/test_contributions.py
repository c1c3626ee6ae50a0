from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.clocks import FakeClock
from tests.refusals import refusal
from tests.round_dependent import TURNING, turn_boxes
from tests.service.client.scripted_shuffler import Shuffler, task_for

from shufflesum.errors import DataError, FileError, ParameterError
from shufflesum.sealing import SEALED_BYTES
from shufflesum.service.client import (
    Client,
    ContributedError,
    Contributions,
    RefusedError,
)
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task, Upload, UploadError


def test_nobody_contributes_twice_to_a_round(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    connect().upload([0.1, 0.2, 0.3], user="Ada")
    with refusal("duplicate-contribution", "'Ada'", "round 1", error=ContributedError):
        connect().upload([0.1, 0.2, 0.3], user="Ada")
    connect().upload([0.1, 0.2, 0.3], user="Grace")
    assert len(shuffler.bodies) == 2


def test_another_round_or_task_is_another_contribution(connect: Callable[..., Client], shuffler: Shuffler) -> None:
    plan = unprotected_plan(users=1, shape=3, coordinates=3, levels=10, rounds=2)
    several = task_for(shuffler, plan=plan)
    client = connect(several)
    client.upload([0.1, 0.2, 0.3], round_number=1)
    shuffler.document = {"task": several.id, "open_round": 2, "rounds": 2}
    assert client.upload([0.1, 0.2, 0.3]).round_number == 2
    assert shuffler.bodies[0] != shuffler.bodies[1]
    with pytest.raises(ContributedError):
        client.upload([0.1, 0.2, 0.3], round_number=1)
    with refusal("wrong-round", "rounds 1", "to 2", error=UploadError):
        client.upload([0.1, 0.2, 0.3], round_number=3)
    shuffler.document = {"task": several.id, "open_round": None, "rounds": 2}
    with refusal("round-closed", "all 2", error=RefusedError):
        client.upload([0.1, 0.2, 0.3])
    shuffler.document = {"task": several.id, "open_round": "two", "rounds": 2}
    with refusal("bad-answer", error=RefusedError):
        client.upload([0.1, 0.2, 0.3])
    assert connect(task_for(shuffler, name="another")).upload([0.1, 0.2, 0.3]).contribution == "accepted"


def test_what_is_sent_is_randomized_for_the_round_it_is_sent_to(
    connect: Callable[..., Client], shuffler: Shuffler, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_boxes(monkeypatch)
    plan = unprotected_plan(users=1, shape=3, coordinates=3, levels=10, rounds=3)
    client = connect(task := task_for(shuffler, plan=plan))
    for number in (2, 1, 2, 3):
        client.upload([0.2, 1.0, 2.0], user=str(len(shuffler.bodies)), round_number=number)
    first, second = [(0, 2), (1, 10), (2, 10)], [(0, 1), (1, 5), (2, 10)]
    found = shuffler.reports(task)
    assert found[:3] == [second, first, second]
    third = [value for _, value in found[3]]
    assert all(low <= value <= low + 1 for value, low in zip(third, (0, 3, 6), strict=True))


def test_vectors_with_a_bounded_norm_are_scaled_down_and_sent(
    connect: Callable[..., Client], shuffler: Shuffler
) -> None:
    client = connect(task := task_for(shuffler, plan=TURNING))
    client.upload(np.full(48, 7.0), round_number=2)
    with refusal("missing-value", error=DataError):
        client.upload(np.full(48, np.nan), user="other", round_number=2)
    (body,) = shuffler.bodies
    assert (Upload.decode(body, task).round_number, len(body)) == (2, task.upload_bytes)


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
    sealed = shuffler.bodies[0][-SEALED_BYTES:]
    assert all(sealed not in file.read_bytes() for file in tmp_path.iterdir())
    assert (tmp_path / "contributions").stat().st_mode & 0o077 == 0


def test_what_was_never_acknowledged_is_deleted_once_its_task_has_expired(task: Task, tmp_path: Path) -> None:
    before, after = (FakeClock(task.expires + timedelta(seconds=late)) for late in (-1, 1))
    with Contributions(tmp_path / "contributions", before) as made:
        made.claim(task, 1, {"Ada": b"sealed" * 9})
    with Contributions(tmp_path / "contributions", before) as again:
        assert again.known(task, ["Ada"], 1) == {"Ada": b"sealed" * 9}
    with Contributions(tmp_path / "contributions", after) as late:
        assert late.known(task, ["Ada"], 1) == {"Ada": None}
    assert all(b"sealed" not in file.read_bytes() for file in tmp_path.iterdir())


def test_nothing_is_sent_without_contributions(task: Task, tmp_path: Path, shuffler: Shuffler) -> None:
    (tmp_path / "file").write_text("no folder")
    with refusal("unreadable", error=FileError):
        Client(task, contributions=tmp_path / "file" / "contributions")
    (tmp_path / "broken").write_text("this is no database " * 100)
    with refusal("unreadable", error=FileError):
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
        with refusal("format-mismatch", "contributions=", error=FileError):
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
    with Contributions(tmp_path / "contributions") as made, refusal("out-of-range", error=ParameterError):
        made.claim(task, 1, {label: b""})
