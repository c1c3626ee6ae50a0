from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from tests.plan_builders import coordinates_of, reports_of
from tests.refusals import refusal
from tests.stat_tests import FALSE_ALARM, chi_square

from shufflesum import Randomizer, Reports
from shufflesum.errors import ParameterError, ReportsError
from shufflesum.keys import RoundKeys, load_public_keys
from shufflesum.sealing import Opener, decode_reports, open_many, seal_info
from shufflesum.testing import unprotected_plan
from shufflesum.wire import Task, Upload, UploadError

TASK = Task.load(Path(__file__).parent.parent / "vectors" / "golden_task.json")
KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))


class NoiselessTask(Task):
    """A task whose reports can be predicted; no file and no setting leads to one."""

    def _verify_plan(self) -> None:
        pass


NOISELESS = NoiselessTask(
    name="noiseless",
    plan=unprotected_plan(users=1, shape=3, coordinates=3, levels=10),
    analyzer_key=KEY.public_key().public_bytes_raw(),
    shuffler="http://127.0.0.1:1",
    expires=datetime(2099, 1, 1, tzinfo=UTC),
)


def randomized(task: Task, *row: float, round_number: int = 1) -> Reports:
    return Randomizer(task.plan, round_number=round_number).randomize(np.array([row]))


def test_an_upload_carries_one_users_reports_to_the_analyzer() -> None:
    data = Upload.seal(NOISELESS, randomized(NOISELESS, 0.0, 0.3, 1.0), 1).encode()
    upload = Upload.decode(data, NOISELESS)
    reports, rejected = NOISELESS.open_reports(upload.sealed, upload.round_number, Opener(KEY, processes=1))
    assert rejected == 0
    assert sorted(reports.cells.tolist()) == reports_of(NOISELESS.plan, [(0, 0), (1, 3), (2, 10)]).cells.tolist()


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4), st.integers(1, 2))
def test_every_upload_of_a_task_has_the_same_size(row: list[float], round_number: int) -> None:
    data = Upload.seal(TASK, randomized(TASK, *row, round_number=round_number), round_number).encode()
    assert len(data) == TASK.upload_bytes == 158
    assert Upload.decode(data, TASK).round_number == round_number


@given(st.integers(1, 2), st.binary(min_size=16, max_size=16), st.binary(min_size=104, max_size=104))
def test_decoding_undoes_encoding(round_number: int, upload_id: bytes, sealed: bytes) -> None:
    upload = Upload(TASK.id, round_number, upload_id, sealed)
    assert Upload.decode(upload.encode(), TASK) == upload


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(UploadError) as refused:
        Upload.decode(data, TASK)
    assert refused.value.problem in ("wrong-length", "wrong-version", "wrong-task")


@given(st.integers(0, 400).filter(lambda size: size != 158))
def test_any_other_length_is_refused(size: int) -> None:
    good = Upload(TASK.id, 1, bytes(16), bytes(104)).encode()
    with refusal("wrong-length", "has 158", error=UploadError) as refused:
        Upload.decode((good + bytes(400))[:size], TASK)
    assert refused.value.problem == "wrong-length"


def test_no_two_uploads_share_an_id_or_bytes() -> None:
    reports = randomized(NOISELESS, 0.5, 0.5, 0.5)
    uploads = [Upload.seal(NOISELESS, reports, 1) for _ in range(20)]
    assert len({upload.upload_id for upload in uploads}) == 20
    assert len({upload.sealed for upload in uploads}) == 20
    assert all(len(upload.upload_id) == 16 for upload in uploads)


def order_law(monkeypatch: pytest.MonkeyPatch) -> float:
    """p-value of: three reports leave in each of the six orders equally often. Seals are left out, for speed."""
    monkeypatch.setattr("shufflesum.wire.seal_many", lambda encoded, *_: encoded)
    reports = randomized(NOISELESS, 0.0, 0.0, 0.0)
    place = {order: i for i, order in enumerate(permutations(range(3)))}
    observed = np.zeros(6)
    for _ in range(6000):
        sealed = np.frombuffer(Upload.seal(NOISELESS, reports, 1).sealed, dtype=np.uint8).reshape(3, -1)
        observed[place[tuple(coordinates_of(NOISELESS.plan, decode_reports(sealed, "")).tolist())]] += 1
    return chi_square(observed, np.full(6, 1 / 6))


def test_reports_leave_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chi-square over six orders, false alarm 1e-6."""
    assert order_law(monkeypatch) > FALSE_ALARM


def test_reports_that_are_only_rotated_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)

    def rotated(reports: Reports) -> Reports:
        return Reports(reports.plan_id, np.roll(reports.cells, int(generator.integers(3))))

    monkeypatch.setattr("shufflesum.wire.shuffle", rotated)
    assert order_law(monkeypatch) < FALSE_ALARM


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_anything_but_the_reports_of_one_user_is_refused(count: int) -> None:
    reports = Reports(TASK.plan.id, np.zeros(count, np.uint32))
    with refusal("wrong-length", str(count), "the 2", error=ReportsError):
        Upload.seal(TASK, reports, 1)


def test_reports_of_another_plan_are_refused() -> None:
    with refusal("plan-mismatch", error=ReportsError):
        Upload.seal(TASK, randomized(NOISELESS, 0.0, 0.0, 0.0), 1)


@pytest.mark.parametrize("round_number", [1, 2])
def test_reports_of_another_round_are_not_sealed_and_those_opened_are_of_theirs(round_number: int) -> None:
    plan = replace(NOISELESS.plan, guarantee=replace(NOISELESS.plan.guarantee, rounds=2))
    task = replace(NOISELESS, plan=plan)
    reports = randomized(task, 0.0, 0.0, 0.0, round_number=round_number)
    with refusal("round-mismatch", f"round {round_number}", f"round {3 - round_number}", error=ReportsError):
        Upload.seal(task, reports, 3 - round_number)
    upload = Upload.seal(task, reports, round_number)
    opened, rejected = task.open_reports(upload.sealed, round_number, Opener(KEY, processes=1))
    assert (opened.plan_id, opened.round_number, len(opened), rejected) == (plan.id, round_number, 3, 0)


@pytest.mark.parametrize("round_number", [-1, 0, 3])
def test_rounds_the_plan_does_not_cover_cannot_be_sealed_for(round_number: int) -> None:
    with pytest.raises(UploadError) as refused:
        Upload.seal(TASK, randomized(TASK, 0.0, 0.0, 0.0, 0.0), round_number)
    assert refused.value.problem == "wrong-round"


def test_a_noiseless_task_cannot_be_read_back_as_a_task() -> None:
    assert NoiselessTask.from_json(NOISELESS.to_json()).id == NOISELESS.id
    with refusal("no-guarantee"):
        Task.from_json(NOISELESS.to_json())


def test_reports_are_sealed_to_the_key_of_their_round(tmp_path: Path) -> None:
    keys = RoundKeys.load(RoundKeys.write(tmp_path / "a", 2)[0])
    plan = replace(NOISELESS.plan, guarantee=replace(NOISELESS.plan.guarantee, rounds=2))
    task = replace(NOISELESS, plan=plan, analyzer_key=load_public_keys(tmp_path / "a.pub"))
    assert NoiselessTask.from_json(task.to_json()).id == task.id
    uploads = [Upload.seal(task, randomized(task, 0.0, 0.3, 1.0, round_number=n), n) for n in (1, 2)]
    opener = Opener(keys, processes=1)
    for upload in uploads:
        assert len(task.open_reports(upload.sealed, upload.round_number, opener)[0]) == 3
    for upload, other in zip(uploads, (2, 1), strict=True):
        assert open_many(upload.sealed, keys.private_key(other), seal_info(task.id, upload.round_number)).rejected == 3
    keys.destroy(1)
    with refusal("released-before", error=ReportsError):
        task.open_reports(uploads[0].sealed, 1, opener)
    assert len(task.open_reports(uploads[1].sealed, 2, opener)[0]) == 3
    with refusal("malformed-key", "3 public keys", "2 rounds", error=ParameterError):
        replace(task, analyzer_key=task.analyzer_key + KEY.public_key().public_bytes_raw())
    with refusal("key-mismatch", "--key", error=ParameterError):
        task.open_reports(uploads[1].sealed, 2, Opener(KEY, processes=1))
