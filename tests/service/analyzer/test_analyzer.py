from __future__ import annotations

import resource
import secrets
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_builders import with_mechanism
from tests.refusals import refusal
from tests.round_dependent import turn_boxes
from tests.service.analyzer.analyzer_in_thread import (
    KEY,
    SECRET,
    TASK,
    USERS,
    Remote,
    honest_cells,
    plan_of,
    running,
    sealed,
    task_of,
)
from tests.service.postgres import Postgres

from shufflesum import NoisySlots, OpenVocabulary, Plan
from shufflesum.errors import ParameterError, PlanError
from shufflesum.estimate import table_from_json
from shufflesum.keys import generate_private_key
from shufflesum.release import release
from shufflesum.sealing import SEALED_BYTES, Opener
from shufflesum.service.analyzer.server import AnalyzerServer
from shufflesum.service.stores.tables import open_tables
from shufflesum.testing import no_guarantee
from shufflesum.wire import Task


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path}/analyzer.db"


@pytest.fixture
def remote(store: str) -> Iterator[Remote]:
    with running(TASK, store) as remote:
        yield remote


def test_a_batch_becomes_its_table_of_counts(remote: Remote, store: str) -> None:
    cells = honest_cells(USERS)
    assert remote.post(sealed(TASK, cells))[0] == 201
    (result,) = open_tables(store, TASK).counted()
    expected = np.zeros((4, 11), dtype=np.int64)
    for coordinate, value in cells:
        expected[coordinate, value] += 1
    assert np.array_equal(result.table, expected.reshape(-1))
    (found,) = remote.estimate()["rounds"]
    values = np.arange(11) / 10
    assert found["mean"] == pytest.approx(expected @ values / expected.sum(axis=1))
    assert (found["users"], found["rejected_reports"], found["round"]) == (USERS, 0, 1)
    assert found["guarantee"] == {
        "epsilon": None,
        "delta": 1.0,
        "unit": "one user, in all rounds of the task",
        "holds": True,
    }
    lower, upper = found["confidence_interval"]
    assert np.all(np.less(lower, found["mean"]))
    assert np.all(np.greater(upper, found["mean"]))
    assert found["sum"] == pytest.approx(USERS * np.array(found["mean"]))


def test_a_batch_sent_again_counts_once(remote: Remote) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    assert remote.post(body, batch=batch) == (201, {"batch": batch, "answer": "counted"})
    first = remote.estimate()
    assert remote.post(body, batch=batch) == (200, {"batch": batch, "answer": "repeated"})
    assert remote.estimate() == first
    assert remote.metrics()["shufflesum_batches_total"] == 1


def test_what_is_counted_survives_the_server(store: str) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    with running(TASK, store) as remote:
        remote.post(body, batch=batch)
        before = remote.estimate()
    with running(TASK, store) as remote:
        assert remote.estimate() == before
        assert remote.post(body, batch=batch)[0] == 200


def test_each_round_has_one_batch(remote: Remote) -> None:
    batch = secrets.token_hex(16)
    assert remote.post(sealed(TASK, honest_cells(USERS)), batch=batch)[0] == 201
    second = sealed(TASK, honest_cells(USERS), round_number=2)
    assert remote.problem(sealed(TASK, honest_cells(USERS))) == "wrong-batch"
    assert remote.problem(second, batch=batch, round_number=2) == "wrong-batch"
    assert remote.post(second, round_number=2)[0] == 201
    assert [found["round"] for found in remote.estimate()["rounds"]] == [1, 2]
    assert remote.problem(second, round_number=3) == "wrong-round"
    assert remote.problem(second, round_number=0) == "wrong-round"


def test_one_round_can_be_asked_for(remote: Remote) -> None:
    address = f"/tasks/{TASK.id}/estimate"
    for number in (1, 2):
        assert remote.post(sealed(TASK, honest_cells(USERS), number), round_number=number)[0] == 201
        whole = remote.estimate()["rounds"]
        asked = [remote.http.get(address, params={"round": one}).json()["rounds"] for one in range(1, number + 1)]
        assert [found for (found,) in asked] == whole
        later = remote.http.get(address, params={"round": number + 1})
        assert (later.status_code, later.json()["type"]) == (404, "urn:shufflesum:problem:no-estimate-yet")
    assert remote.http.get(address, params={"round": "x"}).status_code == 400


def test_the_table_of_counts_is_for_those_who_ask(remote: Remote) -> None:
    assert remote.post(sealed(TASK, honest_cells(USERS)))[0] == 201
    queries: list[dict[str, int]] = [{}, {"table": 0}, {"table": 1}, {"round": 1, "table": 1}, {"round": 1}]
    for query in queries:
        (found,) = remote.estimate(**query)["rounds"]
        assert ("table" in found) == (query.get("table") == 1)
    table = table_from_json(remote.estimate(table=1)["rounds"][0]["table"], TASK.plan.cells)
    cells = [11 * coordinate + value for coordinate, value in honest_cells(USERS)]
    assert np.array_equal(table, np.bincount(cells, minlength=TASK.plan.cells))
    for wrong in ("yes", "2", "", ["1", "1"]):
        answer = remote.http.get(f"/tasks/{TASK.id}/estimate", params={"table": wrong})
        assert answer.json()["type"] == "urn:shufflesum:problem:bad-request"


def test_each_round_is_read_as_it_was_randomized(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    turn_boxes(monkeypatch)
    for number in (1, 2):
        assert remote.post(sealed(TASK, honest_cells(USERS), number), round_number=number)[0] == 201
    first, second = remote.estimate()["rounds"]
    assert second["mean"] == pytest.approx(2 * np.array(first["mean"]))


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", f"Basic {SECRET}", SECRET])
def test_only_the_shuffler_may_hand_in_batches(remote: Remote, authorization: str) -> None:
    assert remote.problem(sealed(TASK, honest_cells(USERS)), authorization=authorization) == "wrong-secret"
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"


def test_batches_that_do_not_fit_are_refused_by_name(remote: Remote) -> None:
    body = sealed(TASK, honest_cells(USERS))
    few = body[: -2 * SEALED_BYTES]
    assert remote.problem(few, users=USERS - 1) == "batch-too-small"
    assert remote.problem(few) == "wrong-length"
    assert remote.problem(iter([few])) == "wrong-length"
    assert remote.problem(iter([body, b"x"])) == "wrong-length"
    assert remote.problem(body[:-1]) == "wrong-length"
    assert remote.problem(body + few) == "wrong-length"
    assert remote.problem(body, task="0" * 64) == "wrong-task"
    assert remote.problem(body, batch="A" * 32) == "bad-request"
    assert remote.problem(body, users=-1) == "bad-request"
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"
    assert remote.post(iter([body[:7], body[7:]]))[0] == 201


def test_reports_sealed_for_another_round_or_outside_the_domain_are_rejected_and_counted(store: str) -> None:
    cells = honest_cells(10)
    cells[0], cells[2] = (4, 0), (9, 10)  # the plan has four coordinates
    foreign = sealed(TASK, honest_cells(1), round_number=2)
    with running(TASK, store, without_guarantee=True) as remote:
        assert remote.post(sealed(TASK, cells) + foreign, users=11)[0] == 201
        (found,) = remote.estimate()["rounds"]
        assert found["rejected_reports"] == 4
        assert found["rejected_kinds"] == {"unreadable": 2, "no_cell": 2}
        assert found["users"] == 11
        assert remote.metrics()["shufflesum_reports_rejected_total"] == 4


@pytest.mark.parametrize(("bad_users", "holds"), [(0, True), (2, True), (3, False)])
def test_more_rejected_than_the_honest_fraction_allows_withholds_the_estimate(
    tmp_path: Path, bad_users: int, holds: bool
) -> None:
    """Of ten users 80% are honest: two may send what cannot be read."""
    task = task_of(plan_of(users=10, honest_fraction=0.8))
    body = sealed(task, honest_cells(10 - bad_users)) + bytes(2 * bad_users * SEALED_BYTES)
    with running(task, f"sqlite:{tmp_path}/strict") as remote:
        assert remote.post(body, users=10)[0] == 201
        document = remote.estimate()
        if holds:
            assert document["rounds"][0]["guarantee"]["holds"] is True
        else:
            assert document["type"] == "urn:shufflesum:problem:guarantee-broken"
            assert document["retry"] == "never"
            assert "does not hold" in document["detail"]
            assert "mean" not in str(document)
    with running(task, f"sqlite:{tmp_path}/insisting", without_guarantee=True) as remote:
        remote.post(body, users=10)
        (found,) = remote.estimate()["rounds"]
        assert found["guarantee"]["holds"] is holds
        assert found["rejected_reports"] == 2 * bad_users


def test_a_coordinate_nobody_reported_is_null(remote: Remote) -> None:
    cells = [cell for _ in range(USERS) for cell in ((0, 5), (2, 5))]
    remote.post(sealed(TASK, cells))
    (found,) = remote.estimate()["rounds"]
    assert found["mean"] == [0.5, None, 0.5, None]


def test_the_wrong_key_is_noticed_before_anything_is_served(store: str) -> None:
    other = generate_private_key()
    with refusal("key-mismatch", error=ParameterError):
        AnalyzerServer(TASK, Opener(other, processes=1), open_tables(store, TASK), secret=SECRET)


def test_a_guarantee_that_nobody_has_verified_is_verified_here(store: str) -> None:
    task = Task.load(Path(__file__).parents[2] / "vectors" / "golden_task.json")
    false = replace(task, plan=with_mechanism(task.plan, noise_probability=2.0**-10), verify_guarantee=False)
    with refusal("claim-not-confirmed", error=PlanError):
        AnalyzerServer(false, Opener(KEY, processes=1), open_tables(store, TASK), secret=SECRET)


def test_a_table_that_no_answer_carries_is_refused_at_once(store: str) -> None:
    words = OpenVocabulary(width=2**24, depth=5, key=bytes(16))
    task = task_of(Plan(words, NoisySlots(1, 0.5), no_guarantee(USERS)))
    with refusal("too-many-cells", str(5 * 2**24), error=ParameterError):
        AnalyzerServer(task, Opener(KEY, processes=1), open_tables(store, task), secret=SECRET)


def test_a_database_that_crashed_means_not_yet_and_comes_back_without_help(postgres: Postgres) -> None:
    task = replace(TASK, name="crash")
    body, batch = sealed(task, honest_cells(USERS)), secrets.token_hex(16)
    with running(task, postgres.address) as remote:
        postgres.stop()
        try:
            status, document = remote.post(body, batch=batch)
            assert (status, document["type"]) == (503, "urn:shufflesum:problem:store-unavailable")
        finally:
            postgres.start()
        assert remote.post(body, batch=batch)[0] == 201
        assert remote.post(body, batch=batch)[0] == 200


def test_a_store_that_is_gone_means_not_yet_and_comes_back_without_help(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    with running(TASK, f"sqlite:{folder}/tables") as remote:
        folder.rename(tmp_path / "away")
        status, document = remote.post(body, batch=batch)
        assert (status, document["retry"]) == (503, "not-yet")
        assert remote.http.get("/readyz").status_code == 503
        assert remote.http.get("/healthz").status_code == 200
        assert remote.http.get(f"/tasks/{TASK.id}/estimate").status_code == 503
        (tmp_path / "away").rename(folder)
        assert remote.http.get("/readyz").status_code == 200
        assert remote.post(body, batch=batch)[0] == 201


def test_an_answer_is_computed_once(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def counted(*arguments: Any, **options: Any) -> Any:
        computed.append(arguments)
        return release(*arguments, **options)

    monkeypatch.setattr("shufflesum.service.analyzer.page.release", counted)
    body = sealed(TASK, honest_cells(USERS))
    assert remote.post(body)[0] == 201
    first = remote.estimate()
    assert [remote.estimate() for _ in range(3)] == [first] * 3
    assert len(computed) == 1
    assert remote.post(sealed(TASK, honest_cells(USERS), 2), round_number=2)[0] == 201
    assert [found["round"] for found in remote.estimate()["rounds"]] == [1, 2]


def test_a_store_that_cannot_write_acknowledges_nothing(tmp_path: Path) -> None:
    """The largest size of a file stands in for a full disk."""
    with running(TASK, f"sqlite:{tmp_path}/tables") as remote:
        full_disk(remote)


def full_disk(remote: Remote) -> None:
    body, batch = sealed(TASK, honest_cells(USERS)), secrets.token_hex(16)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        # Too little for the store's journal, but not for what the test run itself writes down meanwhile.
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        status, document = remote.post(body, batch=batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, old)
    assert (status, document["type"]) == (503, "urn:shufflesum:problem:store-unavailable")
    assert remote.estimate()["type"] == "urn:shufflesum:problem:no-estimate-yet"
    assert remote.post(body, batch=batch)[0] == 201
