from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from tests.plan_builders import with_mechanism
from tests.refusals import refusal

import shufflesum as ss
from shufflesum.cli.clients import estimate_command, send_command
from shufflesum.errors import DataError, ParameterError, ShufflesumError
from shufflesum.keys import generate_private_key
from shufflesum.service.client import Client, UnreachableError
from shufflesum.tables.readers import open_table
from shufflesum.tables.sources import ReadOptions
from shufflesum.wire import Task, TaskError


@pytest.fixture(scope="module")
def plan() -> ss.Plan:
    return ss.plan(users=300, shape=2, epsilon=2.0, delta=1e-4, mechanism=ss.RandomizedResponse.Options(coordinates=1))


@pytest.fixture
def task_file(tmp_path: Path, plan: ss.Plan, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHUFFLESUM_CONTRIBUTIONS", str(tmp_path / "contributions"))
    return write_task(tmp_path / "task.json", plan)


def write_task(path: Path, plan: ss.Plan, shuffler: str = "http://127.0.0.1:1", days: int = 1) -> Path:
    task = Task(
        name="send test",
        plan=plan,
        analyzer_key=generate_private_key().public_key().public_bytes_raw(),
        shuffler=shuffler,
        expires=datetime.now(UTC).replace(microsecond=0) + timedelta(days=days),
    )
    path.write_text(task.to_json())
    return path


def failure(*arguments: object) -> ShufflesumError:
    outcome = CliRunner().invoke(send_command, [str(argument) for argument in arguments])
    assert isinstance(outcome.exception, ShufflesumError)
    return outcome.exception


def rows_file(tmp_path: Path, columns: int = 2, value: float = 0.0) -> Path:
    np.save(tmp_path / "rows.npy", np.full((3, columns), value))
    return tmp_path / "rows.npy"


def test_what_cannot_be_sent_is_refused_before_anything_is(tmp_path: Path, task_file: Path) -> None:
    rows = rows_file(tmp_path)
    with refusal("missing-argument", "--row N"):
        raise failure("--task", task_file, "--user", "Ada", rows)
    with refusal("out-of-range", "0 to 2", error=ParameterError):
        raise failure("--task", task_file, "--row", "3", rows)
    (tmp_path / "few").write_text("aa\nbb\n")
    with refusal("too-few-tokens", "2 tokens", "3 rows"):
        raise failure("--task", task_file, "--tokens", tmp_path / "few", rows)
    with refusal("wrong-shape", "(3,)", error=DataError):
        raise failure("--task", task_file, rows_file(tmp_path, columns=3))


@pytest.mark.parametrize("option", [(), ("--clip",)])
def test_values_are_always_moved_to_the_nearest_bound_and_need_no_option_for_it(
    tmp_path: Path, task_file: Path, option: tuple[str, ...]
) -> None:
    given = [*option, "--task", str(task_file), "--timeout", "0.2", "--row", "0", str(rows_file(tmp_path, value=9.0))]
    outcome = CliRunner().invoke(send_command, given)
    assert ("--clip is not needed" in outcome.stderr) == bool(option)
    assert isinstance(outcome.exception, UnreachableError)  # it was randomized and tried


def test_columns_are_spoken_of_as_the_plans() -> None:
    said = CliRunner().invoke(send_command, ["--help"]).output
    assert "under a plan for" in " ".join(said.split())
    assert "Count the labels" not in said


def test_an_expired_task_and_a_far_plain_address_are_refused(tmp_path: Path, task_file: Path, plan: ss.Plan) -> None:
    rows = rows_file(tmp_path)
    with refusal("expired", error=TaskError):
        raise failure("--task", write_task(tmp_path / "old.json", plan, days=-1), rows)
    far = write_task(tmp_path / "far.json", plan, "http://shuffler.example.org")
    with refusal("untrusted", "--allow-plain-http"):
        raise failure("--task", far, rows)


def test_a_false_claim_is_refused(tmp_path: Path, task_file: Path) -> None:
    text = task_file.read_text()
    task_file.write_text(text.replace('"epsilon": 2.0', '"epsilon": 1.0'))
    assert text != task_file.read_text()
    assert isinstance(failure("--task", task_file, rows_file(tmp_path)), TaskError)


def test_a_false_claim_is_believed_only_when_told_to(tmp_path: Path, task_file: Path) -> None:
    task = Task.load(task_file)
    false = replace(task, plan=with_mechanism(task.plan, noise_probability=2.0**-10), verify_guarantee=False)
    task_file.write_text(false.to_json())
    with refusal("claim-not-confirmed", error=TaskError):
        raise failure("--task", task_file, "--timeout", "0.2", "--row", 0, rows_file(tmp_path))
    with refusal("unreachable", error=UnreachableError):  # it was read, randomized and tried
        raise failure("--task", task_file, "--timeout", "0.2", "--row", 0, "--no-verify", rows_file(tmp_path))


def test_nobody_listening_is_said_and_the_upload_kept(tmp_path: Path, task_file: Path) -> None:
    error = failure("--task", task_file, "--timeout", "0.2", rows_file(tmp_path))
    assert isinstance(error, UnreachableError)
    with Client(Task.load(task_file)) as client:
        assert set(client._contributions.known(client.task, ["row 0", "row 1", "row 2"], 1)) == {
            "row 0",
            "row 1",
            "row 2",
        }
    asked = CliRunner().invoke(estimate_command, ["--task", str(task_file), "http://127.0.0.1:1"])
    assert isinstance(asked.exception, UnreachableError)


@pytest.mark.parametrize("kind", ["named", "positions", "parquet"])
def test_labels_come_from_the_user_column(tmp_path: Path, kind: str) -> None:
    path, column = tmp_path / "users.csv", "who"
    if kind == "named":
        path.write_text('who ,a,b\n"Ada ",0.1,0.2\n\nGrace,0.3,0.4\n')
    elif kind == "positions":
        path.write_text("Ada,0.1,0.2\nGrace,0.3,0.4\n")
        column = "0"
    else:
        path = tmp_path / "users.parquet"
        parquet.write_table(pa.table({"a": [0.1, 0.3], "who": ["Ada", "Grace"], "b": [0.2, 0.4]}), path)
    table = open_table(path, ReadOptions(user_column=column))
    assert table.shape == (2,)
    assert [label for users in table.users() for label in users.to_pylist()] == ["Ada", "Grace"]
